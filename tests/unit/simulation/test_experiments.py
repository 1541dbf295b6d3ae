"""Experiment files: their content, and all mistakes in them reported at once."""

from pathlib import Path

import pytest

from isr_batch.errors import UsageError
from isr_batch.simulation.experiments import experiment_cells, load_experiment
from isr_batch.simulation.proposal_scenarios import LOOPED

SHIPPED = sorted((Path(__file__).parents[3] / "conf" / "experiments").glob("*.yaml"))


def written(tmp_path: Path, text: str, name: str = "mine.yaml") -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_every_story_has_an_experiment_of_its_name() -> None:
    assert {file.stem for file in SHIPPED} == set(LOOPED)
    for file in SHIPPED:
        assert load_experiment(file).scenario == file.stem


def test_a_cell_for_each_rule_seed_and_combination(tmp_path: Path) -> None:
    text = """
        scenario: paused-follower
        rules: [kafka-2.1, kafka-3.7]
        seeds: [1, 2]
        hours: 1.5
        grid: {replica.lag.time.max.ms: [10000, 30000], min-insync-replicas: [1]}
        outcome: "{shrinks}"
    """
    found = experiment_cells(load_experiment(written(tmp_path, text)))
    assert [cell.number for cell in found] == list(range(8))
    assert [(cell.fleet.rule, cell.fleet.seed) for cell in found[::2]] == [
        ("kafka-2.1", 1), ("kafka-2.1", 2), ("kafka-3.7", 1), ("kafka-3.7", 2),
    ]  # fmt: skip
    assert [cell.fleet.params["replica_lag_time_max_ms"] for cell in found] == [10_000, 30_000] * 4
    assert {cell.fleet.params["min_insync_replicas"] for cell in found} == {1}
    assert {cell.fleet.hours for cell in found} == {1.5}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("scenario: paused-folower\nrules: [kafka-3.8]\noutcome: x", "paused-follower.*kafka-3.7"),
        ("scenario: thrash\nrules: []\nhours: 0\nnight: 1\noutcome: x", "rules.*hours.*night"),
        ("scenario: quiet-fleet\nrules: [kafka-3.7]\noutcome: x\ngrid: {lag: [1]}", "kafka-3.7 has no parameter lag"),
        ("scenario: quiet-fleet\nrules: [kafka-3.7]\noutcome: x\ngrid: {min_insync_replicas: [none]}", "whole number"),
        ("rules: [", "not YAML"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        load_experiment(written(tmp_path, text))


def test_a_file_that_is_not_there_or_has_an_impossible_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_experiment(tmp_path / "nowhere.yaml")
    with pytest.raises(UsageError, match="cannot name an experiment"):
        load_experiment(written(tmp_path, "", "it's.yaml"))
