"""Make the notes that an ingest prints at its end: which time the logs cover, and which values were assumed."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from isr_batch.ingest.folder.log_folder import LogFile
from isr_batch.ingest.requests.coverage import Stretch
from isr_batch.ingest.terms.mid_term import INFERRED


class Note(NamedTuple):
    """A note for the user.

    Attributes
    ----------
    about : str
        Subject of the note, such as a broker's request log or a setting.
    found : str
        The value that was found, inferred or assumed.
    next_time : str
        How to provide the true value to the next ingest; empty if nothing can be done.
    """

    about: str
    found: str
    next_time: str


def assumptions(stretches: Sequence[Stretch], led: Sequence[Mapping[str, Any]], topic_ids: int) -> list[Note]:
    """Return notes on the time that the logs cover, and on values that an ingest had to infer or assume.

    Parameters
    ----------
    stretches : sequence of Stretch
        Periods that the request logs cover.
    led : sequence of dict
        Rows of leader_epochs.
    topic_ids : int
        Number of topics that are only known by their id.
    """
    found_out = _notes_on_coverage(stretches)
    releases = {row["broker_version"] for row in led if row["broker_version_source"] == INFERRED}
    if releases:
        found_out.append(Note(
            "release", f"at least {', '.join(sorted(map(str, releases)))}, by the API versions of followers' fetches",
            "use --release, or put `release: 3.6.2` into cluster.yaml",
        ))  # fmt: skip
    defaults = {row["replica_lag_time_max_ms"] for row in led if row["lag_time_source"] == "default"}
    if defaults:
        found_out.append(Note(
            "replica.lag.time.max.ms", f"{', '.join(map(str, sorted(defaults)))}, the default of that Kafka release",
            "add server.properties to the broker's folder, or set it in cluster.yaml",
        ))  # fmt: skip
    going_on = [row for row in led if row["begins_mid_term"]]
    if going_on:
        found = f"{len(going_on)} of {len(led)} began before the log: shrinks caused before it are judged unknown"
        found_out.append(Note("terms", found, ""))
    if abandoned := sum(row.get("abandoned", False) for row in led):
        found = f"{abandoned} end where all followers stopped at once and went on elsewhere: deleted, or moved"
        found_out.append(
            Note("terms", found, "add state-change.log and server.log, which name deletions and elections")
        )
    for column, what in (("assigned_source", "assigned replicas"), ("isr_source", "ISR at the start")):
        inferred = sum(row[column] == INFERRED for row in going_on)
        if inferred:
            found_out.append(Note(
                what, f"of {inferred} partitions inferred from fetches; followers that were down are missing",
                "put the output of kafka-topics --describe next to the broker folders",
            ))  # fmt: skip
    unnamed = sum(row["start_offset"] is None for row in led)
    if unnamed:
        found_out.append(Note("offsets", f"none logged for {unnamed} partitions: nothing was written to them", ""))
    if topic_ids:
        found_out.append(Note(
            "topic names", f"{topic_ids} topics appear only by their id in these logs",
            "add the output of kafka-topics --describe, or the decoded metadata log",
        ))  # fmt: skip
    unphased = {row["leader_id"] for row in led if row["check_origin_source"] == "unknown"}
    if unphased and led:
        half = max(row["replica_lag_time_max_ms"] for row in led) // 2000
        found_out.append(Note(
            "isr-expiration", f"phase unknown on broker {_list_in_note(unphased)}: shrinks may be up to {half} s off",
            "add a log with a Shrinking line, or with the broker's start",
        ))  # fmt: skip
    return found_out


def note_on_shorter_copies(files: Sequence[LogFile]) -> list[Note]:
    """Return a list with a note that files were not read because the lake has longer copies; empty without files."""
    names = ", ".join(file.name for file in files)
    return [Note("files", f"not read: {names}; shorter copies of logs that the lake has", "")] if files else []


def note_on_later_logs(files: Sequence[str], fetches: int) -> list[Note]:
    """Return a list with a note on request logs that were ingested before an older log of the same broker.

    When such a log was ingested, each term in progress at its beginning was stored as a term that begins there, and
    some fetches were stored without an offset. These rows stay, because the log has left the folder and cannot be read
    again. Without such logs, the list is empty.

    Parameters
    ----------
    files : sequence of str
        Names of these request logs.
    fetches : int
        Number of fetches in these logs that have no offset.
    """
    found = (f"{len(files)} request logs of later times were ingested before these, and are not read again: terms "
             f"restart there, and {fetches:,} fetches have no offset")  # fmt: skip
    return [Note("late files", found, "ingest all files at once into a new lake")] if files else []


def _notes_on_coverage(stretches: Sequence[Stretch]) -> list[Note]:
    """Return one note per broker: the periods that its request logs cover, and whether there are gaps between them."""
    by_broker: dict[int, list[Stretch]] = defaultdict(list)
    for stretch in stretches:
        by_broker[stretch.broker_id].append(stretch)
    found_out = []
    for broker_id, own in by_broker.items():
        spans = "; gap; ".join(f"{_time_in_note(each.first_us)} to {_time_in_note(each.until_us)}" for each in own)
        begins = "" if own[0].from_start else "; the followers were already fetching when it begins"
        found_out.append(Note(f"request log of broker {broker_id}", f"{spans} UTC{begins}", ""))
    return found_out


def _time_in_note(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def _list_in_note(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def unnamed_topics(rows: list[dict[str, Any]], topics: pa.Table) -> int:
    """Count the topics that the rows name only by topic id.

    Parameters
    ----------
    rows : list of dict
        Rows whose ``topic`` is a topic's name or, if the name is unknown, its id.
    topics : pa.Table
        The known names of topics, in column ``topic``.
    """
    named = set(topics["topic"].to_pylist())
    return len({row["topic"] for row in rows if row["topic"] not in named
                and re.fullmatch(r"[\w-]{21}[AQgw]", row["topic"])})  # fmt: skip
