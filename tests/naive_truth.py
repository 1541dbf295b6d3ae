"""All that happened to a leader's log and its followers, whatever the rule: the naive model's source of facts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

SILENCE, CHECK, REMOVED, ELIGIBLE, APPEND, FETCH, ISR_WRITE, IDLE, THIN = range(9)


class Row(NamedTuple):
    """One input row of a replay (fetch, append, silence, check, ...); times in us.

    Columns that a kind of row does not use are 0, because no code may use them.
    """

    time_us: int
    kind: int
    replica_id: int = 0
    offset: int = 0
    code: int = 0
    leader_log_end_offset: int = -1
    handled_us: int = 0
    processed_us: int = 0
    released_us: int = 0
    until_us: int = 0


class Term(NamedTuple):
    """One leader epoch of a partition on one broker: replicas, limits, state at its start, and its rows."""

    replicas: tuple[int, ...]
    leader: int
    start_us: int
    end_us: int
    start_offset: int
    start_high_watermark: int
    isr: tuple[int, ...]
    leader_is_new: bool
    rows: tuple[Row, ...] = ()
    begins_mid_term: bool = False
    """The leader led before ``start_us``; nothing from before is in the log."""
    ends_mid_term: bool = False
    """Its log ends at ``end_us``, and requests in flight then are not in it."""
    phase_known: bool = True
    """The log shows when the periodic check is due."""
    isr_known: bool = True
    """The log shows the ISR at ``start_us``."""
    held_at_start: tuple[int, ...] = ()
    """Then: the log end of each replica at ``start_us``, -1 if unknown."""
    observers: tuple[int, ...] = ()
    """Followers that fetch, and never join the ISR."""

    @property
    def voters(self) -> tuple[int, ...]:
        """The replicas that may be in the ISR."""
        return tuple(replica for replica in self.replicas if replica not in self.observers)


@dataclass
class Fetch:
    """A fetch, how far the leader has processed it, and what the rule noted about it."""

    row: Row
    read_log_end_offset: int | None = None  # L; None: no io thread has read for it yet
    recorded: bool = False
    acknowledged: int = 0  # what the rule had acknowledged to producers when it was read
    pending: bool = False
    gave_up: bool = False

    @property
    def L(self) -> int:  # noqa: N802
        assert self.read_log_end_offset is not None
        return self.read_log_end_offset

    @property
    def T(self) -> int:  # noqa: N802
        return self.row.handled_us // 1000

    @property
    def next_us(self) -> int:
        """When its next step is due (us): being read, being recorded, or being answered."""
        if self.read_log_end_offset is None:
            return self.row.handled_us
        return self.row.until_us if self.recorded else self.row.processed_us


@dataclass
class Truth:
    """Everything that happened to the log and the followers in one term; no rule has any influence on it."""

    term: Term
    appends: list[tuple[int, int]] = field(default_factory=list)  # (us, log end offset)
    acknowledged_at_once: int = 0
    fetches: dict[int, list[Fetch]] = field(default_factory=dict)
    silences: list[tuple[int, int]] = field(default_factory=list)
    idles: list[tuple[int, int]] = field(default_factory=list)  # no follower fetched, for an unknown reason
    cadences: dict[int, tuple[int, int]] = field(default_factory=dict)  # (us, until when); of thin followers
    caught_us: dict[int, int] = field(default_factory=dict)
    work: list[tuple[int, int]] = field(default_factory=list)  # (us, duration of some work of the leader)
    isr_write: tuple[int, int] = (0, 0)  # the last that has lines: asked for, answered; us

    def note(self, row: Row) -> None:
        """Keep a row about the leader (silence, idle time, ISR write) or about how often a follower fetches."""
        span = (row.time_us, row.until_us)
        if row.kind == SILENCE:
            self.silences.append(span)
        elif row.kind == IDLE:
            self.idles.append(span)
        elif row.kind == ISR_WRITE:
            self.isr_write = span
        elif row.kind == THIN:
            self.cadences[row.replica_id] = row.offset, row.until_us

    def log_end_offset(self) -> int:
        return self.appends[-1][1] if self.appends else self.term.start_offset

    def position(self, replica: int) -> int:
        """Offset at which the follower's own log ends (E in the spec), -1 if unknown."""
        for fetch in reversed(self.fetches.get(replica, [])):
            if fetch.row.code == 0:
                return fetch.row.offset
        if self.term.begins_mid_term:
            return self.term.held_at_start[self.term.replicas.index(replica)]
        return 0 if self.term.start_offset == 0 else -1

    def missing_since_us(self, replica: int) -> int | None:
        """When the oldest record that the follower lacks was appended (us); None if it lacks no record."""
        position = self.position(replica)
        if position < self.term.start_offset:
            return self.term.start_us
        if position >= self.log_end_offset():
            return None
        return next(time for time, end in self.appends if end > position)

    def true_lag_us(self, replica: int, now_us: int) -> int:
        since = self.missing_since_us(replica)
        return 0 if since is None else now_us - since

    def note_caught(self, now_us: int) -> None:
        """Note ``now_us`` as the last instant caught up of every follower that lacks no record now."""
        for replica in self.term.replicas:
            if self.true_lag_us(replica, now_us) == 0:
                self.caught_us[replica] = now_us

    def append(self, now_us: int, end: int) -> None:
        self.appends.append((now_us, end))
        self.note_caught(now_us)

    def arrive(self, now_us: int, fetch: Fetch) -> None:
        replica = fetch.row.replica_id
        fetches = self.fetches.setdefault(replica, [])
        self.note_caught(now_us)  # what it lacked nothing of until now: its log may turn out shorter than it was
        fetches.append(fetch)
        followed = zip(reversed(fetches[:-1]), reversed(fetches[1:]), strict=True)
        last = next(((former, later) for former, later in followed if former.row.code == 0 and former.recorded), None)
        if fetch.row.code == 0 and last and fetch.row.offset >= last[0].L:
            # It has reached what the leader held when its former fetch was read: caught up then.
            former, later = last
            read_us = min(former.row.handled_us, later.row.time_us)
            self.caught_us[replica] = max(self.caught_us[replica], read_us)
        self.note_caught(now_us)

    def error_us(self, now_us: int) -> int:
        """How far off an instant of the log may be: 1 ms, and the longest time that a fetch took in the last 5 s."""
        late_us, late_at_us = 0, 0
        for done_us, took_us in self.work:
            if took_us >= late_us or done_us - late_at_us > 5_000_000:
                late_us, late_at_us = took_us, done_us
        return 1000 + (late_us if now_us - late_at_us <= 5_000_000 else 0)

    def answered_us(self, now_us: int, latency_us: int) -> int:
        """When an ISR write requested at ``now_us`` is answered: as log lines show it, else after ``latency_us``."""
        asked_us, answered_us = self.isr_write
        if not latency_us or not asked_us <= now_us < answered_us:
            return now_us + latency_us
        return answered_us if now_us - asked_us <= 1000 else max(now_us + latency_us, answered_us)

    def note_work(self, now_us: int, from_us: int, until_us: int) -> None:
        """Note how long the leader worked on a fetch or its answer, less the part that its latest silence explains."""
        silent_us = sum(length(clip([(from_us, until_us)], *silence)) for silence in self.silences[-1:])
        self.work.append((now_us, until_us - from_us - silent_us))

    def acknowledged_without(self, replica: int, isr: frozenset[int], high_watermark: int) -> int:
        """Offset up to which records would be acknowledged if HW did not wait for this member of the ISR."""
        others = isr - {replica, self.term.leader}
        safe = min([self.log_end_offset(), *(self.position(other) for other in others)])
        return max(safe, high_watermark, self.acknowledged_at_once)

    def is_thin(self, replica: int, now_us: int, limit_us: int) -> bool:
        """Whether the log shows this follower so rarely that a gap in its fetches does not mean that it stopped."""
        cadence_us, until_us = self.cadences.get(replica, (0, 0))
        return now_us < until_us and 3 * cadence_us > limit_us

    def waiting_us(self, replica: int, now_us: int) -> tuple[int, int, int, int]:
        """Return ``(since, held, silent, idle)``: when the follower was last caught up or heard of, and why it waited.

        ``since`` is an instant, the others are durations after it (us): its fetches were with the leader, the leader
        was silent, or no follower fetched for an unknown reason.
        """
        caught = now_us if self.true_lag_us(replica, now_us) == 0 else self.caught_us[replica]
        fetches = self.fetches.get(replica, [])
        caught = min(caught, fetches[-1].row.time_us if fetches else self.term.start_us)
        inside = []
        for number, fetch in enumerate(fetches):
            replaced_us = fetches[number + 1].row.time_us if number + 1 < len(fetches) else now_us
            for begin, end in (
                (fetch.row.time_us, fetch.row.processed_us),
                (fetch.row.released_us, fetch.row.until_us),
            ):
                inside.append((begin, min(end, replaced_us)))
        held = length(clip(inside, caught, now_us))
        explained = length(clip(inside + self.silences, caught, now_us))
        idle = length(clip(inside + self.silences + self.idles, caught, now_us)) - explained
        return caught, held, explained - held, idle


def clip(spans: Iterable[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    clipped = [(max(b, begin), min(e, end)) for b, e in spans if b < end and e > begin]
    return [(b, e) for b, e in clipped if b < e]


def length(spans: list[tuple[int, int]]) -> int:
    """Total time covered by spans (us) that may overlap."""
    total, reached = 0, None
    for begin, end in sorted(spans):
        if reached is None or begin > reached:
            total += end - begin
            reached = end
        elif end > reached:
            total += end - reached
            reached = end
    return total
