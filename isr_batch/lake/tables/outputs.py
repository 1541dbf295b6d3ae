"""Contracts of the tables that a replay writes, and of the log of runs."""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, RULE, SET, Table, columns
from isr_batch.lake.tables.evidence import BROKER_TROUBLES, SHRINK_EVIDENCE
from isr_batch.lake.tables.heirs import ELIGIBLE_LEADERS
from isr_batch.lake.tables.inputs import (
    FETCH_SEGMENTS,
    INGESTED_FILES,
    INPUT_TABLES,
    KEPT_LINES,
    PLANTED_FAULTS,
    SESSION_ENDS,
)
from isr_batch.lake.tables.leaders import BROKER_DAYS
from isr_batch.lake.tables.own_tables import OWN_TABLES
from isr_batch.lake.tables.scores import (
    EXPERIMENT_RESULTS,
    PARTITION_SCORES,
    REPLICA_SCORES,
    RULE_SCORES,
    RULE_SCORES_BY_BROKER,
    SWEEP_ADVICE,
    SWEEP_SCORES,
)
from isr_batch.lake.tables.timelines import PARTITION_STATES, REPLICA_STATES, RULE_RUNS

DEPENDS_ON = {
    "event_order": "which of two events with the same timestamp came first",
    "check_time": "when the leader's check ran",
    "check_phase": "when the leader's checks were due, which no line shows",
    "isr_at_start": "the ISR when the log began, which no line shows",
    "not_logged": "something that the logs do not show: the brokers' own rule makes this change here, and they "
    "logged none",
}
"""Descriptions of the values of column ``depends_on``, which says why a shrink is not certain."""
SHOWN_ERROR_MS = 100
"""From this ``time_error_ms`` on, reports call the time of a shrink uncertain."""

_CHANGE = columns("""
    change_time TIMESTAMP NOT NULL -- when the rule changed the ISR
    kind STRING NOT NULL -- shrink, expand, or relinquish (the leader gave up leadership)
    replica_id INT NOT NULL -- replica that left or joined the ISR; for a relinquish, the leader
    isr_before ARRAY<INT> NOT NULL -- in-sync replicas before the change, under this rule
    isr_after ARRAY<INT> NOT NULL -- in-sync replicas after the change, under this rule
    high_watermark BIGINT -- high watermark under this rule, before the change
    leader_log_end_offset BIGINT -- leader's log end offset at change_time
    follower_log_end_offset BIGINT -- follower's log end offset as the leader knew it; -1 before its first fetch
    last_caught_up_time_ms BIGINT -- Kafka's lastCaughtUpTimeMs under this rule
    lag_ms BIGINT -- change_time minus last_caught_up_time_ms; null if the follower was never caught up
    made_by STRING NOT NULL -- what caused the change: rule, or controller (fencing, shutdown, reassignment)
    time_error_ms BIGINT -- for a shrink by the rule, the uncertainty of change_time, which comes from the log's
        -- timestamps and the leader's delays: a whole check period if no line shows when checks were due. Null for
        -- other changes
    certainty STRING -- certain: the rule makes this change at every time at which the check can have run, within the
        -- uncertainty of the check's time; possible: the change depends on that time, or on something else that
        -- depends_on names. An expand that undoes a possible shrink is possible
    depends_on STRING -- why a change is not certain: event_order (a fetch or an append with the same timestamp may
        -- have come before the check), check_time (the leader was silent or late, so that the check may have run
        -- earlier or later), check_phase (no line shows when the leader's checks were due), isr_at_start (the log
        -- begins in mid-term, no line shows whether the follower was in the ISR, and it has not been seen at the
        -- log end since the log began), not_logged (the brokers' own rule makes this change at this moment too, but the
        -- brokers logged none)
""")
_CHANGE_CHECKS = {
    **KEY_CHECKS,
    "made_by_known": "made_by IN ('rule', 'controller')",
    "certainty_known": "certainty IN ('certain', 'possible')",
    "possible_for_a_reason": "(certainty = 'possible') = (depends_on IS NOT NULL)",
    "shrink_leaves_isr": "kind <> 'shrink' OR "
    "(array_contains(isr_before, replica_id) AND NOT array_contains(isr_after, replica_id))",
    "expand_joins_isr": "kind <> 'expand' OR "
    "(NOT array_contains(isr_before, replica_id) AND array_contains(isr_after, replica_id))",
}
_CAUSES = (
    "'caught_up', 'keeping_pace', 'slow_leader', 'unacked_only', "
    "'controller', 'follower_stopped', 'follower_slow', 'unknown'"
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
    "A shrink that a rule makes, judged by the complete log",
    (
        *SET,
        *RULE,
        *_CHANGE,
        *columns("""
            true_lag_ms BIGINT -- time since the leader's log last ended where the follower's log ends at change_time; 0
                -- if the leader's log still ends there
            verdict STRING NOT NULL -- spurious, genuine, excluded (not made by the lag rule) or unknown
            primary_cause STRING NOT NULL -- first of causes, which decides the verdict
            causes ARRAY<STRING> NOT NULL -- every cause that holds: caught_up, keeping_pace, slow_leader, unacked_only
                -- (spurious); controller (excluded); follower_stopped, follower_slow (genuine); unknown
            leader_held_ms BIGINT -- time that the follower's fetches spent inside the leader, from
                -- last_caught_up_time_ms to change_time; null if the input has only one instant per fetch
            leader_silent_ms BIGINT -- time from last_caught_up_time_ms to change_time in which the leader handled no
                -- request, as inferred; null if for some of this time no follower fetched from the leader and the
                -- reason is unknown
            restored_time TIMESTAMP -- when the follower was back in the ISR under this rule; null if the log ends
                -- before that
        """),
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

LATE_CHECKS = Table(
    "late_checks",
    "A check of a partition that must have run late: at the time it was due it would have dropped a follower, but no "
    "log line shows that shrink",
    (
        *SET,
        *columns("""
            due_time TIMESTAMP NOT NULL -- when the check was due, according to the log's timestamps
            ran_time TIMESTAMP NOT NULL -- time that the replay uses: the leader's next check with a line in the log;
                -- without one, 100 ms after the leader's last silence
            latest_time TIMESTAMP NOT NULL -- latest time at which it can have run: five seconds after the leader's last
                -- silence, or later if the leader was late with other work for longer
            replica_ids ARRAY<INT> NOT NULL -- followers that the brokers' own rule would have dropped at due_time
        """),
        DATE,
    ),
    {**KEY_CHECKS, "later": "ran_time > due_time AND latest_time >= ran_time"},
    ("event_date",),
)

REPLAY_CHECK = Table(
    "replay_check",
    "An ISR change that a broker logged, paired with the same change in the replay; or a change that only the broker "
    "or only the replay made",
    (
        *SET,
        *RULE,
        *columns("""
            replica_id INT NOT NULL -- replica that left or joined the ISR
            kind STRING NOT NULL -- shrink or expand
            status STRING NOT NULL -- matched, missing (only logged), extra (only replayed), unknown (the change has no
                -- counterpart, but the request log does not cover its time, or began less than a lag time and a check
                -- period before it, or its day is not replayed), or observer (the broker changed a listed observer,
                -- which no rule does: it is not compared)
            observed_time TIMESTAMP -- change_time of the logged change; null if extra
            replayed_time TIMESTAMP -- change_time of the replayed change; null if missing
            time_error_ms DOUBLE -- replayed_time minus observed_time; null without both
            last_caught_up_error_ms BIGINT -- lastCaughtUpTimeMs of the replay minus the logged one; null without both
            observed_follower_log_end_offset BIGINT -- follower's log end offset that the broker logged
            replayed_follower_log_end_offset BIGINT -- follower's log end offset at the replayed change, as the leader
                -- knew it
            observed_leader_log_end_offset BIGINT -- leader's log end offset that the broker logged
            replayed_leader_log_end_offset BIGINT -- leader's log end offset at the replayed change
            observed_high_watermark BIGINT -- high watermark that the broker logged
            replayed_high_watermark BIGINT -- high watermark at the replayed change
            note STRING -- why a change has no counterpart, if that is known
        """),
        DATE,
    ),
    {
        **KEY_CHECKS,
        "kind_known": "kind IN ('shrink', 'expand')",
        "status_known": "status IN ('matched', 'missing', 'extra', 'unknown', 'observer')",
        "times_fit_status": "status = 'unknown' OR (observed_time IS NULL) = (status = 'extra') "
        "AND (replayed_time IS NULL) = (status IN ('missing', 'observer'))",
    },
    ("event_date",),
    change_feed=True,
)

RULE_DISAGREEMENTS = Table(
    "rule_disagreements",
    "A shrink that some rules make and others do not",
    (
        *SET,
        *columns("""
            replica_id INT NOT NULL -- follower that some rules drop
            change_time TIMESTAMP NOT NULL -- when the first of rules_for drops the follower
            rules_for ARRAY<STRING> NOT NULL -- rules that make the shrink, each at most one lag time after the first;
                -- with parameters if a rule was replayed with several sets of them
            rules_against ARRAY<STRING> NOT NULL -- replayed rules that have the follower in the ISR at that time and do
                -- not make the shrink
            causes MAP<STRING, STRING> NOT NULL -- primary cause of the shrink under each of rules_for
            verdicts MAP<STRING, STRING> NOT NULL -- verdict on the shrink under each of rules_for
        """),
        DATE,
    ),
    {**KEY_CHECKS, "rules_differ": "size(rules_for) > 0 AND size(rules_against) > 0"},
    ("event_date",),
)


RUN_LOG = Table(
    "run_log",
    "A run of a command on this lake, successful or not",
    columns("""
    run_id STRING NOT NULL -- identifies the run; also in the metadata of the Delta commits that it made
    started_time TIMESTAMP NOT NULL -- start of the run
    command STRING NOT NULL -- such as ingest, replay, backfill, validate or run; with --timelines if that was
        -- given to run
    window STRING -- requested days, as `from..to` with an exclusive end; null for all
    input_table_versions MAP<STRING, BIGINT> -- Delta versions of the input tables after the run
    code_version STRING NOT NULL -- version of isr-batch, and a hash of its sources after a plus sign
    config_hash STRING NOT NULL -- hash of the resolved settings, as `isr-batch config show` prints it
    rows_in BIGINT -- rows or log lines that the command read
    rows_out BIGINT -- rows that the command wrote
    rows_quarantined BIGINT -- lines or rows that the command refused
    seconds DOUBLE NOT NULL -- wall-clock time of the run
    status STRING NOT NULL -- done or failed
    exit_code INT NOT NULL -- exit code of the command
    message STRING -- error message; null if done
"""),
    {"status_known": "status IN ('done', 'failed')", "exit_code_fits": "(exit_code = 0) = (status = 'done')"},
)

REPLAY_STATE = Table(
    "replay_state",
    "State of a replica set's replay at the end of a day, from which the replay of the next day continues",
    (
        *SET,
        *columns("""
            runs STRING NOT NULL -- hash of the rules that are replayed together, their parameters and the code
            line STRING NOT NULL -- input fingerprint: hash of the day's input and of all input before it
            assigned ARRAY<INT> NOT NULL -- replicas of the set's last term
            params ARRAY<STRING> NOT NULL -- params_json of each run in that term
            state BINARY NOT NULL -- zlib of the bytes that udfs/kernel/snapshot.py describes
        """),
        DATE,
    ),
    dict(KEY_CHECKS),
    ("event_date",),
)

REPLAYED_DAYS = Table(
    "replayed_days",
    "A day for which a rule's results are complete; a day that is being replayed has no row",
    (
        *columns("""
            rule STRING NOT NULL -- rule that was replayed
            runs STRING NOT NULL -- hash of the rules that were replayed together, their parameters and the code
            line STRING NOT NULL -- input fingerprint: hash of the day's input and of all input before it, at the time
                -- of the replay
            run_id STRING NOT NULL -- run_id of the replay in run_log
            replayed_time TIMESTAMP NOT NULL -- when all results of the day were written
        """),
        DATE,
    ),
)

RUN_LEASE = Table(
    "run_lease",
    "The lease that allows one run at a time to write results. A run adds a row when it takes the lease, at each "
    "heartbeat, and when it gives the lease back",
    columns("""
    turn BIGINT NOT NULL -- number of the lease, from 1; each lease has the next number
    run_id STRING NOT NULL -- run_id, in run_log, of the run that holds this lease
    host STRING NOT NULL -- where the run's driver runs: name of the machine, its boot id, PID namespace and start time
        -- of the process, separated by bars
    pid BIGINT NOT NULL -- process id of the run's driver
    taken_time TIMESTAMP NOT NULL -- when the row was written
    given_back BOOLEAN NOT NULL -- true if the run gives the lease back with this row
"""),
)

OUTPUT_TABLES = (
    REPLICA_STATES,
    PARTITION_STATES,
    RULE_RUNS,
    ISR_CHANGES,
    SHRINK_VERDICTS,
    LATE_CHECKS,
    REPLAY_CHECK,
    RULE_DISAGREEMENTS,
    ELIGIBLE_LEADERS,
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
    table.name: table
    for table in (
        *INPUT_TABLES,
        FETCH_SEGMENTS,
        INGESTED_FILES,
        *OWN_TABLES,
        BROKER_DAYS,
        KEPT_LINES,
        PLANTED_FAULTS,
        SESSION_ENDS,
        SHRINK_EVIDENCE,
        BROKER_TROUBLES,
        *OUTPUT_TABLES,
    )
}
