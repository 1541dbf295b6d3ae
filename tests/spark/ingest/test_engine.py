"""The driver and Spark's workers make the same tables of a folder of logs."""

import gzip
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.ingest import broker_logs
from isr_batch.ingest.engine.engine import Engine, Here, Rows, ingest_engine_for
from isr_batch.ingest.engine.in_spark import InSpark, Spread, spark_frame_of_spread
from isr_batch.ingest.kafka_logs.read import read_kafka_logs
from isr_batch.ingest.log_files.content import text_bytes
from isr_batch.lake import sizes
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.fetch_log import single_fetches
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import INPUT_TABLES
from tests.spark.broker_logs import TRACES, rows_of, traces, write_cases, write_controlled

SAMPLES = Path(__file__).parents[3] / "data" / "samples"
RECORDED = ("old-0.10.1.1", "old-2.1.1", "k2.8.2", "k4.4.0")


def tables(spark: SparkSession, engine: Engine, folder: Path) -> dict[str, Counter[str]]:
    logs = read_kafka_logs(engine, folder, "c", "run-1")
    logs.account()
    found: dict[str, Rows | DataFrame] = dict(logs.tables)
    fetches = found["fetch_log"]
    if isinstance(fetches, Spread):
        fetches = spark_frame_of_spread(fetches)
    else:
        fetches = spark.createDataFrame(pa.Table.from_arrays(fetches.columns, names=fetches.column_names))
    # A run of identical fetches ends where a batch of requests ends.
    found["fetch_log"] = single_fetches(fetches)
    return {table.name: Counter(map(as_text, rows_of(found[table.name]))) for table in INPUT_TABLES}


def as_text(row: dict[str, Any]) -> str:
    return json.dumps(row, default=str, sort_keys=True)


def assert_equal(spark: SparkSession, folder: Path) -> dict[str, Counter[str]]:
    with log_sql() as sql:
        here = tables(spark, Here(sql), folder)
    in_spark = tables(spark, InSpark(spark), folder)
    for name, rows in here.items():
        assert (rows - in_spark[name], in_spark[name] - rows) == (Counter(), Counter()), name
    return here


@pytest.mark.parametrize("write", [write_cases, write_controlled])
def test_cases_that_were_made_up(write: Any, spark_session: SparkSession, tmp_path: Path) -> None:
    write(tmp_path)
    found = assert_equal(spark_session, tmp_path)
    assert all(found[name] for name in ("leader_epochs", "observed_isr_changes"))


def test_a_log_with_copies_and_one_that_begins_mid_term(spark_session: SparkSession, tmp_path: Path) -> None:
    found = assert_equal(spark_session, SAMPLES / "mid-term" / "long-running")
    assert found["fetch_log"]
    copied = tmp_path / "broker-1"
    copied.mkdir()
    for path in (SAMPLES / "restart" / "broker-1").iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    text = gzip.decompress((copied / "request.log.gz").read_bytes()).splitlines(keepends=True)
    (copied / "request.log.1").write_bytes(b"".join(text[: len(text) // 2]))
    found = assert_equal(spark_session, tmp_path)
    assert sum(found["quarantine"].values()) >= len(text) // 2


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


def test_what_counts_is_the_size_of_the_unpacked_logs(
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
