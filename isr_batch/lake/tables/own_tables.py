"""Contracts of tables for clusters whose fetches come from a user's own table: mappings, sources, and daily sums."""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, SET, Column, Table, columns, key_columns
from isr_batch.lake.tables.leaders import LEADER_EPOCHS

MAPPED_CLUSTERS = Table(
    "mapped_clusters",
    "A cluster whose fetches come from a user's own table, through a mapping: the columns and settings that the "
    "mapping has",
    (
        *key_columns("cluster_id"),
        *columns("""
            mapped STRING NOT NULL -- columns that the mapping has, as JSON, with a list for each of fetches, appends,
                -- epochs and changes. All sources of a cluster are read with the same columns. Key `sources` has the
                -- columns of the user's tables, or the constant, that each was read from
            replica_lag_time_max_ms BIGINT NOT NULL -- replica.lag.time.max.ms of terms for which the tables give none
            lag_time_is_given BOOLEAN NOT NULL -- true if replica_lag_time_max_ms is from the mapping, false if it is
                -- Kafka's default
            min_insync_replicas INT NOT NULL -- min.insync.replicas of terms for which the tables give none
            min_isr_is_given BOOLEAN NOT NULL -- true if min_insync_replicas is from the mapping, false if it is Kafka's
                -- default
            broker_version STRING -- Kafka version of terms for which the tables give none; null if the mapping gives
                -- none either
            observers STRING -- brokers that the mapping lists as observers, whose replicas fetch but never join an ISR:
                -- JSON with a list for each topic (t) or partition (t-0), or one list with an empty name for all
            ingest_run STRING NOT NULL -- run_id of the ingest that wrote this row
        """),
    ),
)

_OPTIONAL = tuple(
    Column(column.name, column.type, column.comment)
    for column in LEADER_EPOCHS.columns
    if column.name in {
        "end_time", "start_offset", "start_high_watermark", "assigned", "isr_at_start", "previous_leader_id",
        "replica_lag_time_max_ms", "min_insync_replicas", "broker_version", "check_origin_ms", "check_origin_source",
        "isr_write_ms", "metadata_delay_ms",
    }
)  # fmt: skip

GIVEN_TERMS = Table(
    "given_terms",
    "A leader's term from the table that a user's mapping names as `epochs`; leader_epochs is derived from these terms "
    "and from the fetches",
    (*SET, *columns("start_time TIMESTAMP NOT NULL -- when the leader's term began"), *_OPTIONAL, DATE),
    {
        **KEY_CHECKS,
        "leader_assigned": "array_contains(assigned, leader_id)",
        "lag_time_positive": "replica_lag_time_max_ms > 0",
        "check_origin_source_known": "check_origin_source IN ('shrinks', 'startup', 'removals', 'given', 'unknown')",
    },
    ("event_date",),
)

FETCH_DAYS = Table(
    "fetch_days",
    "Summary of a day's fetches of a follower from a leader in a partition; derived from fetch_log and append_log as "
    "needed",
    (
        *SET,
        *columns("""
            span_number INT NOT NULL -- number, from 0, of the span of this day in which the leader served the
                -- partition; a span ends when another leader serves it
            replica_id INT NOT NULL -- follower that fetched; in a row about appends, the leader
            first_time TIMESTAMP NOT NULL -- arrival of the follower's first fetch in the span; in a row about appends,
                -- the first append
            last_time TIMESTAMP NOT NULL -- completion of the follower's last fetch in the span; in a row about appends,
                -- the last append
            first_offset BIGINT -- fetch offset of the follower's first fetch in the span; null in a row about appends
            fetches BIGINT NOT NULL -- number of fetches in the span; in a row about appends, of appends
            made_from STRING NOT NULL -- hash of the names of the data files of fetches and appends from which this row
                -- was derived
        """),
        DATE,
    ),
    KEY_CHECKS,
    ("event_date",),
)

INGESTED_SOURCES = Table(
    "ingested_sources",
    "A file or table whose rows are in the lake, so that it need not be read again; reading it again would change "
    "nothing",
    (
        *columns("""
            source STRING NOT NULL -- path or table name, as given to `ingest table` or named in the mapping
            item STRING NOT NULL -- file of the source, or the source itself if it is a table
            version STRING NOT NULL -- how a change of the item is recognized: size and modification time of a file, or
                -- version of a table; empty if it has none
            became STRING NOT NULL -- table of the lake that has the item's rows: fetch_log, append_log, given_terms or
                -- observed_isr_changes
            read_as STRING NOT NULL -- hash of the mapping, its `where`, and the requested days
            ingest_run STRING NOT NULL -- run_id of the ingest that read the item
        """),
    ),
)

OWN_TABLES = (MAPPED_CLUSTERS, GIVEN_TERMS, FETCH_DAYS, INGESTED_SOURCES)
