"""Tables of what the lines of server.log, state-change.log and gc.log alone show."""

from isr_batch.lake.tables.contract import DATE, SOURCE, Table, columns, key_columns

SHRINK_EVIDENCE = Table(
    "shrink_evidence",
    "A replica that left the ISR according to server.log or state-change.log, and its likely reason: evidence from the "
    "lines alone, not the verdict of a replay (table shrink_verdicts)",
    (
        *key_columns("cluster_id", "topic", "partition_id", "leader_id"),
        *columns("""
            replica_id INT NOT NULL -- replica that left
            change_time TIMESTAMP NOT NULL -- timestamp of the line
            made_by STRING NOT NULL -- leader (a Shrinking line), controller (the ISR lost the replica without one), or
                -- unknown (the leader's server.log does not cover the time)
            isr_before ARRAY<INT> NOT NULL -- in-sync replicas before
            isr_after ARRAY<INT> NOT NULL -- in-sync replicas after
            high_watermark BIGINT -- printed since 2.2
            leader_log_end_offset BIGINT -- printed since 2.2
            follower_log_end_offset BIGINT -- as the leader knew it; printed since 2.2, null where it was unknown
            records_behind BIGINT -- leader_log_end_offset less follower_log_end_offset
            last_caught_up_time_ms BIGINT -- Kafka's lastCaughtUpTimeMs; printed since 3.6, null where it was unknown
            lag_ms BIGINT -- change_time less last_caught_up_time_ms: only a lag time of more than this would have kept
                -- the replica at this check
            replica_lag_time_max_ms BIGINT -- of the leader: printed at its start, or set in a file next to the logs;
                -- null where unknown
            returned_ms BIGINT -- until the replica was back in the ISR; null where that is not in the log, or the
                -- write failed
            returned_source STRING -- exact (a line says so), or at_most (a later line has it in the ISR)
            min_insync_replicas INT -- printed when the topic's log was created, or at the leader's start
            under_min_isr BOOLEAN -- isr_after is under min ISR, by min_insync_replicas or the leader's own words
            under_min_isr_ms BIGINT -- until the ISR had min_insync_replicas members again; null where that is not in
                -- the log
            under_min_isr_source STRING -- as returned_source
            write_outcome STRING -- done or failed; null without a line
            retry BOOLEAN NOT NULL -- the leader repeats a shrink that had not been written
            failing_ms BIGINT -- of a first failed write: until the last of the failures that followed it, in which the
                -- leader had not learnt that it no longer led
            check_replicas INT -- rows of the same check of this leader; null for the controller, a retry, and a replica
                -- that did not lag
            check_partitions INT -- partitions of the same check
            check_followers INT -- followers of the same check
            check_late_ms BIGINT -- delay of the check against the schedule of the leader's other checks: its process
                -- was held up; null where the schedule is unknown
            storm_time TIMESTAMP -- first shrink of the storm: checks of leaders, near in time, with a broker in common
            pair_checks INT NOT NULL -- checks of this leader, in all its log, that dropped this replica: many are
                -- flapping
            suspect STRING -- leader, follower, link_or_follower (indistinguishable), or controller; null for a retry, a
                -- replica that did not lag, and where made_by is unknown
            suspect_broker INT -- the suspect, where it is a broker; for link_or_follower the follower
            strength STRING NOT NULL -- of the evidence for the suspect: strong, weak or none
            spurious STRING NOT NULL -- strength of the evidence that the follower should not have been dropped
            reason STRING NOT NULL -- why, in a sentence
            evidence_lines ARRAY<STRING> NOT NULL -- the lines that support it, as file:line
            after_event STRING -- topic_created, restart (of leader or replica) or election, within two lag times
                -- before
            after_event_ms BIGINT -- how long before
            trouble STRING -- why the replica could not fetch, by its own log in the minute before: record_too_large,
                -- log_dir_failed, corrupt_record, fetcher_died, not_connected, fetch_failed, stale_epoch, truncated
            trouble_line STRING -- the line, as file:line
        """),
        *SOURCE,
        DATE,
    ),
    {
        "partition_from_0": "partition_id >= 0",
        "made_by_known": "made_by IN ('leader', 'controller', 'unknown')",
        "shrink_leaves_isr": "array_contains(isr_before, replica_id) AND NOT array_contains(isr_after, replica_id)",
        "returned_source_known": "returned_source IN ('exact', 'at_most')",
        "suspect_known": "suspect IN ('leader', 'follower', 'link_or_follower', 'controller')",
        "strength_known": "strength IN ('strong', 'weak', 'none') AND spurious IN ('strong', 'weak', 'none')",
        "write_outcome_known": "write_outcome IN ('done', 'failed')",
    },
    ("event_date",),
)

BROKER_TROUBLES = Table(
    "broker_troubles",
    "A line of a broker's own logs about a trouble that may have stopped its work, or about a result of that: a pause "
    "of its JVM (gc.log), a lost session, a failed disk, lack of memory, or a write refused for lack of replicas",
    (
        *key_columns("cluster_id", "broker_id"),
        *columns("""
            kind STRING NOT NULL -- pause (of the JVM, of 10 ms or more), session_expired (of ZooKeeper),
                -- heartbeat_failed (to the KRaft controller), log_dir_failed, out_of_memory, or under_min_isr (a
                -- partition had fewer replicas in sync than min.insync.replicas)
            from_time TIMESTAMP NOT NULL -- begin of a pause, else the timestamp of the line
            until_time TIMESTAMP NOT NULL -- end of a pause, else the same
            what STRING NOT NULL -- a pause as the JVM names it; of under_min_isr the partition, its ISR and the
                -- minimum; else the line
        """),
        *SOURCE,
        DATE,
    ),
    {
        "kind_known": "kind IN ('pause', 'session_expired', 'heartbeat_failed', 'log_dir_failed', 'out_of_memory', "
        "'under_min_isr')",
        "not_negative": "until_time >= from_time",
    },
    ("event_date",),
)
