"""How long producers with acks=all wait: which appends wait under which run, and a histogram of how long they did.

Latencies are counted in buckets of at most a sixteenth of their value, so that a day's are a few hundred numbers and
percentiles of any grouping can be had from the table.
"""

import numpy as np

from udfs.jit import kernel
from udfs.records import BUCKETS, Int64Array

TIME, END, FIRST_RUN = 0, 1, 2
"""Rows of waits: time and end of each append; then for each run how many appends of the entry wait under it."""
COUNT = -1
"""The last place of a row: entries in use (row TIME); the first entry that a run waits for (its own row)."""


def new_waits(runs: int, capacity: int) -> Int64Array:
    """Make waits, int64 of shape (2 + runs, capacity + 1): appends that some run has not acknowledged yet, in order.

    When there are more than the capacity, neighbours become one entry: the time of the earlier one, the end of the
    later one. Latencies of a run that is so far behind are then told too long, by the distance of two neighbours.
    """
    return np.zeros((FIRST_RUN + runs, capacity + 1), np.int64)


def middle_of_bucket_us(buckets: Int64Array) -> Int64Array:
    """Middle of each bucket, microseconds."""
    shift = np.maximum(buckets // 16 - 1, 0)
    return np.where(buckets < 16, buckets, ((16 + buckets % 16) << shift) + (1 << shift) // 2)


@kernel
def bucket_of(latency_us):
    """Sixteen buckets an octave, and one a microsecond below 16."""
    if latency_us < 16:
        return latency_us
    shift = 0
    while latency_us >> shift >= 32:
        shift += 1
    return min(16 * shift + (latency_us >> shift), BUCKETS - 1)


@kernel
def await_none(waits):
    """A new term: its leader owes nobody an answer."""
    for row in range(len(waits)):
        waits[row, COUNT] = 0


@kernel
def _make_room(waits):
    """Forget what every run has acknowledged; if that is not half, merge neighbours."""
    used = waits[TIME, COUNT]
    done = used
    for run in range(FIRST_RUN, len(waits)):
        done = min(done, waits[run, COUNT])
    step = 1
    if 2 * done < used:
        done -= done % 2
        step = 2
    kept = 0
    for i in range(done, used, step):
        last = min(i + step, used) - 1
        waits[TIME, kept] = waits[TIME, i]
        waits[END, kept] = waits[END, last]
        for run in range(FIRST_RUN, len(waits)):
            # What a run has acknowledged counts no more.
            appends = waits[run, i]
            if last > i:
                appends += waits[run, last]
            waits[run, kept] = appends
        kept += 1
    for run in range(FIRST_RUN, len(waits)):
        waits[run, COUNT] = (waits[run, COUNT] - done) // step
    waits[TIME, COUNT] = kept


@kernel
def append_waits(waits, log_end_offset, now_us):
    """Enter an append; returns its place, where no run waits yet."""
    if waits[TIME, COUNT] == waits.shape[1] - 1:
        _make_room(waits)
    i = waits[TIME, COUNT]
    waits[TIME, i] = now_us
    waits[END, i] = log_end_offset
    if i > 0:  # no log ends before it did; nobody overtakes
        waits[END, i] = max(log_end_offset, waits[END, i - 1])
    for run in range(FIRST_RUN, len(waits)):
        waits[run, i] = 0
    waits[TIME, COUNT] = i + 1
    return i


@kernel
def acknowledge(waits, r, high_watermark, now_us, latencies):
    """The run's high watermark has moved: how many appends need not wait any longer, and how long the longest did."""
    acknowledged, longest_us = 0, 0
    own = waits[FIRST_RUN + r]
    i = own[COUNT]
    while i < waits[TIME, COUNT] and waits[END, i] <= high_watermark:
        if own[i] > 0:
            latency_us = now_us - waits[TIME, i]
            latencies[bucket_of(latency_us)] += own[i]
            acknowledged += own[i]
            longest_us = max(longest_us, latency_us)
            own[i] = 0
        i += 1
    own[COUNT] = i
    return acknowledged, longest_us


@kernel
def give_up_waiting(waits, r, before_us):
    """Appends from before that instant that still wait."""
    never = 0
    for i in range(waits[FIRST_RUN + r, COUNT], waits[TIME, COUNT]):
        if waits[TIME, i] < before_us:
            never += waits[FIRST_RUN + r, i]
    return never
