"""Contracts of the tables and views of timelines.

In the tables, all rule runs with the same state share one row (docs/adr/0024-timelines-once.md explains why). The views
return one row per rule run.
"""

from typing import Literal

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, RULE, SET, Table, columns

Timelines = Literal["all", "around-shrinks", "none"]
"""Which timelines a replay writes: all rows, only rows around shrinks (docs/adr/0025-timelines-around-shrinks.md), or
none."""

_RUNS = columns("""
    run_set STRING NOT NULL -- identifies the rule runs that the bits of `runs` represent, listed in table rule_runs
    runs BIGINT NOT NULL -- bit mask: bit b is set if the row belongs to the run with number b
""")
_NTH = columns("""
    nth INT -- order of rows with the same time: the row with the largest nth has the final state; -1: the row repeats a
        -- state that began earlier
""")
_LAG = columns("""
    lag_ms BIGINT -- lag at this instant as this rule defines it: time since last_caught_up_time_ms, or 0 while the rule
        -- considers the follower caught up; null if it never was
    lag_grows BOOLEAN -- true if the lag grows until the next row: at a time t it is then greatest(0, t -
        -- last_caught_up_time_ms); if false, the lag stays lag_ms until the next row
    pseudo_isr_until TIMESTAMP -- if lag_grows, when the lag exceeds the lag time: from then on the follower is not in
        -- KAFKA-4485's pseudo-ISR. Null if the lag does not grow: then the follower is in it if lag_ms is 0
""")
_REPLICA = columns("""
    replica_id INT NOT NULL -- follower
    time TIMESTAMP NOT NULL -- when the state changed
    follower_log_end_offset BIGINT -- follower's log end offset as the leader knew it; -1 before the follower's first
        -- fetch
    lag_messages BIGINT -- leader's log end offset minus the follower's
    last_caught_up_time_ms BIGINT -- Kafka's lastCaughtUpTimeMs under this rule
    in_isr BOOLEAN NOT NULL -- whether the follower is in the ISR under this rule
""")
_PARTITION = columns("""
    time TIMESTAMP NOT NULL -- when the state changed
    leader_log_end_offset BIGINT -- leader's log end offset
    high_watermark BIGINT -- high watermark under this rule
    isr ARRAY<INT> NOT NULL -- in-sync replicas under this rule
""")

REPLICA_STATES = Table(
    "replica_states",
    "A follower's state, one row for all rule runs in which it is the same, whenever anything but a fetch at the log "
    "end changes it. The view replica_timeline is made from this table, partition_states and fetch_log",
    (*SET, *_RUNS, *_REPLICA, *_NTH, DATE),
    {**KEY_CHECKS, "of_some_run": "runs > 0"},
    ("event_date",),
    ("topic", "partition_id", "time", "run_set"),
)
_ACKNOWLEDGED = columns("""
    acknowledged_offset BIGINT -- log end offset after the last append with acks 0 or 1, which is acknowledged at once;
        -- 0 if there was none. Under acks-min-isr, also the offset up to which acks=all is acknowledged
""")

PARTITION_STATES = Table(
    "partition_states",
    "A replica set's state, one row for all rule runs in which it is the same: the source of the view "
    "partition_timeline",
    (*SET, *_RUNS, *_PARTITION, *_ACKNOWLEDGED, DATE),
    {**KEY_CHECKS, "of_some_run": "runs > 0", "isr_not_empty": "size(isr) > 0"},
    ("event_date",),
    ("topic", "partition_id", "time", "run_set"),
)
TIMELINES = {"replica": REPLICA_STATES, "partition": PARTITION_STATES}
"""The table of each kind of timeline that the kernel returns."""

RULE_RUNS = Table(
    "rule_runs",
    "A rule run on one day: the rule, its parameters, and the key of its rows in replica_states and partition_states. "
    "Rows of these tables whose run_set is not listed here are out of date, and are ignored",
    (
        *columns("""
            run_set STRING NOT NULL -- identifies a replay, and one of its lists of rule runs with their parameters
            run INT NOT NULL -- number of the run, and position of its bit in column `runs`
        """),
        *RULE,
        *columns("""
            lag_time_ms BIGINT NOT NULL -- replica.lag.time.max.ms of the run
            caught_up_by STRING -- which instant of a fetch at the log end becomes lastCaughtUpTimeMs under the rule:
                -- arrival, handled, processed, completed
            no_lag_while STRING -- when the rule's lag is 0 instead of the time since lastCaughtUpTimeMs: never; at log
                -- end, at high watermark, has all acknowledged, lacks nothing
        """),
        DATE,
    ),
    {"a_bit": "run BETWEEN 0 AND 47"},
    ("event_date",),
)

REPLICA_TIMELINE = Table(
    "replica_timeline",
    "A follower's state under a rule from this instant until its next row; lag_grows says how its lag changes "
    "meanwhile. If timelines were kept around shrinks only, the last row of each kept span is exact for in_isr alone",
    (*SET, *RULE, *_REPLICA[:3], *_LAG, *_REPLICA[3:], DATE),
)
REPLICA_CHANGES = Table(
    "replica_changes",
    "A follower's state under a rule, with a row only if its log end offset or its membership of the ISR changed, or "
    "if it was behind and its last_caught_up_time_ms changed: fewer rows than replica_timeline",
    (*SET, *RULE, *_REPLICA, DATE),
)
PARTITION_TIMELINE = Table(
    "partition_timeline",
    "A replica set's state under a rule from this instant until its next row. If timelines were kept around shrinks "
    "only, the last row of each kept span is exact for isr alone, which then has all replicas",
    (*SET, *RULE, *_PARTITION, DATE),
)
VIEWS = {
    REPLICA_TIMELINE.name: (
        REPLICA_TIMELINE,
        (REPLICA_STATES.name, PARTITION_STATES.name, RULE_RUNS.name, "fetch_log"),
    ),
    REPLICA_CHANGES.name: (REPLICA_CHANGES, (REPLICA_STATES.name, RULE_RUNS.name)),
    PARTITION_TIMELINE.name: (PARTITION_TIMELINE, (PARTITION_STATES.name, RULE_RUNS.name)),
}
"""For each view that can be read like a table: its contract, and the names of the tables that its query reads."""
