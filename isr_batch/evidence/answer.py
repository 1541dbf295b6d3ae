"""Sum up what server.log alone shows: dropped replicas, the suspected broker, and the strength of the evidence."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

import pyarrow as pa

from isr_batch.evidence.events_before import EVENTS
from isr_batch.evidence.evidence_table import Row, rows_of_evidence_table
from isr_batch.evidence.shrinks import AT_LEAST, AT_MOST, CONTROLLER, FAILED, LEADER, UNKNOWN
from isr_batch.evidence.storms import Storm, storm_suspect, storms_in_rows, suspect_in_words
from isr_batch.evidence.suspects import ON_PURPOSE, suspicion_in_words
from isr_batch.evidence.trouble import KINDS
from isr_batch.phrases import count_of, least_to_largest, listed
from isr_batch.shown_times import day_and_time, in_shown_zone, time_of_day, zone_name

STORMS = 3
"""Maximum number of storms that the answer describes. If there are more, it describes those with most replicas."""
BOUNDS = {AT_MOST: "at most ", AT_LEAST: "at least "}
"""Words to print before a time, by the source of the time, if the time is an upper or lower bound."""
WITHOUT_REQUEST_LOG = (
    "There are no follower fetches (no request log), so nothing was replayed and no rule was compared: these lines "
    "cannot show what a follower had fetched, which broker delayed it, or what another rule would have done. "
    "docs/getting-logs.md shows how to switch the request log on for the next time."
)
NO_SHRINK = "No leader dropped a replica from an ISR in these logs: there is no Shrinking ISR line."
COLUMNS = (
    "at", "partition", "leader", "lost", "lag_ms", "records_behind", "back_after_ms", "same_check", "suspect",
    "evidence",
)  # fmt: skip
"""Keys of the rows that `answer_table` returns."""


def evidence_answer(
    evidence: pa.Table, *, request_log: bool = False, missing: Sequence[str] = (), notes: Sequence[str] = ()
) -> list[str]:
    """Explain the shrinks of a cluster in at most ten lines of text.

    The lines name the dropped replicas, the suspected brokers, and what the logs do not show.

    Parameters
    ----------
    evidence : pa.Table
        Rows of one cluster, from `isr_batch.evidence.evidence_table.evidence_rows`.
    request_log : bool
        Whether there was also a request log, so that rules were replayed. It only decides the last line.
    missing : sequence of str
        Sentences about missing logs, from `isr_batch.evidence.missing_logs.missing_logs`.
    notes : sequence of str
        Sentences about JVM pauses and errors, from `isr_batch.evidence.notes_of_brokers.notes_of_brokers`.
    """
    every = rows_of_evidence_table(evidence)
    rows = [row for row in every if not row["retry"]]
    by_leader = [row for row in rows if row["made_by"] == LEADER and row["storm_time"] is not None]
    found = storms_in_rows(every)
    on_purpose = _dropped_on_purpose([row for row in rows if row["made_by"] == LEADER and row["storm_time"] is None])
    begin = [_answer_of_first_storm(by_leader, found)] if found else []
    lines = [*begin, *missing, *filter(None, [on_purpose, _dropped_unexplained(rows)])] or [NO_SHRINK]
    largest = sorted(sorted(found, key=lambda storm: -storm.replicas)[:STORMS], key=lambda storm: storm.first)
    lines += map(_answer_about_storm, largest)
    if len(found) > STORMS:
        lines[-1] += f" {count_of(len(found) - STORMS, 'more storm')}: see the report."
    lines += notes
    lines += filter(None, (
        answer_line_how_far_behind(by_leader), answer_back_in_isr(by_leader), answer_avoiding_lag_time(by_leader),
        answer_under_min_isr(rows), _answer_of_all_else(every),
    ))  # fmt: skip
    end = "The replay's tables show the followers' fetches and the decisions of other rules."
    return [*lines[:9], end if request_log else WITHOUT_REQUEST_LOG]


def _dropped_on_purpose(rows: Sequence[Row]) -> str:
    """Describe shrinks in which a leader dropped a follower that did not lag; empty without rows."""
    if not rows:
        return ""
    first, last = (pick(row["change_time"] for row in rows) for pick in (min, max))
    lags, lag_times = ([row[name] for row in rows] for name in ("lag_ms", "replica_lag_time_max_ms"))
    whom = listed(sorted({row["replica_id"] for row in rows}))
    healthy = sum(row["records_behind"] == 0 for row in rows)
    left = f"{count_of(len(rows), 'replica')} of broker {whom} left the ISR"
    return (
        f"{left} at {day_and_time(first)} to {_answer_last_time(first, last)} {zone_name()}, "
        f"{least_to_largest(lags)} ms after they were last caught up: that is below "
        f"replica.lag.time.max.ms ({least_to_largest(lag_times)}), so no lag rule explains it. {ON_PURPOSE} "
        f"{healthy or 'None'} of them had nothing to fetch."
    )


def _dropped_unexplained(rows: Sequence[Row]) -> str:
    """Describe shrinks for which the logs do not show whether leader or controller made them; empty without any."""
    unknown = [row for row in rows if row["made_by"] == UNKNOWN]
    if not unknown:
        return ""
    first, last = (time_of_day(pick(row["change_time"] for row in unknown)) for pick in (min, max))
    late = sum(row["earliest_time"] is not None for row in unknown)
    earlier = f" ({late} of them perhaps earlier)" if late else ""
    return (
        f"{count_of(len(unknown), 'replica')} left an ISR from {first} to {last}{earlier}, a time for which the "
        "leader's server.log or its Shrinking ISR lines are missing or not understood: "
        "either the leader or the controller removed them."
    )


def _answer_of_first_storm(rows: Sequence[Row], found: Sequence[Storm]) -> str:
    """Say how many replicas were dropped in how many storms (groups of related shrinks), and which broker was first."""
    suspects = Counter(
        suspect_in_words(row["suspect_broker"], row["suspect"]) for row in rows if row["suspect_broker"] is not None
    )
    first = found[0]
    since = (
        f"since about {time_of_day(first.since)}"
        if first.since_is_printed
        else f"some time before {time_of_day(first.first)}"
    )
    most, number = next(iter(suspects.most_common(1)), ("", 0))
    also = f" Most of the shrinks point at {most}." if most != storm_suspect(first) and 2 * number > len(rows) else ""
    who = f"First to drop out was {storm_suspect(first)}, {since} ({suspicion_in_words(first.strength)})"
    if first.broker is None:
        who = f"Which broker dropped out first is not known ({since})"
    until = _answer_last_time(first.first, max(row["change_time"] for row in rows))
    return (
        f"{count_of(len(rows), 'replica')} left the ISR in {count_of(len(found), 'storm')}, from "
        f"{day_and_time(first.first)} to {until} {zone_name()}. {who}.{also}"
    )


def _answer_about_storm(storm: Storm) -> str:
    """Describe a storm: its time, number of replicas, suspected broker, strength of evidence, and end."""
    if storm.whole_after_ms is None:
        whole = "not all were seen to come back"
    else:
        whole = f"the ISR was whole again after {'at most ' if storm.whole_at_most else ''}{storm.whole_after_ms} ms"
    also = "".join(f", and {number} of them at {suspect_in_words(*suspect)}" for suspect, number in storm.also)
    return (
        f"{time_of_day(storm.first)}, {count_of(storm.replicas, 'replica')} of "
        f"{count_of(storm.partitions, 'partition')}: "
        f"this points at {storm_suspect(storm)} ({suspicion_in_words(storm.strength)}){also}; {whole}. "
        f"{storm.reason} [{', '.join(storm.lines[:3])}]"
    )


def answer_line_how_far_behind(rows: Sequence[Row]) -> str:
    """Return a sentence on how many records and ms the dropped replicas were behind according to their leaders.

    ``rows`` are rows of table shrink_evidence. If the release does not log how far behind they were, the sentence says
    so. Without rows, the result is empty.
    """
    records = [row["records_behind"] for row in rows if row["records_behind"] is not None]
    lags = [row["lag_ms"] for row in rows if row["lag_ms"] is not None]
    if not rows or not (records or lags):
        return "How far behind they were is not printed (records since 2.2, time since 3.6)." if rows else ""
    parts = []
    if records:
        none = records.count(0)
        face = f"; {none} had nothing to fetch: spurious on their face" if none else "; none had nothing to fetch"
        parts.append(f"{least_to_largest(records)} records behind{face}")
    if lags:
        parts.append(f"last caught up {least_to_largest(lags)} ms before")
    return f"According to their leaders, they were {', '.join(parts)}."


def answer_back_in_isr(rows: Sequence[Row]) -> str:
    """Return sentences on how soon dropped replicas were back in the ISR, and which replica was dropped most often.

    ``rows`` are rows of table shrink_evidence. Shrinks whose ISR write failed do not count. If there are no others, the
    result is empty.
    """
    there = [row for row in rows if row["write_outcome"] != FAILED]
    exact = [row["returned_ms"] for row in there if row["returned_source"] == "exact"]
    at_most = [row["returned_ms"] for row in there if row["returned_source"] == AT_MOST]
    missing = len(there) - len(exact) - len(at_most)
    parts = [
        f"{len(exact)} after {least_to_largest(exact)} ms" if exact else "",
        f"{len(at_most)} after at most {least_to_largest(at_most)} ms" if at_most else "",
        f"{missing} not in the log" if missing else "",
    ]
    flaps = max((row["pair_checks"] for row in rows), default=0)
    worst = next((row for row in rows if row["pair_checks"] == flaps), None)
    flapping = (
        f" Most often: broker {worst['leader_id']} dropped broker {worst['replica_id']} at {flaps} checks."
        if worst and flaps > 1
        else ""
    )
    return f"Back in the ISR: {', '.join(filter(None, parts))}.{flapping}" if there else ""


def answer_avoiding_lag_time(rows: Sequence[Row]) -> str:
    """Return a sentence on the replica.lag.time.max.ms that would have avoided all shrinks; empty without rows.

    ``rows`` are rows of table shrink_evidence.
    """
    lags = [row["lag_ms"] for row in rows if row["lag_ms"] is not None]
    now = sorted({row["replica_lag_time_max_ms"] for row in rows if row["replica_lag_time_max_ms"] is not None})
    said = f" (it was {', '.join(map(str, now))} ms)" if now else ""
    if lags:
        return f"Only a replica.lag.time.max.ms of more than {max(lags)} ms would have avoided all of these{said}."
    return f"The lag time that would have avoided them is not logged: more than the current one{said}." if rows else ""


def answer_under_min_isr(rows: Sequence[Row]) -> str:
    """Return a sentence on how long shrinks left partitions with fewer in-sync replicas than min.insync.replicas.

    ``rows`` are rows of table shrink_evidence. If the logs leave it open for every shrink whether it did so, the
    sentence says that. Otherwise, if no shrink is known to have done so, the result is empty.
    """
    under = {(row["source_file"], row["source_line"]): row for row in rows if row["under_min_isr"]}
    unknown = sum(row["under_min_isr"] is None for row in rows)
    if under:
        ended = [row for row in under.values() if row["under_min_isr_ms"] is not None]
        lasted = (
            f", for {answer_of_times(ended, 'under_min_isr')} ms" if ended else "; the log does not show for how long"
        )
        return f"Under min ISR: {count_of(len(under), 'shrink')}{lasted}."
    return "These logs do not show whether a partition was under min ISR." if unknown == len(rows) and rows else ""


def _answer_of_all_else(rows: Sequence[Row]) -> str:
    """Count removals by the controller, failed ISR writes, troubles of followers, and events; empty without any."""
    counts = Counter(
        what
        for row in rows
        if not row["retry"]
        for what in (
            f"in the follower's own log just before: {KINDS[row['trouble']]}" if row["trouble"] else None,
            f"right after {EVENTS[row['after_event']]}" if row["after_event"] else None,
        )
        if what
    )
    parts = [
        _answer_of_removals(rows),
        _answer_of_failed_writes(rows),
        *(f"{number} {what}" for what, number in counts.items()),
    ]
    return f"Also: {'; '.join(filter(None, parts))}." if any(parts) else ""


def _answer_of_removals(rows: Iterable[Row]) -> str:
    """Count the replicas that the controller removed, and say when they were back; empty if it removed none."""
    removed = [row for row in rows if row["made_by"] == CONTROLLER]
    back = [row for row in removed if row["returned_ms"] is not None]
    came = f", {len(back)} back after {answer_of_times(back, 'returned')} ms" if back else ""
    first = {row["replica_id"]: row for row in reversed(removed)}
    whom = ", ".join(
        f"broker {broker} {'by ' if row['earliest_time'] else 'from '}{time_of_day(row['change_time'])}"
        f"{'' if row['earliest_time'] else ' on'}"
        for broker, row in sorted(first.items())
    )
    return f"{len(removed)} removed by the controller ({whom}){came}" if removed else ""


def _answer_of_failed_writes(rows: Iterable[Row]) -> str:
    """Count the shrinks whose ISR write failed, and name the leader that retried for longest; empty without any."""
    failed = [row for row in rows if row["write_outcome"] == FAILED]
    longest = max(failed, key=lambda row: row["failing_ms"] or 0, default=None)
    went_on = (
        f" (broker {longest['leader_id']} kept trying for {longest['failing_ms']} ms: it did not know that it no "
        "longer led)"
        if longest and longest["failing_ms"]
        else ""
    )
    return f"{len(failed)} not written{went_on}" if failed else ""


def answer_of_times(rows: Sequence[Row], column: str) -> str:
    """Format the smallest and the largest time in the column ``<column>_ms``, such as "at most 20 to 500".

    Rows whose ``<column>_source`` is ``at_least`` are a second range at the end: "20 to 500 and at least 30 to 40". The
    first range begins with "at most" if one of its times is an upper bound.
    """
    parts = []
    for at_least in (False, True):
        some = [row for row in rows if (row[f"{column}_source"] == AT_LEAST) == at_least]
        bound = "at most " if any(row[f"{column}_source"] == AT_MOST for row in some) else "at least " * at_least
        parts += [bound + least_to_largest([row[f"{column}_ms"] for row in some])] if some else []
    return " and ".join(parts)


def answer_table(evidence: pa.Table, most: int = 40) -> list[Row]:
    """Convert the first ``most`` rows of shrink_evidence to the table that is printed below the answer.

    The keys of the returned dicts are those of `COLUMNS`.
    """
    return [_answer_row(row) for row in evidence.slice(0, most).to_pylist()]


def _answer_row(row: Row) -> Row:
    back = row["returned_ms"]
    if row["write_outcome"] == FAILED:
        said = "write failed"
    elif back is None:
        said = "not in the log"
    else:
        said = f"{BOUNDS.get(row['returned_source'], '')}{back}"
    suspect = (row["suspect"] or "").replace("_", " ")
    return {
        "at": f"{'by ' if row['earliest_time'] else ''}{day_and_time(row['change_time'])} {zone_name()}",
        "partition": f"{row['topic']}-{row['partition_id']}", "leader": row["leader_id"], "lost": row["replica_id"],
        "lag_ms": row["lag_ms"], "records_behind": row["records_behind"], "back_after_ms": said,
        "same_check": row["check_replicas"], "suspect": suspect, "evidence": row["strength"],
    }  # fmt: skip


def _answer_last_time(first: datetime, last: datetime) -> str:
    """Format the time of the last shrink. The date is left out if the first shrink was on the same day."""
    same = in_shown_zone(first).date() == in_shown_zone(last).date()
    return time_of_day(last) if same else day_and_time(last)
