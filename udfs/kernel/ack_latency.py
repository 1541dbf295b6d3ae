"""Track how long producers with acks=all wait: the waiting appends of each run, and a histogram of waiting times.

Latencies are counted in buckets of at most a sixteenth of their value, so a day has a few hundred numbers, and
percentiles of any grouping can be computed from the table.
"""

import numpy as np

from udfs.jit import inlined, kernel
from udfs.records import BUCKETS, Int64Array

TIME, END, FIRST_RUN = 0, 1, 2
"""Columns of ``waits``: time and log end of each append; then, for each rule run, how many of the row's appends wait in
that run."""
COUNT = -1
"""Index of the last row of ``waits``: its column TIME has the number of rows in use, and the column of each run the
first row for which the run waits."""
FOR_NOTHING = np.int64(2**62)
"""A row index beyond any other: the run waits for no append, neither a present nor a future one."""


def new_ack_waits(runs: int, capacity: int) -> Int64Array:
    """Make waits, int64 of shape (capacity + 1, 2 + runs): appends that some run has not acknowledged yet, in order.

    If there are more appends than the capacity, neighbours are merged: the time of the earlier one, the end of the
    later one. The latencies of a run that is this far behind are then too long by the distance of two neighbours.
    """
    return np.zeros((capacity + 1, FIRST_RUN + runs), np.int64)


def middle_of_latency_bucket_us(buckets: Int64Array) -> Int64Array:
    """Return the middle of each bucket in microseconds."""
    shift = np.maximum(buckets // 16 - 1, 0)
    return np.where(buckets < 16, buckets, ((16 + buckets % 16) << shift) + (1 << shift) // 2)


@kernel
def latency_bucket(latency_us):
    """Return the bucket of a latency: sixteen buckets per octave, and one per microsecond below 16."""
    if latency_us < 16:
        return latency_us
    # The highest bit is found by binary search, which takes fewer steps than bit by bit.
    shift, step = 0, 32
    while step > 0:
        if latency_us >> (shift + step) >= 16:
            shift += step
        step >>= 1
    return min(16 * shift + (latency_us >> shift), BUCKETS - 1)


@kernel
def clear_ack_waits(waits):
    """Clear the waits for a new term, in which no producer waits yet."""
    for column in range(waits.shape[1]):
        waits[COUNT, column] = 0


@kernel
def _make_room_for_waits(waits):
    """Make room in ``waits``: drop rows that every run has acknowledged; if that frees less than half, merge others."""
    used = waits[COUNT, TIME]
    done = used
    for run in range(FIRST_RUN, waits.shape[1]):
        done = min(done, waits[COUNT, run])
    step = 1
    if 2 * done < used:
        done -= done % 2
        step = 2
    kept = 0
    for i in range(done, used, step):
        last = min(i + step, used) - 1
        waits[kept, TIME] = waits[i, TIME]
        waits[kept, END] = waits[last, END]
        for run in range(FIRST_RUN, waits.shape[1]):
            # A merged entry does not count appends that the run has acknowledged.
            appends = waits[i, run]
            if last > i:
                appends += waits[last, run]
            waits[kept, run] = appends
        kept += 1
    for run in range(FIRST_RUN, waits.shape[1]):
        if waits[COUNT, run] != FOR_NOTHING:
            waits[COUNT, run] = (waits[COUNT, run] - done) // step
    waits[COUNT, TIME] = kept


@kernel
def add_ack_wait(waits, log_end_offset, now_us):
    """Add a row for an append, for which no run waits yet; return the row's index."""
    if waits[COUNT, TIME] == len(waits) - 1:
        _make_room_for_waits(waits)
    i = waits[COUNT, TIME]
    waits[i, TIME] = now_us
    waits[i, END] = log_end_offset
    if i > 0:  # log ends only grow, so rows stay in order
        waits[i, END] = max(log_end_offset, waits[i - 1, END])
    for run in range(FIRST_RUN, waits.shape[1]):
        waits[i, run] = 0
    waits[COUNT, TIME] = i + 1
    return i


@inlined
def some_ack_waits_end(waits, r, high_watermark):
    """Whether the run's high watermark has passed its first waiting append."""
    i = waits[COUNT, FIRST_RUN + r]
    return i < waits[COUNT, TIME] and waits[i, END] <= high_watermark


@kernel
def acknowledge_waits(waits, r, high_watermark, now_us, latencies):
    """Acknowledge appends that the run's high watermark has passed; return their number and the longest wait."""
    acknowledged, longest_us = 0, 0
    own = FIRST_RUN + r
    i = waits[COUNT, own]
    while i < waits[COUNT, TIME] and waits[i, END] <= high_watermark:
        if waits[i, own] > 0:
            latency_us = now_us - waits[i, TIME]
            latencies[latency_bucket(latency_us)] += waits[i, own]
            acknowledged += waits[i, own]
            longest_us = max(longest_us, latency_us)
            waits[i, own] = 0
        i += 1
    waits[COUNT, own] = i
    return acknowledged, longest_us


@kernel
def forget_ack_waits(waits, r):
    """Stop waiting for acknowledgements in a run, including those of future appends."""
    waits[COUNT, FIRST_RUN + r] = FOR_NOTHING


@kernel
def take_over_ack_waits(waits, to, of):
    """Copy the waiting appends of run ``of`` to run ``to``."""
    to, of = FIRST_RUN + to, FIRST_RUN + of
    for i in range(waits[COUNT, of], waits[COUNT, TIME]):
        waits[i, to] = waits[i, of]
    waits[COUNT, to] = waits[COUNT, of]


@kernel
def ack_waits_alike(waits, r, other):
    """Whether two runs wait for the same appends."""
    r, other = FIRST_RUN + r, FIRST_RUN + other
    alike = waits[COUNT, r] == waits[COUNT, other]
    for i in range(waits[COUNT, r], waits[COUNT, TIME]):
        alike = alike and waits[i, r] == waits[i, other]
    return alike


@kernel
def count_given_up_ack_waits(waits, r, before_us):
    """Count a run's appends from before ``before_us`` that still wait for their acknowledgement."""
    never = 0
    for i in range(waits[COUNT, FIRST_RUN + r], waits[COUNT, TIME]):
        if waits[i, TIME] < before_us:
            never += waits[i, FIRST_RUN + r]
    return never
