"""Grid files: the runs that they request, and all mistakes in them reported at once."""

from pathlib import Path

import pytest

from isr_batch.errors import UsageError
from isr_batch.scoring.sweep_grid import MOST_RUNS, load_grid, require_lag_times_in_grid
from udfs.batches.rule_runs import RuleRun
from udfs.rules import ALL_RULES

SHIPPED = sorted((Path(__file__).parents[3] / "conf" / "grids").glob("*.yaml"))


def written(tmp_path: Path, text: str, name: str = "mine.yaml") -> Path:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_rule_is_run_once_for_each_combination_of_its_parameters(tmp_path: Path) -> None:
    text = """
        rules: [kafka-3.7, kip-501-pending, true-lag]
        grid: {replica.lag.time.max.ms: [10000, 30000, 10000], check_period_ms: [100], pending-from: [handled, arrival]}
    """
    common = {"check_period_ms": 100}
    assert list(load_grid(written(tmp_path, text)).runs) == [
        *(RuleRun("kafka-3.7", {"replica_lag_time_max_ms": t} | common) for t in (10_000, 30_000)),
        *(
            RuleRun("kip-501-pending", {"replica_lag_time_max_ms": t, "pending_from": p} | common)
            for t in (10_000, 30_000)
            for p in (0, 1)
        ),
        # It has no periodic check.
        *(RuleRun("true-lag", {"replica_lag_time_max_ms": t}) for t in (10_000, 30_000)),
    ]


def test_all_rules_unless_some_are_named(tmp_path: Path) -> None:
    for text in ("grid: {min_insync_replicas: [1]}", "{rules: all, grid: {min_insync_replicas: [1]}}"):
        assert [run.rule for run in load_grid(written(tmp_path, text)).runs] == ALL_RULES


def test_a_topic_is_of_the_first_class_that_takes_it(tmp_path: Path) -> None:
    text = "grid: {min_insync_replicas: [1]}\ntopic_classes: {internal: ^__, payments: pay, paid: paid}"
    grid = load_grid(written(tmp_path, text)).grid
    assert [grid.class_of(topic) for topic in ("__paid", "a.payments", "paid", "b")] == [
        "internal", "payments", "paid", "other",
    ]  # fmt: skip
    assert load_grid(written(tmp_path, "grid: {min_insync_replicas: [1]}")).grid.class_of("b") == "all"


def test_shipped_grids_can_be_swept() -> None:
    assert SHIPPED
    for file in SHIPPED:
        assert require_lag_times_in_grid(file, load_grid(file)).runs
        assert all("#" in line for line in file.read_text().splitlines() if line and not line.endswith(":"))


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = """
        rules: [kafka-3.8, kafka-3.7]
        grid: {replica_lag_time_max_ms: [soon, 0], min_insync_replica: [1], count_long_poll: [1], check-period-ms: []}
        topic_classes: {broken: "("}
        budgets: {mistakes_per_follower_day: 0, detection_ms_p95: 1}
        budget: {}
    """
    with pytest.raises(UsageError) as error:
        load_grid(written(tmp_path, text))
    for told in (
        "no rule kafka-3.8; did you mean kafka-3.7?",
        "check-period-ms: no values",
        "'(' is not a regular expression",
        "budgets.mistakes_per_follower_day: input should be greater than 0",
        "budgets.detection_ms_p95: no such key; did you mean detection_ms_p99?",
        "budget: no such key; did you mean budgets?",
    ):
        assert told in error.value.message
    with pytest.raises(UsageError) as error:
        load_grid(written(tmp_path, text.replace("kafka-3.8, ", "")))
    for told in (
        "replica_lag_time_max_ms: a whole number from 1 on is wanted, not 'soon'",
        "not 0",
        "none of the rules has a parameter min_insync_replica; did you mean min_insync_replicas?",
        "none of the rules has a parameter count_long_poll",
    ):
        assert told in error.value.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rules: [", "not YAML"),
        ("", "the file: input should be a valid dictionary"),
        ("rules: [kafka-3.7]", "grid: field required"),
        ("grid: {min_insync_replicas: 1}", "grid.min_insync_replicas: input should be a valid list"),
        ("grid: {min_insync_replicas: [1], min.insync.replicas: [2]}", "min.insync.replicas is given twice"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match="(?s)" + told.replace(".", r"\.")):
        load_grid(written(tmp_path, text))


def test_a_grid_too_large_for_one_pass(tmp_path: Path) -> None:
    lag_times = list(range(1, MOST_RUNS + 1))
    file = written(tmp_path, f"rules: [kafka-3.7]\ngrid: {{replica_lag_time_max_ms: {lag_times}}}")
    assert len(load_grid(file).runs) == MOST_RUNS
    file = written(tmp_path, f"rules: [kafka-3.7]\ngrid: {{replica_lag_time_max_ms: {[*lag_times, MOST_RUNS + 1]}}}")
    with pytest.raises(UsageError, match=f"{MOST_RUNS + 1} rule runs"):
        load_grid(file)


def test_a_file_that_is_not_there_or_has_an_impossible_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_grid(tmp_path / "nowhere.yaml")
    with pytest.raises(UsageError, match="cannot name a grid"):
        load_grid(written(tmp_path, "", "it's.yaml"))


def test_a_sweep_needs_lag_times(tmp_path: Path) -> None:
    file = written(tmp_path, "grid: {min_insync_replicas: [1]}")
    with pytest.raises(UsageError, match="no values of replica_lag_time_max_ms"):
        require_lag_times_in_grid(file, load_grid(file))
