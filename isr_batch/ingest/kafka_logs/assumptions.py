"""What an ingest tells at its end: for which time the logs can vouch, what was found out and what is assumed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from isr_batch.ingest.kafka_logs.coverage import Stretch
from isr_batch.ingest.kafka_logs.mid_term import INFERRED


class Note(NamedTuple):
    """A line for people: about what, what was found, and how to state it better next time."""

    about: str
    found: str
    next_time: str


def notes(stretches: Sequence[Stretch], led: Sequence[Mapping[str, Any]], topic_ids: int) -> list[Note]:
    """Tell what the rows of an ingest rest on.

    Parameters
    ----------
    stretches : sequence of Stretch
    led : sequence of dict
        Rows of leader_epochs.
    topic_ids : int
        Topics of which no log tells the name.
    """
    found_out = _coverage(stretches)
    releases = {row["broker_version"] for row in led if row["broker_version_source"] == INFERRED}
    if releases:
        found_out.append(Note(
            "release", f"at least {', '.join(sorted(map(str, releases)))}, by the versions of followers' requests",
            "--release, or `release: 3.6.2` in cluster.yaml",
        ))  # fmt: skip
    defaults = {row["replica_lag_time_max_ms"] for row in led if row["lag_time_source"] == "default"}
    if defaults:
        found_out.append(Note(
            "replica.lag.time.max.ms", f"{', '.join(map(str, sorted(defaults)))}, Kafka's default for that release",
            "server.properties in the broker's folder, or the setting in cluster.yaml",
        ))  # fmt: skip
    going_on = [row for row in led if row["begins_mid_term"]]
    if going_on:
        found = f"{len(going_on)} of {len(led)} began before the log: shrinks whose cause lies there are unknown"
        found_out.append(Note("terms", found, ""))
    for column, what in (("assigned_source", "assigned replicas"), ("isr_source", "ISR at the beginning")):
        inferred = sum(row[column] == INFERRED for row in going_on)
        if inferred:
            found_out.append(Note(
                what, f"of {inferred} partitions by what followers fetched, without those that were down",
                "the output of kafka-topics --describe beside the broker folders",
            ))  # fmt: skip
    unnamed = sum(row["start_offset"] is None for row in led)
    if unnamed:
        found_out.append(Note("offsets", f"of {unnamed} partitions no line names one: nothing was written to them", ""))
    if topic_ids:
        found_out.append(Note(
            "topic names", f"{topic_ids} topics have only their id in these logs",
            "the output of kafka-topics --describe, or the decoded metadata log",
        ))  # fmt: skip
    unphased = {row["leader_id"] for row in led if row["check_origin_source"] == "unknown"}
    if unphased and led:
        half = max(row["replica_lag_time_max_ms"] for row in led) // 2000
        found_out.append(Note(
            "isr-expiration", f"when it runs on broker {_list(unphased)} is not known: shrinks may be {half} s off",
            "a log with a Shrinking line, or with the broker's start",
        ))  # fmt: skip
    return found_out


def _coverage(stretches: Sequence[Stretch]) -> list[Note]:
    by_broker: dict[int, list[Stretch]] = defaultdict(list)
    for stretch in stretches:
        by_broker[stretch.broker_id].append(stretch)
    found_out = []
    for broker_id, own in by_broker.items():
        spans = "; hole; ".join(f"{_time(each.first_us)} to {_time(each.until_us)}" for each in own)
        begins = "" if own[0].from_start else ", begins while its followers were fetching"
        found_out.append(Note(f"request log of broker {broker_id}", f"{spans} UTC{begins}", ""))
    return found_out


def _time(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S}"


def _list(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
