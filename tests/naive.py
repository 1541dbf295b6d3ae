"""A leader, its followers and its ISR, one event at a time: slow, obvious, and written from the spec alone.

It shares no line with ``udfs``. What happened is in ``tests.naive_truth``, the rules in ``tests.naive_rules``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tests.naive_truth import APPEND, CHECK, ELIGIBLE, FETCH, REMOVED, SILENCE, Fetch, Row, Term, Truth

CAUSES = (
    "caught_up", "keeping_pace", "slow_leader", "unacked_only", "controller", "follower_stopped", "follower_slow",
    "unknown",
)  # fmt: skip
SLACK_US = 2000
"""How far from its schedule a logged check may lie."""


class Change(NamedTuple):
    """The ISR became another one."""

    time_us: int
    kind: str
    replica_id: int
    isr_before: frozenset[int]
    isr_after: frozenset[int]
    high_watermark: int
    leader_log_end_offset: int
    follower_log_end_offset: int
    last_caught_up_time_ms: int
    lag_ms: int
    made_by: str
    true_lag_ms: int
    causes: frozenset[str]
    leader_held_ms: int
    leader_silent_ms: int


class ReplicaRow(NamedTuple):
    """A row of replica_timeline."""

    time_us: int
    replica_id: int
    log_end_offset: int
    lag_ms: int
    lag_messages: int
    last_caught_up_time_ms: int
    in_isr: bool


class PartitionRow(NamedTuple):
    """A row of partition_timeline."""

    time_us: int
    log_end_offset: int
    high_watermark: int
    isr: frozenset[int]


@dataclass
class Follower:
    """What a leader keeps of a follower. Names as in the spec's notation."""

    replica: int
    leo: int = -1
    cu: int = 0
    pL: int = 0  # noqa: N815
    pT: int = 0  # noqa: N815
    eligible: bool = True
    known: bool = False
    shown: tuple[int, int, bool] | None = None


class Leader:
    """A broker that leads one partition under one rule, term after term."""

    def __init__(self, rule: "Rule") -> None:
        """Start without followers; ``begin`` starts a term."""
        self.rule = rule
        self.followers: dict[int, Follower] = {}
        self.changes: list[Change] = []
        self.replica_rows: list[ReplicaRow] = []
        self.partition_rows: list[PartitionRow] = []
        self.shown: tuple[int, int, frozenset[int]] | None = None

    # -- a term

    def begin(self, term: Term) -> None:
        self.term = term
        self.truth = Truth(term)
        self.now_us = term.start_us
        self.leo = self.epoch_start_offset = term.start_offset
        self.hw = term.start_high_watermark
        self.isr = frozenset(term.isr)
        self.waiting: dict[int, Fetch] = {}  # fetches that arrived and are not recorded yet
        for replica in term.replicas:
            self.truth.caught_us[replica] = term.start_us
        self.truth.note_caught(term.start_us)
        self.remote = [self.followers.setdefault(r, Follower(r)) for r in term.replicas if r != term.leader]
        for follower in self.remote:
            self.rule.begin(follower, self)
            follower.known = True
            follower.shown = None
        self.shown = None
        self.check_due_us = self.check_us = self._scheduled_from(term.start_us)
        self.advance_hw(self.now_ms)
        self.write()

    def play(self, rows: Iterable[Row], until_us: int) -> None:
        """Take in rows, then let time pass until ``until_us`` or the end of the term."""
        for row in rows:
            self._pass_time(min(row.time_us, self.term.end_us))
            if row.time_us <= self.term.end_us:
                self.now_us = max(self.now_us, row.time_us)
                self._take(row)
        self._pass_time(min(until_us, self.term.end_us))

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    # -- what falls due

    def _pass_time(self, until_us: int) -> None:
        while True:
            due: list[tuple[int, int, int, Fetch | None]] = []
            if (check_us := self._next_check_us()) is not None:
                due.append((max(check_us, self.now_us), 0, 0, None))
            for replica, fetch in self.waiting.items():
                position = self.term.replicas.index(replica)
                step_us = fetch.row.handled_us if fetch.read_log_end_offset is None else fetch.row.processed_us
                due.append((max(step_us, self.now_us), 1, position, fetch))
            time_us, _, _, next_fetch = min(due, key=lambda d: d[:3], default=(until_us + 1, 0, 0, None))
            if time_us > until_us:
                return
            self.now_us = time_us
            if next_fetch is None:
                self._check()
            elif next_fetch.read_log_end_offset is None:
                self._read(next_fetch)
            else:
                self._record(next_fetch)

    def _scheduled_from(self, time_us: int) -> int:
        """First instant of the schedule at or after ``time_us``."""
        if not self.rule.period_ms:
            return 0
        period_us, phase_us = self.rule.period_ms * 1000, self.rule.phase_ms * 1000
        return phase_us + -((phase_us - time_us) // period_us) * period_us

    def _next_check_us(self) -> int | None:
        if self.rule.period_ms:
            return self.check_us
        return min((us for f in self.remote if (us := self.rule.overdue_us(f, self)) is not None), default=None)

    def _check(self) -> None:
        dropped = [f for f in self.remote if f.replica in self.isr and self.rule.out_of_sync(f, self)]
        if dropped:
            self.shrink(dropped, by_controller=False)
        if self.rule.period_ms:
            self.check_due_us = self.check_us = self._scheduled_from(max(self.check_due_us, self.now_us) + 1)
            self._defer_check()
        self.write()

    def _defer_check(self) -> None:
        for begin, end in self.truth.silences:
            if begin <= self.check_us < end:
                self.check_us = end

    def _read(self, fetch: Fetch) -> None:
        """Take T and L; what is known to be there and was not yet is an append that the log has too late or not."""
        known = fetch.row.leader_log_end_offset
        self.grow(known)
        fetch.read_log_end_offset = known if known >= 0 else self.leo

    def _record(self, fetch: Fetch) -> None:
        row = fetch.row
        assert fetch.read_log_end_offset is not None
        del self.waiting[row.replica_id]
        fetch.recorded = True
        self.rule.on_recorded(
            self.followers[row.replica_id], self, row, fetch.read_log_end_offset, row.handled_us // 1000
        )
        self.write()

    # -- what comes in

    def _take(self, row: Row) -> None:
        if row.kind == SILENCE:
            self.truth.silences.append((row.time_us, row.until_us))
            self._defer_check()
        elif row.kind == CHECK:
            if row.time_us - SLACK_US <= self.check_us <= row.until_us + SLACK_US:
                self.check_us = row.until_us
        elif row.kind == APPEND:
            if row.code in (0, 1):
                self.truth.acknowledged_at_once = max(self.truth.acknowledged_at_once, row.offset)
            self.grow(row.offset)
        elif follower := next((f for f in self.remote if f.replica == row.replica_id), None):
            self._take_of_follower(follower, row)
        self.write()

    def _take_of_follower(self, follower: Follower, row: Row) -> None:
        if row.kind == REMOVED and follower.replica in self.isr:
            self.shrink([follower], by_controller=True)
        elif row.kind == ELIGIBLE:
            follower.eligible = row.code == 1
        elif row.kind == FETCH:
            if former := self.waiting.get(row.replica_id):
                if former.read_log_end_offset is None:
                    self._read(former)
                self._record(former)
            if row.code == 0:
                self.grow(row.offset)  # a follower holds nothing that its leader lacks
            self.waiting[row.replica_id] = fetch = Fetch(row)
            self.truth.arrive(self.now_us, fetch)
            self.rule.on_arrival(follower, self, row)

    def grow(self, end: int) -> None:
        """Append, unless that much is there already."""
        if end <= self.leo:
            return
        self.leo = end
        self.truth.append(self.now_us, end)
        for follower in self.remote:
            self.rule.on_append(follower, self)
        self.advance_hw(self.now_ms)
        self.write()

    # -- what the leader does

    def advance_hw(self, now_ms: int) -> None:
        if self.rule.frozen(self):
            return
        counted = [f.leo for f in self.remote if f.replica in self.isr or self.rule.hw_waits_for(f, self, now_ms)]
        self.hw = max(self.hw, min([self.leo, *counted]))

    def expand(self, follower: Follower) -> None:
        before, self.isr = self.isr, self.isr | {follower.replica}
        self._note_change("expand", follower, before, "rule", frozenset())
        self.advance_hw(self.now_ms)

    def shrink(self, dropped: list[Follower], *, by_controller: bool) -> None:
        before, self.isr = self.isr, self.isr - {f.replica for f in dropped}
        for follower in dropped:
            causes = frozenset({"controller"}) if by_controller else self._causes(follower.replica)
            self._note_change("shrink", follower, before, "controller" if by_controller else "rule", causes)
        self.advance_hw(self.now_ms)

    def _causes(self, replica: int) -> frozenset[str]:
        truth, position, limit_us = self.truth, self.truth.position(replica), self.rule.lag_time_max_ms * 1000
        if position < 0:
            return frozenset({"follower_stopped" if self.now_us - self.term.start_us > limit_us else "unknown"})
        arrivals = [fetch.row.time_us for fetch in truth.fetches.get(replica, [])]
        alive = any(self.now_us - limit_us < arrival <= self.now_us for arrival in arrivals)
        caught, held, silent = truth.held_and_silent_us(replica, self.now_us)
        holds = {
            "caught_up": position >= self.leo,
            "keeping_pace": alive and truth.true_lag_us(replica, self.now_us) <= limit_us,
            "slow_leader": held + silent > 0 and (self.now_us - caught) - (held + silent) <= limit_us,
            "unacked_only": alive and max(self.hw, truth.acknowledged_at_once) <= position,
        }
        if causes := frozenset(cause for cause, true in holds.items() if true):
            return causes
        return frozenset({"follower_slow" if alive else "follower_stopped"})

    # -- what it writes down

    def _note_change(
        self, kind: str, follower: Follower, before: frozenset[int], made_by: str, causes: frozenset[str]
    ) -> None:
        _, held, silent = self.truth.held_and_silent_us(follower.replica, self.now_us)
        self.changes.append(
            Change(
                self.now_us, kind, follower.replica, before, self.isr, self.hw, self.leo, follower.leo, follower.cu,
                self.now_ms - follower.cu, made_by, self.truth.true_lag_us(follower.replica, self.now_us) // 1000,
                causes, held // 1000, silent // 1000,
            )
        )  # fmt: skip

    def write(self) -> None:
        """Add to both timelines what changed since they were last written."""
        for follower in self.remote:
            now = (follower.leo, follower.cu, follower.replica in self.isr)
            if follower.shown is not None and (
                now == follower.shown
                or (now[0] == self.leo and (now[0], now[2]) == (follower.shown[0], follower.shown[2]))
            ):
                continue
            follower.shown = now
            lag_ms = self.now_ms - follower.cu if follower.leo != self.leo else 0
            self.replica_rows.append(
                ReplicaRow(self.now_us, follower.replica, now[0], lag_ms, self.leo - now[0], now[1], now[2])
            )
        partition = (self.leo, self.hw, self.isr)
        if partition != self.shown:
            self.shown = partition
            self.partition_rows.append(PartitionRow(self.now_us, *partition))


class Rule:
    """What the leader asks a rule; ``tests.naive_rules`` answers."""

    checks_per_lag_time = 0

    def __init__(self, lag_time_max_ms: int, min_insync_replicas: int = 1, phase_ms: int = 0, **flags: int) -> None:
        """Keep the parameters; a rule without periodic checks has period 0."""
        self.lag_time_max_ms = lag_time_max_ms
        self.min_insync_replicas = min_insync_replicas
        self.phase_ms = phase_ms
        self.period_ms = lag_time_max_ms // self.checks_per_lag_time if self.checks_per_lag_time else 0
        self.flags = flags

    def begin(self, follower: Follower, leader: Leader) -> None:
        raise NotImplementedError

    def on_arrival(self, follower: Follower, leader: Leader, row: Row) -> None:
        """Most rules do not see a fetch before it is recorded."""

    def on_recorded(self, follower: Follower, leader: Leader, row: Row, read_leo: int, read_ms: int) -> None:
        """``read_leo`` is L and ``read_ms`` is T."""

    def on_append(self, follower: Follower, leader: Leader) -> None:
        """Most rules do nothing."""

    def out_of_sync(self, follower: Follower, leader: Leader) -> bool:
        raise NotImplementedError

    def overdue_us(self, _follower: Follower, _leader: Leader) -> int | None:
        """When a member must leave; for rules without periodic checks."""
        return None

    def hw_waits_for(self, _follower: Follower, _leader: Leader, _now_ms: int) -> bool:
        """Say whether the high watermark waits for this follower though it is not in the ISR."""
        return False

    def frozen(self, _leader: Leader) -> bool:
        return False
