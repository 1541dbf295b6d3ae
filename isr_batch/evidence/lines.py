"""Classes for the lines in server.log and state-change.log that are evidence about ISR shrinks."""

from dataclasses import dataclass, field
from typing import NamedTuple

from isr_batch.broker_lines.forms import LAG_TIME
from isr_batch.broker_lines.vendors import default_lag_time_ms, vendor_release


class EvidencePosition(NamedTuple):
    """File and line number of a line that is evidence."""

    source_file: str
    source_line: int

    def __str__(self) -> str:
        """Return ``file:line``, which editors understand."""
        return f"{self.source_file}:{self.source_line}"


class ReplicaInLine(NamedTuple):
    """A dropped replica as its leader logged it. A field is None if the line does not have it, or has "unknown"."""

    log_end_offset: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True)
class AttemptLine:
    """A Shrinking or Expanding line: a leader's attempt to write a new ISR."""

    place: EvidencePosition
    at_us: int
    leader_id: int
    partition: tuple[str, int]
    shrinks: bool
    isr_before: tuple[int, ...]
    isr_after: tuple[int, ...]
    high_watermark: int | None = None
    leader_log_end_offset: int | None = None
    replicas: dict[int, ReplicaInLine] = field(default_factory=dict)


@dataclass(frozen=True)
class IsrStateLine:
    """A line that shows a partition's ISR.

    Attributes
    ----------
    isr : tuple of int or None
        None if a line about the start of a term does not have it.
    source : str
        ``updated``: the leader's own change was written. ``stayed``: the leader learned of a change, its own or
        another. ``started``: a term began; the ISR may be older.
    under_min_isr : bool or None
        None if the release does not log it.
    """

    place: EvidencePosition
    at_us: int
    leader_id: int
    partition: tuple[str, int]
    isr: tuple[int, ...] | None
    partition_epoch: int | None
    source: str
    under_min_isr: bool | None = None


@dataclass(frozen=True)
class FailedWriteLine:
    """A line about a leader's failed ISR write. ``shrinks`` is None if the line does not show the kind of change."""

    place: EvidencePosition
    at_us: int
    leader_id: int
    partition: tuple[str, int]
    shrinks: bool | None


@dataclass(frozen=True)
class UnreadIsrLine:
    """A leader's line about an ISR in an unknown format. ``partition`` is None if the line does not name it."""

    at_us: int
    broker_id: int
    partition: tuple[str, int] | None


@dataclass(frozen=True)
class TroubleLine:
    """A line in which a follower reports a failed fetch. Leader and partition are None if it does not name them."""

    place: EvidencePosition
    at_us: int
    broker_id: int
    kind: str
    leader_id: int | None
    partition: tuple[str, int] | None


@dataclass
class FoundLines:
    """The parsed lines that are evidence, by kind, in chronological order, and facts about brokers and partitions.

    Attributes
    ----------
    settings : dict
        Values of settings, by broker and name of the setting.
    min_isr : dict
        min.insync.replicas by topic, from lines about the creation of its logs.
    releases : dict
        Kafka releases, by broker.
    process_starts : dict
        Time (in microseconds since 1970) and line of each start of a broker, by broker.
    least_lag_ms : dict
        Shortest lag at which a leader dropped a follower, by leader.
    span_us : dict
        Times of the first and the last line of a broker's logs, by broker.
    server_us : dict or None
        The same for its server.log, if that has lines at INFO. None: server.log covers all times.
    created : dict
        Times and lines of the creation of a log, or of the first term, by topic and partition.
    elections : dict
        Times at which another broker began to lead, by topic and partition. The first known leader counts too.
    """

    attempts: list[AttemptLine] = field(default_factory=list)
    states: list[IsrStateLine] = field(default_factory=list)
    failed: list[FailedWriteLine] = field(default_factory=list)
    troubles: list[TroubleLine] = field(default_factory=list)
    unread: list[UnreadIsrLine] = field(default_factory=list)
    created: dict[tuple[str, int], list[tuple[int, EvidencePosition]]] = field(default_factory=dict)
    elections: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    min_isr: dict[str, int] = field(default_factory=dict)
    settings: dict[tuple[int, str], int] = field(default_factory=dict)
    releases: dict[int, str] = field(default_factory=dict)
    least_lag_ms: dict[int, int] = field(default_factory=dict)
    process_starts: dict[int, list[tuple[int, EvidencePosition]]] = field(default_factory=dict)
    server_us: dict[int, tuple[int, int]] | None = None
    span_us: dict[int, tuple[int, int]] = field(default_factory=dict)


def lag_time_in_lines(found: FoundLines, broker_id: int) -> int | None:
    """Return a broker's replica.lag.time.max.ms: the logged value, or else the default of its release.

    The default is not used if the broker dropped a follower after a shorter lag. None if the lag time is unknown.
    """
    printed = found.settings.get((broker_id, LAG_TIME))
    if printed is not None:
        return printed
    default = _default_lag_time_of_broker_ms(found, broker_id)
    least = found.least_lag_ms.get(broker_id)
    return None if default is None or (least is not None and least <= default) else default


def printed_lag_time(found: FoundLines, broker_id: int) -> int | None:
    """Return a broker's replica.lag.time.max.ms from its lines or from files next to its logs; None if unknown."""
    return found.settings.get((broker_id, LAG_TIME))


def _default_lag_time_of_broker_ms(found: FoundLines, broker_id: int) -> int | None:
    release = found.releases.get(broker_id) or next(iter(found.releases.values()), None)
    named = vendor_release(release) if release else None
    return None if named is None else default_lag_time_ms(named)
