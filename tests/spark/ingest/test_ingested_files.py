"""The same folder again, a day later, rotated, with files gone: what the lake holds afterwards.

Reading logs is a stand-in here, which takes a line of a log for the time of an append or of a term: an ingest of real
ones takes a minute, whatever their size. `test_folder_of_real_logs_over_three_days` goes the whole way.
"""

import gzip
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from isr_batch.errors import AccountError
from isr_batch.ingest import broker_logs
from isr_batch.ingest.broker_logs import IngestOfBrokerLogs, ingest_broker_logs
from isr_batch.ingest.engine.engine import Engine
from isr_batch.ingest.folder.log_folder import LogFile, LogFolder
from isr_batch.ingest.ingested_files import ReadFiles
from isr_batch.ingest.kafka_logs.assumptions import Note
from isr_batch.ingest.kafka_logs.earlier_logs import KEPT_LINES, EarlierLogs
from isr_batch.ingest.kafka_logs.line_account import Tally, require_balance
from isr_batch.ingest.kafka_logs.lines_of_interest import LinesOfInterest, read_lines_of_interest
from isr_batch.ingest.requests.coverage import NO_NUMBERS
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.fetch_log import single_fetches
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, INGESTED_FILES, INPUT_TABLES, QUARANTINE
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.lake.tables.outputs import RUN_LOG
from tests.spark.broker_logs import Leader

DAY = 86_400
START = datetime(2026, 11, 21, 16, 30, tzinfo=UTC)
SOURCES = {"source_file", "source_line", "ingest_run"}
WRITTEN = (APPEND_LOG, LEADER_EPOCHS, QUARANTINE)
SET = {"cluster_id": "it's", "topic": "t", "partition_id": 0, "leader_epoch": 1, "leader_id": 1}
TERM = {
    "start_offset": 0, "start_high_watermark": 0, "assigned": [1], "isr_at_start": [1], "replica_lag_time_max_ms": 1,
    "min_insync_replicas": 1, "check_origin_ms": 0, "check_origin_source": "unknown",
}  # fmt: skip


@dataclass
class Logs:
    """Stands for `isr_batch.ingest.kafka_logs.KafkaLogs`."""

    tables: dict[str, pa.Table]
    of_files: dict[str, dict[str, Any]]
    lines: LinesOfInterest
    read_lines: LinesOfInterest
    numbers: pa.Table
    found: LogFolder
    last_requests: pa.Table = field(default_factory=KEPT_LINES.empty_table)
    replaced_appends: tuple[dict[str, Any], ...] = ()
    notes: tuple[Note, ...] = ()

    def account(self) -> list[Tally]:
        return [Tally("request", "read", "", 1)]

    def times(self) -> dict[str, dict[str, Any]]:
        return self.of_files


def lines_of(file: LogFile) -> list[datetime]:
    packed = Path(file.path).read_bytes()
    text = gzip.decompress(packed) if file.path.endswith(".gz") else packed
    return [START + timedelta(seconds=int(line)) for line in text.split()]


def full(table: Table, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: (SET | row).get(name) for name in table.column_names} for row in rows]


def read(
    engine: Engine, _folder: Path, _cluster: str, run_id: str, *, found: LogFolder, sql: ArrowSql, earlier: EarlierLogs
) -> Logs:
    assert sql is not None
    assert earlier is not None
    appends: list[dict[str, Any]] = []
    terms: list[dict[str, Any]] = []
    refused, told = [], {}
    for file in found.files:
        if file.kind == "properties":
            continue
        times = lines_of(file)
        told[file.name] = {
            "first_time": min(times), "last_time": max(times), "days": sorted({time.date() for time in times})
        }  # fmt: skip
        if file.kind == "state-change":
            terms += [TERM | {"start_time": t, "end_time": t, "event_date": t.date()} for t in times]
            continue
        refused.append({"source_file": file.name, "reason": "r", "ingest_run": run_id, "rows_kept": False})
        for t in times:
            answered = t if t.second % 2 else None
            row = {"append_time": t, "acks": 1, "error_code": 0, "acknowledged_time": answered}
            appends.append(row | {"source_file": file.name, "event_date": t.date()})
    found_rows = {APPEND_LOG: appends, LEADER_EPOCHS: terms, QUARANTINE: refused}
    tables = {
        table.name: pa.Table.from_pylist(full(table, rows), arrow_schema(table)) for table, rows in found_rows.items()
    }
    lines = read_lines_of_interest(engine, sql, found)
    return Logs(tables, told, lines, lines, NO_NUMBERS, found)


def seconds(lake: Lake, table: str, time: str) -> list[int]:
    times = read_columns(lake, table, [time])[time].to_pylist()
    return sorted((each - START) // timedelta(seconds=1) for each in times)


def days_to_replay(lake: Lake) -> list[date]:
    lake.ensure(RUN_LOG)
    lake.register_views()
    rows = lake.spark.sql('SELECT event_date FROM days_to_replay WHERE cluster_id = "it\'s" ORDER BY event_date')
    return [row["event_date"] for row in rows.collect()]


def replayed(lake: Lake, window: str, command: str = "replay") -> None:
    row = {
        "run_id": window, "started_time": datetime.now(UTC), "command": command, "window": window,
        "input_table_versions": [("fetch_log", 1)], "code_version": "0", "config_hash": "", "rows_in": 0, "rows_out": 0,
        "rows_quarantined": 0, "seconds": 1.0, "status": "done", "exit_code": 0, "message": "",
    }  # fmt: skip
    with ArrowSql() as sql:
        SmallTables(lake, sql).append_once(RUN_LOG, row, window)


def test_a_folder_over_three_days(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_logs, "read_kafka_logs", read)
    monkeypatch.setattr(broker_logs, "INPUT_TABLES", WRITTEN)
    logs = tmp_path / "logs"
    logs.mkdir()
    case = Leader(logs, 1)
    first, second, third = ([day * DAY + n for n in range(10)] for day in range(3))

    def write(name: str, numbers: list[int]) -> None:
        case.write(name, *map(str, numbers))

    def again() -> IngestOfBrokerLogs:
        return ingest_broker_logs(lake, logs, "it's")

    write("request.log", first[:6])
    write("state-change.log", [-5])
    with monkeypatch.context() as broken:  # cut off just before its end, and done again
        broken.setattr(ReadFiles, "records", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            again()
    again()
    assert seconds(lake, "append_log", "append_time") == first[:6]

    # Nothing new: not a commit.
    before = [lake.version(table.name) for table in (*WRITTEN, INGESTED_FILES)]
    assert again().account == []
    assert [lake.version(table.name) for table in (*WRITTEN, INGESTED_FILES)] == before

    # The log has grown, was rotated and compressed; the next day's has its name.
    (case.folder / "request.log.1.gz").write_bytes(gzip.compress("".join(f"{n}\n" for n in first).encode()))
    write("request.log", second)
    write("state-change.log", [-5, DAY - 5])
    again()
    assert seconds(lake, "append_log", "append_time") == first + second
    assert seconds(lake, "leader_epochs", "start_time") == [-5, DAY - 5]
    assert days_to_replay(lake) == [date(2026, 11, 21), date(2026, 11, 22)]
    replayed(lake, "2026-11-22..")
    assert days_to_replay(lake) == [date(2026, 11, 21)]
    replayed(lake, "..", "backfill")

    # The first day's files are gone, and the third day's are there: nothing of the first day goes.
    (case.folder / "request.log.1.gz").unlink()
    shutil.move(case.folder / "request.log", case.folder / "request.log.1")
    write("request.log", third)
    write("state-change.log", [2 * DAY - 5])
    again()
    assert seconds(lake, "append_log", "append_time") == first + second + third
    assert [n for n in seconds(lake, "leader_epochs", "start_time") if n != DAY - 5] == [-5, 2 * DAY - 5]
    assert days_to_replay(lake) == [date(2026, 11, 23)]

    # A log of the same name with other lines of the same time: a copy that overlaps, not more appends.
    (case.folder / "request.log.1").unlink()
    write("request.log", [*second[3:], *third, 2 * DAY + 30])
    again()
    assert seconds(lake, "append_log", "append_time") == [*first, *second, *third, 2 * DAY + 30]
    assert days_to_replay(lake) == [date(2026, 11, 22), date(2026, 11, 23)]
    files = read_columns(lake, "ingested_files", ["source_file", "kind"]).to_pylist()
    assert sorted(row["source_file"] for row in files if row["kind"] == "request") == [
        "broker-1/request.log (2)", "broker-1/request.log.1", "broker-1/request.log.1.gz"
    ]  # fmt: skip
    assert read_columns(lake, "quarantine", ["source_file"]).num_rows == 3


def test_an_account_that_does_not_add_up_is_an_error_with_both_sides() -> None:
    account = [Tally("server", "read", "", 10), Tally("server", "used", "of interest", 9)]
    with pytest.raises(AccountError, match=r"10 lines of server logs .* 9 accounted for: 9 used") as error:
        require_balance(account)
    assert error.value.exit_code == 70


@pytest.mark.nightly
def test_folder_of_real_logs_over_three_days(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    case = Leader(logs, 1)
    lake = Lake(spark, str(tmp_path / "lake"), "run-1")

    def day(number: int) -> list[str]:
        begin = number * DAY + 10
        # The last is done long after it was handled.
        return [
            *(case.fetch(begin + n, n, 5 + n, session=7 + number) for n in range(10)),
            case.produce(begin + 10, 5 + 100 * number, remote=3000),
        ]

    first, second = day(0), day(1)
    case.requests(*first[:6], first[6][:200])
    case.terms(case.leads(5, 4, 5))
    done = ingest_broker_logs(lake, logs, "it's")
    assert {t.what: t.lines for t in done.account if t.became == "refused"} == {"truncated line": 1}
    (case.folder / "request.log.1.gz").write_bytes(gzip.compress("".join(f"{text}\n" for text in first).encode()))
    case.requests(*second)
    case.terms(case.leads(5, 4, 5), case.leads(DAY + 5, 5, 50))
    ingest_broker_logs(lake, logs, "it's")
    whole = Lake(spark, str(tmp_path / "whole"), "run-1")
    ingest_broker_logs(whole, logs, "it's")

    def rows(of: Lake) -> Callable[[Table], list[str]]:
        return lambda table: sorted(str(tuple(row)) for row in of.read(table.name).drop(*SOURCES).collect())

    assert list(map(rows(lake), INPUT_TABLES)) == list(map(rows(whole), INPUT_TABLES))
    assert single_fetches(lake.read("fetch_log")).count() == 20
