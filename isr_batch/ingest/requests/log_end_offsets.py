"""Collect the log end offsets that log lines show, and derive the ranges of records between consecutive ones."""

import pyarrow as pa

from isr_batch.lake.arrow_sql import ArrowSql

PARTITION = ("leader_id", "topic", "partition_id")
TERM = ", ".join((*PARTITION, "leader_epoch", "log_stretch"))
"""Columns that identify the part of a partition's history within which offsets can be compared: a term, and
``log_stretch``. The latter separates offsets before and after a gap in the request log, which do not bound a single
append. It also separates offsets before and after a deletion of the topic, after which offsets and epochs begin
again."""


def named_offsets(  # noqa: PLR0913, PLR0917 all that names a log end offset
    sql: ArrowSql, once: pa.Table, fetched: pa.Table, shrinks: pa.Table, terms: pa.Table, known: pa.Table
) -> pa.Table:  # fmt: skip
    """Return all known log end offsets, unsorted, with bounds on the time in which each was the log end offset.

    Returns
    -------
    pa.Table
        Columns of `TERM`; ``offset``; ``named_in``, the kind of line that shows it; ``append``, the index of the
        produce request whose base offset it is; and times in microseconds since 1970: the log end offset was at least
        ``offset`` at named_us, higher at grown_us, and equal to ``offset`` at still_us.

    Notes
    -----
    A Shrinking line shows the leader's log end offset. Fetches show it as follows:

    - If a follower's next fetch has a higher offset, the last response before it contained records, so the log had
      grown.
    - If a fetch waited for data, the leader read its log twice for it. The first time, its offset was the log end
      offset.
    - In a run of fetches, no response contained records.
    """
    return sql(
        f"""
        WITH asked AS (
            SELECT {TERM}, replica_id, fetch_offset AS "offset", min(arrival_us) AS named_us,
                min(last_read_us) FILTER (records_size > 0) AS brought_us,
                first(last_read_us ORDER BY last_handled_us DESC NULLS LAST, last_read_us DESC NULLS LAST)
                    AS last_read_us,
                max(last_waited_us) AS still_us
            FROM fetched GROUP BY {TERM}, replica_id, fetch_offset
        ), highest AS (
            SELECT {TERM}, replica_id, max("offset") AS highest FROM asked GROUP BY {TERM}, replica_id
        ), every AS (
            SELECT {TERM}, base_offset AS "offset", 'appends' AS named_in, append_us AS named_us,
                CAST(NULL AS BIGINT) AS still_us, CAST(NULL AS BIGINT) AS grown_us, place AS append
            FROM once WHERE base_offset IS NOT NULL
            UNION ALL BY NAME
            SELECT {TERM}, "offset", 'fetches' AS named_in, named_us, still_us,
                least(brought_us, CASE WHEN "offset" < highest THEN last_read_us END) AS grown_us
            FROM asked JOIN highest USING ({TERM}, replica_id)
            UNION ALL BY NAME
            SELECT {TERM}, leader_log_end_offset AS "offset", 'shrinks' AS named_in, at_us AS named_us,
                at_us AS still_us
            FROM shrinks
            UNION ALL BY NAME
            SELECT {TERM}, high_watermark AS "offset", 'shrinks' AS named_in, at_us AS named_us
            FROM shrinks
            UNION ALL BY NAME
            SELECT {TERM}, start_offset AS "offset", 'terms' AS named_in, start_us AS named_us
            FROM terms
            UNION ALL BY NAME
            SELECT {TERM}, "offset", named_in, named_us, grown_us FROM known
        )
        SELECT * FROM every WHERE "offset" IS NOT NULL
        """,
        once=once,
        fetched=fetched,
        shrinks=shrinks,
        terms=terms,
        known=known,
    )


def ranges_of_offsets(sql: ArrowSql, named: pa.Table, starts: pa.Table, last: str) -> pa.Table:
    """Return the ranges of records from each known log end offset to the next one.

    The last range of a term ends at the start offset of the next term. If this offset is not higher, ``end`` is null.

    Returns
    -------
    pa.Table
        Columns of `TERM`, offset, end, end_source, grown_us (a time at which the log contained the records), still_us
        (a time at which it did not contain them yet) and append.
    """
    return sql(
        f"""
        WITH begun AS (
            SELECT {TERM}, min("offset") AS begins FROM named WHERE named_in = 'terms' GROUP BY {TERM}
        ), offsets AS (
            SELECT {TERM}, "offset", min(named_in) AS named_in, min(named_us) AS named_us, min(grown_us) AS grown_us,
                max(still_us) AS still_us, any_value(append) AS append
            FROM named LEFT JOIN begun USING ({TERM}) WHERE begins IS NULL OR "offset" >= begins
            GROUP BY {TERM}, "offset"
        ), of_partition AS (
            SELECT topic, partition_id, list({{leader_epoch: leader_epoch, start_offset: start_offset,
                made_again: made_again}} ORDER BY leader_epoch, start_offset) AS starts,
                list({{in_force_us: in_force_us, made_again: made_again}} ORDER BY in_force_us) AS in_force
            FROM starts GROUP BY topic, partition_id
        ), ranges AS (
            SELECT * REPLACE (
                    least(min(grown_us) OVER from_here, min(named_us) OVER further) AS grown_us),
                lag("offset") OVER downwards AS next_offset, lag(named_in) OVER downwards AS next_source
            FROM offsets
            -- From the last offset down: what is least from here on is then known when a row is passed.
            WINDOW downwards AS (PARTITION BY {TERM} ORDER BY "offset" DESC),
                from_here AS (downwards ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
                further AS (downwards ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        ), with_next AS (
            SELECT r.*,
                -- After a gap in its broker's log, the next term's start offset no longer bounds this term's last
                -- append.
                CASE WHEN next_offset IS NULL AND {last} THEN
                    list_filter(starts, lambda t: t.leader_epoch > r.leader_epoch
                        AND t.made_again = made_again_at(in_force, r.named_us))[1].start_offset END AS next_start
            FROM ranges r LEFT JOIN of_partition USING (topic, partition_id)
        )
        SELECT * EXCLUDE (next_source, next_start),
            coalesce(next_source, CASE WHEN next_start > "offset" THEN 'terms' END) AS end_source,
            coalesce(next_offset, CASE WHEN next_start > "offset" THEN next_start END) AS "end"
        FROM with_next
        """,
        named=named,
        starts=starts,
    )
