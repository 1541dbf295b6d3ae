"""Find the lines in server.log and state-change.log that are evidence about ISR shrinks."""

from collections import defaultdict
from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.forms import (
    CREATED,
    EXPAND,
    ISR_UPDATED,
    LEADER,
    SETTING,
    START_OFFSET,
    STILL_LEADER,
    VERSION,
    WRITE_FAILED,
    Form,
)  # fmt: skip
from isr_batch.broker_lines.log_sql import matches, rows_of
from isr_batch.broker_lines.server_log import process_starts, shrink_lines, trouble_lines
from isr_batch.broker_lines.server_log_zookeeper import leader_and_isr_lines
from isr_batch.broker_lines.unread import unread_isr_lines
from isr_batch.evidence.lines import (
    AttemptLine,
    EvidencePosition,
    FailedWriteLine,
    FoundLines,
    IsrStateLine,
    ReplicaInLine,
    TroubleLine,
    UnreadIsrLine,
)
from isr_batch.lake.arrow_sql import ArrowSql

LINES: Final = pa.schema([
    ("broker_id", pa.int32()), ("source_file", pa.string()), ("source_line", pa.int64()), ("stamp_us", pa.int64()),
    ("message", pa.string()),
])  # fmt: skip
"""Schema of the input. ``message`` is the line in Kafka's own layout. ``stamp_us`` is its time in microseconds since
1970; null for lines without a time, such as settings."""

_ONE_START_US = 60_000_000

Row = dict[str, Any]


def find_lines(sql: ArrowSql, lines: pa.Table, span_us: dict[int, tuple[int, int]] | None = None) -> FoundLines:
    """Parse the log lines of a cluster, and collect those that are evidence about shrinks.

    Parameters
    ----------
    sql : ArrowSql
        Engine opened by `isr_batch.broker_lines.log_sql.log_sql`.
    lines : pa.Table
        Lines of all brokers, with the columns of `LINES`, in any order. Lines that are not evidence are ignored.
    span_us : dict of int to (int, int), optional
        Times of the first and the last line of each broker's logs, in microseconds since 1970. By default, they are
        derived from ``lines``.
    """
    if span_us is None:
        stamped = lines.filter(pc.is_valid(lines["stamp_us"]))
        spans = stamped.group_by("broker_id").aggregate([("stamp_us", "min"), ("stamp_us", "max")])
        span_us = {row["broker_id"]: (row["stamp_us_min"], row["stamp_us_max"]) for row in spans.to_pylist()}
    # Duplicates are dropped, because copies of a log may overlap. If a line names the broker that wrote it, this broker
    # id is used, because the number in a folder's name may not be a broker id.
    once = sql(
        f"""
        SELECT * REPLACE (coalesce(writer_of(message), broker_id) AS broker_id) FROM lines
        WHERE stamp_us IS NOT NULL OR {matches("message", SETTING.mark)}
        QUALIFY stamp_us IS NULL OR source_file = min(source_file) OVER (PARTITION BY broker_id, stamp_us, message)
        """,
        lines=lines,
    )

    def rows(*forms: Form) -> list[Row]:
        return _lines_in_order(rows_of(sql, once, *forms))

    found = FoundLines(span_us=span_us)
    found.settings = {(row["broker_id"], row["setting"]): row["number"] for row in rows(SETTING)}
    found.attempts = [
        _attempt_line(row, shrinks=shrinks)
        for shrinks, attempts in ((True, _lines_in_order(shrink_lines(sql, once))), (False, rows(EXPAND)))
        for row in attempts
        if _changed_by_line(row, shrinks=shrinks)
    ]
    for attempt in found.attempts:
        for replica in attempt.replicas.values():
            if attempt.shrinks and replica.last_caught_up_ms is not None:
                lag_ms = attempt.at_us // 1000 - replica.last_caught_up_ms
                found.least_lag_ms[attempt.leader_id] = min(lag_ms, found.least_lag_ms.get(attempt.leader_id, lag_ms))
    received = [
        {**row, **row["received"]}
        for row in _lines_in_order(leader_and_isr_lines(sql, once))
        if row["received"] and row["topic"] and row["received"]["leader_id"] == row["broker_id"]
    ]
    started = [*rows(LEADER), *rows(START_OFFSET), *received]
    found.states = [
        *(_state(row, "updated") for row in rows(ISR_UPDATED)),
        *(_state(row, "stayed") for row in rows(STILL_LEADER)),
        *(_state(row, "started") for row in started),
    ]
    found.attempts.sort(key=_time_of_line)
    found.states.sort(key=_time_of_line)
    found.failed = [
        FailedWriteLine(
            _place_of_line(row), row["stamp_us"], row["leader_id"], _partition_of_line(row),
            None if row["pending"] is None else row["pending"] == "Shrink",
        )
        for row in rows(WRITE_FAILED)
    ]  # fmt: skip
    found.troubles = [
        TroubleLine(
            _place_of_line(row), row["stamp_us"],
            row["broker_id"] if row["follower_id"] is None else row["follower_id"], row["kind"],
            row["leader_id"], None if row["topic"] is None else _partition_of_line(row),
        )
        for row in _lines_in_order(trouble_lines(sql, once))
    ]  # fmt: skip
    found.unread = [
        UnreadIsrLine(row["stamp_us"], row["broker_id"], None if row["topic"] is None else _partition_of_line(row))
        for row in _lines_in_order(unread_isr_lines(sql, once))
    ]
    for row in rows(CREATED):
        found.created.setdefault(_partition_of_line(row), []).append((row["stamp_us"], _place_of_line(row)))
        if row["min_insync_replicas"] is not None:
            found.min_isr[row["topic"]] = row["min_insync_replicas"]
    versions = rows(VERSION)
    found.releases = {row["broker_id"]: row["version"] for row in versions}
    # Clients inside a broker log their version too, so a version line only shows a start if no better line exists.
    found.process_starts = _starts_of_processes(versions) | _starts_of_processes(
        _lines_in_order(process_starts(sql, once))
    )
    first_terms = [row for row in started if row["leader_epoch"] == 0]
    for row in first_terms:
        found.created.setdefault(_partition_of_line(row), []).append((row["stamp_us"], _place_of_line(row)))
    _find_elections(found, {_place_of_line(row) for row in first_terms})
    return found


def _lines_in_order(rows: pa.Table) -> list[Row]:
    """Return lines as dicts, sorted by time, file and line number."""
    order = [("stamp_us", "ascending"), ("source_file", "ascending"), ("source_line", "ascending")]
    found: list[Row] = rows.sort_by(order).to_pylist()
    return found


def _time_of_line(line: AttemptLine | IsrStateLine) -> tuple[int, EvidencePosition]:
    return line.at_us, line.place


def _place_of_line(row: Row) -> EvidencePosition:
    return EvidencePosition(row["source_file"], row["source_line"])


def _partition_of_line(row: Row) -> tuple[str, int]:
    return row["topic"], row["partition_id"]


def _changed_by_line(row: Row, *, shrinks: bool) -> set[int]:
    """Return the replicas that a Shrinking line removes from the ISR, or that an Expanding line adds to it."""
    more, less = ("isr_before", "isr_after") if shrinks else ("isr_after", "isr_before")
    return set(row[more]) - set(row[less])


def _attempt_line(row: Row, *, shrinks: bool) -> AttemptLine:
    printed = {
        replica["replica_id"]: ReplicaInLine(
            _if_printed_in_line(replica["follower_log_end_offset"], 0),
            _if_printed_in_line(replica["last_caught_up_time_ms"], 1),
        )
        for replica in row.get("dropped") or ()
    }
    return AttemptLine(
        _place_of_line(row), row["stamp_us"], row["leader_id"], _partition_of_line(row), shrinks,
        tuple(row["isr_before"]), tuple(row["isr_after"]), _if_printed_in_line(row.get("high_watermark"), 0),
        _if_printed_in_line(row.get("leader_log_end_offset"), 0),
        {each: printed.get(each, ReplicaInLine(None, None)) for each in sorted(_changed_by_line(row, shrinks=shrinks))},
    )  # fmt: skip


def _state(row: Row, source: str) -> IsrStateLine:
    """Convert a row to an `IsrStateLine`. ``source`` is the kind of line, such as ``updated``.

    The leader is the broker that an ``updated`` line names, and for other lines the broker that wrote the line.
    """
    isr, under = row.get("isr"), row.get("under")
    leader_id = row["leader_id"] if source == "updated" else row["broker_id"]
    return IsrStateLine(
        _place_of_line(row), row["stamp_us"], leader_id, _partition_of_line(row), None if isr is None else tuple(isr),
        row.get("partition_epoch"), source, None if under is None else under != "  and",
    )  # fmt: skip


def _find_elections(found: FoundLines, first_terms: Collection[EvidencePosition]) -> None:
    """Fill ``found.elections`` with the times at which another broker became leader, except in the first term."""
    leaders: dict[tuple[str, int], int] = {}
    for state in found.states:
        begins = state.source == "started" and state.place not in first_terms
        if begins and leaders.get(state.partition) != state.leader_id:
            found.elections.setdefault(state.partition, []).append(state.at_us)
        leaders[state.partition] = state.leader_id


def _starts_of_processes(rows: list[Row]) -> dict[int, list[tuple[int, EvidencePosition]]]:
    """Return time and position of each start of a broker process, by broker. Lines within 60 s are one start."""
    starts: dict[int, list[tuple[int, EvidencePosition]]] = defaultdict(list)
    for row in rows:
        of_broker = starts[row["broker_id"]]
        if not of_broker or row["stamp_us"] - of_broker[-1][0] > _ONE_START_US:
            of_broker.append((row["stamp_us"], _place_of_line(row)))
    return dict(starts)


def _if_printed_in_line(number: int | None, least: int) -> int | None:
    # A leader logs the offset -1 and the time 0 for a follower that has not fetched in its term: both mean unknown.
    return number if number is not None and number >= least else None
