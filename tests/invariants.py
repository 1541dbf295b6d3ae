"""Promises that each rule of Kafka makes about the ISR and HW; each function yields where a replay breaks one.

Timelines order what happened in one microsecond within a timeline, not between them. So a promise about the settled
state of a microsecond looks at the last row of each, and a promise about a moment within it holds if any combination of
the states shown there keeps it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import NamedTuple

from tests.naive_rows import Change
from tests.naive_truth import APPEND, FETCH, REMOVED
from tests.seen_terms import Results, Seen, settled, terms_seen, visible
from tests.strategies import Log, Setting


class Violation(NamedTuple):
    """A broken promise: when, for which replica (the leader's id if it is about HW), and what was seen instead."""

    time_us: int
    replica_id: int
    what: str


def high_watermark_never_falls(seen: Seen) -> Iterator[Violation]:
    """KAFKA-4485's guarantee 3: HW never falls within a leader's term; the next leader may begin below."""
    reached = seen.start_high_watermark
    for row in seen.partition:
        if row.high_watermark < reached:
            yield Violation(row.time_us, seen.term.leader, f"from {reached} to {row.high_watermark}")
        reached = row.high_watermark


def leader_is_in_isr(seen: Seen) -> Iterator[Violation]:
    """The leader is in its ISR at every instant of its term."""
    for row in seen.partition:
        if seen.term.leader not in row.isr:
            yield Violation(row.time_us, seen.term.leader, f"not in {sorted(row.isr)}")


def isr_is_assigned(seen: Seen) -> Iterator[Violation]:
    """Only assigned replicas are in the ISR, and no observers: a fetch of another broker must not bring it in."""
    for row in seen.partition:
        for stranger in row.isr - set(seen.term.voters):
            yield Violation(row.time_us, stranger, "not assigned")


# -- guarantee 4: an ISR member's log end offset >= HW


def members_reach_high_watermark(seen: Seen) -> Iterator[Violation]:
    """KAFKA-4485's guarantee 4: no ISR member's log ends below HW; an unknown log end is allowed."""
    for replica, rows in seen.replica.items():
        for us in _instants(seen, replica):
            state, high_watermark = settled(rows, us), settled(seen.partition, us).high_watermark
            if state.in_isr and 0 <= state.log_end_offset < high_watermark:
                yield Violation(us, replica, f"at {state.log_end_offset}, below {high_watermark}")


def members_fall_below_high_watermark_by_their_own_fetch(seen: Seen) -> Iterator[Violation]:
    """Guarantee 4 for rules that drop no follower for its log end: HW itself never passes a member.

    A follower that fetches from a lower offset than before (its log was truncated), or begins the term below the
    logged HW, is below HW from that very microsecond. HW has not passed it.
    """
    for violation in members_reach_high_watermark(seen):
        rows = [row for row in seen.replica[violation.replica_id] if row.time_us <= violation.time_us]
        here = rows[-1].log_end_offset
        since = next((n for n in range(len(rows), 0, -1) if rows[n - 1].log_end_offset != here), 0)
        marks = [row.high_watermark for row in visible(seen.partition, rows[since].time_us)]
        if max(marks) <= here:
            yield violation


def joining_reaches_high_watermark(seen: Seen) -> Iterator[Violation]:
    """Guarantee 4 at each expand: the follower that joins the ISR has reached HW."""
    for change in seen.changes:
        if change.kind == "expand" and change.follower_log_end_offset < change.high_watermark:
            yield Violation(change.time_us, change.replica_id, f"joins below {change.high_watermark}")


# -- guarantee 1: HW waits for who keeps up


def high_watermark_waits_for_isr(seen: Seen) -> Iterator[Violation]:
    """HW never passes the log end of an ISR member, even where that log end is unknown (-1)."""
    for us, high_watermark in high_watermark_moves(seen):
        for replica, rows in seen.replica.items():
            states = visible(rows, us)
            if all(state.in_isr and state.log_end_offset < high_watermark for state in states):
                yield Violation(us, replica, f"passed by {high_watermark}")


def high_watermark_waits_for_caught_up(seen: Seen) -> Iterator[Violation]:
    """Guarantee 1 of KAFKA-4485: HW passes no follower caught up within the lag time, in the ISR or not.

    A move caused by a fetch is decided by the time of that fetch, not by the time of its effect.
    """
    yield from _passes(seen, eligible_only=False)


def high_watermark_waits_for_eligible_caught_up(seen: Seen) -> Iterator[Violation]:
    """Guarantee 1 since Kafka 3.6: HW does not wait for followers that may not join or have not fetched yet."""
    yield from _passes(seen, eligible_only=True)


def _passes(seen: Seen, *, eligible_only: bool) -> Iterator[Violation]:
    for us, high_watermark in high_watermark_moves(seen):
        recorded = [(at, row) for r in seen.replica for at, row in seen.recorded(r)]
        clocks = {us // 1000} | {row.handled_us // 1000 for at, row in recorded if at == us}
        passed_by_clock = []
        for clock in clocks:
            passed = [
                replica
                for replica, rows in seen.replica.items()
                if not (eligible_only and not all(seen.may_be_eligible(replica, us)))
                and all(
                    clock - state.last_caught_up_time_ms <= seen.limit_ms
                    and (-1 if not eligible_only else 0) <= state.log_end_offset < high_watermark
                    for state in visible(rows, us)
                )
            ]
            passed_by_clock.append(passed)
        if all(passed_by_clock):
            yield Violation(us, passed_by_clock[0][0], f"passed by {high_watermark}")


def high_watermark_moves(seen: Seen) -> Iterator[tuple[int, int]]:
    """Yield each rise of HW in a term: the time (us), and the offset that it rises to."""
    reached = seen.start_high_watermark
    for row in seen.partition:
        if row.high_watermark > reached:
            yield row.time_us, row.high_watermark
        reached = row.high_watermark


def follower_that_keeps_up_joins(seen: Seen) -> Iterator[Violation]:
    """Guarantee 1, second half: a follower within the lag time that reaches HW is in the ISR as soon as it fetches."""
    for replica, rows in seen.replica.items():
        removed_us = {row.time_us for row in seen.rows(REMOVED, replica)}
        for us, fetch in seen.recorded(replica):
            if us > seen.end_us or us in removed_us or fetch.code:
                continue
            state = settled(rows, us)
            keeps_up = us // 1000 - state.last_caught_up_time_ms <= seen.limit_ms
            if not state.in_isr and keeps_up and state.log_end_offset >= settled(seen.partition, us).high_watermark:
                yield Violation(us, replica, "stays outside")


def no_drop_within_the_lag_time(seen: Seen) -> Iterator[Violation]:
    """Guarantee 1 for shrinks: the rule drops no follower with a lag, by its own clock, within the lag time.

    Followers known to be below HW are left out: they do not belong in the ISR anyway.
    """
    for change in drops_by_rule(seen):
        below = 0 <= change.follower_log_end_offset < change.high_watermark
        if change.lag_ms <= seen.limit_ms and not below:
            yield Violation(change.time_us, change.replica_id, f"dropped, {change.lag_ms} ms behind")


def no_drop_while_keeping_pace(seen: Seen) -> Iterator[Violation]:
    """The rule drops no follower with a true lag below the lag time.

    A lag equal to the lag time is allowed, because rules compare whole milliseconds.
    """
    for change in drops_by_rule(seen):
        if change.true_lag_ms < seen.limit_ms:
            yield Violation(change.time_us, change.replica_id, f"dropped, {change.true_lag_ms} ms behind")


def drops_by_rule(seen: Seen) -> Iterator[Change]:
    return (change for change in seen.changes if change.kind == "shrink" and change.made_by == "rule")


# -- guarantee 2: who lags leaves

Excuse = Callable[[Seen, int, int], bool]


def lagging_leaves_at_once(seen: Seen) -> Iterator[Violation]:
    """KAFKA-4485's guarantee 2: no ISR member that lacks records is out of sync for longer than the lag time.

    For members that lack nothing the timeline does not say when they were caught up; they do not lag.
    """
    for replica, rows in seen.replica.items():
        instants = [*_instants(seen, replica), seen.end_us + 1]
        for begin_us, end_us in pairwise(instants):
            state = settled(rows, begin_us)
            overdue_us = max(begin_us, (state.last_caught_up_time_ms + seen.limit_ms + 1) * 1000)
            lacks = max(state.log_end_offset, 0) < settled(seen.partition, begin_us).log_end_offset
            if state.in_isr and lacks and overdue_us < end_us:
                yield Violation(overdue_us, replica, "stays, overdue")


def lagging_leaves_at_the_next_check(seen: Seen) -> Iterator[Violation]:
    """Guarantee 2 for rules with periodic checks: each check drops every member that is out of sync."""
    yield from stays_unless(seen, lambda _seen, _replica, _us: False)


def lagging_leaves_unless_fetching(seen: Seen) -> Iterator[Violation]:
    """Guarantee 2 for KIP-501: a check may keep an overdue member only while a fetch of it is pending.

    Whether a fetch reached the offset that the one before should have reached is not in the timelines.
    """

    def fetching(seen: Seen, replica: int, us: int) -> bool:
        fetches = [row for row in seen.rows(FETCH, replica) if row.time_us < us]
        if not fetches or fetches[-1].code:
            return False
        last = fetches[-1]
        begin_us = last.time_us if seen.flag("pending_from") else last.handled_us
        return begin_us < us <= last.until_us

    yield from stays_unless(seen, fetching)


def lagging_leaves_unless_braked(seen: Seen) -> Iterator[Violation]:
    """Guarantee 2 for `shulou-braked`: an overdue member may stay only soon after the ISR changed or was written."""

    def braked(seen: Seen, _replica: int, us: int) -> bool:
        isrs = [row for row in seen.partition if row.time_us <= us]
        changed_us = [b.time_us for a, b in pairwise(isrs) if a.isr != b.isr]
        answers_us = {seen.answered_us(asked) for asked in seen.asked_us}
        written_us = [t for t in changed_us if t in answers_us]
        since_change = us // 1000 - max([seen.term.start_us, *changed_us]) // 1000
        if since_change <= seen.flag("isr_change_brake_ms", 5000):
            return True
        since_write = us // 1000 - max(written_us, default=0) // 1000
        return bool(written_us) and since_write <= seen.flag("isr_write_brake_ms", 60000)

    yield from stays_unless(seen, braked)


def lacking_acknowledged_leaves(seen: Seen) -> Iterator[Violation]:
    """Guarantee 2 for KAFKA-10853: a check may keep an overdue member that has every acknowledged record."""

    def lacks_nothing_acknowledged(seen: Seen, replica: int, us: int) -> bool:
        taken = [row for row in seen.term.rows if row.kind == APPEND and row.time_us < us and row.code in (0, 1)]
        mark = min(row.high_watermark for row in visible(seen.partition, us))
        position = max(row.log_end_offset for row in visible(seen.replica[replica], us))
        return position >= max([mark, *(row.offset for row in taken)])

    yield from stays_unless(seen, lacks_nothing_acknowledged)


def stays_unless(seen: Seen, excuse: Excuse) -> Iterator[Violation]:
    """Yield members that a check should have dropped and did not, unless ``excuse`` (seen, replica, us) allows it.

    Checks while another ISR write is under way are left out, because they cannot drop any member.
    """
    for us in seen.checks_us:
        if us > seen.end_us or any(asked < us < seen.answered_us(asked) for asked in seen.asked_us):
            continue
        dropped = {change.replica_id for change in seen.changes if change.time_us == us and change.kind == "shrink"}
        for replica, rows in seen.replica.items():
            states = product(visible(rows, us), visible(seen.partition, us))
            overdue = all(
                state.in_isr
                and max(state.log_end_offset, 0) < partition.log_end_offset
                and us // 1000 - state.last_caught_up_time_ms > seen.limit_ms
                for state, partition in states
            )
            if overdue and replica not in dropped and not excuse(seen, replica, us):
                yield Violation(us, replica, "stays, overdue")


def _instants(seen: Seen, replica: int) -> list[int]:
    """Times (us) of all rows of this follower's and of the partition's timeline, sorted."""
    return sorted({row.time_us for row in seen.partition} | {row.time_us for row in seen.replica[replica]})


Invariant = Callable[[Seen], Iterator[Violation]]


def violations(
    invariants: Sequence[Invariant], log: Log, setting: Setting, results: Results
) -> dict[str, list[Violation]]:
    """Check the results of one rule against invariants; return violations by the invariant's name, broken ones only."""
    terms = list(terms_seen(log, setting, results))
    found = {invariant.__name__: [where for seen in terms for where in invariant(seen)] for invariant in invariants}
    return {name: where for name, where in found.items() if where}
