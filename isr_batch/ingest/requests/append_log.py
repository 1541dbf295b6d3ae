"""Derive table append_log, the appends to each leader's log, from produce requests and fetch offsets.

Log lines show what the leader's log end offset was at some times: the base offset in a produce response, the offset of
a follower's fetch, the offsets in a Shrinking line, the start offset of a term. The records between two consecutive
known offsets are stored as one append. This append is attributed to a produce request as follows:

- If a produce response contains the first of these offsets as its base offset, to that produce request.
- If no such response is logged, to produce requests of that time without a logged response (with acks=0, and before
  Kafka 1.0).
- If such requests are missing too, to no request. Transaction markers and committed offsets are appended without a
  produce request.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.engine.in_spark import Query, meeting
from isr_batch.ingest.requests.coverage import Stretch, is_last_stretch, stretch_number
from isr_batch.ingest.requests.fetch_log import DOUBTFUL, FETCHES
from isr_batch.ingest.requests.in_force import with_log_stretch
from isr_batch.ingest.requests.last_rows import LastRows
from isr_batch.ingest.requests.log_end_offsets import PARTITION, TERM, named_offsets, ranges_of_offsets
from isr_batch.ingest.requests.request_log import PRODUCE
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.arrow_types import arrow_columns
from udfs.batches.listed_partitions import PRODUCED as LISTED
from udfs.batches.listed_partitions import WHOLE, produced_partitions

STAMPS_US = 3_000
"""Events with timestamps less than this apart, in microseconds, may have happened in reverse order, because timestamps
(and durations before 0.11) are truncated to milliseconds."""

UNKNOWN_ERROR = -1
"""Code of Kafka's UNKNOWN_SERVER_ERROR. It is stored if the leader refused an append but the response is not logged."""


PRODUCED = arrow_columns(
    "leader_id INT, topic STRING, partition_id INT, leader_epoch INT, log_stretch INT, append_us BIGINT, "
    "handled_us BIGINT, base_offset BIGINT, acks INT, client_id STRING, acknowledged_us BIGINT, error_code INT, "
    "size BIGINT, answered BOOLEAN, source_file STRING, source_line BIGINT, repeated BOOLEAN"
)
"""Schema of `append_requests`: one row per produce request and partition."""
APPENDS = arrow_columns(
    "leader_id INT, topic STRING, partition_id INT, leader_epoch INT, log_stretch INT, append_us BIGINT, "
    "base_offset BIGINT, log_end_offset BIGINT, log_end_source STRING, log_end_error BIGINT, acks INT, "
    "client_id STRING, acknowledged_us BIGINT, error_code INT, source_file STRING, source_line BIGINT"
)
"""Schema of `append_log`: one row per append."""
_OF_FETCHES = (
    *PARTITION, "leader_epoch", "log_stretch", "replica_id", "fetch_offset", "arrival_us", "records_size",
    "last_read_us", "last_handled_us", "last_waited_us", "source_file",
)  # fmt: skip
_ASKED = pa.schema([FETCHES.field(name) for name in _OF_FETCHES])
PRODUCE_REQUESTS = Query(
    f"SELECT {', '.join((*WHOLE, 'partitions'))} FROM rows WHERE kind = '{PRODUCE}'",
    pa.schema([(name, LISTED.field(name).type) for name in WHOLE]).append(pa.field("partitions", pa.binary())),
)
"""Query that selects the produce requests in parsed request logs."""


def append_requests(
    engine: Engine, requests: Rows, topic_names: pa.Table, terms: pa.Table, stretches: Sequence[Stretch] = ()
) -> Rows:
    """Return one row per produce request and partition, with the columns of `PRODUCED`.

    Some columns need an explanation:

    - ``base_offset``: if it is not negative, the records were appended, even if the error code is not 0.
    - ``answered``: false if no response is logged. Only such rows have a ``size``, in bytes.
    - ``log_stretch``: see `isr_batch.ingest.requests.in_force.with_log_stretch`.
    - ``repeated``: true if the producer sent a batch again that had already been appended. The response then contains
      the base offset of the first attempt, and the leader appends nothing.

    Parameters
    ----------
    engine : Engine
    requests : Rows
        Result of the query `PRODUCE_REQUESTS`.
    topic_names, terms : pa.Table
        As for `isr_batch.ingest.requests.fetch_log.fetches_of`.
    stretches : sequence of Stretch
        Periods that the brokers' request logs cover.
    """
    listed = engine.map(requests, produced_partitions, LISTED)
    in_terms = engine.sql(
        listed,
        f"""
        WITH of_topic AS (
            SELECT r.*, coalesce(names.topic, r.topic_id) AS topic
            FROM rows r LEFT JOIN topic_names names USING (topic_id))
        SELECT r.broker_id AS leader_id, r.topic, r.partition_id,
            epoch_at(in_force, r.processed_us) AS leader_epoch,
            {stretch_number(stretches, "r.broker_id", "r.completed_us")} + made_again_at(in_force, r.processed_us)
                AS log_stretch,
            r.processed_us AS append_us, r.handled_us, r.base_offset, r.acks, r.client_id,
            CASE WHEN error_code = 0 THEN CASE WHEN acks = 0 THEN processed_us ELSE completed_us END END
                AS acknowledged_us,
            error_code, size, answered, source_file, source_line, false AS repeated
        FROM of_topic r LEFT JOIN terms t
            ON r.broker_id = t.leader_id AND r.topic = t.topic AND r.partition_id = t.partition_id
        """,
        PRODUCED,
        topic_names=topic_names,
        terms=terms,
    )
    return engine.by_key(PARTITION, _mark_repeated_appends, PRODUCED, rows=in_terms)


def _mark_repeated_appends(sql: ArrowSql, rows: pa.Table) -> pa.Table:
    """Set ``repeated`` to true for requests with the same base offset as an earlier request."""
    return sql(
        f"""
        SELECT * REPLACE (coalesce(lag(base_offset) OVER again = base_offset, false) AS repeated) FROM rows
        WINDOW again AS (PARTITION BY {TERM} ORDER BY base_offset, append_us, source_line)
        """,
        rows=rows,
    )


SENT_AGAIN = Query(
    """
    SELECT source_file, source_line, 'produce request sent again' AS reason,
        printf('partition %s-%d has offset %d already', topic, partition_id, base_offset) AS detail
    FROM rows WHERE repeated
    """,
    DOUBTFUL,
)
"""Query that selects the repeated produce requests in the result of `append_requests`, as doubtful lines."""
ASKED = Query(
    f"""
    SELECT {", ".join(_OF_FETCHES)} FROM rows WHERE reason IS NULL AND error_code = 0 AND fetch_offset IS NOT NULL
    """,
    _ASKED,
)
"""Query that selects the successful fetches with an offset in the result of
`isr_batch.ingest.requests.fetch_log.fetches_of`."""


def append_log(  # noqa: PLR0913, PLR0917 all that names a log end offset
    engine: Engine,
    produced: Rows,
    asked: Rows,
    shrinks: pa.Table,
    terms: pa.Table,
    begun: pa.Table,
    in_force: pa.Table,
    stretches: Sequence[Stretch] = (),
    last: LastRows = LastRows(),  # noqa: B008 frozen
) -> Rows:
    """Return the rows of table append_log, with the columns of `APPENDS`. Times are in microseconds since 1970.

    Parameters
    ----------
    engine : Engine
    produced : Rows
        Result of `append_requests`.
    asked : Rows
        Result of the query `ASKED`.
    shrinks : pa.Table
        Shrinking lines, with the term of the partition to which each belongs.
    terms : pa.Table
        Terms of the leaders whose request logs are read.
    begun : pa.Table
        Terms of all leaders. The last append of a term may end at the start offset of the next term.
    in_force : pa.Table
        Result of `isr_batch.ingest.requests.in_force.epochs_in_force`.
    stretches : sequence of Stretch
        Periods that the brokers' request logs cover. The rows of all tables contain the number of their period as
        ``log_stretch``.
    last : LastRows
        Last fetches and appends in earlier request logs.
    """
    of_shrinks = shrinks.select(
        [*PARTITION, "leader_epoch", "log_stretch", "leader_log_end_offset", "high_watermark", "at_us", "source_file"]
    )
    of_terms = terms.select([*PARTITION, "leader_epoch", "log_stretch", "start_offset", "start_us"])
    # If the request log continues an earlier log, the start offset that was derived for a term is too high. Using it
    # would hide earlier appends of the term.
    went_on = {row[:-1] for row in _term_keys_of_appends(of_terms) if last.goes_on(row[0], row[-1])}
    of_terms = of_terms.filter(
        pa.array([row[:-1] not in went_on for row in _term_keys_of_appends(of_terms)], pa.bool_())
    )
    starts = begun.select(["topic", "partition_id", "leader_epoch", "start_offset", "in_force_us", "made_again"])
    named = with_log_stretch(last.named_offsets(), in_force, stretches, "named_us")
    asked_before = pa.Table.from_pylist(last.last_reads(), _ASKED).drop_columns("log_stretch")
    asked_before = with_log_stretch(asked_before, in_force, stretches, "last_handled_us").select(_OF_FETCHES)
    is_last = is_last_stretch(stretches, "leader_id", stretch_number(stretches, "leader_id", "named_us"))
    as_produced = {"size": None, "answered": True, "repeated": False, "log_stretch": 0}
    before = pa.Table.from_pylist(
        # The lines that bound the time of these appends are in earlier logs, so the appends get the earliest possible
        # time.
        [as_produced | row | {"handled_us": row["append_us"]} for row in last.open_appends()],
        PRODUCED,
    ).drop_columns("log_stretch")
    before = with_log_stretch(before, in_force, stretches, "append_us").select(PRODUCED.names)
    return engine.by_key(
        PARTITION, partial(_append_log_rows, starts=starts, last=is_last), APPENDS,
        rows=produced, fetched=asked, shrinks=of_shrinks, terms=of_terms, before=before, asked_before=asked_before,
        known=named,
    )  # fmt: skip


def _term_keys_of_appends(terms: pa.Table) -> list[tuple[Any, ...]]:
    """Return a tuple for each term: leader, topic, partition, leader epoch, start time in microseconds since 1970."""
    names = [*PARTITION, "leader_epoch", "start_us"]
    return list(zip(*(terms[name].to_pylist() for name in names), strict=True))


def _append_log_rows(  # noqa: PLR0913, PLR0917 all that names a log end offset
    sql: ArrowSql, rows: pa.Table, fetched: pa.Table, shrinks: pa.Table, terms: pa.Table, before: pa.Table,
    asked_before: pa.Table, known: pa.Table, starts: pa.Table, last: str,
) -> pa.Table:  # fmt: skip
    """Derive the rows of append_log for some partitions, using all lines that show a log end offset.

    ``rows`` are the produce requests in the new logs, and ``before`` are those in earlier logs. ``fetched`` are the
    fetches in the new logs, and ``asked_before`` are those in earlier logs. ``known`` are log end offsets that earlier
    logs show. The other parameters are those of `named_offsets` and `ranges_of_offsets`.
    """
    once = meeting(sql, pa.concat_tables([rows, before.cast(rows.schema)]), "NOT repeated")
    once = once.append_column("place", pa.array(np.arange(once.num_rows)))
    asked = pa.concat_tables([fetched, asked_before.cast(fetched.schema)])
    between = ranges_of_offsets(sql, named_offsets(sql, once, asked, shrinks, terms, known), starts, last)
    # Appends are not added again if earlier logs show their end, or later logs their base offset.
    between = sql(
        f"""
        WITH seen AS (SELECT {TERM}, max(reached) AS reached FROM known GROUP BY {TERM}),
        follows AS (SELECT DISTINCT {TERM}, "offset" FROM known WHERE later),
        first_of_later AS (SELECT {TERM}, min("offset") AS first_later FROM follows GROUP BY {TERM})
        SELECT ranges.* FROM ranges LEFT JOIN seen USING ({TERM}) LEFT JOIN first_of_later USING ({TERM})
            LEFT JOIN (SELECT *, true AS begins_later FROM follows) USING ({TERM}, "offset")
            LEFT JOIN (SELECT {TERM}, "offset" AS "end", true AS ends_later FROM follows) USING ({TERM}, "end")
        WHERE append IS NOT NULL OR (reached IS NULL OR "offset" >= reached)
            AND begins_later IS NULL AND (ends_later IS NULL OR "offset" < first_later)
        """,
        ranges=between,
        known=known,
    )
    columns = ", ".join(APPENDS.names)
    return sql(
        f"""
        SELECT {columns} FROM answered UNION ALL SELECT {columns} FROM unanswered UNION ALL
        SELECT {TERM}, append_us, base_offset, NULL, NULL, NULL, acks, client_id, acknowledged_us, error_code,
            source_file, source_line
        FROM once WHERE answered AND base_offset IS NULL
        """,
        answered=_appends_with_base_offset(sql, once, between),
        unanswered=_unanswered_appends(sql, once, between, _appends_seen_in(sql, between, once, fetched, shrinks)),
        once=once,
    )


def _appends_with_base_offset(sql: ArrowSql, once: pa.Table, between: pa.Table) -> pa.Table:
    """Return the appends whose base offset is logged.

    ``once`` are the produce requests, each of them once, and ``between`` are the ranges of records from
    `ranges_of_offsets`. If no later offset is known, an append is assumed to have one record.

    A leader appends records immediately after it picks up a produce request from the queue (measured for ADR 4).
    Therefore the time of an append is that of the pick-up. If a later fetch still found the log end at the base offset,
    the time is just after that fetch.
    """
    return sql(
        f"""
        SELECT {", ".join(f"once.{name}" for name in TERM.split(", "))},
            greatest(handled_us, least(append_us, grown_us, coalesce(still_us + 1, handled_us))) AS append_us,
            base_offset, coalesce("end", "offset" + 1) AS log_end_offset,
            coalesce(end_source, 'inferred') AS log_end_source, CASE WHEN "end" IS NOT NULL THEN 0 END AS log_end_error,
            acks, client_id, acknowledged_us, error_code, source_file, source_line
        FROM ranges JOIN once ON append = place
        """,
        once=once,
        ranges=between,
    )


def _appends_seen_in(
    sql: ArrowSql, between: pa.Table, once: pa.Table, fetched: pa.Table, shrinks: pa.Table
) -> pa.Table:  # fmt: skip
    """Return, for each range of records without a produce response, the file with the line that shows its end.

    ``between`` are the ranges. Lines that may show an end are in ``once`` (produce), ``fetched`` and ``shrinks``.

    If only the start of a later term shows the end, the file with the beginning of the range is used, because a term
    comes from several files.

    Returns
    -------
    pa.Table
        Columns of the term, ``offset`` (the first offset of the range) and ``seen_in`` (the file).
    """
    return sql(
        f"""
        WITH open AS (
            SELECT {TERM}, "offset", unnest(["offset", next_offset]) AS named FROM ranges
            WHERE append IS NULL OR "end" IS NULL
        ), every AS (
            SELECT {TERM}, base_offset AS named, append_us AS us, source_file FROM once
            UNION ALL SELECT {TERM}, fetch_offset, arrival_us, source_file FROM fetched
            UNION ALL SELECT {TERM}, unnest([leader_log_end_offset, high_watermark]), at_us, source_file FROM shrinks
        ), files AS (
            SELECT {TERM}, named, first(source_file ORDER BY us NULLS LAST, source_file) AS source_file
            FROM every SEMI JOIN open USING ({TERM}, named) WHERE source_file IS NOT NULL GROUP BY {TERM}, named
        )
        SELECT {TERM}, "offset", first(source_file ORDER BY named DESC) AS seen_in
        FROM open JOIN files USING ({TERM}, named) GROUP BY {TERM}, "offset"
        """,
        ranges=between,
        once=once,
        fetched=fetched,
        shrinks=shrinks,
    )


def _unanswered_appends(sql: ArrowSql, once: pa.Table, between: pa.Table, seen_in: pa.Table) -> pa.Table:
    """Attribute ranges of records without a produce response to unanswered produce requests, if there are any.

    ``between`` are the ranges, ``once`` the produce requests, and ``seen_in`` is the result of `_appends_seen_in`.

    A request belongs to the first range that grew at its time or later. If several requests share a range, it is
    divided in proportion to their sizes; the borders may be wrong by up to ``log_end_error`` records. If the log end
    offset is unchanged after a request, the request was refused.
    """
    rows = sql(
        f"""
        WITH open_ranges AS (
            SELECT {TERM}, grown_us AS by_us, 1 AS is_range,
                {{"offset": CASE WHEN append IS NULL THEN "offset" ELSE "offset" + 1 END, -- what follows begins after
                  "end": CASE WHEN append IS NULL THEN "end" END, grown_us: grown_us, still_us: still_us,
                  end_source: end_source, seen_in: seen_in}} AS span
            FROM ranges LEFT JOIN files USING ({TERM}, "offset") WHERE append IS NULL OR "end" IS NULL
        ), every AS (
            SELECT *, handled_us - {STAMPS_US} AS by_us, 0 AS is_range FROM once WHERE NOT answered
            UNION ALL BY NAME SELECT * FROM open_ranges
        ), placed AS (
            -- Going backwards in time: the last range passed is the first one that was in the log when the request was
            -- done.
            SELECT * EXCLUDE (span), last_value(span IGNORE NULLS) OVER (PARTITION BY {TERM}
                ORDER BY by_us DESC NULLS FIRST, is_range DESC, source_line DESC NULLS LAST
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS span
            FROM every
        ), taking_part AS (
            SELECT *, is_range = 0 AND NOT coalesce(append_us + {STAMPS_US} < span.still_us, false) AS takes_part
            FROM placed
        )
        SELECT *, row_number() OVER same AS nth,
            CAST(sum(greatest(size, 1)) OVER (same ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS BIGINT) AS upto,
            count(*) FILTER (takes_part) OVER whole AS requests,
            CAST(sum(greatest(size, 1)) FILTER (takes_part) OVER whole AS BIGINT) AS "all"
        FROM taking_part
        WINDOW same AS (PARTITION BY {TERM}, span, takes_part ORDER BY handled_us, source_file, source_line),
            whole AS (PARTITION BY {TERM}, span)
        """,
        once=once,
        ranges=between,
        files=seen_in,
    )
    return sql(
        f"""
        WITH upto AS (
            SELECT *, CASE WHEN span."end" IS NULL THEN span."offset" + nth
                ELSE span."offset" + CAST(floor((span."end" - span."offset") * upto / "all") AS BIGINT) END AS ends,
                requests = nth AND span."end" IS NOT NULL AS exact
            FROM rows WHERE is_range = 0
        ), begun AS (
            SELECT *, coalesce(lag(ends) OVER (PARTITION BY {TERM}, span, takes_part ORDER BY nth), span."offset")
                AS begins
            FROM upto
        ), grown AS (
            SELECT *, coalesce(takes_part AND ends > begins, false) AS grew FROM begun
        )
        SELECT {TERM}, greatest(handled_us, least(append_us, span.grown_us)) AS append_us,
            CASE WHEN grew THEN begins END AS base_offset, CASE WHEN grew THEN ends END AS log_end_offset,
            CASE WHEN grew THEN CASE WHEN exact THEN span.end_source ELSE 'inferred' END END AS log_end_source,
            CASE WHEN grew THEN CASE WHEN exact THEN 0 WHEN span."end" IS NOT NULL
                THEN greatest(0, ends - span."offset" - nth, span."end" - (requests - nth) - ends) END END
                AS log_end_error,
            acks, client_id, CASE WHEN grew THEN acknowledged_us END AS acknowledged_us,
            CASE WHEN grew THEN error_code ELSE {UNKNOWN_ERROR} END AS error_code, source_file, source_line
        FROM grown
        UNION ALL
        SELECT {TERM}, by_us, span."offset", span."end", 'inferred', 0, NULL, NULL, NULL, 0, span.seen_in, NULL
        FROM rows WHERE is_range = 1 AND requests = 0 AND span."end" IS NOT NULL AND by_us IS NOT NULL
        """,
        rows=rows,
    )
