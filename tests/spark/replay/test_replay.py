"""The replay in Spark: shape of the plan, windows, re-runs."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from isr_batch.errors import NoInputError
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.replay.event_stream import event_stream, stream_facts
from isr_batch.replay.packing import pack_stale_days
from isr_batch.replay.replay import replay, replayed_stream, rule_runs
from isr_batch.settings import ReplaySettings
from isr_batch.window import Window

SET = "'c' AS cluster_id, 't' AS topic, 0 AS partition_id, 0 AS leader_epoch, 1 AS leader_id"
DAY = "2026-01-01"


def at(column: str) -> str:
    """SQL for an instant in milliseconds after noon."""
    return f"TIMESTAMP'{DAY} 12:00:00' + make_interval(0, 0, 0, 0, 0, 0, ({column}) / 1000)"


@pytest.fixture(scope="module")
def made(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(stopped_follower(spark_session, tmp_path_factory.mktemp("made"), {"t": 2}).root)


@pytest.fixture
def lake(spark: SparkSession, made: Path, tmp_path: Path) -> Lake:
    return Lake(spark, str(shutil.copytree(made, tmp_path / "lake")), "test")


def stopped_follower(spark: SparkSession, folder: Path, min_isr: Mapping[str, int]) -> Lake:
    """A partition of three replicas: an append every 100 ms for 30 s; replica 3 stops fetching after 5 s.

    One such for each topic, with its min.insync.replicas.
    """
    lake = Lake(spark, str(folder), "test")
    topics = spark.createDataFrame(list(min_isr.items()), "topic STRING, min_insync_replicas INT")

    def put(table: Table, query: str) -> None:
        rows: DataFrame = spark.sql(query).drop("topic").crossJoin(topics)
        missing = [column for column in table.columns if column.name not in rows.columns]
        lake.replace(table, rows.selectExpr("*", *(f"CAST(NULL AS {c.type}) AS {c.name}" for c in missing)), "true")

    put(
        LEADER_EPOCHS,
        f"""SELECT {SET}, {at("0")} AS start_time, {at("30000")} AS end_time, 0L AS start_offset,
        0L AS start_high_watermark, array(1, 2, 3) AS assigned, array(1, 2, 3) AS isr_at_start,
        4000L AS replica_lag_time_max_ms, '4.1.0' AS broker_version, 0L AS check_origin_ms,
        'unknown' AS check_origin_source, DATE'{DAY}' AS event_date""",
    )
    put(
        APPEND_LOG,
        f"""SELECT {SET}, {at("id * 100")} AS append_time, id AS base_offset, id + 1 AS log_end_offset,
        -1 AS acks, 0 AS error_code, DATE'{DAY}' AS event_date FROM range(300)""",
    )
    put(
        FETCH_LOG,
        f"""SELECT {SET}, r AS replica_id, {at("id * 100 + 1")} AS arrival_time, {at("id * 100 + 2")} AS handled_time,
        {at("id * 100 + 3")} AS processed_time, {at("id * 100 + 90")} AS released_time,
        {at("id * 100 + 91")} AS completed_time,
        id + 1 AS fetch_offset, 'appends' AS leader_leo_source, 0 AS error_code, 1 AS run_length,
        {at("id * 100 + 2")} AS last_handled_time, DATE'{DAY}' AS event_date
        FROM range(300) LATERAL VIEW explode(array(2, 3)) AS r WHERE r = 2 OR id < 50""",
    )
    for table in (OBSERVED_ISR_CHANGES, BROKER_EVENTS):
        lake.ensure(table)
    return lake


def test_plan_has_one_exchange_and_one_sort(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isr_batch.lake.spark_engine.LEAST_OF_TASK", 1)
    pack_stale_days(lake)
    with BySpark(lake) as engine:
        few = engine.rows(engine.arrow(stream_facts(engine)))
        results = replayed_stream(engine, event_stream(engine, few), rule_runs(ReplaySettings()))
        plan = results._jdf.queryExecution().executedPlan().toString()
    exchanges = [line for line in plan.splitlines() if "Exchange" in line and "BroadcastExchange" not in line]
    assert len(exchanges) == 1, plan
    assert "rangepartitioning(cluster_id" in exchanges[0]
    assert sum(" Sort [" in line for line in plan.splitlines()) == 1, plan


def test_a_stopped_follower_is_dropped_and_judged(lake: Lake) -> None:
    replay(lake, rule_runs(ReplaySettings(rules=["kafka-3.7"])))
    (row,) = lake.read("shrink_verdicts").collect()
    # Last caught up by the fetch handled at 12:00:04.902; checks run at even seconds.
    assert str(row["change_time"])[:19].endswith("12:00:10")
    assert (row["replica_id"], row["verdict"], row["primary_cause"]) == (3, "genuine", "follower_stopped")
    assert row["lag_ms"] == 5098
    assert row["restored_time"] is None


def test_a_rerun_changes_nothing_and_other_rules_stay(lake: Lake) -> None:
    replay(lake, rule_runs(ReplaySettings()))
    before = sorted(map(str, lake.read("isr_changes").collect()))
    replay(lake, rule_runs(ReplaySettings(rules=["kafka-3.7"])))
    assert sorted(map(str, lake.read("isr_changes").collect())) == before


def test_every_row_has_its_parameters(lake: Lake) -> None:
    replay(
        lake, rule_runs(ReplaySettings(rules=["kafka-3.7"], params={"kafka-3.7": {"replica_lag_time_max_ms": 20_000}}))
    )
    assert lake.read("shrink_verdicts").isEmpty() is False
    (params,) = lake.read("partition_timeline").select("params_json").distinct().collect()
    assert params["params_json"] == '{"min_insync_replicas": 2, "replica_lag_time_max_ms": 20000}'


def test_days_without_fetches_are_no_input(lake: Lake) -> None:
    with pytest.raises(NoInputError, match="2027-01-01"):
        replay(lake, rule_runs(ReplaySettings()), Window("2027-01-01", "2027-01-02"))
