"""Read all logs except request logs in one pass: collect the lines that are parsed later, and count all other lines.

The former are called lines of interest. They are few, so they are collected in the driver as Arrow tables.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines import metadata_log
from isr_batch.broker_lines.forms import (
    LAG_TIME,
    MIN_ISR,
    SERVER_LINES,
    SETTING,
    STATE_CHANGE_LINES,
    WITHOUT_STAMP,
)  # fmt: skip
from isr_batch.broker_lines.gc_log import GC_LINES, gc_stamps
from isr_batch.broker_lines.log_sql import BUCKET_US
from isr_batch.broker_lines.metadata_log import METADATA_LINES
from isr_batch.ingest.engine.engine import Engine
from isr_batch.ingest.folder import lines
from isr_batch.ingest.folder.log_folder import GC, METADATA, SERVER, STATE_CHANGE, LogFile, LogFolder
from isr_batch.ingest.kafka_logs.earlier_logs import FILES, KEPT_LINES, EarlierLogs
from isr_batch.ingest.requests.request_log import request_stamps_and_hashes
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.arrow_types import arrow_columns

_DAY_US = 86_400_000_000
_FOUND = arrow_columns(
    "kind STRING, broker_id INT, source_file STRING, source_line BIGINT, stamp_us BIGINT, message STRING, "
    "line_hash BIGINT, problem STRING, detail STRING, lines BIGINT, stamped BIGINT, first_us BIGINT, last_us BIGINT, "
    "days ARRAY<INT>, informs BOOLEAN, active_us ARRAY<BIGINT>, other_stamps_us ARRAY<BIGINT>, "
    "other_hashes ARRAY<BIGINT>"
)
"""Schema of the result of the pass. If ``lines`` is not null, the row summarises lines of one file; otherwise it is a
line of interest or a problem."""

OTHER_LAYOUT = "no time stamp in the layout of the file"
"""Reason for refusing a line that looks of interest but has no timestamp in the layout of its file. The layout may
change within the file."""
# The indented lines of a stack trace do not match.
_LOOKS_OF_INTEREST = rf"^\S.*(?:{SERVER_LINES}|{STATE_CHANGE_LINES}|Completed request:)"
_EXCEPTION = r"^(?:Caused by: )?[\w.$]+(?:Exception|Error)\b"
"""Pattern of the first line of an exception. It has no timestamp: it belongs to the log line before it."""
_KEPT = pa.array([SERVER, STATE_CHANGE])
_HEAD = 64
"""Number of characters at the start of a line that are searched for its level, such as INFO."""
_SHOWN = 200
"""Maximum number of characters of a refused line that are stored."""

_IN_TABLES = ("broker_id", "source_file", "source_line", "stamp_us", "message", "problem", "detail")


@dataclass(frozen=True)
class LinesOfInterest:
    """The lines of interest in all logs except request logs, without duplicates.

    Parameters
    ----------
    server, state_changes : pa.Table
        Lines of server.log and state-change.log: broker_id, source_file, source_line, stamp_us (null for settings),
        message, problem, detail. If a line or file could not be read, ``message`` is null, and ``problem`` and
        ``detail`` give the reason.
    of_jvms : pa.Table
        Lines of gc.log, with the same columns.
    records : pa.Table
        Result of `isr_batch.broker_lines.metadata_log.parse_metadata`.
    files : pa.Table
        One row per kind, broker_id and source_file: ``lines``, the number of lines; first_us, last_us and days (since
        1970) of their timestamps; ``informs``, whether the file has a line at INFO, the level at which leaders log
        shrinks.
    activity : pa.Table
        Times at which brokers wrote any lines to server.log: broker_id, at_us. Only the first and the last line in each
        interval of `BUCKET_US` are listed.
    kept : pa.Table
        Lines of server.log and state-change.log to store in the lake, with the columns of
        `isr_batch.ingest.kafka_logs.earlier_logs.KEPT_LINES`.
    used : dict of str to int
        Number of lines that are accounted as used, by kind of log: the lines of interest and, in state-change.log, all
        lines with a timestamp.
    settings : dict of (int, str) to int
        Settings in files next to the logs, by broker and name of the setting in Kafka.
    """

    server: pa.Table
    state_changes: pa.Table
    of_jvms: pa.Table
    records: pa.Table
    files: pa.Table
    activity: pa.Table
    kept: pa.Table
    used: dict[str, int]
    settings: dict[tuple[int, str], int] = field(default_factory=dict)


def read_lines_of_interest(engine: Engine, sql: ArrowSql, found: LogFolder) -> LinesOfInterest:
    """Read all logs of a folder except request logs, in one pass, and return the lines of interest."""
    files = [file for kind in (SERVER, STATE_CHANGE, METADATA, GC) for file in found.of_kind(kind)]
    rows = _read_lines_of_interest(engine, files)
    figures = rows.filter(pc.is_valid(rows["lines"]))
    chosen = rows.filter(pc.is_null(rows["lines"]))
    of_kind = {kind: chosen.filter(pc.equal(chosen["kind"], kind)) for kind in (SERVER, STATE_CHANGE, METADATA, GC)}
    server, state_changes = (_without_duplicates(sql, of_kind[kind]) for kind in (SERVER, STATE_CHANGE))
    records = metadata_log.parse_metadata(sql, metadata_log.metadata_records(sql, of_kind[METADATA]))
    used = {
        SERVER: server.num_rows - server["message"].null_count,
        STATE_CHANGE: state_changes.num_rows - state_changes["message"].null_count + _other_state_changes(sql, figures),
        METADATA: records.filter(pc.is_null(records["problem"])).num_rows - (pc.sum(records["malformed"]).as_py() or 0),
        GC: of_kind[GC].num_rows - of_kind[GC]["message"].null_count,
    }
    return LinesOfInterest(
        server.select(_IN_TABLES), state_changes.select(_IN_TABLES), of_kind[GC].select(_IN_TABLES), records,
        _other_lines_by_file(sql, figures, records),
        sql("SELECT broker_id, unnest(active_us) AS at_us FROM figures", figures=figures),
        chosen.filter(pc.and_(pc.is_valid(chosen["message"]), pc.is_in(chosen["kind"], _KEPT)))
        .select(KEPT_LINES.names), used, _settings_next_to_logs(found),
    )  # fmt: skip


def _settings_next_to_logs(found: LogFolder) -> dict[tuple[int, str], int]:
    """Return lag time and min ISR of each broker, from server.properties. Values that the user gave take precedence."""
    brokers = {file.broker_id for file in found.files if file.broker_id is not None}
    settings = {}
    for broker in sorted(brokers):
        for name, key in ((LAG_TIME, "replica_lag_time_max_ms"), (MIN_ISR, "min_insync_replicas")):
            own = getattr(found.brokers[broker], key) if broker in found.brokers else None
            stated = getattr(found.given, key)
            if (value := own if stated is None else stated) is not None:
                settings[broker, name] = value
    return settings


def with_earlier_lines(sql: ArrowSql, read: LinesOfInterest, earlier: EarlierLogs) -> LinesOfInterest:
    """Add the lines of earlier logs that the lake stores to the lines of interest in ``read``, and drop duplicates.

    If the lake stores any, rows about lines that could not be read are only in ``read``, and not in the result.
    """
    if not earlier.lines.num_rows:
        return read
    every = pa.concat_tables([read.kept, earlier.lines])
    server, state_changes = (
        sql(
            "SELECT *, CAST(NULL AS VARCHAR) AS problem, CAST(NULL AS VARCHAR) AS detail FROM lines",
            lines=_without_duplicates(sql, every.filter(pc.equal(every["kind"], kind))),
        ).select(_IN_TABLES)
        for kind in (SERVER, STATE_CHANGE)
    )
    files = pa.concat_tables([read.files.select(FILES.names), earlier.files])
    # Stored lines, and the last line of an earlier file, show that the broker was alive at their times. They are the
    # only evidence about a process that has ended.
    last = earlier.files.filter(pc.equal(earlier.files["kind"], SERVER)).select(["broker_id", "last_us"])
    lived = pa.concat_tables(
        [rows.rename_columns(["broker_id", "at_us"]) for rows in (server.select(["broker_id", "stamp_us"]), last)]
    )
    activity = pa.concat_tables([read.activity, lived.filter(pc.is_valid(lived["at_us"])).cast(read.activity.schema)])
    return replace(read, server=server, state_changes=state_changes, files=files, activity=activity)


def _read_lines_of_interest(engine: Engine, files: Sequence[LogFile]) -> pa.Table:
    """Read files in one pass; return their lines of interest, and summaries of all their lines, as rows of `_FOUND`."""
    overlapping = frozenset(_brokers_with_overlapping_logs([file for file in files if file.kind == STATE_CHANGE]))
    return engine.collect(
        engine.map(lines.read_lines(engine, list(files)), partial(_choose_lines_of_interest, overlapping), _FOUND)
    )


def _choose_lines_of_interest(
    overlapping: frozenset[int | None], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the lines of interest in batches of lines, and summaries of all lines, as rows of `_FOUND`.

    ``overlapping`` are the brokers with several files that may contain the same lines.
    """
    for batch in batches:
        yield from _chosen_lines(read_as_log_lines(batch), overlapping)


def read_as_log_lines(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Parse the timestamps of lines, and decide which lines are of interest: add columns to ``batch``.

    The columns include ``message`` (null unless the line is of interest), stamp_us and line_hash.
    """
    kind, value = batch["log"], batch["value"]
    stamps, hashes = request_stamps_and_hashes(value)
    stamps = pc.if_else(pc.equal(kind, METADATA), None, stamps)
    of_jvm, of_server = pc.equal(kind, GC), pc.equal(kind, SERVER)
    if pc.any(of_jvm).as_py():
        stamps = pc.if_else(of_jvm, gc_stamps(value), stamps)
    elif pc.any(of_server).as_py():
        stamps = _with_stamps_of_exceptions(value, of_server, stamps)
    has_stamp = pc.is_valid(stamps)
    of_interest = pc.or_(
        pc.and_(pc.equal(kind, METADATA), pc.match_substring_regex(value, METADATA_LINES)),
        pc.and_(pc.equal(kind, STATE_CHANGE), pc.and_(has_stamp, pc.match_substring_regex(value, STATE_CHANGE_LINES))),
    )
    read = pc.or_(
        pc.match_substring_regex(value, SETTING.pattern),
        pc.and_(has_stamp, pc.match_substring_regex(value, SERVER_LINES)),
    )
    of_interest = pc.or_(of_interest, pc.and_(of_server, read))
    of_interest = pc.or_(of_interest, pc.and_(of_jvm, pc.match_substring_regex(value, GC_LINES)))
    of_kafka = pc.invert(pc.is_in(kind, pa.array([METADATA, GC])))
    unstamped = pc.and_(pc.invert(has_stamp), pc.and_(of_kafka, pc.invert(of_interest)))
    alone = pc.and_(unstamped, pc.invert(pc.match_substring_regex(value, _EXCEPTION)))
    stray = pc.fill_null(pc.and_(alone, pc.match_substring_regex(value, _LOOKS_OF_INTEREST)), False)
    return pa.RecordBatch.from_pydict({
        "kind": kind, "broker_id": batch["broker_id"], "source_file": batch["source_file"],
        "source_line": batch["source_line"], "stamp_us": stamps, "message": pc.if_else(of_interest, value, None),
        "line_hash": pc.if_else(has_stamp, hashes, None),
        "informs": pc.match_substring(pc.utf8_slice_codeunits(value, 0, _HEAD), " INFO "),
        "problem": pc.if_else(stray, OTHER_LAYOUT, batch["problem"]),
        "detail": pc.if_else(stray, pc.utf8_slice_codeunits(value, 0, _SHOWN), batch["detail"]),
    })  # fmt: skip


def _with_stamps_of_exceptions(value: pa.StringArray, of_server: pa.BooleanArray, stamps: pa.Array) -> pa.Array:
    """Return ``stamps``, where lines of server.log that begin an exception get the timestamp of the line before.

    ``of_server`` is true for lines of server.log. If lines are equal, only the first of them gets a timestamp.
    """
    bare = pc.and_(of_server, pc.and_(pc.is_null(stamps), pc.match_substring_regex(value, WITHOUT_STAMP)))
    at = np.flatnonzero(bare)
    if not len(at):
        return stamps
    _, first = np.unique(np.asarray(value.take(pa.array(at)).dictionary_encode().indices), return_index=True)
    at = at[np.sort(first)]
    known = np.flatnonzero(pc.is_valid(stamps))
    before = np.searchsorted(known, at) - 1
    filled = stamps.to_pylist()
    for line, n in zip(at.tolist(), before.tolist(), strict=True):
        filled[line] = filled[known[n]] if n >= 0 else None
    return pa.array(filled, stamps.type)


def _brokers_with_overlapping_logs(files: Sequence[LogFile]) -> list[int | None]:
    """Return the brokers that wrote more than one of the files. Files of one broker may be copies of each other."""
    return [broker for broker, times in Counter(file.broker_id for file in files).items() if times > 1]


def _chosen_lines(batch: pa.RecordBatch, overlapping: frozenset[int | None]) -> Iterator[pa.RecordBatch]:
    """Yield the lines of interest and the problems in a batch, and then one summary of its lines per file."""
    keep = pc.or_(pc.is_valid(batch["message"]), pc.is_valid(batch["problem"]))
    kept = batch.filter(keep)
    columns = [
        kept[field.name] if field.name in kept.schema.names else pa.nulls(kept.num_rows, field.type) for field in _FOUND
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=_FOUND)
    of_log = pa.table([batch["kind"], batch["source_file"]], ["kind", "source_file"])
    for log in of_log.group_by(["kind", "source_file"]).aggregate([]).to_pylist():
        own = pc.and_(pc.equal(batch["kind"], log["kind"]), pc.equal(batch["source_file"], log["source_file"]))
        yield _figures_of_other_lines(batch.filter(own), overlapping)


def _figures_of_other_lines(batch: pa.RecordBatch, overlapping: frozenset[int | None]) -> pa.RecordBatch:
    """Summarise a batch of lines from one file: number, days, first and last timestamp, and signs of activity."""
    kind, broker_id, name = (batch[column][0].as_py() for column in ("kind", "broker_id", "source_file"))
    stamps = np.asarray(batch["stamp_us"].drop_null())
    row: dict[str, Any] = {"kind": kind, "broker_id": broker_id, "source_file": name,
                           "lines": batch.num_rows - batch["source_line"].null_count,
                           "informs": pc.any(batch["informs"]).as_py() or False}  # fmt: skip
    if len(stamps):
        days = np.unique(stamps // _DAY_US).astype(np.int32)
        row |= {"first_us": int(stamps.min()), "last_us": int(stamps.max()), "days": days}
        if kind == SERVER:
            # As signs of activity, only the first and the last line of each interval are kept.
            ordered = np.sort(stamps)
            changes = np.flatnonzero(np.diff(ordered // BUCKET_US))
            row["active_us"] = np.unique(ordered[np.concatenate([[0], changes, changes + 1, [len(ordered) - 1]])])
    if kind == STATE_CHANGE:
        others = batch.filter(pc.and_(pc.is_valid(batch["stamp_us"]), pc.is_null(batch["message"])))
        row["stamped"] = others.num_rows
        if broker_id in overlapping:
            row |= {"other_stamps_us": np.asarray(others["stamp_us"]), "other_hashes": np.asarray(others["line_hash"])}
    values = [[row.get(field.name)] for field in _FOUND]
    return pa.RecordBatch.from_arrays(
        [pa.array(value, field.type) for value, field in zip(values, _FOUND, strict=True)], schema=_FOUND
    )


def _without_duplicates(sql: ArrowSql, chosen: pa.Table) -> pa.Table:
    """Drop duplicate lines, which occur if copies of a log overlap or if two shippers have sent each line."""
    return sql(
        """
        SELECT * FROM lines WHERE stamp_us IS NULL OR message IS NULL
        UNION ALL
        SELECT * FROM (
            SELECT DISTINCT ON (broker_id, stamp_us, line_hash) * FROM lines
            WHERE stamp_us IS NOT NULL AND message IS NOT NULL ORDER BY source_file, source_line)
        ORDER BY source_file, source_line
        """,
        lines=chosen,
    )


def _other_state_changes(sql: ArrowSql, figures: pa.Table) -> int:
    """Count the lines of state-change.log with a timestamp that are not of interest. Duplicates are counted once.

    ``figures`` are the summaries of batches.
    """
    counted = sql(
        """
        WITH single AS (
            SELECT sum(stamped) AS lines FROM figures WHERE other_hashes IS NULL
        ), copied AS (
            SELECT broker_id, unnest(other_stamps_us) AS stamp_us, unnest(other_hashes) AS line_hash FROM figures
        )
        SELECT CAST(coalesce((SELECT lines FROM single), 0) + (SELECT count(*) FROM (SELECT DISTINCT * FROM copied))
            AS BIGINT) AS lines
        """,
        figures=figures,
    )
    return int(counted["lines"][0].as_py())


def _other_lines_by_file(sql: ArrowSql, figures: pa.Table, records: pa.Table) -> pa.Table:
    """Combine the summaries of batches (``figures``) into one row per file, as `LinesOfInterest.files` describes.

    The metadata records (``records``) are counted with the lines of their file.
    """
    return sql(
        f"""
        WITH every AS (
            SELECT kind, broker_id, source_file, lines, first_us, last_us, informs,
                unnest(coalesce(days, [NULL])) AS day
            FROM (SELECT row_number() OVER () AS number, * FROM figures)
            UNION ALL
            SELECT '{METADATA}', NULL, source_file, 0, at_us, at_us, NULL, CAST(at_us // {_DAY_US} AS INTEGER)
            FROM records
        ), totals AS (
            SELECT kind, source_file, CAST(sum(lines) AS BIGINT) AS lines FROM figures GROUP BY kind, source_file)
        SELECT kind, any_value(broker_id) AS broker_id, source_file, any_value(t.lines) AS lines,
            min(first_us) AS first_us, max(last_us) AS last_us, coalesce(bool_or(informs), false) AS informs,
            list(DISTINCT day) FILTER (day IS NOT NULL) AS days
        FROM every JOIN totals t USING (kind, source_file) GROUP BY kind, source_file
        """,
        figures=figures,
        records=records,
    )
