"""Examples from Kafka proposals (KIPs and issues), written by hand as logs of one partition in one term each.

Times are milliseconds from the start of the term. If a proposal does not state a time, it is chosen here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

START_MS: Final = 1_704_067_200_000
"""Start of every term (2024-01-01) in epoch milliseconds. It is a multiple of every check period used here, so that
checks run at round times."""
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True)
class ExampleAppend:
    """An append, after which the leader's log ends at ``log_end_offset``."""

    time_ms: int
    log_end_offset: int
    acks: int = -1


@dataclass(frozen=True)
class ExampleFetch:
    """A follower's fetch: its offset, and the times of its steps in the leader.

    The leader receives the fetch (``arrival_ms``), an I/O thread picks it up (``handled_ms``), the leader records the
    offset for the follower (``recorded_ms``), the wait for data ends (``released_ms``), and the response is sent
    (``completed_ms``).
    """

    arrival_ms: int
    replica_id: int
    fetch_offset: int
    handled_ms: int
    recorded_ms: int
    released_ms: int
    completed_ms: int


@dataclass(frozen=True)
class ExampleTerm:
    """A term (the time of one leader epoch) of one partition, with all appends and fetches.

    ``says`` describes the example. The first of ``replicas`` is the leader. At the start, its log ends at
    ``log_end_offset``, and all records are committed. If ``isr`` is empty, the ISR then contains all replicas.
    """

    says: str
    replicas: tuple[int, ...]
    log_end_offset: int
    end_ms: int
    appends: list[ExampleAppend]
    fetches: list[ExampleFetch]
    isr: tuple[int, ...] = ()
    min_insync_replicas: int = 1
    lag_time_max_ms: int = 10_000


def _fetch(ms: int, replica: int, offset: int, **later: int) -> ExampleFetch:
    """Return a fetch that is handled, recorded and completed at ``ms``.

    ``later`` gives later times: ``handled``, ``recorded``, and ``waited`` (the end of the wait for data). Each also
    applies to the steps after it.
    """
    handled = later.get("handled", ms)
    recorded = later.get("recorded", handled)
    waited = later.get("waited", recorded)
    return ExampleFetch(ms, replica, offset, handled, recorded, waited, waited)


def kip_501_example() -> ExampleTerm:
    """Return KIP-501's example: a leader takes 25 s to read for two followers that keep pace.

    At 1 s (tx in KIP-501), each follower fetches from offset 950, while the log ends at 1002. At 1.5 s (ty), each
    fetches from 1002, while the log ends at 1100. This second fetch takes 25 s. Before tx, each follower was at the log
    end only once, at 0 s. After those 25 s, each has all records.
    """
    fetches = []
    for again_ms, follower in (26_510, 1002), (26_520, 1003):
        fetches += [
            _fetch(0, follower, 950, waited=500),
            _fetch(1000, follower, 950),
            _fetch(1500, follower, 1002, recorded=26_500),
            _fetch(again_ms, follower, 1100, waited=again_ms + 500),
        ]
    return ExampleTerm(
        "KIP-501's example: a leader takes 25 s to read for two followers that keep pace",
        (1001, 1002, 1003),
        950,
        36_000,
        [ExampleAppend(900, 1002), ExampleAppend(1200, 1100)],
        fetches,
    )


def kafka_7152_example(rounds: int = 3) -> ExampleTerm:
    """Return KAFKA-7152's example: an idle partition whose fetches all get their response 20 s late.

    Each response is delayed by the ISR writes of 2 000 partitions, which take 10 ms each.
    """
    held_ms = 2000 * 10
    fetches = [
        ExampleFetch(at_ms, 2, 100, at_ms, at_ms, at_ms, at_ms + held_ms)
        for at_ms in range(0, rounds * held_ms, held_ms)
    ]
    return ExampleTerm(
        "KAFKA-7152's example: one of 2 000 partitions, whose ISR writes delay each response by 20 s",
        (1, 2),
        100,
        rounds * held_ms - 1,
        [],
        fetches,
        isr=(1,),
    )


def kafka_4485_example(batches: int = 300) -> ExampleTerm:
    """Return KAFKA-4485's example: a follower that is always one batch behind.

    A record is appended every 100 ms. The follower fetches 50 ms after each append, from the offset at which the log
    ended at the time of its previous fetch.
    """
    return ExampleTerm(
        "KAFKA-4485's example: a follower that is always one batch behind",
        (1, 2),
        0,
        100 * batches + 99,
        [ExampleAppend(100 * batch, batch) for batch in range(1, batches + 1)],
        [_fetch(100 * batch + 50, 2, batch - 1) for batch in range(1, batches + 1)],
    )


def kafka_10853_example() -> ExampleTerm:
    """Return KAFKA-10853's example: the leader's storage stalls for a minute after an append.

    The followers' fetches of the new record are held up by the leader.
    """
    fetches = []
    for follower in 2, 3:
        fetches += [_fetch(0, follower, 100, waited=100), _fetch(210, follower, 100, handled=60_210)]
    return ExampleTerm(
        "KAFKA-10853's example: the leader's storage stalls after an acks=all append",
        (1, 2, 3),
        100,
        40_000,
        [ExampleAppend(200, 101)],
        fetches,
        min_insync_replicas=2,
    )


def kafka_10853_price_example(acks: int = -1) -> ExampleTerm:
    """Return an example of what KAFKA-10853's proposal costs: a follower dies while producers use acks=all.

    One record is appended per second. Follower 2 fetches each record at once. Follower 3 dies after its first fetch.
    """
    appends = []
    fetches = [_fetch(0, 2, 100, waited=500), _fetch(0, 3, 100, waited=500), _fetch(510, 2, 100, waited=1000)]
    for second in range(1, 31):
        at_ms, end = 1000 * second, 100 + second
        appends.append(ExampleAppend(at_ms, end, acks))
        fetches += [_fetch(at_ms + 10, 2, end, waited=at_ms + 510), _fetch(at_ms + 520, 2, end, waited=at_ms + 1000)]
    return ExampleTerm(
        "KAFKA-10853's price: a follower dies while all producers wait for all replicas",
        (1, 2, 3),
        100,
        30_900,
        appends,
        fetches,
        min_insync_replicas=2,
    )


def lag_messages_burst_example() -> ExampleTerm:
    """Return an example of replica.lag.max.messages with a burst of 10 000 messages just before a check.

    The follower has all messages within a second.
    """
    fetches = [_fetch(at_ms, 2, 0, waited=at_ms + 490) for at_ms in range(0, 9_500, 500)]
    fetches += [_fetch(9_600, 2, 3_000), _fetch(10_500, 2, 10_000)]
    return ExampleTerm(
        "replica.lag.max.messages at high throughput: 10 000 messages at once",
        (1, 2),
        0,
        20_000,
        [ExampleAppend(9_500, 10_000)],
        fetches,
    )


def lag_messages_trickle_example(hours: int = 48) -> ExampleTerm:
    """Return an example of replica.lag.max.messages with one message per hour, for two days.

    The follower fetches every 9 s, but never gets a message.
    """
    return ExampleTerm(
        "replica.lag.max.messages at low throughput: one message per hour, and a follower that gets none",
        (1, 2),
        0,
        hours * HOUR_MS,
        [ExampleAppend(hour * HOUR_MS, hour) for hour in range(1, hours)],
        [_fetch(at_ms, 2, 0) for at_ms in range(0, hours * HOUR_MS, 9_000)],
    )


STORIES: Final[dict[str, Callable[[], ExampleTerm]]] = {
    "kip-501-example": kip_501_example,
    "kafka-7152-idle-churn": kafka_7152_example,
    "kafka-4485-always-behind": kafka_4485_example,
    "kafka-10853-storage-fault": kafka_10853_example,
    "kafka-10853-dead-follower": kafka_10853_price_example,
    "lag-messages-burst": lag_messages_burst_example,
    "lag-messages-trickle": lag_messages_trickle_example,
}
