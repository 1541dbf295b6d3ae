"""Scenarios from Kafka proposals (KIPs and issues): the load and the faults for simulations in which a rule decides.

Every function gets the start and the end of the simulation in epoch microseconds. The times of faults are chosen for
the default lag time of 10 s. With it, rules from kafka-0.10.2 on check at multiples of 5 s (twice per lag time), and
earlier rules at multiples of 10 s.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from isr_batch.simulation.planted_faults import BROKERS, SECOND_US, PlantedFault
from udfs.simulation.world import LINK, PACE, PAUSE_FOLLOWER, QUOTA, STORAGE


@dataclass(frozen=True)
class LoopOfScenario:
    """The produce load and the faults of one simulated group of brokers. The first leader is broker 0."""

    gap_us: list[int]
    """For each partition, the mean time between two produce requests in microseconds; 0 for no producer."""
    acks: list[int]
    planted: list[PlantedFault] = field(default_factory=list)
    records: int = 1
    brokers: int = BROKERS
    isr_at_start: int = -1


def idle_churn_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return KAFKA-7152's scenario: a follower joins the ISRs of 2 000 partitions, and each ISR write takes 10 ms.

    A round of writes thus takes 20 s. 100 partitions have producers, each with one append per 10 s. More appends would
    only make the simulation slower: each append completes the waiting fetch, and the next fetch is again one of all
    2 000 partitions.
    """
    gaps = [10 * SECOND_US if p % 20 == 0 else 0 for p in range(2000)]
    planted = PlantedFault("blocking writes", 0, start_us, end_us, "caught_up", ())
    return LoopOfScenario(gaps, acks=[1] * len(gaps), planted=[planted], brokers=2, isr_at_start=1)


def storage_fault_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return KAFKA-10853's scenario: with acks=all, each access to the leader's storage takes two minutes."""
    from_us = start_us + 60 * SECOND_US
    step = (from_us, int(STORAGE), 0, 120 * SECOND_US)
    return LoopOfScenario(
        [SECOND_US], acks=[-1], planted=[PlantedFault("slow storage", 0, from_us, end_us, "slow_leader", (step,))]
    )


def cut_off_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return the other fault in KAFKA-10853: fetches no longer reach the leader, while produce requests do."""
    from_us = start_us + 62 * SECOND_US
    steps = tuple((from_us, int(PAUSE_FOLLOWER), who, end_us + 1) for who in (1, 2))
    planted = PlantedFault("leader cut off", 0, from_us, end_us, "follower_stopped", steps)
    return LoopOfScenario([SECOND_US], acks=[-1], planted=[planted])


def dead_follower_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return a scenario of what KAFKA-10853's proposal costs: with acks=all, a follower dies for good."""
    from_us = start_us + 62 * SECOND_US
    step = (from_us, int(PAUSE_FOLLOWER), 2, end_us + 1)
    planted = PlantedFault("dead follower", 2, from_us, end_us, "follower_stopped", (step,))
    return LoopOfScenario([SECOND_US], acks=[-1], planted=[planted])


def always_behind_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return KAFKA-4485's scenario: 20 appends per round trip of a fetch, so that fetches are never at the log end."""
    step = (start_us, int(LINK), 1, 100_000)
    planted = PlantedFault("long link", 1, start_us, end_us, "keeping_pace", (step,))
    return LoopOfScenario([10_000], acks=[1], planted=[planted], brokers=2)


def in_and_out_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return the first problem of KAFKA-4485: a follower may rejoin only at the log end, where its fetches rarely are.

    The follower keeps pace, with five fetches per second. There are 22 appends per second, so only about one in eighty
    fetches, or one every 15 s, comes after 0.2 s without an append, and is at the log end.
    """
    step = (start_us, int(LINK), 1, 100_000)
    planted = PlantedFault("long link", 1, start_us, end_us, "keeping_pace", (step,))
    return LoopOfScenario([45_000], acks=[1], planted=[planted], brokers=2)


def kip_501_scenario(start_us: int, end_us: int) -> LoopOfScenario:  # noqa: ARG001
    """Return KIP-501's scenario: for a minute, each read or write of the first leader takes 25 s.

    If the leadership moves, the next leader is not slow.
    """
    from_us, until_us = start_us + 60 * SECOND_US, start_us + 120 * SECOND_US
    steps = (from_us, int(STORAGE), 0, 25 * SECOND_US), (until_us, int(STORAGE), 0, 0)
    planted = PlantedFault("slow storage", 0, from_us, until_us + 25 * SECOND_US, "slow_leader", steps)
    return LoopOfScenario([200_000], acks=[-1], planted=[planted])


def thrash_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return a scenario of what KIP-501's proposal costs: storage is slow on one broker after the other.

    In each period of 10 s, reads on one broker take 0.7 s for the first 5 s.
    """
    planted = []
    for turn, from_us in enumerate(range(start_us + 60 * SECOND_US, end_us - 10 * SECOND_US, 10 * SECOND_US)):
        who, until_us = turn % BROKERS, from_us + 5 * SECOND_US
        steps = (from_us, int(STORAGE), who, 700_000), (until_us, int(STORAGE), who, 0)
        planted.append(PlantedFault("slow storage", who, from_us, until_us, "", steps))
    return LoopOfScenario([200_000], acks=[-1], planted=planted)


def burst_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return a scenario of 10 000 messages every 2 s, with a healthy follower.

    Each of the follower's fetches gets 5 000 messages, which it writes in 0.1 s.
    """
    step = (start_us, int(PACE), 1, 20)
    planted = PlantedFault("bursts", 1, start_us, end_us, "keeping_pace", (step,))
    return LoopOfScenario([2 * SECOND_US], acks=[1], planted=[planted], records=10_000, brokers=2)


def trickle_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return a scenario of one message per minute, with a follower that fetches every 8 s and never gets a message."""
    steps = (start_us, int(QUOTA), 1, 0), (start_us, int(LINK), 1, 4 * SECOND_US)
    planted = PlantedFault("starved follower", 1, start_us, end_us, "follower_slow", steps)
    return LoopOfScenario([60 * SECOND_US], acks=[1], planted=[planted], brokers=2)


LOOPED: Final[dict[str, Callable[[int, int], LoopOfScenario]]] = {
    "kip-501-example": kip_501_scenario,
    "kip-501-thrash": thrash_scenario,
    "kafka-7152-idle-churn": idle_churn_scenario,
    "kafka-4485-always-behind": always_behind_scenario,
    "kafka-4485-in-and-out": in_and_out_scenario,
    "kafka-10853-storage-fault": storage_fault_scenario,
    "kafka-10853-cut-off": cut_off_scenario,
    "kafka-10853-dead-follower": dead_follower_scenario,
    "lag-messages-burst": burst_scenario,
    "lag-messages-trickle": trickle_scenario,
}
