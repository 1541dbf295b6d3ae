"""Contracts of the tables of leaders' terms, and of the periods that logs cover."""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, SET, Table, columns, key_columns

LEADER_EPOCHS = Table(
    "leader_epochs",
    "A leader's term, from the leader's own state-change log",
    (
        *SET,
        *columns("""
            start_time TIMESTAMP NOT NULL -- when the leader's term began; if begins_mid_term, the first instant that
                -- the leader's request log covers
            end_time TIMESTAMP NOT NULL -- when the leader stopped leading, or when its log ends
            begins_mid_term BOOLEAN -- true if the term had begun before start_time, where the log begins or continues
                -- after a gap. The state at start_time is then inferred, and anything that depends on earlier time is
                -- unknown
            ends_mid_term BOOLEAN -- true if no line shows that the term ended at end_time: the leader's log ends there,
                -- or has a gap
            term_source STRING -- source of leader_id and leader_epoch: logged, snapshot (kafka-topics --describe), or
                -- inferred from followers' requests
            start_offset BIGINT -- leader's log end offset at start_time (Kafka: leader epoch start offset); null if no
                -- line names an offset of the partition
            start_high_watermark BIGINT -- high watermark at start_time; null if no line names an offset of the
                -- partition
            start_offset_source STRING -- source of start_offset: logged, or inferred from responses to producers and
                -- from followers' fetches, which give a lower bound
            assigned ARRAY<INT> NOT NULL -- assigned replicas, leader included
            assigned_source STRING -- source of assigned: logged, snapshot (kafka-topics --describe), or inferred; an
                -- inferred list lacks followers that were down
            held_at_start ARRAY<BIGINT> -- if begins_mid_term: log end offset of each assigned replica at start_time, as
                -- its first fetch shows; -2: the leader's log end, whose offset no line names; -3: below the leader's
                -- log end, because the replica was outside the ISR; null if unknown
            isr_at_start ARRAY<INT> NOT NULL -- in-sync replicas at start_time
            isr_source STRING -- source of isr_at_start: logged, snapshot (kafka-topics --describe), or inferred from
                -- the high watermark and followers' requests
            observers ARRAY<INT> -- assigned replicas that the operator listed as observers: they fetch, but do not
                -- join the ISR. One that leads or is in isr_at_start was promoted, and is replayed as any other replica
            previous_leader_id INT -- leader of the previous term, as the new leader knew it; equal to leader_id if the
                -- leader did not change
            replica_lag_time_max_ms BIGINT NOT NULL -- replica.lag.time.max.ms of the leader
            lag_time_source STRING -- source of replica_lag_time_max_ms: given (by the operator), properties
                -- (server.properties), logged (at the broker's start), or default (Kafka's)
            min_insync_replicas INT NOT NULL -- min.insync.replicas of the topic at start_time; later changes are in
                -- controller_records
            broker_version STRING -- Kafka version of the leader
            broker_version_source STRING -- source of broker_version: given (by the operator), logged, or inferred from
                -- the versions of followers' requests, as the oldest release that sends them
            check_origin_ms BIGINT NOT NULL -- an instant at which isr-expiration ran; the scheduled instants of its
                -- other checks are whole periods away from it
            isr_write_ms BIGINT -- median time on this broker from a shrink to the response to its ISR write; null if
                -- not logged
            metadata_delay_ms BIGINT -- median time until the controller's records reach this broker; null if not logged
            check_origin_source STRING NOT NULL -- source of check_origin_ms: shrinks, startup, removals (noted in
                -- state-change.log), given or unknown
        """),
        DATE,
    ),
    {
        **KEY_CHECKS,
        "term_not_negative": "end_time >= start_time",
        "leader_assigned": "array_contains(assigned, leader_id)",
        "lag_time_positive": "replica_lag_time_max_ms > 0",
        "check_origin_source_known": "check_origin_source IN ('shrinks', 'startup', 'removals', 'given', 'unknown')",
        "term_source_known": "term_source IN ('logged', 'snapshot', 'inferred')",
    },
    ("event_date",),
)

BROKER_DAYS = Table(
    "broker_days",
    "When a follower fetched from a leader on one day, over all partitions, according to a user's own table of "
    "fetches; silences of leaders are derived from this. Broker logs give no rows",
    (
        *key_columns("cluster_id"),
        *columns("""
            leader_id INT NOT NULL -- leader from which the follower fetched
            replica_id INT NOT NULL -- follower that fetched
            rows BIGINT NOT NULL -- number of fetches on this day; a request for several partitions counts once for each
            first_time TIMESTAMP NOT NULL -- handled_time of the follower's first fetch on this day
            last_time TIMESTAMP NOT NULL -- handled_time of the follower's last fetch on this day
            cadence_us BIGINT -- how often the follower fetched: 95th percentile of the intervals, in microseconds,
                -- between seconds with fetches; null if all fetches are within one second
            pauses ARRAY<STRUCT<from_us: BIGINT, until_us: BIGINT>> NOT NULL -- all intervals of a second or more in
                -- which the follower did not fetch from this leader
            instants STRING NOT NULL -- which instants of a fetch the user's table has, separated by commas: arrival,
                -- handled, processed, released, completed
            made_from STRING NOT NULL -- hash of the names of the data files of fetches and appends from which this row
                -- was derived
        """),
        DATE,
    ),
    {"replica_is_a_broker": "replica_id >= 0", "in_time": "first_time <= last_time"},
    ("event_date",),
)

COVERAGE = Table(
    "coverage",
    "A time span for which a log of a broker is complete; the log shows nothing about any other time",
    (
        *key_columns("cluster_id", "broker_id"),
        *columns("""
            log STRING NOT NULL -- request, server, state-change or gc
            from_time TIMESTAMP NOT NULL -- timestamp of the first line of the log, or of the first line after a gap
            until_time TIMESTAMP NOT NULL -- timestamp of the last line of the log, or of the last line before a gap
            begins_mid_term BOOLEAN -- for a request log: true if followers had fetched before from_time, which this log
                -- does not show; null for other logs
        """),
        DATE,
    ),
    {
        "log_known": "log IN ('request', 'server', 'state-change', 'gc')",
        "not_negative": "until_time >= from_time",
    },
    ("event_date",),
)
