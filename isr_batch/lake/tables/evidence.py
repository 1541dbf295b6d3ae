"""Contracts of the tables that are derived from server.log, state-change.log and gc.log alone, without a replay."""

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
            earliest_time TIMESTAMP -- if the line shows late that the replica left: the last time at which it is known
                -- to have been in the ISR; null if change_time is when it left
            made_by STRING NOT NULL -- which broker removed the replica: leader (it logged a Shrinking line), controller
                -- (the ISR lost the replica without such a line), or unknown (the leader's server.log does not cover
                -- the time)
            isr_before ARRAY<INT> NOT NULL -- in-sync replicas before the shrink
            isr_after ARRAY<INT> NOT NULL -- in-sync replicas after the shrink
            high_watermark BIGINT -- high watermark that the Shrinking line prints, since Kafka 2.2
            leader_log_end_offset BIGINT -- leader's log end offset that the Shrinking line prints, since Kafka 2.2
            follower_log_end_offset BIGINT -- follower's log end offset as the leader knew it, which the Shrinking line
                -- prints since Kafka 2.2; null if unknown
            records_behind BIGINT -- number of records that the follower lacked: leader_log_end_offset minus
                -- follower_log_end_offset
            last_caught_up_time_ms BIGINT -- Kafka's lastCaughtUpTimeMs, which the Shrinking line prints since Kafka
                -- 3.6; null if unknown
            lag_ms BIGINT -- change_time minus last_caught_up_time_ms: only a longer lag time would have kept the
                -- replica at this check
            replica_lag_time_max_ms BIGINT -- lag time of the leader, which it printed at its start, or which a file
                -- next to the logs sets; null if unknown
            returned_ms BIGINT -- time from the shrink until the replica was back in the ISR; null if the log does not
                -- show its return, or if the ISR write failed
            returned_source STRING -- whether returned_ms is exact (a line shows the return), at_most (a later line
                -- shows the replica in the ISR) or at_least (the replica left before change_time)
            min_insync_replicas INT -- min.insync.replicas, printed when the topic's log was created, or at the leader's
                -- start
            under_min_isr BOOLEAN -- whether isr_after is under min ISR, according to min_insync_replicas or the
                -- leader's own log line
            under_min_isr_ms BIGINT -- time from the shrink until the ISR had min_insync_replicas members again; null if
                -- the log does not show it
            under_min_isr_source STRING -- whether under_min_isr_ms is exact, at_most (an upper bound) or at_least (a
                -- lower bound)
            write_outcome STRING -- outcome of the ISR write: done or failed; null if no line shows it
            retry BOOLEAN NOT NULL -- true if the leader repeats a shrink whose ISR write had failed
            failing_ms BIGINT -- for the first of several failed writes: time until the last of them; all this time,
                -- the leader did not know that it no longer led
            check_replicas INT -- number of rows from the same check of this leader; null for changes by the controller,
                -- for retries, and for a replica that did not lag
            check_partitions INT -- number of partitions that the same check shrank
            check_followers INT -- number of followers that the same check dropped
            check_late_ms BIGINT -- delay of the check against the schedule of the leader's other checks, which shows
                -- that its process was held up; null if the schedule is unknown
            storm_time TIMESTAMP -- time of the first shrink of the storm that this row belongs to: checks of leaders,
                -- near in time, with a broker in common
            pair_checks INT NOT NULL -- number of checks in the whole log in which this leader dropped this replica: a
                -- large number means flapping
            suspect STRING -- likely culprit: leader, follower, link_or_follower (indistinguishable), controller, or
                -- unknown (the server.log of a broker that may have dropped the same replica is missing); null for a
                -- retry, for a replica that did not lag, and if made_by is unknown
            suspect_broker INT -- broker id of the suspect; for link_or_follower, the follower's; null for controller
                -- and unknown
            strength STRING NOT NULL -- how strong the evidence against the suspect is: strong, weak or none
            spurious STRING NOT NULL -- how strong the evidence is that the follower should not have been dropped:
                -- strong, weak or none
            reason STRING NOT NULL -- why the suspect is suspected, in a sentence
            evidence_lines ARRAY<STRING> NOT NULL -- log lines that support the reason, as file:line
            after_event STRING -- event that the shrink followed within two lag times: topic_created, restart (of leader
                -- or replica) or election
            after_event_ms BIGINT -- time from after_event to the shrink
            trouble STRING -- why the replica could not fetch, according to its own log in the minute before the shrink:
                -- record_too_large, log_dir_failed, corrupt_record, fetcher_died, not_connected, fetch_failed,
                -- stale_epoch, truncated
            trouble_line STRING -- the line that shows the trouble, as file:line
        """),
        *SOURCE,
        DATE,
    ),
    {
        "partition_from_0": "partition_id >= 0",
        "made_by_known": "made_by IN ('leader', 'controller', 'unknown')",
        "shrink_leaves_isr": "array_contains(isr_before, replica_id) AND NOT array_contains(isr_after, replica_id)",
        "returned_source_known": "returned_source IN ('exact', 'at_most', 'at_least')",
        "suspect_known": "suspect IN ('leader', 'follower', 'link_or_follower', 'controller', 'unknown')",
        "strength_known": "strength IN ('strong', 'weak', 'none') AND spurious IN ('strong', 'weak', 'none')",
        "write_outcome_known": "write_outcome IN ('done', 'failed')",
    },
    ("event_date",),
)

BROKER_TROUBLES = Table(
    "broker_troubles",
    "A line in a broker's own logs about trouble that may have stopped its work, or about a consequence: a pause of "
    "its JVM (gc.log), a lost session, a failed disk, lack of memory, or a write that was refused for lack of "
    "replicas",
    (
        *key_columns("cluster_id", "broker_id"),
        *columns("""
            kind STRING NOT NULL -- pause (of the JVM, of 10 ms or more), session_expired (of ZooKeeper),
                -- heartbeat_failed (to the KRaft controller), log_dir_failed, out_of_memory, or under_min_isr (a
                -- partition had fewer replicas in sync than min.insync.replicas)
            from_time TIMESTAMP NOT NULL -- start of a pause; for other kinds, the timestamp of the line
            until_time TIMESTAMP NOT NULL -- end of a pause; for other kinds, the same as from_time
            what STRING NOT NULL -- for a pause, the reason as the JVM names it; for under_min_isr, the partition, its
                -- ISR and the minimum; for other kinds, the line
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
