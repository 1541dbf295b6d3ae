"""The last requests of each broker, which bound appends that later logs complete.

An append is in the log when a follower has read it, and not before an io thread took its request. A night's copy of a
log may have one of these requests and not the other.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from isr_batch.ingest.kafka_logs.earlier_logs import KEPT_LINES
from isr_batch.ingest.kafka_logs.engine import Engine, Rows
from isr_batch.ingest.kafka_logs.log_folder import REQUEST

_RECENT_US = 1_000_000
"""A request may be logged this much later than the one that it bounds: followers wait for half a second at most."""
_FOLLOWER = ("replica_id", "client_id")
_FETCHES = ("broker_id", *_FOLLOWER, "source_file", "source_line", "handled_us", "processed_us", "released_us",
            "answered_us")  # fmt: skip
_PRODUCED = ("leader_id", "source_file", "source_line", "handled_us")


def last_requests(engine: Engine, produced: Rows, fetches: Rows, ends_us: Mapping[int, int]) -> pa.Table:
    """List them as `KEPT_LINES`, stamped with the time at which an io thread took the request.

    The message of a fetch has the follower, and when its leader read the log for the last time.

    Parameters
    ----------
    engine : Engine
    produced : Rows
        As `isr_batch.ingest.kafka_logs.append_log.append_requests` gives them.
    fetches : Rows
        What `isr_batch.ingest.kafka_logs.request_log.FETCHES` says of the requests.
    ends_us : mapping of int to int
        By broker, the last completion in its request logs.
    """
    if not ends_us:
        return KEPT_LINES.empty_table()
    bounded = engine.where(produced, f"base_offset IS NOT NULL AND handled_us < append_us AND ({_recent(ends_us)})")
    appends = engine.collect(engine.select(bounded, _PRODUCED)).group_by(list(_PRODUCED)).aggregate([])
    read = engine.where(fetches, _recent(ends_us, "broker_id"))
    rows = [_kept(row["leader_id"], row, "") for row in appends.to_pylist()] + [
        _kept(row["broker_id"], row, json.dumps({name: row[name] for name in _FOLLOWER} | {"read_us": _read_us(row)}))
        for row in engine.collect(engine.select(read, _FETCHES)).to_pylist()
    ]
    return still_last(rows, ends_us)


def still_last(rows: Iterable[Mapping[str, Any]], ends_us: Mapping[int, int]) -> pa.Table:
    """Select, of rows of `last_requests`, those that are among the last ones of their broker; of fetches the last."""
    recent = [row for row in rows if row["stamp_us"] >= ends_us[row["broker_id"]] - _RECENT_US]
    last: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in sorted(recent, key=lambda row: (row["stamp_us"], row["source_line"])):
        asked = json.loads(row["message"]) if row["message"] else {}
        place = tuple(asked[name] for name in _FOLLOWER) if asked else (row["source_file"], row["source_line"])
        last[row["broker_id"], bool(asked), *place] = row
    return pa.Table.from_pylist(list(last.values()), KEPT_LINES)


def handled_times(kept: pa.Table) -> dict[tuple[str, int], int]:
    """When an io thread took each produce request, by file and line."""
    return {(row["source_file"], row["source_line"]): row["stamp_us"] for row in kept.to_pylist()
            if not row["message"]}  # fmt: skip


def read_times(kept: pa.Table) -> dict[tuple[int, int, int], int]:
    """When each follower's last fetch was read for the last time, by leader, follower, and when it was handled."""
    fetches = [(row, json.loads(row["message"])) for row in kept.to_pylist() if row["message"]]
    return {(row["broker_id"], asked["replica_id"], row["stamp_us"]): asked["read_us"] for row, asked in fetches}


def _recent(ends_us: Mapping[int, int], broker: str = "leader_id") -> str:
    return " OR ".join(f"{broker} = {broker_id} AND handled_us >= {end_us - _RECENT_US}"
                       for broker_id, end_us in ends_us.items())  # fmt: skip


def _read_us(fetch: Mapping[str, Any]) -> int:
    """A request that waited for data was read a second time before it was answered."""
    return int(fetch["answered_us"] if fetch["released_us"] > fetch["processed_us"] else fetch["processed_us"])


def _kept(broker_id: int, request: Mapping[str, Any], message: str) -> dict[str, Any]:
    return {"kind": REQUEST, "broker_id": broker_id, "source_file": request["source_file"],
            "source_line": request["source_line"], "stamp_us": request["handled_us"], "message": message}  # fmt: skip
