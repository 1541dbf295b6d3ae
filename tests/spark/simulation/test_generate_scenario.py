"""A scenario in a lake, and what comes out of its replay."""

from dataclasses import replace
from pathlib import Path

import pytest

from isr_batch.errors import UsageError
from isr_batch.lake.lake import Lake
from isr_batch.replay.replay import replay, rule_runs
from isr_batch.scoring.broker_check import validate
from isr_batch.settings import ReplaySettings
from isr_batch.simulation.generate_scenario import SCENARIOS, _release_of_scenario, generate_scenario
from isr_batch.simulation.group_plans import FleetOfGroups
from udfs.rules import RELEASED_RULES, rule_of_release


def test_kip_501_example_through_the_tables(lake: Lake) -> None:
    assert generate_scenario(lake, FleetOfGroups("kip-501-example")).rows_out == 11
    replay(lake, rule_runs(ReplaySettings(rules=["kafka-3.7", "kip-501-pending", "kip-501-relinquish"])))
    changes = lake.read("isr_changes").orderBy("change_time", "replica_id")
    told = [
        (row["rule"], str(row["change_time"])[17:], row["kind"], row["replica_id"], row["isr_after"])
        for row in changes.collect()
    ]
    assert told == [
        # The next in the ISR takes over, and who gave up leadership is the last.
        ("kip-501-relinquish", "02", "relinquish", 1001, [1002, 1003, 1001]),
        ("kafka-3.7", "15", "shrink", 1002, [1001]),
        ("kafka-3.7", "15", "shrink", 1003, [1001]),
        ("kafka-3.7", "26.510000", "expand", 1002, [1001, 1002]),
        ("kafka-3.7", "26.520000", "expand", 1003, [1001, 1002, 1003]),
    ]
    generate_scenario(lake, FleetOfGroups("kip-501-example"))
    assert lake.read("fetch_log").count() == 8


def test_the_page_names_every_scenario() -> None:
    page = (Path(__file__).parents[3] / "docs" / "stories.md").read_text(encoding="utf-8")
    assert [name for name in SCENARIOS if name not in page] == []


def test_a_wrong_name_lists_the_valid_ones(lake: Lake) -> None:
    with pytest.raises(UsageError, match="no scenario kip-501"):
        generate_scenario(lake, FleetOfGroups("kip-501"))


def test_the_release_of_a_fleet_runs_its_rule() -> None:
    for _, rule in RELEASED_RULES:
        assert rule_of_release(str(_release_of_scenario(FleetOfGroups("mixed-fleet", rule=rule.id)))) == rule.id
    assert _release_of_scenario(FleetOfGroups("mixed-fleet", rule="kip-501-pending")) is None
    assert _release_of_scenario(FleetOfGroups("mixed-fleet", rule="kafka-3.7", params={"check_period_ms": 1})) is None


@pytest.mark.usefixtures("compiled_expressions")
def test_a_fleet_is_the_same_for_a_seed_and_its_faults_are_found(lake: Lake) -> None:
    fleet = FleetOfGroups("mixed-fleet", partitions=6, hours=0.25, seed=4, partitions_a_group=2)
    counts = generate_scenario(lake, fleet)
    planted = lake.read("planted_faults").collect()
    assert len(planted) > 10
    replay(lake, rule_runs(ReplaySettings(rules=["kafka-3.7"])))
    shrinks = lake.read("shrink_verdicts").collect()
    found = [
        (fault["expected_cause"], shrink["primary_cause"], shrink["verdict"])
        for shrink in shrinks
        for fault in planted
        if fault["topic"] == shrink["topic"] and fault["from_time"] <= shrink["change_time"] <= fault["until_time"]
    ]
    assert len(found) == len(shrinks) > 0
    # The brokers of this fleet ran the rule that it was replayed with: what they did is what the replay says.
    change = ("topic", "partition_id", "leader_id", "change_time", "kind", "replica_id", "isr_before", "isr_after")
    told, decided = (lake.read(table).select(*change) for table in ("observed_isr_changes", "isr_changes"))
    assert sorted(told.collect()) == sorted(decided.collect())
    removed = lake.read("observed_isr_changes").where("made_by = 'controller'")
    assert removed.count() == sum(shrink["primary_cause"] == "controller" for shrink in shrinks) > 0
    assert generate_scenario(lake, fleet) == counts

    # A cluster that ran a rule of no release has nothing to compare with.
    generate_scenario(lake, replace(fleet, rule="kip-501-pending", hours=0.1), "proposed")
    assert not lake.read("observed_isr_changes").where("cluster_id = 'proposed' AND made_by = 'leader'").isEmpty()
    checked = validate(lake)
    assert (checked.matched_ratio, checked.matched > 0) == (1, True)
