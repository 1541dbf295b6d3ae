"""A look at a folder of logs before anything is started: whether a replay can be made of it at all."""

import re
from collections.abc import Iterable
from pathlib import Path

from isr_batch.errors import NoInputError
from isr_batch.ingest.kafka_logs.file_content import BadFileError, chunks
from isr_batch.ingest.kafka_logs.log_folder import REQUEST, LogFolder

LOOK_AT_BYTES = 64 << 20
"""Followers fetch twice a second at least, so that a request log of this size without one has none."""

_FOLLOWER = re.compile(rb'"replicaId": ?\d|[,{]replica_id=\d|; ReplicaId: \d')
_OVERLAP_BYTES = 64
NAMES = 3
_GETTING_LOGS = (
    "docs/getting-logs.md tells how to switch on the request log (kafka.request.logger at DEBUG) on a running broker; "
    "ten minutes of it are enough. `isr-batch ingest kafka-logs` reads the other logs without it"
)


def require_follower_fetches(folder: Path, found: Iterable[LogFolder]) -> None:
    """Fail when no request log holds a request of a follower: nothing could be replayed.

    Raises
    ------
    NoInputError
        With what is missing, and how to get it.
    """
    requests = [file for cluster in found for file in cluster.of_kind(REQUEST)]
    if not requests:
        raise NoInputError(
            f"{folder} holds no request log: what a follower asked for, and when, is in no other", _GETTING_LOGS
        )
    if not any(_has_follower(file.path) for file in requests):
        names = ", ".join(file.name for file in requests[:NAMES]) + (", ..." if len(requests) > NAMES else "")
        raise NoInputError(
            f"the request logs in {folder} ({names}) hold no fetch of a follower",
            f"only a leader logs them, under its inter-broker listener. {_GETTING_LOGS}",
        )


def _has_follower(path: str) -> bool:
    read, tail = 0, b""
    try:
        for chunk in chunks(path):
            if _FOLLOWER.search(tail + chunk):
                return True
            tail = chunk[-_OVERLAP_BYTES:]
            read += len(chunk)
            if read > LOOK_AT_BYTES:
                break
    except BadFileError:
        pass  # told by whoever reads the lines
    return False
