"""Summarise request logs: numbers of lines by file, and periods in which a broker handled or completed no request."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.log_sql import BUCKET_US
from isr_batch.ingest.engine.engine import Engine, Rows
from isr_batch.ingest.engine.in_spark import Query
from isr_batch.ingest.requests.coverage import GAP_US
from isr_batch.ingest.requests.request_log import FOLLOWER_FETCH, OTHER_FETCH
from isr_batch.lake.arrow_rows import cast_rows
from isr_batch.lake.arrow_sql import ArrowSql
from udfs.arrow_types import arrow_columns, int64_array

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
_LATE, _EARLY = np.iinfo(np.int64).max, np.iinfo(np.int64).min
"""Values in place of an unknown instant when a minimum (first one) or a maximum (second one) is computed."""
_PAUSES = arrow_columns(
    "broker_id INT, first_us BIGINT, last_us BIGINT, done_us BIGINT, process INT, before_us BIGINT, "
    "process_before INT, before_done_us BIGINT, is_last BOOLEAN, waiting_since_us BIGINT"
)


# All times are positive (2010 or later), so integer division rounds down.
_DAYS = " || ".join(
    f"list(DISTINCT CAST({us} // {_DAY_US} AS INTEGER)) FILTER (completed_us IS NOT NULL)"
    for us in ("handled_us", "processed_us")
)
FILES = Query(
    f"""
    SELECT broker_id, source_file, kind, reason, count(*) AS lines,
        min(completed_us) AS first_us, max(completed_us) AS last_us,
        list_distinct({_DAYS}) AS days,
        max(api_version) AS api_version
    FROM rows GROUP BY broker_id, source_file, kind, reason
    """,
    _BY_FILE,
)
"""Query that counts the lines of parsed request logs by file and outcome. Its results are the input of
`requests_by_file`."""


def requests_by_file(engine: Engine, sql: ArrowSql, files: Rows) -> pa.Table:
    """Combine the results of query `FILES`: number of lines in each request log by outcome, first and last time.

    Parameters
    ----------
    engine : Engine
    sql : ArrowSql
    files : Rows
        Results of the query `FILES` on all parts of the requests.

    Returns
    -------
    pa.Table
        One row per broker_id, source_file, kind and reason, with lines (number of lines), first_us and last_us (first
        and last completion, in microseconds since 1970), days (numbers of days since 1970 on which I/O threads picked
        up or processed requests) and api_version (the highest).
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
    SELECT broker_id, at_us // {BUCKET_US} AS bucket,
        min(at_us) AS first_us, max(at_us) AS last_us, min(since_us) AS since_us,
        min(at_us) FILTER (is_done) AS done_us, max(at_us) FILTER (is_done) AS last_done_us
    FROM steps GROUP BY ALL
    """,
    _BUCKETS,
)
"""Query that summarises each broker's activity in parsed request logs, by short intervals (buckets). Its results are
the input of `request_pauses`.
"""


def request_pauses(
    engine: Engine, buckets: Rows, settings: pa.Table, before_us: Mapping[int, int] | None = None
) -> pa.Table:  # fmt: skip
    """Find the pauses: periods in which a broker handled or completed no request.

    Every step of a request is activity: arrival, handling, processing, response. Activity is summarised by short
    intervals (buckets). There is a row for each bucket that follows a pause, for the first bucket of each process, and
    for the last bucket of all.

    Parameters
    ----------
    engine : Engine
    buckets : Rows
        Result of the query `BUCKETS`.
    settings : pa.Table
        broker_id and starts_us, the times at which the broker was started.
    before_us : mapping of int to int, optional
        By broker, the last completion in earlier logs, at which a pause may have begun.

    Returns
    -------
    pa.Table
        broker_id; before_us, the last step before the bucket; first_us and last_us, the first and last step in it;
        before_done_us and done_us, the completions before and after the pause; process_before and process, the numbers
        of the broker's process before and in the bucket; is_last, whether it is the broker's last bucket;
        waiting_since_us, the earliest time from which a request waited for the broker until after the pause (null if
        none waited for `WAITED_US`).
    """
    starts = {row["broker_id"]: row["starts_us"] for row in settings.to_pylist()}
    found = partial(_pauses_in_requests, starts=starts, before_us=before_us or {})
    return engine.collect(engine.by_key(["broker_id"], found, _PAUSES, parts=buckets))


def _pauses_in_requests(
    _sql: ArrowSql, parts: pa.Table, starts: Mapping[int, Sequence[int]], before_us: Mapping[int, int]
) -> pa.Table:  # fmt: skip
    """Return the rows of `request_pauses` for some brokers, given the buckets of activity (``parts``).

    ``starts`` are the process starts of each broker, and ``before_us`` is, by broker, the last completion in its
    earlier logs.
    """
    ends = [
        {"broker_id": broker_id, "bucket": before_us[broker_id] // BUCKET_US}
        | dict.fromkeys(("first_us", "last_us", "done_us", "last_done_us"), before_us[broker_id])
        for broker_id in parts["broker_id"].unique().to_pylist() if broker_id in before_us
    ]  # fmt: skip
    parts = pa.concat_tables([parts, pa.Table.from_pylist(ends, parts.schema)])
    by_broker = [(parts.filter(pc.equal(parts["broker_id"], broker_id)), us) for broker_id, us in starts.items()]
    return pa.concat_tables(
        [
            _PAUSES.empty_table(),
            *(_request_pauses_of_broker(rows.sort_by("bucket"), us) for rows, us in by_broker if len(rows)),
        ]
    )


def _request_pauses_of_broker(rows: pa.Table, starts_us: Sequence[int]) -> pa.Table:
    """Return the rows of `request_pauses` for one broker."""
    bucket = int64_array(rows["bucket"])
    begins = np.flatnonzero(np.diff(bucket, prepend=bucket[0] - 1))
    bucket = bucket[begins]
    least = {name: np.minimum.reduceat(int64_array(rows[name], _LATE), begins)
             for name in ("first_us", "since_us", "done_us")}  # fmt: skip
    most = {name: np.maximum.reduceat(int64_array(rows[name], _EARLY), begins) for name in ("last_us", "last_done_us")}
    process = np.searchsorted(np.array(starts_us, np.int64) // BUCKET_US, bucket, side="right")
    # For each bucket, the index of the last bucket before it in which a request was completed.
    done_in = np.maximum.accumulate(np.where(most["last_done_us"] != _EARLY, np.arange(len(bucket)), -1))
    done_in = np.append(-1, done_in[:-1])
    before_done_us = np.where(done_in >= 0, most["last_done_us"][done_in], _LATE)
    before_us, process_before = np.append(_LATE, most["last_us"][:-1]), np.append(_LATE, process[:-1])
    found = (least["first_us"] - before_us >= SILENCE_US) | ((process != process_before) & (process_before != _LATE))
    found |= (least["done_us"] != _LATE) & (least["done_us"] - before_done_us >= GAP_US)
    found[-1] = True
    kept = np.flatnonzero(found)
    columns = {
        "first_us": least["first_us"], "last_us": most["last_us"], "done_us": least["done_us"], "process": process,
        "before_us": before_us, "process_before": process_before, "before_done_us": before_done_us,
        "waiting_since_us": np.minimum.accumulate(least["since_us"][::-1])[::-1],
    }  # fmt: skip
    known = {name: pa.array(column[kept], mask=column[kept] == _LATE) for name, column in columns.items()}
    known |= {"broker_id": rows["broker_id"].take(kept), "is_last": pa.array(kept == len(bucket) - 1)}
    return cast_rows(pa.table(known), _PAUSES)


def beginnings_of_requests(by_file: pa.Table) -> dict[int, int]:
    """Return, by broker, the time of the first completion in its request logs, in microseconds since 1970.

    Parameters
    ----------
    by_file : pa.Table
        Result of `requests_by_file`.
    """
    return _summary_by_broker(by_file, "first_us", min)


def ends_of_requests(by_file: pa.Table) -> dict[int, int]:
    """Return, by broker, the time of the last completion in its request logs, in microseconds since 1970.

    Parameters
    ----------
    by_file : pa.Table
        Result of `requests_by_file`.
    """
    return _summary_by_broker(by_file, "last_us", max)


def _summary_by_broker(by_file: pa.Table, column: str, choose: Callable[[int, int], int]) -> dict[int, int]:
    """Combine the values of a column for all request logs of each broker with ``choose`` (min or max)."""
    found: dict[int, int] = {}
    for row in by_file.to_pylist():
        if row["reason"] is None and row[column] is not None:
            found[row["broker_id"]] = choose(row[column], found.get(row["broker_id"], row[column]))
    return found
