"""The contract of ``controller_records``: metadata records that affect which brokers may lead a partition."""

from isr_batch.lake.tables.contract import DATE, SOURCE, Table, columns, key_columns

CONTROLLER_RECORDS = Table(
    "controller_records",
    "A record of the metadata log that affects which broker may lead a partition: its state, or a setting of KIP-966",
    (
        *key_columns("cluster_id"),
        *columns("""
            record_time TIMESTAMP NOT NULL -- when the controller wrote the record; for kind noted, when a leader logged
                -- the state; for kind listed, when the first term begins
            record_offset BIGINT -- offset in the metadata log, which orders records of the same time; null for kinds
                -- noted and listed
            kind STRING NOT NULL -- kind of record: partition (the state of a partition after a record), cleared
                -- (CLEAR_ELR_RECORD: no replica is eligible until the ISR changes), min_isr (min.insync.replicas is
                -- set), elr_version, metadata_version (a feature's level), unclean_restart (a broker registers again
                -- without a controlled shutdown before: it may have lost records), noted (the state in a leader's own
                -- log), min_isr_in_force (a broker has this min.insync.replicas of a topic from now on), listed (the
                -- state that kafka-topics --describe printed, at an unknown time)
            topic STRING -- topic; null for all topics, or, for kind min_isr, for all topics without their own setting
            partition_id INT -- partition; null for all partitions
            broker_id INT -- for unclean_restart and min_isr_in_force, the broker; for noted, the leader
            value INT -- level of the feature, or min.insync.replicas (null if it is no longer set)
            leader_id INT -- for partition, noted and listed: the leader, or -1 for a partition without a leader
            leader_epoch INT -- Kafka's leader epoch after the record
            assigned ARRAY<INT> -- assigned replicas after the record, in the order in which an election prefers them
            isr ARRAY<INT> -- in-sync replicas after the record
            elr ARRAY<INT> -- eligible leader replicas (KIP-966) after the record: replicas outside the ISR that have
                -- every committed record
            last_known_elr ARRAY<INT> -- the last known leader, while the partition has none
            leader_recovery_state INT -- Kafka's LeaderRecoveryState: 1 since an unclean election, until the leader has
                -- recovered
            election STRING -- where the record changes the leader, the kind of replica elected: in_sync (a member of
                -- the ISR), eligible (an eligible leader replica, the ISR being empty; clean as well),
                -- last_known_leader (the last leader, when ISR and ELR were empty; unclean), unclean (a replica that
                -- may lack committed records), nobody (the partition has no leader)
        """),
        *SOURCE,
        DATE,
    ),
    {
        "kind_known": "kind IN ('partition', 'cleared', 'min_isr', 'elr_version', 'metadata_version', "
        "'unclean_restart', 'noted', 'min_isr_in_force', 'listed')",
        "election_known": "election IN ('in_sync', 'eligible', 'last_known_leader', 'unclean', 'nobody')",
    },
    ("event_date",),
)
