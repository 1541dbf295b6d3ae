"""The ledger of small logs, worked out by hand, and what must hold of the ledger of any log.

Times are counted from the start of the log, which is a multiple of 50 ms; so are the checks of a lag time of 100 ms.
An example gives all columns that are not zero.
"""

from typing import Any

import pytest

from tests import naive_ledger
from tests.kernel_ledger import LedgerOf
from tests.naive_ledger import DAY_US
from tests.naive_ledger_rows import Ledger, Score
from tests.naive_truth import ELIGIBLE, REMOVED, Row
from tests.naive_waits import bucket
from tests.strategies import MIDNIGHT_US, Log, Setting, shifted
from tests.unit.kernel.test_invariants_naive import MS, START_US, append, by, fetch, log_of


def scored(day: int = 0, *, lost: int = -1, **columns: Any) -> Score:
    """Score of a day; ``lost`` is what the only replica outside the ISR lacks at most while the leader is alone."""
    columns["latencies"], columns["waits"] = tuple(map(bucket, columns.get("latencies", ()))), ()
    nothing: dict[str, Any] = dict.fromkeys(Score._fields, 0)
    unknown = dict.fromkeys(("lost_by_heir_max", "first_violation_us", "first_violation"), -1)
    uncleanly = dict.fromkeys(("lost_by_first_active_max", "lost_by_longest_log_max"), lost)
    return Score(**nothing | unknown | uncleanly | {"day": day} | columns)


def but_waits(found: Ledger) -> list[Score]:
    """The scores but for how long requests would wait, for which tests.unit.kernel.test_unanswered has examples."""
    return [score._replace(waits=(), acks_all_unanswered_us=0) for score in found.scores]


def by_lag(found: Ledger) -> list[tuple[int, ...]]:
    """replica_id, day, judged_us, agreed_us and misses, by follower and day."""
    return [follower[:5] for follower in found.followers]


def with_min_isr(min_isr: int, **flags: int) -> Setting:
    return by("kafka-3.7", **flags)._replace(min_insync_replicas=min_isr)


def midnight_at(us: int, log: Log) -> Log:
    return shifted(log, MIDNIGHT_US - START_US - us)


TODAY = MIDNIGHT_US // DAY_US
DEAD = fetch(0, 2, 0), append(1 * MS, 1)
"""Follower 2 lacks a record from 1 ms on, is late from 102 ms on, and a rule misses it if it is in at 152.001 ms."""


# -- what producers and operators feel


@pytest.mark.parametrize("min_isr", [2, 3])
def test_below_min_isr_nothing_is_acknowledged(ledger_of: LedgerOf, min_isr: int) -> None:
    """No more than the two that are assigned can be asked for. The check at 150 ms is the first after 101 ms."""
    found = ledger_of(log_of(*DEAD, append(200 * MS, 2)), with_min_isr(min_isr))
    assert but_waits(found) == [
        scored(
            exposure_us=1_000_000,
            at_min_isr_us=150_000,
            under_min_isr_us=850_000,
            leader_alone_us=850_000,
            under_replicated_us=850_000,
            high_watermark_stalled_us=999_000,  # from 1 ms: below min.insync.replicas HW stands still
            stalled_under_min_isr_us=850_000,
            lost=0,  # none is acknowledged
            isr_writes=1,
            refused_appends=1,  # at 200 ms
            never_acknowledged=1,  # that of 1 ms, 999 ms before the end
        )
    ]
    # Judged from its fetch on. In the ISR from 102 to 150 ms although it is late: 1000 - 48.
    assert by_lag(found) == [(2, 0, 1_000_000, 952_000, 0)]


def test_waiting_appends_are_acknowledged_when_the_dead_follower_leaves(ledger_of: LedgerOf) -> None:
    found = ledger_of(log_of(*DEAD, append(200 * MS, 2), append(210 * MS, 2)), with_min_isr(1))
    assert but_waits(found) == [
        scored(
            exposure_us=1_000_000,
            at_min_isr_us=850_000,
            leader_alone_us=850_000,
            under_replicated_us=850_000,
            high_watermark_stalled_us=149_000,  # 1 to 150 ms
            lost=2,
            isr_writes=1,
            acknowledged_appends=3,
            acks_all_latency_max_us=149_000,
            latencies=(0, 0, 149_000),  # alone, the leader acknowledges at once; so it does what is there already
        )
    ]


def test_appends_are_refused_although_nothing_waits(ledger_of: LedgerOf) -> None:
    """HW stands still from 1 to 150 ms; then the leader is alone, and before 3.7 HW follows the log end."""
    (score,) = ledger_of(log_of(*DEAD), by("kafka-3.3")._replace(min_insync_replicas=2)).scores
    assert (score.high_watermark_stalled_us, score.under_min_isr_us) == (149_000, 850_000)
    assert score.stalled_under_min_isr_us == 0


def test_only_appends_that_ask_for_all_are_counted(ledger_of: LedgerOf) -> None:
    log = log_of(append(0, 1, acks=1), append(1 * MS, 2, acks=0), isr=(1,), end_us=10 * MS)
    for min_isr in 1, 2:
        (score,) = ledger_of(log, with_min_isr(min_isr)).scores
        assert (score.refused_appends, score.acknowledged_appends, score.never_acknowledged) == (0, 0, 0)


def test_writes_of_the_isr_are_counted_not_members(ledger_of: LedgerOf) -> None:
    """Both leave at 150 ms by one write, and come back by one each, at 200 and 210 ms."""
    rows = fetch(0, 2, 0), fetch(0, 3, 0), append(1 * MS, 1), fetch(200 * MS, 2, 1), fetch(210 * MS, 3, 1)
    found = ledger_of(log_of(*rows, replicas=(1, 2, 3), isr=(1, 2, 3), end_us=400 * MS), by("kafka-3.7"))
    assert but_waits(found) == [
        scored(
            exposure_us=400_000, at_min_isr_us=50_000, leader_alone_us=50_000, under_replicated_us=60_000,
            high_watermark_stalled_us=149_000, lost=1,
            isr_writes=3, acknowledged_appends=1, acks_all_latency_max_us=149_000, latencies=(149_000,),
        )
    ]  # fmt: skip
    # Late members from 102 to 150 ms; until their fetches they are late outsiders.
    assert by_lag(found) == [(2, 0, 400_000, 352_000, 0), (3, 0, 400_000, 352_000, 0)]


# -- what no rule should let happen


def test_a_member_whose_log_was_cut_puts_records_at_risk(ledger_of: LedgerOf) -> None:
    """HW is 5 from 1 ms on. From 2 to 5 ms the follower has 3, from 7 ms on 1, and from 8 ms on 0."""
    fetches = [fetch(us * MS, 2, end) for us, end in ((1, 5), (2, 3), (5, 5), (7, 1), (8, 0))]
    found = ledger_of(log_of(append(0, 5), *fetches, end_us=10 * MS), by("kafka-3.7"))
    assert but_waits(found) == [
        scored(
            exposure_us=10_000, high_watermark_stalled_us=1000, acknowledged_appends=1,
            acks_all_latency_max_us=1000, latencies=(1000,), loss_exposed_us=3000 + 3000, loss_records_max=5,
            members_below_high_watermark=2,
            first_violation_us=START_US + 2 * MS, first_violation=1,
        )
    ]  # fmt: skip
    assert by_lag(found) == [(2, 0, 9000, 9000, 0)]  # judged from 1 ms on, and never late


@pytest.mark.parametrize(("us", "start", "passed"), [(101_999, 0, 1), (102_000, 0, 0), (101_999, 5, 0), (50_000, 5, 0)])
def test_the_high_watermark_rises_past_an_outsider(ledger_of: LedgerOf, us: int, start: int, passed: int) -> None:
    """Follower 3 lacks the record of 1 ms, and is late from 102 ms on. From offset 5 on, its log end is unknown."""
    rows = append(1 * MS, start + 1), fetch(us, 2, start + 1)
    log = log_of(*rows, replicas=(1, 2, 3), isr=(1, 2), end_us=110 * MS, start_offset=start, start_high_watermark=start)
    found = ledger_of(log, by("kafka-0.9"))
    first = {"first_violation_us": START_US + us, "first_violation": 2} if passed else {}
    assert but_waits(found) == [
        scored(
            exposure_us=110_000, under_replicated_us=110_000, high_watermark_stalled_us=us - 1 * MS,
            acknowledged_appends=1, acks_all_latency_max_us=us - 1 * MS, latencies=(us - 1 * MS,),
            passed_within_lag_time=passed, **first,
        )
    ]  # fmt: skip
    # Follower 2 was in the ISR at the start, so it is judged from 101 ms on, or from its fetch if that is earlier. If
    # it started at offset 5, it is late until its fetch from 101 ms on; if at 0, from 102 ms on.
    # Follower 3 never fetches.
    judged_us = 110_000 - min(us, 101_000)
    late_us = max(0, us - (101_000 if start else 102_000))
    assert by_lag(found) == [(2, 0, judged_us, judged_us - late_us, 0), (3, 0, 0, 0, 0)]


def test_a_stranger_in_the_isr() -> None:
    """Where members are bits for positions of the assignment, this cannot even be said."""
    (score,) = but_waits(naive_ledger.ledger(log_of(isr=(1, 2, 7), end_us=10 * MS), by("kafka-3.7")))
    assert score == scored(exposure_us=10_000, isr_outside_assignment=1, first_violation_us=START_US, first_violation=4)


# -- who belongs in the ISR


def test_a_follower_that_never_fetches_is_judged_after_the_lag_time(ledger_of: LedgerOf) -> None:
    """From 101 ms on, as it was in the ISR at the start; what it lacks is as old as the term. It leaves at 150 ms."""
    log = log_of(start_offset=5, start_high_watermark=5)
    assert by_lag(ledger_of(log, by("kafka-3.7"))) == [(2, 0, 899_000, 850_000, 0)]
    assert by_lag(ledger_of(log, by("true-lag"))) == [(2, 0, 899_000, 899_000, 0)]


@pytest.mark.parametrize("rule", ["kafka-2.1", "kafka-3.7"])
def test_a_follower_that_is_fenced_is_not_judged(ledger_of: LedgerOf, rule: str) -> None:
    """From 10 to 60 ms it may not join, whatever it has. Under 2.1 it joins at 20 ms, under 3.7 at 70."""
    fenced = [Row(START_US + 10 * MS, kind, 2, code=0) for kind in (REMOVED, ELIGIBLE)]
    rows = fetch(0, 2, 0), *fenced, fetch(20 * MS, 2, 0), Row(START_US + 60 * MS, ELIGIBLE, 2, code=1)
    found = ledger_of(log_of(*rows, fetch(70 * MS, 2, 0), end_us=100 * MS), by(rule))
    right_us = 50_000 if rule == "kafka-2.1" else 40_000  # outside without reason from 60 to 70 ms
    assert by_lag(found) == [(2, 0, 50_000, right_us, 0)]
    assert [follower.agreed_by_blame_us for follower in found.followers] == [right_us]


def test_a_removed_follower_is_not_judged_until_its_next_fetch(ledger_of: LedgerOf) -> None:
    """0 to 10 and 50 to 100 ms. A fetch with an error shows nothing. It joins at 50 ms, by the only write."""
    rows = fetch(0, 2, 0), Row(START_US + 10 * MS, REMOVED, 2), fetch(20 * MS, 2, 0, error=6), fetch(50 * MS, 2, 0)
    found = ledger_of(log_of(*rows, end_us=100 * MS), by("kafka-3.7"))
    assert by_lag(found) == [(2, 0, 60_000, 60_000, 0)]
    assert but_waits(found) == [
        scored(
            exposure_us=100_000,
            at_min_isr_us=40_000,
            leader_alone_us=40_000,
            under_replicated_us=40_000,
            isr_writes=1,
            lost=0,
        )
    ]


# -- failures that a rule does not see


@pytest.mark.parametrize(("end_us", "misses"), [(152_000, 0), (152_001, 1), (1_000_000, 1)])
def test_a_rule_misses_a_dead_follower(ledger_of: LedgerOf, end_us: int, misses: int) -> None:
    """1 + 150 + 1 ms, and a microsecond. The rule never drops one that holds HW back; until 102 ms it belongs there."""
    found = ledger_of(log_of(*DEAD, end_us=end_us), by("kafka-10853-hw"))
    assert by_lag(found) == [(2, 0, end_us, 102_000, misses)]


def test_a_failure_is_missed_once(ledger_of: LedgerOf) -> None:
    """Dead at 152.001 ms: one. Back at 200 ms, it still lacks the record of 2 ms, for too long: the same failure.

    At 210 ms it lacks nothing. The record of 300 ms is missed at 451.001 ms: another one.
    """
    rows = [append(1 * MS, 1, 1), append(2 * MS, 2, 1), fetch(200 * MS, 2, 1), fetch(210 * MS, 2, 2)]
    log = log_of(fetch(0, 2, 0), *rows, append(300 * MS, 3, 1))
    # Late from 102 to 210, and from 401 to 1000 ms.
    assert by_lag(ledger_of(log, by("kafka-10853-hw"))) == [(2, 0, 1_000_000, 1_000_000 - 108_000 - 599_000, 2)]


@pytest.mark.parametrize(("acks", "other", "misses"), [(-1, 0, 0), (-1, 1, 1), (1, 0, 1)])
def test_a_follower_that_holds_up_no_producer_is_excused_while_alive(
    ledger_of: LedgerOf, acks: int, other: int, misses: int
) -> None:
    """Both fetch at 100 ms, follower 2 from 0 again. Blocking all producers alone is not an excuse."""
    rows = fetch(0, 2, 0), fetch(0, 3, 0), append(1 * MS, 1, acks), fetch(100 * MS, 2, 0), fetch(100 * MS, 3, other)
    log = log_of(*rows, replicas=(1, 2, 3), isr=(1, 2, 3), end_us=190 * MS)
    assert by_lag(ledger_of(log, by("kafka-10853-hw")))[0] == (2, 0, 190_000, 102_000, misses)


# -- days


def test_a_day_begins_at_midnight(ledger_of: LedgerOf) -> None:
    """The shrink falls due at midnight, and the append that comes just then is refused."""
    log = midnight_at(150 * MS, log_of(*DEAD, append(150 * MS, 2), end_us=300 * MS))
    found = ledger_of(log, with_min_isr(2))
    assert but_waits(found) == [
        scored(TODAY - 1, exposure_us=150_000, at_min_isr_us=150_000, high_watermark_stalled_us=149_000),
        scored(
            TODAY, exposure_us=150_000, under_min_isr_us=150_000, leader_alone_us=150_000, under_replicated_us=150_000,
            high_watermark_stalled_us=150_000, stalled_under_min_isr_us=150_000,
            lost=0, isr_writes=1, refused_appends=1, never_acknowledged=1,
        ),
    ]  # fmt: skip
    assert by_lag(found) == [
        (2, TODAY - 1, 150_000, 102_000, 0),
        (2, TODAY, 150_000, 150_000, 0),
    ]
