"""Waiting appends and buckets of latency, against the obvious way."""

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
