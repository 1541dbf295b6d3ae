"""Group shrinks by the check (run of the leader's task isr-expiration) that made them, and group checks into storms.

Checks belong to the same storm if they share a broker and dropped followers that stopped at the same time.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from isr_batch.broker_lines.forms import LAG_TIME
from isr_batch.evidence.lines import EvidencePosition, FoundLines, lag_time_in_lines
from isr_batch.evidence.shrinks import Shrink

ONE_CHECK_US = 500_000
"""Consecutive Shrinking lines of a leader belong to the same check if they are at most this many microseconds apart."""
SAME_START_MS = 1_000
"""Two followers stopped at the same time if their lastCaughtUpTimeMs differ by at most this many milliseconds. An idle
follower only fetches every 500 ms."""
STORM_US = 60_000_000
"""Two checks are only compared, and so joined into a storm, if they are at most this many microseconds apart."""
UNKNOWN_LAG_TIME_MS = 10_000
_ALONE_SHARE = 0.5
_SPREAD_MS = 100
"""A check that ran at most this many milliseconds late was on schedule."""
_MOST_CHECKS = 200
"""The schedule of a broker process is derived from at most this many checks."""


@dataclass
class CheckBurst:
    """The drops of one follower by one check, from the ISR of one or more partitions.

    Attributes
    ----------
    first_us, last_us : int
        Times of the check's first and last Shrinking line that drops the follower.
    starts_ms : (int, int) or None
        Smallest and largest lastCaughtUpTimeMs of the follower; None if the lines do not contain it.
    place : EvidencePosition
        File and number of the first of these lines.
    partitions : int
        Number of partitions in which the check dropped the follower.
    period_us : int
        Longest time until other leaders drop the follower too, if the follower is at fault.
    """

    leader_id: int
    replica_id: int
    first_us: int
    last_us: int
    starts_ms: tuple[int, int] | None
    place: EvidencePosition
    partitions: int
    period_us: int

    def same_time(self, other: "CheckBurst") -> bool:
        """Whether two followers, each dropped by a check, stopped fetching at about the same time.

        This is assumed if their lastCaughtUpTimeMs are at most `SAME_START_MS` apart, or if they were dropped at most
        ``period_us`` apart: leaders do not check at the same moments.
        """
        if self.starts_ms and other.starts_ms and _near_checks(self.starts_ms, other.starts_ms, SAME_START_MS):
            return True
        return _near_checks((self.first_us, self.last_us), (other.first_us, other.last_us), self.period_us)


def _near_checks(one: tuple[int, int], other: tuple[int, int], within: int) -> bool:
    """Whether two periods (start, end) overlap, or are at most ``within`` apart, all in the same unit."""
    return one[0] - within <= other[1] and other[0] - within <= one[1]


@dataclass
class ExpirationCheck:
    """A check (run of isr-expiration) in which a leader dropped replicas.

    ``rows`` holds the shrinks that the check made, and ``bursts`` are the same shrinks grouped by follower. ``late_ms``
    is how late the check ran. ``number`` counts the checks of the cluster from 0, and ``storm`` is the number of its
    storm.
    """

    leader_id: int
    rows: list[Shrink]
    period_us: int
    late_ms: int | None = None
    number: int = -1
    storm: int = -1
    bursts: dict[int, CheckBurst] = field(default_factory=dict)

    def close(self) -> None:
        """Group the shrinks in ``rows`` by follower, in ``bursts``. Call this once ``rows`` is complete."""
        of: dict[int, list[Shrink]] = defaultdict(list)
        for row in self.rows:
            of[row.replica_id].append(row)
        for replica_id, rows in of.items():
            starts = [row.last_caught_up_ms for row in rows if row.last_caught_up_ms is not None]
            self.bursts[replica_id] = CheckBurst(
                self.leader_id, replica_id, rows[0].at_us, rows[-1].at_us,
                (min(starts), max(starts)) if starts else None, rows[0].place,
                len({row.partition for row in rows}), self.period_us,
            )  # fmt: skip

    @property
    def at_us(self) -> int:
        """Time of the check's first Shrinking line, in microseconds since 1970."""
        return self.rows[0].at_us

    @cached_property
    def partitions(self) -> set[tuple[str, int]]:
        """The partitions in which the check dropped a follower."""
        return {row.partition for row in self.rows}

    @cached_property
    def alone(self) -> set[tuple[str, int]]:
        """The partitions whose ISR contained only the leader after the check."""
        return {row.partition for row in self.rows if set(row.isr_after) <= {self.leader_id}}

    @property
    def dropped_everybody(self) -> bool:
        """Whether it dropped several followers, and left only the leader in at least half of the ISRs concerned."""
        return len(self.bursts) > 1 and len(self.alone) >= _ALONE_SHARE * len(self.partitions)

    @property
    def starts_apart_ms(self) -> int | None:
        """Difference in ms between the largest and the smallest lastCaughtUpTimeMs of the dropped followers.

        None if it is logged for fewer than two followers.
        """
        known = [burst.starts_ms for burst in self.bursts.values() if burst.starts_ms]
        return max(s[1] for s in known) - min(s[0] for s in known) if len(known) > 1 else None


def expiration_checks(rows: Iterable[Shrink], found: FoundLines) -> list[ExpirationCheck]:
    """Return the checks in which leaders dropped followers, numbered in chronological order, each with its shrinks.

    Parameters
    ----------
    rows : iterable of Shrink
        Shrinks by leaders, in chronological order.
    found : FoundLines
        Provides the brokers' lag times and the times at which their processes started.
    """
    by_leader: dict[int, list[ExpirationCheck]] = defaultdict(list)
    for row in rows:
        own = by_leader[row.leader_id]
        if own and row.at_us - own[-1].rows[-1].at_us <= ONE_CHECK_US:
            own[-1].rows.append(row)
        else:
            # Leaders check every half lag time, but not at the same moments, so another one may be this much later.
            period_us = (lag_time_in_lines(found, row.leader_id) or UNKNOWN_LAG_TIME_MS) * 500 + ONE_CHECK_US
            own.append(ExpirationCheck(row.leader_id, [row], period_us))
    for leader_id, own in by_leader.items():
        late = _late_checks_ms([check.at_us for check in own], leader_id, found)
        for check, late_ms in zip(own, late, strict=True):
            check.late_ms = late_ms
            check.close()
    checks = sorted((check for own in by_leader.values() for check in own), key=lambda c: (c.at_us, c.leader_id))
    for number, check in enumerate(checks):
        check.number = number
    _number_storms(checks)
    return checks


def _number_storms(checks: Sequence[ExpirationCheck]) -> None:
    """Set the storm of each check. A storm joins checks that share a broker and whose followers stopped together."""
    root = list(range(len(checks)))

    def find(n: int) -> int:
        """Return the index of the first check of the storm that check ``n`` belongs to."""
        while root[n] != n:
            root[n] = n = root[root[n]]
        return n

    first = 0
    for n, check in enumerate(checks):
        while check.at_us - checks[first].at_us > STORM_US:
            first += 1
        brokers = check.bursts.keys() | {check.leader_id}
        for m in range(first, n):
            if (
                find(m) != find(n)
                and brokers & (checks[m].bursts.keys() | {checks[m].leader_id})
                and _checks_at_same_time(check, checks[m])
            ):
                root[max(find(m), find(n))] = min(find(m), find(n))
    numbers = {old: new for new, old in enumerate(dict.fromkeys(find(n) for n in range(len(checks))))}
    for n, check in enumerate(checks):
        check.storm = numbers[find(n)]


def _checks_at_same_time(one: ExpirationCheck, other: ExpirationCheck) -> bool:
    """Whether two checks dropped followers that stopped at the same time."""
    return any(a.same_time(b) for a in one.bursts.values() for b in other.bursts.values())


def _late_checks_ms(checks: Sequence[int], leader_id: int, found: FoundLines) -> list[int | None]:
    """Return how late each check of a leader was, in ms; None if the schedule of its process is unknown.

    isr-expiration runs with a fixed period that begins when the process starts: half a lag time since 0.10.2, a whole
    lag time before. A check may be late, but never early. Therefore the check that most other checks follow after a
    whole number of periods is taken as on time. This needs at least two checks, and half of them must agree.

    Parameters
    ----------
    checks : sequence of int
        Times of the leader's checks, in microseconds since 1970, in chronological order.
    leader_id : int
    found : FoundLines
    """
    lag_time = found.settings.get((leader_id, LAG_TIME))  # no default, which may be wrong
    late: list[int | None] = [None] * len(checks)
    if not lag_time or lag_time < 2 * _SPREAD_MS:
        return late
    period = lag_time // 2
    starts = [at_us for at_us, _ in found.process_starts.get(leader_id, [])]
    processes: dict[int, list[int]] = {}
    for n, at_us in enumerate(checks):
        processes.setdefault(sum(start <= at_us for start in starts), []).append(n)
    for numbers in processes.values():
        at_ms = [checks[n] // 1000 for n in numbers]
        sample = at_ms[:_MOST_CHECKS]
        share = {ms: sum((other - ms) % period <= _SPREAD_MS for other in sample) for ms in sample}
        best = max(share, key=lambda ms: (share[ms], -ms))
        if share[best] < 2 or 2 * share[best] < len(sample):  # noqa: PLR2004 (a single check has no rhythm)
            continue
        for n, ms in zip(numbers, at_ms, strict=True):
            late[n] = (ms - best) % period if (ms - best) % period > _SPREAD_MS else 0
    return late
