"""By lag a rule is right or wrong, by blame it may be the other way round; small logs, worked out by hand.

Times are counted from the start of the log; checks of 0.9 are every 100 ms, the lag time, others every 50 ms.
"""

import pytest

from tests.kernel_ledger import LedgerOf
from tests.naive_ledger_rows import Ledger
from tests.naive_truth import REMOVED, Row
from tests.unit.kernel.test_invariants_naive import MS, START_US, append, by, fetch, log_of
from tests.unit.kernel.test_ledger_by_hand import DEAD


def by_blame(found: Ledger) -> list[tuple[int, ...]]:
    """agreed_us, agreed_by_blame_us and early, by follower and day."""
    return [(follower.agreed_us, follower.agreed_by_blame_us, follower.early) for follower in found.followers]


def test_a_genuine_failure_is_right_by_blame_until_it_is_missed(ledger_of: LedgerOf) -> None:
    """Dropped at 150 ms, before it would be a miss; or never. By lag it should be out from 102 ms on."""
    assert by_blame(ledger_of(log_of(*DEAD), by("kafka-3.7"))) == [(952_000, 1_000_000, 0)]
    assert by_blame(ledger_of(log_of(*DEAD), by("kafka-10853-hw"))) == [(102_000, 152_001, 0)]


PACE = fetch(0, 2, 0), append(1 * MS, 1), append(50 * MS, 2), fetch(60 * MS, 2, 1), append(169 * MS, 3)
LAST = fetch(170 * MS, 2, 2)
"""0.9 drops follower 2 at 200 ms: it has never been at the log end since 0 ms, but what it lacks is 31 ms old."""


def test_a_spurious_shrink_is_wrong_by_blame_until_the_follower_is_back(ledger_of: LedgerOf) -> None:
    """Back at 210 ms. By lag the rule is right then: below the high watermark it has to stay outside."""
    log = log_of(*PACE, LAST, fetch(210 * MS, 2, 3), end_us=250 * MS)
    ((agreed_us, by_blame_us, early),) = by_blame(ledger_of(log, by("kafka-0.9")))
    # Late from 151 to 170 ms, without the record of 50 ms.
    assert (agreed_us, by_blame_us, early) == (250_000 - 19_000, 240_000, 0)


@pytest.mark.parametrize(
    ("back_us", "early"), [(210 * MS, 0), (270 * MS, 0), (270 * MS + 1, 1), (500 * MS, 1), (None, 1)]
)
def test_who_was_silent_for_a_lag_time_was_dropped_early(ledger_of: LedgerOf, back_us: int | None, early: int) -> None:
    """Back or not, by blame the shrink is a mistake."""
    back = [] if back_us is None else [fetch(back_us, 2, 3)]
    end_us = 600 * MS if back_us is None else back_us + 90 * MS
    found = ledger_of(log_of(*PACE, LAST, *back, end_us=end_us), by("kafka-0.9"))
    assert by_blame(found) == [(end_us - 19_000, end_us - ((back_us or end_us) - 200 * MS), early)]


@pytest.mark.parametrize(("end_us", "early"), [(270 * MS, 0), (270 * MS + 1, 1)])
def test_a_term_that_ends_sooner_does_not_tell(ledger_of: LedgerOf, end_us: int, early: int) -> None:
    found = ledger_of(log_of(*PACE, LAST, end_us=end_us), by("kafka-0.9"))
    assert [follower.early for follower in found.followers] == [early]


def test_a_slow_leader_drops_nobody_early(ledger_of: LedgerOf) -> None:
    """It works on the fetch of 20 ms for a second."""
    log = log_of(fetch(0, 2, 0), append(10 * MS, 1), fetch(20 * MS, 2, 0, took_us=1000 * MS))
    assert by_blame(ledger_of(log, by("kafka-3.7"))) == [(961_000, 150_000, 0)]


def test_who_the_controller_took_out_was_not_dropped_early(ledger_of: LedgerOf) -> None:
    removed = Row(START_US + 205 * MS, REMOVED, 2)
    found = ledger_of(log_of(*PACE, LAST, removed), by("kafka-0.9"))
    assert by_blame(found) == [(205_000 - 19_000, 200_000, 0)]
