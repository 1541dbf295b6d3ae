"""Doubts of the naive model about its own shrinks: what they depend on that a log does not show.

For example when the periodic check ran, or which of two events within a millisecond was first.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.naive import Follower, Leader
    from tests.naive_truth import Fetch, Row

AWAKE_US = 100_000
"""How long a leader takes after a silence until it has checked everybody."""

DAY_US = 86_400_000_000
OTHERS_LINE = -2  # code of a check known from a line about another partition
ABSENT_LINE = -3  # code of a check that would have dropped a follower when it was due, without a line
STARVED_US = 100_000  # a leader that is later than this writes lines late
STAMP_US = 1000  # timestamps are cut to milliseconds
SLACK_US = 2000  # how far from its schedule a logged check may lie


class Return(NamedTuple):
    """When a follower that had been dropped was back in the ISR, and what that drop depended on."""

    until_us: float
    """When it was back at the latest; a starved leader may have taken it back at its next fetch only."""
    undid: str | None
    """The dependencies of its last shrink."""


class Doubts:
    """Shrinks of one leader's term about which a later fetch may still show that it came before the check."""

    def __init__(self, leader: "Leader") -> None:
        """Begin a term in which no shrink is in doubt."""
        self.leader = leader
        self.first = len(leader.changes)  # of this term
        self.doubted: dict[int, tuple[int, int, int, bool]] = {}
        """By replica: when it was dropped; which fetches are of the same moment; which may be before the check; and
        whether a line says that it was dropped there."""
        self.back: dict[int, Return] = {}
        """By replica that came back."""
        self.named: dict[int, int] = {}
        """By replica: the timestamp of the last line that says that the leader dropped it."""
        self.awaited: tuple[int, int] | None = None
        """For a check with its own line: the log end that the line names, and the last instant of its timestamp."""

    def check_us(self) -> int:
        """When the next check runs (us): not before the append that its line names, if its timestamp allows that."""
        if self.awaited is None or self.leader.check_logged != "own" or self.leader.leo >= self.awaited[0]:
            return self.leader.check_us
        return max(self.leader.check_us, self.awaited[1])

    def note_check(self, row: "Row") -> None:
        """Take over the time at which a log line shows that a check ran.

        A line about another partition is ignored if the leader has just woken up, because that instant is more precise.
        """
        leader, of_others = self.leader, row.code == OTHERS_LINE
        self.named[row.replica_id] = row.until_us
        if not leader.rule.period_ms:
            return
        if of_others and leader.truth.silences and leader.check_us == leader.truth.silences[-1][1]:
            return
        if row.time_us - SLACK_US <= leader.check_us <= row.until_us + SLACK_US:
            leader.check_us = row.until_us
            leader.check_logged = {OTHERS_LINE: "others", ABSENT_LINE: "absent"}.get(row.code, "own")
            self._await(row)

    def fall_silent(self) -> None:
        """When the leader pauses, let a check that still waits for an append run at the end of the pause."""
        if self.leader.check_us <= self.leader.now_us:
            self.leader.check_us = self.check_us()

    def _await(self, row: "Row") -> None:
        """Keep the log end that the check's line implies: named in it, or one more than the dropped follower had."""
        followers = [follower.replica for follower in self.leader.remote]
        shown, until_us = row.offset, row.until_us + STAMP_US - 1
        if shown == -1 and row.replica_id in followers:
            shown = self.leader.truth.position(row.replica_id) + 1
        before = self.awaited[0] if self.awaited and self.awaited[1] == until_us else 0
        self.awaited = (max(before, shown), until_us)

    def note_shrink(self, follower: "Follower") -> None:
        """Fill in what a shrink depends on, or keep it in doubt until no later fetch can change that any more."""
        leader, truth, now_us = self.leader, self.leader.truth, self.leader.now_us
        error_us = truth.error_us(now_us)
        lacks_since = truth.missing_since_us(follower.replica)
        # Only the schedule of a periodic check can be wrong by more than timestamps, and only where no line shows it.
        by_schedule = leader.rule.period_ms > 0 and not leader.check_logged
        others = leader.rule.period_ms > 0 and leader.check_logged == "others"
        at_any_time = by_schedule and not leader.term.phase_known
        wakes_up = by_schedule and bool(truth.silences) and now_us == truth.silences[-1][1]
        self.doubted.pop(follower.replica, None)
        absent = leader.rule.period_ms > 0 and leader.check_logged == "absent"
        if absent:
            check_error_us = error_us + max(0, now_us - leader.check_due_us)
        elif at_any_time:
            check_error_us = leader.rule.period_ms * 1000
        else:
            check_error_us = error_us + (AWAKE_US if wakes_up or others else 0)
        self._amend(follower.replica, now_us, time_error_ms=math.ceil(check_error_us / 1000))
        stamp_us = self.named.get(follower.replica, -STAMP_US)
        named = leader.check_logged == "own" and stamp_us <= now_us < stamp_us + STAMP_US
        back = self.back.get(follower.replica, Return(0, None))
        lacks_lately = lacks_since is not None and lacks_since >= now_us - error_us
        if now_us < back.until_us or (lacks_lately and not named):
            self._depends(follower.replica, now_us, "event_order")
        elif back.undid and follower.cu * 1000 < back.until_us:
            self._depends(follower.replica, now_us, back.undid)
        elif not (leader.term.isr_known or named or follower.replica in self.back or self._seen_at_log_end(follower)):
            self._depends(follower.replica, now_us, "isr_at_start")
        elif absent or (
            leader.rule.period_ms and not at_any_time and not self._dropped_at(follower, now_us - error_us)
        ):
            self._depends(follower.replica, now_us, "check_time")
        else:
            self.doubted[follower.replica] = now_us, now_us + error_us, now_us + check_error_us, named

    def _seen_at_log_end(self, follower: "Follower") -> bool:
        """Whether the follower lacked no record at some time in this term: the rule would have taken it in then."""
        truth, replica = self.leader.truth, follower.replica
        return truth.true_lag_us(replica, self.leader.now_us) == 0 or truth.caught_us[replica] > truth.term.start_us

    def _dropped_at(self, follower: "Follower", at_us: int) -> bool:
        now_us, self.leader.now_us = self.leader.now_us, at_us
        dropped = not self.leader.rule.brakes(self.leader) and self.leader.rule.out_of_sync(follower, self.leader)
        self.leader.now_us = now_us
        return dropped

    def _out_of_sync_at(self, follower: "Follower", at_us: int) -> bool:
        now_us, self.leader.now_us = self.leader.now_us, at_us
        late = self.leader.rule.out_of_sync(follower, self.leader)
        self.leader.now_us = now_us
        return late

    def note_recorded(self, fetch: "Fetch") -> None:
        """Note a fetch that the leader records now, before the rule reacts to it."""
        now_us, truth, replica = self.leader.now_us, self.leader.truth, fetch.row.replica_id
        truth.note_work(now_us, fetch.row.time_us, fetch.row.processed_us)
        if replica in self.back and self.back[replica].until_us == math.inf:
            self.back[replica] = self.back[replica]._replace(until_us=now_us + truth.error_us(now_us))

    def reconsider(self, follower: "Follower") -> None:
        """Decide a shrink in doubt by the latest fetch: if that could have prevented it, it depends on their order."""
        if follower.replica not in self.doubted:
            return
        dropped_us, surely_us, until_us, named = self.doubted[follower.replica]
        latest = self.leader.truth.fetches[follower.replica][-1]
        fetch = latest.row
        arrived_us, earliest_us = fetch.time_us, dropped_us - (surely_us - dropped_us)
        if arrived_us > until_us or self._another_day(dropped_us) or (named and self._at_log_end(latest)):
            del self.doubted[follower.replica]
        elif not self._out_of_sync_at(follower, max(fetch.handled_us, earliest_us)):
            del self.doubted[follower.replica]
            self._depends(follower.replica, dropped_us, self._on(arrived_us, surely_us))

    def note_expand(self, follower: "Follower") -> None:
        """Note that a follower is back; if its fetch may precede the check, the shrink depends on the order."""
        dropped_us, surely_us, until_us, named = self.doubted.pop(follower.replica, (0, 0, -1, False))
        latest = self.leader.truth.fetches[follower.replica][-1]
        arrived_us, settled = latest.row.time_us, named and self._at_log_end(latest)
        if arrived_us <= until_us and not self._another_day(dropped_us) and not settled:
            self._depends(follower.replica, dropped_us, self._on(arrived_us, surely_us))
        shrinks = [one for one in self.leader.changes[self.first :] if one.kind == "shrink"]
        own = [one for one in shrinks if one.replica_id == follower.replica and one.made_by == "rule"]
        error_us = self.leader.truth.error_us(self.leader.now_us)
        back_us = math.inf if error_us > STARVED_US else self.leader.now_us + error_us
        self.back[follower.replica] = Return(back_us, own[-1].depends_on if own else None)

    @staticmethod
    def _at_log_end(fetch: "Fetch") -> bool:
        """Whether the fetch reached the leader's log end.

        Before the check it would have kept the follower in the ISR, so a line that names the drop shows that it came
        later.
        """
        end = fetch.read_log_end_offset
        return end is not None and fetch.row.code == 0 and fetch.row.offset >= end

    def _another_day(self, dropped_us: int) -> bool:
        """Whether the UTC day of the shrink is over: its rows are written by then and stay as they are."""
        return self.leader.now_us // DAY_US != dropped_us // DAY_US

    def _on(self, arrived_us: int, surely_us: int) -> str:
        if arrived_us <= surely_us:
            return "event_order"
        return "check_time" if self.leader.term.phase_known else "check_phase"

    def _depends(self, replica: int, dropped_us: int, on: str) -> None:
        self._amend(replica, dropped_us, depends_on=on)

    def _amend(self, replica: int, dropped_us: int, **columns: Any) -> None:
        for number, change in reversed([*enumerate(self.leader.changes)]):
            if (change.kind, change.replica_id, change.time_us) == ("shrink", replica, dropped_us):
                self.leader.changes[number] = change._replace(**columns)
                return
