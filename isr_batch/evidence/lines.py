"""Classes for log lines in server.log and state-change.log that are evidence about ISR shrinks."""

from dataclasses import dataclass, field
from typing import NamedTuple

from isr_batch.broker_lines.forms import LAG_TIME
from isr_batch.broker_lines.vendors import default_lag_time_ms, vendor_release


class EvidencePosition(NamedTuple):
    """File and line number of a log line that is evidence."""

    source_file: str
    source_line: int

    def __str__(self) -> str:
        """Return ``file:line``, a form in which editors can open it."""
        return f"{self.source_file}:{self.source_line}"


class ReplicaInLine(NamedTuple):
    """A dropped replica as a Shrinking line describes it. A field is None if the leader did not log it or know it."""

    log_end_offset: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True)
class AttemptLine:
    """A line in which a leader announces that it will write a new ISR.

    ``shrinks`` is true for a Shrinking line and false for an Expanding line. ``replicas`` maps each replica that leaves
    or joins the ISR to what the line says about it.
    """

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
    """A line that shows the ISR of a partition at some time.

    Attributes
    ----------
    isr : tuple of int or None
        None if the line is about the start of a term and does not show the ISR.
    source : str
        ``updated``: the ISR write of the leader succeeded. ``stayed``: the leader goes on leading, with an ISR that it
        or the controller changed. ``started``: a term began, perhaps with an ISR that changed earlier.
    under_min_isr : bool or None
        Whether the ISR is smaller than min.insync.replicas; None if the release does not log it.
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
    """A line that says that an ISR write of a leader failed. ``shrinks`` is None for an unknown kind of change."""

    place: EvidencePosition
    at_us: int
    leader_id: int
    partition: tuple[str, int]
    shrinks: bool | None


@dataclass(frozen=True)
class UnreadIsrLine:
    """A line about an ISR whose format is unknown. ``partition`` is None if the line does not name a partition."""

    at_us: int
    broker_id: int
    partition: tuple[str, int] | None


@dataclass(frozen=True)
class TroubleLine:
    """A line in which a follower reports why it cannot fetch. Leader and partition are None where it names none."""

    place: EvidencePosition
    at_us: int
    broker_id: int
    kind: str
    leader_id: int | None
    partition: tuple[str, int] | None


@dataclass
class FoundLines:
    """The log lines of a cluster that are evidence about shrinks, and what they show about brokers and partitions.

    Each list holds one kind of line in chronological order. Times are microseconds since 1970.

    Attributes
    ----------
    settings : dict
        Values of broker settings, by broker and name of the setting.
    min_isr : dict
        min.insync.replicas by topic, taken from lines about the creation of the topic's logs.
    releases : dict
        Kafka releases, by broker.
    process_starts : dict
        Times and positions of the lines that show that a broker's process started, by broker.
    least_lag_ms : dict
        Shortest lag at which a leader dropped a follower, by leader.
    span_us : dict
        Times of the first and the last line of all logs of a broker, by broker.
    server_us : dict or None
        Times of the first and the last line of server.log, by broker. Brokers whose server.log is missing or has no
        lines at INFO are left out. If it is None, server.log covers all times.
    created : dict
        Times and positions of the lines that show the creation of a log or its first term, by topic and partition.
    elections : dict
        Times at which another broker became the leader, by topic and partition. The first known leader counts too.
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
    """Return a broker's replica.lag.time.max.ms: the value in its settings, or else the default of its release.

    None if neither is known, or if only the default is known but the broker once dropped a follower that lagged no
    longer than that, so that it must have had another value.
    """
    printed = found.settings.get((broker_id, LAG_TIME))
    if printed is not None:
        return printed
    default = _default_lag_time_of_broker_ms(found, broker_id)
    least = found.least_lag_ms.get(broker_id)
    return None if default is None or (least is not None and least <= default) else default


def printed_lag_time(found: FoundLines, broker_id: int) -> int | None:
    """Return replica.lag.time.max.ms from a broker's log, or from a file of settings next to it; None if in neither."""
    return found.settings.get((broker_id, LAG_TIME))


def _default_lag_time_of_broker_ms(found: FoundLines, broker_id: int) -> int | None:
    release = found.releases.get(broker_id) or next(iter(found.releases.values()), None)
    named = vendor_release(release) if release else None
    return None if named is None else default_lag_time_ms(named)
