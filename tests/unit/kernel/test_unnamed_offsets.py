"""Fetches of a session that began before the log: no line names their offsets. By hand."""

import pytest

from tests.naive_truth import Row, Term
from tests.strategies import Log
from tests.unit.kernel.test_doubts import LAG_MS, RUN, START_US, at, fetch
from tests.unit.kernel.test_kernel_against_naive import replay
from udfs.records import BEHIND, SENT_FROM_UNKNOWN, UNKNOWN

LOG_END = 10


def unnamed(ms: float, code: int = 0) -> Row:
    return fetch(ms, int(UNKNOWN))._replace(code=code)


def expands(held: int, *rows: Row) -> list[int]:
    """When follower 2 joins the ISR, which by a line was only the leader when the log began."""
    term = Term(
        (1, 2), 1, START_US, at(3_000), LOG_END, LOG_END, (1,), leader_is_new=True, isr_known=True,
        begins_mid_term=True, held_at_start=(LOG_END, held), rows=rows,
    )  # fmt: skip
    (result,) = replay(Log((term,), LAG_MS), [RUN])
    return [change.time_us for change in result["changes"] if change.kind == "expand"]


def test_a_follower_without_records_is_at_the_log_end() -> None:
    assert expands(LOG_END, unnamed(500), unnamed(1_000)) == [at(500.2)]


def test_an_outsider_without_records_is_throttled() -> None:
    assert expands(int(BEHIND), unnamed(500), unnamed(1_000)) == []
    assert expands(int(BEHIND), unnamed(500), fetch(1_000, LOG_END)) == [at(1_000.2)]
    assert expands(int(BEHIND), unnamed(500), fetch(1_000, LOG_END - 1), unnamed(1_500)) == []


@pytest.mark.parametrize("held", [int(BEHIND), int(UNKNOWN)])
def test_a_follower_with_records_is_behind(held: int) -> None:
    assert expands(held, unnamed(500, int(SENT_FROM_UNKNOWN)), fetch(1_000, LOG_END)) == [at(1_000.2)]
