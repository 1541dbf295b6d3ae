"""Find an event shortly before a shrink that may explain it: an election, a restart, or a topic's creation."""

from isr_batch.evidence.lines import FoundLines, lag_time_in_lines
from isr_batch.evidence.shrinks import Shrink

TOPIC_CREATED, RESTART, ELECTION = "topic_created", "restart", "election"
EVENTS = {TOPIC_CREATED: "the topic's creation", RESTART: "a restart", ELECTION: "an election"}
"""Kinds of events, each as it is called in sentences."""
SHORTEST_MS = 10_000
"""The shorter one of Kafka's two default lag times, in ms. It is assumed if the lag time is unknown, unless the leader
dropped a follower after less."""


def event_before(shrink: Shrink, found: FoundLines) -> tuple[str | None, int | None]:
    """Return the event shortly before a shrink (topic_created, restart or election), and how many ms before it was.

    "Shortly" means within two lag times, because a follower is dropped at most 1.5 lag times after it was last caught
    up. If the lag time is unknown, the shortest lag at which the leader dropped a follower is used, but at most
    `SHORTEST_MS`. A restart is one of the leader or of the replica. A new term of the same leader is not an election,
    nor is the first term of a topic.

    If there was no event, both results are None.
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
