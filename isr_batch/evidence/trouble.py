"""Find lines that a follower logged shortly before it was dropped, and that explain why it could not fetch."""

from bisect import bisect_right
from collections import defaultdict

from isr_batch.evidence.lines import FoundLines, TroubleLine
from isr_batch.evidence.shrinks import Shrink

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
"""Kinds of trouble, the most specific first, as in `isr_batch.broker_lines.forms.TROUBLES`. The values are the words
for them in sentences."""
DECIDES = ("record_too_large", "log_dir_failed", "corrupt_record", "fetcher_died")
"""Kinds of trouble that only the follower can cause. After one of them, the follower is the suspect."""


class TroublesOfFollowers:
    """All lines in which followers report failed fetches, indexed by broker, leader and partition."""

    def __init__(self, found: FoundLines) -> None:
        self._of: dict[tuple[object, ...], list[TroubleLine]] = defaultdict(list)
        for trouble in found.troubles:
            self._of[trouble.broker_id, trouble.leader_id, trouble.partition, trouble.kind].append(trouble)

    def before(self, shrink: Shrink) -> TroubleLine | None:
        """Return a line in which the dropped follower reports a failed fetch in the minute before a shrink, or None.

        If there are several, the kind that comes first in `KINDS` is chosen, and the latest line of this kind. A line
        that names another leader or another partition does not count.
        """
        for kind in KINDS:
            last: TroubleLine | None = None
            for leader_id in (shrink.leader_id, None):
                for partition in (shrink.partition, None):
                    lines = self._of.get((shrink.replica_id, leader_id, partition, kind), [])
                    n = bisect_right(lines, shrink.at_us, key=lambda line: line.at_us)
                    if n and lines[n - 1].at_us >= shrink.at_us - BEFORE_US and (
                        last is None or lines[n - 1].at_us > last.at_us
                    ):  # fmt: skip
                        last = lines[n - 1]
            if last:
                return last
        return None


BEFORE_US = 60_000_000
"""Troubles are searched in this many microseconds before a shrink. With the default lag time, a follower is dropped at
most 45 s after it was last caught up."""
