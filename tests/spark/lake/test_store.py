"""Tables are made by contract, replaced by window, appended once; another engine reads them."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import pytest
from delta.exceptions import ConcurrentAppendException
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from isr_batch.errors import RETRIES, NoInputError, SchemaError, UsageError, WriteConflictError
from isr_batch.lake.catalogs import require_catalog_schema, require_tables
from isr_batch.lake.ddl import create_statement
from isr_batch.lake.delta_files.stores import log_store
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.spark_writes import retrying
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.contract import Column, Table
from isr_batch.lake.tables.outputs import OUTPUT_TABLES, REPLAYED_DAYS, SHRINK_VERDICTS, TABLES

SMALL = Table(
    "small",
    "It's a table",
    (
        Column("cluster_id", "STRING", "the cluster's name", nullable=False),
        Column("lag_ms", "BIGINT", "a lag, where it is known"),
        Column("event_date", "DATE", "day", nullable=False),
    ),
    {"lag_not_negative": "lag_ms >= 0", "cluster_named": "cluster_id <> ''"},
    ("event_date",),
)
FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)


@pytest.fixture(autouse=True)
def _small_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLES, "small", SMALL)


def _rows(lake: Lake, *rows: tuple[str, int | None, date]) -> None:
    frame = lake.spark.createDataFrame(rows, "cluster_id STRING, lag_ms INT, event_date DATE")
    days = ", ".join(sorted({f"DATE'{row[2]}'" for row in rows}))
    lake.replace(SMALL, frame, f"event_date IN ({days})")


def _content(lake: Lake) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in lake.read("small").collect())


def test_table_has_comments_and_layout(lake: Lake) -> None:
    lake.ensure(SMALL)
    fields = {field.name: field for field in lake.read("small").schema}
    detail = lake.spark.sql(f"DESCRIBE DETAIL {lake.identifier('small')}").collect()[0]
    assert fields["cluster_id"].metadata["comment"] == "the cluster's name"
    assert not fields["cluster_id"].nullable
    assert detail["description"] == "It's a table"
    assert detail["partitionColumns"] == ["event_date"]


@pytest.mark.parametrize("table", OUTPUT_TABLES, ids=lambda table: table.name)
def test_contract_makes_a_table_that_keeps_to_it(lake: Lake, table: Table) -> None:
    lake.ensure(table)
    Lake(lake.spark, lake.root).ensure(table)
    assert lake.read(table.name).columns == table.column_names


def test_replace_is_idempotent_and_leaves_other_days(lake: Lake) -> None:
    _rows(lake, ("a", 1, FIRST), ("a", 2, SECOND))
    for _ in range(2):
        _rows(lake, ("a", 3, SECOND))
    assert _content(lake) == [("a", 1, FIRST), ("a", 3, SECOND)]


def test_replace_returns_the_number_of_rows(lake: Lake) -> None:
    frame = lake.spark.createDataFrame(
        [(5, "a", FIRST), (6, "b", FIRST)], "lag_ms INT, cluster_id STRING, event_date DATE"
    )
    assert lake.replace(SMALL, frame, "true") == 2
    assert lake.replace(SMALL, frame.where("false"), "cluster_id = 'nobody'") == 0
    assert lake.replace(SMALL, frame.where("false"), "cluster_id = 'a'") == 0
    assert _content(lake) == [("b", 6, FIRST)]


def test_replace_refuses_rows_outside_its_window(lake: Lake) -> None:
    frame = lake.spark.createDataFrame([("a", 1, FIRST)], "cluster_id STRING, lag_ms INT, event_date DATE")
    with pytest.raises(AnalysisException, match="DELTA_REPLACE_WHERE_MISMATCH"):
        lake.replace(SMALL, frame, f"event_date = DATE'{SECOND}'")


def test_constraint_refuses_wrong_and_passes_unknown(lake: Lake) -> None:
    _rows(lake, ("a", None, FIRST))
    with pytest.raises(Exception, match="lag_not_negative"):
        _rows(lake, ("a", -1, FIRST))
    assert _content(lake) == [("a", None, FIRST)]


def test_missing_column_is_named(lake: Lake) -> None:
    with pytest.raises(SchemaError, match="lack lag_ms"):
        lake.replace(SMALL, lake.spark.sql("SELECT 'a' AS cluster_id, current_date() AS event_date"), "true")


def test_other_schema_is_refused_and_named(lake: Lake) -> None:
    lake.spark.sql(
        f"CREATE TABLE {lake.identifier('small')} (cluster_id INT, event_date DATE, more STRING) USING DELTA"
    )
    with pytest.raises(
        SchemaError, match="no column lag_ms bigint; cluster_id is int, not string; unknown column more"
    ) as refused:
        lake.ensure(SMALL)
    assert "small" in refused.value.message
    assert "move this table away" in refused.value.hint
    with pytest.raises(SchemaError):
        lake.read("small")


def test_missing_table_is_no_input(lake: Lake) -> None:
    with pytest.raises(NoInputError, match="no table fetch_log"):
        lake.read("fetch_log")


def test_commit_leads_to_run(lake: Lake) -> None:
    _rows(lake, ("a", 1, FIRST))
    commit = lake.spark.sql(f"DESCRIBE HISTORY {lake.identifier('small')} LIMIT 1").collect()[0]
    assert json.loads(commit["userMetadata"])["run_id"] == "test-run"
    assert commit["version"] == lake.version("small") == 1


def _verdicts(lake: Lake) -> None:
    row = {
        "cluster_id": "c",
        "topic": "t",
        "partition_id": 0,
        "leader_epoch": 1,
        "leader_id": 1,
        "rule": "kafka-3.7",
        "params_json": "{}",
        "change_time": datetime(2026, 1, 1, 12),  # noqa: DTZ001
        "kind": "shrink",
        "replica_id": 2,
        "isr_before": [1, 2],
        "isr_after": [1],
        "made_by": "rule",
        "verdict": "spurious",
        "primary_cause": "slow_leader",
        "causes": ["slow_leader"],
        "restored_time": datetime(2026, 1, 1, 12, 1),  # noqa: DTZ001
        "event_date": FIRST,
    }
    rows = [
        row,
        row | {"partition_id": 1, "verdict": "genuine", "primary_cause": "follower_slow", "causes": ["follower_slow"]},
    ]
    frame = lake.spark.createDataFrame(
        [dict.fromkeys(SHRINK_VERDICTS.column_names) | row for row in rows], SHRINK_VERDICTS.schema_ddl
    )
    lake.replace(SHRINK_VERDICTS, frame, "true")
    done = dict.fromkeys(REPLAYED_DAYS.column_names, "") | {
        "rule": "kafka-3.7", "replayed_time": row["change_time"], "event_date": FIRST,
    }  # fmt: skip
    lake.replace(REPLAYED_DAYS, lake.spark.createDataFrame([done], REPLAYED_DAYS.schema_ddl), "true")


def test_views_by_bare_name(lake: Lake) -> None:
    _verdicts(lake)
    assert set(lake.register_views()) == {"replayed_days", "shrink_verdicts", *sql_texts()} - {
        "changes_of_observers",
        "days_to_replay",
        "elections_by_day",
        "evidence_and_verdicts",
        "evidence_storms",
        "fetches",
        "leader_death_by_rule_and_day",
        "partition_timeline",
        "pins",
        "replica_changes",
        "replica_timeline",
    }
    assert [row["partition_id"] for row in lake.spark.table("spurious_shrinks").collect()] == [0]
    assert lake.spark.table("worst_partitions").collect()[0]["out_of_isr_ms"] == 60_000
    assert lake.spark.table("spurious_by_rule_and_day").collect()[0]["shrinks"] == 2
    assert lake.spark.table("spurious_by_leader").collect()[0]["slow_leader"] == 1


def test_views_of_missing_tables_are_left_out(lake: Lake) -> None:
    assert lake.register_views() == []


def test_schema_in_a_catalog(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA isr")
    try:
        lake = Lake(spark, "spark_catalog.isr", catalog=True)
        assert not lake.has("small")
        _rows(lake, ("a", 1, FIRST))
        _rows(lake, ("b", 2, FIRST))
        assert lake.has("small")
        assert _content(lake) == [("b", 2, FIRST)]
    finally:
        spark.sql("DROP SCHEMA isr CASCADE")


@pytest.mark.parametrize("name", ["spark_catalog.nope", "nope.isr", "nope"])
def test_a_schema_that_is_not_there(spark: SparkSession, name: str) -> None:
    with pytest.raises(UsageError, match=f"no schema {name}"):
        require_catalog_schema(Lake(spark, name, catalog=True))
    empty = Lake(spark, "spark_catalog.default", catalog=True)
    require_catalog_schema(empty)
    with pytest.raises(NoInputError, match=r"spark_catalog\.default has no tables"):
        require_tables(empty)


@pytest.mark.parametrize("name", ["of files", "of%20addresses"])
def test_files_and_commits_by_the_log_equal_sparks(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Spark alone reads the second lake."""
    lake = Lake(spark, str(tmp_path / name), "test-run")
    two = spark.createDataFrame([("a", 1, FIRST), ("b", 2, SECOND)], "cluster_id STRING, lag_ms INT, event_date DATE")
    assert lake.replace(SMALL, two, "true") == 2
    assert (lake.reached("small") is None) == ("%" in name)
    written = sorted(path.name for path in (tmp_path / name / "small").rglob("*.parquet"))
    assert sorted(path.rpartition("/")[2] for path in lake.files("small")) == written
    assert len(written) == 2
    lake.require_layout(SMALL)
    with pytest.raises(SchemaError, match="small is partitioned by event_date"):
        lake.require_layout(replace(SMALL, partitioned_by=()))
    # Replacing no rows by no rows makes no commit; an earlier commit is not counted for it.
    assert lake.replace(SMALL, two.where("false"), "cluster_id = 'c'") == 0
    assert lake.version("small") == 1
    assert lake.replace(SMALL, two.where("false"), "cluster_id = 'a'") == 0
    assert lake.version("small") == 2
    assert len(lake.files("small")) == 1
    assert lake.is_plain("small")
    spark.sql(f"ALTER TABLE {lake.identifier('small')} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    assert not lake.is_plain("small")


def test_a_bucket_with_a_log_store_of_its_own_is_left_to_spark(spark: SparkSession) -> None:
    """It would not be asked by delta-rs. Nothing is asked of the bucket here, which is not there."""
    key = "spark.delta.logStore.s3a.impl"
    spark.conf.set(key, "some.LogStore")
    try:
        assert Lake(spark, "s3a://nowhere/lake").reached("isr_changes") is None
        assert log_store(spark, "s3a") == "some.LogStore"
        spark.conf.set(key, "io.delta.storage.S3SingleDriverLogStore")
        assert log_store(spark, "s3a") is None  # so that a lease is taken: it lets two writers lose a commit
    finally:
        spark.conf.unset(key)


def test_writers_at_the_same_time_all_get_through(lake: Lake) -> None:
    lake.ensure(SMALL)

    def write(cluster: str) -> int:
        frame = lake.spark.createDataFrame([(cluster, 1, FIRST)], "cluster_id STRING, lag_ms INT, event_date DATE")
        return Lake(lake.spark, lake.root).replace(SMALL, frame, f"cluster_id = '{cluster}'")

    # Without partitions by cluster each of them might have read what the others added, so Delta lets one through.
    with ThreadPoolExecutor() as threads:
        list(threads.map(write, "abc"))
    assert [row[0] for row in _content(lake)] == ["a", "b", "c"]


def test_conflicts_are_retried_then_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isr_batch.lake.spark_writes.time.sleep", lambda _seconds: None)
    attempts = []

    def write(failures: int) -> None:
        attempts.append(failures)
        if len(attempts) <= failures:
            raise ConcurrentAppendException("somebody was faster")

    retrying(lambda: write(RETRIES), "small")
    attempts.clear()
    with pytest.raises(WriteConflictError, match="small"):
        retrying(lambda: write(RETRIES + 1), "small")


def test_quotes_in_names_and_comments_survive() -> None:
    statement = create_statement(SMALL, "delta.`/a``b/small`")
    assert r"COMMENT 'It\'s a table'" in statement


def test_days_and_times_are_those_of_utc(lake: Lake) -> None:
    """Whatever the settings of the user's session: a lake's queries are refused, or do not depend on them."""
    session = lake.spark.newSession()
    elsewhere = BySpark(Lake(session, lake.root))
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    with pytest.raises(UsageError, match="timeZone of the Spark session is America/New_York, and the days"):
        elsewhere("SELECT 1")
    session.conf.set("spark.sql.session.timeZone", "Etc/UTC")
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    with pytest.raises(UsageError, match="timestampType of the Spark session is TIMESTAMP_NTZ"):
        elsewhere("SELECT 1")
    session.sql(create_statement(SHRINK_VERDICTS, lake.identifier("shrink_verdicts")))
    assert dict(session.read.format("delta").load(f"{lake.root}/shrink_verdicts").dtypes)["change_time"] == "timestamp"
    session.conf.set("spark.sql.timestampType", "TIMESTAMP_LTZ")
    assert elsewhere("SELECT 1").count() == 1
