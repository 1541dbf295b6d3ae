"""Fleets for the simulation: what goes wrong in them and when, and the cause that a shrink must be given."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from isr_batch.scenarios.stories import START_MS
from udfs.arrow import RuleRun
from udfs.rules import BASELINE
from udfs.simulation_arrow import GroupPlan
from udfs.world import (
    CHANGE_LEADER,
    ELIGIBILITY,
    PACE,
    PAUSE_FOLLOWER,
    PAUSE_LEADER,
    QUEUE,
    REMOVE,
    STORAGE,
)

BROKERS: Final = 3
ISR_WRITE_MS: Final = 10
SECOND_US: Final = 1_000_000
IDLE_SHARE: Final = 0.4
QUIET_S: Final = 60
"""Between two faults of a group, so that each shrink has one cause."""


@dataclass(frozen=True)
class Planted:
    """A fault: what, to which broker, from when to when, and the primary cause that its shrinks must have."""

    what: str
    who: int
    from_us: int
    until_us: int
    expected_cause: str
    steps: tuple[tuple[int, int, int, int], ...]


Maker = Callable[[np.random.Generator, int, int, int], Planted]


def _paused_follower(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> Planted:
    """Shorter than the lag time, between it and 1.5 times it (the phase of the check decides), and longer."""
    until_us = from_us + int(lag_us * random.choice([0.6, 1.25, 2.5]))
    who = (leader + int(random.integers(1, BROKERS))) % BROKERS
    step = (from_us, int(PAUSE_FOLLOWER), who, until_us)
    return Planted("paused follower", who, from_us, until_us, "follower_stopped", (step,))


def _slow_follower(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> Planted:
    """It writes slower than producers send, but asks all the time."""
    until_us = from_us + 3 * lag_us
    who = (leader + int(random.integers(1, BROKERS))) % BROKERS
    steps = (from_us, int(PACE), who, 40_000), (until_us, int(PACE), who, 1)
    return Planted("slow follower", who, from_us, until_us, "follower_slow", steps)


def _slow_storage(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> Planted:
    """Reads and appends that begin within two seconds take longer than the lag time."""
    held_us = int(lag_us * random.uniform(1.6, 2.5))
    steps = (from_us, int(STORAGE), leader, held_us), (from_us + 2 * SECOND_US, int(STORAGE), leader, 0)
    return Planted("slow storage", leader, from_us, from_us + 2 * SECOND_US + held_us, "slow_leader", steps)


def _slow_queue(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> Planted:
    """Requests wait longer than the lag time before they are read."""
    held_us = int(lag_us * random.uniform(1.6, 2.5))
    steps = (from_us, int(QUEUE), leader, held_us), (from_us + 2 * SECOND_US, int(QUEUE), leader, 0)
    return Planted("slow queue", leader, from_us, from_us + 2 * SECOND_US + held_us, "slow_leader", steps)


def _stopped_leader(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> Planted:
    """The whole leader sleeps, and blames its followers when it wakes."""
    until_us = from_us + int(lag_us * random.choice([0.6, 1.3, 2.5]))
    step = (from_us, int(PAUSE_LEADER), leader, until_us)
    return Planted("stopped leader", leader, from_us, until_us, "slow_leader", (step,))


def _leader_change(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> Planted:
    """Leadership moves and comes back."""
    other = (leader + int(random.integers(1, BROKERS))) % BROKERS
    until_us = from_us + lag_us
    steps = (from_us, int(CHANGE_LEADER), other, 0), (until_us, int(CHANGE_LEADER), leader, 0)
    return Planted("leader change", leader, from_us, until_us, "", steps)


def _restart(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> Planted:
    """A follower shuts down in order: the controller takes it out of the ISR until it is back."""
    who = (leader + int(random.integers(1, BROKERS))) % BROKERS
    until_us = from_us + 2 * lag_us
    steps = (
        (from_us, int(ELIGIBILITY), who, 0),
        (from_us, int(REMOVE), who, 0),
        (from_us, int(PAUSE_FOLLOWER), who, until_us),
        (until_us, int(ELIGIBILITY), who, 1),
    )
    return Planted("restart", who, from_us, until_us, "controller", steps)


MAKERS: Final[dict[str, Maker]] = {
    "paused-follower": _paused_follower,
    "slow-follower": _slow_follower,
    "slow-storage": _slow_storage,
    "slow-queue": _slow_queue,
    "stopped-leader": _stopped_leader,
    "leader-change": _leader_change,
    "rolling-restart": _restart,
}
FLEETS: Final = ("quiet-fleet", *MAKERS, "mixed-fleet")


@dataclass(frozen=True)
class Fleet:
    """How large, how long, under which rule."""

    scenario: str
    partitions: int = 100
    minutes: int = 30
    seed: int = 1
    rule: str | None = None
    """In the loop; by default the baseline. A story that can be simulated is, when one is given."""
    partitions_a_group: int = 50
    replica_lag_time_max_ms: int = 10_000
    min_insync_replicas: int = 2


def plan_groups(fleet: Fleet) -> Iterator[tuple[GroupPlan, list[Planted]]]:
    """Every group with its faults; a group depends on the seed and its number alone."""
    if fleet.scenario in LOOPED:
        yield LOOPED[fleet.scenario](fleet)
        return
    for number, first in enumerate(range(0, fleet.partitions, fleet.partitions_a_group)):
        partitions = min(fleet.partitions_a_group, fleet.partitions - first)
        random = np.random.default_rng([fleet.seed, number])
        # As on real brokers: few partitions have most of the load.
        rates = np.where(random.random(partitions) < IDLE_SHARE, 0.0, 20.0 / (1 + random.permutation(partitions)))
        rates[0] = max(rates[0], 5.0)
        start_us = START_MS * 1000
        end_us = start_us + fleet.minutes * 60 * SECOND_US
        planted = list(_plant(fleet, random, start_us, end_us))
        plan = GroupPlan(
            number=number,
            seed=int(random.integers(1, 2**62)),
            start_us=start_us,
            end_us=end_us,
            brokers=BROKERS,
            run=RuleRun(fleet.rule or BASELINE),
            replica_lag_time_max_ms=fleet.replica_lag_time_max_ms,
            min_insync_replicas=fleet.min_insync_replicas,
            isr_write_ms=ISR_WRITE_MS,
            gap_us=[int(SECOND_US / rate) if rate else 0 for rate in rates],
            records=10,
            acks=random.choice([-1, 1], partitions).tolist(),
            faults=[step for fault in planted for step in fault.steps],
        )
        yield plan, planted


def idle_churn(fleet: Fleet) -> tuple[GroupPlan, list[Planted]]:
    """KAFKA-7152: a follower joins 2 000 partitions, few of them busy, at 10 ms a write: a round takes 20 s."""
    gaps = [SECOND_US if p % 20 == 0 else 0 for p in range(2000)]
    return _story(fleet, brokers=2, gap_us=gaps, acks=[1] * len(gaps), isr_at_start=1), []


def storage_fault(fleet: Fleet) -> tuple[GroupPlan, list[Planted]]:
    """KAFKA-10853: all producers wait for all, then the leader's storage takes two minutes for anything."""
    plan = _story(fleet, brokers=3, gap_us=[SECOND_US], acks=[-1])
    from_us, held_us = plan.start_us + QUIET_S * SECOND_US, 120 * SECOND_US
    step = (from_us, int(STORAGE), 0, held_us)
    planted = Planted("slow storage", 0, from_us, plan.end_us, "slow_leader", (step,))
    return replace(plan, faults=[step]), [planted]


def _story(fleet: Fleet, *, brokers: int, gap_us: list[int], acks: list[int], isr_at_start: int = -1) -> GroupPlan:
    start_us = START_MS * 1000
    return GroupPlan(
        number=0,
        seed=fleet.seed,
        start_us=start_us,
        end_us=start_us + fleet.minutes * 60 * SECOND_US,
        run=RuleRun(fleet.rule or BASELINE),
        replica_lag_time_max_ms=fleet.replica_lag_time_max_ms,
        min_insync_replicas=fleet.min_insync_replicas,
        isr_write_ms=ISR_WRITE_MS,
        records=1,
        brokers=brokers,
        gap_us=gap_us,
        acks=acks,
        isr_at_start=isr_at_start,
    )


LOOPED: Final = {"kafka-7152-idle-churn": idle_churn, "kafka-10853-storage-fault": storage_fault}


def _plant(fleet: Fleet, random: np.random.Generator, start_us: int, end_us: int) -> Iterator[Planted]:
    """One fault after the other, with a quiet time in between."""
    if fleet.scenario == "quiet-fleet":
        return
    makers = list(MAKERS.values()) if fleet.scenario == "mixed-fleet" else [MAKERS[fleet.scenario]]
    lag_us = fleet.replica_lag_time_max_ms * 1000
    from_us = start_us + QUIET_S * SECOND_US
    while True:
        maker = makers[int(random.integers(len(makers)))]
        fault = maker(random, from_us + int(random.integers(lag_us)), lag_us, 0)
        if fault.until_us + QUIET_S * SECOND_US > end_us:
            return
        yield fault
        from_us = fault.until_us + QUIET_S * SECOND_US
