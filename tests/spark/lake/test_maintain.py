"""Upkeep takes away what nobody can ask for, and nothing else."""

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import FETCH_LOG
from isr_batch.lake.tables.outputs import REPLAY_STATE
from isr_batch.nightly import maintain_and_pack
from isr_batch.replay.days import fingerprints, mark_days, undone_days
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
def test_tables_say_what_they_said(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isr_batch.simulation.generate_scenario.START_MS", START_MS - 20_000)
    generate_scenario(lake, FleetOfGroups("kip-501-example"))
    mark_days(lake, FIRST, RUNS, replay(lake, RUNS, FIRST).fingerprints)
    kept = lake.read("replay_state")
    (day,) = {row["event_date"] for row in kept.collect()}
    assert day == date(2023, 12, 31)
    lake.replace(REPLAY_STATE, kept.withColumn("event_date", F.date_sub("event_date", 14)), "event_date < '2023-12-31'")
    lake.replace(FETCH_LOG, lake.read("fetch_log"), "true")

    def rows() -> dict[str, list[str]]:
        return {name: sorted(map(str, lake.read(name).drop("packed_from").collect())) for name in NAMES}

    before = rows()
    # Each takes seconds, and all are treated alike.
    monkeypatch.setattr("isr_batch.lake.maintain.TABLES", NAMES)
    files = set(Path(lake.root).rglob("*.parquet"))
    told = maintain_and_pack(lake, 0, 14)
    assert [row["table"] for row in told] == NAMES
    assert files - set(Path(lake.root).rglob("*.parquet"))
    before["replay_state"] = [row for row in before["replay_state"] if "2023, 12, 31" in row]
    assert len(before["replay_state"]) == 1
    assert rows() == before
    assert undone_days(lake, FIRST, RUNS, fingerprints(lake)) == []
