"""Every Delta table that a replay writes, and the log of runs; the same kind of contract as `isr_batch.tables`."""

from isr_batch.tables import _DATE, _KEY_CHECKS, _RULE, _SET, INPUT_TABLES, PLANTED_FAULTS, Column, Table, _key

_CHANGE = (
    Column("change_time", "TIMESTAMP", "when the rule changed the ISR", nullable=False),
    Column("kind", "STRING", "shrink, expand, or relinquish (the leader gave up leadership)", nullable=False),
    Column("replica_id", "INT", "replica that left or joined; the leader itself for a relinquish", nullable=False),
    Column("isr_before", "ARRAY<INT>", "in-sync replicas before", nullable=False),
    Column("isr_after", "ARRAY<INT>", "in-sync replicas after", nullable=False),
    Column("high_watermark", "BIGINT", "high watermark under this rule, before the change"),
    Column("leader_log_end_offset", "BIGINT", "leader's log end offset at change_time"),
    Column(
        "follower_log_end_offset",
        "BIGINT",
        "follower's log end offset as the leader knew it; -1 before its first fetch",
    ),
    Column("last_caught_up_time_ms", "BIGINT", "Kafka's lastCaughtUpTimeMs under this rule"),
    Column("lag_ms", "BIGINT", "the lag that the rule compared with its limit; null when it compares something else"),
    Column("made_by", "STRING", "rule, or controller (fencing, shutdown, reassignment)", nullable=False),
)
_CHANGE_CHECKS = {
    **_KEY_CHECKS,
    "made_by_known": "made_by IN ('rule', 'controller')",
    "shrink_leaves_isr": "kind <> 'shrink' OR "
    "(array_contains(isr_before, replica_id) AND NOT array_contains(isr_after, replica_id))",
    "expand_joins_isr": "kind <> 'expand' OR "
    "(NOT array_contains(isr_before, replica_id) AND array_contains(isr_after, replica_id))",
}
_CAUSES = (
    "'caught_up', 'keeping_pace', 'slow_leader', 'unacked_only', "
    "'controller', 'follower_stopped', 'follower_slow', 'unknown'"
)

REPLICA_TIMELINE = Table(
    "replica_timeline",
    "A follower's state under a rule, from this instant until its next row",
    (
        *_SET,
        *_RULE,
        Column("replica_id", "INT", "follower", nullable=False),
        Column("time", "TIMESTAMP", "the state changed", nullable=False),
        Column("follower_log_end_offset", "BIGINT", "as the leader knew it; -1 before its first fetch"),
        Column("lag_ms", "BIGINT", "time since lastCaughtUpTimeMs, 0 while it counts as caught up"),
        Column("lag_messages", "BIGINT", "leader's log end offset less the follower's"),
        Column("last_caught_up_time_ms", "BIGINT", "Kafka's lastCaughtUpTimeMs under this rule"),
        Column("in_isr", "BOOLEAN", "the follower is in the ISR", nullable=False),
        _DATE,
    ),
    {**_KEY_CHECKS, "lag_not_negative": "lag_ms >= 0"},
    ("event_date",),
)

PARTITION_TIMELINE = Table(
    "partition_timeline",
    "A replica set's state under a rule, from this instant until its next row",
    (
        *_SET,
        *_RULE,
        Column("time", "TIMESTAMP", "the state changed", nullable=False),
        Column("leader_log_end_offset", "BIGINT", "leader's log end offset"),
        Column("high_watermark", "BIGINT", "high watermark under this rule"),
        Column("isr", "ARRAY<INT>", "in-sync replicas under this rule", nullable=False),
        _DATE,
    ),
    {**_KEY_CHECKS, "isr_not_empty": "size(isr) > 0"},
    ("event_date",),
)

ISR_CHANGES = Table(
    "isr_changes",
    "A shrink, expand or relinquish that a rule makes",
    (*_SET, *_RULE, *_CHANGE, _DATE),
    {**_CHANGE_CHECKS, "kind_known": "kind IN ('shrink', 'expand', 'relinquish')"},
    ("event_date",),
)

SHRINK_VERDICTS = Table(
    "shrink_verdicts",
    "A shrink that a rule makes, judged by what the whole log knows",
    (
        *_SET,
        *_RULE,
        *_CHANGE,
        Column(
            "true_lag_ms", "BIGINT", "time since the follower's own log end last equalled the leader's; 0 when it does"
        ),
        Column(
            "verdict", "STRING", "spurious, genuine, excluded (not the lag rule's doing) or unknown", nullable=False
        ),
        Column("primary_cause", "STRING", "first of causes", nullable=False),
        Column(
            "causes",
            "ARRAY<STRING>",
            "all that hold: caught_up, keeping_pace, slow_leader, unacked_only (spurious); controller (excluded); "
            "follower_stopped, follower_slow (genuine); unknown",
            nullable=False,
        ),
        Column("leader_held_ms", "BIGINT", "time since it was caught up that its fetches spent inside the leader"),
        Column(
            "leader_silent_ms", "BIGINT", "time since it was caught up in which the leader handled nobody; inferred"
        ),
        Column("restored_time", "TIMESTAMP", "the same follower was back in the ISR; null when the log ends before"),
        _DATE,
    ),
    {
        **_CHANGE_CHECKS,
        "kind_is_shrink": "kind = 'shrink'",
        "verdict_known": "verdict IN ('spurious', 'genuine', 'excluded', 'unknown')",
        "cause_known": f"primary_cause IN ({_CAUSES})",
        "primary_cause_first": "causes[0] = primary_cause",
        "restored_later": "restored_time >= change_time",
        "true_lag_not_negative": "true_lag_ms >= 0",
    },
    ("event_date",),
)

REPLAY_CHECK = Table(
    "replay_check",
    "An ISR change that the broker logged beside the one that the replay makes, or one without the other",
    (
        *_SET,
        *_RULE,
        Column("replica_id", "INT", "replica that left or joined", nullable=False),
        Column("kind", "STRING", "shrink or expand", nullable=False),
        Column("status", "STRING", "matched, missing (only logged) or extra (only replayed)", nullable=False),
        Column("observed_time", "TIMESTAMP", "change_time of the logged change; null when extra"),
        Column("replayed_time", "TIMESTAMP", "change_time of the replayed change; null when missing"),
        Column("time_error_ms", "DOUBLE", "replayed_time less observed_time"),
        Column("last_caught_up_error_ms", "BIGINT", "replayed less logged lastCaughtUpTimeMs"),
        Column("observed_follower_log_end_offset", "BIGINT", "as the broker printed it"),
        Column("replayed_follower_log_end_offset", "BIGINT", "as the replay had it"),
        Column("observed_leader_log_end_offset", "BIGINT", "as the broker printed it"),
        Column("replayed_leader_log_end_offset", "BIGINT", "as the replay had it"),
        Column("observed_high_watermark", "BIGINT", "as the broker printed it"),
        Column("replayed_high_watermark", "BIGINT", "as the replay had it"),
        Column("note", "STRING", "why a change has no twin, where that is known"),
        _DATE,
    ),
    {
        **_KEY_CHECKS,
        "kind_known": "kind IN ('shrink', 'expand')",
        "status_known": "status IN ('matched', 'missing', 'extra')",
        "times_fit_status": "(observed_time IS NULL) = (status = 'extra') "
        "AND (replayed_time IS NULL) = (status = 'missing')",
    },
    ("event_date",),
)

RULE_DISAGREEMENTS = Table(
    "rule_disagreements",
    "A shrink that some rules make and others do not",
    (
        *_SET,
        Column("replica_id", "INT", "follower that some rules drop", nullable=False),
        Column("change_time", "TIMESTAMP", "the first rule drops it", nullable=False),
        Column("rules_for", "ARRAY<STRING>", "rules that make the shrink", nullable=False),
        Column("rules_against", "ARRAY<STRING>", "replayed rules that do not", nullable=False),
        _DATE,
    ),
    {**_KEY_CHECKS, "rules_differ": "size(rules_for) > 0 AND size(rules_against) > 0"},
    ("event_date",),
)


def _counts(**comments: str) -> tuple[Column, ...]:
    return tuple(Column(name, "BIGINT", comment) for name, comment in comments.items())


def _measures(**comments: str) -> tuple[Column, ...]:
    return tuple(Column(name, "DOUBLE", comment) for name, comment in comments.items())


RULE_SCORES = Table(
    "rule_scores",
    "What a rule with these parameters got right, got wrong and cost; a row a day and topic, and totals",
    (
        *_key("cluster_id"),
        *_RULE,
        Column("event_date", "DATE", "UTC day; null in totals over days"),
        Column("topic", "STRING", "topic; null in totals over topics"),
        *_measures(exposure_partition_hours="hours x partitions that the log covers: what the rates are per"),
        *_counts(
            shrinks="shrinks that the rule makes",
            spurious="shrinks judged spurious: the mistakes",
            genuine="shrinks judged genuine",
            excluded="shrinks made by the controller",
            unknown="shrinks that the log cannot judge",
            caught_up="shrinks with this primary cause",
            keeping_pace="shrinks with this primary cause",
            slow_leader="shrinks with this primary cause",
            unacked_only="shrinks with this primary cause",
            follower_stopped="shrinks with this primary cause",
            follower_slow="shrinks with this primary cause",
            expands="expands that the rule makes",
            relinquishes="times the leader gives up leadership",
            misses="genuine failures never removed, or later than 1.5 limits",
        ),
        *_measures(
            mistakes_per_partition_day="spurious shrinks by exposure",
            mistakes_per_partition_day_low="lower end of its 95 % interval",
            mistakes_per_partition_day_high="upper end of its 95 % interval",
            mistake_interval_ms_p50="time between mistakes on one follower of one partition, median",
            mistake_duration_ms_p50="time from a spurious shrink until the follower is back, median",
            mistake_duration_ms_p99="the same, 99th percentile",
            mistake_duration_ms_max="the same, longest",
            query_accuracy="share of time in which `in sync?` agrees with true-lag",
            detection_ms_p50="time from a genuine failure to its shrink, median",
            detection_ms_p99="the same, 99th percentile",
            detection_ms_max="the same, longest",
            precision="genuine by genuine and spurious",
            recall="genuine by genuine and misses",
        ),
        *_counts(
            flaps="shrinks undone within the rule's limit",
            isr_changes="all changes of the ISR",
            metadata_writes="records or znodes written for them",
            notifications="notifications after the brakes of 2.5 s, 5 s and 60 s",
            refused_appends="acks=all appends that min.insync.replicas refuses",
            never_acknowledged="acks=all appends never acknowledged",
        ),
        *_measures(
            under_min_isr_seconds="time with fewer in-sync replicas than min.insync.replicas",
            at_min_isr_seconds="time with exactly as many",
            leader_alone_seconds="time with the leader alone: offline if it dies",
            high_watermark_stalled_seconds="time the high watermark stands still below the log end",
            acks_all_latency_ms_p50="time from append to acknowledgement of acks=all appends, median",
            acks_all_latency_ms_p99="the same, 99th percentile",
            acks_all_latency_ms_max="the same, longest",
            loss_exposed_seconds="time in which a clean election could lose acknowledged records",
        ),
        *_counts(
            loss_records_max="most acknowledged records that a clean election would lose",
            high_watermark_decreases="violations of: the high watermark never decreases",
            isr_members_below_high_watermark="violations of: every ISR member's log end reaches the high watermark",
            lag_guarantee_violations="violations of: a follower lagging less than the limit is in the pseudo-ISR",
            leader_outside_isr="violations of: the leader is in the ISR",
            isr_outside_assignment="violations of: the ISR is within the assignment",
        ),
        Column("first_violation", "STRING", "where the first violated invariant can be seen"),
    ),
    {
        "verdicts_add_up": "shrinks = spurious + genuine + excluded + unknown",
        "exposure_not_negative": "exposure_partition_hours >= 0",
    },
)

RUN_LOG = Table(
    "run_log",
    "A run of a command on this lake, done or failed",
    (
        Column("run_id", "STRING", "names the run; also in the commit metadata of what it wrote", nullable=False),
        Column("started_time", "TIMESTAMP", "start of the run", nullable=False),
        Column("command", "STRING", "ingest, replay, validate, report or run", nullable=False),
        Column("window", "STRING", "days asked for, as `from..to` with an exclusive end; null for all"),
        Column("input_table_versions", "MAP<STRING, BIGINT>", "Delta versions of the input tables after the run"),
        Column("code_version", "STRING", "version of isr-batch", nullable=False),
        Column(
            "config_hash",
            "STRING",
            "hash of the resolved settings, as `isr-batch config show` prints it",
            nullable=False,
        ),
        Column("rows_in", "BIGINT", "rows or log lines read"),
        Column("rows_out", "BIGINT", "rows written"),
        Column("rows_quarantined", "BIGINT", "lines or rows refused"),
        Column("seconds", "DOUBLE", "wall-clock time", nullable=False),
        Column("status", "STRING", "done or failed", nullable=False),
        Column("exit_code", "INT", "as the command returned it", nullable=False),
        Column("message", "STRING", "what was wrong; null when done"),
    ),
    {"status_known": "status IN ('done', 'failed')", "exit_code_fits": "(exit_code = 0) = (status = 'done')"},
)

OUTPUT_TABLES = (
    REPLICA_TIMELINE,
    PARTITION_TIMELINE,
    ISR_CHANGES,
    SHRINK_VERDICTS,
    REPLAY_CHECK,
    RULE_DISAGREEMENTS,
    RULE_SCORES,
    RUN_LOG,
)
TABLES = {table.name: table for table in (*INPUT_TABLES, PLANTED_FAULTS, *OUTPUT_TABLES)}
