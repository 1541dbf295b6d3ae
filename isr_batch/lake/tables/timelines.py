"""Timelines: the tables, with one row for all rule runs that share it, and the views per run.

docs/adr/0024-timelines-once.md has the reason.
"""

from typing import Literal

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, RULE, SET, Table, columns

Timelines = Literal["all", "around-shrinks", "none"]
"""Timelines that a replay writes: all, the rows around shrinks (docs/adr/0025-timelines-around-shrinks.md), or none."""

_RUNS = columns("""
    run_set STRING NOT NULL -- the rule runs that the bits of `runs` stand for: `rule_runs` has them
    runs BIGINT NOT NULL -- bit b is set where the run numbered b has this row
""")
_NTH = columns("""
    nth INT -- of several rows of an instant the one with the largest holds; -1: the row says what came about earlier
""")
_LAG = columns("""
    lag_ms BIGINT -- lag at this instant as this rule defines it: time since last_caught_up_time_ms, or 0 while the rule
        -- counts the follower as caught up; null when it never was
    lag_grows BOOLEAN -- until the next row the lag grows: at a time t it is greatest(0, t - last_caught_up_time_ms);
        -- where this is false it stays lag_ms
""")
_REPLICA = columns("""
    replica_id INT NOT NULL -- follower
    time TIMESTAMP NOT NULL -- the state changed
    follower_log_end_offset BIGINT -- as the leader knew it; -1 before its first fetch
    lag_messages BIGINT -- leader's log end offset less the follower's
    last_caught_up_time_ms BIGINT -- Kafka's lastCaughtUpTimeMs under this rule
    in_isr BOOLEAN NOT NULL -- the follower is in the ISR
""")
_PARTITION = columns("""
    time TIMESTAMP NOT NULL -- the state changed
    leader_log_end_offset BIGINT -- leader's log end offset
    high_watermark BIGINT -- high watermark under this rule
    isr ARRAY<INT> NOT NULL -- in-sync replicas under this rule
""")

REPLICA_STATES = Table(
    "replica_states",
    "Source of the view replica_timeline, with partition_states and fetch_log: a follower's state under all rule runs "
    "that share it, where it changed in another way than by a fetch at the log end",
    (*SET, *_RUNS, *_REPLICA, *_NTH, DATE),
    {**KEY_CHECKS, "of_some_run": "runs > 0"},
    ("event_date",),
    ("topic", "partition_id", "time", "run_set"),
)
_ACKNOWLEDGED = columns("""
    acknowledged_offset BIGINT -- end of the last append with acks 0 or 1, acknowledged at once; 0 without one
""")

PARTITION_STATES = Table(
    "partition_states",
    "Source of the view partition_timeline: a replica set's state under all rule runs that share it",
    (*SET, *_RUNS, *_PARTITION, *_ACKNOWLEDGED, DATE),
    {**KEY_CHECKS, "of_some_run": "runs > 0", "isr_not_empty": "size(isr) > 0"},
    ("event_date",),
    ("topic", "partition_id", "time", "run_set"),
)
TIMELINES = {"replica": REPLICA_STATES, "partition": PARTITION_STATES}
"""By kind of result."""

RULE_RUNS = Table(
    "rule_runs",
    "A rule with its parameters on a day, and where its rows of replica_states and partition_states are; rows of "
    "these that no row here names are replaced, and count no more",
    (
        *columns("""
            run_set STRING NOT NULL -- the replay, and a set of rule runs of it whose parameters are the same
            run INT NOT NULL -- bit of `runs`
        """),
        *RULE,
        *columns("""
            lag_time_ms BIGINT NOT NULL -- replica.lag.time.max.ms of the run
            caught_up_by STRING -- which instant of a fetch at the log end becomes lastCaughtUpTimeMs: arrival, handled,
                -- processed, completed
            no_lag_while STRING -- when the lag is 0, and not the time since then: never; at log end, at high watermark,
                -- has all acknowledged, lacks nothing
        """),
        DATE,
    ),
    {"a_bit": "run BETWEEN 0 AND 47"},
    ("event_date",),
)

REPLICA_TIMELINE = Table(
    "replica_timeline",
    "A follower's state under a rule, exact from this instant until its next row, its lag with lag_grows; of rows kept "
    "around shrinks alone, the last one of a span knows that the follower is in the ISR, and no more",
    (*SET, *RULE, *_REPLICA[:3], *_LAG, *_REPLICA[3:], DATE),
)
REPLICA_CHANGES = Table(
    "replica_changes",
    "A follower's state under a rule where its log end offset, its membership, or its last catching up while it was "
    "behind changed: fewer rows than replica_timeline, without what fetches and appends do in between",
    (*SET, *RULE, *_REPLICA, DATE),
)
PARTITION_TIMELINE = Table(
    "partition_timeline",
    "A replica set's state under a rule, from this instant until its next row; of rows kept around shrinks alone, "
    "the last one of a span knows that every replica is in the ISR, and no more",
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
"""Columns of each view whose rows are read like a table's, and the tables that it is made of."""
