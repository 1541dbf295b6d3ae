"""Table of the brokers that could lead a partition if its leader died, under each rule."""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, RULE, SET, Table, columns

ELIGIBLE_LEADERS = Table(
    "eligible_leaders",
    "The broker that would be elected cleanly under a rule if the partition's leader died between from_time and "
    "until_time (KIP-966); rows exist for the times in which a replica is outside the ISR",
    (
        *SET,
        *RULE,
        *columns("""
            from_time TIMESTAMP NOT NULL -- start of the time that the row describes
            until_time TIMESTAMP NOT NULL -- end of that time: the next row, a UTC midnight, the end of the term, or the
                -- return of the last missing replica
            isr ARRAY<INT> NOT NULL -- in-sync replicas under this rule, as in partition_timeline
            min_insync_replicas INT -- min.insync.replicas in force, at most the number of replicas
            elr_enabled BOOLEAN -- whether the cluster has eligible leader replicas; null if unknown
            elr_source STRING NOT NULL -- source of elr_enabled: given (setting replay.elr), recorded (metadata log),
                -- release (none before 4.0), logged (a leader printed some), snapshot (kafka-topics --describe did), or
                -- unknown
            elr ARRAY<INT> -- eligible leader replicas as they follow from this rule's ISR; empty if the cluster does
                -- not have the feature; null if elr_enabled is null, or if the ELR at the start of the log is unknown
            heir_id INT -- the broker that would lead: the first active member of the ISR in order of assignment;
                -- without one, of elr. Null if no broker would lead, or if that is unknown
            offline_if_leader_dies BOOLEAN -- true if no broker would lead; null if unknown, because elr is unknown and
                -- the ISR has no other member
            elr_if_on ARRAY<INT> -- eligible leader replicas if the cluster had had the feature from the start; null if
                -- the ELR at the start is unknown
            heir_if_on INT -- the broker that would lead with elr_if_on; null if no broker would, or if elr_if_on is
                -- null
            heir_if_off INT -- the broker that would lead without ELR; null if no broker would
            lost_records_max BIGINT -- for a time under min.insync.replicas: the most acknowledged records that the heir
                -- lacked (with acks=all, records below the high watermark; with acks=0 or 1, all appended records);
                -- null if its log end is unknown
            lost_time TIMESTAMP -- when the heir first lacked lost_records_max records; null if it lacked none
            elr_below_high_watermark INT -- for a time under min.insync.replicas: number of eligible leader replicas
                -- whose log ended below the high watermark; by KIP-966 it is always 0
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
