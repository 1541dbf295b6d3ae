"""Recommend the smallest lag time with which both mistakes and detection time are within their budgets.

docs/sweep.md explains how to read the advice.
"""

import json
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from isr_batch.phrases import count_of, hours_text, rounded, three_digits
from isr_batch.scoring.sweep_grid import LAG_TIME, SweepBudgets
from udfs.rules import REGISTRY

Row = dict[str, Any]

RECOMMENDED, NOT_ENOUGH_DATA, NONE_FITS = "recommended", "not enough data", "none fits"
WITHIN, OPEN, OVER = "within", "open", "over"
"""Whether a figure is within its budget: certainly within it, not yet known, or certainly over it."""

EXACT: Final = 200
"""Up to this number of events, a Poisson interval is computed exactly. For more events, an approximation is used, which
is accurate to 1 in 10^5."""
NORMAL: Final = 1.959963984540054
"""97.5 % quantile of the normal distribution."""


def poisson_interval_of_mistakes(events: int) -> tuple[float, float]:
    """Return the ends of the exact 95 % interval for the mean of a Poisson variable, with 2.5 % in each tail.

    Above `EXACT` events, the cube root approximation of Wilson and Hilferty (1931) is used.

    Parameters
    ----------
    events : int
        The observed number of events.
    """
    if events > EXACT:
        low, high = (
            n * (1 - 1 / (9 * n) + z / (3 * math.sqrt(n))) ** 3 for n, z in ((events, -NORMAL), (events + 1, NORMAL))
        )
        return low, high
    return (_mean_where(events - 1, 0.975) if events else 0.0), _mean_where(events, 0.025)


def _mean_where(most: int, probability: float) -> float:
    """Return the mean of the Poisson distribution in which values up to ``most`` have this probability in total."""
    low, high = 0.0, 2.0 * most + 10
    while high - low > 1e-12 * high:
        mean = (low + high) / 2
        term = total = math.exp(-mean)
        for n in range(1, most + 1):
            term *= mean / n
            total += term
        low, high = (mean, high) if total > probability else (low, mean)
    return low


def with_mistake_rates(row: Row) -> Row:
    """Add to a row of scores the columns that only a sweep needs: mistakes per follower-day, their interval, and more.

    The 95 % interval begins at the lower start of two intervals, and ends at the higher end of the two. The Poisson
    interval assumes that shrinks are independent. The bootstrap interval, which the scores contain, accounts for
    bursts, but is unreliable with few shrinks.
    """
    days = row["exposure_follower_hours"] / 24
    partition_days = row["exposure_partition_hours"] / 24
    low, high = poisson_interval_of_mistakes(row["spurious"])
    low = min(low, row["mistakes_per_partition_day_low"] * partition_days)
    high = max(high, row["mistakes_per_partition_day_high"] * partition_days)
    judged = row["shrinks"] - row["excluded"]
    return row | {
        LAG_TIME: json.loads(row["params_json"])[LAG_TIME],
        "mistakes_per_follower_day": row["spurious"] / days if days else None,
        "mistakes_per_follower_day_low": low / days if days else None,
        "mistakes_per_follower_day_high": high / days if days else None,
        "never_removed": max(row["misses"] - (row["genuine"] - row["timely"]), 0),
        "unknown_share": row["unknown"] / judged if judged else None,
    }


def curve_of_advice(row: Row) -> tuple[str, str, str, str]:
    """Return a key that rows for different lag times share: cluster, topic class, rule, and the other parameters."""
    others = {name: value for name, value in json.loads(row["params_json"]).items() if name != LAG_TIME}
    return row["cluster_id"], row["topic_class"], row["rule"], json.dumps(others, sort_keys=True)


def lag_time_advice(rows: Sequence[Row], budgets: SweepBudgets) -> list[Row]:
    """Return a recommendation for each cluster, topic class, rule and set of other parameters.

    Parameters
    ----------
    rows : sequence of dict
        Rows of scores with the columns of `with_mistake_rates`, and with ``log_hours`` if the length of the cluster's
        log is known.
    budgets : SweepBudgets

    Returns
    -------
    list of dict
        Rows of ``sweep_advice`` without the sweep's name. Rules are in the order of their releases.
    """
    order = {rule: position for position, rule in enumerate(REGISTRY)}

    def sort_key(row: Row) -> tuple[Any, ...]:
        """Return the sort key of a row: cluster, topic class, rule by release, other parameters."""
        cluster, topic_class, rule, others = curve_of_advice(row)
        return cluster, topic_class, order[rule], others

    ordered = sorted(rows, key=lambda row: (*sort_key(row), row[LAG_TIME]))
    return [_answer(list(of_curve), budgets) for _, of_curve in groupby(ordered, sort_key)]


def _answer(rows: list[Row], budgets: SweepBudgets) -> Row:
    """Return the row of ``sweep_advice`` for rows that differ only in their lag time, and are sorted by it."""
    judged_rows = [(_mistakes_in_advice(row, budgets), _detection_in_advice(row, budgets), row) for row in rows]
    fitting = [row for mistakes, detection, row in judged_rows if mistakes == detection == WITHIN]
    undecided = [row for mistakes, detection, row in judged_rows if OVER not in {mistakes, detection}]
    if fitting:
        row = fitting[0]
        answer, why = RECOMMENDED, f"{_figures(row, budgets)}. {_next_smaller_advice(row, judged_rows, budgets)}"
    elif undecided:
        row = min(undecided, key=lambda row: (_needed_hours(row, budgets), row[LAG_TIME]))
        answer, why = NOT_ENOUGH_DATA, _needed_for_advice(row, budgets)
    else:
        row, why = _which_fails(judged_rows, budgets)
        answer = NONE_FITS
    cluster, topic_class, rule, others = curve_of_advice(row)
    return {
        "cluster_id": cluster,
        "topic_class": topic_class,
        "rule": rule,
        "other_params_json": others,
        "answer": answer,
        "recommended_lag_time_max_ms": row[LAG_TIME] if answer == RECOMMENDED else None,
        "why": why,
        "mistakes_per_follower_day_budget": budgets.mistakes_per_follower_day,
        "detection_ms_p99_budget": budgets.detection_ms_p99,
        "needed_follower_hours": _needed_hours(row, budgets),
        **{name: row[name] for name in FIGURES},
    }


FIGURES: Final = (
    LAG_TIME, "exposure_follower_hours", "spurious", "mistakes_per_follower_day", "mistakes_per_follower_day_low",
    "mistakes_per_follower_day_high", "genuine", "never_removed", "detection_ms_p99", "unknown_share",
)  # fmt: skip
"""Columns of ``sweep_advice`` that are copied from the scores at the chosen lag time."""


def _mistakes_in_advice(row: Row, budgets: SweepBudgets) -> str:
    """Return whether the mistakes at a lag time are `WITHIN` their budget, `OVER` it, or `OPEN`."""
    if row["mistakes_per_follower_day"] is None:
        return OPEN
    if row["mistakes_per_follower_day_high"] <= budgets.mistakes_per_follower_day:
        return WITHIN
    return OVER if row["mistakes_per_follower_day_low"] > budgets.mistakes_per_follower_day else OPEN


def _detection_in_advice(row: Row, budgets: SweepBudgets) -> str:
    """Return whether the detection time at a lag time is `WITHIN` its budget, `OVER` it, or `OPEN`."""
    failures = row["genuine"] + row["never_removed"]
    if not failures:
        return OPEN
    if row["never_removed"] * 100 > failures:  # more than 1 % never detected: the 99th percentile is infinite
        return OVER
    return WITHIN if row["detection_ms_p99"] <= budgets.detection_ms_p99 else OVER


def _needed_hours(row: Row, budgets: SweepBudgets) -> float:
    """Return how many follower-hours of log, without further mistakes, would bring mistakes within their budget."""
    high = row["mistakes_per_follower_day_high"]
    mistakes = poisson_interval_of_mistakes(0)[1] if high is None else high * row["exposure_follower_hours"] / 24
    return float(mistakes / budgets.mistakes_per_follower_day * 24)


def _figures(row: Row, budgets: SweepBudgets) -> str:
    """Describe the mistakes and the detection time at a lag time, with their budgets."""
    unknown = row["unknown_share"]
    judged = f"; {unknown:.0%} of its shrinks cannot be judged" if unknown else ""
    return f"{_mistake_figures(row, budgets)}; {_detection_figures(row, budgets)}{judged}"


def _mistake_figures(row: Row, budgets: SweepBudgets) -> str:
    """Describe the mistakes at a lag time, with their budget."""
    rate = row["mistakes_per_follower_day"]
    if rate is None:
        return "no time in which its decisions are scored"
    least, most = (three_digits(row[f"mistakes_per_follower_day_{end}"]) for end in ("low", "high"))
    return (
        f"{count_of(row['spurious'], 'mistake')} in {rounded(row['exposure_follower_hours'])} follower-hours, "
        f"{least} to {most} per follower-day (budget {budgets.mistakes_per_follower_day:g})"
    )


def _detection_figures(row: Row, budgets: SweepBudgets) -> str:
    """Describe the detection time at a lag time, with its budget."""
    if not row["genuine"] + row["never_removed"]:
        return "no failure to detect"
    never = f", {row['never_removed']:,} never" if row["never_removed"] else ""
    if not row["genuine"]:
        return f"of {count_of(row['never_removed'], 'failure')} none detected"
    return (
        f"{count_of(row['genuine'], 'failure')} detected, 99 % within {row['detection_ms_p99']:,.0f} ms "
        f"(budget {budgets.detection_ms_p99:,.0f}){never}"
    )


def _next_smaller_advice(row: Row, judged_rows: Sequence[tuple[str, str, Row]], budgets: SweepBudgets) -> str:
    """Describe why the next smaller lag time is not recommended. ``judged_rows`` are as for `_which_fails`."""
    smaller = [entry for entry in judged_rows if entry[2][LAG_TIME] < row[LAG_TIME]]
    if not smaller:
        return "No smaller one was tried"
    mistakes, _, other = smaller[-1]
    figures = _mistake_figures if mistakes != WITHIN else _detection_figures
    return f"At {other[LAG_TIME]:,} ms: {figures(other, budgets)}"


def _needed_for_advice(row: Row, budgets: SweepBudgets) -> str:
    """Describe how much more log is needed to decide whether a lag time is within the budgets."""
    lacking = []
    if _mistakes_in_advice(row, budgets) == OPEN:
        lacking.append(
            f"{rounded(row['exposure_follower_hours'])} follower-hours seen, {_needed_hours(row, budgets):,.0f} needed"
            + _as_much_again(row, budgets)
            + (" without another mistake" if row["spurious"] else "")
        )
    if _detection_in_advice(row, budgets) == OPEN:
        lacking.append("no follower failed for long enough to be detected")
        return f"At {row[LAG_TIME]:,} ms: {'; '.join(lacking)}. So far: {_mistake_figures(row, budgets)}"
    return f"At {row[LAG_TIME]:,} ms: {'; '.join(lacking)}. So far: {_figures(row, budgets)}"


def _as_much_again(row: Row, budgets: SweepBudgets) -> str:
    """Describe how long the log would have to be: in hours or days, or else in multiples of this log."""
    seen, hours = row["exposure_follower_hours"], row.get("log_hours")
    if not seen:
        return ""
    times = _needed_hours(row, budgets) / seen
    return (
        f" ({hours_text(hours * times)} of a cluster of this size)" if hours else f" (a log {times:,.1f} times as long)"
    )


def _which_fails(judged_rows: Sequence[tuple[str, str, Row]], budgets: SweepBudgets) -> tuple[Row, str]:
    """Return the scores at the lag time that comes nearest to the budgets, and a text on which budgets are exceeded.

    ``judged_rows`` are tuples: judgement of the mistakes, judgement of the detection time, scores at a lag time.
    """
    fast = [row for _, detection, row in judged_rows if detection != OVER]
    calm = [row for mistakes, _, row in judged_rows if mistakes != OVER]
    parts, nearest = [], None
    if fast:
        nearest = min(fast, key=lambda row: (row["mistakes_per_follower_day"], row[LAG_TIME]))
        times = nearest["mistakes_per_follower_day"] / budgets.mistakes_per_follower_day
        parts.append(
            f"Mistakes are over their budget wherever detection is not: {times:,.1f} times at {nearest[LAG_TIME]:,} ms "
            f"({_mistake_figures(nearest, budgets)})"
        )
    if calm or not fast:
        slow = min(calm or [row for _, _, row in judged_rows], key=_slowness_in_advice)
        nearest = nearest or slow
        parts.append(f"Detection is over its budget at {slow[LAG_TIME]:,} ms ({_detection_figures(slow, budgets)})")
    assert nearest is not None
    return nearest, ". ".join(parts)


def _slowness_in_advice(row: Row) -> tuple[float, float]:
    """Return the sort key for detection: share of failures that were never detected, and then detection time."""
    return row["never_removed"] / max(row["genuine"] + row["never_removed"], 1), row["detection_ms_p99"] or math.inf
