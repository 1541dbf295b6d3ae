"""The figures on the page that compares two rules, with the titles that the page gives them."""

import json
from typing import Any, Final

from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.scores import EXPERIMENT_RESULTS

Row = dict[str, Any]

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
    "query_accuracy": "share of time in which the rule is right, by lag",
    "query_accuracy_by_blame": "share of time in which the rule is right, by blame",
    "detection_ms_p50": "detection, ms, median",
    "detection_ms_p99": "detection, ms, 99th percentile",
    "under_min_isr_seconds": "seconds under min.insync.replicas",
    "offline_if_leader_dies_seconds": "seconds without an heir",
    "high_watermark_stalled_seconds": "seconds with the high watermark below the log end",
    "refused_or_stalled_seconds": "seconds with one of these or both",
    "unavailable_1s_seconds": "unavailable: seconds in which acks=all is refused or waits over 1 s",
    "unavailable_30s_seconds": "the same for over 30 s, the default of request.timeout.ms",
    "acks_all_latency_ms_p50": "acks=all latency over requests, ms, median",
    "acks_all_latency_ms_p99": "acks=all latency over requests, ms, 99th percentile",
    "acks_all_wait_ms_p50": "acks=all latency over time, ms, median (0: up to 1 s)",
    "acks_all_wait_ms_p99": "acks=all latency over time, ms, 99th percentile (0: up to 1 s)",
    "acks_all_wait_ms_mean": "acks=all latency over time, ms, mean (waits of up to 1 s as 0)",
    "refused_appends": "appends with acks=all refused",
    "never_acknowledged": "appends with acks=all never acknowledged",
    "loss_records_max": "records below the high watermark that an ISR member lacked, at most",
    "unclean_needed_seconds": "seconds without an heir in which an unclean election was possible",
    "lost_if_leader_dies_records_max": "records that the heir lacked, at most",
    "lost_by_first_active_records_max": "records that the first active replica lacked without an heir, at most",
    "lost_by_longest_log_records_max": "records that the replica with the longest log lacked without an heir, at most",
    "high_watermark_frozen_seconds": "seconds in which a frozen high watermark hid records from consumers",
    "visibility_age_ms_max": "age of the oldest hidden record, ms, at most",
    "visibility_age_ms_mean": "age of the oldest hidden record, ms, mean",
    "metadata_writes": "ISR writes: changes of one partition's ISR by its leader",
    "isr_write_requests": "requests with these (AlterPartition; before 2.7 each is a write to ZooKeeper)",
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
    "unavailable_30s_us": "the same for over 30 s, the default of request.timeout.ms",
    "refused_appends": "appends with acks=all refused",
    "never_acknowledged": "appends with acks=all never acknowledged",
    "isr_writes": "ISR writes per partition-hour",
}
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


def lag_time_of(row: Row) -> int:
    """Return the lag time, in ms, of a row that has the parameters of a rule run."""
    return int(json.loads(row["params_json"])["replica_lag_time_max_ms"])
