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
_LAG = columns("""
    lag_ms BIGINT -- time since lastCaughtUpTimeMs, 0 while it counts as caught up
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
    "What the view replica_timeline is made of: a follower's state under all rule runs that share it",
    (*SET, *_RUNS, *_REPLICA, DATE),
    {**KEY_CHECKS, "of_some_run": "runs > 0"},
    ("event_date",),
    ("topic", "partition_id", "time", "run_set"),
)
PARTITION_STATES = Table(
    "partition_states",
    "What the view partition_timeline is made of: a replica set's state under all rule runs that share it",
    (*SET, *_RUNS, *_PARTITION, DATE),
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
        *columns("lag_time_ms BIGINT NOT NULL -- replica.lag.time.max.ms of the run"),
        DATE,
    ),
    {"a_bit": "run BETWEEN 0 AND 47"},
    ("event_date",),
)

REPLICA_TIMELINE = Table(
    "replica_timeline",
    "A follower's state under a rule, from this instant until its next row; of rows kept around shrinks alone, the "
    "last one of a span knows that the follower is in the ISR, and no more",
    (*SET, *RULE, *_REPLICA[:3], *_LAG, *_REPLICA[3:], DATE),
)
PARTITION_TIMELINE = Table(
    "partition_timeline",
    "A replica set's state under a rule, from this instant until its next row; of rows kept around shrinks alone, "
    "the last one of a span knows that every replica is in the ISR, and no more",
    (*SET, *RULE, *_PARTITION, DATE),
)
VIEWS = {
    REPLICA_TIMELINE.name: (REPLICA_TIMELINE, (REPLICA_STATES.name, RULE_RUNS.name)),
    PARTITION_TIMELINE.name: (PARTITION_TIMELINE, (PARTITION_STATES.name, RULE_RUNS.name)),
}
"""Columns of each view whose rows are read like a table's, and the tables that it is made of."""
