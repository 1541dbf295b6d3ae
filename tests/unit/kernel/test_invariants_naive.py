"""The naive model keeps what each rule promises, and breaks what it is known to break.

Only ``kafka-4485-design`` keeps all of KAFKA-4485's guarantees: ``PROMISES`` says which ones each
keeps and why not the others, and the logs by hand below are the smallest ones that show those broken.
"""

from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.invariants import (
    Invariant,
    Violation,
    follower_that_keeps_up_joins,
    high_watermark_never_falls,
    high_watermark_waits_for_caught_up,
    high_watermark_waits_for_eligible_caught_up,
    high_watermark_waits_for_isr,
    isr_is_assigned,
    joining_reaches_high_watermark,
    lacking_acknowledged_leaves,
    lagging_leaves_at_once,
    lagging_leaves_at_the_next_check,
    lagging_leaves_unless_braked,
    lagging_leaves_unless_fetching,
    leader_is_in_isr,
    members_fall_below_high_watermark_by_their_own_fetch,
    members_reach_high_watermark,
    no_drop_while_keeping_pace,
    no_drop_within_the_lag_time,
    violations,
)
from tests.invariants_elsewhere import (
    a_majority_reaches_high_watermark,
    lagging_leaves_in_stretched_time,
    lagging_leaves_unless_too_few_remain,
    no_follower_is_dropped,
    who_fetches_stays,
)
from tests.naive import Leader
from tests.naive_rows import Change
from tests.naive_rules import RULES
from tests.naive_truth import APPEND, ELIGIBLE, FETCH, REMOVED, Row, Term
from tests.seen_terms import Results
from tests.strategies import VARIANT_IDS, VARIANTS, Log, Setting, cases

LOGS_A_VARIANT = 150
LOGS_A_VARIANT_NIGHTLY = 5000

# No release keeps guarantee 4 to the letter: a follower that fetches from a lower offset than before (its log was
# truncated), or begins a term below the HW that the log gives for it, stays in the ISR until it lags. But the HW passes
# no member, and no follower joins below it.
ALWAYS: tuple[Invariant, ...] = (
    high_watermark_never_falls,
    leader_is_in_isr,
    isr_is_assigned,
    members_fall_below_high_watermark_by_their_own_fetch,
    joining_reaches_high_watermark,
)
SINCE_0_9 = (*ALWAYS, high_watermark_waits_for_isr, no_drop_within_the_lag_time)
# To join, a fetch has to reach more than HW, no other write may be under way, and since 3.3 one must be eligible: who
# keeps up may stay outside.
SINCE_0_10_2 = (*SINCE_0_9, high_watermark_waits_for_caught_up)
SINCE_3_6 = (*SINCE_0_9, high_watermark_waits_for_eligible_caught_up)
PROMISES: dict[str, tuple[Invariant, ...]] = {
    # It drops by the number of messages, also who fetched within the lag time. HW waits for the ISR only.
    "kafka-0.8": (*ALWAYS, high_watermark_waits_for_isr, lagging_leaves_at_the_next_check),
    "kafka-0.9": (*SINCE_0_9, lagging_leaves_at_the_next_check),
    # HW waits for the pseudo-ISR, not for the ISR. They differ where a fetch gives way to a newer one before its time,
    # as its clock is then ahead: by that clock a member of unknown position may have lagged for too long already.
    "kafka-4485-design": (
        *ALWAYS,
        members_reach_high_watermark,
        high_watermark_waits_for_caught_up,
        follower_that_keeps_up_joins,
        no_drop_within_the_lag_time,
        lagging_leaves_at_once,
    ),
    "kafka-0.10.2": (*SINCE_0_10_2, lagging_leaves_at_the_next_check),
    "kafka-2.1": (*SINCE_0_10_2, lagging_leaves_at_the_next_check),
    "kafka-2.7": (*SINCE_0_10_2, lagging_leaves_at_the_next_check),
    "kafka-3.3": (*SINCE_3_6, lagging_leaves_at_the_next_check),  # and see ``promised``
    "kafka-3.7": (*SINCE_3_6, lagging_leaves_at_the_next_check),
    # A follower with all acknowledged records stays, however long it has lacked others.
    "kafka-10853-acked": (*SINCE_3_6, lacking_acknowledged_leaves),
    # The slowest member holds HW at its own position, which is where it has to be: it stays for ever.
    "kafka-10853-hw": SINCE_3_6,
    "kip-16-catch-up-time": (*SINCE_0_9, lagging_leaves_at_the_next_check),
    "kip-501-pending": (*SINCE_3_6, lagging_leaves_unless_fetching),
    "kip-501-relinquish": (*SINCE_3_6, lagging_leaves_unless_fetching),
    "shulou-braked": (*SINCE_3_6, lagging_leaves_unless_braked),
    "kafka-19996-expand": (*SINCE_3_6, lagging_leaves_at_the_next_check),
    "leader-health": (*SINCE_3_6, lagging_leaves_in_stretched_time),
    # A follower may join below HW and fall below it: HW is what a majority has.
    "majority": (
        high_watermark_never_falls,
        leader_is_in_isr,
        isr_is_assigned,
        a_majority_reaches_high_watermark,
        no_follower_is_dropped,
    ),
    "no-shrink-under-min-isr": (*SINCE_3_6, lagging_leaves_unless_too_few_remain),
    # Who lags no more than others stays, whatever that is.
    "peer-outlier": SINCE_3_6,
    # A follower that fetches stays; and see ``promised``.
    "phi-accrual": SINCE_3_6,
    # By its own measure: a follower is caught up whenever it fetches, or never before its first fetch of a term.
    "any-fetch": (*SINCE_3_6, lagging_leaves_at_the_next_check, who_fetches_stays),
    "fluss-0.9": (*SINCE_3_6, lagging_leaves_at_the_next_check),
    "acks-min-isr": (*SINCE_3_6, lagging_leaves_at_the_next_check),
    "transfer-at-min-isr": (*SINCE_3_6, lagging_leaves_unless_too_few_remain),
    # HW waits for the ISR alone. Positions count from the arrival of a fetch, lags from the append of what is lacking.
    "true-lag": (*SINCE_0_9, no_drop_while_keeping_pace, lagging_leaves_at_once),
}


def replay(log: Log, setting: Setting) -> Results:
    rule = RULES[setting.rule](*setting[1:4], **dict(setting.flags))
    leader = Leader(rule)
    for term in log.terms:
        leader.begin(term)
        leader.play(term.rows, term.end_us)
    return Results(leader.changes, leader.partition_rows, leader.states)


def broken(log: Log, setting: Setting, *invariants: Invariant) -> dict[str, list[Violation]]:
    return violations(invariants, log, setting, replay(log, setting))


def promised(setting: Setting) -> tuple[Invariant, ...]:
    """Up to 3.5 HW waits for everybody, eligible or not; where silence is enough, it drops within the lag time."""
    if setting.rule == "phi-accrual" and dict(setting.flags)["silence_is"]:
        kept = [promise for promise in PROMISES[setting.rule] if promise is not no_drop_within_the_lag_time]
        return (*kept, lagging_leaves_at_the_next_check)
    if setting.rule == "kafka-3.3" and not dict(setting.flags)["only_eligible_hold_high_watermark"]:
        return (*PROMISES[setting.rule], high_watermark_waits_for_caught_up)
    return PROMISES[setting.rule]


def keeps_its_promises(variant: int, examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=examples == LOGS_A_VARIANT,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(cases(variant))
    def keep(case: tuple[Log, Setting]) -> None:
        log, setting = case
        assert not broken(log, setting, *promised(setting))

    keep()


variants = pytest.mark.parametrize("variant", range(len(VARIANTS)), ids=VARIANT_IDS)


@variants
def test_naive_keeps_the_promises_of_the_rule(variant: int) -> None:
    keeps_its_promises(variant, LOGS_A_VARIANT)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@variants
def test_naive_keeps_the_promises_of_the_rule_on_many_more_logs(variant: int) -> None:
    keeps_its_promises(variant, LOGS_A_VARIANT_NIGHTLY)


def test_every_rule_promises_something() -> None:
    assert PROMISES.keys() == RULES.keys() == {rule for rule, _ in VARIANTS}


# Guarantees known to be broken, each with the smallest log that shows it.

START_US = 10_000_000
MS = 1000
LAG_MS = 100


def log_of(*rows: Row, end_us: int = 1000 * MS, **changed: Any) -> Log:
    """One term of leader 1 with follower 2 in the ISR of an empty log; ``rows`` are timed from its start."""
    begun = Term((1, 2), 1, START_US, START_US + end_us, 0, 0, (1, 2), leader_is_new=True)
    return Log((begun._replace(rows=rows, **changed),), LAG_MS)


def append(us: int, end: int, acks: int = -1) -> Row:
    return Row(START_US + us, APPEND, offset=end, code=acks)


def fetch(us: int, replica: int, offset: int, *, error: int = 0, took_us: int = 0) -> Row:
    """A fetch that an io thread takes at once and works on for ``took_us``."""
    begin_us, end_us = START_US + us, START_US + us + took_us
    return Row(begin_us, FETCH, replica, offset, error, -1, begin_us, end_us, end_us, end_us)


def by(rule: str, **flags: int) -> Setting:
    return Setting(rule, LAG_MS, flags=tuple(flags.items()))


def drops(log: Log, setting: Setting) -> list[Change]:
    return [change for change in replay(log, setting).changes if change.kind == "shrink"]


def high_watermark(log: Log, setting: Setting) -> int:
    return replay(log, setting).partition[-1].high_watermark


settings_of_all = pytest.mark.parametrize(
    "setting", [Setting(rule, LAG_MS, flags=flags) for rule, flags in VARIANTS], ids=VARIANT_IDS
)


def test_10853_hw_never_drops_a_dead_follower_and_its_high_watermark_stands_still() -> None:
    dead = log_of(fetch(0, 2, 0), append(1 * MS, 1, acks=1))
    assert [change.time_us - START_US for change in drops(dead, by("kafka-3.7"))] == [150 * MS]
    assert high_watermark(dead, by("kafka-3.7")) == 1
    wrong = by("kafka-10853-hw")
    assert drops(dead, wrong) == []
    assert high_watermark(dead, wrong) == 0
    missed = broken(dead, wrong, lagging_leaves_at_the_next_check)["lagging_leaves_at_the_next_check"]
    assert [where.time_us - START_US for where in missed] == [us * MS for us in range(150, 1001, 50)]


def test_10853_hw_drops_a_follower_that_lacks_nothing() -> None:
    """A follower ahead of HW is out of sync, and the one that holds HW back is in sync."""
    rows = fetch(0, 2, 0), fetch(0, 3, 0), append(1 * MS, 1), fetch(2 * MS, 3, 1)
    log = log_of(*rows, replicas=(1, 2, 3), isr=(1, 2, 3))
    (dropped,) = drops(log, by("kafka-10853-hw"))
    assert (dropped.replica_id, "caught_up" in dropped.causes) == (3, True)
    assert [change.replica_id for change in drops(log, by("kafka-3.7"))] == [2]


def test_kafka_08_drops_a_follower_that_keeps_pace_in_a_burst() -> None:
    log = log_of(fetch(99 * MS, 2, 0), append(99_500, 6), end_us=150 * MS)
    (dropped,) = drops(log, by("kafka-0.8", replica_lag_max_messages=5))
    assert (dropped.lag_ms, dropped.true_lag_ms, "keeping_pace" in dropped.causes) == (1, 0, True)
    kept = by("kafka-0.8", replica_lag_max_messages=5), no_drop_within_the_lag_time
    assert broken(log, *kept).keys() == {"no_drop_within_the_lag_time"}
    assert drops(log, by("kafka-0.8", replica_lag_max_messages=6)) == drops(log, by("kafka-0.9")) == []


def test_kafka_08_never_drops_a_follower_whose_fetches_fail() -> None:
    """An error makes its position unknown, which is never too far behind, and yet shows that it lives."""
    failing = [fetch(us * MS, 2, 0, error=6) for us in range(0, 1000, 50)]
    log = log_of(*sorted([append(1 * MS, 1000), *failing]))
    assert drops(log, by("kafka-0.8", replica_lag_max_messages=5)) == []
    assert high_watermark(log, by("kafka-0.8", replica_lag_max_messages=5)) == 0
    assert len(drops(log, by("kafka-0.8", replica_lag_max_messages=5, recorded_before_read=1))) > 0
    assert len(drops(log, by("kafka-0.9"))) == 1


def test_kafka_09_drops_a_follower_that_is_always_one_batch_behind() -> None:
    """Every fetch reaches the log end of the previous one, and finds another append."""
    rows = [row for n in range(12) for row in (append(20 * n * MS, n + 1), fetch(20 * n * MS + 1, 2, n))]
    log = log_of(*rows, end_us=240 * MS)
    (dropped,) = drops(log, by("kafka-0.9"))
    assert (dropped.time_us - START_US, dropped.lag_ms, dropped.true_lag_ms) == (200 * MS, 200, 20)
    assert broken(log, by("kafka-0.9"), no_drop_within_the_lag_time, no_drop_while_keeping_pace).keys() == {
        "no_drop_while_keeping_pace"
    }
    assert drops(log, by("kafka-0.10.2")) == drops(log, by("kafka-4485-design")) == []


@settings_of_all
def test_a_member_whose_log_was_cut_stays_below_the_high_watermark(setting: Setting) -> None:
    """HW cannot go back to it, and nothing but the lag drops a member; the design has a rule for that."""
    log = log_of(append(0, 5), fetch(1 * MS, 2, 5), fetch(2 * MS, 2, 3), end_us=10 * MS)
    assert not broken(log, setting, members_fall_below_high_watermark_by_their_own_fetch)
    if setting.rule == "kafka-4485-design":
        (dropped,) = drops(log, setting)
        assert (dropped.time_us - START_US, dropped.follower_log_end_offset, dropped.high_watermark) == (2 * MS, 3, 5)
    else:
        (first, *_) = broken(log, setting, members_reach_high_watermark)["members_reach_high_watermark"]
        assert (first.time_us - START_US, first.what) == (2 * MS, "at 3, below 5")


@settings_of_all
def test_a_failed_fetch_puts_no_member_below_the_high_watermark(setting: Setting) -> None:
    """Where an error makes the position unknown, HW waits until it is known again."""
    rows = append(0, 5), fetch(1 * MS, 2, 5), append(2 * MS, 6), fetch(3 * MS, 2, 5, error=6), append(4 * MS, 7)
    log = log_of(*rows, fetch(5 * MS, 2, 6), end_us=10 * MS)
    assert not broken(log, setting, members_reach_high_watermark, high_watermark_waits_for_isr)
    forgets = setting.rule in {"kafka-0.9", "kafka-0.10.2"} or dict(setting.flags).get("errors_change_nothing") == 0
    forgets |= setting.rule == "kafka-0.8" and "recorded_before_read" not in dict(setting.flags)
    positions = [position for position, _ in groupby(row.log_end_offset for row in replay(log, setting).replica)]
    assert positions == [-1, 5, -1, 6] if forgets else positions[-1] == 6


@pytest.mark.parametrize(("rule", "stays"), [("kafka-3.7", True), ("kafka-0.9", True), ("kafka-4485-design", False)])
def test_a_member_may_begin_a_term_below_the_high_watermark(rule: str, *, stays: bool) -> None:
    """HW at the start is what the broker's log says; the rule may know a lower position from the term before."""
    (first,) = log_of(append(0, 5), fetch(1 * MS, 2, 3), end_us=2 * MS).terms
    begin_us = START_US + 3 * MS
    second = first._replace(
        rows=(), start_us=begin_us, end_us=begin_us + 1, start_offset=5, start_high_watermark=5, leader_is_new=False
    )
    found = broken(Log((first, second)), by(rule), members_reach_high_watermark)
    assert found == ({"members_reach_high_watermark": [Violation(begin_us, 2, "at 3, below 5")]} if stays else {})


def test_the_design_passes_a_member_of_unknown_position_by_a_clock_that_is_ahead() -> None:
    """The fetch was to be read at 150 ms and gives way at 50 ms: by its clock replica 3 was silent for too long."""
    ahead_us = START_US + 150 * MS
    early = fetch(0, 2, 5)._replace(handled_us=ahead_us, processed_us=ahead_us, released_us=ahead_us, until_us=ahead_us)
    log = log_of(early, fetch(50 * MS, 2, 5), replicas=(1, 2, 3), isr=(1, 2, 3), start_offset=5)
    invariants = high_watermark_waits_for_isr, high_watermark_waits_for_caught_up, members_reach_high_watermark
    found = broken(log, by("kafka-4485-design"), *invariants)
    assert found == {"high_watermark_waits_for_isr": [Violation(START_US + 50 * MS, 3, "passed by 5")]}


@pytest.mark.parametrize("only_eligible", [0, 1])
def test_until_35_a_follower_that_cannot_join_holds_the_high_watermark(only_eligible: int) -> None:
    removed = [Row(START_US + 1, kind, 3, code=0) for kind in (REMOVED, ELIGIBLE)]
    rows = fetch(0, 2, 0), fetch(0, 3, 0), *removed, append(2 * MS, 1), fetch(3 * MS, 2, 1)
    log = log_of(*rows, replicas=(1, 2, 3), isr=(1, 2, 3), end_us=10 * MS)
    setting = by("kafka-3.3", only_eligible_hold_high_watermark=only_eligible)
    assert high_watermark(log, setting) == only_eligible
    assert bool(broken(log, setting, high_watermark_waits_for_caught_up)) == bool(only_eligible)


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("kafka-10853-acked", (append(1 * MS, 1),)),
        ("kip-501-pending", (append(1 * MS, 1, acks=1), fetch(1 * MS, 2, 0, took_us=900 * MS))),
        ("shulou-braked", (append(1 * MS, 1, acks=1),)),
    ],
)
def test_some_rules_keep_members_that_lag(rule: str, rows: tuple[Row, ...]) -> None:
    """Nothing was acknowledged; the fetch is under way; the ISR changed a second ago, as the term began."""
    log = log_of(fetch(0, 2, 0), *rows, end_us=900 * MS)
    assert drops(log, by(rule)) == []
    assert broken(log, by(rule), lagging_leaves_at_the_next_check, *PROMISES[rule]).keys() == {
        "lagging_leaves_at_the_next_check"
    }
    assert len(drops(log, by("kafka-3.7"))) == 1


def test_with_acks_all_alone_a_dead_follower_stops_the_high_watermark_of_10853_acked() -> None:
    """With one acknowledged append it leaves."""
    dead = [fetch(0, 2, 0), append(1 * MS, 1)]
    assert high_watermark(log_of(*dead), by("kafka-10853-acked")) == 0
    assert high_watermark(log_of(*dead, append(2 * MS, 2, acks=1)), by("kafka-10853-acked")) == 2
