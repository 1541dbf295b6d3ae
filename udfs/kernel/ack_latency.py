"""Measure how long acks=all producers wait: track the waiting appends of each rule run, and count their latencies.

Latencies are counted in the buckets of a histogram. The width of a bucket is at most a sixteenth of its latency, so a
few hundred counters are enough for a day. Histograms of several rows of the table can be added, and percentiles
computed from the sums.

Rule runs with equal state are replayed together as a group (``udfs.kernel.shared_runs``). In these functions ``r`` is
the number of a rule run, or that of a group: groups have the numbers after those of the rule runs.
"""

import numpy as np

from udfs.jit import inlined, kernel
from udfs.kernel.rule_calls import acknowledged_end
from udfs.records import BUCKETS, NEVER_US, Int64Array

TIME, END, FIRST_RUN = 0, 1, 2
"""Columns of ``waits``: time and log end of each append. One column per rule run follows, with the number of the row's
appends that wait in that rule run."""
COUNT = -1
"""Index of the last row of ``waits``. Its column TIME holds the number of rows in use. Its column of a rule run holds
the index of the first row for which that rule run still waits."""
FOR_NOTHING = np.int64(2**62)
"""Stored as the first waiting row of a rule run that is in a group, because the group waits in its place; and of an
empty group."""


def new_ack_waits(runs: int, capacity: int) -> Int64Array:
    """Return an empty ``waits``: an int64 array with a row per append that some rule run has not acknowledged yet.

    Its shape is (capacity + 1, 2 + runs). If more appends wait than it has rows, neighbouring appends are merged into
    one row, with the time of the earlier and the log end of the later append. The latency of the later append is then
    overestimated by the time between the two.
    """
    return np.zeros((capacity + 1, FIRST_RUN + runs), np.int64)


def middle_of_latency_bucket_us(buckets: Int64Array) -> Int64Array:
    """Return the latency at the middle of each bucket, in microseconds, for an array of bucket numbers."""
    shift = np.maximum(buckets // 16 - 1, 0)
    return np.where(buckets < 16, buckets, ((16 + buckets % 16) << shift) + (1 << shift) // 2)


@kernel
def latency_bucket(latency_us):
    """Return the bucket number of a latency. There is a bucket for each us below 16 us, then 16 per power of two."""
    if latency_us < 16:
        return latency_us
    # The highest bit is found by binary search, which takes fewer steps than testing bit by bit.
    shift, step = 0, 32
    while step > 0:
        if latency_us >> (shift + step) >= 16:
            shift += step
        step >>= 1
    return min(16 * shift + (latency_us >> shift), BUCKETS - 1)


@kernel
def end_of_latency_bucket_us(bucket):
    """Return the latency from which on the next bucket is used, of a bucket from 16 on; NEVER_US for the last one."""
    return NEVER_US if bucket == BUCKETS - 1 else (17 + bucket % 16) << (bucket // 16 - 1)


@kernel
def clear_ack_waits(waits):
    """Empty ``waits`` at the start of a term."""
    for column in range(waits.shape[1]):
        waits[COUNT, column] = 0


@kernel
def _make_room_for_waits(waits):
    """Free rows of ``waits``: drop the appends that no rule run waits for.

    If fewer than half of the rows can be dropped, merge pairs of the remaining rows.
    """
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
    """Add a row for an append to ``waits``, and return its index. The caller then sets which rule runs wait for it."""
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
    """Whether the high watermark of rule run ``r`` has reached the first append that waits for it."""
    i = waits[COUNT, FIRST_RUN + r]
    return i < waits[COUNT, TIME] and waits[i, END] <= high_watermark


@kernel
def acknowledge_waits(waits, r, high_watermark, now_us, latencies):
    """Acknowledge the appends up to the high watermark of rule run ``r``, and count their latencies in ``latencies``.

    Returns the number of acknowledged appends, and the longest latency in microseconds.
    """
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
    """Remove the waiting appends of ``r``, and let it wait for no further ones until `take_over_ack_waits`."""
    waits[COUNT, FIRST_RUN + r] = FOR_NOTHING


@kernel
def take_over_ack_waits(waits, to, of):
    """Copy the waiting appends of ``of`` to ``to`` (each a rule run or a group)."""
    to, of = FIRST_RUN + to, FIRST_RUN + of
    for i in range(waits[COUNT, of], waits[COUNT, TIME]):
        waits[i, to] = waits[i, of]
    waits[COUNT, to] = waits[COUNT, of]


@kernel
def ack_waits_alike(waits, r, other):
    """Whether the same appends wait in ``r`` and ``other`` (each a rule run or a group)."""
    r, other = FIRST_RUN + r, FIRST_RUN + other
    alike = waits[COUNT, r] == waits[COUNT, other]
    for i in range(waits[COUNT, r], waits[COUNT, TIME]):
        alike = alike and waits[i, r] == waits[i, other]
    return alike


@kernel
def count_given_up_ack_waits(waits, r, before_us):
    """Return how many appends earlier than ``before_us`` have not been acknowledged yet by rule run ``r``."""
    never = 0
    for i in range(waits[COUNT, FIRST_RUN + r], waits[COUNT, TIME]):
        if waits[i, TIME] < before_us:
            never += waits[i, FIRST_RUN + r]
    return never


@kernel
def acknowledge_early(state, r):
    """Update the offset up to which rule run ``r`` has acknowledged appends. It never moves back.

    It may be above the high watermark (`Rule.acknowledged_end`).
    """
    leader, term = state.leaders[r], state.term[0]
    end = acknowledged_end(state.codes[r], state.followers[r], term.leader, leader, state.params[r])
    leader.acknowledged_end = max(leader.acknowledged_end, end)
    leader.acknowledged_offset = max(leader.acknowledged_offset, leader.acknowledged_end)
    term.highest_acknowledged = max(term.highest_acknowledged, leader.acknowledged_end)
