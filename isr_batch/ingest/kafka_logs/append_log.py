"""Build table append_log: the appends to each leader's log, from produce requests and from fetch offsets.

The broker logs name some past log end offsets: the base offset in a produce response, the offset of a follower's next
fetch, the offsets in a Shrinking line, the start offset of a term. The records between two such offsets are one append.
It belongs to the produce request whose response names the first offset. Otherwise it belongs to requests whose response
names none (acks=0; before Kafka 1.0 no response is logged). Otherwise to no request: transaction markers and committed
offsets are such appends.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from isr_batch.ingest.kafka_logs.coverage import Stretch, is_last_stretch, stretch_number
from isr_batch.ingest.kafka_logs.engine import Engine, Rows
from isr_batch.ingest.kafka_logs.fetch_log import DOUBTFUL, FETCHES
from isr_batch.ingest.kafka_logs.in_spark import Query, meeting
from isr_batch.ingest.kafka_logs.leader_epochs import PARTITION
from isr_batch.ingest.kafka_logs.request_log import PRODUCE
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.arrow_types import arrow_columns
from udfs.batches.listed_partitions import PRODUCED as LISTED
from udfs.batches.listed_partitions import WHOLE, produced_partitions

STAMPS_US = 3_000
"""Two instants closer than this may have happened in the other order: timestamps, and durations before 0.11, are
truncated to milliseconds."""

UNKNOWN_ERROR = -1
"""Kafka's UNKNOWN_SERVER_ERROR; here: refused by a broker that does not log responses."""

_TERM = ", ".join((*PARTITION, "leader_epoch", "log_stretch"))
"""Key of an append. The stretch is part of it: across a gap in the log, two offsets do not bound a single append."""

PRODUCED = arrow_columns(
    "leader_id INT, topic STRING, partition_id INT, leader_epoch INT, log_stretch INT, append_us BIGINT, "
    "handled_us BIGINT, base_offset BIGINT, acks INT, client_id STRING, acknowledged_us BIGINT, error_code INT, "
    "size BIGINT, answered BOOLEAN, source_file STRING, source_line BIGINT, repeated BOOLEAN"
)
"""Columns of `append_requests`."""
APPENDS = arrow_columns(
    "leader_id INT, topic STRING, partition_id INT, leader_epoch INT, log_stretch INT, append_us BIGINT, "
    "base_offset BIGINT, log_end_offset BIGINT, log_end_source STRING, log_end_error BIGINT, acks INT, "
    "client_id STRING, acknowledged_us BIGINT, error_code INT, source_file STRING, source_line BIGINT"
)
"""Columns of `append_log`."""
_OF_FETCHES = (
    *PARTITION, "leader_epoch", "log_stretch", "replica_id", "fetch_offset", "arrival_us", "records_size",
    "last_read_us", "last_handled_us", "last_waited_us", "source_file",
)  # fmt: skip


PRODUCE_REQUESTS = Query(
    f"SELECT {', '.join((*WHOLE, 'partitions'))} FROM rows WHERE kind = '{PRODUCE}'",
    pa.schema([(name, LISTED.field(name).type) for name in WHOLE]).append(pa.field("partitions", pa.binary())),
)
"""Of requests: those of producers."""


def append_requests(
    engine: Engine, requests: Rows, topic_names: pa.Table, terms: pa.Table, stretches: Sequence[Stretch] = ()
) -> Rows:
    """List the produce requests, as `PRODUCED`, one row per partition of each request.

    A base offset above -1 means that the records were appended, whatever the error code. ``answered`` is false where no
    response is logged; only then is the ``size`` in bytes given. ``log_stretch`` is the number of the stretch of the
    broker's log. A producer that sends a batch again gets the first attempt's offset; such rows are ``repeated`` and
    are not appends.

    Parameters
    ----------
    engine : Engine
    requests : Rows
        What `PRODUCE_REQUESTS` says of the requests.
    topic_names, terms : pa.Table
        As for `isr_batch.ingest.kafka_logs.fetch_log.fetches_of`.
    stretches : sequence of Stretch
        Of the brokers' logs.
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
            {stretch_number(stretches, "r.broker_id", "r.completed_us")} AS log_stretch,
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
    return engine.by_key(PARTITION, _repeated, PRODUCED, rows=in_terms)


def _repeated(sql: ArrowSql, rows: pa.Table) -> pa.Table:
    return sql(
        f"""
        SELECT * REPLACE (coalesce(lag(base_offset) OVER again = base_offset, false) AS repeated) FROM rows
        WINDOW again AS (PARTITION BY {_TERM} ORDER BY base_offset, append_us, source_line)
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
"""Of `append_requests`: the repeated rows."""
ASKED = Query(
    f"""
    SELECT {", ".join(_OF_FETCHES)} FROM rows WHERE reason IS NULL AND error_code = 0 AND fetch_offset IS NOT NULL
    """,
    pa.schema([FETCHES.field(name) for name in _OF_FETCHES]),
)
"""Of `isr_batch.ingest.kafka_logs.fetch_log.fetches_of`: the fetches that name an offset."""


def append_log(  # noqa: PLR0913, PLR0917 all that names a log end offset
    engine: Engine,
    produced: Rows,
    asked: Rows,
    shrinks: pa.Table,
    terms: pa.Table,
    begun: pa.Table,
    stretches: Sequence[Stretch] = (),
) -> Rows:
    """Build the columns of append_log, as `APPENDS`; times are still microseconds.

    Parameters
    ----------
    engine : Engine
    produced : Rows
        As `append_requests` gives them.
    asked : Rows
        What `ASKED` says of the fetches.
    shrinks, terms : pa.Table
        Shrinking lines with their term; terms within the time of their leader's request log.
    begun : pa.Table
        All terms, also those after it: where one begins the one before it ended.
    stretches : sequence of Stretch
        Of the brokers' logs; the rows of all tables have the number of their stretch.
    """
    of_shrinks = shrinks.select(
        [*PARTITION, "leader_epoch", "log_stretch", "leader_log_end_offset", "high_watermark", "at_us", "source_file"]
    )
    of_terms = terms.select([*PARTITION, "leader_epoch", "log_stretch", "start_offset", "start_us"])
    starts = begun.select(["topic", "partition_id", "leader_epoch", "start_offset"])
    last = is_last_stretch(stretches, "leader_id", "log_stretch")
    return engine.by_key(
        PARTITION, partial(_appends, starts=starts, last=last), APPENDS,
        rows=produced, fetched=asked, shrinks=of_shrinks, terms=of_terms,
    )  # fmt: skip


def _appends(  # noqa: PLR0913, PLR0917 all that names a log end offset
    sql: ArrowSql, rows: pa.Table, fetched: pa.Table, shrinks: pa.Table, terms: pa.Table, starts: pa.Table, last: str
) -> pa.Table:  # fmt: skip
    once = meeting(sql, rows, "NOT repeated")
    once = once.append_column("place", pa.array(np.arange(once.num_rows)))
    between = _between(sql, _named_offsets(sql, once, fetched, shrinks, terms), starts, last)
    columns = ", ".join(APPENDS.names)
    return sql(
        f"""
        SELECT {columns} FROM answered UNION ALL SELECT {columns} FROM unanswered UNION ALL
        SELECT {_TERM}, append_us, base_offset, NULL, NULL, NULL, acks, client_id, acknowledged_us, error_code,
            source_file, source_line
        FROM once WHERE answered AND base_offset IS NULL
        """,
        answered=_answered(sql, once, between),
        unanswered=_unanswered(sql, once, between, _seen_in(sql, between, once, fetched, shrinks)),
        once=once,
    )


def _named_offsets(
    sql: ArrowSql, once: pa.Table, fetched: pa.Table, shrinks: pa.Table, terms: pa.Table
) -> pa.Table:  # fmt: skip
    """Collect the known log end offsets, in no order: term, offset, named_in, and bounds on when the log ended there.

    The log end offset was this one or a higher one at ``named_us``, a higher one at ``grown_us``, and exactly this one
    at ``still_us``. ``append`` is the place of the request whose base offset it is.

    Of fetches: if a follower's next offset is higher, the last response before it had records. A fetch that waited for
    data was read twice: the first read reached the log end. In a row of identical fetches no response had records.
    """
    return sql(
        f"""
        WITH asked AS (
            SELECT {_TERM}, replica_id, fetch_offset AS "offset", min(arrival_us) AS named_us,
                min(last_read_us) FILTER (records_size > 0) AS brought_us,
                first(last_read_us ORDER BY last_handled_us DESC NULLS LAST, last_read_us DESC NULLS LAST)
                    AS last_read_us,
                max(last_waited_us) AS still_us
            FROM fetched GROUP BY {_TERM}, replica_id, fetch_offset
        ), highest AS (
            SELECT {_TERM}, replica_id, max("offset") AS highest FROM asked GROUP BY {_TERM}, replica_id
        ), every AS (
            SELECT {_TERM}, base_offset AS "offset", 'appends' AS named_in, append_us AS named_us,
                CAST(NULL AS BIGINT) AS still_us, CAST(NULL AS BIGINT) AS grown_us, place AS append
            FROM once WHERE base_offset IS NOT NULL
            UNION ALL BY NAME
            SELECT {_TERM}, "offset", 'fetches' AS named_in, named_us, still_us,
                least(brought_us, CASE WHEN "offset" < highest THEN last_read_us END) AS grown_us
            FROM asked JOIN highest USING ({_TERM}, replica_id)
            UNION ALL BY NAME
            SELECT {_TERM}, unnest([leader_log_end_offset, high_watermark]) AS "offset", 'shrinks' AS named_in,
                at_us AS named_us
            FROM shrinks
            UNION ALL BY NAME
            SELECT {_TERM}, start_offset AS "offset", 'terms' AS named_in, start_us AS named_us
            FROM terms
        )
        SELECT * FROM every WHERE "offset" IS NOT NULL
        """,
        once=once,
        fetched=fetched,
        shrinks=shrinks,
        terms=terms,
    )


def _between(sql: ArrowSql, named: pa.Table, starts: pa.Table, last: str) -> pa.Table:
    """List the ranges from each known offset to the next: term, offset, end, end_source, grown_us, still_us, append.

    The records were in the log at ``grown_us``, and not yet at ``still_us``. The last range of a term ends where
    the next term begins, if that is higher; otherwise ``end`` is null.
    """
    return sql(
        f"""
        WITH begun AS (
            SELECT {_TERM}, min("offset") AS begins FROM named WHERE named_in = 'terms' GROUP BY {_TERM}
        ), offsets AS (
            SELECT {_TERM}, "offset", min(named_in) AS named_in, min(named_us) AS named_us, min(grown_us) AS grown_us,
                max(still_us) AS still_us, any_value(append) AS append
            FROM named LEFT JOIN begun USING ({_TERM}) WHERE begins IS NULL OR "offset" >= begins
            GROUP BY {_TERM}, "offset"
        ), of_partition AS (
            SELECT topic, partition_id, list({{leader_epoch: leader_epoch, start_offset: start_offset}}
                ORDER BY leader_epoch, start_offset) AS starts
            FROM starts GROUP BY topic, partition_id
        ), ranges AS (
            SELECT * REPLACE (
                    least(min(grown_us) OVER from_here, min(named_us) OVER further) AS grown_us),
                lag("offset") OVER downwards AS next_offset, lag(named_in) OVER downwards AS next_source
            FROM offsets
            -- From the last offset down: what is least from here on is then known when a row is passed.
            WINDOW downwards AS (PARTITION BY {_TERM} ORDER BY "offset" DESC),
                from_here AS (downwards ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
                further AS (downwards ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        ), with_next AS (
            SELECT r.*,
                -- After a gap in its broker's log, the next term's start offset no longer bounds this term's last
                -- append.
                CASE WHEN next_offset IS NULL AND {last} THEN
                    list_filter(starts, lambda t: t.leader_epoch > r.leader_epoch)[1].start_offset END AS next_start
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


def _answered(sql: ArrowSql, once: pa.Table, between: pa.Table) -> pa.Table:
    """List the appends whose base offset is logged. If no later offset is known, count one record."""
    return sql(
        f"""
        SELECT {", ".join(f"once.{name}" for name in _TERM.split(", "))},
            greatest(handled_us, least(append_us, grown_us)) AS append_us,
            base_offset, coalesce("end", "offset" + 1) AS log_end_offset,
            coalesce(end_source, 'inferred') AS log_end_source, CASE WHEN "end" IS NOT NULL THEN 0 END AS log_end_error,
            acks, client_id, acknowledged_us, error_code, source_file, source_line
        FROM ranges JOIN once ON append = place
        """,
        once=once,
        ranges=between,
    )


def _seen_in(
    sql: ArrowSql, between: pa.Table, once: pa.Table, fetched: pa.Table, shrinks: pa.Table
) -> pa.Table:  # fmt: skip
    """Find the file that the end of each range without a response is seen in: term, offset, seen_in.

    Terms come from several files: an end known only from a later term counts to the file of the beginning.
    """
    return sql(
        f"""
        WITH open AS (
            SELECT {_TERM}, "offset", unnest(["offset", next_offset]) AS named FROM ranges
            WHERE append IS NULL OR "end" IS NULL
        ), every AS (
            SELECT {_TERM}, base_offset AS named, append_us AS us, source_file FROM once
            UNION ALL SELECT {_TERM}, fetch_offset, arrival_us, source_file FROM fetched
            UNION ALL SELECT {_TERM}, unnest([leader_log_end_offset, high_watermark]), at_us, source_file FROM shrinks
        ), files AS (
            SELECT {_TERM}, named, first(source_file ORDER BY us NULLS LAST, source_file) AS source_file
            FROM every SEMI JOIN open USING ({_TERM}, named) WHERE source_file IS NOT NULL GROUP BY {_TERM}, named
        )
        SELECT {_TERM}, "offset", first(source_file ORDER BY named DESC) AS seen_in
        FROM open JOIN files USING ({_TERM}, named) GROUP BY {_TERM}, "offset"
        """,
        ranges=between,
        once=once,
        fetched=fetched,
        shrinks=shrinks,
    )


def _unanswered(sql: ArrowSql, once: pa.Table, between: pa.Table, seen_in: pa.Table) -> pa.Table:
    """Assign the ranges that no response names to the requests that fit in time; otherwise to no producer.

    Several requests share a range in proportion to their sizes, so their borders may be off by ``log_end_error``
    records. A request was refused if the log end offset was the same after it.
    """
    rows = sql(
        f"""
        WITH open_ranges AS (
            SELECT {_TERM}, grown_us AS by_us, 1 AS is_range,
                {{"offset": CASE WHEN append IS NULL THEN "offset" ELSE "offset" + 1 END, -- what follows begins after
                  "end": CASE WHEN append IS NULL THEN "end" END, grown_us: grown_us, still_us: still_us,
                  end_source: end_source, seen_in: seen_in}} AS span
            FROM ranges LEFT JOIN files USING ({_TERM}, "offset") WHERE append IS NULL OR "end" IS NULL
        ), every AS (
            SELECT *, handled_us - {STAMPS_US} AS by_us, 0 AS is_range FROM once WHERE NOT answered
            UNION ALL BY NAME SELECT * FROM open_ranges
        ), placed AS (
            -- Going backwards in time: the last range passed is the first one that was in the log when the request was
            -- done.
            SELECT * EXCLUDE (span), last_value(span IGNORE NULLS) OVER (PARTITION BY {_TERM}
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
        WINDOW same AS (PARTITION BY {_TERM}, span, takes_part ORDER BY handled_us, source_file, source_line),
            whole AS (PARTITION BY {_TERM}, span)
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
            SELECT *, coalesce(lag(ends) OVER (PARTITION BY {_TERM}, span, takes_part ORDER BY nth), span."offset")
                AS begins
            FROM upto
        ), grown AS (
            SELECT *, coalesce(takes_part AND ends > begins, false) AS grew FROM begun
        )
        SELECT {_TERM}, greatest(handled_us, least(append_us, span.grown_us)) AS append_us,
            CASE WHEN grew THEN begins END AS base_offset, CASE WHEN grew THEN ends END AS log_end_offset,
            CASE WHEN grew THEN CASE WHEN exact THEN span.end_source ELSE 'inferred' END END AS log_end_source,
            CASE WHEN grew THEN CASE WHEN exact THEN 0 WHEN span."end" IS NOT NULL
                THEN greatest(0, ends - span."offset" - nth, span."end" - (requests - nth) - ends) END END
                AS log_end_error,
            acks, client_id, CASE WHEN grew THEN acknowledged_us END AS acknowledged_us,
            CASE WHEN grew THEN error_code ELSE {UNKNOWN_ERROR} END AS error_code, source_file, source_line
        FROM grown
        UNION ALL
        SELECT {_TERM}, by_us, span."offset", span."end", 'inferred', 0, NULL, NULL, NULL, 0, span.seen_in, NULL
        FROM rows WHERE is_range = 1 AND requests = 0 AND span."end" IS NOT NULL AND by_us IS NOT NULL
        """,
        rows=rows,
    )
