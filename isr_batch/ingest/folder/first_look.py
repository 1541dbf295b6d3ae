"""Check before Spark is started whether logs can be replayed: a request log must contain follower fetches."""

import re
from collections.abc import Iterable

from isr_batch.broker_lines.kinds import BROKER_KINDS, REQUEST
from isr_batch.errors import NothingToReplayError, QualityGateError
from isr_batch.ingest.folder.log_folder import SHOWN, WHOLE_SECONDS, LogFolder
from isr_batch.ingest.log_files.content import content_chunks
from isr_batch.ingest.log_files.limits import UNREADABLE, BadFileError

LOOK_AT_BYTES = 64 << 20
"""Number of bytes per file that are searched for a follower's fetch. As followers fetch at least twice a second, one is
found in far fewer bytes."""

_FOLLOWER = re.compile(rb'"replicaId\\?": ?\d|[,{]replica_id=\d|; ReplicaId: \d')
_OVERLAP_BYTES = 64
NAMES = 3
_GETTING_LOGS = (
    "docs/getting-logs.md shows how to enable the request log (kafka.request.logger at DEBUG) on a running broker; "
    "ten minutes of it are enough. `isr-batch ingest kafka-logs` reads the other logs without it"
)


def require_follower_fetches(given: str, found: Iterable[LogFolder]) -> None:
    """Raise an error if no log contains a follower's fetch, because there would be nothing to replay.

    ``given`` is the value of ``--logs``, for the message.

    Raises
    ------
    NothingToReplayError
        If no follower's fetch is found. The message explains which logs are missing and how to get them.
    """
    found = list(found)
    files = [
        file for cluster in found for file in cluster.files
        if file.kind in BROKER_KINDS and not file.layout.whole_seconds
    ]  # fmt: skip
    requests = [file for file in files if file.kind == REQUEST]
    # Files that begin without requests are searched too: the request logger may have been switched on later.
    paths = dict.fromkeys(file.path for file in [*requests, *files])
    if not any(map(has_follower_fetch, paths)):
        coarse = [each for cluster in found for each in cluster.refused if each.reason == WHOLE_SECONDS]
        if coarse:
            raise NothingToReplayError(
                f"{coarse[0].source_file} has {WHOLE_SECONDS}, too coarse to replay",
                "log milliseconds, as in %d{ISO8601}",
            )
        if not requests:
            raise NothingToReplayError(
                f"{given} has no request log, and only a request log has the followers' fetches", _GETTING_LOGS
            )
        names = ", ".join(file.name for file in requests[:NAMES]) + (", ..." if len(requests) > NAMES else "")
        raise NothingToReplayError(
            f"the request logs in {given} ({names}) have no follower fetch",
            f"only partition leaders log them, as requests on the inter-broker listener. {_GETTING_LOGS}",
        )


def require_readable_logs(found: LogFolder) -> None:
    """Raise an error if the folder contains a broker log that cannot be parsed.

    Raises
    ------
    QualityGateError
        If there is such a log. The message lists the files with reasons, and describes the supported layouts.
    """
    if not found.unreadable:
        return
    hint = (
        "timestamps are read like 2026-11-21 16:30:12,613, with or without T, zone and brackets, then level, logger "
        "and message, or JSON events. For other formats use --stamp-format '%d/%m/%Y %H:%M:%S,%f', or move it away"
    )
    if all(each.reason == UNREADABLE for each in found.unreadable):
        hint = "give this user the right to read them, or move them away"
    named = "; ".join(f"{each.source_file}: {each.reason} ({each.detail})" for each in found.unreadable[:SHOWN])
    raise QualityGateError(
        f"{len(found.unreadable)} of the logs cannot be read: {named}" + ("; ..." if found.unreadable[SHOWN:] else ""),
        hint,
    )


def has_follower_fetch(path: str) -> bool:
    """Return whether the first LOOK_AT_BYTES of a file contain a follower's fetch."""
    read, tail = 0, b""
    try:
        for chunk in content_chunks(path):
            if _FOLLOWER.search(tail + chunk):
                return True
            tail = chunk[-_OVERLAP_BYTES:]
            read += len(chunk)
            if read > LOOK_AT_BYTES:
                break
    except BadFileError:
        pass  # reported when the lines are read
    return False
