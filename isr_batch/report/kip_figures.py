"""The figures on the page that compares two rules, with the titles that the page gives them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.scores import EXPERIMENT_RESULTS
from isr_batch.phrases import count_of
from isr_batch.scoring.broker_pairs import figures_of_pairs

Row = dict[str, Any]
FoundPairs = Mapping[str, Mapping[tuple[Any, ...], Row]]
"""The counts of `sums_of_broker_pairs` of each rule, by cluster, pair of brokers and so on."""
_APART: Final = timedelta(seconds=1)

FIGURES: Final = {
    "exposure_partition_hours": "partition-hours replayed",
    "shrinks": "shrinks, with removals by the controller",
    "spurious": "mistakes: spurious shrinks (by blame)",
    "early": "early mistakes: the follower had stopped",
    "mistakes_per_partition_day": "mistakes per partition-day",
    "mistake_duration_ms_p50": "duration of a mistake, ms, median",
    "genuine": "genuine shrinks (by blame)",
    "unknown": "shrinks that cannot be judged",
    "excluded": "removals by the controller, which no rule decides",
    "misses": "misses: failures left in the ISR (by blame)",
    "precision": "precision by blame",
    "precision_by_lag": "precision by lag",
    "query_accuracy_by_blame": "time in which the rule is right, by blame, %",
    "query_accuracy": "time in which the rule is right, by lag, %",
    "detection_ms_p99": "detection, s, 99th percentile",
    "under_min_isr_seconds": "seconds under min.insync.replicas",
    "offline_if_leader_dies_seconds": "seconds without an heir (measured with a replica outside the ISR)",
    "high_watermark_stalled_seconds": "seconds with the high watermark below the log end",
    "refused_or_stalled_seconds": "seconds with one of these or both",
    "unavailable_1s_seconds": "unavailable: seconds in which acks=all is refused or waits over 1 s",
    "unavailable_30s_seconds": "seconds in which acks=all is refused, or waits over 30 s (request.timeout.ms)",
    "acks_all_latency_ms_p50": "acks=all latency over requests, ms, median",
    "acks_all_latency_ms_p99": "acks=all latency over requests, ms, 99th percentile",
    "acks_all_wait_ms_p50": "acks=all latency over time, ms, median (0: up to 1 s)",
    "acks_all_wait_ms_p99": "acks=all latency over time, ms, 99th percentile (0: up to 1 s)",
    "acks_all_wait_ms_mean": "acks=all latency over time, ms, mean (waits of up to 1 s as 0)",
    "refused_appends": "appends with acks=all refused",
    "never_acknowledged": "appends with acks=all never acknowledged",
    "loss_records_max": "records below the high watermark that an ISR member lacked, at most",
    "unclean_needed_seconds": "seconds without an heir in which an unclean election was possible",
    "lost_if_leader_dies_records_max": "records that the heir lacked under min.insync.replicas, at most",
    "lost_by_first_active_records_max": "records that the first active replica lacked without an heir, at most",
    "lost_by_longest_log_records_max": "records that the replica with the longest log lacked without an heir, at most",
    "high_watermark_frozen_seconds": "seconds in which a frozen high watermark hid records from consumers",
    "visibility_age_ms_max": "age of the oldest hidden record, ms, at most",
    "visibility_age_ms_mean": "age of the oldest hidden record, ms, mean",
    "metadata_writes": "ISR writes: changes of one partition's ISR by its leader",
    "isr_write_requests": "requests with these",
    "isr_write_requests_peak_per_second": "the same from one broker within a second, at most",
    "flaps": "shrinks and removals by the controller that were reverted within T",
}
PAIRED: Final = {
    "spurious": "mistakes: spurious shrinks (by blame)",
    "within_lag": "mistakes by lag: shrinks of a follower within the lag time",
    "early": "early mistakes: the follower had stopped",
    "genuine": "genuine shrinks (by blame)",
    "unknown": "shrinks that cannot be judged",
    "misses": "misses: failures left in the ISR (by blame)",
    "precision_by_blame": "precision by blame",
    "precision_by_lag": "precision by lag",
    "right_by_blame": "time in which the rule is right, by blame, %",
    "right_by_lag": "time in which the rule is right, by lag, %",
    "under_min_isr_us": "seconds under min.insync.replicas per partition-hour",
    "high_watermark_stalled_us": "seconds with the high watermark below the log end per partition-hour",
    "refused_or_stalled_us": "seconds with one of these or both per partition-hour",
    "unavailable_1s_us": "unavailable: seconds per partition-hour in which acks=all is refused or waits over 1 s",
    "unavailable_30s_us": "seconds per partition-hour in which acks=all is refused, or waits over 30 s "
    "(request.timeout.ms)",
    "refused_appends": "appends with acks=all refused",
    "never_acknowledged": "appends with acks=all never acknowledged",
    "isr_writes": "ISR writes per partition-hour",
}
SCALES: Final = {"query_accuracy": 100, "query_accuracy_by_blame": 100, "detection_ms_p99": 1e-3}
"""Factors from columns of a table to figures whose title names another unit."""
COUNTS: Final = (
    "spurious", "within_lag", "early", "genuine", "unknown", "misses", "refused_appends", "never_acknowledged",
)  # fmt: skip
STORY: Final = {
    "scenario": "story",
    "rule": "rule",
    "lag_time_s": "T, s",
    "min_insync_replicas": "min.insync.replicas",
    "shrinks": "shrinks",
    "spurious": "mistakes (by blame)",
    "misses": "misses",
    "leader_alone_seconds": "leader alone, s",
    "under_min_isr_seconds": "under min.insync.replicas, s",
    "high_watermark_stalled_seconds": "high watermark below the log end, s",
    "unavailable_1s_seconds": "unavailable (acks=all refused, or waits over 1 s), s",
    "refused_appends": "appends refused",
    "never_acknowledged": "appends never acknowledged",
    "acks_all_latency_ms_p99": "acks=all latency over requests, 99th percentile, ms",
    "acks_all_wait_ms_p99": "acks=all latency over time, 99th percentile, ms",
    "lost_by_first_active_records_max": "records that an unclean election could lose, at most",
    "isr_changes": "ISR changes",
}
NOTES: Final = {
    "kafka-7152-idle-churn": "`kafka-7152-idle-churn` begins with the leader alone in the ISR of 2,000 partitions.",
    "kafka-10853-cut-off": "`kafka-10853-cut-off` has no mistakes, although KAFKA-10853 calls these shrinks wrong: the "
    "leader's log is the same as if both followers had stopped.",
    "kip-501-example": "In `kip-501-example`, unlike in KIP-501's text, writes take 25 s too, and the request queue is "
    "never full.",
}
"""Remarks on the results of stories."""
_DERIVED: Final = ("lag_time_s", "min_insync_replicas", "unavailable_1s_seconds")
_READ: Final = (
    *(name for name in STORY if name not in _DERIVED), "acks_all_waits_1s_seconds", "acks_all_waits_30s_seconds",
    "params_json", "seed", "simulated_hours",
)  # fmt: skip


def stories_in(lake: Lake) -> list[Row]:
    """Read from a lake the results of its experiments, which are called stories on the page."""
    rows: list[Row] = read_columns(lake, EXPERIMENT_RESULTS.name, _READ).to_pylist()
    return rows


def with_derived(row: Row) -> Row:
    """Add lag time, min.insync.replicas, and the time in which a partition was unavailable for acks=all requests.

    It has fewer in-sync replicas than min.insync.replicas then, or such a request would wait too long (1 s or 30 s).
    """
    row = row | {"lag_time_s": lag_time_of(row) / 1000}
    row["min_insync_replicas"] = json.loads(row["params_json"])["min_insync_replicas"]
    for limit in ("1s", "30s"):
        waits = row[f"acks_all_waits_{limit}_seconds"]
        row[f"unavailable_{limit}_seconds"] = None if waits is None else row["under_min_isr_seconds"] + waits
    return row


def stories_by_outcome(stories: Sequence[Row]) -> tuple[list[str], list[Row]]:
    """Return the names of the stories whose results are equal under both rules, and the rows of the other stories."""
    outcomes: dict[str, dict[str, list[list[Any]]]] = {}
    for row in stories:
        result = [row["seed"], *(row[name] for name in STORY if name != "rule")]
        outcomes.setdefault(row["scenario"], {}).setdefault(row["rule"], []).append(result)
    equal = [
        name
        for name, of in outcomes.items()
        if len(of) > 1 and all(results == next(iter(of.values())) for results in of.values())
    ]
    return equal, [row for row in stories if row["scenario"] not in equal]


def in_short(found: FoundPairs, stories: Sequence[Row], old: str, new: str) -> str:
    """Say what changes from ``old`` to ``new``: mistakes, unavailability, and the time with the leader alone."""
    both = sorted(found[old].keys() & found[new].keys())
    of = {rule: figures_of_pairs([found[rule][key] for key in both]) for rule in (old, new)}
    mistakes, by_lag, unavailable = (
        " and ".join(f"{of[rule][name][0]:,.4g}".replace("nan", "unknown") for rule in (old, new))
        for name in ("spurious", "within_lag", "unavailable_1s_us")
    )
    said = (
        f"In short, under `{old}` and `{new}`: recorded fetches have {mistakes} mistakes by blame, {by_lag} by lag, "
        f"and {unavailable} seconds per partition-hour in which acks=all is refused or waits over 1 s, with the "
        "intervals below."
    )
    if not stories:
        return said
    alone = (sum(row["leader_alone_seconds"] for row in stories if row["rule"] == rule) for rule in (old, new))
    seconds = " and ".join(f"{s:,.0f}" for s in alone)
    return f"{said} In the stories that differ, the leader is alone in the ISR for {seconds} s."


def checks_with_mistakes(lakes: Sequence[Lake], old: str, new: str) -> str:
    """Say at how many checks, of how many leaders, each rule made its mistakes.

    Mistakes of a leader with at most 1 s between them are of one check.
    """
    said = []
    for rule in (old, new):
        checks, leaders = 0, 0
        for lake in lakes:
            names = ("cluster_id", "leader_id", "change_time", "rule", "verdict")
            made = [row for row in read_columns(lake, "shrink_verdicts", names).to_pylist() if row["rule"] == rule]
            at = sorted(tuple(row[name] for name in names[:3]) for row in made if row["verdict"] == "spurious")
            checks += sum(b[:2] != a[:2] or b[2] - a[2] > _APART for a, b in pairwise(at)) + bool(at)
            leaders += len({row[:2] for row in at})
        if checks:
            said.append(f"`{rule}` made its mistakes at {count_of(checks, 'check')} of {count_of(leaders, 'leader')}. ")
    return "".join(said)


def own_changes(lakes: Sequence[Lake], old: str, new: str) -> list[str]:
    """Say how many of the brokers' own ISR changes the replay of their rule makes too, if the lakes have the check."""
    names = ("rule", "status")
    rows = [row for lake in lakes for row in read_columns(lake, "replay_check", names).to_pylist()]
    of = Counter((row["rule"], row["status"]) for row in rows if row["rule"] in {old, new})
    return [
        f"The replay of `{rule}`, which the brokers ran, given the times of checks that they logged, "
        f"makes {of[rule, 'matched']:,} of the "
        f"{of[rule, 'matched'] + of[rule, 'missing']:,} ISR changes that they logged, "
        f"and {of[rule, 'extra']:,} others.\n"
        for rule in (old, new)
        if of[rule, "matched"] + of[rule, "missing"]
    ]


def lag_time_of(row: Row) -> int:
    """Return the lag time, in ms, of a row that has the parameters of a rule run."""
    return int(json.loads(row["params_json"])["replica_lag_time_max_ms"])
