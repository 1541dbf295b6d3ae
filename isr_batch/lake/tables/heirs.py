"""The contract of ``eligible_leaders``: the broker (heir) that would become leader under a rule if a leader died."""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, RULE, SET, Table, columns

ELIGIBLE_LEADERS = Table(
    "eligible_leaders",
    "The broker that would be elected cleanly under a rule if the partition's leader died between from_time and "
    "until_time (KIP-966); rows exist for the times in which a replica is outside the ISR",
    (
        *SET,
        *RULE,
        *columns("""
            from_time TIMESTAMP NOT NULL -- start of the time span that the row describes
            until_time TIMESTAMP NOT NULL -- end of the time span: the next row, a UTC midnight, the end of the term, or
                -- the return of the last missing replica
            isr ARRAY<INT> NOT NULL -- in-sync replicas under this rule, as in partition_timeline
            min_insync_replicas INT -- min.insync.replicas in force, at most the number of replicas
            elr_enabled BOOLEAN -- whether the cluster has eligible leader replicas; null if unknown
            elr_source STRING NOT NULL -- source of elr_enabled: given (setting replay.elr), recorded (metadata log),
                -- release (none before 4.0), logged (a leader printed some), snapshot (kafka-topics --describe did), or
                -- unknown
            elr ARRAY<INT> -- eligible leader replicas by this rule's own ISR; empty where the cluster has none, null
                -- where elr_enabled is null, or where the ELR at the start of the log is unknown
            heir_id INT -- the broker that would become leader if the leader died: the first active member of the ISR in
                -- order of assignment, or else of elr; null if no broker could, or if that is unknown
            offline_if_leader_dies BOOLEAN -- true if no replica could be elected cleanly if the leader died, so that
                -- the partition would be offline; null if elr is unknown and the ISR has no other member
            elr_if_on ARRAY<INT> -- eligible leader replicas if the cluster had them from the start; null if the
                -- ELR at the start of the log is unknown
            heir_if_on INT -- the broker that would lead if the cluster had ELR from the start; null if no broker could,
                -- or if elr_if_on is null
            heir_if_off INT -- the broker that would lead if the cluster had no ELR; null if no broker could
            active ARRAY<INT> NOT NULL -- replicas other than the leader whose brokers are active, in order of
                -- assignment; without a clean heir, an unclean election takes the first
            lost_records_max BIGINT -- while the ISR was under min.insync.replicas: largest number of acknowledged
                -- records that the heir lacked (acks=all: below the high watermark; acks=0 and 1: appended); null if
                -- the heir's log end is unknown
            lost_time TIMESTAMP -- when the heir first lacked lost_records_max records; null if it lacked none
            elr_below_high_watermark INT -- while the ISR was under min.insync.replicas: number of eligible
                -- leader replicas whose log ended below the high watermark; by KIP-966 always 0
            lost_by_first_active_max BIGINT -- without a clean heir: largest number of acknowledged records that the
                -- first replica in active lacked; null if its log end is unknown
            lost_by_longest_log_max BIGINT -- without a clean heir: largest number of acknowledged records that the
                -- replica in active with the longest log lacked; null if a log end is unknown
            frozen_us BIGINT -- part of the time span, in microseconds, in which a high watermark that the rule freezes
                -- under min.insync.replicas hid records from consumers; null without timelines
            visibility_age_max_us BIGINT -- largest age, in microseconds, of the oldest record that a frozen high
                -- watermark hid; null if frozen_us is 0
            visibility_age_area DOUBLE -- integral over frozen_us of the age of the oldest hidden record, in square
                -- seconds
            hidden_record_us BIGINT -- sum, over the records that a frozen high watermark hid, of how long each was
                -- hidden, in microseconds
        """),
        DATE,
    ),
    {
        **KEY_CHECKS,
        "time_not_negative": "until_time >= from_time",
        "leader_in_isr": "array_contains(isr, leader_id)",
        "elr_source_known": "elr_source IN ('given', 'recorded', 'release', 'logged', 'snapshot', 'unknown')",
        "offline_without_heir": "NOT (offline_if_leader_dies AND heir_id IS NOT NULL)",
    },
    ("event_date",),
)
