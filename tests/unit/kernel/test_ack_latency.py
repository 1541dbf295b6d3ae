"""Waiting appends, buckets of latency, and the brakes of notifications, against the obvious way."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.jit import entry
from udfs.kernel.ack_latency import (
    FIRST_RUN,
    acknowledge_waits,
    add_ack_wait,
    clear_ack_waits,
    count_given_up_ack_waits,
    latency_bucket,
    middle_of_latency_bucket_us,
    new_ack_waits,
)
from udfs.kernel.notifications import notified_at_us
from udfs.records import BUCKETS

SECOND_US = 1_000_000


def compiled(function: Any) -> Any:
    """Make a function of the kernel callable from here."""
    return entry(function.py_func)


the_bucket, enter, reach = compiled(latency_bucket), compiled(add_ack_wait), compiled(acknowledge_waits)
never, forget = compiled(count_given_up_ack_waits), compiled(clear_ack_waits)


def test_buckets_are_a_sixteenth_wide() -> None:
    middles = middle_of_latency_bucket_us(np.arange(BUCKETS))
    assert [the_bucket(int(middle)) for middle in middles] == list(range(BUCKETS))
    for latency in (0, 15, 16, 31, 32, 33, 1_000, 123_456_789, 60 * 60 * SECOND_US):
        assert middles[the_bucket(latency)] == pytest.approx(latency, rel=1 / 32 + 1e-9)
    assert the_bucket(2**60) == BUCKETS - 1


def test_a_term_begins_without_anybody_waiting() -> None:
    waits = new_ack_waits(1, 4)
    waits[enter(waits, 10, 1), FIRST_RUN] = 1
    forget(waits)
    assert never(waits, 0, 100) == 0
    assert reach(waits, 0, 10, 5, np.zeros(BUCKETS, np.int64)) == (0, 0)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.lists(st.booleans(), min_size=2, max_size=2),
            st.lists(st.integers(0, 12), min_size=2, max_size=2),
        ),
        max_size=60,
    ),
    st.sampled_from([2, 3, 8, 100]),
)
@settings(deadline=None, database=None)
def test_appends_wait_per_run(steps: list[tuple[int, list[bool], list[int]]], capacity: int) -> None:
    """No append is lost or counted twice, however few are kept individually; with room for all, to the microsecond."""
    waits, latencies = new_ack_waits(2, capacity), np.zeros((2, BUCKETS), np.int64)
    naive: list[list[tuple[int, int]]] = [[], []]
    end, marks = 0, [0, 0]
    for now_us, (records, refused, moves) in enumerate(steps):
        end += records
        place = enter(waits, end, now_us)
        for r in range(2):
            if not refused[r]:
                waits[place, FIRST_RUN + r] += 1
                naive[r].append((now_us, end))
            marks[r] = min(end, marks[r] + moves[r])
            done = [time_us for time_us, offset in naive[r] if offset <= marks[r]]
            found, longest_us = reach(waits, r, marks[r], now_us, latencies[r])
            if capacity == 100:
                assert found == len(done)
                assert longest_us == max((now_us - time_us for time_us in done), default=0)
                naive[r] = [wait for wait in naive[r] if wait[1] > marks[r]]
                assert never(waits, r, now_us + 1) == len(naive[r])
    for r in range(2):
        accepted = sum(not refused[r] for _, refused, _ in steps)
        waiting = never(waits, r, len(steps) + 1)
        assert latencies[r].sum() + waiting == accepted
        reach(waits, r, end, len(steps), latencies[r])
        assert latencies[r].sum() == accepted


def told(changes: list[float]) -> list[float]:
    at = notified_at_us(np.array([int(second * SECOND_US) for second in changes], np.int64))
    return [float(us) / SECOND_US for us in at]


def test_notifications_wait_for_quiet_or_a_minute() -> None:
    # The first change is sent at the next run of the task: no notification was sent for a minute.
    assert told([1.0]) == [2.5]
    # The next ones wait for 5 s without a change: the runs at 12.5 (4.5 s later) and 15 (7 s later).
    assert told([1.0, 4.0, 8.0]) == [2.5, 15.0, 15.0]
    # Changes every 2 s are never quiet; they are sent by the first run of the task more than a minute after the last
    # one.
    busy = [1.0 + 2 * i for i in range(40)]
    assert told(busy)[:31] == [2.5] + [65.0] * 30
    assert told([]) == []


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=50))
@settings(deadline=None, database=None)
def test_notifications_look_by_look(change_ms: list[int]) -> None:
    """The task of ReplicaManager, run every 2.5 s."""
    change_us = sorted(ms * 1000 + 1 for ms in change_ms)
    look_us, last_told_us = 0, -(10**15)
    waiting: list[int] = []
    expected: dict[int, int] = {}
    while len(expected) < len(set(change_us)):
        look_us += 2_500_000
        waiting = [us for us in change_us if us < look_us and us not in expected]
        seen = [us for us in change_us if us < look_us]
        if waiting and (seen[-1] + 5_000_000 < look_us or last_told_us + 60_000_000 < look_us):
            expected |= dict.fromkeys(waiting, look_us)
            last_told_us = look_us
    at = notified_at_us(np.array(change_us, np.int64)).tolist()
    assert at == [expected[us] for us in change_us]
    assert all(a <= b for a, b in pairwise(at))
