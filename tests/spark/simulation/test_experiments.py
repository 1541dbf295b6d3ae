"""The shipped experiments: every proposal's story, as it goes under the rules that it argues about."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from isr_batch.lake.lake import Lake
from isr_batch.simulation.experiments import experiment_outcome, load_experiment, run_experiment
from tests.unit.simulation.test_experiments import SHIPPED

Rows = dict[str, dict[str, Any]]


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_story_goes_as_written(lake: Lake, file: Path, record_property: Any) -> None:
    experiment = load_experiment(file)
    found = run_experiment(lake, file.stem, experiment)
    assert [row["rule"] for row in found] == experiment.rules
    STORIES[file.stem]({row["rule"]: row for row in found})
    record_property("story", file.stem)
    record_property("outcomes", [(row["rule"], experiment_outcome(experiment, row).strip()) for row in found])


@pytest.mark.long
def test_this_process_and_spark_find_the_same(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = (file for file in SHIPPED if file.stem == "kip-501-thrash")
    experiment = load_experiment(file)
    found = []
    for number, most in enumerate((-1, 10**9)):
        monkeypatch.setattr("isr_batch.simulation.experiments.FEW_HOURS", most)
        returned = run_experiment(lake, f"run-{number}", experiment)
        written = lake.read("experiment_results").where(f"experiment = 'run-{number}'").drop("experiment")
        found.append((Counter(map(str, written.collect())), [{**row, "experiment": None} for row in returned]))
    assert found[0] == found[1]
    assert found[0][0].total() == len(experiment.rules)


def idle_churn(rows: Rows) -> None:
    """2 000 writes of 10 ms are a round of 20 s. Under 0.10.2 it never ends; under 2.1 there is one."""
    churn, calm = rows["kafka-0.10.2"], rows["kafka-2.1"]
    assert churn["last_change_seconds"] > 350
    assert 15_000 < churn["shrink_interval_ms_p50"] < 30_000
    assert churn["under_replicated_partitions"] > 100
    assert calm["last_change_seconds"] < 60
    assert calm["under_replicated_partitions"] < churn["under_replicated_partitions"] / 10


def always_behind(rows: Rows) -> None:
    assert (rows["kafka-0.9"]["shrinks"], rows["kafka-0.9"]["spurious"]) == (1, 1)
    assert rows["kafka-0.10.2"]["isr_changes"] == rows["kafka-3.7"]["isr_changes"] == 0


def in_and_out(rows: Rows) -> None:
    """Some ten times in 360 s; between two returns it is in the ISR for 10 to 20 s."""
    often = rows["kafka-0.9"]
    assert often["spurious"] == often["shrinks"] >= often["expands"] > 5
    assert often["lost_by_first_active_records_max"] > 0
    assert rows["kafka-0.10.2"]["isr_changes"] == 0


def storage_fault(rows: Rows) -> None:
    assert rows["kafka-3.7"]["leader_alone_seconds"] > 600
    assert rows["kafka-3.7"]["offline_if_leader_dies_seconds"] == rows["kafka-3.7"]["leader_alone_seconds"]
    assert rows["kafka-3.7"]["lost_by_first_active_records_max"] is not None
    assert rows["kafka-3.7"]["spurious"] == rows["kafka-3.7"]["shrinks"] > 0
    assert rows["kafka-10853-acked"]["isr_changes"] == rows["kip-501-pending"]["isr_changes"] == 0


def cut_off(rows: Rows) -> None:
    """From 62 s of 360 no fetch arrives. No later record is acknowledged, so no broker lacks an acknowledged one.

    No fetch is pending, so that KIP-501 drops both followers as today's rule does.
    """
    for rule in "kafka-3.7", "kip-501-pending":
        assert 280 < rows[rule]["offline_if_leader_dies_seconds"] < 290
        assert rows[rule]["lost_by_first_active_records_max"] == 0
    acked = rows["kafka-10853-acked"]
    assert (acked["shrinks"], acked["offline_if_leader_dies_seconds"], acked["never_acknowledged"]) == (0, 0, 5)


def dead_follower(rows: Rows) -> None:
    """It dies at 62 s of 360. Under today's rule producers go on after 10 to 15 s; under the proposal never."""
    assert rows["kafka-3.7"]["genuine"] == 1
    assert rows["kafka-3.7"]["high_watermark_stalled_seconds"] < 20
    acked = rows["kafka-10853-acked"]
    assert acked["shrinks"] == 0
    assert acked["never_acknowledged"] > 0
    assert acked["high_watermark_stalled_seconds"] > 290
    assert acked["acks_all_latency_ms_max"] < 2


def kip_501(rows: Rows) -> None:
    assert rows["kafka-3.7"]["spurious"] >= 2
    assert rows["kip-501-pending"]["shrinks"] == rows["kip-501-relinquish"]["shrinks"] == 0
    assert rows["kip-501-relinquish"]["relinquishes"] == 1


def thrash(rows: Rows) -> None:
    assert rows["kip-501-relinquish"]["relinquishes"] > 20
    assert rows["kip-501-pending"]["isr_changes"] == rows["kafka-3.7"]["isr_changes"] == 0


def burst(rows: Rows) -> None:
    assert rows["kafka-0.8"]["spurious"] == rows["kafka-0.8"]["shrinks"] > 0
    assert rows["kafka-0.9"]["shrinks"] == 0


def trickle(rows: Rows) -> None:
    assert rows["kafka-0.8"]["shrinks"] == 0
    assert rows["kafka-0.8"]["misses"] == 1
    assert rows["kafka-0.9"]["shrinks"] == 1  # at the first message, when it has lacked something for milliseconds only


STORIES = {
    "kafka-7152-idle-churn": idle_churn,
    "kafka-4485-always-behind": always_behind,
    "kafka-4485-in-and-out": in_and_out,
    "kafka-10853-storage-fault": storage_fault,
    "kafka-10853-cut-off": cut_off,
    "kafka-10853-dead-follower": dead_follower,
    "kip-501-example": kip_501,
    "kip-501-thrash": thrash,
    "lag-messages-burst": burst,
    "lag-messages-trickle": trickle,
}
