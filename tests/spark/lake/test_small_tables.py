"""Few rows are put in place of others as Spark does it, and nothing is written that breaks a contract."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from isr_batch.errors import SchemaError, WriteConflictError
from isr_batch.ingest.replace_rows import CUT_BY, replaced_rows_between, rows_of_cluster
from isr_batch.lake import sizes
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.open import Days
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.controller import CONTROLLER_RECORDS
from isr_batch.lake.tables.inputs import (
    FETCH_LOG,
    INGESTED_FILES,
    QUARANTINE,
)
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS
from isr_batch.lake.tables.outputs import RUN_LEASE

START = dt.datetime(2026, 11, 21, 23, 59, 58, 500_000, dt.UTC)
CLUSTERS = ("it's", "back\\slash")
FETCH_TIMES = ("arrival_time", "handled_time", "processed_time", "released_time", "completed_time")
SET = {"topic": "t", "partition_id": 0, "leader_epoch": 1, "leader_id": 1}


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def rows(table: Table, cluster: str, *seconds: float) -> pa.Table:
    made: list[dict[str, Any]] = []
    for each in seconds:
        time = {"event_date": at(each).date()}
        made.append({
            COVERAGE: time | {"broker_id": 1, "log": "server", "from_time": at(each), "until_time": at(each + 1)},
            CONTROLLER_RECORDS: time | {
                "record_time": at(each), "record_offset": 7, "kind": "partition", "topic": "t", "partition_id": 0,
                "isr": [1], "elr": [2], "election": "in_sync",
            },
            LEADER_EPOCHS: time | SET | {
                "start_time": at(each), "end_time": at(each), "assigned": [1, 2], "isr_at_start": [1],
                "held_at_start": [None, 5], "replica_lag_time_max_ms": 1, "min_insync_replicas": 1,
                "check_origin_ms": 0, "check_origin_source": "unknown",
            },
            FETCH_LOG: time | SET | dict.fromkeys(FETCH_TIMES, at(each)) | {
                "replica_id": 2, "fetch_offset": 5, "error_code": 0, "run_length": 2, "later_by": [1, 1, 1, 1, 1, 1],
                "last_handled_time": at(each + 1),
            },
            QUARANTINE: {"source_file": f"file-{each:.0f}", "reason": "r", "rows_kept": False, "ingest_run": "x"},
            INGESTED_FILES: {
                "source_file": f"file-{each:.0f}", "kind": "request", "size_bytes": 1, "content_bytes": 1,
                "content_hash": "h", "lines": 1, "days": [(at(each).date(), at(each)), (at(0).date(), None)],
                "code_version": "0", "ingest_run": "x",
            },
        }[table] | {"cluster_id": cluster})  # fmt: skip
    return pa.Table.from_pylist(made, arrow_schema(table))


@pytest.fixture
def small(lake: Lake) -> Iterator[SmallTables]:
    with ArrowSql() as sql:
        yield SmallTables(lake, sql)


def here(lake: Lake, table: Table) -> list[str]:
    """Read what a table holds without Spark."""
    return sorted(map(str, read_columns(lake, table.name, table.column_names).to_pylist()))


def stored(lake: Lake, table: Table) -> list[str]:
    """Read it with Spark."""
    return sorted(map(str, lake.spark.read.format("delta").load(f"{lake.root}/{table.name}").toArrow().to_pylist()))


def steps(table: Table) -> Iterator[tuple[pa.Table, str, Days | None]]:
    """Writes one after the other: rows, the condition of what they replace, and its days."""
    one, other = CLUSTERS
    yield rows(table, one, 0, 1, 2, 3), rows_of_cluster(one), None
    yield rows(table, other, 0, 1, 2, 3), rows_of_cluster(other), None
    if table in (QUARANTINE, INGESTED_FILES):
        yield (
            rows(table, one, 2, 7),
            f"{rows_of_cluster(one)} AND (source_file NOT IN ('file-0', 'a\\'b'))",
            None,
        )
    else:
        (time,) = (column for known, column in CUT_BY if known is table)
        covers = [(f"{at(1):%Y-%m-%d %H:%M:%S.%f}", f"{at(2.5):%Y-%m-%d %H:%M:%S}")]
        covered = f"{rows_of_cluster(one)} AND ({replaced_rows_between(time, covers)})"
        yield rows(table, one, 2.25), covered, (str(at(1).date()), str(at(2.5).date()))
        # Some rows are of logs that are gone.
        yield (
            rows(table, one, 3.5),
            f"{rows_of_cluster(one)} AND NOT ({time} <= TIMESTAMP'{at(1.2):%Y-%m-%d %H:%M:%S.%f}')",
            None,
        )
    yield rows(table, other), rows_of_cluster(other), None
    yield rows(table, other), rows_of_cluster(other), None


SMALL = (FETCH_LOG, LEADER_EPOCHS, CONTROLLER_RECORDS, COVERAGE, QUARANTINE, INGESTED_FILES)
"""Those with a kind of column, or of condition, that no other has."""


@pytest.mark.parametrize("table", SMALL, ids=lambda table: table.name)
def test_both_ways_leave_the_same_rows(table: Table, small: SmallTables, spark: SparkSession, tmp_path: Path) -> None:
    by_spark = Lake(spark, str(tmp_path / "by-spark"), "run-1")
    for given, where, days in steps(table):
        assert small.takes(table)
        assert small.replace(table, given, where, days) == given.num_rows
        by_spark.replace(table, spark.createDataFrame(given), where)  # its count has rows that Delta copied as well
        assert here(small.lake, table) == here(by_spark, table)
    read = read_columns(small.lake, table.name, table.column_names, {"cluster_id": CLUSTERS[0]})
    assert read.num_rows == len(here(by_spark, table)) > 1
    # Each can go on where the other has written.
    last = rows(table, CLUSTERS[0], 9)
    small.lake.replace(table, spark.createDataFrame(last), rows_of_cluster(CLUSTERS[0]))
    assert SmallTables(by_spark, small.sql).replace(table, last, rows_of_cluster(CLUSTERS[0])) == 1
    assert stored(small.lake, table) == stored(by_spark, table)


def test_a_commit_leads_to_its_run_and_one_of_nothing_is_none(small: SmallTables) -> None:
    small.takes(COVERAGE)
    small.replace(COVERAGE, rows(COVERAGE, "c", 0), "true")
    folder = f"{small.lake.root}/{COVERAGE.name}"
    (last,) = deltalake.DeltaTable(folder).history(1)
    assert f'"run_id": "{small.lake.run_id}"' in last["userMetadata"]
    version = deltalake.DeltaTable(folder).version()
    assert small.replace(COVERAGE, rows(COVERAGE, "d"), rows_of_cluster("d")) == 0
    assert deltalake.DeltaTable(folder).version() == version


@pytest.mark.parametrize(
    ("change", "where"),
    [({"log": "other"}, "true"), ({"broker_id": None}, "true"), ({"until_time": at(-1)}, "true"),
     ({}, "broker_id = 2"), ({}, "begins_mid_term")],
)  # fmt: skip
def test_a_row_that_breaks_the_contract_or_is_not_replaced_is_not_written(
    change: dict[str, Any], where: str, small: SmallTables
) -> None:
    small.takes(COVERAGE)
    good = rows(COVERAGE, "c", 0).to_pylist()
    bad = pa.Table.from_pylist(
        [*good, good[0] | change], pa.schema([f.with_nullable(True) for f in arrow_schema(COVERAGE)])
    )
    assert small.count_broken(COVERAGE, bad, where) == (1 if where == "true" else 2)
    with pytest.raises(SchemaError, match="break the contract of coverage"):
        small.replace(COVERAGE, bad, where)
    assert stored(small.lake, COVERAGE) == []


def test_a_run_of_fetches_that_breaks_its_contract_is_not_written(small: SmallTables) -> None:
    small.takes(FETCH_LOG)
    (good,) = rows(FETCH_LOG, "c", 0).to_pylist()
    for change in ({"run_length": 3}, {"later_by": None}, {"last_handled_time": at(0)}, {"run_length": 1}):
        assert small.count_broken(FETCH_LOG, pa.Table.from_pylist([good | change], arrow_schema(FETCH_LOG))) == 1
    assert small.count_broken(FETCH_LOG, rows(FETCH_LOG, "c", 0)) == 0


def test_replaced_rows_are_read_only_if_few(small: SmallTables, monkeypatch: pytest.MonkeyPatch) -> None:
    small.takes(COVERAGE)
    small.replace(COVERAGE, rows(COVERAGE, "c", 0), "true")
    monkeypatch.setattr(sizes, "REWRITTEN_BYTES", 1)
    assert not small.takes(COVERAGE)
    assert small.takes(COVERAGE, (str(at(5).date()), str(at(5).date())))


def test_of_files_with_many_rows_only_those_count_that_have_others_too(
    small: SmallTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.takes(COVERAGE)
    small.replace(COVERAGE, rows(COVERAGE, "c", 0, 1), "true")
    monkeypatch.setattr(sizes, "REWRITTEN_BYTES", 1)
    assert small.takes(COVERAGE, None, "cluster_id = 'c'")
    assert small.takes(COVERAGE, None, "cluster_id = 'd'")
    assert not small.takes(COVERAGE, None, f"from_time = TIMESTAMP'{at(1):%Y-%m-%d %H:%M:%S.%f}'")


def test_files_that_others_have_replaced_meanwhile_are_replaced_once(
    small: SmallTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.takes(COVERAGE)
    small.replace(COVERAGE, rows(COVERAGE, "c", 0), "true")
    plain = deltalake.DeltaTable.create_write_transaction
    others = iter([rows(COVERAGE, "c", 1)])

    def raced(there: deltalake.DeltaTable, *given: Any, **more: Any) -> None:
        for other in others:
            small.replace(COVERAGE, other, "true")
        plain(there, *given, **more)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", raced)
    small.replace(COVERAGE, rows(COVERAGE, "c", 2), "true")
    (left,) = read_columns(small.lake, COVERAGE.name, COVERAGE.column_names).to_pylist()
    assert left["from_time"] == at(2)


def test_a_table_that_is_always_being_written_is_an_error(small: SmallTables, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: Any, **_more: Any) -> None:
        raise deltalake.exceptions.CommitFailedError

    small.takes(COVERAGE)
    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", refuse)
    with pytest.raises(WriteConflictError):
        small.replace(COVERAGE, rows(COVERAGE, "c", 0), "true")


def test_appended_once_in_any_order(lake: Lake) -> None:
    row = {"turn": 1, "run_id": "r", "host": "h", "pid": 1, "taken_time": START, "given_back": False}
    small = SmallTables(lake, ArrowSql())
    frame = lake.spark.createDataFrame([row], RUN_LEASE.schema_ddl)
    for key in ("a", "a", "b"):
        small.append_once(RUN_LEASE, row, key)
    lake.append_once(RUN_LEASE, frame, "b")
    lake.append_once(RUN_LEASE, frame, "c")
    small.append_once(RUN_LEASE, row, "c")
    assert lake.read(RUN_LEASE.name).count() == 3
    with pytest.raises(SchemaError):
        small.append_once(RUN_LEASE, {**row, "host": None}, "d")
