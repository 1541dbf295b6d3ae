"""The right cause of a simulated shrink, from the planted faults and the true state, never from a kernel's results.

The follower's log end, the records acknowledged without it and its last sign of life come from the simulation
(``udfs.simulation.world.WHOSE_COLUMNS``); stopped, slow or sleeping brokers come from the plan. The causes come in the
order of docs/verdicts.md.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from isr_batch.simulation.planted_faults import PlantedFault
from tests.loop import Tables
from udfs.kernel.causes import CAUSES
from udfs.records import BY_CONTROLLER, CHANGE_COLUMNS, NEVER_US, SHRINK
from udfs.simulation.world import WHOSE_COLUMNS

SLOW_LEADER = {"slow storage", "slow queue", "blocking writes"}
STOPS = {"paused follower", "dead follower", "lossy link", "restart"}
SLOWS = {"slow follower", "slow followers", "replication quota"}
NOBODY = "nothing planted"


@dataclass(frozen=True)
class Shrink:
    """A shrink of the simulation: what really happened to the follower, and the primary cause that the replay gave."""

    time_us: int
    who: int
    leader: int
    by_controller: bool
    missing_since_us: int
    acknowledged_without_it: int
    held: int
    heard_us: int
    given: str


def shrinks(tables: Tables) -> Iterator[Shrink]:
    for values, true in zip(tables["changes"][:, 2:].tolist(), tables["whose"].tolist(), strict=True):
        change = dict(zip(CHANGE_COLUMNS, values, strict=True))
        whose = dict(zip(WHOSE_COLUMNS, true, strict=True))
        if change["kind"] != SHRINK:
            continue
        yield Shrink(
            time_us=change["time_us"],
            who=change["position"],
            leader=whose["leader"],
            by_controller=change["made_by"] == BY_CONTROLLER,
            missing_since_us=whose["missing_since_us"],
            acknowledged_without_it=whose["acknowledged_without_it"],
            held=whose["held"],
            heard_us=whose["heard_us"],
            given=next(cause for bit, cause in enumerate(CAUSES) if change["causes"] >> bit & 1),
        )


def right_cause(shrink: Shrink, planted: Sequence[PlantedFault], lag_us: int) -> str:
    """The first of the causes, in the order of their definitions, that the true state bears out."""
    alive = shrink.heard_us > shrink.time_us - lag_us
    fault = next((fault for fault in reversed(planted) if fault.from_us <= shrink.time_us), None)
    if shrink.by_controller:
        return "controller"
    if shrink.missing_since_us == NEVER_US:
        return "caught_up"
    if alive and shrink.time_us - shrink.missing_since_us <= lag_us:
        return "keeping_pace"
    if fault and is_of_leader(fault, shrink):
        return "slow_leader"
    if alive and shrink.acknowledged_without_it <= shrink.held:
        return "unacked_only"
    return cause_of_follower(fault, shrink) if fault else NOBODY


def is_of_leader(fault: PlantedFault, shrink: Shrink) -> bool:
    """Whether a planted fault is one of the leader that made the shrink.

    A sleeping leader drops no follower before it wakes: its successor does, and the sleeper is then a follower.
    """
    if fault.what == "stopped leader":
        return shrink.time_us > woken_us(fault)
    return fault.what in SLOW_LEADER and fault.who == shrink.leader


def woken_us(fault: PlantedFault) -> int:
    ((_, _, _, until_us),) = fault.steps
    return until_us


def cause_of_follower(fault: PlantedFault, shrink: Shrink) -> str:
    """The planted fault of the follower itself; faults of others explain nothing."""
    if fault.what == "stopped leader":
        return "follower_stopped"
    if shrink.who not in {who for _, _, who, _ in fault.steps}:
        return NOBODY
    if fault.what in STOPS:
        return "follower_stopped"
    return "follower_slow" if fault.what in SLOWS else NOBODY


def confusion(tables: Tables, planted: Sequence[PlantedFault], lag_us: int) -> Counter[tuple[str, str]]:
    """Count shrinks by right cause and given cause."""
    return Counter((right_cause(shrink, planted, lag_us), shrink.given) for shrink in shrinks(tables))
