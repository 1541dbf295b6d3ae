"""The ledger's tables: what each rule got right, got wrong and cost. docs/verdicts.md has the definitions."""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, RULE, SET, Column, Table, columns, key_columns


def _counts(**comments: str) -> tuple[Column, ...]:
    return tuple(Column(name, "BIGINT", comment) for name, comment in comments.items())


def _measures(**comments: str) -> tuple[Column, ...]:
    return tuple(Column(name, "DOUBLE", comment) for name, comment in comments.items())


PARTITION_SCORES = Table(
    "partition_scores",
    "Cost of a rule on one replica set on one UTC day, counted in the replay; rule_scores sums these",
    (
        *SET,
        *RULE,
        DATE,
        *_counts(
            exposure_us="time that the leader's term covers of this day, microseconds, as all times here",
            under_min_isr_us="time with fewer in-sync replicas than min.insync.replicas, or than there are replicas",
            at_min_isr_us="time with exactly as many",
            leader_alone_us="time with the leader alone in the ISR; eligible_leaders says who could lead if it died",
            under_replicated_us="time with a replica outside the ISR",
            high_watermark_stalled_us="time with the high watermark below the log end",
            loss_exposed_us="time in which a clean election could lose acknowledged records",
            loss_records_max="most acknowledged records that a clean election would lose",
            isr_writes="ISR writes that the rule asks for; several followers may leave in one",
            refused_appends="acks=all appends that min.insync.replicas refuses",
            acknowledged_appends="other acks=all appends that the high watermark reached on this day",
            never_acknowledged="other acks=all appends still waiting after a lag time when the term ended",
            acks_all_latency_max_us="longest wait of an acknowledged one; 0 without one",
            high_watermark_decreases="times that the high watermark goes down",
            members_below_high_watermark="times that an ISR member's log end falls below the high watermark",
            passed_within_lag_time="times that the high watermark passes a follower whose true lag is within it",
            leader_outside_isr="states with the leader outside the ISR",
            isr_outside_assignment="states with a replica in the ISR that is not assigned",
        ),
        *columns("""
            first_violation_time TIMESTAMP -- when the first of these promises was broken; null when none was
            first_violation STRING -- name of that column
            acks_all_latencies ARRAY<STRUCT<latency_ms: DOUBLE, appends: BIGINT>> -- acknowledged acks=all appends by
                -- latency, in buckets of a sixteenth of their value at most
        """),
    ),
    {**KEY_CHECKS, "exposure_covers": "exposure_us >= greatest(under_min_isr_us + at_min_isr_us, leader_alone_us)"},
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
        *_counts(
            judged_us="time in which its answers count, microseconds: not before the follower is heard of",
            agreed_us="time in which the rule had it in the ISR if and only if true-lag would: right by lag",
            misses="genuine failures that the rule left in the ISR for more than 1.5 lag times",
            agreed_by_blame_us="time in which the rule was right by blame: not from a spurious shrink until the "
            "follower is back, and not after a miss",
            early="spurious shrinks, not by a slow leader, of a follower that was then silent for a lag time",
        ),
    ),
    {**KEY_CHECKS, "agreed_within_judged": "greatest(agreed_us, agreed_by_blame_us) <= judged_us"},
    ("event_date",),
)

_SCORES = (
    *_measures(
        exposure_partition_hours="hours x partitions that the log covers: the denominator of rates",
        exposure_follower_hours="hours x followers in which the rule's answers count",
    ),
    *_counts(
        shrinks="shrinks that the rule makes",
        spurious="shrinks judged spurious: the mistakes",
        genuine="shrinks judged genuine",
        excluded="shrinks made by the controller",
        unknown="shrinks that the log cannot judge",
        possible="shrinks, of any verdict, that depend on when the check ran or on an order that timestamps leave open",
        caught_up="shrinks for which this cause holds; several may hold for one, so that these do not add up",
        keeping_pace="shrinks for which this cause holds",
        slow_leader="shrinks for which this cause holds",
        unacked_only="shrinks for which this cause holds",
        follower_stopped="shrinks with this cause, which holds alone",
        follower_slow="shrinks with this cause, which holds alone",
        early="spurious shrinks, not by a slow leader, of a follower that was then silent for a lag time: it had died",
        expands="expands that the rule makes",
        relinquishes="times the leader gives up leadership",
        timely="genuine shrinks within 1.5 lag times",
        misses="genuine failures never removed, or later than 1.5 lag times",
    ),
    *_measures(
        mistakes_per_partition_day="spurious shrinks per exposure",
        mistakes_per_partition_day_low="lower end of its 95 % interval, by bootstrap over broker pair and hour",
        mistakes_per_partition_day_high="upper end; 3 per exposure if no shrink was spurious",
        mistake_interval_ms_p50="time between mistakes on one follower of one partition, median",
        mistake_duration_ms_p50="time from a spurious shrink until the follower is back, median",
        mistake_duration_ms_p99="the same, 99th percentile",
        mistake_duration_ms_max="the same, longest",
        query_accuracy="share of time in which `in sync?` is right by lag: it agrees with true-lag",
        query_accuracy_by_blame="the same by blame: wrong are the time from a spurious shrink until the follower is "
        "back, and the time after a miss",
        detection_ms_p50="time from a genuine failure to its shrink, median",
        detection_ms_p99="the same, 99th percentile",
        detection_ms_max="the same, longest",
        precision="by blame: genuine by genuine and spurious",
        precision_by_lag="by lag: of the genuine and spurious, the share with a true lag above the lag time",
        recall="by blame: timely ones, by those and misses",
    ),
    *_counts(
        flaps="shrinks undone within the rule's lag time",
        isr_changes="all changes of the ISR",
        metadata_writes="records or znodes written for them",
        notifications="notifications that a broker before 3.0 would have sent, after its brakes of 2.5 s, 5 s and 60 s",
        isr_write_requests="requests that carry these writes: since 2.7 a broker has one AlterPartition request in "
        "flight, and the next one takes all that waited; before, a ZooKeeper write each. 5 ms until the answer, unless "
        "isr_write_latency_ms says otherwise",
        isr_write_requests_peak_per_second="most requests that one broker sends within a second; null without any",
        isr_writes_in_request_max="most partitions in one request; null without any",
        refused_appends="acks=all appends that min.insync.replicas refuses",
        never_acknowledged="acks=all appends never acknowledged",
    ),
    *_measures(
        under_min_isr_seconds="time with fewer in-sync replicas than min.insync.replicas",
        at_min_isr_seconds="time with exactly as many",
        leader_alone_seconds="time with the leader alone in the ISR; eligible_leaders says who could lead if it died",
        leader_alone_with_heir_seconds="of that, time in which an eligible leader replica could; null in experiments",
        offline_if_leader_dies_seconds="time in which no replica could lead if the leader died; null if partly "
        "unknown; in experiments, whose clusters have no ELR, the time with the leader alone",
        under_replicated_seconds="time with a replica outside the ISR; Kafka's UnderReplicatedPartitions, summed up",
        high_watermark_stalled_seconds="time with the high watermark below the log end",
        acks_all_latency_ms_p50="time from append to acknowledgement of acks=all appends, median",
        acks_all_latency_ms_p99="the same, 99th percentile",
        acks_all_latency_ms_max="the same, longest",
        loss_exposed_seconds="time in which a clean election could lose acknowledged records",
        unclean_needed_seconds="time in which no replica could lead cleanly if the leader died, and one could "
        "uncleanly; null if partly unknown; in experiments, the time with the leader alone",
        high_watermark_frozen_seconds="time in which a rule that freezes the high watermark under min.insync.replicas "
        "hid records from consumers; null for other rules, in sweeps, in experiments, and where it never was under it",
        visibility_age_ms_max="greatest age of the oldest record that was hidden so",
        visibility_age_ms_mean="its mean over that time",
        hidden_record_seconds="records hidden so, times how long each was",
    ),
    *_counts(
        loss_records_max="most acknowledged records that a clean election would lose",
        lost_if_leader_dies_records_max="most acknowledged records, also of acks=0 and 1, that the heir lacked "
        "while the ISR was under min.insync.replicas; null in sweeps, and where no log end is known then",
        lost_by_first_active_records_max="most acknowledged records that the first active replica in order of "
        "assignment, which an unclean election takes, lacked while there was no heir; null as the column before",
        lost_by_longest_log_records_max="the same if the active replica with the longest log led (KIP-966, part 2); "
        "null where an active replica's log end is unknown",
        high_watermark_decreases="violations of: the high watermark never decreases",
        isr_members_below_high_watermark="violations of: every ISR member's log end reaches the high watermark",
        lag_guarantee_violations="violations of: a follower lagging less than the lag time is in the pseudo-ISR",
        leader_outside_isr="violations of: the leader is in the ISR",
        isr_outside_assignment="violations of: the ISR is within the assignment",
    ),
    Column("first_violation", "STRING", "where to see the first violated invariant"),
)

_SCORE_CHECKS = {
    "verdicts_add_up": "shrinks = spurious + genuine + excluded + unknown",
    "exposure_not_negative": "exposure_partition_hours >= 0",
}

RULE_SCORES = Table(
    "rule_scores",
    "Accuracy and cost of a rule with these parameters: one row per day and topic, and totals",
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
    "The same for each leader, and for each follower (without the columns that concern the whole partition)",
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
            experiment STRING NOT NULL -- name of its file
            scenario STRING NOT NULL -- name of the scenario
            seed BIGINT NOT NULL -- seed of the random numbers; the same seed gives the same result
        """),
        *RULE,
        *columns("""
            simulated_hours DOUBLE NOT NULL -- from the first event to the last
            last_change_seconds DOUBLE -- from the start to the last change of an ISR; null without one
            under_replicated_partitions DOUBLE -- Kafka's UnderReplicatedPartitions, mean over the time
            shrink_interval_ms_p50 DOUBLE -- time between shrinks of one follower of one partition, median
        """),
        *_SCORES,
    ),
    _SCORE_CHECKS,
)

_SWEEP = Column("sweep", "STRING", "name of the grid's file", nullable=False)
_CLASS = Column("topic_class", "STRING", "class of topics by the grid; all, where it has no classes", nullable=False)
_FOLLOWER_DAY = _measures(
    mistakes_per_follower_day="spurious shrinks per exposure_follower_hours, in days; null where that is 0",
    mistakes_per_follower_day_low="lower end of its 95 % interval: the lower of the Poisson one and the bootstrap",
    mistakes_per_follower_day_high="upper end: the higher of the two",
)
_NEVER_REMOVED = Column("never_removed", "BIGINT", "misses that no later shrink ended")
_UNKNOWN_SHARE = Column("unknown_share", "DOUBLE", "unknown shrinks / all shrinks of the rule; null when it makes none")

SWEEP_SCORES = Table(
    "sweep_scores",
    "Accuracy and cost of a rule with these parameters: one row per run of a sweep and class of topics",
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
    "The smallest lag time within the budgets, or why none fits: one row per class of topics, rule and its parameters",
    (
        _SWEEP,
        *key_columns("cluster_id"),
        _CLASS,
        RULE[0],
        *columns("""
            other_params_json STRING NOT NULL -- parameters except the lag time, as JSON with sorted keys
            answer STRING NOT NULL -- recommended, not enough data, or none fits
            recommended_lag_time_max_ms BIGINT -- smallest lag time that fits; null when none does
            why STRING NOT NULL -- the answer in a sentence
        """),
        *_measures(
            mistakes_per_follower_day_budget="greatest allowed upper end of the interval",
            detection_ms_p99_budget="greatest allowed 99th percentile of the detection time",
            needed_follower_hours="exposure after which the mistakes would be within the budget, without further ones",
        ),
        *columns("""
            replica_lag_time_max_ms BIGINT NOT NULL -- lag time of these figures: the nearest to fit
        """),
        *_measures(exposure_follower_hours="hours x followers in which the rule's answers count"),
        *_counts(spurious="shrinks judged spurious: the mistakes"),
        *_FOLLOWER_DAY,
        *_counts(genuine="shrinks judged genuine"),
        _NEVER_REMOVED,
        *_measures(detection_ms_p99="time from a genuine failure to its shrink, 99th percentile"),
        _UNKNOWN_SHARE,
    ),
    {
        "answer_known": "answer IN ('recommended', 'not enough data', 'none fits')",
        "recommended_when_it_says_so": "(answer = 'recommended') = (recommended_lag_time_max_ms IS NOT NULL)",
    },
)
