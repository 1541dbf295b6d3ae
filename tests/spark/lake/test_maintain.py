"""Maintenance deletes unreferenced files, and nothing else."""

import os
import time
from datetime import date
from pathlib import Path
from typing import NoReturn

import deltalake
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import FETCH_LOG
from isr_batch.lake.tables.outputs import ISR_CHANGES, REPLAY_STATE, TABLES
from isr_batch.nightly import maintain_and_pack, replay_window
from isr_batch.replay.days import fingerprints, undone_days
from isr_batch.replay.replay import replay, rule_runs
from isr_batch.settings import ReplaySettings
from isr_batch.simulation.generate_scenario import generate_scenario
from isr_batch.simulation.group_plans import FleetOfGroups
from isr_batch.simulation.proposal_examples import START_MS
from isr_batch.window import Window

RUNS = rule_runs(ReplaySettings(rules=["kafka-3.7", "kip-501-pending"]))
NAMES = ["fetch_log", "append_log", "fetch_segments", "replica_states", "replay_state"]
FIRST = Window("2023-12-31", "2024-01-01")


@pytest.mark.usefixtures("vacuum_at_once")
@pytest.mark.parametrize("by_spark", [False, pytest.param(True, marks=pytest.mark.long)])
def test_tables_keep_their_rows(lake: Lake, monkeypatch: pytest.MonkeyPatch, by_spark: bool) -> None:
    monkeypatch.setattr("isr_batch.simulation.generate_scenario.START_MS", START_MS - 20_000)
    generate_scenario(lake, FleetOfGroups("kip-501-example"))
    replay(lake, RUNS, FIRST).days.mark()
    kept = lake.read("replay_state")
    (day,) = {row["event_date"] for row in kept.collect()}
    assert day == date(2023, 12, 31)
    lake.replace(REPLAY_STATE, kept.withColumn("event_date", F.date_sub("event_date", 14)), "event_date < '2023-12-31'")
    lake.replace(FETCH_LOG, lake.read("fetch_log"), "true")

    def rows() -> dict[str, list[str]]:
        return {name: sorted(map(str, lake.read(name).drop("packed_from").collect())) for name in NAMES}

    before = rows()
    # By Spark each takes seconds, and all are treated alike.
    monkeypatch.setattr("isr_batch.lake.maintain.TABLES", {name: TABLES[name] for name in NAMES})
    if by_spark:
        monkeypatch.setattr("isr_batch.lake.sizes.MAINTAINED_BYTES", -1)
    files = set(Path(lake.root).rglob("*.parquet"))
    told = maintain_and_pack(lake, 0, 14)
    assert [row["table"] for row in told] == NAMES
    assert files - set(Path(lake.root).rglob("*.parquet"))
    before["replay_state"] = [row for row in before["replay_state"] if "2023, 12, 31" in row]
    assert len(before["replay_state"]) == 1
    assert rows() == before
    assert undone_days(lake, FIRST, RUNS, fingerprints(lake)) == []


def no_spark() -> NoReturn:
    raise AssertionError


def test_small_tables_are_maintained_without_spark(tmp_path: Path) -> None:
    """Old unreferenced files are deleted, recently replaced ones stay, and files are written as before."""
    lake = Lake(no_spark, str(tmp_path / "lake"))
    for _ in range(2):
        generate_scenario(lake, FleetOfGroups("kip-501-example"))
        replay_window(lake, RUNS)
    folder = tmp_path / "lake" / "isr_changes" / "event_date=2024-01-01"
    now_s = time.time()
    for name, at_s in (("old", now_s - 8 * 86_400), ("new", now_s)):
        (folder / f"{name}.parquet").write_bytes(b"in no table")
        os.utime(folder / f"{name}.parquet", (at_s, at_s))
    replaced = {path for path in folder.glob("part-*") if path.name not in deltalake_files(folder.parent)}
    assert replaced
    before = read_columns(lake, "isr_changes", ISR_CHANGES.column_names).sort_by("change_time")
    told = {row["table"]: row for row in maintain_and_pack(lake, 168, 14)}
    assert read_columns(lake, "isr_changes", ISR_CHANGES.column_names).sort_by("change_time").equals(before)
    assert told["run_lease"]["files_before"] != told["run_lease"]["files_after"] == 1
    assert {path.name for path in folder.glob("*.parquet")} >= {"new.parquet", *(path.name for path in replaced)}
    assert not (folder / "old.parquet").exists()
    leases = tmp_path / "lake" / "run_lease"
    of_leases = [pq.ParquetFile(leases / file).metadata for file in deltalake_files(leases)]
    (joined,) = [metadata for metadata in of_leases if metadata.num_rows > 1]
    assert {*joined.row_group(0).column(0).encodings} == {"DELTA_BINARY_PACKED", "RLE"}


def deltalake_files(table: Path) -> set[str]:
    return {Path(file).name for file in deltalake.DeltaTable(table).file_uris()}
