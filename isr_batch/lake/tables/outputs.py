"""Every Delta table that a replay writes, and the log of runs; the same kind of contract as `inputs`."""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, RULE, SET, Column, Table
from isr_batch.lake.tables.inputs import FETCH_SEGMENTS, INGESTED_FILES, INPUT_TABLES, PLANTED_FAULTS
from isr_batch.lake.tables.scores import (
    EXPERIMENT_RESULTS,
    PARTITION_SCORES,
    REPLICA_SCORES,
    RULE_SCORES,
    RULE_SCORES_BY_BROKER,
    SWEEP_ADVICE,
    SWEEP_SCORES,
)

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
    Column("lag_ms", "BIGINT", "change_time less last_caught_up_time_ms; null when it never was"),
    Column("made_by", "STRING", "rule, or controller (fencing, shutdown, reassignment)", nullable=False),
)
_CHANGE_CHECKS = {
    **KEY_CHECKS,
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
        *SET,
        *RULE,
        Column("replica_id", "INT", "follower", nullable=False),
        Column("time", "TIMESTAMP", "the state changed", nullable=False),
        Column("follower_log_end_offset", "BIGINT", "as the leader knew it; -1 before its first fetch"),
        Column("lag_ms", "BIGINT", "time since lastCaughtUpTimeMs, 0 while it counts as caught up"),
        Column("lag_messages", "BIGINT", "leader's log end offset less the follower's"),
        Column("last_caught_up_time_ms", "BIGINT", "Kafka's lastCaughtUpTimeMs under this rule"),
        Column("in_isr", "BOOLEAN", "the follower is in the ISR", nullable=False),
        DATE,
    ),
    {**KEY_CHECKS, "lag_not_negative": "lag_ms >= 0"},
    ("event_date", "rule", "params_json"),
    ("topic", "partition_id", "time"),
)

PARTITION_TIMELINE = Table(
    "partition_timeline",
    "A replica set's state under a rule, from this instant until its next row",
    (
        *SET,
        *RULE,
        Column("time", "TIMESTAMP", "the state changed", nullable=False),
        Column("leader_log_end_offset", "BIGINT", "leader's log end offset"),
        Column("high_watermark", "BIGINT", "high watermark under this rule"),
        Column("isr", "ARRAY<INT>", "in-sync replicas under this rule", nullable=False),
        DATE,
    ),
    {**KEY_CHECKS, "isr_not_empty": "size(isr) > 0"},
    ("event_date", "rule", "params_json"),
    ("topic", "partition_id", "time"),
)

ISR_CHANGES = Table(
    "isr_changes",
    "A shrink, expand or relinquish that a rule makes",
    (*SET, *RULE, *_CHANGE, DATE),
    {**_CHANGE_CHECKS, "kind_known": "kind IN ('shrink', 'expand', 'relinquish')"},
    ("event_date",),
    change_feed=True,
)

SHRINK_VERDICTS = Table(
    "shrink_verdicts",
    "A shrink that a rule makes, judged by what the whole log knows",
    (
        *SET,
        *RULE,
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
        DATE,
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
    change_feed=True,
)

REPLAY_CHECK = Table(
    "replay_check",
    "An ISR change that the broker logged beside the one that the replay makes, or one without the other",
    (
        *SET,
        *RULE,
        Column("replica_id", "INT", "replica that left or joined", nullable=False),
        Column("kind", "STRING", "shrink or expand", nullable=False),
        Column(
            "status",
            "STRING",
            "matched, missing (only logged), extra (only replayed), or unknown: without a twin where the request log "
            "does not reach, or began less than a lag time and a check before",
            nullable=False,
        ),
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
        DATE,
    ),
    {
        **KEY_CHECKS,
        "kind_known": "kind IN ('shrink', 'expand')",
        "status_known": "status IN ('matched', 'missing', 'extra', 'unknown')",
        "times_fit_status": "status = 'unknown' OR (observed_time IS NULL) = (status = 'extra') "
        "AND (replayed_time IS NULL) = (status = 'missing')",
    },
    ("event_date",),
    change_feed=True,
)

RULE_DISAGREEMENTS = Table(
    "rule_disagreements",
    "A shrink that some rules make and others do not",
    (
        *SET,
        Column("replica_id", "INT", "follower that some rules drop", nullable=False),
        Column("change_time", "TIMESTAMP", "the first rule drops it", nullable=False),
        Column(
            "rules_for",
            "ARRAY<STRING>",
            "rules that make the shrink, each at most one lag time after the first; with their parameters where a "
            "rule was replayed with several",
            nullable=False,
        ),
        Column(
            "rules_against",
            "ARRAY<STRING>",
            "replayed rules that had the follower in the ISR and do not make the shrink",
            nullable=False,
        ),
        Column("causes", "MAP<STRING, STRING>", "primary cause by rule, for rules_for", nullable=False),
        Column("verdicts", "MAP<STRING, STRING>", "verdict by rule, for rules_for", nullable=False),
        DATE,
    ),
    {**KEY_CHECKS, "rules_differ": "size(rules_for) > 0 AND size(rules_against) > 0"},
    ("event_date",),
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

REPLAY_STATE = Table(
    "replay_state",
    "What the replay of a replica set knew at the end of a day; the next day's replay goes on from it",
    (
        *SET,
        Column("runs", "STRING", "hash of the rules, their parameters and the code", nullable=False),
        Column("line", "STRING", "hash of the day's input and of all input before it", nullable=False),
        Column("assigned", "ARRAY<INT>", "replicas of the set's last term", nullable=False),
        Column("params", "ARRAY<STRING>", "params_json of each run in that term", nullable=False),
        Column("state", "BINARY", "zlib of the bytes that udfs/kernel/snapshot.py describes", nullable=False),
        DATE,
    ),
    dict(KEY_CHECKS),
    ("event_date",),
)

REPLAYED_DAYS = Table(
    "replayed_days",
    "A day whose results of a rule are complete; a day that is being replayed has no row",
    (
        Column("rule", "STRING", "rule that was replayed", nullable=False),
        Column("runs", "STRING", "hash of all rules of the run, their parameters and the code", nullable=False),
        Column("line", "STRING", "hash of the day's input and of all input before it", nullable=False),
        Column("run_id", "STRING", "the run in run_log", nullable=False),
        Column("replayed_time", "TIMESTAMP", "when it was done", nullable=False),
        DATE,
    ),
)

RUN_LEASE = Table(
    "run_lease",
    "Whose turn it is to write results: a row when a run takes its turn, and one when it gives it back",
    (
        Column("turn", "BIGINT", "counts from 1", nullable=False),
        Column("run_id", "STRING", "the run in run_log", nullable=False),
        Column("host", "STRING", "machine of its driver", nullable=False),
        Column("pid", "BIGINT", "process of its driver", nullable=False),
        Column("taken_time", "TIMESTAMP", "when the row was written", nullable=False),
        Column("given_back", "BOOLEAN", "the turn is over", nullable=False),
    ),
)

TIMELINES = {"replica": REPLICA_TIMELINE, "partition": PARTITION_TIMELINE}
"""By kind of result."""

OUTPUT_TABLES = (
    REPLICA_TIMELINE,
    PARTITION_TIMELINE,
    ISR_CHANGES,
    SHRINK_VERDICTS,
    REPLAY_CHECK,
    RULE_DISAGREEMENTS,
    PARTITION_SCORES,
    REPLICA_SCORES,
    RULE_SCORES,
    RULE_SCORES_BY_BROKER,
    EXPERIMENT_RESULTS,
    SWEEP_SCORES,
    SWEEP_ADVICE,
    REPLAY_STATE,
    REPLAYED_DAYS,
    RUN_LEASE,
    RUN_LOG,
)
TABLES = {
    table.name: table for table in (*INPUT_TABLES, FETCH_SEGMENTS, INGESTED_FILES, PLANTED_FAULTS, *OUTPUT_TABLES)
}
