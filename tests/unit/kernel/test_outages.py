"""How long a request would wait that is sent at any instant, of small logs, worked out by hand."""

from collections.abc import Sequence

import pytest

from tests.kernel_ledger import LedgerOf
from tests.naive_ledger_rows import Score
from tests.naive_truth import APPEND, FETCH, REMOVED, Row, Term
from tests.strategies import Log, Setting

SECOND_US = 1_000_000


def us(seconds: float) -> int:
    return round(seconds * SECOND_US)


def fetch(at: float, replica: int, offset: int, *, waited: float = 0.5) -> Row:
    """A fetch that is recorded at once, and waits for data."""
    return Row(us(at), FETCH, replica, offset, 0, -1, us(at), us(at), us(at + waited), us(at + waited))


def log(rows: Sequence[Row], *, replicas: int = 2, seconds: float = 60) -> Log:
    members = tuple(range(1, replicas + 1))
    in_order = tuple(sorted(rows, key=lambda row: row.time_us))
    return Log((Term(members, 1, 0, us(seconds), 100, 100, members, leader_is_new=True, rows=in_order),))


def of(found: Score) -> tuple[float, float, float]:
    """Seconds in which a request would wait for more than 1 s, for more than 30 s; the longest wait."""
    waits = found.wait_over_second_us, found.wait_over_timeout_us, found.wait_max_us
    return tuple(us / SECOND_US for us in waits)  # type: ignore[return-value]


IDLE_AND_DEAD = log([fetch(0.4 + n / 2, 2, 100, waited=0.5 if n < 39 else 0) for n in range(40)])
"""An idle partition, whose follower dies after its fetch at 19.9 s."""


@pytest.mark.parametrize(
    ("rule", "over_second", "over_timeout", "longest"),
    [
        # Requests wait for the first check after 29.9 s: those of 19.9 to 30 s until 30 s, later ones up to 5 s.
        ("kafka-3.7", 9.1 + 6 * 4, 0, 10.1),
        ("kafka-2.1", 9.1 + 6 * 4, 0, 10.1),
        # It drops the follower at 30 s for good.
        ("kafka-0.10.2", 9.1, 0, 10.1),
        # It drops it 10.001 s after 19.9 s.
        ("kafka-4485-design", 10.001 - 1, 0, 10.001),
        # It never drops a follower, and needs both of two.
        ("majority", 39.1, 10.1, 40.1),
    ],
)
def test_an_idle_partition_with_a_dead_follower(
    ledger_of: LedgerOf, rule: str, over_second: float, over_timeout: float, longest: float
) -> None:
    (found,) = ledger_of(IDLE_AND_DEAD, Setting(rule, 10_000)).scores
    assert of(found) == pytest.approx((over_second, over_timeout, longest), abs=1e-9)
    assert found.latencies == ()


def test_the_distribution_over_time(ledger_of: LedgerOf) -> None:
    """In 0.6 of 60 s, requests would wait for more than 9.5 s: that is the 99th percentile."""
    (found,) = ledger_of(IDLE_AND_DEAD, Setting("kafka-3.7", 10_000)).scores
    assert sum(us for _, us in found.waits) == us(33.1)
    of_bucket = 322  # 9.437 to 9.961 s
    longer = sum(us for number, us in found.waits if number > of_bucket)
    assert longer < us(0.6) < longer + dict(found.waits)[of_bucket]


def test_refused_requests_are_sent_again_and_wait(ledger_of: LedgerOf) -> None:
    """Follower 2 stops at 4.9 s and is removed at 10 s; it joins at 30 s, and is known to hold all at 30.5 s."""
    rows = [fetch(0.4 + n / 2, 2, 100, waited=0.5 if n < 9 else 0) for n in range(10)]
    rows += [Row(us(10), REMOVED, 2), fetch(30, 2, 100), fetch(30.5, 2, 100)]
    (found,) = ledger_of(log(rows, seconds=31), Setting("kafka-3.7", 10_000, 2)).scores
    assert found.under_min_isr_us == us(20)
    assert of(found) == pytest.approx((30.5 - 1 - 4.9, 0, 30.5 - 4.9), abs=1e-9)


def test_a_follower_that_lags_holds_up_every_request(ledger_of: LedgerOf) -> None:
    """Follower 3 has what was appended by 2 s only at 6 s, and what its fetch at 6 s asked for at 6.5 s."""
    rows = [fetch(n / 2, 2, 110 if n > 4 else 100) for n in range(24)]
    rows += [fetch(n / 2, 3, 110 if n >= 12 else 100) for n in range(24)]
    rows += [Row(us(2), APPEND, offset=110, code=-1)]
    (found,) = ledger_of(log(rows, replicas=3, seconds=12), Setting("kafka-3.7", 10_000)).scores
    # Requests of 2 s and later: at 6 s it is known to have held what its fetch at 5.5 s was answered with.
    assert of(found) == pytest.approx((6 - 2 - 1, 0, 4), abs=1e-9)
