"""Verdicts when a table of fetches does not show which side was to blame."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.inputs import BROKER_EVENTS
from isr_batch.lake.tables.leaders import BROKER_DAYS
from isr_batch.replay.days import fingerprints
from isr_batch.replay.event_stream import stream_facts
from isr_batch.replay.replay import replay, rule_runs
from isr_batch.settings import ReplaySettings
from tests.spark.replay.test_replay import DAY, at, stopped_follower
from udfs.records import IDLE, TERM_STARTS, THIN, UNKNOWN

RUNS = rule_runs(ReplaySettings(rules=["kafka-3.7"]))
HELD_MS = 3
"""In each fetch of the log: read and recorded within two, answered within one."""
BEFORE_QUIET = "coalesce(kind IN ('started', 'silent', 'check', 'fenced', 'unfenced', 'shutting_down'), true)"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """A leader that drops replica 3 at 10 s, which has not fetched since 4.9 s; its lag time is 4 s.

    The lake is of a release that knew no quiet stretches.
    """
    lake = stopped_follower(spark, tmp_path / "lake", {"t": 2})
    log = lake.log(BROKER_EVENTS.name)
    assert log
    log.alter.set_table_properties({"delta.constraints.kind_known": BEFORE_QUIET}, raise_if_not_exists=False)
    lake.was_written(BROKER_EVENTS.name)
    return lake


def put_event(lake: Lake, kind: str, from_ms: int, until_ms: int) -> None:
    rows = lake.spark.sql(
        f"""SELECT 'c' AS cluster_id, 1 AS broker_id, {at(str(from_ms))} AS event_time, {at(str(until_ms))} AS end_time,
        '{kind}' AS kind, DATE'{DAY}' AS event_date"""
    )
    lake.replace(BROKER_EVENTS, rows, "true")


def put_day(lake: Lake, cadence_us: int | None, instants: str) -> None:
    rows = lake.spark.sql(
        f"""SELECT 'c' AS cluster_id, 1 AS leader_id, 3 AS replica_id, 50L AS rows, {at("2")} AS first_time,
        {at("4902")} AS last_time, CAST({"NULL" if cadence_us is None else cadence_us} AS BIGINT) AS cadence_us,
        CAST(array() AS ARRAY<STRUCT<from_us: BIGINT, until_us: BIGINT>>) AS pauses,
        '{instants}' AS instants, 'files' AS made_from, DATE'{DAY}' AS event_date"""
    )
    lake.replace(BROKER_DAYS, rows, "true")


def verdict(lake: Lake) -> tuple[str, str, int | None, int | None]:
    replay(lake, RUNS)
    (row,) = lake.read("shrink_verdicts").collect()
    return row["verdict"], row["primary_cause"], row["leader_held_ms"], row["leader_silent_ms"]


def waits_us(lake: Lake) -> set[int | None]:
    """For how long acks=all requests would wait for more than a second, after a replay."""
    return {row["acks_all_waits_1s_us"] for row in lake.read("partition_scores").collect()}


def test_a_quiet_stretch_that_would_excuse_a_follower_leaves_its_verdict_unknown(lake: Lake) -> None:
    put_event(lake, "quiet", 6_000, 9_000)
    assert verdict(lake) == ("unknown", "unknown", HELD_MS, None)
    put_event(lake, "silent", 6_000, 9_000)
    assert verdict(lake) == ("spurious", "slow_leader", HELD_MS, 3000)
    put_event(lake, "quiet", 6_000, 6_500)
    assert verdict(lake) == ("genuine", "follower_stopped", HELD_MS, None)


def test_a_thin_table_cannot_tell_a_stop_and_one_instant_not_how_long_a_fetch_was_held(lake: Lake) -> None:
    put_day(lake, 1_300_000, "arrival,handled")
    assert verdict(lake) == ("genuine", "follower_stopped", HELD_MS, 0)
    before = fingerprints(lake).by_day
    put_day(lake, 1_400_000, "arrival,handled")
    assert verdict(lake) == ("unknown", "unknown", HELD_MS, 0)
    assert waits_us(lake).isdisjoint({None})
    assert fingerprints(lake).by_day != before
    put_day(lake, 400_000, "handled")
    assert verdict(lake) == ("genuine", "follower_stopped", None, 0)
    assert waits_us(lake) == {None}
    put_day(lake, None, "handled")
    assert verdict(lake) == ("unknown", "unknown", None, 0)


def test_an_older_lake_takes_quiet_stretches_without_spark_too(lake: Lake) -> None:
    put_event(lake, "silent", 6_000, 9_000)
    with ArrowSql() as sql:
        rows = pa.Table.from_batches(lake.read(BROKER_EVENTS.name).toArrow().to_batches())
        quiet = rows.set_column(rows.column_names.index("kind"), "kind", pa.array(["quiet"]))
        SmallTables(lake, sql).replace(BROKER_EVENTS, quiet, "true")
    put_event(lake, "quiet", 6_000, 9_000)
    log = lake.log(BROKER_EVENTS.name)
    assert log
    assert "quiet" in log.metadata().configuration["delta.constraints.kind_known"]


def test_both_engines_give_the_same_rows(lake: Lake) -> None:
    put_event(lake, "quiet", 6_000, 9_000)
    put_day(lake, 1_400_000, "handled")
    found = []
    for of_engine in (BySpark, InProcess):
        with of_engine(lake) as engine:
            rows = engine.listed(engine.keep(stream_facts(engine)))
            found.append([(row | {"term": None}, row["term"] and row["term"]["held_known"]) for row in rows])
    by_spark, in_process = (sorted(rows, key=str) for rows in found)
    assert by_spark == in_process
    assert [(row["kind"], row["offset"], known) for row, known in by_spark] == [
        (TERM_STARTS, 0, False), (THIN, 1_400_000, None), (IDLE, UNKNOWN, None),
    ]  # fmt: skip
