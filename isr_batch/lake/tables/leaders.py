"""Tables of leaders' terms, and of the time that the logs cover."""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, SET, Table, columns, key_columns

LEADER_EPOCHS = Table(
    "leader_epochs",
    "A leader's term, from the leader's own state-change log",
    (
        *SET,
        *columns("""
            start_time TIMESTAMP NOT NULL -- the leader took up its term; where begins_mid_term, the first instant that
                -- its request log covers
            end_time TIMESTAMP NOT NULL -- it stopped leading, or its log ends
            begins_mid_term BOOLEAN -- the term had begun before start_time, where the log begins or goes on after a
                -- gap: the state then is inferred, and anything that depends on the time before is unknown
            ends_mid_term BOOLEAN -- no line shows that the term ended at end_time: the log ends there, or has a gap
            term_source STRING -- leader and epoch: logged, snapshot, or inferred from what followers asked for
            start_offset BIGINT -- leader's log end offset at start_time (Kafka: leader epoch start offset); null
                -- where no line names an offset of the partition
            start_high_watermark BIGINT -- high watermark at start_time; null as start_offset
            start_offset_source STRING -- logged, or inferred from what producers were answered and followers fetched:
                -- then a lower bound
            assigned ARRAY<INT> NOT NULL -- assigned replicas, leader included
            assigned_source STRING -- logged, snapshot, or inferred: then followers that were down are missing
            held_at_start ARRAY<BIGINT> -- where begins_mid_term: log end offset of each assigned replica at
                -- start_time, as its first fetch shows; -2: the log end, whose offset no line names; -3: less, as it
                -- was outside the ISR; null where unknown
            isr_at_start ARRAY<INT> NOT NULL -- in-sync replicas at start_time
            isr_source STRING -- logged, snapshot, or inferred from the high watermark and what followers asked for
            previous_leader_id INT -- leader before, as this broker knew it; equal to leader_id when it stayed
            replica_lag_time_max_ms BIGINT NOT NULL -- replica.lag.time.max.ms of this broker
            lag_time_source STRING -- given by the operator, properties (server.properties), logged at the broker's
                -- start, or Kafka's default
            min_insync_replicas INT NOT NULL -- min.insync.replicas of the topic at start_time; controller_records has
                -- changes of it
            broker_version STRING -- Kafka version of this broker
            broker_version_source STRING -- given by the operator, logged, or inferred from the versions of followers'
                -- requests: then the oldest
            check_origin_ms BIGINT NOT NULL -- an instant at which isr-expiration ran; all others are whole periods
                -- away
            isr_write_ms BIGINT -- median time from a shrink to the answer of its ISR write on this broker; null when
                -- not logged
            metadata_delay_ms BIGINT -- median time until the controller's records reach this broker; null when not
                -- logged
            check_origin_source STRING NOT NULL -- shrinks, startup, given or unknown: how check_origin_ms was found
        """),
        DATE,
    ),
    {
        **KEY_CHECKS,
        "term_not_negative": "end_time >= start_time",
        "leader_assigned": "array_contains(assigned, leader_id)",
        "lag_time_positive": "replica_lag_time_max_ms > 0",
        "check_origin_source_known": "check_origin_source IN ('shrinks', 'startup', 'given', 'unknown')",
        "term_source_known": "term_source IN ('logged', 'snapshot', 'inferred')",
    },
    ("event_date",),
)

BROKER_DAYS = Table(
    "broker_days",
    "Activity of a follower and its leader on one day of a table of fetches, over all partitions: leaders' silences "
    "are derived from it. Broker logs give no rows",
    (
        *key_columns("cluster_id", "leader_id"),
        *columns("""
            replica_id INT NOT NULL -- follower that fetched
            rows BIGINT NOT NULL -- its fetches, a row for each partition
            first_time TIMESTAMP NOT NULL -- handled_time of the first
            last_time TIMESTAMP NOT NULL -- handled_time of the last
            cadence_us BIGINT -- of 20 gaps between seconds with fetches, 19 are not longer; null: all are in one
                -- second
            pauses ARRAY<STRUCT<from_us: BIGINT, until_us: BIGINT>> NOT NULL -- all gaps of a second or more
            instants STRING NOT NULL -- which instants of a fetch the table names, between commas: arrival, handled,
                -- processed, released, completed
            made_from STRING NOT NULL -- hash of the names of the data files that the day was made of
        """),
        DATE,
    ),
    {"replica_is_a_broker": "replica_id >= 0", "in_time": "first_time <= last_time"},
    ("event_date",),
)

COVERAGE = Table(
    "coverage",
    "Time for which a log of a broker is complete: anything outside it is unknown",
    (
        *key_columns("cluster_id", "broker_id"),
        *columns("""
            log STRING NOT NULL -- request, server, state-change or gc
            from_time TIMESTAMP NOT NULL -- its first line, or the first one after a gap
            until_time TIMESTAMP NOT NULL -- its last line, or the last one before a gap
            begins_mid_term BOOLEAN -- followers had been fetching before from_time, which this log does not show; null
                -- for the other logs
        """),
        DATE,
    ),
    {
        "log_known": "log IN ('request', 'server', 'state-change', 'gc')",
        "not_negative": "until_time >= from_time",
    },
    ("event_date",),
)
