"""Every line of the small logs and of the request logs is counted by what became of it."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from isr_batch.ingest.folder.log_folder import METADATA, REQUEST, SERVER, STATE_CHANGE, LogFile, LogFolder
from isr_batch.ingest.kafka_logs.line_account import line_account, require_balance
from isr_batch.ingest.kafka_logs.lines_of_interest import LinesOfInterest
from isr_batch.ingest.kafka_logs.quarantine import refused_lines
from isr_batch.ingest.kafka_logs.read import KafkaLogs
from isr_batch.ingest.log_files.content import Fingerprint
from isr_batch.ingest.requests.request_log import FILE, FOLLOWER_FETCH, OTHER, REFUSED
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import LINES

DAY = 86_400
_PROBLEM = [("problem", pa.string()), ("detail", pa.string())]


def table(*rows: dict[str, Any]) -> pa.Table:
    given = [{"source_file": "broker-1/server.log", **row} for row in rows]
    return pa.Table.from_pylist(given, pa.schema([*LINES, *(pa.field(*each) for each in _PROBLEM)]))


RECORDS = pa.schema([
    ("source_file", pa.string()), ("source_line", pa.int64()), *_PROBLEM,
    ("malformed", pa.bool_()), ("raw", pa.string()),
])  # fmt: skip
FILES = pa.schema([("kind", pa.string()), ("lines", pa.int64())])
TIMES = pa.schema([
    ("source_file", pa.string()), ("first_us", pa.int64()), ("last_us", pa.int64()), ("days", pa.list_(pa.int32())),
])  # fmt: skip
BY_FILE = pa.schema([
    ("source_file", pa.string()), ("kind", pa.string()), ("reason", pa.string()), ("lines", pa.int64())
])  # fmt: skip


def file(kind: str, lines: int) -> LogFile:
    return LogFile(kind, 1, f"broker-1/{kind}.log", "", Fingerprint(1, 1, "h", lines, (), frozenset()))


def test_all_lines_are_counted(sql: ArrowSql) -> None:
    found = LogFolder([file(REQUEST, 9), file(SERVER, 12), file(STATE_CHANGE, 3), file(METADATA, 6)])
    server = table(
        {"source_line": 1, "message": "[x] Shrinking ISR in a new way"},
        {"source_line": 2, "problem": "line too long", "detail": "9 bytes"},
        {"source_line": None, "problem": "damaged"},
    )  # fmt: skip
    records = pa.Table.from_pylist([
        {"source_file": "broker-1/metadata.log", "source_line": 3, "malformed": True, "raw": "{"},
        {"source_file": "broker-1/metadata.log", "source_line": None, "problem": "binary file", "malformed": False},
    ], RECORDS)  # fmt: skip
    files = pa.Table.from_pylist(
        [{"kind": SERVER, "lines": 12}, {"kind": STATE_CHANGE, "lines": 3}, {"kind": METADATA, "lines": 6}], FILES
    )
    used = {SERVER: 4, STATE_CHANGE: 2, METADATA: 1}
    lines = LinesOfInterest(server, table(), table(), records, files, pa.table({}), table(), used)
    refused = refused_lines(sql, lines)
    rows = {(row["source_line"], row["reason"], row["detail"], row["raw"]) for row in refused.to_pylist()}
    assert rows == {
        (1, "Shrinking ISR line of an unknown form", None, "[x] Shrinking ISR in a new way"),
        (2, "line too long", "9 bytes", None), (None, "damaged", None, None),
        (3, "malformed metadata record", None, "{"), (None, "binary file", None, None),
    }  # fmt: skip
    by_file = pa.Table.from_pylist([
        {"kind": FOLLOWER_FETCH, "lines": 4}, {"kind": OTHER, "lines": 2},
        {"kind": REFUSED, "reason": "bad", "lines": 3},
        {"kind": FILE, "reason": "damaged", "lines": 1},
    ], BY_FILE)  # fmt: skip
    account = line_account(found, by_file, lines, refused)
    require_balance(account)
    assert [(t.log, t.became, t.what, t.lines) for t in account] == [
        (REQUEST, "read", "", 9), (REQUEST, "used", FOLLOWER_FETCH, 4), (REQUEST, "skipped", OTHER, 2),
        (REQUEST, "refused", "bad", 3),
        (SERVER, "read", "", 12), (SERVER, "used", "of interest", 3), (SERVER, "skipped", "of no interest", 7),
        (SERVER, "refused", "Shrinking ISR line of an unknown form", 1), (SERVER, "refused", "line too long", 1),
        (STATE_CHANGE, "read", "", 3), (STATE_CHANGE, "used", "of interest", 2),
        (STATE_CHANGE, "skipped", "of no interest", 1),
        (METADATA, "read", "", 6), (METADATA, "used", "of interest", 1), (METADATA, "skipped", "of no interest", 4),
        (METADATA, "refused", "malformed metadata record", 1),
    ]  # fmt: skip


def test_the_time_range_of_each_file() -> None:
    def file(name: str, first: float | None, last: float | None, *days: int) -> dict[str, Any]:
        return {"source_file": name, "days": list(days)} | {
            key: None if second is None else round(second * 1e6)
            for key, second in (("first_us", first), ("last_us", last))
        }

    requests = [file("r", 5, 9, 0), file("r", 2, DAY + 7.000001, 0, 1), file("r", None, None)]
    others = [file("s", None, None), file("year 0", -62_167_219_200, 1, -719_528, 0)]
    tables = [pa.Table.from_pylist(rows, TIMES) for rows in (requests, others)]
    lines = LinesOfInterest(table(), table(), table(), pa.table({}), tables[1], pa.table({}), table(), {})
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    none = pa.table({})
    assert KafkaLogs({}, LogFolder(), tables[0], lines, lines, none, [], none, none, []).times() == {
        "r": {"first_time": epoch + timedelta(seconds=2), "last_time": epoch + timedelta(days=1, seconds=7.000001),
              "days": [date(1970, 1, 1), date(1970, 1, 2)]},
        "year 0": {"first_time": datetime(1, 1, 1, tzinfo=UTC), "last_time": epoch + timedelta(seconds=1),
                   "days": [date(1, 1, 1), date(1970, 1, 1)]},
    }  # fmt: skip
