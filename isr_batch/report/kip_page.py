"""Write a Markdown page that compares two rules, for the discussion of a Kafka improvement proposal (KIP)."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final

from isr_batch import __version__
from isr_batch.errors import UsageError
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.scores import EXPERIMENT_RESULTS
from isr_batch.phrases import count_of, listed
from isr_batch.scoring.broker_pairs import Floats, figure_of_draws, figures_of_pairs, sums_of_broker_pairs
from isr_batch.scoring.disagreements import compare_rules
from isr_batch.scoring.scores import rules_side_by_side
from udfs.kernel.causes import CAUSES
from udfs.rules import REGISTRY, RULE_FILE, module_of

Row = dict[str, Any]

_FIGURES: Final = {
    "exposure_partition_hours": "partition-hours replayed",
    "shrinks": "shrinks",
    "spurious": "mistakes: spurious shrinks (by blame)",
    "early": "early mistakes: the follower had died",
    "mistakes_per_partition_day": "mistakes per partition-day",
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
    "refused_or_stalled_seconds": "seconds under min.insync.replicas or with a stalled high watermark",
    "acks_all_waits_1s_seconds": "seconds in which an acks=all request would wait for over 1 s",
    "acks_all_waits_30s_seconds": "seconds in which an acks=all request would wait for over 30 s",
    "acks_all_latency_ms_p50": "acks=all latency over requests, ms, median",
    "acks_all_latency_ms_p99": "acks=all latency over requests, ms, 99th percentile",
    "acks_all_wait_ms_p50": "acks=all latency over time, ms, median (0: up to 1 s)",
    "acks_all_wait_ms_p99": "acks=all latency over time, ms, 99th percentile (0: up to 1 s)",
    "acks_all_wait_ms_mean": "acks=all latency over time, ms, mean (waits of up to 1 s as 0)",
    "refused_appends": "appends with acks=all refused",
    "never_acknowledged": "appends with acks=all never acknowledged",
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
"""Numbers below this are shown with four significant digits, all others as whole numbers."""
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
    "under_min_isr_us": "seconds under min.insync.replicas per partition-hour",
    "high_watermark_stalled_us": "seconds with a stalled high watermark per partition-hour",
    "refused_or_stalled_us": "seconds with one of these or both per partition-hour",
    "unavailable_1s_us": "unavailable: seconds per partition-hour in which acks=all is refused or waits over 1 s",
    "unavailable_30s_us": "the same for over 30 s, the default of request.timeout.ms",
    "refused_appends": "appends with acks=all refused",
    "never_acknowledged": "appends with acks=all never acknowledged",
    "isr_writes": "ISR writes per partition-hour",
}
_COUNTS: Final = (
    "spurious", "within_lag", "early", "genuine", "unknown", "misses", "refused_appends", "never_acknowledged",
)  # fmt: skip
_STORY: Final = {
    "scenario": "story",
    "rule": "rule",
    "lag_time_s": "T, s",
    "shrinks": "shrinks",
    "spurious": "mistakes (by blame)",
    "misses": "misses",
    "leader_alone_seconds": "leader alone, s",
    "under_min_isr_seconds": "under min.insync.replicas, s",
    "high_watermark_stalled_seconds": "high watermark stalled, s",
    "refused_or_stalled_seconds": "one of these two or both, s",
    "acks_all_waits_1s_seconds": "acks=all would wait over 1 s, s",
    "refused_appends": "appends refused",
    "never_acknowledged": "appends never acknowledged",
    "acks_all_latency_ms_p99": "acks=all latency over requests, 99th percentile, ms",
    "acks_all_wait_ms_p99": "acks=all latency over time, 99th percentile, ms",
    "lost_by_first_active_records_max": "acknowledged records that an unclean election could lose",
    "isr_changes": "ISR changes",
}
_READ: Final = (*(name for name in _STORY if name != "lag_time_s"), "params_json", "seed", "simulated_hours")
_HEAD: Final = """
Made by isr-batch {version}: `{command}`. T is the lag time, `replica.lag.time.max.ms`.
"""
_READ_AS: Final = """
How the text of {rules} was read, where it can be read in more than one way: `docs/readings-of-proposals.md` of
isr-batch.
"""
_NO_FLEETS: Final = """
Clusters with random faults are not simulated for this page; `docs/study.md` of isr-batch has them, under all rules.
"""
_SAYS: Final = """
A shrink is a *mistake* if the follower should have stayed. *By lag*, a follower belongs in the ISR while its true lag,
the age of the oldest record that it lacks, is at most T; *by blame*, while its delay is not its own fault. So dropping
the follower of a slow leader can be right by lag and is a mistake by blame. Dropping a stopped follower that lacks only
young records is right by blame and a mistake by lag.

- A *miss* is a failed follower left in the ISR: its true lag exceeds 1.5 T, for a reason that would make its shrink
  genuine. It is counted once until the follower is within T again. Since 0.10.2 Kafka checks every T/2, so a
  follower may stay until 1.5 T by design (before, every T).
- The high watermark is *stalled* while it is below the log end. That includes the round trip of each fetch, so a
  healthy cluster has such time as well, and only differences between rules say something.
- *Unavailable* is the time in which a request with acks=all is refused, or would wait for more than 1 s, whether a
  producer sends one or not. So it does not depend on how many requests there are, and a healthy cluster has none.
- *Detection* is the true lag at genuine shrinks. It may be below T, because Kafka counts from when the follower was
  last caught up, not from the oldest record that it lacks. It is given for each T, because a mean over several T would
  show how many shrinks each T has. Each rule's mean is over its own genuine shrinks, so it may differ although no
  failure is found later, because one rule makes fewer of them.
- An *append* is what a produce request has for one partition. Latencies are counted in buckets no wider than a
  sixteenth of the latency, so a percentile of them is exact to about 6 %.
- The latency *over requests* is that of the requests in the logs; *over time*, how long a request would wait at any
  instant, whether a producer sends one or not. Producers that wait send nothing, so a stall of a minute may be one
  request in a million. Over time, waits of up to 1 s are included as 0, because logs do not show how long a
  fetch would have waited for data. Requests that are refused, or unanswered when the leader changes, are not included.
"""
_INTERVALS: Final = """
Brackets are 95 % intervals, by a bootstrap over the {leaders} leaders: the shrinks that a leader makes are drawn
together, because they come in bursts. Both rules are computed from the same draws. With few leaders, brackets are too
narrow. A bracket [0, 0] only says that these logs have none. The table has {figures} figures, which mostly depend on
each other, and no bracket is adjusted for that: if nothing differed, about one in twenty independent brackets would
still exclude 0. If this pair was chosen because it stood out among many rules, the brackets are too narrow as well.
"""
_PARTED: Final = """
Numbers of shrinks, by primary cause: the first that applies of caught_up (the follower really had every record, but the
leader had not handled the fetch that shows it), keeping_pace (alive, and within T by lag), slow_leader and unacked_only
(alive, and lacks nothing acknowledged), which are mistakes by blame, then follower_stopped and follower_slow, which are
genuine. Shrinks of one follower by both rules are one event if at most T lies between them. A rule that does not make a
shrink may make it more than T later, or may have dropped the follower before; it need not be a miss.
"""
_SIMULATED: Final = """
The simulated leader applies the rule, and producers and followers react to it. `docs/stories.md` of isr-batch describes
the stories. Each is one run (seed {seeds}), without an interval. Times and counts are sums over its partitions. The
story `kafka-7152-idle-churn` begins with the leader alone in the ISR of 2,000 partitions.
"""
_ALL: Final = """
A dash means that a figure does not apply, or is not known from the logs.
"""
_LIMITS: Final = """
The replay is open-loop: fetches and appends stay as recorded while the rule changes, so it shows the first step only.
The stories show how producers and followers react. Latencies are over appends: a producer that waits sends none. The
unavailable time does not have this fault; it leaves out followers outside the ISR for which the high watermark waits.
Rates hold for these logs, with the faults that are in them, and for no others.
"""


def kip_page(lakes: Sequence[Lake], old: str, new: str, stories: Sequence[Row] = (), command: str = "kip") -> str:
    """Return the Markdown page that compares two rules.

    Parameters
    ----------
    lakes : sequence of Lake
        Lakes in which both rules were replayed.
    old, new : str
        Names of the rules.
    stories : sequence of dict
        Rows of table ``experiment_results``. Rows of other rules are ignored.
    command : str
        The command that wrote the page, which the page shows at its top.

    Raises
    ------
    UsageError
        If a name is not a rule, both are the same, or a rule was replayed twice with one lag time.
    NoInputError
        If a rule was not replayed in one of the lakes.
    """
    causes = [compare_rules(lake, old, new) for lake in lakes]
    page = [
        f"# {old} and {new}",
        "",
        *(f"- `{rule}`{_released(rule)}: {REGISTRY[rule].summary}" for rule in (old, new)),
    ]
    given = Path(os.environ.get(RULE_FILE, "")).stem  # readings-of-proposals.md does not describe a user's own rule
    if proposed := [r for r in (old, new) if REGISTRY[r].kind == "proposed" and module_of(r) != given]:
        page.append(_READ_AS.format(rules=" and ".join(f"`{rule}`" for rule in proposed)))
    page += [_HEAD.format(version=__version__, command=command)]
    shown = sorted((row for row in stories if row["rule"] in {old, new}), key=lambda row: _order(row, old))
    page += [*_measured(lakes, shown), "", "## What they do on recorded fetches", _SAYS, *_differences(lakes, old, new)]
    page += ["", "## Where they differ", _PARTED]
    columns = {"cause": "cause", "only_a": f"only {old}", "only_b": f"only {new}"}
    columns |= {"both_by_a": f"both, by cause under {old}", "both_by_b": f"both, by cause under {new}"}
    page += _titled(columns, _added(causes))
    if shown:
        page += ["", "## What they do in simulated clusters"]
        page += [_SIMULATED.format(seeds=listed(sorted({row["seed"] for row in shown})))]
        page += _titled(_STORY, [row | {"lag_time_s": _lag_time(row) / 1000} for row in shown])
    for lake in lakes:
        runs = [row for row in rules_side_by_side(lake) if row["rule"] in {old, new}]
        runs.sort(key=lambda row: (row["T"], json.loads(row["params_json"])["min_insync_replicas"], row["rule"] != old))
        title = f"## All figures{f' of {Path(lake.root).name}' if len(lakes) > 1 else ''}"
        page += ["", title, _ALL, *_figures(runs)]
    return "\n".join([*page, "", "## Limits", _LIMITS])


def _released(rule: str) -> str:
    """Name the Kafka releases that use a rule, and the parameters that select its variants; empty for a proposal."""
    if REGISTRY[rule].kind != "released":
        return ""
    params = "".join(f"; `{name}` = {param.says}" for name, param in REGISTRY[rule].params.items() if param.choices)
    return f" (Kafka {REGISTRY[rule].in_force}{params})"


def stories_in(lake: Lake) -> list[Row]:
    """Read from a lake the results of its experiments, which are called stories on the page."""
    rows: list[Row] = read_columns(lake, EXPERIMENT_RESULTS.name, _READ).to_pylist()
    return rows


def _order(row: Row, old: str) -> tuple[object, ...]:
    """Return the sort key of a story: scenario, seed, then the old rule before the new one."""
    return row["scenario"], row["seed"], row["rule"] != old


def _lag_time(row: Row) -> int:
    return int(json.loads(row["params_json"])["replica_lag_time_max_ms"])


def _measured(lakes: Sequence[Lake], stories: Sequence[Row]) -> list[str]:
    """List the recorded clusters and the simulated stories on which the rules were measured."""
    clusters = [row for lake in lakes for row in _clusters(lake)]
    hours = {row["scenario"]: row["simulated_hours"] for row in stories}
    simulated = f"{count_of(len(hours), 'story').replace('storys', 'stories')} with the rule in the loop"
    runs = ", ".join(f"`{name}` ({count:g} h)" for name, count in hours.items())
    return [
        "Measured:", "",
        *(f"- recorded cluster {row}" for row in clusters),
        *([f"- simulated: {simulated}: {runs}"] if hours else []),
        _NO_FLEETS,
    ]  # fmt: skip


def _clusters(lake: Lake) -> list[str]:
    """Describe each recorded cluster of a lake: name, release, lag time, and number of partitions."""
    names = ("cluster_id", "broker_version", "replica_lag_time_max_ms", "topic", "partition_id")
    terms = read_columns(lake, "leader_epochs", (*names, "start_time"))
    found: dict[tuple[Any, ...], set[tuple[Any, ...]]] = {}
    for row in terms.to_pylist():
        key = tuple(row[name] for name in names[:3])
        found.setdefault(key, set()).add((row["topic"], row["partition_id"]))
    return [
        f"`{cluster}`: Kafka {release or 'of unknown release'}, T = {lag_ms / 1000:g} s, "
        f"{count_of(len(partitions), 'partition')}"
        for (cluster, release, lag_ms), partitions in sorted(found.items(), key=str)
    ]


def _differences(lakes: Sequence[Lake], old: str, new: str) -> list[str]:
    """Return the table that compares the rules ``old`` and ``new`` over all clusters, and an explanation above it."""
    found = {rule: dict(_pairs(lakes, rule)) for rule in (old, new)}
    both = sorted(found[old].keys() & found[new].keys())

    def of_lag_time(lag_ms: int | None) -> dict[str, dict[str, Floats]]:
        """Compute the figures of both rules at one lag time or, for None, over all lag times."""
        keys = [key for key in both if lag_ms in {None, key[0]}]
        return {rule: figures_of_pairs([found[rule][key] for key in keys]) for rule in (old, new)}

    figures = of_lag_time(None)
    compared = [(title, figures, name) for name, title in _PAIRED.items()]
    compared += [
        (f"detection, s, mean, T = {lag_ms / 1000:g} s", of_lag_time(lag_ms), "detection_s")
        for lag_ms in sorted({key[0] for key in both})
    ]
    rows = []
    for title, each, name in compared:
        by_rule = {rule: _interval(each[rule][name], whole=name in _COUNTS) for rule in (old, new)}
        difference = _interval(each[new][name] - each[old][name], whole=name in _COUNTS, sign="+")
        rows.append({"figure": title} | by_rule | {"difference": difference})
    said = _INTERVALS.format(leaders=len({(*key[1:3], key[4]) for key in both}), figures=len(rows))
    hours = figures[old]["exposure_us"][0] / 3.6e9
    return [f"{hours:,.1f} partition-hours were replayed.", said, *markdown_table(rows[0], rows)]


def _pairs(lakes: Sequence[Lake], rule: str) -> Iterator[tuple[tuple[Any, ...], Row]]:
    """Yield the key and the counts of each row of `sums_of_broker_pairs` that belongs to a rule, over all lakes.

    The key is lag time (ms), index of the lake, cluster, day, leader, follower, and min.insync.replicas.

    Raises
    ------
    UsageError
        If a lake contains two replays of the rule with the same lag time.
    """
    names = ("cluster_id", "event_date", "leader_id", "replica_id")
    for number, lake in enumerate(lakes):
        seen = set()
        for row in sums_of_broker_pairs(lake).to_pylist():
            if row["rule"] != rule:
                continue
            # The same broker pair has several rows if its topics differ in min.insync.replicas.
            min_isr = json.loads(row["params_json"])["min_insync_replicas"]
            key = (_lag_time(row), number, *(row[name] for name in names), min_isr)
            if key in seen:
                raise UsageError(
                    f"{lake.root} has two replays of {rule} with a lag time of {key[0]} ms",
                    "compare lakes with one parameter set of each rule",
                )
            seen.add(key)
            # Clusters in different lakes may have the same name.
            yield key, row | {"cluster_id": f"{number}/{row['cluster_id']}"}


def _interval(values: Floats, *, whole: bool, sign: str = "") -> str:
    """Format a figure with its 95 % interval, such as "12 [10, 15]", or as "-" if the figure is undefined.

    ``values`` are the figure and its values in the draws. If ``whole`` is true, no decimals are shown. ``sign`` is the
    sign option of Python's format.
    """
    figure = figure_of_draws(values)
    if not isfinite(figure.value):
        return "-"
    digits = ",.0f" if whole or abs(figure.value) >= EXACT else ",.4g"
    value, low, high = (f"{number:{sign}{digits}}" for number in (figure.value, figure.low, figure.high))
    return f"{value} [{low}, {high}]"


def _added(causes: Sequence[Sequence[Row]]) -> list[Row]:
    """Add up the numbers of shrinks of several lakes by cause. Causes without any shrink are left out."""
    names = [name for name in causes[0][0] if name != "cause"]
    added = {
        cause: {name: sum(row[name] for rows in causes for row in rows if row["cause"] == cause) for name in names}
        for cause in (*CAUSES, "total")
    }
    return [{"cause": cause} | row for cause, row in added.items() if cause == "total" or any(row.values())]


def _figures(runs: Sequence[Row]) -> list[str]:
    """Return the lines of the table that shows all figures (rows) of the rule runs (columns)."""
    columns = [f"{row['rule']}, {_params_on_kip_page(row['params_json'])}" for row in runs]
    rows = [
        {"figure": title} | {column: row[name] for column, row in zip(columns, runs, strict=True)}
        for name, title in _FIGURES.items()
    ]
    return markdown_table(("figure", *columns), rows)


def _params_on_kip_page(params_json: str) -> str:
    """Format the parameters of a rule run, with ``T`` for the lag time and Kafka's name for min.insync.replicas."""
    params = json.loads(params_json)
    lag_ms, min_isr = params.pop("replica_lag_time_max_ms"), params.pop("min_insync_replicas")
    written = {"T": f"{lag_ms / 1000:g} s", "min.insync.replicas": min_isr, **params}
    return ", ".join(f"{name} = {value}" for name, value in written.items())


def _titled(columns: Mapping[str, str], rows: Iterable[Row]) -> list[str]:
    """Return the lines of a Markdown table. ``columns`` maps the keys of the rows to show to their headings."""
    return markdown_table(columns.values(), ({title: row[name] for name, title in columns.items()} for row in rows))


def markdown_table(columns: Iterable[str], rows: Iterable[Row]) -> list[str]:
    """Return the lines of a Markdown table: headings, a separator, and one line per row.

    Parameters
    ----------
    columns : iterable of str
        Headings, which are also the keys of the rows.
    rows : iterable of dict
    """
    names = list(columns)
    cells = [names, ["---"] * len(names), *([_cell_of_kip_page(row[name]) for name in names] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in cells]


def _cell_of_kip_page(value: object) -> str:
    """Format a value for a table cell: "-" for None, numbers as `EXACT` describes."""
    if value is None:
        return "-"
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < EXACT else f"{value:,.0f}"
