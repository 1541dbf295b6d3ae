"""Table of the brokers that could lead a partition if its leader died, under each rule."""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, RULE, SET, Table, columns

ELIGIBLE_LEADERS = Table(
    "eligible_leaders",
    "Who could lead a partition cleanly if its leader died under a rule (KIP-966): from from_time until until_time, "
    "while a replica is outside the ISR",
    (
        *SET,
        *RULE,
        *columns("""
            from_time TIMESTAMP NOT NULL -- what the row says holds from here
            until_time TIMESTAMP NOT NULL -- until here: the next row, a UTC midnight, the end of the term, or the ISR
                -- is whole again
            isr ARRAY<INT> NOT NULL -- in-sync replicas under this rule, as in partition_timeline
            min_insync_replicas INT -- in force; not more than there are replicas
            elr_enabled BOOLEAN -- whether the cluster has eligible leader replicas; null where nothing tells
            elr_source STRING NOT NULL -- where that comes from: given (setting replay.elr), recorded (metadata log),
                -- release (none before 4.0), logged (a leader printed some), snapshot (kafka-topics
                -- --describe did), or unknown
            elr ARRAY<INT> -- eligible leader replicas by this rule's own ISR; empty where the cluster has none, null
                -- where elr_enabled is, or where nothing tells what it was when the log began
            heir_id INT -- who would lead: the first active member of the ISR in order of assignment, else of elr;
                -- null: nobody, or unknown
            offline_if_leader_dies BOOLEAN -- nobody would; null: unknown, as elr is, and nobody else is in the ISR
            elr_if_on ARRAY<INT> -- eligible leader replicas if the cluster had them from the start; null as elr
            heir_if_on INT -- who would lead then; null: nobody, or elr_if_on is null
            heir_if_off INT -- who would lead if it had none; null: nobody
            lost_records_max BIGINT -- of a time under min.insync.replicas: most acknowledged records that the heir
                -- lacked (acks=all: below the high watermark; acks=0 and 1: appended); null where its log end is not
                -- known
            lost_time TIMESTAMP -- when it first lacked so many; null where it lacked none
            elr_below_high_watermark INT -- of a time under min.insync.replicas: eligible leader replicas whose log
                -- ended below the high watermark, which KIP-966 says is never so
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
