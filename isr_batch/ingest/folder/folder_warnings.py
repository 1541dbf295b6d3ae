"""Warn about missing or contradictory logs. `look` prints these warnings before a run, `run` next to its results."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from isr_batch.broker_lines.forms import LAG_TIME
from isr_batch.broker_lines.kinds import BROKER_KINDS, REQUEST, SERVER
from isr_batch.broker_lines.vendors import default_lag_time_ms, vendor_release
from isr_batch.evidence.missing_logs import absent_brokers, missing_logs
from isr_batch.ingest.folder.broker_ids import NO_PROPERTIES, Refused
from isr_batch.ingest.folder.log_folder import SNAPSHOT, LogFolder
from isr_batch.ingest.folder.partition_listing import listing_sentence, read_listing
from isr_batch.ingest.folder.settings_files import FETCH_WAIT

_SHOWN = 300
"""Maximum number of characters of a log line that a warning quotes."""


def folder_warnings(found: LogFolder, named: Iterable[int] = (), known: Iterable[int] = ()) -> list[str]:
    """Return warnings that the results of a run will be doubtful or incomplete, each with the reason.

    Only the first and last lines of each file are examined.

    Parameters
    ----------
    found : LogFolder
    named : iterable of int, optional
        If the logs have been ingested: all brokers that occur in the lake's ISR changes.
    known : iterable of int, optional
        If the logs have been ingested: brokers whose logs are in the lake.
    """
    files = [file for file in found.files if file.kind in BROKER_KINDS]
    seen = {broker for file in files for broker in found.seen(file).named}
    return [
        *map(refusal_sentence, _warnings_of_doubtful_files(found)),
        *_warnings_of_releases(found),
        *_warnings_of_missing_logs(found),
        *_warnings_of_long_waits(found),
        *absent_brokers(seen.union(named), brokers_with_logs(found)[0].union(known)),
    ]


def unread_lines_seen(found: LogFolder) -> list[str]:
    """Return a list with a warning if the first or last lines of files contain ISR lines in an unknown format.

    The list is empty if there are no such lines.
    """
    files = [file for file in found.files if file.kind in BROKER_KINDS]
    return unread_sentence([*dict.fromkeys((file.name, *line) for file in files for line in found.seen(file).unread)])


def refusal_sentence(refused: Refused) -> str:
    """Return the warning about a file that was refused or is doubtful."""
    return f"{refused.source_file}: {refused.reason}{f' ({refused.detail})' if refused.detail else ''}."


def release_unknown_sentence(printed: str) -> str:
    """Return the warning that isr-batch does not know the Kafka release of the version ``printed``."""
    return f"{printed} is not a known release: state the release of Kafka with --release."


def release_not_logged_sentence(least: str | None = None) -> str:
    """Return the warning that no log line names the release.

    Parameters
    ----------
    least : str, optional
        The oldest release that the brokers can have, judging by their requests.
    """
    return f"No log names the release{f' ({least} or later)' if least else ''}; state it with --release."


def assumed_lag_time_sentence(ms: int) -> str:
    """Return the warning that the lag time is unknown, so that a default of ``ms`` milliseconds was assumed."""
    return (
        f"No log has replica.lag.time.max.ms: {ms:,}, Kafka's default, is assumed; add server.properties to the "
        "brokers' folders if it differs."
    )


def unread_sentence(lines: Sequence[tuple[str, int | None, str]]) -> list[str]:
    """Return a list with a warning about log lines that mention an ISR in an unknown format; [] without lines.

    Parameters
    ----------
    lines : sequence of (str, int or None, str)
        For each of these lines: file, line number (None if unknown) and text.
    """
    if not lines:
        return []
    file, number, text = lines[0]
    where = f"{file}, near its end" if number is None else f"{file}:{number}"
    many, it_is = ("A line", "It is") if len(lines) == 1 else (f"{len(lines):,} lines", "The first is")
    unknown = "whether a leader or the controller removed a replica then is not known either"
    return [f"{many} about an ISR in a form that is not known: {unknown}. {it_is} {where}: {text[:_SHOWN]}"]


def _warnings_of_doubtful_files(found: LogFolder) -> Iterator[Refused]:
    """Yield the refused files. A missing server.properties is left to `_warnings_of_releases`."""
    yield from (each for each in found.refused if each.reason != NO_PROPERTIES)


def _warnings_of_releases(found: LogFolder) -> Iterator[str]:
    """Yield a warning if the release is unknown, and one if Kafka's default must be assumed for the lag time."""
    files = [file for file in found.files if file.broker_id is not None and file.kind in BROKER_KINDS]
    versions = {version for file in files for version in found.seen(file).versions}
    unknown = sorted(version for version in versions if vendor_release(version) is None)
    if unknown and not found.given.release:
        yield release_unknown_sentence(", ".join(unknown))
    # `look` reads only the beginning and the end of a longer log; `run` reads it all.
    if any(file.kind == REQUEST for file in files) and all(found.seen(file).whole for file in files):
        if not versions and not found.given.release:
            yield release_not_logged_sentence()
        elif not unknown and not any(found.seen(file).has_lag_time for file in files) and _warns_of_lag_time(found):
            releases = [found.given.release] if found.given.release else sorted(map(vendor_release, versions), key=str)
            yield assumed_lag_time_sentence(max(map(default_lag_time_ms, releases)))


def _warns_of_lag_time(found: LogFolder) -> bool:
    """Return whether the lag time of some broker is neither in server.properties nor given by the user."""
    return found.given.replica_lag_time_max_ms is None and any(
        broker.replica_lag_time_max_ms is None for broker in found.brokers.values()
    )


def _warnings_of_long_waits(found: LogFolder) -> Iterator[str]:
    """Yield a warning for each follower whose fetches may wait for data as long as a leader's lag time (KIP-501).

    Kafka itself only compares the two settings of the same broker, and allows equal values.
    """
    given, brokers = found.given, found.brokers.values()
    waits = {each.broker_id: given.replica_fetch_wait_max_ms or each.replica_fetch_wait_max_ms for each in brokers}
    limits = {
        each.broker_id: given.replica_lag_time_max_ms or each.replica_lag_time_max_ms
        or default_lag_time_ms(given.release) for each in brokers
    }  # fmt: skip
    for follower, wait_ms in sorted(waits.items()):
        leaders = [leader for leader, limit_ms in sorted(limits.items()) if wait_ms and wait_ms >= limit_ms]
        if leaders:
            yield (
                f"{FETCH_WAIT} of broker {follower} is {wait_ms:,}, not below {LAG_TIME} of broker {leaders[0]} "
                f"({limits[leaders[0]]:,}): without appends, a fetch waits that long, and the follower may be dropped "
                "as soon as it lacks a record."
            )


def _warnings_of_missing_logs(found: LogFolder) -> list[str]:
    """Return the warnings that shrinks cannot be seen because logs are missing.

    `run` gets them from ingested tables.
    """
    begins: dict[tuple[int, str], list[datetime]] = defaultdict(list)
    for file in found.files:
        if file.broker_id is None or file.kind not in BROKER_KINDS:
            continue
        seen = found.seen(file)
        if (first := seen.first_of.get(file.kind)) and (file.kind != SERVER or seen.informs or not seen.whole):
            begins[file.broker_id, file.kind].append(datetime.fromisoformat(first.replace(",", ".")))
    rows = [{"broker_id": broker, "log": log, "from_time": min(of)} for (broker, log), of in begins.items()]
    return missing_logs(rows, *brokers_with_logs(found))


def listing_sentences(found: LogFolder) -> list[str]:
    """Return a sentence for each file with output of kafka-topics --describe: which replicas are out of the ISR."""
    return [listing_sentence(file.name, read_listing(file.path)[0]) for file in found.of_kind(SNAPSHOT)]


def brokers_with_logs(found: LogFolder) -> tuple[set[int], set[int]]:
    """Return the brokers that have logs in a folder, and those that have a server.log."""
    of_kind = [(file.broker_id, file) for file in found.files if file.broker_id is not None]
    return {broker for broker, _ in of_kind}, {
        broker for broker, file in of_kind if file.kind == SERVER and found.seen(file).first_of
    }
