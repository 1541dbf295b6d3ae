"""Combine consecutive fetches of a fetch session that differ only in their times into runs with one row each.

Every request of a fetch session fetches all partitions of the session. On an idle partition, the same fetch therefore
repeats twice a second. A run is one fetch and the fetches of the same session after it that differ from it only in
their times. The row of a run stores these times in ``later_by``: for each fetch after the first, one integer per column
in LATER, which is the difference from the previous fetch. These small, repetitive numbers take half as much space on
disk as differences from the first fetch.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.batches.set_order import set_changes
from udfs.kernel.fetch_sessions import SessionFetches
from udfs.kernel.ledger import DAY_US

LATER = ("arrival_us", "handled_us", "processed_us", "released_us", "completed_us", "source_line")
"""Columns in which the fetches of a run may differ. For each fetch of the run after the first, ``later_by`` contains
its difference from the previous fetch in each of these columns."""
_LATER_ROWS = ("time_us", "handled_us", "processed_us", "released_us", "until_us")
"""The columns of LATER without the source line, under their names in ``udfs.records.Rows``."""
_MOST = 2**31 - 1
"""Largest difference between two successive fetches of a run that fits in ``later_by``: the largest INT."""
PIECE = 1 << 15
"""Maximum number of fetches to which runs are expanded at a time. A longer run is expanded alone, in one piece."""

Ints = npt.NDArray[np.int64]


class RequestsForRuns(NamedTuple):
    """The n requests of a batch, as input of `compressed_to_runs`: arrays with one entry per request.

    ``goes_on`` is true if the request's fetches may continue runs of the previous request. If so, ``later_by``, of
    shape (n, len(LATER)), contains the differences from the previous request, else 0. ``handled_us`` is when an I/O
    thread picked up the request, ``read_us`` when the leader last read its log for it, and ``waited_us`` is
    ``handled_us`` if the request waited for data, else -1.
    """

    later_by: npt.NDArray[np.int32]
    handled_us: Ints
    read_us: Ints
    waited_us: Ints
    goes_on: npt.NDArray[np.bool_]


def requests_for_runs(batch: pa.RecordBatch) -> RequestsForRuns:
    """Decide for each request of a batch whether its fetches may continue the runs of the previous request.

    A run is a fetch and the fetches after it that differ only in their times; it is stored in one row. The requests of
    a run follow each other in a fetch session and in a log file, on one day.

    Parameters
    ----------
    batch : RecordBatch
        LATER, ``answered_us``, ``session`` (int64), ``broker_id``, ``replica_id``, ``session_epoch`` (int32),
        ``source_file``. The requests of a session are adjacent and in order.
    """
    later_by = np.column_stack([_steps_of_fetches(_numbers_of_fetches(batch, name)) for name in LATER])
    handled_us = _numbers_of_fetches(batch, "handled_us")
    goes_on = (_steps_of_fetches(_numbers_of_fetches(batch, "session_epoch")) == 1) & (
        _steps_of_fetches(handled_us // DAY_US) == 0
    )
    goes_on &= ((later_by >= 0) & (later_by <= _MOST)).all(axis=1)
    # Requests that were handled at the same time are not combined, because their order is unknown.
    goes_on &= (later_by[:, LATER.index("handled_us")] > 0) & (later_by[:, LATER.index("source_line")] > 0)
    goes_on[:1] = False
    goes_on &= ~set_changes(batch, ("broker_id", "session", "replica_id", "source_file"))
    # If a request waited for data, the leader read its log a second time before it answered.
    waited = _numbers_of_fetches(batch, "released_us") > _numbers_of_fetches(batch, "processed_us")
    return RequestsForRuns(
        np.where(goes_on[:, None], later_by, 0).astype(np.int32),
        handled_us,
        read_us=np.where(waited, _numbers_of_fetches(batch, "answered_us"), _numbers_of_fetches(batch, "processed_us")),
        waited_us=np.where(waited, handled_us, -1),
        goes_on=goes_on,
    )


class FetchRuns(NamedTuple):
    """Runs of fetches that differ only in their times, in arrays with one entry per run.

    ``first`` is the index of the run's first fetch. ``last_handled_us`` and ``last_read_us`` are times of its last
    fetch. ``last_waited_us`` is when the last fetch of the run that waited for data was handled, or null.
    """

    first: Ints
    run_length: pa.Array
    later_by: pa.Array
    last_handled_us: pa.Array
    last_read_us: pa.Array
    last_waited_us: pa.Array


def compressed_to_runs(rows: SessionFetches, requests: RequestsForRuns) -> FetchRuns:
    """Combine equal fetches of the same partition in consecutive requests into runs.

    The fetches of a run have the same offset, epoch and high watermark (two nulls are equal). A fetch is never combined
    if it failed, returned records, or has no leader epoch (which is later looked up by its time).

    Parameters
    ----------
    rows : SessionFetches
        Fetches in the order of the requests.
    requests : RequestsForRuns
        The requests to which ``rows.request`` refers.
    """
    # Numbers of 16 bits, which numpy sorts in a quarter of the time.
    partition = rows.partition.astype(np.uint16) if rows.partition.max(initial=0) < 1 << 16 else rows.partition
    order = np.argsort(partition, kind="stable")
    request = rows.request[order]
    begins = np.ones(len(order), np.bool_)
    plain = ((rows.error == 0) & (rows.records_size <= 0) & (rows.leader_epoch >= 0))[order]
    begins[1:] = ~(plain[1:] & plain[:-1] & (np.diff(request) == 1) & requests.goes_on[request[1:]])
    for name in ("partition", "fetch_offset", "leader_epoch", "high_watermark", "fell_from"):
        column = getattr(rows, name)[order]
        begins[1:] |= column[1:] != column[:-1]
    start = np.flatnonzero(begins)
    length = np.diff(start, append=len(order))
    waited_us = np.maximum.reduceat(requests.waited_us[request], start) if len(start) else start
    # Rows of one request are kept adjacent: their instants are equal, so they take less space on disk.
    by_request = np.argsort(order[start])
    start, length, waited_us = start[by_request], length[by_request], waited_us[by_request]
    last = request[start + length - 1]
    ends = np.cumsum(length - 1)
    later = np.arange(len(order) - len(start)) + np.repeat(start + length - ends, length - 1)
    later_by = requests.later_by[request[later]]
    return FetchRuns(
        order[start],
        run_length=pa.array(length.astype(np.int32)),
        later_by=pa.ListArray.from_arrays(
            pa.array((len(LATER) * np.concatenate([[0], ends])).astype(np.int32)),
            pa.array(later_by.ravel()),
            mask=pa.array(length == 1),
        ),
        last_handled_us=pa.array(requests.handled_us[last]),
        last_read_us=pa.array(requests.read_us[last]),
        last_waited_us=pa.array(waited_us, mask=waited_us < 0),
    )


def one_row_a_fetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Expand runs of fetches to one row per fetch. Memory is bounded by one batch, PIECE and the longest run.

    Parameters
    ----------
    batches : iterator of RecordBatch
        Rows with ``time_us``, ``handled_us``, ``processed_us``, ``released_us``, ``until_us`` (int64), any other
        columns, and ``later_by`` (list of int32, null for single fetches).

    Yields
    ------
    RecordBatch
        One row per fetch, without ``later_by``. The fetches of a run are adjacent.
    """
    for batch in batches:
        later_by = batch.column("later_by")
        rows = batch.drop_columns(["later_by"])
        if later_by.null_count == len(later_by):
            yield rows
        else:
            for first, end in _cuts(later_by):
                yield _fetches_of_runs(rows.slice(first, end - first), later_by.slice(first, end - first))


def _steps_of_fetches(column: Ints) -> Ints:
    """Return each row's difference from the previous row; 0 for the first row."""
    return np.diff(column, prepend=column[:1])


def _numbers_of_fetches(batch: pa.RecordBatch, name: str) -> Ints:
    """Convert a column to a numpy array of int64."""
    return np.asarray(batch.column(name).cast(pa.int64()))


def _cuts(later_by: pa.Array) -> Iterator[tuple[int, int]]:
    """Yield ranges of runs to expand together: either at most PIECE fetches in total, or a single run."""
    upto = np.cumsum(1 + np.asarray(pc.list_value_length(later_by).fill_null(0)) // len(LATER))
    first, before = 0, 0
    while first < len(upto):
        end = max(first + 1, int(np.searchsorted(upto, before + PIECE, side="right")))
        yield first, end
        first, before = end, int(upto[end - 1])


def _fetches_of_runs(rows: pa.RecordBatch, later_by: pa.Array) -> pa.RecordBatch:
    """Expand runs, given as rows and their ``later_by``, to one row per fetch."""
    counts = np.asarray(pc.list_value_length(later_by).fill_null(0)) // len(LATER)
    source = np.repeat(np.arange(rows.num_rows), 1 + counts)
    is_later = np.append(False, np.diff(source) == 0)
    steps = np.zeros((len(source), len(LATER)), np.int64)
    steps[is_later] = np.asarray(later_by.flatten()).reshape(-1, len(LATER))
    # Running sums within each run: those over all rows, minus their values at the first fetch of the run.
    later = steps.cumsum(axis=0)
    later -= np.repeat(later[~is_later], 1 + counts, axis=0)
    columns = {name: rows.column(name).take(pa.array(source)) for name in rows.schema.names}
    for name, which in zip(_LATER_ROWS, range(len(_LATER_ROWS)), strict=True):
        columns[name] = pa.array(np.asarray(columns[name]) + later[:, which])
    # Batches from Spark have columns declared as not nullable; batches with different schemas could not be combined.
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=rows.schema)
