"""This process and Spark's workers replay alike."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from isr_batch.lake.arrow_read import contract_of
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.replay.event_stream import stream_facts
from isr_batch.replay.own_changes import own_changes
from isr_batch.replay.replay import engine_of_replay, replay, rule_runs
from isr_batch.replay.result_files import reported_result_files
from isr_batch.settings import ReplaySettings
from isr_batch.simulation.generate_scenario import generate_scenario
from isr_batch.simulation.group_plans import FleetOfGroups
from isr_batch.simulation.proposal_examples import START_MS
from isr_batch.window import Window
from tests.same_rows import rows_in
from udfs.batches.rule_runs import RuleRun

RULES = ["kafka-0.8", "kafka-3.7", "kip-501-pending", "true-lag"]
WRITTEN = ("isr_changes", "shrink_verdicts", "partition_scores", "replica_scores", "replay_state", *VIEWS)


def rows_of(lake: Lake, name: str) -> Counter[str]:
    # The same state can be packed in several ways.
    names = [column for column in contract_of(name).column_names if column != "state"]
    return Counter(rows_in(lake, name, names))


@pytest.mark.parametrize(("pinned", "tables_by_spark"), [(True, False), (False, False), (True, True)])
def test_facts(sample_lake: Lake, monkeypatch: pytest.MonkeyPatch, *, pinned: bool, tables_by_spark: bool) -> None:
    if tables_by_spark:
        monkeypatch.setattr("isr_batch.lake.sizes.PASSED_BYTES", -1)
    with InProcess(sample_lake) as here, BySpark(sample_lake) as spark:
        found = Counter(str(sorted(row.items())) for row in here.listed(stream_facts(here, pinned=pinned)))
        rows = stream_facts(spark, pinned=pinned).collect()
        assert found == Counter(str(sorted(row.asDict(recursive=True).items())) for row in rows)
        assert found.total() > 1000


def test_changes(sample_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for most in (-1, 10**9):
        monkeypatch.setattr("isr_batch.lake.sizes.REPLAYED_EVENTS", most)
        found.append(Counter(map(str, own_changes(sample_lake, [RuleRun("kafka-3.7")]).to_pylist())))
    assert found[0] == found[1]
    assert found[0].total() > 100


def test_tables(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log across midnight, whose second day is replayed from the state at the end of the first.

    By Spark throughout, by Spark whose results are few enough for this process, by Spark whose workers write results,
    and by this process.
    """
    monkeypatch.setattr("isr_batch.simulation.generate_scenario.START_MS", START_MS - 20_000)
    generate_scenario(lake, FleetOfGroups("kip-501-example"))
    runs = rule_runs(ReplaySettings(rules=RULES))
    found = []
    ways: dict[str, tuple[type[InProcess | BySpark], dict[str, object]]] = {
        "by Spark": (BySpark, {"lake.sizes.RESULT_ROWS": -1, "replay.replay.result_files_for": lambda *_: None}),
        "few": (BySpark, {"replay.replay.result_files_for": lambda *_: None}),
        "by workers": (BySpark, {"lake.sizes.TASK_ROWS": -1, "replay.result_files.HELD_ROWS": 10}),
        "in process": (InProcess, {}),
    }
    for name, (engine, changed) in ways.items():
        replayed = Lake(lake.spark, str(shutil.copytree(lake.root, tmp_path / name)), "test")
        days = sorted(row[0] for row in replayed.read("fetch_log").select("event_date").distinct().collect())
        with monkeypatch.context() as now:
            now.setattr("isr_batch.lake.sizes.REPLAYED_EVENTS", -1 if engine is BySpark else 10**9)
            for constant, value in changed.items():
                now.setattr(f"isr_batch.{constant}", value)
            with engine_of_replay(replayed) as chosen:
                assert isinstance(chosen, engine)
            by_workers = Mock(wraps=reported_result_files)
            now.setattr("isr_batch.replay.replay.reported_result_files", by_workers)
            for day in days:
                replay(replayed, runs, Window.of_day(day), timelines="all")
            assert any(reports for (reports,), _ in by_workers.call_args_list) == (name == "by workers")
        assert len(days) == 2
        found.append({name: rows_of(replayed, name) for name in WRITTEN})
    for name in WRITTEN:
        assert found[0][name], name
        assert all(of_way[name] == found[0][name] for of_way in found), name


@pytest.mark.nightly
def test_fleets(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of two partitions for three minutes."""
    fleet = FleetOfGroups("mixed-fleet", partitions=4, hours=0.05, seed=4, partitions_a_group=2)
    found: list[dict[str, Counter[Any]]] = []
    for name, most in (("spark", -1), ("here", 10**9)):
        monkeypatch.setattr("isr_batch.simulation.generate_scenario.FEW_PARTITION_HOURS", most)
        generated = Lake(lake.spark, str(tmp_path / name), "test")
        generate_scenario(generated, fleet)
        rows = generated.read("fetch_log").select("partition_id", "replica_id", "run_length", "handled_time")
        found.append({
            "fetches": Counter(
                (row["partition_id"], row["replica_id"]) for row in rows.collect() for _ in range(row["run_length"])
            ),
            **{table: rows_of(generated, table) for table in ("append_log", "leader_epochs", "planted_faults")},
        })  # fmt: skip
    assert found[0] == found[1]
    assert found[0]["fetches"].total() > 10_000
