r"""Parse gc.log in the formats of all JDK releases: find the pauses (collections and other safepoints) of a JVM.

========  ======================================================================================  =============
JDK       a pause                                                                                 its timestamp
========  ======================================================================================  =============
8         ``2026-11-21T16:30:45.341+0000: 33.3: [Full GC (Allocation Failure) ..., 5.8123 secs]``  the start
8 - 12    ``Total time for which application threads were stopped: 5.8124 seconds``               the end
9 -       ``[2026-11-21T16:30:51.153+0000] GC(7) Pause Full (...) 1023M->800M(1024M) 5812.345ms``  the end
13 -      ``Safepoint "G1CollectFull", ..., Total: 5812345678 ns``                                the end
========  ======================================================================================  =============

A collection and the safepoint around it are the same pause. Lines that only show the uptime are skipped, because they
have no date. Pauses below `LEAST_MS` are ignored: healthy brokers have one every few seconds.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.log_sql import matches
from isr_batch.lake.arrow_sql import ArrowSql, quoted

LEAST_MS: Final = 10
# Patterns of numbers in ms, ns and seconds that are at least `LEAST_MS`.
_MS, _NS = r"(\d{2,9}(?:[.,]\d+)?)", r"(\d{8,15})"
_SECONDS = r"(\d*[1-9]\d*[.,]\d+|0+[.,](?:[1-9]|0[1-9])\d*)"
_STAMP = (
    r"^\[?(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.,](?P<ms>\d{3})(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)"
)
_UNIFIED = rf"GC\(\d+\) (?:[YyOo]: )?(Pause .*?)(?: \d+[BKMGT]->\d+[BKMGT]\(\d+[BKMGT]\))? {_MS}ms\s*$"
_SAFEPOINT = rf'Safepoint "(\w+)",.* Total: {_NS} ns'
_STOPPED = rf"application threads were stopped: {_SECONDS} seconds"
_BEGUN = r"^[^ ]+: (?:\d+[.,]\d+: )?\[((?:Full )?GC(?: pause)?(?: ?\([^)]*\))*(?: remark| cleanup)?)"
_DONE = rf", {_SECONDS} secs\](?: \[Times.*)?\s*$"
GC_LINES: Final = rf"{_UNIFIED}|{_SAFEPOINT}|{_STOPPED}|\[(?:Full )?GC[ (].*\[CMS|{_DONE}"
"""Pattern of the lines of interest in a gc.log: pauses of at least `LEAST_MS`, and starts of CMS pauses, which end in
the next line."""


def gc_stamps(values: pa.StringArray) -> pa.Int64Array:
    """Parse the timestamps of gc.log lines into microseconds since 1970.

    A line without a date or UTC offset gets null.
    """
    parts = pc.extract_regex(values, _STAMP)
    second = pc.struct_field(parts, "second")
    us = pc.strptime(second, "%Y-%m-%dT%H:%M:%S", "us", error_is_null=True).cast(pa.int64())
    ms, hours, minutes = (
        pc.struct_field(parts, name).cast(pa.int64(), safe=False) for name in ("ms", "hours", "minutes")
    )
    offset = pc.add(pc.multiply(hours, 3_600_000_000), pc.multiply(minutes, 60_000_000))
    east = pc.equal(pc.struct_field(parts, "sign"), "+")
    return pc.add(pc.add(us, pc.multiply(ms, 1000)), pc.if_else(east, pc.negate(offset), offset))


def gc_pauses(sql: ArrowSql, lines: pa.Table) -> pa.Table:
    """Find the pauses of brokers' JVMs.

    Parameters
    ----------
    sql : ArrowSql
    lines : pa.Table
        Lines of gc.log that match `GC_LINES`: broker_id, source_file, source_line, stamp_us, message.

    Returns
    -------
    pa.Table
        broker_id, from_us, until_us (microseconds since 1970), what (name of the pause), source_file, source_line.
        Pauses of a broker that overlap are merged into one row, with the name of the longest collection among them.
    """
    return sql(
        f"""
        WITH ordered AS (
            SELECT *, {matches("message", _BEGUN)} AND NOT contains(message, '[GC concurrent') AS begins,
                {matches("message", _DONE)} AS ends,
                lag(message) OVER of_file AS before, lag(stamp_us) OVER of_file AS before_us,
            FROM lines WINDOW of_file AS (PARTITION BY broker_id, source_file ORDER BY source_line)
        ), said AS (
            SELECT broker_id, source_file, source_line, stamp_us AS until_us, true AS collects,
                regexp_extract(message, {quoted(_UNIFIED)}, 1) AS what,
                1e3 * {_gc_number("message", _UNIFIED, 2)} AS us
            FROM ordered WHERE {matches("message", _UNIFIED)}
            UNION ALL
            SELECT broker_id, source_file, source_line, stamp_us, false,
                'safepoint ' || regexp_extract(message, {quoted(_SAFEPOINT)}, 1),
                {_gc_number("message", _SAFEPOINT, 2)} / 1e3
            FROM ordered WHERE {matches("message", _SAFEPOINT)}
            UNION ALL
            SELECT broker_id, source_file, source_line, stamp_us, false, 'safepoint',
                1e6 * {_gc_number("message", _STOPPED, 1)}
            FROM ordered WHERE {matches("message", _STOPPED)}
            UNION ALL
            SELECT broker_id, source_file, source_line, began_us + CAST(us AS BIGINT), true,
                regexp_extract(name, {quoted(_BEGUN)}, 1), us
            FROM (
                SELECT *, if(begins, message, before) AS name, if(begins, stamp_us, before_us) AS began_us,
                    1e6 * {_gc_number("message", _DONE, 1)} AS us
                FROM ordered
                WHERE ends AND (begins OR (stamp_us IS NULL AND {matches("before", _BEGUN)}
                    AND NOT {matches("before", _DONE)}))
            )
        ), timed AS (
            SELECT *, until_us - CAST(us AS BIGINT) AS from_us FROM said WHERE until_us IS NOT NULL
        ), grouped AS (
            SELECT *, sum(CAST(apart AS INTEGER)) OVER (PARTITION BY broker_id ORDER BY from_us, until_us) AS number
            FROM (
                SELECT *, coalesce(from_us > max(until_us) OVER (
                    PARTITION BY broker_id ORDER BY from_us, until_us ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ), true) AS apart
                FROM timed
            )
        )
        SELECT broker_id, min(from_us) AS from_us, max(until_us) AS until_us,
            first(what ORDER BY collects DESC, us DESC, source_line) AS what,
            first(source_file ORDER BY collects DESC, us DESC, source_line) AS source_file,
            first(source_line ORDER BY collects DESC, us DESC, source_line) AS source_line
        FROM grouped GROUP BY broker_id, number ORDER BY broker_id, from_us
        """,
        lines=lines,
    )


def _gc_number(line: str, pattern: str, group: int) -> str:
    return f"CAST(replace(regexp_extract({line}, {quoted(pattern)}, {group}), ',', '.') AS DOUBLE)"
