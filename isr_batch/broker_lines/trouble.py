"""Lines in a follower's server.log that say why it could not fetch."""

import re

from isr_batch.broker_lines.records import EvidencePosition, TroubleLine

KINDS = {
    "record_too_large": "a record was larger than replica.fetch.max.bytes",
    "log_dir_failed": "its log directory failed",
    "corrupt_record": "it got a corrupt record",
    "fetcher_died": "its fetcher thread died",
    "not_connected": "it could not connect to the leader",
    "fetch_failed": "its fetch requests failed",
    "stale_epoch": "it did not know the current leader epoch or topic id",
    "truncated": "it truncated its log",
}
"""Follower errors, the most specific first, and their descriptions."""
DECIDES = ("record_too_large", "log_dir_failed", "corrupt_record", "fetcher_died")
"""Kinds that the follower alone can have: they point at it."""

_FETCHER_SAYS = r"\[Replica ?Fetcher[^\]]*\],?:? "
_PATTERNS = {
    "record_too_large": r"greater than replica\.fetch\.max\.bytes|RecordTooLarge|too large to fit in the fetch size",
    "log_dir_failed": r"Stopping serving (?:logs|replicas) in dir|ERROR .*LogDirFailureChannel"
    r"|in (?:the )?failed log director|KafkaStorageException",
    "corrupt_record": r"Found invalid messages|CorruptRecordException|Found a corrupt",
    "fetcher_died": rf"{_FETCHER_SAYS}Error due to|Unexpected error occurred (?:during|while) (?:processing|fetch)",
    "not_connected": rf"{_FETCHER_SAYS}.*Connection to node \S+ .*could not be established",
    "fetch_failed": rf"{_FETCHER_SAYS}(?:Error in response for fetch request|Error sending fetch request"
    r"|Error in fetch |Error for partition |Node \d+ disconnected"
    r"|Current offset \d+ for partition \S+ (?:is )?out of range)",
    "stale_epoch": rf"{_FETCHER_SAYS}(?:Partition \S+ has an older epoch|Received UNKNOWN_TOPIC"
    r"|Partition \S+ marked as failed)",
    "truncated": r"Truncating (?:log \S+ )?to offset ",
}
TROUBLE = "|".join(_PATTERNS.values())
"""One pattern for all, without lookaround, which RE2 does not know."""
_COMPILED = {kind: re.compile(pattern) for kind, pattern in _PATTERNS.items()}
_FETCHER = re.compile(
    r"\[ReplicaFetcher replicaId=(\d{1,10}), leaderId=(\d{1,10})|\[ReplicaFetcherThread-\d+-(\d{1,10})"
)
_OF_PARTITION = re.compile(r"\b[Pp]artition (\S+?)-(\d{1,10})(?=[\s,;.:]|$)")


def trouble_in_line(text: str, broker_id: int, place: EvidencePosition, at_us: int) -> TroubleLine | None:
    """Parse a follower's error line; None for any other line."""
    for kind, pattern in _COMPILED.items():
        if pattern.search(text):
            fetcher, partition = _FETCHER.search(text), _OF_PARTITION.search(text)
            return TroubleLine(
                place, at_us, int(fetcher[1]) if fetcher and fetcher[1] else broker_id, kind,
                int(fetcher[2] or fetcher[3]) if fetcher else None,
                (partition[1], int(partition[2])) if partition else None,
            )  # fmt: skip
    return None
