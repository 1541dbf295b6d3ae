"""Describe what the suspected brokers logged around storms of shrinks: JVM pauses, errors, refused produce requests."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from isr_batch.broker_lines.gc_log import LEAST_MS
from isr_batch.evidence.broker_troubles import (
    Row,
    is_of_jvm,
    lines_of_absence,
    pauses_in_words,
    trouble_in_words,
    troubles_of_absences,
)
from isr_batch.evidence.storms import Storm, storms
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_sql import ArrowSql, without_zones
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.evidence import BROKER_TROUBLES
from isr_batch.phrases import brokers_text
from isr_batch.shown_times import in_shown_zone, time_of_day

SHOWN: Final = 3
"""Maximum number of partitions that the sentence on refused produce requests names."""
_AT_LEAST: Final = timedelta(seconds=10)
"""If no line shows when a follower was last caught up, the search for errors begins this long before a storm."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def notes_of_brokers(lake: Lake, cluster_id: str, evidence: pa.Table) -> list[str]:
    """Return up to two sentences on what brokers logged around the shrinks.

    The first is on JVM pauses and errors of the suspected brokers, the second on refused produce requests.

    Parameters
    ----------
    lake : Lake
    cluster_id : str
    evidence : pa.Table
        Rows of the cluster, from `isr_batch.evidence.evidence_table.read_evidence_table`.
    """
    troubles, coverage = (
        without_zones(read_columns(lake, name, columns, {"cluster_id": cluster_id}))
        for name, columns in (
            (BROKER_TROUBLES.name, BROKER_TROUBLES.column_names),
            ("coverage", ("cluster_id", "broker_id", "log", "from_time", "until_time")),
        )
    )
    found = storms(evidence)
    absences = [
        {"number": n, "cluster_id": cluster_id, "broker_id": _broker_of_note(storm), **_absence_of_storm(storm)}
        for n, storm in enumerate(found)
    ]
    said = []
    if absences:
        with ArrowSql() as sql:
            rows = troubles_of_absences(sql, pa.Table.from_pylist(absences), troubles, coverage)
        not_jvms = [row for row in rows if is_of_jvm(row) is False]
        said = [_note_of_storm(storm, row) for storm, row in zip(found, rows, strict=True)]
        said += [_of_no_jvm(not_jvms)] if not_jvms else []
    notes = "; ".join(filter(None, said))
    refused = _refused_writes(troubles.sort_by("from_time").to_pylist())
    return [*([f"By the brokers' own logs: {notes}."] if notes else []), *refused]


def _broker_of_note(storm: Storm) -> int:
    """Return the broker whose logs are searched: the suspected broker, or the leader if no broker is suspected."""
    return storm.leader if storm.broker is None else storm.broker


def _absence_of_storm(storm: Storm) -> dict[str, int]:
    """Return an absence for `troubles_of_absences`, as if the suspected broker was absent during the storm.

    The keys are from_us, until_us, absent_us and over_us.
    """
    since = storm.since if storm.since_is_printed else storm.first - _AT_LEAST
    from_us, until_us = ((time - _EPOCH) // timedelta(microseconds=1) for time in (since, storm.first))
    last_us = (storm.last - _EPOCH) // timedelta(microseconds=1)
    over_us = max(last_us, until_us + 1000 * (storm.whole_after_ms or 0))
    return {"from_us": from_us, "until_us": until_us, "absent_us": until_us - from_us, "over_us": over_us}


def _note_of_storm(storm: Storm, absence: Row) -> str:
    """List the JVM pauses and errors that the suspected broker logged around a storm; empty if it logged none."""
    pauses = "" if is_of_jvm(absence) is False else pauses_in_words(absence)
    parts = [*filter(None, [pauses, trouble_in_words(absence)])]
    lines = [*(lines_of_absence(absence, pauses=True) if pauses else []), *lines_of_absence(absence, pauses=False)]
    named = f" [{', '.join(lines)}]" if lines else ""
    return f"at {time_of_day(storm.first)}, {', '.join(parts)}{named}" if parts else ""


def _of_no_jvm(absences: Sequence[Row]) -> str:
    """Say that no JVM pause of the suspected brokers explains the shrinks, and name the longest pause.

    ``absences`` are the times at which the brokers did not fetch or answer, as `troubles_of_absences` returns them.
    """
    longest = max(absences, key=lambda row: row["longest_us"])
    of = brokers_text(sorted({row["broker_id"] for row in absences}))
    if not longest["pauses"]:
        return f"gc.log of {of} has no pause of {LEAST_MS} ms before the shrinks"
    lines = lines_of_absence(longest, pauses=True)
    pause = f"{longest['longest_us'] // 1000} ms [{lines[0]}]"
    return f"no pause of the JVM of {of} explains the shrinks: the longest is {pause}"


def _refused_writes(troubles: Sequence[Row]) -> list[str]:
    """Return a list with a sentence on partitions for which produce requests failed, below min.insync.replicas."""
    first: dict[str, Row] = {}
    for row in troubles:
        if row["kind"] == "under_min_isr":
            first.setdefault(row["what"].partition(": ")[0], row)
    shown = [
        f"{row['what']} at {in_shown_zone(row['from_time']):%H:%M:%S} [{row['source_file']}:{row['source_line']}]"
        for row in [*first.values()][:SHOWN]
    ]
    more = f"; {len(first) - SHOWN} more" if len(first) > SHOWN else ""
    return [f"Writes were refused, as too few replicas were in sync: {'; '.join(shown)}{more}."] if shown else []
