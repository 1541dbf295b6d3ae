"""Advice on lag times: intervals against textbook values, and answers worked out by hand."""

import json
from typing import Any

import pytest

from isr_batch.scoring.lag_time_advice import (
    EXACT,
    _mean_where,
    lag_time_advice,
    poisson_interval_of_mistakes,
    with_mistake_rates,
)
from isr_batch.scoring.sweep_grid import SweepBudgets

BUDGETS = SweepBudgets(mistakes_per_follower_day=0.1, detection_ms_p99=20_000)
HOURS_OF_NONE = 3.688879454 / 0.1 * 24


@pytest.mark.parametrize(
    ("events", "low", "high"),
    [
        # Exact 95 % limits of a Poisson mean as tables have them (Garwood 1936; Pearson and Hartley, table 40).
        (0, 0.0, 3.689),
        (1, 0.0253, 5.572),
        (2, 0.242, 7.225),
        (5, 1.623, 11.668),
        (10, 4.795, 18.390),
        (30, 20.241, 42.827),
        (50, 37.111, 65.919),
        (100, 81.364, 121.627),
    ],
)
def test_intervals_are_those_of_the_tables(events: int, low: float, high: float) -> None:
    assert poisson_interval_of_mistakes(events) == pytest.approx((low, high), abs=0.0006)


def test_where_the_approximation_takes_over_it_is_as_good() -> None:
    exact = _mean_where(EXACT, 0.975), _mean_where(EXACT + 1, 0.025)
    assert poisson_interval_of_mistakes(EXACT + 1) == pytest.approx(exact, rel=1e-5)


def row(lag_time: int, *, hours: float = 1000.0, **more: Any) -> dict[str, Any]:
    """Scores of a run without a shrink, on two followers a partition."""
    scores = {
        "cluster_id": "c",
        "topic_class": "all",
        "rule": "kafka-3.7",
        "params_json": json.dumps({"replica_lag_time_max_ms": lag_time}),
        "exposure_partition_hours": hours / 2,
        "exposure_follower_hours": hours,
        **dict.fromkeys(("shrinks", "spurious", "genuine", "excluded", "unknown", "misses", "timely"), 0),
        "mistakes_per_partition_day_low": 0.0,
        "mistakes_per_partition_day_high": 3 / (hours / 48) if hours else 0.0,
        "detection_ms_p99": None,
    }
    return with_mistake_rates(scores | more)


def detected(genuine: int, p99: float, **more: Any) -> dict[str, Any]:
    return {"shrinks": genuine, "genuine": genuine, "timely": genuine, "detection_ms_p99": p99} | more


def test_rates_and_shares() -> None:
    found = row(10_000, hours=240, shrinks=9, spurious=2, genuine=4, timely=3, excluded=1, unknown=2, misses=3)
    assert found["mistakes_per_follower_day"] == pytest.approx(0.2)
    assert found["mistakes_per_follower_day_low"] == 0  # the bootstrap's
    assert found["mistakes_per_follower_day_high"] == pytest.approx(0.7225, abs=1e-4)  # Poisson's
    assert found["unknown_share"] == 0.25  # of the eight that the rule made
    assert found["never_removed"] == 2  # one of the three misses is the shrink that came late
    bursts = row(10_000, hours=240, shrinks=2, spurious=2, mistakes_per_partition_day_high=2.0)
    assert bursts["mistakes_per_follower_day_high"] == 1.0  # ten in five partition-days


def test_smallest_that_fits_is_recommended() -> None:
    rows = [
        row(30_000, **detected(3, 44_000)),
        row(20_000, **detected(7, 19_000)),
        row(10_000, **detected(8, 14_000, shrinks=10, unknown=2)),
        row(5_000, **detected(9, 7_000, shrinks=409, spurious=400, mistakes_per_partition_day_low=10.0)),
    ]
    (found,) = lag_time_advice(rows, BUDGETS)
    assert (found["answer"], found["recommended_lag_time_max_ms"]) == ("recommended", 10_000)
    assert found["mistakes_per_follower_day_high"] == pytest.approx(3.689 / 1000 * 24, rel=1e-3)  # 0.0885
    assert (found["unknown_share"], found["exposure_follower_hours"]) == (0.2, 1000)
    assert "0 mistakes in 1,000 follower-hours, 0 to 0.0885 per follower-day (budget 0.1)" in found["why"]
    assert "99 % within 14,000 ms (budget 20,000)" in found["why"]
    assert "20% of its shrinks cannot be judged" in found["why"]
    assert "At 5,000 ms: 400 mistakes" in found["why"]


def test_too_short_a_log_is_not_enough_whatever_it_shows() -> None:
    (found,) = lag_time_advice([row(10_000, hours=12, **detected(3, 14_000)), row(30_000, hours=12)], BUDGETS)
    assert (found["answer"], found["recommended_lag_time_max_ms"]) == ("not enough data", None)
    assert found["needed_follower_hours"] == pytest.approx(HOURS_OF_NONE)  # 885
    assert "12 follower-hours seen, 885 needed (a log 73.8 times as long)" in found["why"]
    assert found["replica_lag_time_max_ms"] == 10_000
    (found,) = lag_time_advice([row(10_000, hours=12, log_hours=2.0)], BUDGETS)
    assert "885 needed (7 days of a cluster of this size)" in found["why"]


def test_a_few_mistakes_that_may_be_too_many_are_not_enough_data() -> None:
    """3 in 41.7 days: 0.072 a day, 0.0148 to 0.21."""
    (found,) = lag_time_advice([row(10_000, **detected(3, 14_000, shrinks=6, spurious=3))], BUDGETS)
    assert found["answer"] == "not enough data"
    assert found["needed_follower_hours"] == pytest.approx(8.7673 / 0.1 * 24, rel=1e-4)
    assert "needed (a log 2.1 times as long) without another mistake" in found["why"]


def test_without_a_failure_detection_is_unknown() -> None:
    (found,) = lag_time_advice([row(10_000)], BUDGETS)
    assert found["answer"] == "not enough data"
    assert "no follower failed for long enough to be detected" in found["why"]


def test_none_fits_and_which_budget_fails() -> None:
    many = {"spurious": 80, "mistakes_per_partition_day_low": 3.0}
    rows = [
        row(5_000, **detected(9, 7_000, shrinks=209, **many | {"spurious": 200})),
        row(10_000, **detected(8, 14_000, shrinks=88, **many)),
        row(30_000, **detected(3, 44_000)),
    ]
    (found,) = lag_time_advice(rows, BUDGETS)
    assert (found["answer"], found["recommended_lag_time_max_ms"]) == ("none fits", None)
    # 80 in 41.7 days are 1.92 a day.
    assert "over their budget wherever detection is not: 19.2 times at 10,000 ms" in found["why"]
    assert "Detection is over its budget at 30,000 ms (3 failures detected, 99 % within 44,000 ms" in found["why"]
    assert found["replica_lag_time_max_ms"] == 10_000


def test_a_rule_that_leaves_the_dead_in_does_not_detect() -> None:
    (found,) = lag_time_advice([row(10_000, misses=1)], BUDGETS)
    assert found["answer"] == "none fits"
    assert "of 1 failure none detected" in found["why"]
    (found,) = lag_time_advice([row(10_000, **detected(1000, 14_000, misses=10))], BUDGETS)
    assert found["answer"] == "recommended"  # ten of 1010 are no hundredth
    (found,) = lag_time_advice([row(10_000, **detected(1000, 14_000, misses=11))], BUDGETS)
    assert found["answer"] == "none fits"


def test_a_log_without_time_to_judge_is_not_enough() -> None:
    (found,) = lag_time_advice([row(10_000, hours=0.0)], BUDGETS)
    assert found["answer"] == "not enough data"
    assert found["needed_follower_hours"] == pytest.approx(HOURS_OF_NONE)


def test_an_answer_for_each_class_rule_and_other_parameter() -> None:
    def of(rule: str, topic_class: str, **params: int) -> dict[str, Any]:
        return row(
            10_000, rule=rule, topic_class=topic_class,
            params_json=json.dumps({"replica_lag_time_max_ms": 10_000} | params),
        )  # fmt: skip

    rows = [of("true-lag", "all"), of("kafka-3.7", "all", check_period_ms=2), of("kafka-3.7", "all", check_period_ms=1)]
    rows += [of("kafka-3.7", "internal", check_period_ms=1)]
    found = [(row["topic_class"], row["rule"], row["other_params_json"]) for row in lag_time_advice(rows, BUDGETS)]
    assert found == [
        ("all", "kafka-3.7", '{"check_period_ms": 1}'),
        ("all", "kafka-3.7", '{"check_period_ms": 2}'),
        ("all", "true-lag", "{}"),
        ("internal", "kafka-3.7", '{"check_period_ms": 1}'),
    ]
