"""Contracts of the input tables: columns, their meaning, and constraints.

One list serves the DDL, the check of an existing table, and the documentation page. Types are
Spark's; ``*_time`` is UTC with microseconds, ``*_ms`` is epoch or duration in milliseconds,
offsets are record offsets.
"""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, SET, SOURCE, Column, Table, columns, key_columns
from isr_batch.lake.tables.controller import CONTROLLER_RECORDS
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS
from udfs.batches.segments import PACKED

FETCH_LOG = Table(
    "fetch_log",
    "A follower's fetch of one partition, as its leader served it (listed in the request, or implied by its session), "
    "or a run of identical ones",
    (
        *SET,
        *columns("""
            replica_id INT NOT NULL -- follower that fetched
            arrival_time TIMESTAMP NOT NULL -- last byte of the request read from the socket
            handled_time TIMESTAMP NOT NULL -- an io thread took the request: Kafka's fetch time
            processed_time TIMESTAMP NOT NULL -- local work done: log read, follower state updated
            released_time TIMESTAMP NOT NULL -- end of the long poll that the follower asked for (processed_time if it
                -- did not wait); what comes after is the leader's delay
            completed_time TIMESTAMP NOT NULL -- response written to the socket
            fetch_offset BIGINT -- offset asked for: the follower's log end offset. Null where no line names it: the
                -- fetch session is older than the log and has not listed the partition yet; without records in the
                -- answer it was the log end
            leader_log_end_offset BIGINT -- leader's log end offset at handled_time, where the input knows it
            leader_leo_source STRING -- logged, appends or inferred: where the leader's log end offset comes from
            high_watermark BIGINT -- high watermark in the response, null when the response did not list the partition
            error_code INT NOT NULL -- Kafka error code of the partition, 0 when the fetch counted; -1 a diverging
                -- epoch; -2 records were sent from an offset that no line names
            run_length INT NOT NULL -- number of identical fetches, one after the other, that the row stands for; view
                -- fetches has them singly
            later_by ARRAY<INT> -- for each fetch of the run after the first, by how much it is later than the one
                -- before: arrival_time, handled_time, processed_time, released_time, completed_time in microseconds,
                -- and source_line; null without such fetches
            last_handled_time TIMESTAMP NOT NULL -- handled_time of the last fetch of the run
        """),
        *SOURCE,
        DATE,
    ),
    {
        **KEY_CHECKS,
        "replica_is_a_broker": "replica_id >= 0",
        "instants_in_order": "arrival_time <= handled_time AND handled_time <= processed_time "
        "AND processed_time <= released_time AND released_time <= completed_time",
        "offset_from_0": "fetch_offset >= 0",
        # Spelt so that no part of it can be null, which would pass.
        "run_told": "run_length = 1 AND later_by IS NULL "
        "OR run_length > 1 AND later_by IS NOT NULL AND size(later_by) = 6 * (run_length - 1)",
        "run_in_order": "if(run_length = 1, last_handled_time = handled_time, last_handled_time > handled_time)",
        "leo_source_known": "leader_leo_source IN ('logged', 'appends', 'inferred')",
    },
    ("event_date",),
)

APPEND_LOG = Table(
    "append_log",
    "An append to the leader's log, or one that it refused",
    (
        *SET,
        *columns("""
            append_time TIMESTAMP NOT NULL -- the log end offset moved (a refused append: when it was refused)
            base_offset BIGINT -- first offset of the append; null when refused
            log_end_offset BIGINT -- leader's log end offset after the append; null when refused
            log_end_source STRING -- what named the end: appends, fetches, shrinks or terms; inferred: shared out, or
                -- one record on
            log_end_error BIGINT -- records by which log_end_offset may be wrong at most; null when refused, or when
                -- nothing bounds it
            acks INT -- acks of the produce request: -1 all, 1, 0; null for an append that no logged request made
            client_id STRING -- client.id of the producer; null for an append that no logged request made
            acknowledged_time TIMESTAMP -- response written to the producer; null without an acknowledgement
            error_code INT NOT NULL -- Kafka error code in the response; an append with an error and an offset still
                -- happened. -1: the log grew by nothing, and the release prints no responses
        """),
        *SOURCE,
        DATE,
    ),
    {
        **KEY_CHECKS,
        "batch_not_empty": "base_offset IS NULL OR log_end_offset > base_offset",
        "acks_known": "acks IN (-1, 0, 1)",
    },
    ("event_date",),
)

FETCH_SEGMENTS = Table(
    "fetch_segments",
    "A stretch of one replica set's fetches and appends, packed: the input of `replay`. It is made from fetch_log and "
    "append_log as needed, and again for days that have changed; udfs/batches/segments.py has the format",
    (
        *SET,
        *columns("""
            segment_number INT NOT NULL -- counts the segments of a replica set in one packing, from 0
            first_time TIMESTAMP NOT NULL -- its first event: arrival of a fetch, or an append
            last_time TIMESTAMP NOT NULL -- its last event
            format_version INT NOT NULL -- format of the binaries
            events BIGINT NOT NULL -- number of fetches (not of runs) and appends
            fetches BIGINT NOT NULL -- fetches among them
            checksum BIGINT NOT NULL -- CRC-32 of the binaries, one after the other
        """),
        *(Column(name, "BINARY", comment) for name, comment in PACKED.items()),
        Column(
            "quiet",
            "BINARY",
            "its quiet stretch, which a replay may pass over; udfs/batches/quiet_rows.py has the format",
        ),
        Column("packed_from", "STRING", "hash of the names of the data files that the day was made of", nullable=False),
        DATE,
    ),
    {**KEY_CHECKS, "fetches_within_events": "fetches BETWEEN 0 AND events", "in_time": "first_time <= last_time"},
    ("event_date",),
)

OBSERVED_ISR_CHANGES = Table(
    "observed_isr_changes",
    "A replica that entered or left the ISR, as the brokers logged it",
    (
        *SET,
        *columns("""
            change_time TIMESTAMP NOT NULL -- the leader's line, the controller's record, or when a line finds it done
            kind STRING NOT NULL -- shrink or expand
            replica_id INT NOT NULL -- replica that left or joined
            isr_before ARRAY<INT> NOT NULL -- in-sync replicas before
            isr_after ARRAY<INT> NOT NULL -- in-sync replicas after
            high_watermark BIGINT -- as printed by the leader's shrink line
            leader_log_end_offset BIGINT -- as printed by the leader's shrink line
            follower_log_end_offset BIGINT -- as printed by the leader's shrink line; -1 when it had not fetched
            last_caught_up_time_ms BIGINT -- as printed by the leader's shrink line
            made_by STRING NOT NULL -- leader or controller
            answered_time TIMESTAMP -- when its leader logged the answer to the ISR write; null without a line
        """),
        *SOURCE,
        DATE,
    ),
    {
        **KEY_CHECKS,
        "kind_known": "kind IN ('shrink', 'expand')",
        "made_by_known": "made_by IN ('leader', 'controller')",
    },
    ("event_date",),
)

BROKER_EVENTS = Table(
    "broker_events",
    "An event of a broker as a whole",
    (
        *key_columns("cluster_id", "broker_id"),
        *columns("""
            event_time TIMESTAMP NOT NULL -- when it happened or began
            end_time TIMESTAMP NOT NULL -- end of a silence; for a check, when it really ran
            kind STRING NOT NULL -- started; silent (did nothing though a request waited, or its followers fetched from
                -- others); quiet (no follower fetched from it, for an unknown reason); check (isr-expiration: due at
                -- event_time, ran at end_time); fenced, unfenced, shutting_down (by the controller)
        """),
        DATE,
    ),
    {
        "kind_known": "kind IN ('started', 'silent', 'quiet', 'check', 'fenced', 'unfenced', 'shutting_down')",
        "not_negative": "end_time >= event_time",
    },
    ("event_date",),
)

PLANTED_FAULTS = Table(
    "planted_faults",
    "A fault that a generated scenario planted in its brokers, and the cause that resulting shrinks must be given",
    (
        *key_columns("cluster_id", "topic"),
        Column("what", "STRING", "kind of fault", nullable=False),
        *key_columns("broker_id"),
        *columns("""
            from_time TIMESTAMP NOT NULL -- it begins
            until_time TIMESTAMP NOT NULL -- it has passed
            expected_cause STRING -- primary cause of its shrinks; empty: it should cause none
        """),
        DATE,
    ),
    {"not_negative": "until_time >= from_time"},
    ("event_date",),
)

QUARANTINE = Table(
    "quarantine",
    "An input line, row or file that was refused, and why; or a line whose rows are doubtful",
    (
        *key_columns("cluster_id"),
        *columns("""
            source_file STRING NOT NULL -- file, relative to the ingested folder
            source_line BIGINT -- line in that file, from 1; null for a whole file
            reason STRING NOT NULL -- what is wrong, in a few fixed words
            detail STRING -- particulars
            raw STRING -- the line itself, cut to 500 characters
            rows_kept BOOLEAN NOT NULL -- a warning: the line was read, and its rows are in the tables
            ingest_run STRING NOT NULL -- run that refused it
        """),
    ),
)

INGESTED_FILES = Table(
    "ingested_files",
    "A log file whose rows the lake holds; written last, so that an ingest that was cut off is done again",
    (
        *key_columns("cluster_id"),
        *columns("""
            source_file STRING NOT NULL -- file, as in the other tables
            kind STRING NOT NULL -- request, server, state-change, metadata, gc, snapshot or properties
            broker_id INT -- broker that wrote it; null for the metadata log
            size_bytes BIGINT NOT NULL -- size on disk
            content_bytes BIGINT NOT NULL -- size unpacked
            content_hash STRING NOT NULL -- SHA-256 of the unpacked content, in hex
            lines BIGINT NOT NULL -- lines in it
            first_time TIMESTAMP -- least timestamp of its lines; null without any
            last_time TIMESTAMP -- greatest timestamp of its lines
            days MAP<DATE, TIMESTAMP> -- UTC days that it covers, and when the lake last changed for each
            first_hashes ARRAY<BIGINT> -- hashes of its first 64, 128, 256, ... bytes: a shorter copy is known by them
            code_version STRING NOT NULL -- version of isr-batch that read it
            ingest_run STRING NOT NULL -- run that wrote this row
        """),
    ),
    {"kind_known": "kind IN ('request', 'server', 'state-change', 'metadata', 'gc', 'snapshot', 'properties')"},
)

KEPT_LINES = Table(
    "kept_lines",
    "A line of server.log or state-change.log about terms and ISRs, kept for three days, and from the last start of "
    "its broker on: later logs go on from it when its file is gone. Also a broker's settings, and the last requests "
    "of each request log",
    (
        *key_columns("cluster_id"),
        *columns("""
            kind STRING NOT NULL -- server, state-change, properties or request
            broker_id INT NOT NULL -- broker that wrote it
            source_file STRING NOT NULL -- file, as in the other tables
            source_line BIGINT NOT NULL -- line in that file, from 1
            stamp_us BIGINT -- its timestamp, in microseconds since 1970; for a request, when an io thread took it; null
                -- for a setting
            message STRING NOT NULL -- the line itself; settings as JSON; of a fetch the follower
                -- and when its leader read its log last, as JSON; of a produce request empty
            line_hash BIGINT -- hash of the line, which copies of it share; null for a setting or a request
        """),
    ),
    {"kind_known": "kind IN ('server', 'state-change', 'properties', 'request')"},
)

SESSION_ENDS = Table(
    "session_ends",
    "The last request of a follower's fetch session in a request log: later logs go on from it",
    (
        *key_columns("cluster_id"),
        *columns("""
            source_file STRING NOT NULL -- file, as in the other tables
            broker_id INT NOT NULL -- leader that wrote it
            replica_id INT NOT NULL -- follower that fetched
            client_id STRING -- client.id of its fetcher thread
            session BIGINT NOT NULL -- id of the session; 0 without one
            error_code INT -- of the request as a whole
            arrival_us BIGINT -- arrival, in microseconds since 1970
            completed_us BIGINT NOT NULL -- completion, in microseconds since 1970
            source_line BIGINT NOT NULL -- line in that file, from 1
            number BIGINT -- epoch of the session; correlation id without one
        """),
    ),
)

INPUT_TABLES = (
    FETCH_LOG,
    APPEND_LOG,
    LEADER_EPOCHS,
    OBSERVED_ISR_CHANGES,
    BROKER_EVENTS,
    COVERAGE,
    CONTROLLER_RECORDS,
    QUARANTINE,
)
"""Tables of an ingest."""
