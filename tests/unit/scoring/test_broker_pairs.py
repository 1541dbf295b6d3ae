"""Figures of pairs of brokers, and their intervals."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isr_batch.scoring.broker_pairs import (
    DRAWS,
    SUMMED,
    drawn_sums,
    figure_of_draws,
    figures_of_pairs,
    share_of_sums,
)

COUNTS = st.lists(st.integers(0, 50), min_size=1, max_size=8)


@given(COUNTS)
def test_the_interval_lies_within_what_blocks_can_sum_up_to(counts: list[int]) -> None:
    """Equal blocks have no interval; any draw has as many blocks as there are."""
    sums = drawn_sums([{"spurious": count, "blocks": 1} for count in counts], ("spurious", "blocks"))
    assert (sums["blocks"] == len(counts)).all()
    figure = figure_of_draws(sums["spurious"])
    assert figure.value == sum(counts)
    assert len(counts) * min(counts) <= figure.low <= figure.high <= len(counts) * max(counts)


def test_the_interval_is_that_of_the_standard_error() -> None:
    """The bootstrap's interval of a sum of many blocks is the normal one."""
    random = np.random.default_rng(3)
    counts = random.poisson(4, 400)
    figure = figure_of_draws(drawn_sums([{"n": count} for count in counts], ("n",))["n"])
    half = 1.96 * counts.std() * np.sqrt(len(counts))
    assert figure.high - figure.low == pytest.approx(2 * half, rel=0.1)


def test_rules_share_draws() -> None:
    """The difference between a rule and one with a mistake more in each block has no interval."""
    one, more = ([{"n": count + extra} for count in (3, 0, 9, 1)] for extra in (0, 1))
    difference = figure_of_draws(drawn_sums(more, ("n",))["n"] - drawn_sums(one, ("n",))["n"])
    assert (difference.value, difference.low, difference.high) == (4, 4, 4)


def test_a_share_of_nothing_is_not_known() -> None:
    figure = figure_of_draws(share_of_sums(np.ones(DRAWS + 1), np.zeros(DRAWS + 1)))
    assert np.isnan([figure.value, figure.low, figure.high]).all()


def test_figures_by_both_truths() -> None:
    """Four genuine shrinks and one mistake by blame; three of the five were within the lag time."""
    pair: dict[str, Any] = dict.fromkeys(SUMMED, 0.0) | {
        "cluster_id": "c", "leader_id": 1,
        "exposure_us": 7.2e9, "under_min_isr_us": 3e6, "spurious": 1.0, "genuine": 4.0, "within_lag": 3.0,
        "detection_ms": 8000.0, "judged_us": 10.0, "agreed_us": 9.0, "agreed_by_blame_us": 8.0,
    }  # fmt: skip
    found = {name: values[0] for name, values in figures_of_pairs([pair]).items()}
    assert found["precision_by_blame"] == 0.8
    assert found["precision_by_lag"] == 0.4
    assert (found["right_by_lag"], found["right_by_blame"]) == (0.9, 0.8)
    assert found["detection_s"] == 2.0
    assert found["under_min_isr_us"] == 1.5


def test_the_shrinks_of_a_leader_are_drawn_together() -> None:
    """Four pairs of two leaders have the interval of two blocks: none, one or both of the leaders twice."""
    zeros: dict[str, Any] = dict.fromkeys(SUMMED, 0.0)
    pairs = [zeros | {"cluster_id": "c", "leader_id": leader, "spurious": float(leader - 1)} for leader in (1, 1, 2, 2)]
    assert set(figures_of_pairs(pairs)["spurious"]) == {0.0, 2.0, 4.0}
