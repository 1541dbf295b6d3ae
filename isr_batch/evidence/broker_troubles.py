"""Build table broker_troubles (JVM pauses and errors that brokers logged), and find its rows near a broker's absence.

An absence is a time in which a broker seems to have done nothing.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from isr_batch.broker_lines.forms import NOT_ENOUGH_REPLICAS, OWN_TROUBLES
from isr_batch.broker_lines.gc_log import LEAST_MS, gc_pauses
from isr_batch.broker_lines.log_sql import RAW_CHARACTERS, SOURCE, matches, rows_of
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.evidence import BROKER_TROUBLES
from isr_batch.phrases import count_of, listed, seconds_text
from isr_batch.shown_times import time_text

_SAID: Final = {
    "session_expired": "the ZooKeeper session of {} expired",
    "heartbeat_failed": "heartbeats of {} did not reach the controller",
    "log_dir_failed": "a log directory of {} failed",
    "out_of_memory": "{} ran out of memory",
}
_SOON_US: Final = 10_000_000
"""A trouble is near an absence if it happened at most this many microseconds before the absence began, or at most this
many microseconds after the broker and its followers were back in the ISRs."""
_SECOND_US: Final = 1_000_000
_MOST_OF_IT, _NOTHING_OF_IT = 0.5, 0.1
"""Shares of an absence during which the JVM was paused. If the share is at least the first, the pauses caused the
absence. If it is below the second, they did not."""
Row = dict[str, Any]


def broker_troubles(sql: ArrowSql, server: pa.Table, of_jvms: pa.Table, cluster_id: str) -> pa.Table:
    """Return the rows of table broker_troubles, derived from the brokers' logs.

    Parameters
    ----------
    sql : ArrowSql
        Engine opened by `isr_batch.broker_lines.log_sql.log_sql`.
    server, of_jvms : pa.Table
        Lines of interest in server.log and gc.log: broker_id, source_file, source_line, stamp_us, message.
    cluster_id : str
        Value of the column cluster_id in every row.
    """
    kinds = " ".join(f"WHEN {matches('message', pattern)} THEN '{kind}'" for kind, pattern in OWN_TROUBLES.items())
    rows = sql(
        f"""
        WITH said AS (
            SELECT {SOURCE}, CASE {kinds} END AS kind, left(message, {RAW_CHARACTERS}) AS what
            FROM server WHERE stamp_us IS NOT NULL
        ), partitions AS (
            SELECT * EXCLUDE (isr_members) REPLACE (
                -- some releases print them in the wrong order
                least(members, min_insync_replicas) AS members,
                greatest(members, min_insync_replicas) AS min_insync_replicas,
                if(len(isr_members) > 0, isr_members, live) AS live)
            FROM (SELECT * REPLACE (coalesce(members, len(isr_members)) AS members) FROM refused)
        )
        SELECT 'pause' AS kind, broker_id, from_us, until_us, what, source_file, source_line FROM pauses
        UNION ALL
        SELECT kind, broker_id, stamp_us, stamp_us, what, source_file, source_line FROM said WHERE kind IS NOT NULL
        UNION ALL
        SELECT 'under_min_isr', broker_id, stamp_us, stamp_us,
            topic || '-' || partition_id || ': ' || members || ' of ' || min_insync_replicas
                || if(len(live) > 0, ' (broker ' || array_to_string(live, ', ') || ')', ''), source_file, source_line
        FROM partitions WHERE stamp_us IS NOT NULL
        ORDER BY from_us, broker_id, source_file, source_line
        """,
        server=server,
        pauses=gc_pauses(sql, of_jvms),
        refused=rows_of(sql, server, NOT_ENOUGH_REPLICAS),
    )
    made = [
        {
            **{name: row[name] for name in ("broker_id", "kind", "what", "source_file", "source_line")},
            "cluster_id": cluster_id, "from_time": _trouble_time(row["from_us"]),
            "until_time": _trouble_time(row["until_us"]),
            "event_date": _trouble_time(row["from_us"]).date(),
        } for row in rows.to_pylist()
    ]  # fmt: skip
    return pa.Table.from_pylist(made, arrow_schema(BROKER_TROUBLES))


def write_broker_troubles(small: SmallTables, cluster_id: str, rows: pa.Table, files: Collection[str]) -> int:
    """Write rows to table broker_troubles, and return how many. Earlier rows that came from ``files`` are replaced."""
    if not files:
        return 0
    of_files = f"source_file IN ({', '.join(map(sql_literal, sorted(files)))})"
    where = f"cluster_id = {sql_literal(cluster_id)} AND {of_files}"
    return replace_arrow(small.lake, small.sql, BROKER_TROUBLES, rows, where)


def troubles_of_absences(sql: ArrowSql, absences: pa.Table, troubles: pa.Table, coverage: pa.Table) -> list[Row]:
    """For each absence of a broker, find the JVM pauses during it and the errors that the broker logged around it.

    Parameters
    ----------
    sql : ArrowSql
    absences : pa.Table
        Columns number (an id), cluster_id, broker_id, from_us and until_us; ``absent_us``, for how many microseconds of
        the absence the broker did nothing; ``over_us``, the time until which errors belong to the absence: when the
        broker and its followers were back in the ISRs.
    troubles, coverage : pa.Table
        Rows of broker_troubles and coverage, with timestamps that have no time zone.

    Returns
    -------
    list of dict
        One dict per absence, sorted by number, with the columns above and more keys. ``has_gc_log``: whether a gc.log
        covers the whole absence. ``pauses`` and ``paused_us``: number of pauses, and their total length within the
        absence. ``longest_us``, longest_until_us, longest_what, longest_file and longest_line describe the longest
        pause. ``said`` lists the first error of each kind that the broker logged (kind, at_us, file, line).
    """
    rows: list[Row] = sql(
        f"""
        WITH near AS (
            SELECT a.number, t.kind, t.what, t.source_file, t.source_line, epoch_us(t.until_time) AS until_us,
                epoch_us(t.from_time) AS at_us, epoch_us(t.until_time) - epoch_us(t.from_time) AS long_us,
                least(epoch_us(t.until_time), a.until_us) - greatest(epoch_us(t.from_time), a.from_us) AS within_us
            FROM absences AS a
            JOIN troubles AS t ON (t.cluster_id, t.broker_id) = (a.cluster_id, a.broker_id)
                AND epoch_us(t.from_time) <= a.over_us + {_SOON_US}
                AND epoch_us(t.until_time) >= a.from_us - {_SOON_US}
        ), paused AS (
            SELECT number, count(*) AS pauses, CAST(sum(within_us) AS BIGINT) AS paused_us, max(long_us) AS longest_us,
                arg_max(until_us, long_us) AS longest_until_us, arg_max(what, long_us) AS longest_what,
                arg_max(source_file, long_us) AS longest_file, arg_max(source_line, long_us) AS longest_line
            FROM near WHERE kind = 'pause' AND within_us > 0 GROUP BY number
        ), said AS (
            SELECT number,
                list({{'kind': kind, 'at_us': at_us, 'file': source_file, 'line': source_line}} ORDER BY at_us) AS said
            FROM (
                SELECT * FROM near WHERE kind NOT IN ('pause', 'under_min_isr')
                QUALIFY row_number() OVER (PARTITION BY number, kind ORDER BY at_us, source_file, source_line) = 1
            ) GROUP BY number
        )
        SELECT a.*, EXISTS (
                FROM coverage AS c WHERE c.log = 'gc' AND c.cluster_id = a.cluster_id AND c.broker_id = a.broker_id
                    AND epoch_us(c.from_time) <= a.from_us AND epoch_us(c.until_time) >= a.until_us
            ) AS has_gc_log,
            coalesce(pauses, 0) AS pauses, coalesce(paused_us, 0) AS paused_us, coalesce(longest_us, 0) AS longest_us,
            longest_until_us, longest_what, longest_file, longest_line, coalesce(said, []) AS said
        FROM absences AS a LEFT JOIN paused USING (number) LEFT JOIN said USING (number) ORDER BY number
        """,
        absences=absences,
        troubles=troubles,
        coverage=coverage,
    ).to_pylist()
    return rows


def is_of_jvm(absence: Row) -> bool | None:
    """Whether JVM pauses were the reason why a broker seemed to do nothing for some time (its absence).

    True if the JVM was paused for at least half of that time, False if gc.log covers the time and the JVM was paused
    for less than a tenth of it. Otherwise None, for unknown. ``absence`` is a dict from `troubles_of_absences`.
    """
    if _paused_share(absence) >= _MOST_OF_IT:
        return True
    return False if absence["has_gc_log"] and _paused_share(absence) < _NOTHING_OF_IT else None


def _paused_share(absence: Row) -> float:
    return float(absence["paused_us"] / max(absence["absent_us"], 1))


def pauses_in_words(absence: Row) -> str:
    """Say whether JVM pauses were the reason why a broker seemed to do nothing, and name the longest pause.

    The text is empty if gc.log does not cover that time, and shows no pauses or only short ones. ``absence`` is a dict
    from `troubles_of_absences`.
    """
    longest, jvm = _pause_length_text(absence["longest_us"]), f"the JVM of broker {absence['broker_id']}"
    of_jvm = is_of_jvm(absence)
    if of_jvm is False:
        none = f"gc.log has no pause of {LEAST_MS} ms then"
        return f"{jvm} was not the cause ({f'longest pause in gc.log: {longest}' if absence['pauses'] else none})"
    if not absence["pauses"] or _paused_share(absence) < _NOTHING_OF_IT:
        return ""
    what = f"{absence['longest_what']}, ends at {time_text(absence['longest_until_us'], '%H:%M:%S')}"
    in_all = f"{_pause_length_text(absence['paused_us'])} in {count_of(absence['pauses'], 'pause')}"
    paused = f"{longest} ({what})" if absence["pauses"] == 1 else f"{in_all}, the longest of {longest} ({what})"
    return f"{jvm} was the cause, paused for {paused}" if of_jvm else f"{jvm} was paused for a part of that: {paused}"


def _pause_length_text(us: int) -> str:
    return f"{us // 1000} ms" if us < _SECOND_US else seconds_text([us // 1000])


def trouble_in_words(absence: Row) -> str:
    """List the errors, with their times, that a broker logged around its absence; empty if it logged none.

    ``absence`` is a dict from `troubles_of_absences`.
    """
    broker = f"broker {absence['broker_id']}"
    said = [f"{_SAID[one['kind']].format(broker)} at {time_text(one['at_us'], '%H:%M:%S')}" for one in absence["said"]]
    return listed(said) if said else ""


def lines_of_absence(absence: Row, *, pauses: bool) -> list[str]:
    """Return the log lines that prove the text of `pauses_in_words` (if ``pauses``) or `trouble_in_words`.

    ``absence`` is a dict from `troubles_of_absences`. Each item of the result is like "server.log:7".
    """
    longest = [f"{absence['longest_file']}:{absence['longest_line']}"] if absence["pauses"] else []
    return longest if pauses else [f"{one['file']}:{one['line']}" for one in absence["said"]]


def _trouble_time(us: int) -> datetime:
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
