"""The driver and Spark's workers make the same tables of a folder of logs."""

import gzip
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.ingest import broker_logs
from isr_batch.ingest.engine.engine import Engine, Here, ingest_engine_for
from isr_batch.ingest.engine.in_spark import InSpark
from isr_batch.ingest.kafka_logs.read import read_kafka_logs
from isr_batch.ingest.log_files.content import text_bytes
from isr_batch.lake import sizes
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import FETCH_LOG, INPUT_TABLES
from tests.same_rows import assert_same_rows, single_fetches_of
from tests.spark.broker_logs import TRACES, arrow_of, traces, write_cases, write_controlled

SAMPLES = Path(__file__).parents[3] / "data" / "samples"
RECORDED = ("old-0.10.1.1", pytest.param("old-2.1.1", marks=pytest.mark.nightly), "k2.8.2", "k4.4.0")


def tables(engine: Engine, folder: Path) -> dict[str, pa.Table]:
    logs = read_kafka_logs(engine, folder, "c", "run-1")
    logs.account()
    found = {table.name: arrow_of(logs.tables[table.name]) for table in INPUT_TABLES}
    return found | {FETCH_LOG.name: single_fetches_of(found[FETCH_LOG.name])}


def assert_equal(spark: SparkSession, folder: Path) -> dict[str, pa.Table]:
    with log_sql() as sql:
        here = tables(Here(sql), folder)
    for name, rows in tables(InSpark(spark), folder).items():
        assert_same_rows(rows, here[name], name)
    return here


@pytest.mark.parametrize("write", [write_cases, write_controlled])
def test_cases_that_were_made_up(write: Any, spark_session: SparkSession, tmp_path: Path) -> None:
    write(tmp_path)
    found = assert_equal(spark_session, tmp_path)
    assert all(found[name].num_rows for name in ("leader_epochs", "observed_isr_changes"))


def test_a_log_with_copies_and_one_that_begins_mid_term(spark_session: SparkSession, tmp_path: Path) -> None:
    found = assert_equal(spark_session, SAMPLES / "mid-term" / "long-running")
    assert found["fetch_log"].num_rows
    copied = tmp_path / "broker-1"
    copied.mkdir()
    for path in (SAMPLES / "restart" / "broker-1").iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    text = gzip.decompress((copied / "request.log.gz").read_bytes()).splitlines(keepends=True)
    (copied / "request.log.1").write_bytes(b"".join(text[: len(text) // 2]))
    found = assert_equal(spark_session, tmp_path)
    assert found["quarantine"].num_rows >= len(text) // 2


def test_answers_of_few_rows_come_to_the_driver(spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "ANSWER_ROWS", 1_000)
    assert_equal(spark_session, SAMPLES / "mid-term" / "long-running")


@traces
@pytest.mark.traces
@pytest.mark.parametrize("run", RECORDED)
def test_recorded_clusters(run: str, spark_session: SparkSession) -> None:
    assert_equal(spark_session, TRACES / run)


def test_few_bytes_are_read_in_the_driver_and_many_in_spark(lake: Lake) -> None:
    with log_sql() as sql:
        assert isinstance(ingest_engine_for(lake, sql, sizes.LOG_BYTES), Here)
        assert isinstance(ingest_engine_for(lake, sql, sizes.LOG_BYTES + 1), InSpark)


def test_the_size_of_the_unpacked_logs_decides(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quiet log shrinks far more than others: the size on disk says little about the memory that it takes."""
    sizes: list[int] = []

    def chosen(lake: Lake, sql: ArrowSql, size_bytes: int) -> Engine:
        sizes.append(size_bytes)
        return ingest_engine_for(lake, sql, size_bytes)

    monkeypatch.setattr(broker_logs, "ingest_engine_for", chosen)
    logs = tmp_path / "logs"
    shutil.copytree(SAMPLES / "mid-term" / "long-running", logs)
    blank = b"\n" * 1_000_000
    (logs / "broker-1" / "request.log.9.gz").write_bytes(gzip.compress(blank))
    broker_logs.ingest_broker_logs(Lake(spark_session, str(tmp_path / "lake"), "run-1"), logs, "c")
    on_disk, unpacked = sizes
    read = (path.read_bytes() for path in logs.rglob("*") if path.is_file())
    texts = [gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data for data in read]
    assert on_disk == text_bytes(logs) < unpacked == sum(map(len, texts))
