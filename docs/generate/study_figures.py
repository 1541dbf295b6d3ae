"""Figures of docs/study.md with their intervals, from the tables behind it."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from isr_batch.scoring.broker_pairs import (
    DRAWS,
    Figure,
    Floats,
    drawn_sums,
    figure_of_draws,
    figures_of_pairs,
    share_of_sums,
)
from isr_batch.simulation.planted_faults import MAKERS
from udfs.rules import REGISTRY

TABLES: Final = Path(__file__).parents[1] / "study"
PARTITIONS: Final = 4
"""Number of partitions of a simulated cluster."""
HOURS_OF_RUN: Final = 1.0
QUIET: Final = "quiet-fleet"
MIXED: Final = "mixed-fleet"
KINDS: Final = (QUIET, *MAKERS)

_ORDINARY: Final = {
    "paused-follower": 0.5, "dead-follower": 0.02, "slow-follower": 0.1, "slow-followers": 0.02, "lossy-link": 0.1,
    "replication-quota": 0.1, "slow-storage": 0.05, "slow-queue": 0.05, "stopped-leader": 0.25, "leader-change": 0.5,
    "rolling-restart": 0.5,
}  # fmt: skip
RATES: Final = {
    "ordinary": _ORDINARY,
    "sick": {**_ORDINARY, "slow-storage": 20.0, "slow-queue": 20.0, "stopped-leader": 10.0, "lossy-link": 10.0},
}
"""Assumed number of faults of each kind per week, among the brokers of a partition."""
WEEK_HOURS: Final = 168
SAME: Final = 0.01
"""Share of a figure; smaller differences put no rule on the frontier."""

Row = dict[str, Any]


@cache
def table(name: str) -> list[Row]:
    """Read the rows of a table behind the page."""
    rows: list[Row] = pq.read_table(TABLES / f"{name}.parquet").to_pylist()
    return rows


@cache
def rules() -> list[str]:
    """List the rules of the tables, in order of the registry."""
    there = set(pc.unique(pq.read_table(TABLES / "recorded.parquet")["rule"]).to_pylist())
    return [rule for rule in REGISTRY if rule in there]


def recorded_figures(rule: str) -> dict[str, Figure]:
    """Figures of a rule on the recorded clusters; blocks are the leaders of each recording."""
    rows = [row for row in table("recorded") if row["rule"] == rule]
    return {name: figure_of_draws(values) for name, values in figures_of_pairs(rows).items()}


_PER_FAULT: Final = (
    "faults", "simulated_hours", "spurious", "within_lag", "genuine", "misses", "detection_s", "metadata_writes",
    "under_min_isr_seconds", "high_watermark_stalled_seconds",
)  # fmt: skip


@cache
def runs(rule: str, kind: str) -> list[Row]:
    """List the simulated runs of a rule with faults of a kind, one for each seed."""
    rows = [row for row in table("simulated") if row["rule"] == rule and row["scenario"] == kind]
    for row in rows:
        judged = row["spurious"] + row["genuine"]
        row["within_lag"] = judged * (1 - row["precision_by_lag"]) if row["precision_by_lag"] is not None else 0
        # A run has the median of its few genuine shrinks.
        row["detection_s"] = row["genuine"] * (row["detection_ms_p50"] or 0) / 1e3
    return sorted(rows, key=lambda row: row["seed"])


@cache
def _sums_of_kind(rule: str, kind: str) -> dict[str, Floats]:
    sums = drawn_sums(runs(rule, kind), _PER_FAULT, 1 + KINDS.index(kind))
    refused, stalled = sums["under_min_isr_seconds"], sums["high_watermark_stalled_seconds"]
    if kind != QUIET:
        quiet = _sums_of_kind(rule, QUIET)
        usual = share_of_sums(quiet["high_watermark_stalled_seconds"], quiet["simulated_hours"])
        stalled = np.maximum(stalled - usual * sums["simulated_hours"], 0)
    # Their overlap is unknown; together they last at least as long as the longer one.
    return sums | {"unavailable_s": np.maximum(refused, stalled)}


def mistakes_per_fault(rule: str, kind: str) -> float:
    """Mistakes of a rule per fault of a kind and hundred partitions; of the quiet fleet, per hour."""
    sums = _sums_of_kind(rule, kind)
    times = sums["simulated_hours"] if kind == QUIET else sums["faults"]
    return float(100 * sums["spurious"][0] / (times[0] * PARTITIONS))


@cache
def weekly(rule: str, cluster: str, name: str) -> Floats:
    """Sum up a figure over the faults of a week, per partition: first as observed, then of each draw."""
    total = np.zeros(DRAWS + 1)
    if name != "unavailable_s":
        quiet = _sums_of_kind(rule, QUIET)
        total += WEEK_HOURS * quiet[name] / (quiet["simulated_hours"] * PARTITIONS)
    for kind, rate in RATES[cluster].items():
        sums = _sums_of_kind(rule, kind)
        total += rate * share_of_sums(sums[name], sums["faults"] * PARTITIONS)
    return total


@cache
def simulated_figures(rule: str, cluster: str) -> dict[str, Figure]:
    """Figures of a rule in a week of a simulated cluster, per partition; blocks are seeds, kind by kind."""
    per_week = {
        name: weekly(rule, cluster, name)
        for name in ("spurious", "within_lag", "genuine", "misses", "metadata_writes", "unavailable_s", "detection_s")
    }
    detection = share_of_sums(per_week.pop("detection_s"), per_week["genuine"])
    return {name: figure_of_draws(values) for name, values in per_week.items()} | {
        "detection_s": figure_of_draws(detection)
    }


def frontier(cluster: str, x: str, y: str = "spurious") -> list[str]:
    """List the rules that no other rule beats in one of two figures without losing in the other; references aside.

    Differences of up to a hundredth do not count.
    """
    points = {
        rule: (figures[x].value, figures[y].value)
        for rule in rules()
        if REGISTRY[rule].kind != "reference"
        for figures in [simulated_figures(rule, cluster)]
        if np.isfinite(figures[x].value)
    }

    def loses(one: tuple[float, float]) -> bool:
        return any(
            x <= one[0] * (1 + SAME)
            and y <= one[1] * (1 + SAME)
            and (x < one[0] * (1 - SAME) or y < one[1] * (1 - SAME))
            for x, y in points.values()
        )

    return [rule for rule, at in points.items() if not loses(at)]
