"""Make Arrow tables of log lines and of metadata records in the form in which the ingest reads them."""

from typing import Any

import pyarrow as pa

from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.folder.settings_files import Broker
from isr_batch.ingest.requests.leader_and_isr import ACCEPTED
from isr_batch.ingest.terms.broker_settings import broker_settings
from isr_batch.ingest.terms.parsed_logs import ParsedLogs
from isr_batch.lake.arrow_sql import ArrowSql

SECOND = 1_000_000
_INTS = pa.list_(pa.int32())
LINES = pa.schema([
    ("broker_id", pa.int32()), ("source_file", pa.string()), ("source_line", pa.int64()), ("stamp_us", pa.int64()),
    ("message", pa.string()),
])  # fmt: skip
DATA = pa.struct([
    ("name", pa.string()), ("value", pa.string()), ("resourceType", pa.int32()), ("resourceName", pa.string()),
    ("topicId", pa.string()), ("partitionId", pa.int32()), ("replicas", _INTS), ("isr", _INTS), ("leader", pa.int32()),
    ("leaderEpoch", pa.int32()), ("partitionEpoch", pa.int32()), ("leaderRecoveryState", pa.int32()),
    ("featureLevel", pa.int32()), ("eligibleLeaderReplicas", _INTS), ("lastKnownElr", _INTS),
    ("topicName", pa.string()), ("incarnationId", pa.string()), ("brokerId", pa.int32()), ("id", pa.int32()),
    ("fenced", pa.string()), ("inControlledShutdown", pa.string()),
])  # fmt: skip
RECORD_LINES = pa.schema([
    ("source_file", pa.string()), ("source_line", pa.int64()), ("message", pa.string()), ("problem", pa.string()),
    ("detail", pa.string()), ("record_offset", pa.int64()), ("at_us", pa.int64()), ("type", pa.string()),
    ("data", DATA), ("malformed", pa.bool_()),
])  # fmt: skip
TOPIC_ID = "QOGIGkfUTjeQvN1wX98d01"


def lines(*texts: str | tuple[float, str], level: str = "INFO", broker: int = 1) -> pa.Table:
    """Make lines of one log, 1 s apart or at given seconds; a line that begins with a tab has no timestamp."""
    rows = []
    for n, given in enumerate(texts):
        seconds, text = (n, given) if isinstance(given, str) else given
        stamped = not text.startswith("\t")
        rows.append({
            "broker_id": broker, "source_file": f"broker-{broker}/a.log", "source_line": n + 1,
            "message": f"[2026-11-21 16:30:00,000] {level} {text} (k.P)" if stamped else text,
            "stamp_us": round(seconds * SECOND) if stamped else None,
        })  # fmt: skip
    return pa.Table.from_pylist(rows, LINES)


def record(seconds: float, offset: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"at_us": round(seconds * SECOND), "record_offset": offset, "type": kind, "data": data, "malformed": False}


def record_lines(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"source_file": "metadata.txt", "source_line": n, **row} for n, row in enumerate(rows, 1)], RECORD_LINES
    )


def sources(
    sql: ArrowSql, server: pa.Table | None = None, state_changes: pa.Table | None = None,
    records: pa.Table | None = None, requests: Any = None, from_controller: pa.Table | None = None,
) -> ParsedLogs:  # fmt: skip
    """Make the sources of one broker; its lag time is 4 s."""
    server = lines() if server is None else server
    state_changes = lines() if state_changes is None else state_changes
    records = record_lines() if records is None else records
    topics = pa.table({"topic_id": [TOPIC_ID], "topic": ["t-x"]})
    min_isr = pa.table({
        "topic": pa.array([], pa.string()), "resource_broker": pa.array([], pa.string()),
        "min_insync_replicas": pa.array([], pa.int32()),
    })  # fmt: skip
    return ParsedLogs(
        sql, Here(sql), requests, from_controller or ACCEPTED.empty_table(), topics, server, state_changes, records,
        broker_settings(sql, server, [Broker(1, 4000, 2)]), min_isr,
    )  # fmt: skip
