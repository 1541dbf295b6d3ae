"""How long producers with acks=all wait: which appends wait under which run, and a histogram of how long they did.

Latencies are counted in buckets of at most a sixteenth of their value, so that a day's are a few hundred numbers and
percentiles of any grouping can be had from the table.
"""

from typing import NamedTuple

import numpy as np

from udfs.jit import kernel
from udfs.records import BUCKETS, Int64Array


class Waits(NamedTuple):
    """Appends that some run has not acknowledged yet, in order; ``used[0]`` of them.

    When there are more than the capacity, neighbours become one entry: the time of the earlier one, the end of the
    later one. Latencies of a run that is so far behind are then told too long, by the distance of two neighbours.
    """

    time_us: Int64Array
    log_end_offset: Int64Array
    appends: Int64Array
    """Appends of each entry that wait under each run, shape (R, capacity)."""
    first: Int64Array
    """The first entry that each run waits for, shape (R,)."""
    used: Int64Array


def new_waits(runs: int, capacity: int) -> Waits:
    """Nothing waits."""
    return Waits(
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros((runs, capacity), np.int64),
        np.zeros(runs, np.int64),
        np.zeros(1, np.int64),
    )


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
    waits.used[0] = 0
    for r in range(len(waits.first)):
        waits.first[r] = 0


@kernel
def _make_room(waits):
    """Forget what every run has acknowledged; if that is not half, merge neighbours."""
    runs, used = len(waits.first), waits.used[0]
    done = used
    for r in range(runs):
        done = min(done, waits.first[r])
    step = 1
    if 2 * done < used:
        done -= done % 2
        step = 2
    kept = 0
    for i in range(done, used, step):
        last = min(i + step, used) - 1
        waits.time_us[kept] = waits.time_us[i]
        waits.log_end_offset[kept] = waits.log_end_offset[last]
        for r in range(runs):
            # What a run has acknowledged counts no more.
            appends = waits.appends[r, i]
            if last > i:
                appends += waits.appends[r, last]
            waits.appends[r, kept] = appends
        kept += 1
    for r in range(runs):
        waits.first[r] = (waits.first[r] - done) // step
    waits.used[0] = kept


@kernel
def append_waits(waits, log_end_offset, now_us):
    """Enter an append; returns its place, where ``appends`` is 0 for every run."""
    if waits.used[0] == len(waits.time_us):
        _make_room(waits)
    i = waits.used[0]
    waits.time_us[i] = now_us
    waits.log_end_offset[i] = log_end_offset
    if i > 0:  # no log ends before it did; nobody overtakes
        waits.log_end_offset[i] = max(log_end_offset, waits.log_end_offset[i - 1])
    for r in range(len(waits.first)):
        waits.appends[r, i] = 0
    waits.used[0] = i + 1
    return i


@kernel
def acknowledge(waits, latencies, r, high_watermark, now_us):
    """The run's high watermark has moved: how many appends need not wait any longer, and how long the longest did."""
    acknowledged, longest_us = 0, 0
    i = waits.first[r]
    while i < waits.used[0] and waits.log_end_offset[i] <= high_watermark:
        if waits.appends[r, i] > 0:
            latency_us = now_us - waits.time_us[i]
            latencies[r, bucket_of(latency_us)] += waits.appends[r, i]
            acknowledged += waits.appends[r, i]
            longest_us = max(longest_us, latency_us)
            waits.appends[r, i] = 0
        i += 1
    waits.first[r] = i
    return acknowledged, longest_us


@kernel
def give_up_waiting(waits, r, before_us):
    """Appends from before that instant that still wait."""
    never = 0
    for i in range(waits.first[r], waits.used[0]):
        if waits.time_us[i] < before_us:
            never += waits.appends[r, i]
    return never
