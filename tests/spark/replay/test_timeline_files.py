"""Timelines are those of the kernel, a row once for the runs that share it, and other engines see the same."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from isr_batch.errors import NoInputError, SchemaError, UsageError
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.maintain import maintain_tables
from isr_batch.lake.tables.timelines import REPLICA_STATES, TIMELINES, VIEWS
from isr_batch.lake.view_statements import view_statements
from isr_batch.nightly import replay_window
from isr_batch.replay.event_stream import event_stream, stream_facts
from isr_batch.replay.one_partition import timelines_of_one_partition
from isr_batch.replay.replay import replay, replayed_stream, rule_runs
from isr_batch.replay.timeline_tables import take_out_unnamed
from isr_batch.settings import ReplaySettings
from isr_batch.simulation.generate_scenario import generate_scenario
from isr_batch.simulation.group_plans import FleetOfGroups
from isr_batch.simulation.proposal_examples import START_MS
from isr_batch.window import Window
from tests.same_rows import rows_in

RULES = ["kafka-0.9", "kafka-3.7", "kip-501-pending", "kip-501-relinquish"]
RUNS = rule_runs(ReplaySettings(rules=RULES))
SECOND = Window("2024-01-01", "2024-01-02")


@pytest.fixture(scope="module")
def generated(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    lake = Lake(spark_session, str(tmp_path_factory.mktemp("generated") / "lake"), "test-run")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("isr_batch.simulation.generate_scenario.START_MS", START_MS - 20_000)
        generate_scenario(lake, FleetOfGroups("kip-501-example"))
    return lake.root


@pytest.fixture(scope="module")
def generated_and_replayed(
    spark_session: SparkSession, generated: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    root = shutil.copytree(generated, str(tmp_path_factory.mktemp("replayed") / "lake"))
    replay(Lake(spark_session, root, "test-run"), RUNS, timelines="all")
    return root


@pytest.fixture
def over_midnight(lake: Lake, generated: str) -> Lake:
    shutil.copytree(generated, lake.root)
    return lake


@pytest.fixture
def replayed_lake(lake: Lake, generated_and_replayed: str) -> Lake:
    shutil.copytree(generated_and_replayed, lake.root)
    return lake


def rows(lake: Lake) -> dict[str, list[str]]:
    """Rows of the views, read without Spark; `test_the_views_have_the_rows_of_the_kernel` reads them with it."""
    return {view: rows_in(lake, view) for view in VIEWS}


def files(lake: Lake) -> set[str]:
    tables = (lake.by_delta_rs(table.name).log() for table in TIMELINES.values())
    return {file for table in tables for file in table.file_uris()}


def of_kernel(lake: Lake) -> dict[str, Counter[tuple[Any, ...]]]:
    """Rows as the kernel gives them to each run, which naive model and releases are held against."""
    views = {"replica": "replica_changes", "partition": "partition_timeline"}
    found: dict[str, Counter[tuple[Any, ...]]] = {view: Counter() for view in views.values()}
    with InProcess(lake) as engine:
        made = engine.listed(replayed_stream(engine, event_stream(engine, stream_facts(engine)), RUNS))
    for row in made:
        if view := views.get(row["result"]):
            row |= {"isr": row["isr_after"]}
            names = [name for name in VIEWS[view][0].column_names if name not in {"time", "event_date"}]
            found[view][row["time_us"], *(str(row[name]) for name in names)] += 1
    return found


def test_the_views_have_the_rows_of_the_kernel(over_midnight: Lake) -> None:
    done = replay(over_midnight, RUNS)
    for view, expected in of_kernel(over_midnight).items():
        names = [name for name in VIEWS[view][0].column_names if name not in {"time", "event_date"}]
        read = over_midnight.read(view)
        assert read.columns == VIEWS[view][0].column_names
        assert dict(read.dtypes) == {column.name: column.type.lower() for column in VIEWS[view][0].columns}
        found = read.select(F.unix_micros("time").alias("time_us"), *names).collect()
        assert Counter((row["time_us"], *(str(row[name]) for name in names)) for row in found) == expected
        assert read.where("event_date <> CAST(time AS DATE)").isEmpty()
        assert read.select("event_date").distinct().count() == 2
    # These rows did not pass by Delta, which refuses what breaks its table's contract.
    for table in TIMELINES.values():
        stored = over_midnight.read(table.name)
        broken = [f"NOT ({condition})" for condition in table.constraints.values()]
        missing = [f"{column.name} IS NULL" for column in table.columns if not column.nullable]
        assert stored.where(" OR ".join(broken + missing)).isEmpty(), table.name
        assert stored.count() == done.rows_out[table.name]
        assert stored.count() < over_midnight.read(table.name.replace("states", "timeline")).count()
    commit = over_midnight.spark.sql(f"DESCRIBE HISTORY {over_midnight.identifier('replica_states')} LIMIT 1")
    assert json.loads(commit.collect()[0]["userMetadata"]) == {"run_id": "test-run"}
    # The first and the last instant, where a file's log rounds them.
    times = [row["time"] for row in over_midnight.read("replica_states").select("time").collect()]
    for edge in (min(times), max(times)):
        found_at = over_midnight.read("replica_states").where(F.col("time") == F.lit(edge)).count()
        assert found_at == times.count(edge)


def test_one_rule_again_replaces_its_rows_alone(replayed_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before, first = rows(replayed_lake), files(replayed_lake)
    replay(replayed_lake, RUNS[1:2], SECOND)
    assert rows(replayed_lake) == before
    assert first < files(replayed_lake)  # the other rules need what they share
    second = files(replayed_lake) - first
    replay(replayed_lake, RUNS[1:2], SECOND)
    assert rows(replayed_lake) == before
    assert not second & files(replayed_lake)
    replay(replayed_lake, RUNS)
    assert rows(replayed_lake) == before
    assert not first & files(replayed_lake)
    assert len(files(replayed_lake)) == len(first)
    monkeypatch.setattr("isr_batch.replay.replay.commit_timelines", None)
    with pytest.raises(TypeError):
        replay(replayed_lake, RUNS)
    assert rows(replayed_lake) == before


@pytest.mark.usefixtures("vacuum_at_once")
def test_rows_of_a_killed_run_are_invisible_and_removed(replayed_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before, first = rows(replayed_lake), files(replayed_lake)
    killed = patch("isr_batch.replay.timeline_tables.replace_arrow", side_effect=KeyboardInterrupt)
    with killed, pytest.raises(KeyboardInterrupt):
        replay(replayed_lake, RUNS[:2])
    assert first < files(replayed_lake)
    assert rows(replayed_lake) == before
    monkeypatch.setattr("isr_batch.lake.maintain.TABLES", {table.name: table for table in TIMELINES.values()})
    for name in TIMELINES.values():  # joined with rows that count
        replayed_lake.spark.sql(f"OPTIMIZE {replayed_lake.identifier(name.name)}")
    assert rows(replayed_lake) == before
    take_out_unnamed(replayed_lake)
    maintain_tables(replayed_lake, 0, 14)
    assert rows(replayed_lake) == before
    sets = {row["run_set"] for row in replayed_lake.read("rule_runs").collect()}
    assert {row["run_set"] for row in replayed_lake.read("replica_states").select("run_set").collect()} == sets
    assert {str(path) for path in Path(replayed_lake.root, "replica_states").rglob("*.parquet")} <= {
        path.replace("%20", " ") for path in files(replayed_lake)
    }


def test_none_are_written_where_none_are_wanted(over_midnight: Lake) -> None:
    replay(over_midnight, RUNS, timelines="none")
    assert not over_midnight.has("replica_timeline")
    verdicts = rows_in(over_midnight, "shrink_verdicts")
    replay(over_midnight, RUNS)
    before = rows(over_midnight)
    replay(over_midnight, RUNS[1:2], SECOND, timelines="none")
    lost = over_midnight.read("replica_timeline").where("rule = 'kafka-3.7'").select("event_date").distinct().collect()
    assert [str(row["event_date"]) for row in lost] == ["2023-12-31"]
    left = {view: [row for row in found if "kafka-3.7" not in row] for view, found in rows(over_midnight).items()}
    assert left == {view: [row for row in found if "kafka-3.7" not in row] for view, found in before.items()}
    assert rows_in(over_midnight, "shrink_verdicts") == verdicts


def other_tables(lake: Lake) -> dict[str, list[str]]:
    return {name: rows_in(lake, name) for name in ("eligible_leaders", "shrink_verdicts")}


def test_around_shrinks_nothing_is_missing_that_another_table_needs(over_midnight: Lake) -> None:
    replay_window(over_midnight, RUNS, timelines="all")
    whole, needed = rows(over_midnight), other_tables(over_midnight)
    replay_window(over_midnight, RUNS, timelines="around-shrinks")
    at_once = rows(over_midnight)
    assert other_tables(over_midnight) == needed
    for view, found in at_once.items():
        assert 0 < len(found) < len(whole[view])
    for day in (Window("2023-12-31", "2024-01-01"), SECOND):
        replay_window(over_midnight, RUNS, day, timelines="around-shrinks")
    assert rows(over_midnight) == at_once


def test_of_very_many_events_those_around_shrinks_are_written(
    over_midnight: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isr_batch.lake.sizes.TIMELINE_EVENTS", 9)
    done = replay(over_midnight, RUNS)
    assert re.fullmatch(r"around-shrinks \(of [\d,]+ events; --timelines all writes all\)", done.timelines)
    at_once = rows(over_midnight)
    replay(over_midnight, RUNS, timelines="around-shrinks")
    assert rows(over_midnight) == at_once


def test_duckdb_sees_the_same_timelines(replayed_lake: Lake) -> None:
    db = duckdb.connect()
    db.execute(";".join(view_statements(replayed_lake, "duckdb")))
    for view in VIEWS:
        contract = VIEWS[view][0]
        columns = [
            f"CAST({column.name} AS STRING)" for column in contract.columns if column.name not in {"time", "isr"}
        ]
        found = db.execute(f"SELECT epoch_us(time), {', '.join(columns)} FROM {view}").fetchall()
        expected = replayed_lake.read(view).selectExpr("unix_micros(time)", *columns).collect()
        assert Counter(found) == Counter(map(tuple, expected))


@pytest.mark.parametrize("window", [Window(), SECOND], ids=str)
def test_files_of_one_partition_are_read_on_demand(replayed_lake: Lake, window: Window) -> None:
    topic, partition_id = replayed_lake.read("leader_epochs").select("topic", "partition_id").first() or ("", 0)
    made = timelines_of_one_partition(replayed_lake, RUNS, (None, topic, partition_id), window)
    for view, rows in made.items():
        of_partition = replayed_lake.read(view).where(window.condition).where(F.col("topic") == topic)
        written = of_partition.where(F.col("partition_id") == partition_id)
        assert rows.num_rows
        assert sorted(map(str, replayed_lake.spark.createDataFrame(rows).collect())) == sorted(
            map(str, written.collect())
        )
    with pytest.raises(NoInputError, match="has no data of other-3"):
        timelines_of_one_partition(replayed_lake, RUNS, (None, "other", 3), window)


def test_a_table_that_is_laid_out_otherwise_is_refused(lake: Lake) -> None:
    columns = ", ".join(f"{column.name} {column.type}" for column in REPLICA_STATES.columns)
    lake.spark.sql(f"CREATE TABLE {lake.identifier('replica_states')} ({columns}) USING DELTA")
    with pytest.raises(SchemaError, match="partitioned by nothing"):
        lake.require_layout(REPLICA_STATES)


def test_a_folder_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path / "a b+c"))
    lake.ensure(REPLICA_STATES)
    assert lake.by_delta_rs("replica_states").log().version() == 0
    escaped = Lake(spark, str(tmp_path / "a%20b"))
    escaped.ensure(REPLICA_STATES)
    with pytest.raises(UsageError, match="path with a %"):
        escaped.by_delta_rs("replica_states")
