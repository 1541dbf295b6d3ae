"""Rows that workers write to files themselves are those that the driver and Spark's writer put into a lake."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from isr_batch.ingest import broker_logs, replace_rows
from isr_batch.lake import sizes
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, INPUT_TABLES
from tests.same_rows import assert_same_rows, single_fetches_of

SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "restart"
LARGE = (FETCH_LOG.name, APPEND_LOG.name)
Ingest = Callable[[Path, str], Lake]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's log in two files."""
    folder = tmp_path_factory.mktemp("log") / "logs"
    shutil.copytree(SAMPLE, folder, ignore=lambda _, names: [n for n in names if n in {"broker-2", "broker-3"}])
    whole = folder / "broker-1" / "request.log.gz"
    lines = gzip.decompress(whole.read_bytes()).splitlines(keepends=True)
    whole.unlink()
    (folder / "broker-1" / "request.log.1").write_bytes(b"".join(lines[: len(lines) // 2]))
    (folder / "broker-1" / "request.log").write_bytes(b"".join(lines[len(lines) // 2 :]))
    return folder


@pytest.fixture
def ingest(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Ingest:
    """Ingest a folder by workers, by the driver, or by workers and Spark's writer."""

    def run(folder: Path, way: str) -> Lake:
        with monkeypatch.context() as now:
            now.setattr(sizes, "LOG_BYTES", 1 << 40 if way == "driver" else -1)
            now.setattr(sizes, "COLLECTED_ROWS", 0)
            now.setattr(sizes, "SPREAD_ROWS", 0)
            if way == "spark":
                now.setattr(replace_rows, "_store_for_workers", lambda *_: None)
            into = Lake(lake.spark, f"{lake.root}/{way}", "run-1")
            broker_logs.ingest_broker_logs(into, folder, "c")
            return into

    return run


def rows(lake: Lake) -> dict[str, pa.Table]:
    found = {table.name: read_columns(lake, table.name, table.column_names) for table in INPUT_TABLES}
    return found | {FETCH_LOG.name: single_fetches_of(found[FETCH_LOG.name])}


@pytest.fixture(scope="module")
def by_driver(spark_session: SparkSession, log: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """Rows that the driver puts into a lake."""
    lake = Lake(spark_session, str(tmp_path_factory.mktemp("driver")), "run-1")
    broker_logs.ingest_broker_logs(lake, log, "c")
    return rows(lake)


def files(lake: Lake, name: str) -> set[Path]:
    return set(Path(f"{lake.root}/{name}").rglob("*.parquet"))


def committed(lake: Lake, name: str) -> set[Path]:
    return set(map(Path, lake.files(name)))


def assert_same(expected: dict[str, pa.Table], found: dict[str, pa.Table]) -> None:
    for name, each in expected.items():
        assert_same_rows(found[name], each, name)


def test_three_ways_leave_the_same_rows(log: Path, ingest: Ingest, by_driver: dict[str, pa.Table]) -> None:
    lake = {way: ingest(log, way) for way in ("workers", "spark")}
    for each in lake.values():
        assert_same(by_driver, rows(each))
    for name in LARGE:
        by_workers = committed(lake["workers"], name)
        assert all(pq.read_schema(path).field("topic").type == pa.string() for path in by_workers)
        assert files(lake["workers"], name) == by_workers != set()


def test_rows_of_a_log_that_has_grown_are_replaced(
    log: Path, ingest: Ingest, by_driver: dict[str, pa.Table], tmp_path: Path
) -> None:
    first = shutil.copytree(log, tmp_path / "first")
    (first / "broker-1" / "request.log").unlink()
    lake = ingest(first, "workers")
    before = {name: committed(lake, name) for name in LARGE}
    grown = rows(ingest(log, "workers"))
    assert_same(by_driver, grown)
    for name in LARGE:
        assert before[name] & committed(lake, name) == set()


def test_rows_of_a_log_that_is_gone_stay_though_they_share_a_file_with_others(
    log: Path, ingest: Ingest, tmp_path: Path
) -> None:
    later = shutil.copytree(log, tmp_path / "later")
    (later / "broker-1" / "request.log.1").unlink()
    with (later / "broker-1" / "request.log").open("ab") as text:
        text.write(b"\n")
    found = {}
    for way in ("workers", "driver"):
        lake = ingest(log, way)
        for name in LARGE:
            lake.spark.sql(f"OPTIMIZE {lake.identifier(name)}")  # one file for all
            assert len(committed(lake, name)) == 1
        found[way] = rows(ingest(later, way))
        for name in LARGE:
            in_files = lake.read(name).select("source_file").distinct().collect()
            assert {row[0] for row in in_files} == {"broker-1/request.log.1", "broker-1/request.log"}
    assert_same(found["driver"], found["workers"])


def test_an_ingest_that_is_cut_off_before_the_commit_is_done_again(
    log: Path, ingest: Ingest, by_driver: dict[str, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutOffError(Exception):
        pass

    plain = SmallTables.replace

    def cut_off(small: SmallTables, table: Any, *given: Any) -> int:
        if table is APPEND_LOG:
            raise CutOffError
        return plain(small, table, *given)

    with monkeypatch.context() as now:
        now.setattr(SmallTables, "replace", cut_off)
        with pytest.raises(CutOffError):
            ingest(log, "workers")
    lake = ingest(log, "workers")
    assert files(lake, APPEND_LOG.name) > committed(lake, APPEND_LOG.name) != set()
    assert_same(by_driver, rows(lake))


def test_rows_that_break_the_contract_are_reported_and_leave_no_files(
    log: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(APPEND_LOG.constraints, "acks_known", "acks IN (-1, 0)")
    lake = ingest(log, "workers")
    told = lake.read("quarantine").where("reason = 'breaks the contract'")
    assert {row[0] for row in told.select("detail").distinct().collect()} == {"append_log: acks_known"}
    assert lake.read(APPEND_LOG.name).where("acks = 1").isEmpty()
    assert files(lake, APPEND_LOG.name) == committed(lake, APPEND_LOG.name)
