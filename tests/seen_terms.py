"""A replay's results cut into terms, in the form in which `tests.invariants` looks at them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tests.naive import Follower, Leader
from tests.naive_releases import Rule
from tests.naive_rows import Change, PartitionRow, ReplicaRow
from tests.naive_rules import RULES
from tests.naive_truth import ELIGIBLE, FETCH, ISR_WRITE, Row, Term
from tests.strategies import Log, Setting


class Results(NamedTuple):
    """All rows that the replay of one log under one rule gives."""

    changes: Sequence[Change]
    partition: Sequence[PartitionRow]
    replica: Sequence[ReplicaRow]


TimelineRow = TypeVar("TimelineRow", PartitionRow, ReplicaRow)


@dataclass
class Seen:
    """Results of the replay of one rule for one term, with the term itself."""

    setting: Setting
    term: Term
    end_us: int
    checks_us: list[int]
    start_high_watermark: int
    partition: list[PartitionRow]
    replica: dict[int, list[ReplicaRow]]
    changes: list[Change]
    eligibility: list[Row]

    @property
    def limit_ms(self) -> int:
        return self.setting.replica_lag_time_max_ms

    def flag(self, name: str, default: int = 0) -> int:
        return dict(self.setting.flags).get(name, default)

    @property
    def asked_us(self) -> list[int]:
        """Times (us) at which the leader requested a change of the ISR."""
        return [c.time_us for c in self.changes if c.made_by == "rule" and c.kind in {"shrink", "expand"}]

    @property
    def write_latency_us(self) -> int:
        return 1000 * self.flag("isr_write_latency_ms") * RULES[self.setting.rule].writes_in_background

    def answered_us(self, asked_us: int) -> int:
        """When the ISR write requested at ``asked_us`` is committed: as log lines show it, else after the latency."""
        told = [row for row in self.term.rows if row.kind == ISR_WRITE and row.time_us <= asked_us]
        usual_us = asked_us + self.write_latency_us
        if not self.write_latency_us or not told or asked_us >= told[-1].until_us:
            return usual_us
        return told[-1].until_us if asked_us <= told[-1].time_us + 1000 else max(usual_us, told[-1].until_us)

    def rows(self, kind: int, replica: int) -> list[Row]:
        taken = [row for row in self.term.rows if row.time_us <= self.term.end_us]
        return [row for row in taken if row.kind == kind and row.replica_id == replica]

    def recorded(self, replica: int) -> list[tuple[int, Row]]:
        """Fetches of a replica with the time at which each is recorded (us): its own, or when a newer one arrives."""
        fetches = self.rows(FETCH, replica)
        newer_us = [row.time_us for row in fetches[1:]] + [self.term.end_us + 1]
        return [(min(row.processed_us, newer), row) for row, newer in zip(fetches, newer_us, strict=False)]

    def may_be_eligible(self, replica: int, us: int) -> tuple[bool, ...]:
        """Whether the replica may join the ISR, for each state that it has within this microsecond."""
        rows = [row for row in self.eligibility if row.replica_id == replica and row.time_us <= us]
        before = [True, *(row.code == 1 for row in rows if row.time_us < us)][-1]
        return (before, *(row.code == 1 for row in rows if row.time_us == us))


def visible(rows: Sequence[TimelineRow], us: int) -> list[TimelineRow]:
    """The timeline's states within this microsecond: the one it begins with, and all that follow in it."""
    return [row for row in rows if row.time_us < us][-1:] + [row for row in rows if row.time_us == us]


def settled(rows: Sequence[TimelineRow], us: int) -> TimelineRow:
    return visible(rows, us)[-1]


class _ChecksOnly(Rule):
    """A rule that drops no follower, and keeps the times of the checks that another rule would make."""

    def __init__(self, other: Rule) -> None:
        """Take over the period and phase of the other rule's checks."""
        super().__init__(other.lag_time_max_ms, phase_ms=other.phase_ms)
        self.period_ms = other.period_ms
        self.checks_us: list[int] = []

    def begin(self, follower: Follower, leader: Leader) -> None:
        """Do nothing: no state of followers is needed."""

    def brakes(self, leader: Leader) -> bool:
        self.checks_us.append(leader.now_us)
        return True


def terms_seen(log: Log, setting: Setting, results: Results) -> Iterator[Seen]:
    """Cut results into terms. If one ends in the microsecond of the next one's start, only the last state is sure."""
    limit_ms, min_isr, phase_ms = setting[1:4]
    clock = _ChecksOnly(RULES[setting.rule](limit_ms, min_isr, phase_ms, **dict(setting.flags)))
    leader = Leader(clock)
    eligibility: list[Row] = []
    for number, term in enumerate(log.terms):
        clock.checks_us = []
        leader.begin(term)
        leader.play(term.rows, term.end_us)
        eligibility += [row for row in term.rows if row.kind == ELIGIBLE and row.time_us <= term.end_us]
        end_us = term.end_us - any(later.start_us == term.end_us for later in log.terms[number + 1 :])
        mixed = any(former.end_us == term.start_us for former in log.terms[:number])

        if end_us < term.start_us:
            continue
        partition = _of_term(results.partition, term, end_us, mixed=mixed)
        yield Seen(
            setting=setting,
            term=term,
            end_us=end_us,
            checks_us=clock.checks_us,
            start_high_watermark=partition[0].high_watermark if mixed else term.start_high_watermark,
            partition=partition,
            replica={
                replica: _of_term([r for r in results.replica if r.replica_id == replica], term, end_us, mixed=mixed)
                for replica in term.voters
                if replica != term.leader
            },
            changes=[change for change in results.changes if term.start_us <= change.time_us <= end_us],
            eligibility=list(eligibility),
        )


def _of_term(rows: Sequence[TimelineRow], term: Term, end_us: int, *, mixed: bool) -> list[TimelineRow]:
    inside = [row for row in rows if term.start_us <= row.time_us <= end_us]
    at_start = [row for row in inside if row.time_us == term.start_us]
    return inside[len(at_start) - 1 :] if mixed else inside


# -- the partition
