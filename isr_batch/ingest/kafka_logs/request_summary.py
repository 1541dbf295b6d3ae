"""What the other tables need of the request logs: few rows, aggregated from all requests."""

import pyarrow as pa

from isr_batch.ingest.kafka_logs.coverage import GAP_US
from isr_batch.ingest.kafka_logs.engine import Engine, Rows
from isr_batch.ingest.kafka_logs.in_spark import Query
from isr_batch.ingest.kafka_logs.log_sql import BUCKET_US
from isr_batch.ingest.kafka_logs.request_log import FOLLOWER_FETCH, OTHER_FETCH
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.arrow_types import arrow_columns

SILENCE_US = 500_000
WAITED_US = 100_000
_DAY_US = 86_400_000_000

_BY_FILE = arrow_columns(
    "broker_id INT, source_file STRING, kind STRING, reason STRING, lines BIGINT, first_us BIGINT, last_us BIGINT, "
    "days ARRAY<INT>, api_version INT"
)
_BUCKETS = arrow_columns(
    "broker_id INT, bucket BIGINT, first_us BIGINT, last_us BIGINT, since_us BIGINT, done_us BIGINT, "
    "last_done_us BIGINT"
)
_PAUSES = arrow_columns(
    "broker_id INT, first_us BIGINT, last_us BIGINT, done_us BIGINT, process INT, before_us BIGINT, "
    "process_before INT, before_done_us BIGINT, is_last BOOLEAN, waiting_since_us BIGINT"
)


_DAYS = ", ".join(
    f"CAST(({us} - positive_modulo({us}, {_DAY_US})) // {_DAY_US} AS INTEGER)" for us in ("handled_us", "processed_us")
)
FILES = Query(
    f"""
    SELECT broker_id, source_file, kind, reason, count(*) AS lines,
        min(completed_us) AS first_us, max(completed_us) AS last_us,
        list_distinct(flatten(list([{_DAYS}]) FILTER (completed_us IS NOT NULL))) AS days,
        max(api_version) AS api_version
    FROM rows GROUP BY broker_id, source_file, kind, reason
    """,
    _BY_FILE,
)
"""Of requests: what `requests_by_file` sums up."""


def requests_by_file(engine: Engine, sql: ArrowSql, files: Rows) -> pa.Table:
    """Count the lines of each file by outcome.

    Parameters
    ----------
    engine : Engine
    sql : ArrowSql
    files : Rows
        What `FILES` says of the requests.

    Returns
    -------
    pa.Table
        By broker_id, source_file, kind and reason: lines, first_us and last_us (completed), days (of requests, as days
        since 1970), api_version (the highest).
    """
    return sql(
        """
        SELECT broker_id, source_file, kind, reason, CAST(sum(lines) AS BIGINT) AS lines,
            min(first_us) AS first_us, max(last_us) AS last_us, list_distinct(flatten(list(days))) AS days,
            max(api_version) AS api_version
        FROM parts GROUP BY broker_id, source_file, kind, reason
        """,
        parts=engine.collect(files),
    )


_HELD, _OVERDUE = "processed_us - arrival_us", "answered_us - released_us"
_IS_FETCH = f"kind IN ('{FOLLOWER_FETCH}', '{OTHER_FETCH}')"
BUCKETS = Query(
    f"""
    WITH steps AS (
        SELECT broker_id, unnest([arrival_us, handled_us, completed_us, processed_us, answered_us]) AS at_us,
            unnest([NULL, NULL, NULL, CASE WHEN {_HELD} >= {WAITED_US} THEN arrival_us END,
                CASE WHEN {_IS_FETCH} AND {_OVERDUE} >= {WAITED_US} THEN released_us END]) AS since_us,
            unnest([false, false, true, false, false]) AS is_done
        FROM rows WHERE arrival_us IS NOT NULL AND reason IS NULL
    )
    SELECT broker_id, (at_us - positive_modulo(at_us, {BUCKET_US})) // {BUCKET_US} AS bucket,
        min(at_us) AS first_us, max(at_us) AS last_us, min(since_us) AS since_us,
        min(at_us) FILTER (is_done) AS done_us, max(at_us) FILTER (is_done) AS last_done_us
    FROM steps GROUP BY ALL
    """,
    _BUCKETS,
)
"""Of requests: what `request_pauses` are found in."""


def request_pauses(engine: Engine, buckets: Rows, settings: pa.Table) -> pa.Table:
    """Find the times in which a broker did nothing about requests, or completed none.

    Activity is every step of a request: arrival, handling, processing, response. It is bucketed by time, and a row is
    about a bucket that begins after a pause, that is the first one of a process, or that is the last one of all.

    Parameters
    ----------
    engine : Engine
    buckets : Rows
        What `BUCKETS` says of the requests.
    settings : pa.Table
        With broker_id and starts_us, the times at which its processes started.

    Returns
    -------
    pa.Table
        broker_id; before_us, first_us and last_us: the last step before the bucket, and its own; before_done_us and
        done_us: the completions before and after the pause; process_before and process, the numbers of the broker's
        process; is_last; waiting_since_us: since when a request has waited for its broker that is processed or answered
        after the pause (null if none waited for `WAITED_US`).
    """

    def found(sql: ArrowSql, parts: pa.Table) -> pa.Table:
        return sql(_OF_BUCKETS, parts=parts, settings=started)

    started = settings.select(["broker_id", "starts_us"])
    return engine.collect(engine.by_key(["broker_id"], found, _PAUSES, parts=buckets))


_OF_BUCKETS = f"""
    WITH buckets AS (
        SELECT broker_id, bucket, min(first_us) AS first_us, max(last_us) AS last_us, min(since_us) AS since_us,
            min(done_us) AS done_us, max(last_done_us) AS last_done_us
        FROM parts GROUP BY broker_id, bucket
    ), every AS (
        SELECT *, CAST(len(list_filter(starts_us, lambda start:
            (start - positive_modulo(start, {BUCKET_US})) // {BUCKET_US} <= bucket)) AS INTEGER) AS process
        FROM buckets JOIN settings USING (broker_id)
    ), found AS (
        SELECT broker_id, first_us, last_us, done_us, process,
            lag(last_us) OVER of_broker AS before_us, lag(process) OVER of_broker AS process_before,
            last_value(last_done_us IGNORE NULLS) OVER (of_broker ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                AS before_done_us,
            lead(bucket) OVER of_broker IS NULL AS is_last,
            min(since_us) OVER (of_broker ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS waiting_since_us
        FROM every WINDOW of_broker AS (PARTITION BY broker_id ORDER BY bucket)
    )
    SELECT * FROM found
    WHERE first_us - before_us >= {SILENCE_US} OR done_us - before_done_us >= {GAP_US} OR process_before != process
        OR is_last
    """
