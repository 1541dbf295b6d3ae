"""Figures of docs/study.md with their intervals, from the tables behind it."""

import json
from collections.abc import Mapping
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
from udfs.rules.base import Rule

TABLES: Final = Path(__file__).parents[1] / "study"
PARTITIONS: Final = 4
"""Number of partitions of a simulated cluster."""
HOURS_OF_RUN: Final = 0.5
LATER: Final = {
    "kafka-0.10.2": ("joins_from_epoch_start", "0.10.2.0 - 2.0.0", "2.0.1"),
    "kafka-2.1": ("errors_change_nothing", "2.1.0 - 2.3.1", "2.4.0 - 2.6.3"),
    "kafka-2.7": ("advances_on_commit", "2.7.0 - 3.0.2", "3.1.0 - 3.2.3"),
    "kafka-3.3": ("only_eligible_hold_high_watermark", "3.3.0 - 3.5.2", "3.6.0 - 3.6.2"),
}
"""Rules whose code changed within their releases: the parameter that says which, and the releases without and with."""
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


def run_of_rule(row: Mapping[str, Any]) -> str:
    """Name a rule with its parameters: by the rule, and the first of the later releases."""
    rule = str(row["rule"])
    param, _, releases = LATER.get(rule, ("", "", ""))
    return f"{rule} as of {releases.split()[0]}" if json.loads(row["params_json"]).get(param) == "true" else rule


def rule_of_run(run: str) -> Rule:
    """Return the rule of such a name."""
    return REGISTRY[run.split(maxsplit=1)[0]]


def releases_of_run(run: str) -> str:
    """Return the releases that behaved so; nothing for a rule that no release has."""
    rule = rule_of_run(run)
    if rule.kind != "released":
        return ""
    in_force = "0.8.2.0 - 0.8.2.2" if rule.id == "kafka-0.8" else rule.in_force  # by its default parameters
    _, first, later = LATER.get(rule.id, ("", in_force, ""))
    return first if run == rule.id else later


@cache
def table(name: str) -> list[Row]:
    """Read the rows of a table behind the page."""
    rows: list[Row] = pq.read_table(TABLES / f"{name}.parquet").to_pylist()
    return rows


@cache
def rules() -> list[str]:
    """List the rules of the tables by the names of their runs, in order of the registry."""
    there = pc.unique(pq.read_table(TABLES / "recorded.parquet")["rule"]).to_pylist()
    return sorted(there, key=lambda run: (list(REGISTRY).index(rule_of_run(run).id), len(run)))


def recorded_figures(rule: str) -> dict[str, Figure]:
    """Figures of a rule on the recorded clusters; blocks are the leaders of each recording.

    Detection is in lag times: a mean in seconds would show how many shrinks the recordings of each lag time have.
    """
    lag_ms = {row["cluster_id"]: row["replica_lag_time_max_ms"] for row in table("clusters")}
    rows = [
        row | {"detection_ms": 1000 * row["detection_ms"] / lag_ms[row["cluster_id"]]}
        for row in table("recorded")
        if row["rule"] == rule
    ]
    figures = {name: figure_of_draws(values) for name, values in figures_of_pairs(rows).items()}
    return figures | {"detection_lag_times": figures["detection_s"]}


_PER_FAULT: Final = (
    "faults", "simulated_hours", "spurious", "within_lag", "genuine", "misses", "detection_s", "metadata_writes",
    "refused_or_stalled_seconds",
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
    unavailable = sums["refused_or_stalled_seconds"]
    if kind != QUIET:
        quiet = _sums_of_kind(rule, QUIET)
        usual = share_of_sums(quiet["refused_or_stalled_seconds"], quiet["simulated_hours"])
        unavailable = np.maximum(unavailable - usual * sums["simulated_hours"], 0)
    return sums | {"unavailable_s": unavailable}


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
        if rule_of_run(rule).kind != "reference"
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
