"""Reconstruct each partition's ISR from log lines: which replicas left, when they were back, and failed ISR writes."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from isr_batch.broker_lines.forms import MIN_ISR
from isr_batch.evidence.lines import (
    AttemptLine,
    EvidencePosition,
    FailedWriteLine,
    FoundLines,
    IsrStateLine,
    lag_time_in_lines,
)

EXACT, AT_MOST, AT_LEAST = "exact", "at_most", "at_least"
LEADER, CONTROLLER, UNKNOWN = "leader", "controller", "unknown"
DONE, FAILED = "done", "failed"
_WRITE_US = 60_000_000
"""A line can only be the response to an ISR write if it is at most this many microseconds later."""

Event = AttemptLine | IsrStateLine | FailedWriteLine


@dataclass
class Shrink:
    """One replica that left the ISR of a partition, and when it was back.

    Fields that end in ``_us`` and ``last_caught_up_ms`` are times since 1970. All other fields that end in ``_ms`` are
    durations.

    Attributes
    ----------
    made_by : str
        leader, controller or unknown.
    earliest_us : int or None
        When the replica was last known to be in the ISR, if it may have left before ``at_us``; otherwise None.
    returned_ms, returned_source : int, str, optional
        Time until the replica was back in the ISR. The source is exact, at_most (the time is an upper bound), at_least
        (a lower bound, because the replica may have left earlier) or None.
    under_min_isr_ms, under_min_isr_source : int, str, optional
        Time until the ISR was no longer under min ISR, with the same sources.
    write : str or None
        Outcome of the ISR write: done, failed, or None if unknown.
    retry : bool
        Whether the leader repeats a shrink whose ISR write had failed.
    failing_ms : int or None
        For how long the ISR writes of this shrink failed, if more than one did.
    """

    place: EvidencePosition
    at_us: int
    leader_id: int
    partition: tuple[str, int]
    replica_id: int
    made_by: str
    isr_before: tuple[int, ...]
    isr_after: tuple[int, ...]
    earliest_us: int | None = None
    high_watermark: int | None = None
    leader_log_end_offset: int | None = None
    follower_log_end_offset: int | None = None
    last_caught_up_ms: int | None = None
    returned_ms: int | None = None
    returned_source: str | None = None
    returned_place: EvidencePosition | None = None
    min_isr: int | None = None
    under_min_isr: bool | None = None
    under_min_isr_ms: int | None = None
    under_min_isr_source: str | None = None
    write: str | None = None
    retry: bool = False
    failing_ms: int | None = None
    lines: list[EvidencePosition] = field(default_factory=list)

    @property
    def records_behind(self) -> int | None:
        """Number of records that the follower lacked according to its leader; None if the leader did not log it."""
        if self.leader_log_end_offset is None or self.follower_log_end_offset is None:
            return None
        return self.leader_log_end_offset - self.follower_log_end_offset

    def leave_earlier(self) -> None:
        """Correct two durations of a shrink whose replica may have left the ISR before ``at_us``; call it for no other.

        ``returned_ms`` and ``under_min_isr_ms`` count from ``at_us``, so they may be too short. Therefore exact
        durations become lower bounds, and upper bounds are set to None.
        """
        bounds = {EXACT: AT_LEAST}
        self.returned_source = bounds.get(self.returned_source or "")
        self.under_min_isr_source = bounds.get(self.under_min_isr_source or "")
        self.returned_ms = self.returned_ms if self.returned_source else None
        self.under_min_isr_ms = self.under_min_isr_ms if self.under_min_isr_source else None

    @property
    def lag_ms(self) -> int | None:
        """Milliseconds from lastCaughtUpTimeMs to the shrink; None if the leader did not log lastCaughtUpTimeMs."""
        return None if self.last_caught_up_ms is None else self.at_us // 1000 - self.last_caught_up_ms


def shrinks(found: FoundLines) -> list[Shrink]:
    """Find all shrinks in the log lines of a cluster. Return one per dropped replica, in chronological order."""
    by_partition: dict[tuple[str, int], list[Event]] = defaultdict(list)
    every: list[Event] = [*found.attempts, *found.states, *found.failed]
    for event in sorted(every, key=lambda event: (event.at_us, event.place)):
        by_partition[event.partition].append(event)
    histories = [_ShrinkHistory(events, found) for events in by_partition.values()]
    filtered = frozenset(leader for history in histories for leader in history.leaders_without_lines())
    rows = [row for history in histories for row in history.shrinks(filtered)]
    return sorted(rows, key=lambda row: (row.at_us, row.place, row.replica_id))


class _ShrinkHistory:
    """The lines about one partition in chronological order, and the shrinks that they show."""

    def __init__(self, events: Sequence[Event], found: FoundLines) -> None:
        self._events, self._found = events, found
        self._written = [self._outcome(n) for n in range(len(events))]
        self._retries = self._find_retries()
        self._epochs = self._known_epochs()

    def leaders_without_lines(self) -> Iterator[int]:
        """Yield the leaders whose Shrinking lines seem to have been filtered out of the log.

        Such a leader wrote an ISR that lacks earlier members, without a Shrinking line. In addition, either it has no
        Shrinking line for any partition, or this write only dropped replicas.
        """
        shrinking = {attempt.leader_id for attempt in self._found.attempts if attempt.shrinks}
        for n, state, isr_before, since_us, *_ in self._without_line():
            attempted = any(
                isinstance(event, AttemptLine) and event.leader_id == state.leader_id and event.at_us >= since_us
                for event in self._events[:n]
            )
            only_drops = set(state.isr or ()) < set(isr_before) and not attempted
            if state.source == "updated" and (only_drops or state.leader_id not in shrinking):
                yield state.leader_id

    def shrinks(self, filtered: Collection[int]) -> Iterator[Shrink]:
        """Yield the shrinks with a Shrinking line, and then the shrinks without one.

        A shrink without a Shrinking line was made by the controller, if the leader would have logged one. Otherwise its
        maker is unknown. Leaders in ``filtered`` do not log them.
        """
        for n, event in enumerate(self._events):
            if not isinstance(event, AttemptLine) or not event.shrinks:
                continue
            written, retry = self._written[n], n in self._retries
            failing = self._failing_ms(n, event) if written == FAILED and not retry else None
            for replica_id, replica in event.replicas.items():
                row = Shrink(
                    event.place, event.at_us, event.leader_id, event.partition, replica_id, LEADER, event.isr_before,
                    event.isr_after, None, event.high_watermark, event.leader_log_end_offset, replica.log_end_offset,
                    replica.last_caught_up_ms, write=written, retry=retry, failing_ms=failing, lines=[event.place],
                )  # fmt: skip
                if written != FAILED:
                    self._follow(row, n, self._epochs[n])
                yield row
        for n, state, isr_before, since_us, gone, elected, late in self._without_line():
            is_known = state.leader_id not in filtered and self._covered(state, since_us, elected=elected)
            maker = CONTROLLER if is_known else UNKNOWN
            for replica_id in gone:
                row = Shrink(
                    state.place, state.at_us, state.leader_id, state.partition, replica_id, maker, isr_before,
                    state.isr or (), since_us if replica_id in late else None, write=DONE, lines=[state.place],
                )  # fmt: skip
                self._follow(row, n, self._epochs[n + 1])
                if row.earliest_us is not None:
                    row.leave_earlier()
                yield row

    def _outcome(self, n: int) -> str | None:
        """Return the outcome of the ISR write that the n-th line announces: done, failed, or None if unknown."""
        attempt = self._events[n]
        if not isinstance(attempt, AttemptLine):
            return None
        for event in self._events[n + 1 :]:
            if event.at_us - attempt.at_us > _WRITE_US:
                return None
            if event.leader_id != attempt.leader_id:
                continue
            if isinstance(event, FailedWriteLine):
                if event.shrinks in (None, attempt.shrinks):
                    return FAILED
                continue
            if isinstance(event, AttemptLine):
                return None
            if event.isr is not None and set(event.isr) == set(attempt.isr_after):
                return DONE
        return None

    def _find_retries(self) -> set[int]:
        """Return the indices of attempts that repeat the attempt before them, whose ISR write failed or must have."""
        retries = set()
        last: tuple[int, AttemptLine] | None = None
        for n, event in enumerate(self._events):
            if isinstance(event, IsrStateLine):
                last = None if event.isr is not None else last
            elif isinstance(event, AttemptLine):
                if last and _same_shrink_attempt(last[1], event) and (
                    self._written[last[0]] == FAILED or not self._back_between(last[1], event)
                ):  # fmt: skip
                    retries.add(n)
                last = n, event
        return retries

    def _back_between(self, one: AttemptLine, other: AttemptLine) -> bool:
        """Whether the dropped replicas must have been back in the ISR between two attempts at the same shrink.

        If both lines show lastCaughtUpTimeMs, the replicas were back if it changed. Otherwise they are assumed to have
        been back if at least a lag time passed between the attempts, or if the lag time is unknown.
        """
        for replica_id, replica in other.replicas.items():
            if replica.last_caught_up_ms is not None:
                return one.replicas[replica_id].last_caught_up_ms != replica.last_caught_up_ms
        lag = lag_time_in_lines(self._found, one.leader_id)
        return lag is None or other.at_us - one.at_us >= lag * 1000

    def _failing_ms(self, n: int, attempt: AttemptLine) -> int | None:
        """Return ms from ``attempt``, event ``n``, to its last failed ISR write; None if it failed at most once."""
        last_us, failures = attempt.at_us, 0
        for event in self._events[n + 1 :]:
            if event.leader_id == attempt.leader_id and isinstance(event, FailedWriteLine):
                last_us, failures = event.at_us, failures + 1
            elif event.leader_id == attempt.leader_id and isinstance(event, IsrStateLine):
                break
        return (last_us - attempt.at_us) // 1000 if failures > 1 else None

    def _known_epochs(self) -> list[int]:
        """Return for each line the highest partition epoch in the lines before it, and as last item that of all lines.

        The epoch is -1 as long as no line shows one.
        """
        known, highest = [], -1
        for event in self._events:
            known.append(highest)
            if isinstance(event, IsrStateLine) and event.partition_epoch is not None:
                highest = max(highest, event.partition_epoch)
        return [*known, highest]

    def _follow(self, row: Shrink, n: int, epoch: int) -> None:
        """Set in ``row`` when the dropped replica was back in the ISR, and for how long the ISR was under min ISR.

        The lines after the ``n``-th one show this. ``epoch`` is the highest partition epoch known at the shrink.
        """
        found = self._found
        row.min_isr = found.min_isr.get(row.partition[0], found.settings.get((row.leader_id, MIN_ISR)))
        row.under_min_isr = None if row.min_isr is None else len(row.isr_after) < row.min_isr
        for event, isr, source in self._known_isr(n + 1, epoch, row.leader_id):
            if isinstance(event, IsrStateLine) and event.source == "updated" and set(isr) == set(row.isr_after) and (
                event.under_min_isr is not None and event.at_us - row.at_us < _WRITE_US
            ):  # fmt: skip
                row.under_min_isr = event.under_min_isr
            took_ms = (event.at_us - row.at_us) // 1000
            if row.returned_source is None and row.replica_id in isr:
                row.returned_ms, row.returned_source, row.returned_place = took_ms, source, event.place
                row.lines.append(event.place)
            enough = len(isr) >= row.min_isr if row.min_isr is not None else _shrink_ends_under_min_isr(event)
            if row.under_min_isr and row.under_min_isr_source is None and enough:
                row.under_min_isr_ms, row.under_min_isr_source = took_ms, source
            if row.returned_source and (row.under_min_isr_source or not row.under_min_isr):
                return

    def _known_isr(self, n: int, epoch: int, leader_id: int) -> Iterator[tuple[Event, tuple[int, ...], str]]:
        """Yield each ISR that a line from the ``n``-th on shows: (line, ISR, source of its time).

        The source is ``exact`` if the ISR changed at the time of the line. It is ``at_most`` if the ISR may have
        changed earlier, because another broker than ``leader_id`` led before, or because partition epochs in between
        are in no line. If a leader learns through metadata that its own ISR write succeeded, it does not log that.
        """
        unlogged = 1  # epoch of the write of the shrink itself
        for later in range(n, len(self._events)):
            event = self._events[later]
            if isinstance(event, IsrStateLine) and event.isr is not None:
                # Lines with an older partition epoch are skipped, because a leader may learn of a change late.
                if event.partition_epoch is not None and event.partition_epoch <= epoch:
                    continue
                follows = event.leader_id == leader_id and (
                    event.partition_epoch is None or epoch < 0 or event.partition_epoch <= epoch + 1 + unlogged
                )
                yield event, event.isr, EXACT if follows and event.source != "started" else AT_MOST
                epoch, unlogged = epoch if event.partition_epoch is None else event.partition_epoch, 0
            elif isinstance(event, AttemptLine) and later not in self._retries:
                yield event, event.isr_before, AT_MOST
                if not event.shrinks and self._written[later] != FAILED:
                    # Releases that print "Expanding ISR" write the ISR at once.
                    yield event, event.isr_after, EXACT
            else:
                continue
            leader_id = event.leader_id

    def _covered(self, state: IsrStateLine, since_us: int, *, elected: bool) -> bool:
        """Whether the logs would contain a Shrinking line if the leader had dropped a replica since ``since_us``.

        They may not if the partition has an ISR line in an unknown format in this time, or if server.log does not cover
        it. If the leader's server.log is missing, the result is true only after an election (``elected``): up to 3.6, a
        change that the leader made itself begins a term too.
        """
        until_us = state.at_us + _WRITE_US
        for line in self._found.unread:
            of_it = line.partition == state.partition or (line.partition is None and line.broker_id == state.leader_id)
            if of_it and since_us <= line.at_us <= until_us:
                return False
        if self._found.server_us is None:
            return True
        span = self._found.server_us.get(state.leader_id)
        return elected if span is None else span[0] <= since_us and state.at_us <= span[1] + _WRITE_US

    def _without_line(self) -> Iterator[tuple[int, IsrStateLine, tuple[int, ...], int, list[int], bool, list[int]]]:
        """Yield each line that shows that replicas left the ISR, although no Shrinking line announced it.

        The items are the line's index, the line, the ISR before, the time of the line that showed that ISR, the
        replicas that left, whether the line elects another leader, and the replicas that may have left earlier. The
        latter are all replicas if partition epochs in between are in no line. Without epochs, they are all but the
        previous leader if there was another leader before.
        """
        leader: int | None = None
        isr: tuple[int, ...] | None = None
        announced: set[int] = set()
        epoch, since_us = -1, 0
        for n, event in enumerate(self._events):
            if isinstance(event, AttemptLine) and self._written[n] != FAILED:
                if event.shrinks:
                    isr = isr or event.isr_before
                    announced |= event.replicas.keys()
                else:
                    isr = event.isr_after
                    announced -= set(isr)
                since_us = event.at_us
            elif isinstance(event, IsrStateLine) and event.isr is not None:
                if event.partition_epoch is not None and event.partition_epoch <= epoch:
                    continue
                if event.partition_epoch is None or epoch < 0:
                    on_time = {*isr} if isr and leader in {None, event.leader_id} else {leader}
                else:
                    on_time = {*(isr or ())} if event.partition_epoch <= epoch + 1 else set()
                epoch = epoch if event.partition_epoch is None else event.partition_epoch
                gone = [replica for replica in isr or () if replica not in event.isr and replica not in announced]
                if isr and gone:
                    late = [replica for replica in gone if replica not in on_time]
                    yield n, event, isr, since_us, gone, event.source == "started" and event.leader_id != leader, late
                leader, isr, since_us = event.leader_id, event.isr, event.at_us
                announced &= set(isr)


def _same_shrink_attempt(one: AttemptLine, other: AttemptLine) -> bool:
    """Whether two lines are attempts by the same leader at the same ISR change."""
    return (one.leader_id, one.shrinks, set(one.isr_before), set(one.isr_after)) == (
        other.leader_id, other.shrinks, set(other.isr_before), set(other.isr_after)
    )  # fmt: skip


def _shrink_ends_under_min_isr(event: Event) -> bool:
    """Whether a line says that the ISR has at least min.insync.replicas members."""
    return isinstance(event, IsrStateLine) and event.under_min_isr is False
