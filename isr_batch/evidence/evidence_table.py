"""Make, write and read the rows of table shrink_evidence."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from isr_batch.evidence.lines import FoundLines, printed_lag_time
from isr_batch.evidence.shrinks import Shrink, shrinks
from isr_batch.evidence.suspects import SuspectedShrink, weigh_suspects
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.evidence import SHRINK_EVIDENCE

SCHEMA: Final = arrow_schema(SHRINK_EVIDENCE)
TERM_COLUMNS: Final = ("start_time", "topic", "partition_id", "leader_id", "isr_at_start", "observers")
"""Columns of leader_epochs that `evidence_rows` uses. The first must be a timestamp in microseconds."""


def evidence_rows(found: FoundLines, cluster_id: str, terms: pa.Table | None = None) -> pa.Table:
    """Return the rows of table shrink_evidence, one per replica that left an ISR, in chronological order.

    Each row names the suspected broker and the reason. There are no rows for observers (replicas that fetch like
    followers, but are not meant to join an ISR), unless they were in the ISR when the leader's term began.

    Parameters
    ----------
    found : FoundLines
        Lines of all brokers of a cluster.
    cluster_id : str
        Value of the column cluster_id in every row.
    terms : pa.Table, optional
        The cluster's rows of table leader_epochs, with `TERM_COLUMNS`. Without them, no observers are known.
    """
    left = shrinks(found)
    evidence = weigh_suspects(left if terms is None else _shrinks_of_others(left, terms), found)
    storms: dict[int, int] = {}
    pairs: dict[tuple[int, int], set[int]] = defaultdict(set)
    for one in evidence:
        if one.check:
            storms.setdefault(one.check.storm, one.shrink.at_us)
            pairs[one.shrink.leader_id, one.shrink.replica_id].add(one.check.number)
    rows = [
        _evidence_row(one, found, cluster_id, storms, len(pairs[one.shrink.leader_id, one.shrink.replica_id]))
        for one in evidence
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _shrinks_of_others(left: Sequence[Shrink], terms: pa.Table) -> list[Shrink]:
    """Return the shrinks without those of observers that were outside the ISR when the leader's term began."""
    begun: dict[tuple[str, int, int], list[tuple[int, set[int]]]] = defaultdict(list)
    for row in terms.set_column(0, TERM_COLUMNS[0], terms[TERM_COLUMNS[0]].cast(pa.int64())).to_pylist():
        outside = {*(row["observers"] or ())} - {*row["isr_at_start"]}
        begun[row["topic"], row["partition_id"], row["leader_id"]].append((row["start_time"], outside))

    def observes(one: Shrink) -> bool:
        before = [term for term in begun[*one.partition, one.leader_id] if term[0] <= one.at_us]
        return bool(before) and one.replica_id in max(before, key=itemgetter(0))[1]

    return [one for one in left if not observes(one)]


def write_evidence_table(small: SmallTables, cluster_id: str, evidence: pa.Table, found: FoundLines) -> int:
    """Write rows to table shrink_evidence, in place of earlier rows about the same leaders in the same period.

    Parameters
    ----------
    small : SmallTables
        Writer of the lake's small tables.
    cluster_id : str
    evidence : pa.Table
        Rows of that cluster, from `evidence_rows`.
    found : FoundLines
        The lines that `evidence_rows` used. ``span_us`` is the period in which earlier rows are replaced.

    Returns
    -------
    int
        Number of rows written.
    """
    if not found.span_us:
        return 0
    all_of_it = min(first for first, _ in found.span_us.values()), max(last for _, last in found.span_us.values())
    leaders, times = evidence["leader_id"].to_pylist(), evidence["change_time"].cast(pa.int64()).to_pylist()
    spans = dict.fromkeys(leaders, all_of_it) | found.span_us
    # A log may contain lines that another broker wrote, at times outside the period of that broker's own logs.
    apart = {(of, (us, us)) for of, us in zip(leaders, times, strict=True) if not spans[of][0] <= us <= spans[of][1]}
    of_leaders = (
        f"leader_id = {leader} AND change_time BETWEEN TIMESTAMP'{_evidence_time_text(first)}' "
        f"AND TIMESTAMP'{_evidence_time_text(last)}'"
        for leader, (first, last) in sorted([*spans.items(), *apart])
    )
    covered = f"cluster_id = {sql_literal(cluster_id)} AND ({' OR '.join(of_leaders)})"
    return replace_arrow(small.lake, small.sql, SHRINK_EVIDENCE, evidence, covered)


def read_evidence_table(lake: Lake, cluster_id: str) -> pa.Table:
    """Read the rows of table shrink_evidence that belong to a cluster, in chronological order."""
    rows = read_columns(lake, SHRINK_EVIDENCE.name, SHRINK_EVIDENCE.column_names, {"cluster_id": cluster_id})
    order = ("change_time", "source_file", "source_line", "replica_id")
    return rows.sort_by([(name, "ascending") for name in order])


def _evidence_row(
    one: SuspectedShrink, found: FoundLines, cluster_id: str, storms: dict[int, int], pair_checks: int
) -> dict[str, Any]:
    row, check = one.shrink, one.check
    topic, partition_id = row.partition
    at = _evidence_time(row.at_us)
    return {
        "cluster_id": cluster_id, "topic": topic, "partition_id": partition_id, "leader_id": row.leader_id,
        "replica_id": row.replica_id, "change_time": at, "made_by": row.made_by,
        "earliest_time": None if row.earliest_us is None else _evidence_time(row.earliest_us),
        "isr_before": row.isr_before, "isr_after": row.isr_after, "high_watermark": row.high_watermark,
        "leader_log_end_offset": row.leader_log_end_offset, "follower_log_end_offset": row.follower_log_end_offset,
        "records_behind": row.records_behind, "last_caught_up_time_ms": row.last_caught_up_ms, "lag_ms": row.lag_ms,
        "replica_lag_time_max_ms": printed_lag_time(found, row.leader_id),
        "returned_ms": row.returned_ms, "returned_source": row.returned_source,
        "min_insync_replicas": row.min_isr, "under_min_isr": row.under_min_isr,
        "under_min_isr_ms": row.under_min_isr_ms, "under_min_isr_source": row.under_min_isr_source,
        "write_outcome": row.write, "retry": row.retry, "failing_ms": row.failing_ms,
        "check_replicas": len(check.rows) if check else None,
        "check_partitions": len(check.partitions) if check else None,
        "check_followers": len(check.bursts) if check else None,
        "check_late_ms": check.late_ms if check else None,
        "storm_time": _evidence_time(storms[check.storm]) if check else None,
        "pair_checks": pair_checks,
        "suspect": one.suspect, "suspect_broker": one.suspect_broker, "strength": one.strength,
        "spurious": one.spurious, "reason": one.reason, "evidence_lines": [str(place) for place in one.lines],
        "after_event": one.after_event, "after_event_ms": one.after_ms,
        "trouble": one.trouble.kind if one.trouble else None,
        "trouble_line": str(one.trouble.place) if one.trouble else None,
        "source_file": row.place.source_file, "source_line": row.place.source_line, "event_date": at.date(),
    }  # fmt: skip


def _evidence_time(us: int) -> datetime:
    return datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)


def _evidence_time_text(us: int) -> str:
    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}.{us % 1_000_000:06}"


Row = dict[str, Any]


_USED = [
    "topic", "partition_id", "leader_id", "replica_id", "change_time", "earliest_time", "made_by", "records_behind",
    "last_caught_up_time_ms", "lag_ms", "replica_lag_time_max_ms", "returned_ms", "returned_source", "under_min_isr",
    "under_min_isr_ms", "write_outcome", "failing_ms", "retry", "storm_time", "pair_checks", "suspect",
    "suspect_broker", "strength", "reason", "evidence_lines", "after_event", "after_event_ms", "trouble",
    "trouble_line", "under_min_isr_source", "source_file", "source_line",
]  # fmt: skip


def rows_of_evidence_table(evidence: pa.Table) -> list[Row]:
    """Convert rows of table shrink_evidence to dicts, without the columns that no text about shrinks needs."""
    rows: list[Row] = evidence.select(_USED).to_pylist()
    return rows
