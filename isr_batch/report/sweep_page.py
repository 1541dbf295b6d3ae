"""Write the HTML page of a sweep (a replay with many parameter sets): recommended lag times, scores per lag time."""

from pathlib import Path
from typing import Any

from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_sql import LakeSql
from isr_batch.phrases import rounded
from isr_batch.report.charts import frontier_chart
from isr_batch.report.page import page_scope, write_page
from isr_batch.scoring.lag_time_advice import Row, curve_of_advice
from isr_batch.scoring.sweep import Sweep, swept_params
from isr_batch.scoring.sweep_grid import LAG_TIME, NamedGrid, SweepGrid

FIGURES = {
    "exposure_follower_hours": "follower-hours", "shrinks": "shrinks", "spurious": "spurious", "genuine": "genuine",
    "unknown": "unknown", "never_removed": "never removed", "mistakes_per_follower_day": "mistakes per follower-day",
    "mistakes_per_follower_day_low": "at least", "mistakes_per_follower_day_high": "at most",
    "detection_ms_p50": "half detected, ms", "detection_ms_p99": "99 % detected, ms",
    "mistake_duration_ms_p50": "mistake lasts, ms", "under_min_isr_seconds": "under min ISR, s",
    "high_watermark_stalled_seconds": "high watermark stalled, s",
    "acks_all_latency_ms_p99": "acks=all latency, 99 % of requests, ms",
    "acks_all_wait_ms_p99": "acks=all latency, 99 % of time, ms (0: up to 1 s)", "refused_appends": "refused appends",
}  # fmt: skip
"""Columns of table ``sweep_scores`` that the page shows, with their headings."""


def write_sweep_page(lake: Lake, named: NamedGrid, found: Sweep, out: Path) -> None:
    """Write the HTML page of a sweep, which is a replay with many parameter sets.

    Parameters
    ----------
    lake : Lake
        The lake in which the sweep was run.
    named : NamedGrid
        The parameter sets, and the upper limits for mistakes and detection time (budgets).
    found : Sweep
        Its results.
    out : Path
        HTML file to write. Viewing it needs no network.
    """
    budgets = named.grid.budgets
    with LakeSql(lake) as sql:
        covered = page_scope(sql)
    placed = [row for row in found.scores if row["detection_ms_p99"] is not None and row["exposure_follower_hours"]]
    chart = frontier_chart(
        [_mark_on_sweep_page(row, named.grid) for row in placed],
        "follower",
        budgets.mistakes_per_follower_day,
        budgets.detection_ms_p99,
    )
    write_page(
        "sweep.html.j2",
        out,
        {"frontier": chart},
        name=named.name,
        scope=covered,
        budgets=budgets,
        answers=[{**row, "whose": _whose_sweep(row, named.grid)} for row in found.advice],
        unplaced=len(found.scores) - len(placed),
        figures=[_figures_of_sweep(row, named.grid) for row in found.scores],
    )


def _place_on_sweep_page(row: Row) -> str:
    return f"{row['cluster_id']}, {row['topic_class']} topics"


def _whose_sweep(row: Row, grid: SweepGrid) -> str:
    """Name the subject of a recommendation: cluster, topic class, rule, parameters, and lag time if there is one."""
    others = swept_params(row["other_params_json"], grid)
    chosen = f" {LAG_TIME}={row['recommended_lag_time_max_ms']}" if row["recommended_lag_time_max_ms"] else ""
    return f"{_place_on_sweep_page(row)}, {row['rule']}{' ' if others else ''}{others}{chosen}"


def _curve_of_sweep(row: Row, grid: SweepGrid) -> str:
    """Name a curve by its rule, and by the rule's parameters other than the lag time."""
    return f"{row['rule']} {swept_params(curve_of_advice(row)[-1], grid)}".rstrip()


def _mark_on_sweep_page(row: Row, grid: SweepGrid) -> dict[str, Any]:
    """Convert a row of scores to a point of `isr_batch.report.charts.frontier_chart`."""
    seen = row["spurious"] > 0
    high = row["mistakes_per_follower_day_high"]
    rate = row["mistakes_per_follower_day"] if seen else high
    return {
        "place": _place_on_sweep_page(row),
        "rule": _curve_of_sweep(row, grid),
        "lag_time_s": row[LAG_TIME] / 1000,
        "detection_s": row["detection_ms_p99"] / 1000,
        "mistakes": rate,
        # A logarithmic axis has no zero. An interval that begins at zero is drawn down to a tenth of the rate.
        "low": row["mistakes_per_follower_day_low"] or rate / 10,
        "high": high,
        "seen": seen,
    }


def _figures_of_sweep(row: Row, grid: SweepGrid) -> dict[str, Any]:
    """Convert a row of scores to a row of the page's table, with the headings as keys."""
    labels = {
        "topics": f"{_place_on_sweep_page(row)}, {_curve_of_sweep(row, grid)}",
        "lag time, ms": f"{row[LAG_TIME]:,}",
    }
    return labels | {title: _written_sweep_page(row[name]) for name, title in FIGURES.items()}


def _written_sweep_page(value: object) -> str | None:
    return None if value is None else f"{value:,}" if isinstance(value, int) else str(rounded(value))
