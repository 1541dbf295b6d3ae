"""Write a Markdown page that compares two rules, for the discussion of a proposal."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.scores import EXPERIMENT_RESULTS
from isr_batch.scoring.disagreements import compare_rules
from isr_batch.scoring.scores import rules_side_by_side
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
"""Numbers below this are shown with fractions, to four digits."""
_STORY: Final = (
    "scenario", "rule", "seed", "shrinks", "spurious", "misses", "offline_if_leader_dies_seconds",
    "under_min_isr_seconds", "refused_appends", "never_acknowledged", "acks_all_latency_ms_p99", "isr_changes",
)  # fmt: skip
_SAYS: Final = """
*By lag*, a follower belongs in the ISR while it is not more than the lag time behind; *by blame*, while any delay is
not its own fault. The two differ where a leader is slow: its follower is behind, but is not to blame.
"""
_LIMITS: Final = """
The replay is open-loop: fetches and appends stay as recorded while the rule changes, so it shows the first step only.
The simulated clusters above, if there are any, show how producers and followers react. Latencies are over requests: a
producer that waits sends none. Rates hold for these logs, with the faults that are in them, and for no others.
"""


def kip_page(lake: Lake, old: str, new: str) -> str:
    """Write the page that compares an old and a new rule, as Markdown.

    Raises
    ------
    UsageError
        When a name is not a rule, or both are the same.
    NoInputError
        When the lake has no replay of a rule.
    """
    causes = compare_rules(lake, old, new)
    runs = [row for row in rules_side_by_side(lake) if row["rule"] in {old, new}]
    runs.sort(key=lambda row: (row["T"], row["rule"] != old))
    page = [f"# {old} and {new}", "", *(f"- `{rule}`: {REGISTRY[rule].summary}" for rule in (old, new))]
    page += ["", "## What they do on recorded fetches", _SAYS, *_figures(runs)]
    page += ["", "## Where they differ", "", f"Shrinks of a, `{old}`, and of b, `{new}`, by primary cause.", ""]
    page += markdown_table(causes[0], causes)
    stories = _stories(lake, (old, new))
    if stories:
        page += ["", "## What they do in simulated clusters", "", "With the rule in the loop.", ""]
        page += markdown_table(_STORY, stories)
    return "\n".join([*page, "", "## Limits", _LIMITS])


def _figures(runs: Sequence[Row]) -> list[str]:
    columns = [f"{row['rule']}, {_params(row['params_json'])}" for row in runs]
    rows = [
        {"figure": title} | {column: row[name] for column, row in zip(columns, runs, strict=True)}
        for name, title in _FIGURES.items()
    ]
    return markdown_table(("figure", *columns), rows)


def _params(params_json: str) -> str:
    return ", ".join(f"{name} {value}" for name, value in json.loads(params_json).items())


def _stories(lake: Lake, rules: Sequence[str]) -> list[Row]:
    rows = read_columns(lake, EXPERIMENT_RESULTS.name, _STORY).to_pylist()
    rows = [row for row in rows if row["rule"] in rules]
    return sorted(rows, key=lambda row: (row["scenario"], row["seed"], rules.index(row["rule"])))


def markdown_table(columns: Iterable[str], rows: Iterable[Row]) -> list[str]:
    """Return the lines of a Markdown table."""
    names = list(columns)
    cells = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in cells]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < EXACT else f"{value:,.0f}"
