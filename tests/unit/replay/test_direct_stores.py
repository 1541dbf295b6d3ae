"""A lake that delta-rs reaches is written without Spark, in a folder and through delta-rs's own files, as on S3."""

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from isr_batch.lake.arrow_read import open_columns, read_columns
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files import write
from isr_batch.lake.delta_files.stores import Setting, Store
from isr_batch.lake.delta_files.write import reported_files, with_files_written
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import FETCH_SEGMENTS
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.nightly import replay_window
from isr_batch.replay.replay import rule_runs
from isr_batch.settings import ReplaySettings
from isr_batch.simulation.generate_scenario import generate_scenario
from isr_batch.simulation.group_plans import FleetOfGroups

OF_RUN = {"run_id", "replayed_time", "packed_from", "run_set", "turn", "taken_time", "started_time", "ended_time"}
"""Columns that say which run wrote a row, and when."""


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for")


def through_delta_rs(location: str, _: Setting) -> Store:
    """A store outside a folder, as from `isr_batch.lake.delta_files.stores.store_of`."""
    Path(location.removeprefix("file:")).mkdir(parents=True, exist_ok=True)
    return Store(location.replace("file:", "file://"))


def content(lake: Lake) -> dict[str, list[str]]:
    rows = {name: read_columns(lake, name, table.column_names) for name, table in TABLES.items() if lake.has(name)}
    kept = {name: table.drop_columns([*OF_RUN & {*table.column_names}]) for name, table in rows.items()}
    return {name: sorted(map(str, table.to_pylist())) for name, table in kept.items() if table.num_rows}


def test_delta_rs_writes_the_same_as_to_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("folder", "store"):
        if name == "store":
            monkeypatch.setattr("isr_batch.lake.lake.store_of", through_delta_rs)
        lake = Lake(no_spark, str(tmp_path / name), "test")
        generate_scenario(lake, FleetOfGroups("kip-501-example"))
        for rules in (["kafka-3.7", "kip-501-pending"], ["kafka-3.7"]):  # the second replaces one rule of the first
            replay_window(lake, rule_runs(ReplaySettings(rules=rules)), timelines="all")
        assert lake.by_delta_rs("isr_changes").store.is_folder == (name == "folder")
        opened = open_columns(lake, "replica_states", ("topic", "event_date"))
        assert isinstance(opened, ds.Dataset)
        assert opened.to_table().num_rows > 10
        found.append(content(lake))
    assert {"isr_changes", "shrink_verdicts", "rule_scores", "replica_states", "fetch_segments"} <= found[0].keys()
    assert found[0].keys() == found[1].keys()
    for name, rows in found[0].items():
        assert rows == found[1][name], name


def test_large_segments_are_in_several_files_and_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(no_spark, str(tmp_path / "lake"), "test")
    generate_scenario(lake, FleetOfGroups("kip-501-example"))
    replay_window(lake, rule_runs(ReplaySettings(rules=["kafka-3.7"])), timelines="none")
    packed = pa.concat_tables([read_columns(lake, "fetch_segments", FETCH_SEGMENTS.column_names)] * 9)
    assert packed.num_rows == 9
    monkeypatch.setattr(write, "GROUP_BYTES", packed.nbytes // 4)
    monkeypatch.setattr(write, "BINARIES_BYTES", 1)
    monkeypatch.setattr(write, "BINARIES_OF_FILE", packed.nbytes // 3)
    store = Store(str(tmp_path / "files"))
    batches = iter(packed.to_batches(max_chunksize=1))
    reports = pa.Table.from_batches(with_files_written(FETCH_SEGMENTS, store, "true", ArrowSql, batches))
    files = reported_files(reports)
    assert len(files) > 1
    assert sum(file.rows for file in files) == packed.num_rows
    found = [pq.ParquetFile(tmp_path / "files" / file.path) for file in files]
    assert sum(file.num_row_groups for file in found) == packed.num_rows
    names = [name for name in packed.column_names if name != "event_date"]
    rows = pa.concat_tables(file.read(names) for file in found)
    assert sorted(map(str, rows.to_pylist())) == sorted(map(str, packed.select(names).to_pylist()))
