"""Keep the appends that some follower lacks, to find since when each follower has lacked records.

A follower with log end offset ``o`` has lacked records since the first append that ended beyond ``o``. Appends that all
followers have are dropped. If a follower is away so long that the appends it lacks exceed the capacity, pairs of
neighbouring appends are merged. The time found is then too early by at most the time between two neighbouring appends.
"""

from typing import NamedTuple

import numpy as np

from udfs.jit import inlined, kernel
from udfs.records import NEVER_US, Int64Array

CAPACITY = 1 << 15


class AppendHistory(NamedTuple):
    """Appends in order, as int64 arrays of log ends and times. Entries ``used[0]`` to ``used[1]`` are in use."""

    log_end_offset: Int64Array
    time_us: Int64Array
    used: Int64Array


def new_append_history(capacity: int = CAPACITY) -> AppendHistory:
    """Return an empty history of at most ``capacity`` appends."""
    return AppendHistory(np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.zeros(2, np.int64))


@kernel
def begin_append_history(history: AppendHistory, start_offset: int, start_us: int) -> None:
    """Empty the history at the start of a term. Records below ``start_offset`` get the append time ``start_us``."""
    history.log_end_offset[0] = start_offset
    history.time_us[0] = start_us
    history.used[0] = 0
    history.used[1] = 1


@inlined
def remember_append(history: AppendHistory, log_end_offset: int, time_us: int, held_by_all: int) -> None:
    """Add an append that ended at ``log_end_offset``. All followers have the records below ``held_by_all``.

    If the history is full, appends that all followers have are dropped. If most appends remain, neighbours are merged.
    """
    first, end = history.used
    if end == len(history.time_us):
        while first < end and history.log_end_offset[first] <= held_by_all:
            first += 1
        kept = end - first
        if kept > len(history.time_us) // 2:
            last = end - 1
            kept = (kept + 1) // 2
            for i in range(kept):
                history.time_us[i] = history.time_us[first + 2 * i]
                history.log_end_offset[i] = history.log_end_offset[min(first + 2 * i + 1, last)]
        else:
            for i in range(kept):
                history.time_us[i] = history.time_us[first + i]
                history.log_end_offset[i] = history.log_end_offset[first + i]
        first, end = 0, kept
    history.time_us[end] = time_us
    history.log_end_offset[end] = log_end_offset
    history.used[0] = first
    history.used[1] = end + 1


@kernel
def missing_since(history: AppendHistory, log_end_offset: int) -> int:
    """Return when the leader's log first grew beyond ``log_end_offset``, in microseconds; NEVER_US if it has not."""
    low, end = history.used
    high = end - 1
    if high < low or history.log_end_offset[high] <= log_end_offset:
        return NEVER_US
    # Most followers only lack the latest appends, so the search goes back from there, in steps that double.
    step = 1
    while high - step >= low and history.log_end_offset[high - step] > log_end_offset:
        high -= step
        step *= 2
    low = max(low, high - step + 1)
    while low < high:
        middle = (low + high) // 2
        if history.log_end_offset[middle] > log_end_offset:
            high = middle
        else:
            low = middle + 1
    return history.time_us[high]
