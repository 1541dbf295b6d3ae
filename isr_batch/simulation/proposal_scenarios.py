"""Load and faults of scenarios that proposals describe, for simulations in which a rule decides.

Seconds count from the start of the log. They suit the default lag time of 10 s: checks run at multiples of 5 s under
rule kafka-0.10.2 and later ones, which check twice per lag time, and at multiples of 10 s under earlier rules.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from isr_batch.simulation.planted_faults import BROKERS, SECOND_US, PlantedFault
from udfs.simulation.world import LINK, PACE, PAUSE_FOLLOWER, QUOTA, STORAGE


@dataclass(frozen=True)
class LoopOfScenario:
    """Produce load and faults of a scenario; broker 0 leads first."""

    gap_us: list[int]
    """Mean time between two produce requests, for each partition; 0 means no producer."""
    acks: list[int]
    planted: list[PlantedFault] = field(default_factory=list)
    records: int = 1
    brokers: int = BROKERS
    isr_at_start: int = -1


def idle_churn_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """KAFKA-7152: a follower joins 2 000 partitions, 100 of them active, at 10 ms per write: a round takes 20 s.

    Each append answers a fetch of all 2 000, so that an active partition with more than one in 10 s only takes longer
    to simulate.
    """
    gaps = [10 * SECOND_US if p % 20 == 0 else 0 for p in range(2000)]
    planted = PlantedFault("blocking writes", 0, start_us, end_us, "caught_up", ())
    return LoopOfScenario(gaps, acks=[1] * len(gaps), planted=[planted], brokers=2, isr_at_start=1)


def storage_fault_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return KAFKA-10853's scenario: each access to the leader's storage takes two minutes, with acks=all."""
    from_us = start_us + 60 * SECOND_US
    step = (from_us, int(STORAGE), 0, 120 * SECOND_US)
    return LoopOfScenario(
        [SECOND_US], acks=[-1], planted=[PlantedFault("slow storage", 0, from_us, end_us, "slow_leader", (step,))]
    )


def cut_off_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """KAFKA-10853's other fault: no fetch reaches the leader any more, but the producer's requests do."""
    from_us = start_us + 62 * SECOND_US
    steps = tuple((from_us, int(PAUSE_FOLLOWER), who, end_us + 1) for who in (1, 2))
    planted = PlantedFault("leader cut off", 0, from_us, end_us, "follower_stopped", steps)
    return LoopOfScenario([SECOND_US], acks=[-1], planted=[planted])


def dead_follower_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return a scenario of the disadvantage of KAFKA-10853: a follower dies for good, with acks=all."""
    from_us = start_us + 62 * SECOND_US
    step = (from_us, int(PAUSE_FOLLOWER), 2, end_us + 1)
    planted = PlantedFault("dead follower", 2, from_us, end_us, "follower_stopped", (step,))
    return LoopOfScenario([SECOND_US], acks=[-1], planted=[planted])


def always_behind_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return KAFKA-4485's scenario: 20 appends during each round trip, so that fetches are never at the log end."""
    step = (start_us, int(LINK), 1, 100_000)
    planted = PlantedFault("long link", 1, start_us, end_us, "keeping_pace", (step,))
    return LoopOfScenario([10_000], acks=[1], planted=[planted], brokers=2)


def in_and_out_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """KAFKA-4485's first problem: a fetch at the log end, which lets a follower join, comes every 15 s or so.

    The follower keeps pace, with five fetches a second. One finds no new record since the last if none is appended
    within 0.2 s, at 22 appends a second: one in eighty.
    """
    step = (start_us, int(LINK), 1, 100_000)
    planted = PlantedFault("long link", 1, start_us, end_us, "keeping_pace", (step,))
    return LoopOfScenario([45_000], acks=[1], planted=[planted], brokers=2)


def kip_501_scenario(start_us: int, end_us: int) -> LoopOfScenario:  # noqa: ARG001
    """Return KIP-501's scenario: for a minute, each read or write of the first leader takes 25 s.

    Other leaders are not slow.
    """
    from_us, until_us = start_us + 60 * SECOND_US, start_us + 120 * SECOND_US
    steps = (from_us, int(STORAGE), 0, 25 * SECOND_US), (until_us, int(STORAGE), 0, 0)
    planted = PlantedFault("slow storage", 0, from_us, until_us + 25 * SECOND_US, "slow_leader", steps)
    return LoopOfScenario([200_000], acks=[-1], planted=[planted])


def thrash_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return a scenario of KIP-501's disadvantage: storage is slow on one broker after the other.

    Reads take 0.7 s, for 5 s of every 10 s.
    """
    planted = []
    for turn, from_us in enumerate(range(start_us + 60 * SECOND_US, end_us - 10 * SECOND_US, 10 * SECOND_US)):
        who, until_us = turn % BROKERS, from_us + 5 * SECOND_US
        steps = (from_us, int(STORAGE), who, 700_000), (until_us, int(STORAGE), who, 0)
        planted.append(PlantedFault("slow storage", who, from_us, until_us, "", steps))
    return LoopOfScenario([200_000], acks=[-1], planted=planted)


def burst_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return a scenario of 10 000 messages every 2 s, with a healthy follower.

    Each of its fetches gets 5 000 messages, which it writes in 0.1 s.
    """
    step = (start_us, int(PACE), 1, 20)
    planted = PlantedFault("bursts", 1, start_us, end_us, "keeping_pace", (step,))
    return LoopOfScenario([2 * SECOND_US], acks=[1], planted=[planted], records=10_000, brokers=2)


def trickle_scenario(start_us: int, end_us: int) -> LoopOfScenario:
    """Return a scenario of one message per minute, with a follower that fetches every 8 s and gets no messages."""
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
