"""A leader, its followers and its ISR, one event at a time: slow, obvious, and written from the spec alone.

It shares no line with ``udfs``. The events are in ``tests.naive_truth``, the rules in ``tests.naive_rules``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.naive_doubts import Doubts
from tests.naive_rows import Change, PartitionRow, ReplicaRow
from tests.naive_truth import APPEND, CHECK, ELIGIBLE, FETCH, REMOVED, SILENCE, Fetch, Row, Term, Truth

if TYPE_CHECKING:  # rules are written in terms of the leader
    from tests.naive_releases import Rule

CAUSES = (
    "caught_up", "keeping_pace", "slow_leader", "unacked_only", "controller", "follower_stopped", "follower_slow",
    "unknown",
)  # fmt: skip
IN_FLIGHT_US = 600_000  # before its end a log lacks requests that are not answered yet
COMPLETION, RELINQUISHMENT, COMMIT, CHECK_STEP, READ_OR_RECORD = range(5)  # order at one instant; input rows are last

Step = tuple[int, int, int, Callable[[], None]]


@dataclass
class Follower:
    """A leader's state of a follower. Names as in the spec's notation."""

    replica: int
    leo: int = -1
    cu: int = 0
    pL: int = 0  # noqa: N815
    pT: int = 0  # noqa: N815
    eligible: bool = True
    known: bool = False
    shown: tuple[int, int, int, bool] | None = None


@dataclass
class Write:
    """An ISR that was asked for and is not committed yet."""

    isr: frozenset[int]
    commit_us: int


class Leader:
    """A broker that leads one partition under one rule, term after term."""

    def __init__(self, rule: "Rule") -> None:
        """Start without followers; ``begin`` starts a term."""
        self.rule = rule
        self.followers: dict[int, Follower] = {}
        self.changes: list[Change] = []
        self.partition_rows: list[PartitionRow] = []
        self.states: list[ReplicaRow] = []
        self.shown: tuple[int, int, frozenset[int], int] | None = None

    # -- a term

    def begin(self, term: Term) -> None:
        self.term = term
        self.truth = Truth(term)
        self.now_us = term.start_us
        self.leo = term.start_offset
        self.acked_end = 0
        self.hw = term.start_high_watermark
        self.isr = frozenset(term.isr)
        self.isr_changed_us = term.start_us
        self.isr_written_us: int | None = None
        self.doubts = Doubts(self)
        self.check_logged = ""
        self.waiting: dict[int, Fetch] = {}  # fetches that arrived and are not completed yet
        for replica in term.replicas:
            self.truth.caught_us[replica] = term.start_us
        self.truth.note_caught(term.start_us)
        self.remote = [self.followers.setdefault(r, Follower(r)) for r in term.replicas if r != term.leader]
        self._begin_epoch(leader_is_new=term.leader_is_new)
        if term.begins_mid_term:
            self.epoch_start_offset = term.start_high_watermark  # where the epoch really began is not known
            self.hw, self.acked_end = term.start_high_watermark, 0
            for follower in self.remote:
                follower.leo = self.truth.position(follower.replica)
            if not self.rule.period_ms:
                self.advance_hw(self.now_ms)
        for follower in self.remote:
            follower.known = True
            follower.shown = None
        self.shown = None
        self.check_due_us = self.check_us = self._scheduled_from(term.start_us)
        self.crossed_us = term.start_us
        self.write()

    def _begin_epoch(self, *, leader_is_new: bool) -> None:
        """Begin a leader epoch: at the start of a term, and whenever a rule gives up leadership."""
        self.leader_is_new = leader_is_new
        self.epoch_start_us = self.now_us
        self.epoch_start_offset = self.leo
        self.under_way: Write | None = None
        for follower in self.remote:
            self.rule.begin(follower, self)
        self.advance_hw(self.now_ms)

    def play(self, rows: Iterable[Row], until_us: int) -> None:
        """Take in rows, then let time pass until ``until_us`` or the end of the term."""
        for row in rows:
            self._pass_time(min(row.time_us, self.term.end_us))
            if row.time_us <= self.term.end_us:
                self.now_us = max(self.now_us, row.time_us)
                self._take(self._with_offset(row))
        self._pass_time(min(until_us, self.term.end_us))

    def _with_offset(self, row: Row) -> Row:
        """Fill in the offset of a fetch that no line shows: the follower's known log end, or else the leader's."""
        if row.kind != FETCH or row.offset != -1 or row.replica_id not in [f.replica for f in self.remote]:
            return row
        position = self.truth.position(row.replica_id)
        if position < 0:
            return row._replace(offset=self.leo)
        return row._replace(offset=position, code=0 if row.code == -2 else row.code)

    @property
    def known_from_us(self) -> int:
        """First instant (us) at which nothing from before the log matters: a lag time and a check after its start."""
        if not self.term.begins_mid_term:
            return self.term.start_us
        return self.term.start_us + 1000 * (self.rule.lag_time_max_ms + (self.rule.period_ms or 0) + 1)

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    # -- what falls due

    def _pass_time(self, until_us: int) -> None:
        while steps := self._steps(until_us):
            # No two of one order have the same position, so no two callables are compared.
            self.now_us, _, _, step = min(steps)
            step()
            self.write()

    def _steps(self, until_us: int) -> list[Step]:
        """Everything that falls due up to an instant if no further row comes; what is overdue is due now."""
        steps: list[Step] = []
        now_us = self.now_us
        if (check_us := self._next_check_us()) is not None and check_us <= until_us:
            steps.append((max(check_us, now_us), CHECK_STEP, 0, self._check))
        if self.under_way is not None and self.under_way.commit_us <= until_us:
            steps.append((max(self.under_way.commit_us, now_us), COMMIT, 0, self._commit))
        for replica, fetch in self.waiting.items():
            position = self.term.replicas.index(replica)
            if (next_us := fetch.next_us) <= until_us:
                order = COMPLETION if fetch.recorded else READ_OR_RECORD
                steps.append((max(next_us, now_us), order, position, partial(self._go_on, fetch)))
            gives_up_us = self.rule.gives_up_us(fetch)
            if gives_up_us is not None and gives_up_us <= until_us and self._may_relinquish(fetch, gives_up_us):
                steps.append((max(gives_up_us, now_us), RELINQUISHMENT, position, partial(self._relinquish, fetch)))
        return steps

    def _scheduled_from(self, time_us: int) -> int:
        """First instant of the periodic check's schedule at or after ``time_us``."""
        period_us, phase_us = self.rule.period_ms * 1000, self.rule.phase_ms * 1000
        return phase_us + -((phase_us - time_us) // period_us) * period_us if period_us else 0

    def _next_check_us(self) -> int | None:
        if self.rule.period_ms:
            return self.doubts.check_us()
        return min((us for f in self.remote if (us := self.rule.crossing_us(f, self)) is not None), default=None)

    def _check(self) -> None:
        self.crossed_us = self.now_us
        if self.under_way is None and not self.rule.brakes(self):
            dropped = [f for f in self.remote if f.replica in self.isr and self.rule.out_of_sync(f, self)]
            if dropped:
                self.rule.drop(self, dropped)
        if self.rule.period_ms:
            self.check_due_us = self.check_us = self._scheduled_from(max(self.check_due_us, self.now_us) + 1)
            self.check_logged = ""
            self._defer_check()
        else:
            self.advance_hw(self.now_ms)

    def _defer_check(self) -> None:
        for begin, end in self.truth.silences:
            if begin <= self.check_us < end:
                self.check_us = end

    def _go_on(self, fetch: Fetch) -> None:
        """Do the next step of a fetch: read for it, record it, or answer it."""
        follower = self.followers[fetch.row.replica_id]
        if fetch.read_log_end_offset is None:
            self.crossed_us = self.now_us
            self._read(follower, fetch)
        elif not fetch.recorded:
            self.crossed_us = self.now_us
            fetch.recorded = True
            self.doubts.note_recorded(fetch)
            self.rule.on_recorded(follower, self, fetch)
            self.doubts.reconsider(follower)
        else:
            del self.waiting[follower.replica]
            self.truth.note_work(self.now_us, fetch.row.released_us, min(fetch.row.until_us, self.now_us))
            self.rule.on_completed(follower, self, fetch)

    def _read(self, follower: Follower, fetch: Fetch) -> None:
        """Set T and L of a fetch; if its line shows a longer log than known, the append is made up first."""
        known = fetch.row.leader_log_end_offset
        self.grow(known)
        fetch.read_log_end_offset = known if known >= 0 else self.leo
        self.rule.on_read(follower, self, fetch)

    # -- what comes in

    def _take(self, row: Row) -> None:
        self.crossed_us = self.now_us
        self.truth.note(row)
        if row.kind == SILENCE:
            self.doubts.fall_silent()
            self._defer_check()
        elif row.kind == CHECK:
            self.doubts.note_check(row)
        elif row.kind == APPEND:
            if row.code in (0, 1):
                self.truth.acknowledged_at_once = max(self.truth.acknowledged_at_once, row.offset)
            self.grow(row.offset)
        elif follower := next((f for f in self.remote if f.replica == row.replica_id), None):
            self._take_of_follower(follower, row)
        self.write()

    def _take_of_follower(self, follower: Follower, row: Row) -> None:
        if row.kind == REMOVED:
            self._remove(follower)
        elif row.kind == ELIGIBLE:
            follower.eligible = row.code == 1
        elif row.kind == FETCH:
            while former := self.waiting.get(row.replica_id):
                self._go_on(former)
                self.write()
            if row.code == 0:
                self.grow(row.offset)  # a follower holds nothing that its leader lacks
            self.waiting[row.replica_id] = fetch = Fetch(row)
            self.truth.arrive(self.now_us, fetch)
            self.rule.on_arrival(follower, self, fetch)

    def _remove(self, follower: Follower) -> None:
        """Let the controller remove a follower from the ISR, which cancels an ISR write that is under way."""
        if follower.replica not in self.maximal_isr:
            return
        before, self.isr = self.isr, self.isr - {follower.replica}
        self.under_way = None
        if self.isr != before:
            self.isr_changed_us = self.now_us
            self._note_change("shrink", follower, before, self.isr, "controller", frozenset({"controller"}))
        self.advance_hw(self.now_ms)

    def grow(self, end: int) -> None:
        """Let the log end at ``end``, unless it is at least that long already."""
        if end <= self.leo:
            return
        self.leo = end
        self.truth.append(self.now_us, end)
        for follower in self.remote:
            self.rule.on_append(follower, self)
        self.advance_hw(self.now_ms)
        self.write()

    # -- what the leader does

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Maximal ISR: who joins belongs to it from the request on, who leaves belongs to it until the commit."""
        return self.isr | self.under_way.isr if self.under_way else self.isr

    def advance_hw(self, now_ms: int) -> None:
        self.acked_end = max(self.acked_end, self.rule.acknowledged_end(self))
        if self.rule.frozen(self):
            return
        voters = self.term.voters
        counted = [f.leo for f in self.remote if f.replica in voters and self.rule.hw_waits_for(f, self, now_ms)]
        self.hw = max(self.hw, min([self.leo, *counted]))

    def expand(self, follower: Follower) -> None:
        self.doubts.note_expand(follower)
        after = self.isr | {follower.replica}
        self._note_change("expand", follower, self.isr, after, "rule", frozenset())
        self._ask_for(after)

    def shrink(self, dropped: list[Follower]) -> None:
        after = self.isr - {f.replica for f in dropped}
        for follower in dropped:
            self._note_change("shrink", follower, self.isr, after, "rule", self._causes(follower.replica))
            self.doubts.note_shrink(follower)
        self._ask_for(after)

    def _ask_for(self, isr: frozenset[int]) -> None:
        self.under_way = Write(isr, self.truth.answered_us(self.now_us, self.rule.write_latency_ms * 1000))
        if isr < self.isr and not self.rule.advances_on_commit():
            self.advance_hw(self.now_ms)
        if not self.rule.write_latency_ms:
            self._commit()

    def _commit(self) -> None:
        assert self.under_way is not None
        expanding = self.under_way.isr > self.isr
        self.isr = self.under_way.isr
        self.under_way = None
        self.isr_changed_us = self.isr_written_us = self.now_us
        # A thread that has just written a larger ISR itself goes on with its fetch, which looks at the high watermark.
        if self.rule.advances_on_commit() and (self.rule.writes_in_background or not expanding):
            self.advance_hw(self.now_ms)

    def _may_relinquish(self, fetch: Fetch, gives_up_us: int) -> bool:
        """Whether a fetch may cost the leader its leadership: it came in this epoch, and its instant is now."""
        in_epoch = fetch.row.time_us >= self.epoch_start_us and gives_up_us >= self.now_us
        return in_epoch and not fetch.gave_up

    def _relinquish(self, fetch: Fetch) -> None:
        fetch.gave_up = True
        self.give_up_leadership()

    def give_up_leadership(self) -> None:
        """Begin a new epoch with the same leader, as if it knew nothing of its followers."""
        if self.isr == {self.term.leader}:
            return
        self.changes.append(
            Change(
                self.now_us, "relinquish", self.term.leader, self.isr, self.isr, self.hw, self.leo, self.leo,
                self.now_ms, 0, "rule", 0, frozenset(), 0, 0,
            )
        )  # fmt: skip
        self._begin_epoch(leader_is_new=True)

    def _causes(self, replica: int) -> frozenset[str]:
        truth, position, limit_us = self.truth, self.truth.position(replica), self.rule.lag_time_max_ms * 1000
        began_us, mid_term = self.term.start_us, self.term.begins_mid_term
        if self.term.ends_mid_term and self.now_us > self.term.end_us - IN_FLIGHT_US:
            return frozenset({"unknown"})  # it may have fetched: what is not answered is not in the log
        if mid_term and self.followers[replica].cu <= began_us // 1000 and self.now_us < self.known_from_us:
            return frozenset({"unknown"})  # what the leader knew from before may have decided
        stopped = "unknown" if truth.is_thin(replica, self.now_us, limit_us) else "follower_stopped"
        if position < 0:
            return frozenset({stopped if self.now_us - self.term.start_us > limit_us else "unknown"})
        arrivals = [fetch.row.time_us for fetch in truth.fetches.get(replica, [])]
        alive = any(self.now_us - limit_us < arrival <= self.now_us for arrival in arrivals)
        caught, held, silent, idle = truth.waiting_us(replica, self.now_us)

        def explain(waited: int) -> bool:
            return 10 * waited > limit_us and (self.now_us - caught) - waited <= limit_us

        holds = {
            "caught_up": position >= self.leo,
            "keeping_pace": alive and truth.true_lag_us(replica, self.now_us) <= limit_us,
            "slow_leader": explain(held + silent),
            "unacked_only": alive
            and truth.acknowledged_without(replica, self.isr, max(self.hw, self.acked_end)) <= position,
        }
        never_caught_up = truth.caught_us[replica] <= began_us and not holds["caught_up"]
        if mid_term and never_caught_up and (holds["keeping_pace"] or holds["slow_leader"]):
            return frozenset({"unknown"})  # since when it has lagged is not in the log
        if causes := frozenset(cause for cause, true in holds.items() if true):
            return causes
        failed = "follower_slow" if alive else stopped
        return frozenset({"unknown" if explain(held + silent + idle) else failed})

    # -- what it writes down

    def _note_change(
        self,
        kind: str,
        follower: Follower,
        before: frozenset[int],
        after: frozenset[int],
        made_by: str,
        causes: frozenset[str],
    ) -> None:
        _, held, silent, idle = self.truth.waiting_us(follower.replica, self.now_us)
        self.changes.append(
            Change(
                self.now_us, kind, follower.replica, before, after, self.hw, self.leo, follower.leo, follower.cu,
                max(0, self.now_ms - follower.cu), made_by,
                self.truth.true_lag_us(follower.replica, self.now_us) // 1000, causes, held // 1000,
                None if idle else silent // 1000,
            )
        )  # fmt: skip

    def write(self) -> None:
        """Add a row to the timelines of the followers and of the partition whose state has changed."""
        for follower in self.remote:
            state = follower.leo, self.leo - follower.leo, follower.cu, follower.replica in self.isr
            if state != follower.shown:
                follower.shown = state
                self.states.append(ReplicaRow(self.now_us, follower.replica, *state))
        partition = (self.leo, self.hw, self.isr, max(self.truth.acknowledged_at_once, self.acked_end))
        if partition != self.shown:
            self.shown = partition
            self.partition_rows.append(PartitionRow(self.now_us, *partition))
