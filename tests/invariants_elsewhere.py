"""Promises that the rules taken from other systems make, in the form of ``tests.invariants``."""

from collections.abc import Iterator

from tests.invariants import Violation, drops_by_rule, high_watermark_moves, stays_unless
from tests.seen_terms import Seen, visible


def lagging_leaves_unless_too_few_remain(seen: Seen) -> Iterator[Violation]:
    """Guarantee 2 for rules that keep min.insync.replicas members: an overdue one may stay if too few would remain."""

    def too_few_remain(seen: Seen, _replica: int, us: int) -> bool:
        overdue = [
            any(
                state.in_isr and us // 1000 - state.last_caught_up_time_ms > seen.limit_ms
                for state in visible(rows, us)
            )
            for rows in seen.replica.values()
        ]
        members = min(len(row.isr) for row in visible(seen.partition, us))
        return members - sum(overdue) < seen.setting.min_insync_replicas

    yield from stays_unless(seen, too_few_remain)


def lagging_leaves_in_stretched_time(seen: Seen) -> Iterator[Violation]:
    """Guarantee 2 for the rule that stretches the lag time: no member stays beyond the longest possible lag time."""

    def within(seen: Seen, replica: int, us: int) -> bool:
        longest_ms = seen.limit_ms * (1 + seen.flag("most_lateness", 8))
        return any(us // 1000 - row.last_caught_up_time_ms <= longest_ms for row in visible(seen.replica[replica], us))

    yield from stays_unless(seen, within)


def a_majority_reaches_high_watermark(seen: Seen) -> Iterator[Violation]:
    """Raft's promise: a majority of the replicas, counting the leader, has every record below HW."""
    for us, high_watermark in high_watermark_moves(seen):
        reach = [
            any(row.log_end_offset >= high_watermark for row in visible(rows, us)) for rows in seen.replica.values()
        ]
        if 2 * (1 + sum(reach)) <= len(seen.term.voters):
            yield Violation(us, seen.term.leader, f"{high_watermark} is on {1 + sum(reach)}")


def who_fetches_stays(seen: Seen) -> Iterator[Violation]:
    """No member is dropped that fetched within the lag time, and was a member then."""
    for change in drops_by_rule(seen):
        for at_us, fetch in seen.recorded(change.replica_id):
            lately = change.time_us // 1000 - fetch.handled_us // 1000 <= seen.limit_ms
            a_member = all(change.replica_id in row.isr for row in visible(seen.partition, at_us))
            if at_us < change.time_us and lately and fetch.code == 0 and a_member:
                yield Violation(change.time_us, change.replica_id, "dropped, though it fetches")


def no_follower_is_dropped(seen: Seen) -> Iterator[Violation]:
    """The rule itself never drops a follower; removals by the controller come from the log and are allowed."""
    for change in drops_by_rule(seen):
        yield Violation(change.time_us, change.replica_id, "dropped")
