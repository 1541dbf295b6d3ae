"""Contracts of the tables with each rule's accuracy and cost: ledger and scores (see docs/verdicts-reasoning.md)."""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, RULE, SET, Column, Table, columns, key_columns


def _count_columns(**comments: str) -> tuple[Column, ...]:
    """Return BIGINT columns, given their comments by column name."""
    return tuple(Column(name, "BIGINT", comment) for name, comment in comments.items())


def _measure_columns(**comments: str) -> tuple[Column, ...]:
    """Return DOUBLE columns, given their comments by column name."""
    return tuple(Column(name, "DOUBLE", comment) for name, comment in comments.items())


PARTITION_SCORES = Table(
    "partition_scores",
    "Cost of a rule on one replica set on one UTC day, counted in the replay; rule_scores has the sums",
    (
        *SET,
        *RULE,
        DATE,
        *_count_columns(
            exposure_us="time of this day that the leader's term covers, in microseconds like all times in this table",
            under_min_isr_us="time with fewer in-sync replicas than min.insync.replicas (or than the partition has "
            "replicas, if that is less)",
            at_min_isr_us="time with exactly min.insync.replicas in-sync replicas",
            leader_alone_us="time with the leader alone in the ISR; eligible_leaders names the broker that could "
            "replace it",
            under_replicated_us="time with a replica outside the ISR",
            high_watermark_stalled_us="time with the high watermark below the log end",
            stalled_under_min_isr_us="part of high_watermark_stalled_us with fewer in-sync replicas than "
            "min.insync.replicas",
            loss_exposed_us="time in which a member of the ISR lacked records below the high watermark, or, under a "
            "rule that acknowledges earlier, acknowledged records",
            loss_records_max="most of these records that a member of the ISR lacked: a clean election of this member "
            "would lose them",
            isr_writes="ISR writes that the rule causes; one write may remove several followers",
            refused_appends="acks=all appends that min.insync.replicas refuses",
            acknowledged_appends="acks=all appends that were accepted, and acknowledged on this day",
            never_acknowledged="accepted acks=all appends that had waited for more than a lag time when the term ended",
            acks_all_latency_max_us="longest time from an acks=all append until it was acknowledged; 0 if none was",
            acks_all_waits_1s_us="time in which an acks=all request sent 1 s before would still be unanswered, whether "
            "one was sent or not; without the time under min.insync.replicas, in which requests are refused; "
            "null if the log has one instant per fetch",
            acks_all_waits_30s_us="the same for a request sent 30 s before, the default of request.timeout.ms",
            acks_all_waits_1s_silent_us="part of acks_all_waits_1s_us in which the leader itself was silent",
            acks_all_wait_max_us="longest wait of an acks=all request that is answered on this day, whether one was "
            "sent or not; 0 if it is at most 1 s",
            acks_all_wait_unknown_us="time in which no fetch is known, so that it is not known for how long an "
            "acks=all request would wait",
            acks_all_unanswered_us="for how long acks=all requests would be sent that are unanswered when the term "
            "ends",
            lost_by_heir_max="most acknowledged records, also of acks=0 and 1, that the first active member of the ISR "
            "lacked while the ISR was under min.insync.replicas, or while the rule acknowledged records above the high "
            "watermark; -1 if none is known",
            lost_by_first_active_max="most acknowledged records that the first active replica lacked while the "
            "leader was alone in the ISR: an unclean election takes it, without eligible leader replicas; -1 if "
            "none is known",
            lost_by_longest_log_max="most acknowledged records that the active replica with the longest log lacked "
            "while the leader was alone in the ISR; -1 if none is known",
            high_watermark_decreases="how often the high watermark decreased",
            members_below_high_watermark="how often the log end of an ISR member fell below the high watermark",
            passed_within_lag_time="how often the high watermark passed a follower whose true lag was within the lag "
            "time",
            leader_outside_isr="number of states in which the leader was not in the ISR; should always be 0",
            isr_outside_assignment="number of states in which the ISR had a replica that is not assigned; should "
            "always be 0",
        ),
        *columns("""
            first_violation_time TIMESTAMP -- when the first of the five invariants above (high_watermark_decreases to
                -- isr_outside_assignment) was violated; null if none was
            first_violation STRING -- name of the column that counts the violation at first_violation_time
            acks_all_latencies ARRAY<STRUCT<latency_ms: DOUBLE, appends: BIGINT>> -- number of acks=all appends that the
                -- high watermark reached, by latency, in buckets no wider than a sixteenth of the latency
            acks_all_waits ARRAY<STRUCT<wait_ms: DOUBLE, time_us: BIGINT>> -- latency over time: for how long acks=all
                -- requests would be sent that wait for wait_ms and are answered on this day, in the same buckets, but
                -- with waits of up to 1 s in one of 0 ms; without the time under min.insync.replicas,
                -- acks_all_wait_unknown_us and acks_all_unanswered_us; null if the log has one instant per fetch
        """),
    ),
    {
        **KEY_CHECKS,
        "exposure_covers": "exposure_us >= greatest(under_min_isr_us + at_min_isr_us, leader_alone_us, "
        "under_min_isr_us + acks_all_waits_1s_us)",
    },
    ("event_date",),
)

REPLICA_SCORES = Table(
    "replica_scores",
    "Accuracy of a rule about one follower on one UTC day, counted in the replay",
    (
        *SET,
        *RULE,
        Column("replica_id", "INT", "follower", nullable=False),
        DATE,
        *_count_columns(
            judged_us="time, in microseconds, in which the rule's answer to `is the follower in sync?` is scored: for "
            "a member of the ISR, from a lag time after the start of the term at the latest, for others from their "
            "first fetch on; without the time in which the follower was fenced or shutting down",
            agreed_us="time in which the rule agreed with the rule true-lag on whether the follower is in sync: "
            "right by lag",
            misses="genuine failures that the rule left in the ISR for more than 1.5 lag times",
            agreed_by_blame_us="time in which the rule was right by blame: all but the time from a spurious shrink "
            "until the follower is back, and the time after a miss",
            early="spurious shrinks, not caused by a slow leader, after which the follower was silent for a lag time: "
            "it had stopped",
            late_in_isr_us="part of judged_us in which the follower was in the ISR with a true lag above the lag time: "
            "KAFKA-4485's second guarantee excludes it",
        ),
    ),
    {**KEY_CHECKS, "agreed_within_judged": "greatest(agreed_us, agreed_by_blame_us) <= judged_us"},
    ("event_date",),
)

_SCORES = (
    *_measure_columns(
        exposure_partition_hours="partition-hours that leaders' terms cover: the denominator of rates",
        exposure_follower_hours="follower-hours in which the rule's decisions are scored",
    ),
    *_count_columns(
        shrinks="shrinks that the rule makes",
        spurious="shrinks with verdict spurious: the mistakes",
        genuine="shrinks with verdict genuine",
        excluded="shrinks made by the controller",
        unknown="shrinks with verdict unknown, because the logs do not show enough",
        possible="shrinks of any verdict that are possible, not certain, such as those that depend on when the check "
        "ran",
        caught_up="shrinks with cause caught_up (spurious); a shrink may have several causes, so that these columns "
        "do not add up",
        keeping_pace="shrinks with cause keeping_pace (spurious)",
        slow_leader="shrinks with cause slow_leader (spurious)",
        unacked_only="shrinks with cause unacked_only (spurious)",
        follower_stopped="shrinks with cause follower_stopped (genuine), which excludes other causes",
        follower_slow="shrinks with cause follower_slow (genuine), which excludes other causes",
        early="spurious shrinks, not caused by a slow leader, after which the follower was silent for a lag time: it "
        "had stopped",
        expands="expands that the rule makes",
        relinquishes="how often the leader gives up leadership",
        timely="genuine shrinks within 1.5 lag times of the failure",
        misses="genuine failures that led to no shrink, or to one after more than 1.5 lag times",
    ),
    *_measure_columns(
        mistakes_per_partition_day="spurious shrinks per partition-day of exposure",
        mistakes_per_partition_day_low="lower end of the 95 % interval of mistakes_per_partition_day, by bootstrap "
        "over groups of one broker pair and hour",
        mistakes_per_partition_day_high="upper end of the 95 % interval of mistakes_per_partition_day; 3 / exposure "
        "if no shrink was spurious",
        mistake_interval_ms_p50="time between mistakes on one follower of one partition, median",
        mistake_duration_ms_p50="time from a spurious shrink until the follower is back, median",
        mistake_duration_ms_p99="time from a spurious shrink until the follower is back, 99th percentile",
        mistake_duration_ms_max="time from a spurious shrink until the follower is back, maximum",
        query_accuracy="share of time in which the rule's answer to `in sync?` is right by lag: it agrees with "
        "true-lag",
        query_accuracy_by_blame="share of time in which the rule's answer is right by blame: all but the time from a "
        "spurious shrink until the follower is back, and the time after a miss",
        detection_ms_p50="time from a genuine failure to its shrink, median",
        detection_ms_p99="time from a genuine failure to its shrink, 99th percentile",
        detection_ms_max="time from a genuine failure to its shrink, maximum",
        precision="share of the judged shrinks that are right by blame: genuine / (genuine + spurious)",
        precision_by_lag="share of the genuine and spurious shrinks that are right by lag: with a true lag above the "
        "lag time",
        recall="share of the genuine failures that are detected in time: timely / (timely + misses)",
    ),
    *_measure_columns(
        late_in_isr_seconds="follower-time in the ISR with a true lag above the lag time: KAFKA-4485's second "
        "guarantee excludes it",
    ),
    *_count_columns(
        flaps="shrinks whose follower was back in the ISR within the rule's lag time",
        isr_changes="all changes of the ISR",
        metadata_writes="metadata records (or znodes, with ZooKeeper) written for the ISR changes",
        notifications="notifications that a broker before 3.0 would have sent, throttled by its limits of 2.5 s, 5 s "
        "and 60 s",
        isr_write_requests="requests from brokers that carry the ISR writes. Since 2.7 a broker has one "
        "AlterPartition request in flight, and the next one carries all changes that have waited; before 2.7 each "
        "change was a ZooKeeper write. The response is assumed to take 5 ms, or the parameter isr_write_latency_ms",
        isr_write_requests_peak_per_second="largest number of ISR write requests that one broker sends within a "
        "second; null without requests",
        isr_writes_in_request_max="largest number of partitions in one ISR write request; null without requests",
        refused_appends="acks=all appends that min.insync.replicas refuses",
        never_acknowledged="acks=all appends that were accepted and never acknowledged",
    ),
    *_measure_columns(
        under_min_isr_seconds="time with fewer in-sync replicas than min.insync.replicas",
        at_min_isr_seconds="time with exactly min.insync.replicas in-sync replicas",
        leader_alone_seconds="time with the leader alone in the ISR; eligible_leaders names the broker that could "
        "replace it",
        leader_alone_with_heir_seconds="part of leader_alone_seconds in which an eligible leader replica could "
        "replace the leader; 0 in experiments, whose clusters have none",
        offline_if_leader_dies_seconds="time in which no replica could lead if the leader died; null if it is "
        "unknown for part of the time; in experiments, the time with the leader alone",
        under_replicated_seconds="time with a replica outside the ISR: the integral of Kafka's "
        "UnderReplicatedPartitions",
        high_watermark_stalled_seconds="time with the high watermark below the log end",
        refused_or_stalled_seconds="time with fewer in-sync replicas than min.insync.replicas, or with the high "
        "watermark below the log end, or both",
        acks_all_latency_ms_p50="time from append to acknowledgement of acks=all appends, median over requests",
        acks_all_latency_ms_p99="time from append to acknowledgement of acks=all appends, 99th percentile over "
        "requests",
        acks_all_latency_ms_max="time from append to acknowledgement of acks=all appends, maximum",
        acks_all_waits_1s_seconds="time in which an acks=all request would wait for more than 1 s, whether one was "
        "sent or not; without the time under min.insync.replicas, in which requests are refused",
        acks_all_waits_30s_seconds="time in which an acks=all request would wait for more than 30 s, the default of "
        "request.timeout.ms; without the time under min.insync.replicas",
        acks_all_waits_1s_silent_seconds="part of acks_all_waits_1s_seconds in which the leader itself was silent",
        acks_all_wait_unknown_seconds="time in which no fetch is known, so that it is not known for how long an "
        "acks=all request would wait",
        no_leader_seconds="time between a leader's term and the next one, the same under every rule; null if the logs "
        "do not show when a leader stopped, when the next one began, or a term in between",
        unavailable_1s_share="share of time in which an acks=all request would be refused, would wait for more than "
        "1 s, or would find no leader; without acks_all_wait_unknown_seconds; null if part of it is null",
        unavailable_30s_share="the same, with waits of more than 30 s",
        acks_all_wait_ms_p50="for how long an acks=all request would wait, median over time, whether one was sent or "
        "not; 0 if at most 1 s. Time in which requests are refused, or in which it is not known, does not count",
        acks_all_wait_ms_p99="for how long an acks=all request would wait, 99th percentile over time; 0 if at most 1 s",
        acks_all_wait_ms_mean="for how long an acks=all request would wait, mean over time; waits of up to 1 s "
        "are included as 0",
        acks_all_wait_ms_max="for how long an acks=all request would wait, maximum; 0 if at most 1 s",
        loss_exposed_seconds="time in which a member of the ISR lacked records below the high watermark, or, under a "
        "rule that acknowledges earlier, acknowledged records",
        unclean_needed_seconds="time in which no replica could lead cleanly if the leader died, and one could "
        "uncleanly; null if partly unknown; in experiments, the time with the leader alone",
        high_watermark_frozen_seconds="time in which a high watermark that the rule freezes under min.insync.replicas "
        "hid records from consumers; null for rules that do not freeze it, in sweeps, and if the ISR never was under "
        "min.insync.replicas",
        visibility_age_ms_max="largest age of the oldest record that a frozen high watermark hid from consumers",
        visibility_age_ms_mean="mean age of the oldest hidden record over high_watermark_frozen_seconds",
        hidden_record_seconds="sum, over the records that a frozen high watermark hid, of how long each was hidden",
    ),
    *_count_columns(
        loss_records_max="most of the records of loss_exposed_seconds that a member of the ISR lacked: a clean "
        "election of this member would lose them",
        lost_if_leader_dies_records_max="most acknowledged records, also of acks=0 and 1, that the heir lacked "
        "while the ISR was under min.insync.replicas, or while the rule acknowledged records above the high watermark; "
        "null in sweeps, and where none is known then",
        lost_by_first_active_records_max="most acknowledged records that the first active replica in order of "
        "assignment, which an unclean election takes, lacked while there was no heir; null under "
        "the conditions given for lost_if_leader_dies_records_max",
        lost_by_longest_log_records_max="most acknowledged records that the active replica with the longest log "
        "lacked while there was no heir (KIP-966, part 2); null where an active replica's log end is unknown",
        high_watermark_decreases="how often the high watermark decreased; should always be 0",
        isr_members_below_high_watermark="how often the log end of an ISR member was below the high watermark",
        lag_guarantee_violations="how often the high watermark passed a follower whose true lag was within the lag "
        "time",
        leader_outside_isr="number of states in which the leader was not in the ISR; should always be 0",
        isr_outside_assignment="number of states in which the ISR had a replica that is not assigned; should always be "
        "0",
    ),
    Column("first_violation", "STRING", "first violated invariant, with its partition and time"),
)

_SCORE_CHECKS = {
    "verdicts_add_up": "shrinks = spurious + genuine + excluded + unknown",
    "exposure_not_negative": "exposure_partition_hours >= 0",
}

RULE_SCORES = Table(
    "rule_scores",
    "Accuracy and cost of a rule with one set of parameters: one row per day and topic, and totals",
    (
        *key_columns("cluster_id"),
        *RULE,
        *columns("""
            event_date DATE -- UTC day; null in totals over days
            topic STRING -- topic; null in totals over topics
        """),
        *_SCORES,
    ),
    _SCORE_CHECKS,
    change_feed=True,
)

RULE_SCORES_BY_BROKER = Table(
    "rule_scores_by_broker",
    "Accuracy and cost of a rule with one set of parameters: one row per day and leader, and one per day and follower; "
    "in the rows of followers, columns that concern the whole partition are null",
    (
        *key_columns("cluster_id"),
        *RULE,
        *columns("""
            event_date DATE -- UTC day; null in totals over days
            leader_id INT -- leader; null in the rows of followers
            replica_id INT -- follower; null in the rows of leaders
        """),
        *_SCORES,
    ),
    {**_SCORE_CHECKS, "leader_or_follower": "(leader_id IS NULL) <> (replica_id IS NULL)"},
)

EXPERIMENT_RESULTS = Table(
    "experiment_results",
    "Results of a rule in a simulated scenario, with the rule in the loop: one row per cell of an experiment's grid",
    (
        *columns("""
            experiment STRING NOT NULL -- name of the experiment's file
            scenario STRING NOT NULL -- name of the scenario
            seed BIGINT NOT NULL -- seed of the random numbers; the same seed gives the same result
        """),
        *RULE,
        *columns("""
            simulated_hours DOUBLE NOT NULL -- simulated time from the first event to the last
            last_change_seconds DOUBLE -- simulated time from the start to the last change of an ISR; null if there was
                -- none
            under_replicated_partitions DOUBLE -- Kafka's UnderReplicatedPartitions, averaged over time
            shrink_interval_ms_p50 DOUBLE -- time between shrinks of one follower of one partition, median
        """),
        *_SCORES,
    ),
    _SCORE_CHECKS,
)

_SWEEP = Column("sweep", "STRING", "name of the grid's file", nullable=False)
_CLASS = Column(
    "topic_class", "STRING", "topic class, as the grid defines it; `all` if the grid defines none", nullable=False
)
_FOLLOWER_DAY = _measure_columns(
    mistakes_per_follower_day="spurious shrinks per follower-day of exposure; null without exposure",
    mistakes_per_follower_day_low="lower end of the 95 % interval of mistakes_per_follower_day: the lower one of "
    "Poisson interval and bootstrap",
    mistakes_per_follower_day_high="upper end of the 95 % interval of mistakes_per_follower_day: the higher one of "
    "Poisson interval and bootstrap",
)
_NEVER_REMOVED = Column("never_removed", "BIGINT", "misses that were not followed by a shrink")
_UNKNOWN_SHARE = Column("unknown_share", "DOUBLE", "unknown shrinks / all shrinks of the rule; null if it makes none")

SWEEP_SCORES = Table(
    "sweep_scores",
    "Accuracy and cost of a rule with one set of parameters: one row for each combination of rule run and topic class "
    "of a sweep",
    (
        _SWEEP,
        *key_columns("cluster_id"),
        _CLASS,
        *RULE,
        Column("replica_lag_time_max_ms", "BIGINT", "lag time of the run", nullable=False),
        *_FOLLOWER_DAY,
        _NEVER_REMOVED,
        _UNKNOWN_SHARE,
        *_SCORES,
    ),
    _SCORE_CHECKS,
)

SWEEP_ADVICE = Table(
    "sweep_advice",
    "The smallest lag time within the budgets, or why no lag time fits them: one row per topic class, rule and set of "
    "its other parameters",
    (
        _SWEEP,
        *key_columns("cluster_id"),
        _CLASS,
        RULE[0],
        *columns("""
            other_params_json STRING NOT NULL -- parameters except the lag time, as JSON with sorted keys
            answer STRING NOT NULL -- kind of advice: recommended, not enough data, or none fits
            recommended_lag_time_max_ms BIGINT -- smallest lag time within both budgets; null if no lag time is
            why STRING NOT NULL -- the advice in a sentence, with its figures
        """),
        *_measure_columns(
            mistakes_per_follower_day_budget="largest allowed value of mistakes_per_follower_day_high",
            detection_ms_p99_budget="largest allowed value of detection_ms_p99",
            needed_follower_hours="follower-hours of log after which the mistakes would be within the budget if no "
            "further mistake occurred",
        ),
        *columns("""
            replica_lag_time_max_ms BIGINT NOT NULL -- lag time that the figures below are for: the recommended one, or
                -- the one that comes nearest to the budgets
        """),
        *_measure_columns(exposure_follower_hours="follower-hours in which the rule's decisions are scored"),
        *_count_columns(spurious="shrinks with verdict spurious: the mistakes"),
        *_FOLLOWER_DAY,
        *_count_columns(genuine="shrinks with verdict genuine"),
        _NEVER_REMOVED,
        *_measure_columns(detection_ms_p99="time from a genuine failure to its shrink, 99th percentile"),
        _UNKNOWN_SHARE,
    ),
    {
        "answer_known": "answer IN ('recommended', 'not enough data', 'none fits')",
        "recommended_when_it_says_so": "(answer = 'recommended') = (recommended_lag_time_max_ms IS NOT NULL)",
    },
)
