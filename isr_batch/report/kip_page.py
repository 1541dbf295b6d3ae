"""Write a Markdown page that compares two rules, for the discussion of a proposal (KIP)."""

import json
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final

from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.scores import EXPERIMENT_RESULTS
from isr_batch.phrases import count_of
from isr_batch.scoring.broker_pairs import Floats, figure_of_draws, figures_of_pairs, sums_of_broker_pairs
from isr_batch.scoring.disagreements import compare_rules
from isr_batch.scoring.scores import rules_side_by_side
from udfs.kernel.causes import CAUSES
from udfs.rules import REGISTRY

Row = dict[str, Any]

_FIGURES: Final = {
    "exposure_partition_hours": "partition-hours replayed",
    "shrinks": "shrinks",
    "spurious": "mistakes: spurious shrinks (by blame)",
    "early": "early mistakes: the follower had died",
    "mistakes_per_partition_day": "mistakes per partition-day",
    "mistakes_per_partition_day_low": "mistakes per partition-day, lower end of the 95 % interval",
    "mistakes_per_partition_day_high": "mistakes per partition-day, upper end of the interval",
    "mistake_duration_ms_p50": "duration of a mistake, ms, median",
    "genuine": "genuine shrinks (by blame)",
    "unknown": "shrinks that cannot be judged",
    "excluded": "removals by the controller, which no rule decides",
    "misses": "misses: failures left in the ISR (by blame)",
    "precision": "precision by blame",
    "precision_by_lag": "precision by lag",
    "query_accuracy": "share of time in which the rule is right, by lag",
    "query_accuracy_by_blame": "share of time in which the rule is right, by blame",
    "detection_ms_p50": "detection, ms, median",
    "detection_ms_p99": "detection, ms, 99th percentile",
    "under_min_isr_seconds": "seconds under min.insync.replicas",
    "offline_if_leader_dies_seconds": "seconds without an heir",
    "high_watermark_stalled_seconds": "seconds with a stalled high watermark",
    "acks_all_latency_ms_p50": "acks=all latency, ms, median, over requests",
    "acks_all_latency_ms_p99": "acks=all latency, ms, 99th percentile, over requests",
    "refused_appends": "acks=all requests refused",
    "never_acknowledged": "acks=all requests never acknowledged",
    "loss_records_max": "acknowledged records that a clean election could lose, at most",
    "unclean_needed_seconds": "seconds without an heir in which an unclean election was possible",
    "lost_if_leader_dies_records_max": "records that the heir lacked under min.insync.replicas, at most",
    "lost_by_first_active_records_max": "records that the first active replica lacked without an heir, at most",
    "lost_by_longest_log_records_max": "records that the replica with the longest log lacked without an heir, at most",
    "high_watermark_frozen_seconds": "seconds in which a frozen high watermark hid records from consumers",
    "visibility_age_ms_max": "age of the oldest hidden record, ms, at most",
    "visibility_age_ms_mean": "age of the oldest hidden record, ms, mean",
    "metadata_writes": "ISR writes",
    "isr_write_requests": "ISR write requests",
    "isr_write_requests_peak_per_second": "ISR write requests of one broker within a second, at most",
    "flaps": "shrinks reverted within the lag time",
}
EXACT: Final = 1000
"""Figures below this are shown with four significant digits, larger ones as whole numbers."""
_PAIRED: Final = {
    "spurious": "mistakes: spurious shrinks (by blame)",
    "within_lag": "mistakes by lag: shrinks of a follower within the lag time",
    "early": "early mistakes: the follower had died",
    "genuine": "genuine shrinks (by blame)",
    "unknown": "shrinks that cannot be judged",
    "misses": "misses: failures left in the ISR (by blame)",
    "precision_by_blame": "precision by blame",
    "precision_by_lag": "precision by lag",
    "right_by_blame": "share of time in which the rule is right, by blame",
    "right_by_lag": "share of time in which the rule is right, by lag",
    "detection_s": "detection, s, mean",
    "under_min_isr_us": "seconds under min.insync.replicas per partition-hour",
    "high_watermark_stalled_us": "seconds with a stalled high watermark per partition-hour",
    "refused_appends": "acks=all requests refused",
    "never_acknowledged": "acks=all requests never acknowledged",
    "isr_writes": "ISR writes per partition-hour",
}
_STORY: Final = (
    "scenario", "rule", "seed", "shrinks", "spurious", "misses", "offline_if_leader_dies_seconds",
    "under_min_isr_seconds", "high_watermark_stalled_seconds", "refused_appends", "never_acknowledged",
    "acks_all_latency_ms_p99", "isr_changes",
)  # fmt: skip
_SAYS: Final = """
*By lag*, a follower belongs in the ISR while it is not more than the lag time behind; *by blame*, while any delay is
not its own fault. The two differ where a leader is slow: its follower is behind, but is not to blame.
"""
_INTERVALS: Final = """
{clusters}, {hours:,.1f} partition-hours. Brackets are 95 % intervals, by a bootstrap over the {leaders} leaders: the
shrinks that a leader makes are drawn together, because they come in bursts. Both rules are computed from the same
draws. With few leaders, brackets are too narrow. A bracket [0, 0] only says that these logs have none.
Detection is the true lag at genuine shrinks, over all lag times.
"""
_LIMITS: Final = """
The replay is open-loop: fetches and appends stay as recorded while the rule changes, so it shows the first step only.
The simulated clusters show how producers and followers react; each story is one run, without an interval. Latencies
are over requests: a producer that waits sends none. Rates hold for these logs, with the faults that are in them, and
for no others.
"""


def kip_page(lakes: Sequence[Lake], old: str, new: str, stories: Sequence[Row] = ()) -> str:
    """Return the Markdown page that compares two rules.

    Parameters
    ----------
    lakes : sequence of Lake
        Lakes with a replay of both rules.
    old, new : str
        Names of the rules.
    stories : sequence of dict
        Rows of ``experiment_results``. Rows of other rules are ignored.

    Raises
    ------
    UsageError
        When a name is not that of a rule, or both are the same.
    NoInputError
        When a lake has no replay of a rule.
    """
    causes = [compare_rules(lake, old, new) for lake in lakes]
    page = [f"# {old} and {new}", "", *(f"- `{rule}`: {REGISTRY[rule].summary}" for rule in (old, new))]
    page += ["", "## What they do on recorded fetches", _SAYS, *_differences(lakes, old, new)]
    page += ["", "## Where they differ", "", f"Shrinks of a, `{old}`, and of b, `{new}`, by primary cause.", ""]
    page += markdown_table(causes[0][0], _added(causes))
    shown = sorted((row for row in stories if row["rule"] in {old, new}), key=lambda row: _order(row, old))
    if shown:
        page += ["", "## What they do in simulated clusters", "", "With the rule in the loop.", ""]
        page += markdown_table(_STORY, shown)
    for lake in lakes:
        runs = [row for row in rules_side_by_side(lake) if row["rule"] in {old, new}]
        runs.sort(key=lambda row: (row["T"], row["rule"] != old))
        page += ["", f"## All figures{f' of {Path(lake.root).name}' if len(lakes) > 1 else ''}", "", *_figures(runs)]
    return "\n".join([*page, "", "## Limits", _LIMITS])


def stories_in(lake: Lake) -> list[Row]:
    """Read the results of the experiments in a lake."""
    rows: list[Row] = read_columns(lake, EXPERIMENT_RESULTS.name, _STORY).to_pylist()
    return rows


def _order(row: Row, old: str) -> tuple[object, ...]:
    """Return a sort key for results of experiments: scenario, seed, then the old rule first."""
    return row["scenario"], row["seed"], row["rule"] != old


def _differences(lakes: Sequence[Lake], old: str, new: str) -> list[str]:
    """Return lines that compare the figures of both rules over all clusters, with 95 % intervals."""
    names = ("cluster_id", "event_date", "leader_id", "replica_id")
    found: dict[str, dict[tuple[object, ...], Row]] = {old: {}, new: {}}
    for number, lake in enumerate(lakes):
        for row in sums_of_broker_pairs(lake).to_pylist():
            if row["rule"] in found:
                place = {"cluster_id": f"{number}/{row['cluster_id']}"}  # two lakes may have clusters of one name
                found[row["rule"]][number, *(row[name] for name in names)] = row | place
    both = sorted(found[old].keys() & found[new].keys())
    figures = {rule: figures_of_pairs([found[rule][pair] for pair in both]) for rule in (old, new)}
    rows = [
        {"figure": title, old: _interval(figures[old][name]), new: _interval(figures[new][name])}
        | {"difference": _interval(figures[new][name] - figures[old][name], sign="+")}
        for name, title in _PAIRED.items()
    ]
    said = _INTERVALS.format(
        clusters=count_of(len({pair[:2] for pair in both}), "cluster"),
        leaders=len({(*pair[:2], pair[3]) for pair in both}),
        hours=figures[old]["exposure_us"][0] / 3.6e9,
    )  # fmt: skip
    return [said, *markdown_table(rows[0], rows)]


def _interval(values: Floats, sign: str = "") -> str:
    """Return a figure with its interval as text."""
    figure = figure_of_draws(values)
    if not isfinite(figure.value):
        return "-"
    value, low, high = (
        f"{number:{sign},.4g}" if abs(number) < EXACT else f"{number:{sign},.0f}"
        for number in (figure.value, figure.low, figure.high)
    )
    return f"{value} [{low}, {high}]"


def _added(causes: Sequence[Sequence[Row]]) -> list[Row]:
    """Sum the shrinks in several lakes by cause."""
    names = [name for name in causes[0][0] if name != "cause"]
    added = {
        cause: {name: sum(row[name] for rows in causes for row in rows if row["cause"] == cause) for name in names}
        for cause in (*CAUSES, "total")
    }
    return [{"cause": cause} | row for cause, row in added.items() if cause == "total" or any(row.values())]


def _figures(runs: Sequence[Row]) -> list[str]:
    """Return the table with all figures of the rule runs."""
    columns = [f"{row['rule']}, {_params_on_kip_page(row['params_json'])}" for row in runs]
    rows = [
        {"figure": title} | {column: row[name] for column, row in zip(columns, runs, strict=True)}
        for name, title in _FIGURES.items()
    ]
    return markdown_table(("figure", *columns), rows)


def _params_on_kip_page(params_json: str) -> str:
    """Return the parameters of a rule run as text."""
    return ", ".join(f"{name} {value}" for name, value in json.loads(params_json).items())


def markdown_table(columns: Iterable[str], rows: Iterable[Row]) -> list[str]:
    """Return the lines of a Markdown table."""
    names = list(columns)
    cells = [names, ["---"] * len(names), *([_cell_of_kip_page(row[name]) for name in names] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in cells]


def _cell_of_kip_page(value: object) -> str:
    """Return a value as text for a table cell."""
    if value is None:
        return "-"
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < EXACT else f"{value:,.0f}"
