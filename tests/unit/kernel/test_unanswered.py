"""For how long requests with acks=all wait: by hand, and forwards as backwards."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.kernel_ledger import LedgerOf, in_buckets, ledgers
from tests.naive_ledger import Bookkeeper, days, ledger
from tests.naive_rules import RULES
from tests.naive_truth import APPEND, FETCH, IDLE, REMOVED, SILENCE, Row, Term
from tests.strategies import Log, Setting, cases_of_all_rules, logs_over_midnight, slowed

SECOND_US = 1_000_000
generated = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


def us(seconds: float) -> int:
    return round(seconds * SECOND_US)


def fetch(at: float, replica: int, offset: int, *, waited: float = 0.5) -> Row:
    """A fetch that is recorded at once, and waits for data."""
    return Row(us(at), FETCH, replica, offset, 0, -1, us(at), us(at), us(at + waited), us(at + waited))


def log(rows: Sequence[Row], *, replicas: int = 2, seconds: float = 60) -> Log:
    members = tuple(range(1, replicas + 1))
    in_order = tuple(sorted(rows, key=lambda row: row.time_us))
    return Log((Term(members, 1, 0, us(seconds), 100, 100, members, leader_is_new=True, rows=in_order),))


IDLE_AND_DEAD = log([fetch(0.4 + n / 2, 2, 100, waited=0.5 if n < 39 else 0) for n in range(40)])
"""An idle partition, whose follower dies after its fetch at 19.9 s."""


@pytest.mark.parametrize(
    ("rule", "over_second", "over_timeout"),
    [
        # Requests wait for the first check after 29.9 s: those of 19.9 to 30 s until 30 s, later ones up to 5 s.
        ("kafka-3.7", 9.1 + 6 * 4, 0),
        ("kafka-2.1", 9.1 + 6 * 4, 0),
        # It drops the follower at 30 s for good.
        ("kafka-0.10.2", 9.1, 0),
        # It drops it 10.001 s after 19.9 s.
        ("kafka-4485-design", 10.001 - 1, 0),
        # It never drops a follower, and needs both of two.
        ("majority", 39.1, 10.1),
        # Each request would be dropped for after 10 s.
        ("true-lag", 39.1, 0),
    ],
)
def test_an_idle_partition_with_a_dead_follower(
    ledger_of: LedgerOf, rule: str, over_second: float, over_timeout: float
) -> None:
    (found,) = ledger_of(IDLE_AND_DEAD, Setting(rule, 10_000)).scores
    assert (found.acks_all_waits_1s_us, found.acks_all_waits_30s_us) == (us(over_second), us(over_timeout))
    assert found.latencies == ()


def test_latency_over_time(ledger_of: LedgerOf) -> None:
    """A request of this example waits for up to w in the share (19.9 + 7 w) / 60 of time, if w is 1 to 5 s."""
    fetches = [fetch(0, 2, 100, waited=0.4), *IDLE_AND_DEAD.terms[0].rows]
    (found,) = ledger_of(log(fetches), Setting("kafka-3.7", 10_000)).scores
    assert (found.acks_all_wait_max_us, found.acks_all_unanswered_us) == (us(10.1), 0)
    ends = [us(1), *(n + 1 << shift for shift in range(15, 20) for n in range(16, 32) if n + 1 << shift > us(1))]
    for end, upto_us in zip(ends, accumulate(found.waits), strict=False):
        w = min(end / SECOND_US, 10.1)
        assert upto_us == us(19.9 + 7 * w if w <= 5 else 19.9 + 35 + w - 5)
    median, p99 = (next(n for n, upto in enumerate(accumulate(found.waits)) if upto >= us(60 * q)) for q in (0.5, 0.99))
    assert ends[median - 1] < us(1.443) <= ends[median]
    assert ends[p99 - 1] < us(9.5) <= ends[p99]


def test_requests_that_are_not_answered(ledger_of: LedgerOf) -> None:
    """The term ends at 32 s, when requests since 30 s wait; and no fetch is known from 2 to 5 s."""
    rows = [*IDLE_AND_DEAD.terms[0].rows, Row(us(2), IDLE, until_us=us(5)), Row(us(22), SILENCE, until_us=us(23))]
    rows = [row for row in rows if not (row.kind == FETCH and us(2) <= row.time_us < us(5))]
    (found,) = ledger_of(log(rows, seconds=32), Setting("kafka-3.7", 10_000)).scores
    assert (found.acks_all_wait_unknown_us, found.acks_all_unanswered_us) == (us(3), us(2))
    assert found.acks_all_waits_1s_us == us(9.1 + 1)
    assert found.acks_all_waits_1s_silent_us == us(1)
    assert sum(found.waits) == us(32 - 5)


def test_requests_that_are_refused_do_not_wait(ledger_of: LedgerOf) -> None:
    """Follower 2 stops at 4.9 s and is removed at 10 s; it joins at 30 s, and fetches again at 33 s."""
    rows = [fetch(0.4 + n / 2, 2, 100, waited=0.5 if n < 9 else 0) for n in range(10)]
    rows += [Row(us(10), REMOVED, 2), fetch(30, 2, 100), fetch(33, 2, 100)]
    (found,) = ledger_of(log(rows, seconds=34), Setting("kafka-3.7", 10_000, 2)).scores
    assert found.under_min_isr_us == us(20)
    # A request of 4.9 s waits until it would be refused; one of 30 s until 33 s, and then others since 30.5 s.
    assert found.acks_all_waits_1s_us == us(10 - 4.9 - 1 + 3 - 1 + 1)


def test_a_follower_that_lags_holds_up_every_request(ledger_of: LedgerOf) -> None:
    """Follower 3 has what was appended by 2 s only at 6 s, and what its fetch at 6 s asked for at 6.5 s."""
    rows = [fetch(n / 2, 2, 110 if n > 4 else 100) for n in range(24)]
    rows += [fetch(n / 2, 3, 110 if n >= 12 else 100) for n in range(24)]
    rows += [Row(us(2), APPEND, offset=110, code=-1)]
    (found,) = ledger_of(log(rows, replicas=3, seconds=12), Setting("kafka-3.7", 10_000)).scores
    assert found.acks_all_waits_1s_us == us(6 - 2 - 1)


@seed(61)
@settings(generated, max_examples=40)
@given(cases_of_all_rules(), st.sampled_from([20, 300]), st.data())
def test_forwards_and_backwards(case: tuple[Log, list[Setting]], times: int, data: st.DataObject) -> None:
    """Requests that wait longer than a second are sent for as long as one that was sent a second ago still waits."""
    log, runs = slowed(*case, times)
    for run in data.draw(st.lists(st.sampled_from(runs), min_size=3, max_size=3)):
        books = Bookkeeper(RULES[run.rule](*run[1:4], **dict(run.flags)))
        for term in log.terms:
            books.begin(term)
            books.play(term.rows, term.end_us)
            books.close()
            for wait_us in (SECOND_US, 30 * SECOND_US):
                backward_us = sum(books.waited_us(wait_us, day) for day in days(term))
                assert books.forward_us(wait_us) == backward_us, run


@seed(7)
@settings(generated, max_examples=20)
@given(cases_of_all_rules(), st.sampled_from([20, 40, 300]), st.lists(st.integers(0, 60), max_size=3), st.data())
def test_requests_wait_as_long(
    case: tuple[Log, list[Setting]], times: int, cuts: list[int], data: st.DataObject
) -> None:
    """As the naive leader says; in logs so slow that requests wait for seconds and minutes."""
    log, runs = slowed(*case, times)
    runs = [run._replace(replica_lag_time_max_ms=max(1000, run.replica_lag_time_max_ms)) for run in runs]
    if data.draw(st.booleans()):
        log = data.draw(logs_over_midnight(log))
    for run, found in zip(runs, ledgers(log, runs, tuple(cuts)), strict=True):
        assert found.scores == in_buckets(ledger(log, run)).scores, run
