"""Plan the groups of brokers for a simulation: many groups for fleets, but only one for scenarios from proposals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from isr_batch.simulation.planted_faults import SECOND_US, PlantedFault, plant_faults
from isr_batch.simulation.proposal_examples import START_MS
from isr_batch.simulation.proposal_scenarios import LOOPED, LoopOfScenario
from udfs.batches.rule_runs import RuleRun
from udfs.rules import BASELINE
from udfs.simulation.groups import GroupPlan

ISR_WRITE_MS: Final = 10


@dataclass(frozen=True)
class FleetOfGroups:
    """The settings of a simulation: scenario, size, duration, load and rule.

    Scenarios from proposals define their own size and load.
    """

    scenario: str
    partitions: int = 100
    hours: float = 0.5
    seed: int = 1
    rule: str | None = None
    """The rule that decides on the ISR in the simulation; by default the baseline. If it is set, a scenario that exists
    both as a story (written by hand) and as a simulation is simulated."""
    idle_share: float = 0.4
    busiest_rate: float = 20.0
    """Produce requests per second to the busiest partition of a group."""
    records: int = 10
    """Records per produce request."""
    acks_all_share: float = 0.5
    partitions_a_group: int = 50
    replica_lag_time_max_ms: int = 10_000
    min_insync_replicas: int = 2
    params: Mapping[str, int] = field(default_factory=dict)
    """Parameters of the simulated rule, by our names (with underscores)."""


def plan_groups(fleet: FleetOfGroups) -> Iterator[tuple[GroupPlan, list[PlantedFault]]]:
    """Yield the plan and the planted faults of each group of brokers.

    A group's plan and faults depend only on the settings and its number, so that any process can simulate any group.
    """
    start_us = START_MS * 1000
    end_us = start_us + round(fleet.hours * 3600 * SECOND_US)
    if fleet.scenario in LOOPED:
        yield _plan_group(fleet, 0, fleet.seed, LOOPED[fleet.scenario](start_us, end_us), end_us)
        return
    for number, first in enumerate(range(0, fleet.partitions, fleet.partitions_a_group)):
        partitions = min(fleet.partitions_a_group, fleet.partitions - first)
        random = np.random.default_rng([fleet.seed, number])
        # As on real brokers, a few partitions get most of the load.
        rank = random.permutation(partitions)
        idle = (random.random(partitions) < fleet.idle_share) & (rank > 0)
        gap_us = np.where(idle, 0, (1 + rank) * SECOND_US / fleet.busiest_rate).astype(np.int64)
        acks = np.where(random.random(partitions) < fleet.acks_all_share, -1, 1)
        planted = list(plant_faults(fleet.scenario, random, start_us, end_us, fleet.replica_lag_time_max_ms * 1000))
        seed = int(random.integers(1, 2**62))
        yield _plan_group(
            fleet, number, seed, LoopOfScenario(gap_us.tolist(), acks.tolist(), planted, fleet.records), end_us
        )


def _plan_group(
    fleet: FleetOfGroups, number: int, seed: int, loop: LoopOfScenario, end_us: int
) -> tuple[GroupPlan, list[PlantedFault]]:
    """Return the plan of group ``number``, and its planted faults. ``seed`` is that of the group's simulation."""
    plan = GroupPlan(
        number=number,
        seed=seed,
        start_us=START_MS * 1000,
        end_us=end_us,
        brokers=loop.brokers,
        run=RuleRun(fleet.rule or BASELINE, fleet.params),
        replica_lag_time_max_ms=fleet.replica_lag_time_max_ms,
        min_insync_replicas=fleet.min_insync_replicas,
        isr_write_ms=ISR_WRITE_MS,
        gap_us=loop.gap_us,
        records=loop.records,
        acks=loop.acks,
        faults=[step for fault in loop.planted for step in fault.steps],
        isr_at_start=loop.isr_at_start,
    )
    return plan, loop.planted
