"""Select the last requests of each request log, which are stored so that a later ingest can date the last appends.

An append happened after an I/O thread picked up the produce request, and before the first follower's fetch that shows
the appended records. For an append at the end of a log, this fetch may be in the next log, and the first log
may have been deleted when the next one is ingested.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.folder.log_folder import REQUEST
from isr_batch.ingest.kafka_logs.earlier_logs import KEPT_LINES
from udfs.arrow_types import arrow_columns

KEPT_US = 3 * 86_400_000_000
"""How long requests and lines are stored, in microseconds of log time. Later logs must be ingested within this time."""
_RECENT_US = 1_000_000
"""Length of the end of a log, in microseconds, whose requests are stored. A fetch that bounds an append may be logged
this much later than the produce request, because a follower's fetch waits for up to half a second."""
_MOST_OF_FILE = 200
"""Maximum number of produce requests stored per file. On a busy broker, they span less than a second."""
_FOLLOWER = ("replica_id", "client_id")
_READ = arrow_columns("broker_id INT, replica_id INT, client_id STRING, source_file STRING, source_line BIGINT, "
                      "handled_us BIGINT, read_us BIGINT")  # fmt: skip
_PRODUCED = arrow_columns("broker_id INT, source_file STRING, source_line BIGINT, handled_us BIGINT")


def last_requests(engine: Engine, produced: Rows, fetches: Rows, by_file: pa.Table) -> pa.Table:
    """Return the last requests of each file as rows of `KEPT_LINES`.

    ``stamp_us`` is the time at which an I/O thread picked up the request. For a produce request, ``message`` is empty.
    For a fetch, ``message`` is JSON with the follower and ``read_us``, the time at which the leader last read its log
    for this fetch. If the fetch waited for data, ``read_us`` is the time of the response.

    Parameters
    ----------
    engine : Engine
    produced : Rows
        Result of `isr_batch.ingest.requests.append_log.append_requests`.
    fetches : Rows
        Result of the query `isr_batch.ingest.requests.request_log.FETCHES`.
    by_file : pa.Table
        Result of `isr_batch.ingest.requests.request_summary.requests_by_file`.
    """
    ends = by_file.filter(pc.and_(pc.is_null(by_file["reason"]), pc.is_valid(by_file["last_us"])))
    ends = ends.group_by("source_file").aggregate([("last_us", "max")])
    recent = pc.greater_equal(ends["last_us_max"], (pc.max(ends["last_us_max"]).as_py() or 0) - KEPT_US)
    late = f"JOIN ends USING (source_file) WHERE handled_us >= last_us_max - {_RECENT_US}"
    ends = ends.filter(recent)
    appends = engine.collect(engine.sql(
        produced,
        f"""
        SELECT DISTINCT leader_id AS broker_id, source_file, source_line, handled_us
        FROM rows {late} AND base_offset IS NOT NULL AND handled_us < append_us
        """,
        _PRODUCED, ends=ends,
    ))  # fmt: skip
    read = engine.collect(engine.sql(
        fetches,
        f"""
        SELECT broker_id, {", ".join(_FOLLOWER)}, source_file, source_line, handled_us,
            CASE WHEN released_us > processed_us THEN answered_us ELSE processed_us END AS read_us
        FROM rows {late}
        """,
        _READ, ends=ends,
    ))  # fmt: skip
    of_file: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in _requests_in_order(appends):
        of_file[row["source_file"]][row["source_line"]] = row
    kept = [_last_request_line(row, "") for rows in of_file.values() for row in list(rows.values())[-_MOST_OF_FILE:]]
    last = {tuple(row[name] for name in ("source_file", *_FOLLOWER)): row for row in _requests_in_order(read)}
    kept += [
        _last_request_line(row, json.dumps({name: row[name] for name in (*_FOLLOWER, "read_us")}))
        for row in last.values()
    ]
    return pa.Table.from_pylist(kept, KEPT_LINES)


def _requests_in_order(rows: pa.Table) -> list[dict[str, Any]]:
    """Return requests in the order in which I/O threads picked them up."""
    found: list[dict[str, Any]] = rows.sort_by([("handled_us", "ascending"), ("source_line", "ascending")]).to_pylist()
    return found


def handled_times(kept: pa.Table) -> dict[tuple[str, int], int]:
    """Return the pick-up times of the stored produce requests, in microseconds since 1970, by (file, line).

    ``kept`` is a result of `last_requests`.
    """
    return {(row["source_file"], row["source_line"]): row["stamp_us"] for row in kept.to_pylist()
            if not row["message"]}  # fmt: skip


def read_times(kept: pa.Table) -> dict[tuple[int, int, int], int]:
    """Return, for the stored fetches, when leaders last read their logs, in microseconds since 1970.

    The keys are (leader, follower, pick-up time). ``kept`` is a result of `last_requests`.
    """
    fetches = [(row, json.loads(row["message"])) for row in kept.to_pylist() if row["message"]]
    return {(row["broker_id"], asked["replica_id"], row["stamp_us"]): asked["read_us"] for row, asked in fetches}


def _last_request_line(request: Mapping[str, Any], message: str) -> dict[str, Any]:
    """Return a request as a row of `KEPT_LINES`, with the given message."""
    return {"kind": REQUEST, "broker_id": request["broker_id"], "source_file": request["source_file"],
            "source_line": request["source_line"], "stamp_us": request["handled_us"], "message": message}  # fmt: skip
