"""Find an event shortly before a shrink that may explain it: an election, a restart, or a topic's creation."""

from isr_batch.evidence.lines import FoundLines, lag_time_in_lines
from isr_batch.evidence.shrinks import Shrink

TOPIC_CREATED, RESTART, ELECTION = "topic_created", "restart", "election"
EVENTS = {TOPIC_CREATED: "the topic's creation", RESTART: "a restart", ELECTION: "an election"}
"""Kinds of events. The values are the words for them in sentences."""
SHORTEST_MS = 10_000
"""The lag time in ms that is assumed if it is unknown: the shorter one of Kafka's two defaults."""


def event_before(shrink: Shrink, found: FoundLines) -> tuple[str | None, int | None]:
    """Return the kind of event that happened shortly before a shrink, and how many ms passed between the two.

    The kind is ``topic_created``, ``restart`` (of the leader or of the dropped replica's broker) or ``election`` (the
    partition got another leader). If several happened, the first kind in this list is returned. If none happened, both
    results are None.

    "Shortly" means within two lag times, because a follower is dropped at most 1.5 lag times after it was last caught
    up. If the lag time is unknown, it is assumed to be `SHORTEST_MS`, or the shortest lag at which the leader dropped a
    follower if that is less.
    """
    least_ms = min(SHORTEST_MS, found.least_lag_ms.get(shrink.leader_id, SHORTEST_MS))
    earliest_us = shrink.at_us - 2000 * (lag_time_in_lines(found, shrink.leader_id) or least_ms)
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
