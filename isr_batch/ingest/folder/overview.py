"""Describe a folder of logs from parts of its files: layouts, brokers, times, and possible analyses."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from isr_batch.broker_lines.kinds import BROKER_KINDS, METADATA, REQUEST, SERVER, STATE_CHANGE
from isr_batch.broker_lines.vendors import vendor_release
from isr_batch.ingest.folder.broker_ids import NO_PROPERTIES
from isr_batch.ingest.folder.first_look import has_follower_fetch
from isr_batch.ingest.folder.folder_warnings import listing_sentences
from isr_batch.ingest.folder.log_folder import LogFolder
from isr_batch.ingest.log_files.archives import file_on_disk
from isr_batch.ingest.log_files.look import SeenByLook

FILE_COLUMNS = ("file", "broker", "logs", "layout", "from", "until", "mb")
LEFT_OUT_COLUMNS = ("file", "reason", "detail")
CAPABILITY_COLUMNS = ("about", "found", "next")


class Capability(NamedTuple):
    """An analysis, and whether the logs suffice for it.

    Attributes
    ----------
    about : str
        Subject: an analysis, a broker, or a kind of log.
    found : str
        Whether the analysis is possible, or what is missing or contradictory.
    next : str
        How to get the missing logs; empty if no logs are missing.
    """

    about: str
    found: str
    next: str


def file_rows(found: LogFolder) -> list[dict[str, Any]]:
    """Return a row for each file that a run reads, with the keys `FILE_COLUMNS`.

    ``from`` and ``until`` are the first and the last time in the lines that were examined; empty if these have no time.
    If the end of the file was not examined, because it is compressed, ``until`` is "after" and that last time.
    """
    rows = []
    kinds: dict[str, list[str]] = defaultdict(list)
    for file in found.files:
        kinds[file.name].append(file.kind)
    for file in found.files:
        if not file.first:
            continue
        seen = found.seen(file) if file.kind in BROKER_KINDS else SeenByLook()
        rows.append({
            "file": file.name, "broker": file.broker_id, "logs": ", ".join(kinds[file.name]),
            "layout": str(file.layout) if file.kind in BROKER_KINDS else "",
            "from": _time_in_overview(seen.first), "until": _last_time_of_log(seen),
            "mb": round(Path(file_on_disk(file.path)).stat().st_size / 1e6, 1),
        })  # fmt: skip
    return rows


def left_out_rows(found: LogFolder) -> list[dict[str, Any]]:
    """Return a row for each file that a run does not read, with the keys `LEFT_OUT_COLUMNS`."""
    return [
        {"file": each.source_file, "reason": each.reason, "detail": each.detail}
        for each in [*found.unreadable, *found.left_out]
    ]


def capabilities(found: LogFolder) -> Iterator[Capability]:
    """Yield the analyses that the logs of a folder suffice for, and the logs that are missing or contradictory."""
    yield from (
        Capability(each.source_file, f"{each.reason}: {each.detail}", "")
        for each in found.refused if each.reason == NO_PROPERTIES
    )  # fmt: skip
    logs: dict[int, set[str]] = defaultdict(set)
    fetched: set[int] = set()
    versions: set[str] = set()
    for file in found.files:
        if file.broker_id is None or file.kind not in BROKER_KINDS:
            continue
        logs[file.broker_id].add(file.kind)
        versions |= found.seen(file).versions
        if file.kind == REQUEST and has_follower_fetch(file.path):
            fetched.add(file.broker_id)
    if fetched:
        yield Capability(
            "replay", f"the partitions that broker {_brokers_in_overview(fetched)} leads, under every rule", ""
        )
    without = set(logs) - fetched
    if without:
        what = _analysable_by_logs(set().union(*(logs[broker] for broker in without)))
        yield Capability(
            f"broker {_brokers_in_overview(without)}",
            f"no follower fetches: {what}",
            "docs/getting-logs.md: request log",
        )
    lacking = {b for b in fetched if STATE_CHANGE not in logs[b]}
    if lacking:
        yield Capability(
            f"broker {_brokers_in_overview(lacking)}", "no state-change.log: leader epochs are inferred from fetches",
            "add state-change.log, or the output of kafka-topics --describe",
        )  # fmt: skip
    if found.of_kind(METADATA):
        yield Capability("metadata log", "every ISR change, and whether leader or controller made it", "")
    yield from (Capability("listing", said, "") for said in listing_sentences(found))
    if releases := _releases_of_folder(found.given.release, versions):
        yield Capability("release", ", ".join(releases), "")


def _releases_of_folder(given: str | None, versions: Iterable[str]) -> list[str]:
    """Return the release that the user gave or, if none was given, all releases that the logs name."""
    return [given] if given else [release for release in map(vendor_release, sorted(versions)) if release]


def _analysable_by_logs(logs: set[str]) -> str:
    """Describe what can be analysed without request logs, given the broker's other kinds of log."""
    if SERVER in logs:
        return "only what server.log shows of shrinks"
    return "only which replicas the controller removed, from state-change.log" if STATE_CHANGE in logs else "nothing"


def _last_time_of_log(seen: SeenByLook) -> str:
    """Return the time of the last examined line, preceded by "after" if the file continues behind this line."""
    # The end of a compressed file is not examined.
    return f"after {_time_in_overview(seen.last)}" if seen.goes_on and seen.last else _time_in_overview(seen.last)


def _time_in_overview(stamp: str | None) -> str:
    return (stamp or "")[:19]


def _brokers_in_overview(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
