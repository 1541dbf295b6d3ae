"""Timelines that workers wrote are those that Spark writes where they cannot, and other engines see the same."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from isr_batch.errors import SchemaError
from isr_batch.lake.lake import Lake
from isr_batch.lake.maintain import maintain
from isr_batch.lake.tables.outputs import REPLICA_TIMELINE, TIMELINES
from isr_batch.replay import timeline_files
from isr_batch.replay.replay import replay, rule_runs
from isr_batch.replay.timeline_files import timelines_kept
from isr_batch.settings import ReplaySettings
from isr_batch.simulation.generate import generate
from isr_batch.simulation.group_plans import Fleet
from isr_batch.simulation.proposal_examples import START_MS
from isr_batch.window import Window

RULES = ["kafka-0.9", "kafka-3.7", "kip-501-pending", "kip-501-relinquish"]
RUNS = rule_runs(ReplaySettings(rules=RULES))
SECOND = Window("2024-01-01", "2024-01-02")


@pytest.fixture
def over_midnight(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr("isr_batch.simulation.generate.START_MS", START_MS - 20_000)
    generate(lake, Fleet("kip-501-example"))
    return lake


def rows(lake: Lake) -> dict[str, list[str]]:
    return {table.name: sorted(map(str, lake.read(table.name).collect())) for table in TIMELINES.values()}


def files(lake: Lake) -> set[str]:
    tables = (DeltaTable(str(lake.folder(table.name))) for table in TIMELINES.values())
    return {file for table in tables for file in table.file_uris()}


def test_workers_write_what_spark_would(over_midnight: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    replay(over_midnight, RUNS)
    by_workers = rows(over_midnight)
    assert all(len({row.partition("event_date")[2] for row in found}) == 2 for found in by_workers.values())
    # These rows did not pass by Delta, which refuses what breaks its table's contract.
    for table in TIMELINES.values():
        stored = over_midnight.read(table.name)
        broken = [f"NOT ({condition})" for condition in table.constraints.values()]
        missing = [f"{column.name} IS NULL" for column in table.columns if not column.nullable]
        assert stored.where(" OR ".join(broken + missing)).isEmpty(), table.name
    commit = over_midnight.spark.sql(f"DESCRIBE HISTORY {over_midnight.identifier('replica_timeline')} LIMIT 1")
    assert json.loads(commit.collect()[0]["userMetadata"]) == {"run_id": "test-run"}
    # The first and the last instant, where a file's log rounds them.
    times = [row["time"] for row in over_midnight.read("replica_timeline").select("time").collect()]
    for edge in (min(times), max(times)):
        found = over_midnight.read("replica_timeline").where(F.col("time") == F.lit(edge)).count()
        assert found == times.count(edge)

    monkeypatch.setattr(Lake, "folder", lambda *_: None)
    replay(over_midnight, RUNS)
    assert rows(over_midnight) == by_workers


@pytest.mark.usefixtures("vacuum_at_once")
def test_runs_share_files_that_nobody_has_to_know_of(over_midnight: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    replay(over_midnight, RUNS)
    alone = rows(over_midnight)

    def sharing(*given: Any) -> Iterator[pa.RecordBatch]:  # in the worker
        with patch.object(timeline_files, "SHARED_ROWS", 1):
            yield from timelines_kept(*given)

    monkeypatch.setattr("isr_batch.replay.replay.timelines_kept", sharing)
    replay(over_midnight, RUNS)
    assert rows(over_midnight) == alone
    for name, expected in alone.items():
        table = DeltaTable(str(over_midnight.folder(name)))
        assert any(Path(file).stat().st_nlink == len(RULES) for file in table.file_uris())
        assert len(table.to_pyarrow_table()) == len(expected)

    # One run's names can go while others keep theirs, and files can be made few.
    names = files(over_midnight)
    replay(over_midnight, RUNS[1:2])
    left = files(over_midnight)
    monkeypatch.setattr("isr_batch.lake.maintain.TABLES", list(alone))
    maintain(over_midnight, 0, 14)
    assert {file for file in names if not Path(file).exists()} == {file for file in names if "/rule=kafka-3.7/" in file}
    assert files(over_midnight) == left
    assert rows(over_midnight) == alone
    for name in alone:
        over_midnight.spark.sql(f"OPTIMIZE {over_midnight.identifier(name)}")
    assert files(over_midnight) != left
    assert rows(over_midnight) == alone


def test_a_window_and_a_rule_replace_their_own_rows_alone(over_midnight: Lake) -> None:
    replay(over_midnight, RUNS)
    before = rows(over_midnight)
    files = set(DeltaTable(str(over_midnight.folder("replica_timeline"))).file_uris())
    done = replay(over_midnight, RUNS[1:2], SECOND)
    assert rows(over_midnight) == before
    replaced = files - set(DeltaTable(str(over_midnight.folder("replica_timeline"))).file_uris())
    assert replaced
    assert all("event_date=2024-01-01/rule=kafka-3.7/" in file for file in replaced)
    for table in TIMELINES.values():
        of_window = over_midnight.read(table.name).where(SECOND.condition).where("rule = 'kafka-3.7'")
        assert done.rows_out[table.name] == of_window.count() > 0


def test_a_table_that_is_laid_out_otherwise_is_refused(lake: Lake) -> None:
    columns = ", ".join(f"{column.name} {column.type}" for column in REPLICA_TIMELINE.columns)
    lake.spark.sql(f"CREATE TABLE {lake.identifier('replica_timeline')} ({columns}) USING DELTA")
    with pytest.raises(SchemaError, match="partitioned by nothing"):
        lake.require_layout(REPLICA_TIMELINE)


def test_a_folder_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path / "a b+c"))
    lake.ensure(REPLICA_TIMELINE)
    folder = lake.folder("replica_timeline")
    assert folder == f"{tmp_path}/a b+c/replica_timeline"
    assert lake.replace_files(REPLICA_TIMELINE, folder, [], []) == 0
    escaped = Lake(spark, str(tmp_path / "a%20b"))
    escaped.ensure(REPLICA_TIMELINE)
    assert escaped.folder("replica_timeline") is None
