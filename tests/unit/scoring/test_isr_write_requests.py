"""ISR writes in requests: the worked example, and any writes against a model that goes from instant to instant."""

import json
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isr_batch.scoring.isr_write_requests import requests_of_writes, with_requests

STEP_US = 10


@pytest.mark.parametrize(
    ("answer_ms", "sizes", "peak"),
    [(5, [1, 500, 500, 500, 499], 5), (20, [1, 1999], 2), (1, [1, *[100] * 19, 99], 21), (0, [1] * 2000, 2000)],
)
def test_a_check_that_drops_a_follower_of_2000_partitions(answer_ms: int, sizes: list[int], peak: int) -> None:
    sent_us, last = requests_of_writes([n * STEP_US for n in range(2000)], 1000 * answer_ms, batched=True)
    assert [b - a for a, b in pairwise([-1, *last])] == sizes
    assert len(sent_us) == peak


@given(st.lists(st.integers(0, 300), min_size=1).map(sorted), st.integers(0, 90), st.booleans())
def test_one_request_is_in_flight_and_takes_what_waits(submits_us: list[int], answer_us: int, batched: bool) -> None:
    """Microsecond by microsecond: what is asked for then waits, too."""
    waiting, free_us, us = list(enumerate(submits_us)), 0, 0
    sent: list[tuple[int, int]] = []
    while waiting:
        ready = [n for n, asked_us in waiting if asked_us <= us]
        if ready and us >= free_us:
            taken = ready if batched else ready[:1]
            sent.append((us, taken[-1]))
            waiting = [one for one in waiting if one[0] > taken[-1]]
            free_us = us + answer_us
        if not ready or us < free_us:
            us += 1
    sent_us, last = requests_of_writes(submits_us, answer_us, batched=batched)
    assert list(zip(sent_us, last, strict=True)) == sent


def changes(rule: str, rows: list[tuple[int, int]]) -> pa.Table:
    given = {"rule": rule, "params_json": json.dumps({}), "topic": "t"}
    return with_requests(pa.Table.from_pylist([given | {"partition_id": p, "change_us": us} for us, p in rows]))


def test_followers_that_leave_together_are_one_write() -> None:
    found = changes("kafka-3.7", [(0, 1), (0, 1), (0, 2), (0, 3), (2_000_000, 1)])
    assert found["request"].to_pylist() == [0, 0, 1, 1, 2]  # the first goes at once, with what the check has by then
    assert found["writes"].to_pylist() == [1, 1, 2, 2, 1]
    assert found["in_second"].to_pylist() == [2, 2, 1, 1, 1]


def test_before_2_7_each_write_goes_by_itself() -> None:
    found = changes("kafka-2.1", [(0, 1), (0, 2), (0, 3)])
    assert (found["request"].to_pylist(), found["writes"].to_pylist()) == ([0, 1, 2], [1, 1, 1])
    assert found["in_second"].to_pylist() == [3, 2, 1]
