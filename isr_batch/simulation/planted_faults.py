"""Generate faults for a simulated fleet, each with the cause that a replay must find for the resulting shrinks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from udfs.simulation.groups import LINK_US, MOST_RECORDS, RECORD_US
from udfs.simulation.world import (
    CHANGE_LEADER,
    ELIGIBILITY,
    LINK,
    PACE,
    PAUSE_FOLLOWER,
    PAUSE_LEADER,
    QUEUE,
    QUOTA,
    REMOVE,
    STORAGE,
)

BROKERS: Final = 3
SECOND_US: Final = 1_000_000
QUIET_S: Final = 60
"""Number of seconds without a fault between two faults of a group, so that each shrink has only one cause."""


@dataclass(frozen=True)
class PlantedFault:
    """A fault in a simulation, and the primary cause that a replay should find for the shrinks after it.

    ``what`` names the kind of fault, and ``who`` is the number of the faulty broker within its group. ``steps`` are the
    changes that the simulation makes: (time in epoch microseconds, kind of step, broker's number, value).
    """

    what: str
    who: int
    from_us: int
    until_us: int
    expected_cause: str
    steps: tuple[tuple[int, int, int, int], ...]


Maker = Callable[[np.random.Generator, int, int, int], PlantedFault]


def _faulty_follower_at_random(random: np.random.Generator, leader: int) -> int:
    """Return a random broker of the group other than the leader."""
    return (leader + int(random.integers(1, BROKERS))) % BROKERS


def _paused_follower(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that pauses a follower for 0.6, 1.25 or 2.5 lag times.

    With 1.25 lag times, it depends on the time of the leader's check whether the follower is dropped.
    """
    until_us = from_us + int(lag_us * random.choice([0.6, 1.25, 2.5]))
    who = _faulty_follower_at_random(random, leader)
    step = (from_us, int(PAUSE_FOLLOWER), who, until_us)
    return PlantedFault("paused follower", who, from_us, until_us, "follower_stopped", (step,))


def _dead_follower(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that stops a follower for 20 lag times, as if it had died and was then replaced."""
    until_us = from_us + 20 * lag_us
    who = _faulty_follower_at_random(random, leader)
    step = (from_us, int(PAUSE_FOLLOWER), who, until_us)
    return PlantedFault("dead follower", who, from_us, until_us, "follower_stopped", (step,))


def _slow_follower(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that slows a follower's writes below the produce rate, while it keeps sending small fetches."""
    until_us = from_us + 3 * lag_us
    who = _faulty_follower_at_random(random, leader)
    steps = (
        (from_us, int(QUOTA), who, 1),
        (from_us, int(PACE), who, lag_us // 100),
        (until_us, int(QUOTA), who, MOST_RECORDS),
        (until_us, int(PACE), who, RECORD_US),
    )
    return PlantedFault("slow follower", who, from_us, until_us, "follower_slow", steps)


def _slow_followers(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that slows two followers, one of them more than the other.

    With acks=all, the records that the less slow follower lacks are not acknowledged either.
    """
    until_us = from_us + 4 * lag_us
    who = _faulty_follower_at_random(random, leader)
    slower = next(other for other in range(BROKERS) if other not in {leader, who})
    steps = []
    for follower, pace_us in ((who, lag_us // 100), (slower, lag_us // 70)):
        steps += [(from_us, int(QUOTA), follower, 1), (from_us, int(PACE), follower, pace_us)]
        steps += [(until_us, int(QUOTA), follower, MOST_RECORDS), (until_us, int(PACE), follower, RECORD_US)]
    return PlantedFault("slow followers", who, from_us, until_us, "unacked_only", tuple(steps))


def _lossy_link(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that delays some requests of a follower by seconds, as a link that loses packets does.

    A fetch waits for data for half a second, so a link that is bad for slightly longer delays just one fetch. If the
    delay is longer than the lag time, the leader does not hear from a follower that was caught up before.
    """
    who = _faulty_follower_at_random(random, leader)
    steps = []
    at_us = from_us
    for away in random.permutation([0.3, 0.7, 1.3, 1.7]):
        away_us = int(lag_us * away)
        steps += [(at_us, int(LINK), who, away_us // 2), (at_us + 600_000, int(LINK), who, LINK_US)]
        at_us += away_us + lag_us // 2
    return PlantedFault("lossy link", who, from_us, at_us, "follower_stopped", tuple(steps))


def _replication_quota(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that throttles a follower, so that it fetches rarely and gets one record at a time."""
    until_us = from_us + 3 * lag_us
    who = _faulty_follower_at_random(random, leader)
    steps = (
        (from_us, int(QUOTA), who, 1),
        (from_us, int(LINK), who, lag_us // 10),
        (until_us, int(QUOTA), who, MOST_RECORDS),
        (until_us, int(LINK), who, LINK_US),
    )
    return PlantedFault("replication quota", who, from_us, until_us, "follower_slow", steps)


def _slow_storage(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that slows the leader's storage, so that reads and appends take longer than the lag time."""
    held_us = int(lag_us * random.uniform(1.6, 2.5))
    until_us = from_us + held_us + 2 * SECOND_US
    steps = (from_us, int(STORAGE), leader, held_us), (until_us, int(STORAGE), leader, 0)
    return PlantedFault("slow storage", leader, from_us, until_us + held_us, "slow_leader", steps)


def _slow_queue(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that slows the leader's request queue, so that requests wait longer than the lag time."""
    held_us = int(lag_us * random.uniform(1.6, 2.5))
    until_us = from_us + held_us + 2 * SECOND_US
    steps = (from_us, int(QUEUE), leader, held_us), (until_us, int(QUEUE), leader, 0)
    return PlantedFault("slow queue", leader, from_us, until_us + held_us, "slow_leader", steps)


def _stopped_leader(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that pauses the leader's process. When it resumes, its check drops followers."""
    until_us = from_us + int(lag_us * random.choice([0.6, 1.3, 2.5]))
    step = (from_us, int(PAUSE_LEADER), leader, until_us)
    return PlantedFault("stopped leader", leader, from_us, until_us + SECOND_US, "slow_leader", (step,))


def _leader_change(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that moves the leadership to another broker, and back after a lag time."""
    until_us = from_us + lag_us
    steps = (
        (from_us, int(CHANGE_LEADER), _faulty_follower_at_random(random, leader), 0),
        (until_us, int(CHANGE_LEADER), leader, 0),
    )
    return PlantedFault("leader change", leader, from_us, until_us, "", steps)


def _restarted_follower(random: np.random.Generator, from_us: int, lag_us: int, leader: int) -> PlantedFault:
    """Return a fault that restarts a follower with a controlled shutdown.

    The controller removes the follower from the ISR, which the follower may not rejoin until the restart is complete.
    """
    who = _faulty_follower_at_random(random, leader)
    until_us = from_us + 2 * lag_us
    steps = (
        (from_us, int(ELIGIBILITY), who, 0),
        (from_us, int(REMOVE), who, 0),
        (from_us, int(PAUSE_FOLLOWER), who, until_us),
        (until_us, int(ELIGIBILITY), who, 1),
    )
    return PlantedFault("restart", who, from_us, until_us, "controller", steps)


MAKERS: Final[dict[str, Maker]] = {
    "paused-follower": _paused_follower,
    "dead-follower": _dead_follower,
    "slow-follower": _slow_follower,
    "slow-followers": _slow_followers,
    "lossy-link": _lossy_link,
    "replication-quota": _replication_quota,
    "slow-storage": _slow_storage,
    "slow-queue": _slow_queue,
    "stopped-leader": _stopped_leader,
    "leader-change": _leader_change,
    "rolling-restart": _restarted_follower,
}
FLEETS: Final = ("quiet-fleet", *MAKERS, "mixed-fleet")


def plant_faults(
    scenario: str, random: np.random.Generator, start_us: int, end_us: int, lag_us: int
) -> Iterator[PlantedFault]:
    """Yield the faults of one group of simulated partitions, in chronological order.

    Before the first fault, after the last one, and between any two, at least `QUIET_S` seconds pass.

    Parameters
    ----------
    scenario : str
        A name in `FLEETS`.
    random : numpy.random.Generator
        Generator for the times, the followers and, in a mixed fleet, the kinds of faults.
    start_us, end_us : int
        Start and end of the simulation, in epoch microseconds.
    lag_us : int
        replica.lag.time.max.ms, in microseconds.
    """
    if scenario == "quiet-fleet":
        return
    makers = list(MAKERS.values()) if scenario == "mixed-fleet" else [MAKERS[scenario]]
    from_us = start_us + QUIET_S * SECOND_US
    while True:
        maker = makers[int(random.integers(len(makers)))]
        fault = maker(random, from_us + int(random.integers(lag_us)), lag_us, 0)
        if fault.until_us + QUIET_S * SECOND_US > end_us:
            return
        yield fault
        from_us = fault.until_us + QUIET_S * SECOND_US
