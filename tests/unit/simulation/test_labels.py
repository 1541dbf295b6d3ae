"""Simulated shrinks against planted faults: the causes by the log alone, compared with the right ones.

Single faults, and mixed fleets under every rule; docs/confusion.md has the matrices.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from docs.generate.witnesses import matrices
from isr_batch.simulation.group_plans import FleetOfGroups, plan_groups
from isr_batch.simulation.planted_faults import PlantedFault
from tests.labels import NOBODY, Shrink, confusion, right_cause
from tests.loop import simulate
from udfs.kernel.causes import CAUSES, VERDICT_OF_CAUSE
from udfs.records import NEVER_US
from udfs.rules import ALL_RULES
from udfs.simulation.groups import group_world
from udfs.simulation.world import PACE, PAUSE_FOLLOWER, PAUSE_LEADER, STORAGE

LAG_US = 10_000_000
TIMES = 200


def fleet(scenario: str, rule: str, seed: int = 1, **other: Any) -> FleetOfGroups:
    """A small one: 20 partitions, the busiest with 3 requests a second."""
    small = {"partitions": 20, "busiest_rate": 3.0, "hours": 0.5, **other}
    return FleetOfGroups(scenario, seed=seed, rule=rule, **small)


FLEETS = {
    "one fault at a time": [
        fleet("paused-follower", "kafka-3.7"),
        fleet("dead-follower", "kafka-2.1"),
        fleet("lossy-link", "kafka-0.10.2"),
        fleet("slow-follower", "kafka-3.7"),
        fleet("replication-quota", "kafka-2.7"),
        *(fleet("slow-followers", rule, acks_all_share=0.9) for rule in ("kafka-0.9", "kafka-2.1", "kafka-3.7")),
        fleet("slow-storage", "kafka-3.7"),
        fleet("slow-queue", "kafka-3.7"),
        *(fleet("stopped-leader", rule) for rule in ("kafka-0.9", "kafka-3.7")),
        fleet("leader-change", "kafka-0.9"),
        fleet("rolling-restart", "kafka-3.3"),
        fleet("kafka-7152-idle-churn", "kafka-0.10.2", hours=0.02),
        fleet("kafka-4485-always-behind", "kafka-0.9", hours=0.02),
        *(fleet("lag-messages-burst", "kafka-0.8", seed) for seed in range(1, 6)),
    ],
    "mixed fleets": [fleet("mixed-fleet", rule, seed, hours=0.8) for seed, rule in enumerate(ALL_RULES, start=10)],
}


def right(counts: Counter[tuple[str, str]], same: Any) -> float:
    """Which share was given what is the same as the right cause."""
    return sum(count for (cause, given), count in counts.items() if same(cause) == same(given)) / counts.total()


@pytest.mark.parametrize("what", FLEETS)
def test_a_planted_cause_is_found(what: str, record_property: Any) -> None:
    counts = sum((of_fleet(planned) for planned in FLEETS[what]), start=Counter())
    told = [(*pair, count) for pair, count in sorted(counts.items())]
    print(matrices([{"matrix": what, "counts": told}]))  # noqa: T201
    record_property("matrix", what)
    record_property("counts", told)
    assert_right(counts, list(VERDICT_OF_CAUSE))
    for cause in CAUSES[:-1]:
        of_cause = Counter({pair: count for pair, count in counts.items() if pair[0] == cause})
        assert of_cause.total() >= TIMES, cause
        assert_right(of_cause, [cause])


def of_fleet(planned: FleetOfGroups) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for plan, planted in plan_groups(planned):
        counts += confusion(simulate(group_world(plan), 50_000), planted, LAG_US)
    return counts


def assert_right(counts: Counter[tuple[str, str]], whose: Sequence[str]) -> None:
    assert right(counts, str) >= 0.99, whose
    assert right(counts, VERDICT_OF_CAUSE.get) >= 0.995, whose


def one_fault(what: str, kind: Any, who: int) -> PlantedFault:
    """From 100 s to 150 s; a paused broker sleeps until then."""
    until_us = 150_000_000
    return PlantedFault(what, who, 100_000_000, until_us, "", ((100_000_000, int(kind), who, until_us),))


STORAGE_OF_LEADER = one_fault("slow storage", STORAGE, 0)
PAUSE = one_fault("paused follower", PAUSE_FOLLOWER, 1)
SLOWNESS = one_fault("slow follower", PACE, 1)
SLEEP = one_fault("stopped leader", PAUSE_LEADER, 0)


@pytest.mark.parametrize(
    ("fault", "changed", "cause"),
    [
        (PAUSE, {"missing_since_us": NEVER_US}, "caught_up"),
        (PAUSE, {"missing_since_us": NEVER_US, "by_controller": True}, "controller"),
        (PAUSE, {"missing_since_us": 115_000_000}, "keeping_pace"),
        (PAUSE, {"missing_since_us": 115_000_000, "heard_us": 110_000_000}, "follower_stopped"),
        (STORAGE_OF_LEADER, {}, "slow_leader"),
        (STORAGE_OF_LEADER, {"leader": 2}, NOBODY),
        (SLEEP, {"time_us": 150_001_000}, "slow_leader"),
        (SLEEP, {"leader": 2, "who": 0}, "follower_stopped"),
        (SLOWNESS, {"acknowledged_without_it": 5}, "unacked_only"),
        (SLOWNESS, {"acknowledged_without_it": 6}, "follower_slow"),
        (SLOWNESS, {"who": 2}, NOBODY),
        (SLOWNESS, {"time_us": 99_000_000, "missing_since_us": 80_000_000}, NOBODY),
    ],
)
def test_the_right_cause_by_hand(fault: PlantedFault, changed: dict[str, Any], cause: str) -> None:
    """Leader 0 drops follower 1 at 120 s; it has 5 records, lacks one since 105 s, and was heard of at 119 s."""
    usual = Shrink(
        time_us=120_000_000, who=1, leader=0, by_controller=False, missing_since_us=105_000_000,
        acknowledged_without_it=6, held=5, heard_us=119_000_000, given="",
    )  # fmt: skip
    assert right_cause(replace(usual, **changed), [fault], LAG_US) == cause
