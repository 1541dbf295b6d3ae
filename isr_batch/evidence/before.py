"""What came in the minute before a shrink: an election, a restart, a new topic, or trouble in the follower's log."""

from bisect import bisect_right
from collections import defaultdict

from isr_batch.evidence.lines import FoundLines, Trouble
from isr_batch.evidence.shrinks import Shrink, lag_time_ms
from isr_batch.evidence.trouble import KINDS

BEFORE_US = 60_000_000
"""Where a follower's trouble is looked for: it leaves 45 s after it was last caught up, with Kafka's defaults."""
TOPIC_CREATED, RESTART, ELECTION = "topic_created", "restart", "election"


class Troubles:
    """The lines about trouble of all brokers, found by broker, leader and partition."""

    def __init__(self, found: FoundLines) -> None:
        self._of: dict[tuple[object, ...], list[Trouble]] = defaultdict(list)
        for trouble in found.troubles:
            self._of[trouble.broker_id, trouble.leader_id, trouble.partition, trouble.kind].append(trouble)

    def before(self, shrink: Shrink) -> Trouble | None:
        """Find the most telling trouble that a replica's own log has with this leader or partition, a minute before."""
        for kind in KINDS:
            last: Trouble | None = None
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


def event_before(shrink: Shrink, found: FoundLines) -> tuple[str | None, int | None]:
    """Find what came shortly before: topic_created, restart or election, and how many ms before.

    Shortly is two lag times, or a minute where the lag time is not known: a follower leaves at most 1.5 lag times after
    it was last caught up. A restart is one of the leader or of the replica; a term
    that the same leader goes on with is no election.
    """
    lag_time = lag_time_ms(found, shrink.leader_id)
    earliest_us = shrink.at_us - (2000 * lag_time if lag_time else BEFORE_US)
    for name, times in (
        (TOPIC_CREATED, [at_us for at_us, _ in found.created.get(shrink.partition, ())]),
        (RESTART, [
            at_us
            for broker_id in (shrink.leader_id, shrink.replica_id)
            for at_us, _ in found.process_starts.get(broker_id, ())
        ]),
        (ELECTION, found.elections.get(shrink.partition, [])),
    ):  # fmt: skip
        last = max((at_us for at_us in times if earliest_us <= at_us <= shrink.at_us), default=None)
        if last is not None:
            return name, (shrink.at_us - last) // 1000
    return None, None
