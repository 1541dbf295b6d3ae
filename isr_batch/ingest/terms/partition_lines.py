"""Collect the leaders, replicas and ISRs of each partition from log lines, metadata records and listings."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from isr_batch.ingest.folder.partition_listing import Listed
from isr_batch.ingest.requests.coverage import Stretch
from isr_batch.ingest.terms.mid_term import LOGGED, SNAPSHOT, UNKNOWN_EPOCH, IsrReport, Partition, partition_of
from isr_batch.ingest.terms.parsed_logs import ParsedLogs


@dataclass
class PartitionEvidence:
    """The leaders, replicas and ISRs of partitions according to log lines, metadata records and listings.

    Parameters
    ----------
    isr : dict of partition to list of IsrReport
        ISRs in leaders' lines, in chronological order; if no line or record shows the partition, the ISR in a listing.
    records : dict of partition to list of IsrReport
        ISRs in metadata records, in chronological order. They are not in ``isr``.
    controller_us : int or None
        Time up to which the metadata log contains every change, in microseconds since 1970; None without a metadata
        log.
    replicas : dict of partition to (list of int, str)
        The last known assigned replicas, and their source.
    led : dict of partition to list of (at_us, leader_id, leader_epoch, source)
        Leaders according to metadata records and listings, in chronological order.
    named : list of dict
        Lines of leaders about partitions that they lead.
    shrinks : dict of (broker, partition) to list of dict
        Shrinking lines.
    """

    isr: dict[Partition, list[IsrReport]] = field(default_factory=lambda: defaultdict(list))
    records: dict[Partition, list[IsrReport]] = field(default_factory=lambda: defaultdict(list))
    controller_us: int | None = None
    replicas: dict[Partition, tuple[list[int], str]] = field(default_factory=dict)
    led: dict[Partition, list[tuple[int, int, int, str]]] = field(default_factory=lambda: defaultdict(list))
    named: list[dict[str, Any]] = field(default_factory=list)
    shrinks: dict[tuple[int, Partition], list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def by_records(self, key: Partition, at_us: int) -> IsrReport | None:
        """Return the ISR at a time according to metadata records; None if they do not cover the time."""
        before = [record for record in self.records[key] if record.at_us <= at_us]
        reaches = self.controller_us is not None and at_us <= self.controller_us
        return before[-1] if before and reaches else None

    def members_at(self, key: Partition, at_us: int) -> set[int]:
        """Return the ISR at a time, using metadata records or, without these, the ISR before the next logged change.

        The result is empty if neither is known.
        """
        record = self.by_records(key, at_us)
        if record:
            return set(record.after)
        following = next((each for each in sorted(self.isr[key]) if each.at_us > at_us), None)
        return set(following.before or ()) if following else set()

    def joins(self, key: Partition, replica: int, from_us: int, until_us: int) -> bool:
        """Return whether a line or record in a period shows the replica in the ISR."""
        reports = [*self.isr[key], *self.records[key]]
        return any(from_us < each.at_us <= until_us and replica in each.after for each in reports)

    def lines_and_snapshot(self, key: Partition, at_us: int) -> list[IsrReport]:
        """Return a partition's ISRs in its leaders' log lines, and the last one in the metadata log up to ``at_us``."""
        before = [record._replace(source=SNAPSHOT) for record in self.records[key] if record.at_us <= at_us]
        return sorted([*self.isr[key], *before[-1:]], key=lambda each: each.at_us)


class Earlier(NamedTuple):
    """Evidence about partitions that does not come from log lines.

    Parameters
    ----------
    listed : sequence of Listed
        Partitions in listings, which have no time.
    controller_us : int or None
        Time up to which the metadata log contains every change; None without a metadata log.
    """

    listed: Sequence[Listed]
    controller_us: int | None


def gather_partition_lines(
    sources: ParsedLogs, starts: pa.Table, earlier: Earlier, stretches: Sequence[Stretch]
) -> PartitionEvidence:
    """Collect all evidence about the leaders, replicas and ISRs of partitions.

    Parameters
    ----------
    sources : ParsedLogs
    starts : pa.Table
        Result of `isr_batch.ingest.terms.leader_epochs.term_starts`.
    earlier : Earlier
    stretches : sequence of Stretch
        Periods that the brokers' request logs cover.
    """
    evidence = PartitionEvidence(controller_us=earlier.controller_us)
    _add_lines_of_server_log(evidence, sources)
    _add_lines_of_state_changes(evidence, sources, starts)
    _add_metadata_records(evidence, sources)
    for partition in earlier.listed:
        _of_listing(evidence, partition, min((stretch.first_us for stretch in stretches), default=0))
    for lines in evidence.isr.values():
        lines.sort(key=lambda each: each.at_us)
    for leaders in evidence.led.values():
        leaders.sort(key=lambda each: each[0])
    return evidence


def _add_lines_of_server_log(evidence: PartitionEvidence, sources: ParsedLogs) -> None:
    """Add to the evidence the lines of server.log in which leaders show their ISRs."""
    shrinks = sources.shrinks.to_pylist()
    for row in shrinks:
        evidence.shrinks[row["broker_id"], partition_of(row)].append(row)
    writes = sources.isr_writes.to_pylist()
    for row in [*shrinks, *(row for row in writes if not row["failed"])]:
        _add_partition_line(evidence, row, row["isr_before"], row["isr_after"])
    for row in sources.isr_updates.to_pylist():
        _add_partition_line(evidence, row, None, row["isr"])


def _add_lines_of_state_changes(evidence: PartitionEvidence, sources: ParsedLogs, starts: pa.Table) -> None:
    """Add lines about starts of terms, and about assigned replicas, to the evidence."""
    stayed = sources.stayed.to_pylist()
    for row in stayed:
        _add_partition_line(evidence, row, None, row["isr"])
    for row in [*stayed, *sources.accepted.to_pylist()]:
        evidence.replicas[partition_of(row)] = row["replicas"], LOGGED
    for row in starts.to_pylist():
        if row["leads"]:
            evidence.isr[partition_of(row)].append(IsrReport(row["stamp_us"], None, tuple(row["isr"] or ()), LOGGED))


def _add_metadata_records(evidence: PartitionEvidence, sources: ParsedLogs) -> None:
    """Add metadata records to the evidence."""
    history = sources.history.to_pylist()
    for row in sorted(history, key=lambda row: row["position"]):
        key = partition_of(row)
        if row["replicas"]:
            evidence.replicas[key] = row["replicas"], LOGGED
        if row["leader_id"] >= 0:
            evidence.led[key].append((row["at_us"], row["leader_id"], row["leader_epoch"], LOGGED))
        if row["isr"]:
            evidence.records[key].append(IsrReport(row["at_us"], None, tuple(row["isr"]), LOGGED))


def _of_listing(evidence: PartitionEvidence, partition: Listed, log_begins_us: int) -> None:
    """Add a partition in a listing, as of the time ``log_begins_us``, to the evidence where other sources lack it."""
    key = partition.topic, partition.partition_id
    evidence.replicas.setdefault(key, (list(partition.replicas), SNAPSHOT))
    if not evidence.led[key]:
        evidence.led[key].append((log_begins_us, partition.leader_id, UNKNOWN_EPOCH, SNAPSHOT))
    if not evidence.isr[key] and not evidence.records[key]:
        evidence.isr[key].append(IsrReport(log_begins_us, None, partition.isr, SNAPSHOT))


def _add_partition_line(
    evidence: PartitionEvidence, row: Mapping[str, Any], before: Sequence[int] | None, after: Sequence[int]
) -> None:
    """Add a leader's line to the evidence, with the ISR that it shows and, if known, the ISR ``before``."""
    key = partition_of(row)
    evidence.isr[key].append(IsrReport(row["stamp_us"], tuple(before) if before else None, tuple(after), LOGGED))
    evidence.named.append(
        {"broker_id": row["broker_id"], "topic": key[0], "partition_id": key[1], "at_us": row["stamp_us"],
         "leader_epoch": row.get("leader_epoch", UNKNOWN_EPOCH)}
    )  # fmt: skip
