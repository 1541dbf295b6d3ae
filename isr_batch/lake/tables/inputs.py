"""Contracts of the input tables: columns, their meaning, and constraints.

The DDL, the check of existing tables, and docs/tables.md are generated from these contracts. Types are Spark's. Columns
named ``*_time`` are UTC times in microseconds. Columns named ``*_ms`` are milliseconds: a duration, or a time since
1970. Offsets are record offsets.
"""

from isr_batch.lake.tables.contract import DATE, KEY_CHECKS, SET, SOURCE, Column, Table, columns, key_columns
from isr_batch.lake.tables.controller import CONTROLLER_RECORDS
from isr_batch.lake.tables.leaders import COVERAGE, LEADER_EPOCHS
from udfs.batches.segments import PACKED

FETCH_LOG = Table(
    "fetch_log",
    "A follower's fetch of one partition, as the leader served it, or a run of identical fetches. The request listed "
    "the partition, or its fetch session implied it",
    (
        *SET,
        *columns("""
            replica_id INT NOT NULL -- follower that fetched
            arrival_time TIMESTAMP NOT NULL -- when the leader had read the last byte of the request from the socket
            handled_time TIMESTAMP NOT NULL -- when an I/O thread took the request from the queue: Kafka's fetch time
            processed_time TIMESTAMP NOT NULL -- when the local work was done: log read, follower state updated
            released_time TIMESTAMP NOT NULL -- when the long poll that the follower asked for ended (processed_time if
                -- it did not wait); the time from released_time to completed_time is the leader's delay
            completed_time TIMESTAMP NOT NULL -- when the response was written to the socket
            fetch_offset BIGINT -- requested offset, which is the follower's log end offset. Null if no line names it,
                -- because the fetch session is older than the log and has not listed the partition yet; if the response
                -- to such a fetch had no records, the offset was the leader's log end
            leader_log_end_offset BIGINT -- leader's log end offset at handled_time; null if the input does not show it
            leader_leo_source STRING -- where leader_log_end_offset is from: logged (in a response), appends (in
                -- append_log), or inferred from the offsets of followers' fetches
            high_watermark BIGINT -- high watermark in the leader's response; null if the response did not list the
                -- partition
            error_code INT NOT NULL -- Kafka error code of the partition; 0: the leader accepted the fetch; -1: the
                -- epochs diverged; -2: records were sent from an offset that no line names
            run_length INT NOT NULL -- number of consecutive identical fetches that this row represents; the view
                -- fetches has one row per fetch
            later_by ARRAY<INT> -- for each fetch of the run after the first, six differences from the fetch before it:
                -- arrival_time, handled_time, processed_time, released_time and completed_time in microseconds, then
                -- source_line; null if run_length is 1
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
        # Written so that no part of the condition can be null: a constraint that is null would accept the row.
        "run_told": "run_length = 1 AND later_by IS NULL "
        "OR run_length > 1 AND later_by IS NOT NULL AND size(later_by) = 6 * (run_length - 1)",
        "run_in_order": "if(run_length = 1, last_handled_time = handled_time, last_handled_time > handled_time)",
        "leo_source_known": "leader_leo_source IN ('logged', 'appends', 'inferred')",
    },
    ("event_date",),
)

APPEND_LOG = Table(
    "append_log",
    "An append to the leader's log, or an append that the leader refused",
    (
        *SET,
        *columns("""
            append_time TIMESTAMP NOT NULL -- when the append moved the log end offset, or when it was refused
            base_offset BIGINT -- first offset of the append; null if refused
            log_end_offset BIGINT -- leader's log end offset after the append; null if refused
            log_end_source STRING -- source of log_end_offset: appends, fetches, shrinks or terms, whose log lines name
                -- it; or inferred, by distributing the known growth over several appends, or by adding one record
            log_end_error BIGINT -- largest possible error of log_end_offset, in records; null if refused, or if nothing
                -- bounds the error
            acks INT -- acks of the produce request: -1 (all), 1 or 0; null for an append without a logged request
            client_id STRING -- client.id of the producer; null for an append without a logged request
            acknowledged_time TIMESTAMP -- when the response to the producer was written; null if the append was not
                -- acknowledged
            error_code INT NOT NULL -- Kafka error code in the response. An append with an error code and an offset
                -- still took place. -1: the log did not grow, and this release of Kafka does not print responses
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
    "Consecutive fetches and appends of one replica set, packed into one row: the input of `replay`. It is derived "
    "from fetch_log and append_log when needed, and again for days that have changed; udfs/batches/segments.py has "
    "the format",
    (
        *SET,
        *columns("""
            segment_number INT NOT NULL -- number of the segment among those packed together for the replica set, from 0
            first_time TIMESTAMP NOT NULL -- time of the first event in the segment: the arrival of a fetch, or an
                -- append
            last_time TIMESTAMP NOT NULL -- time of the last event in the segment
            format_version INT NOT NULL -- version of the binary columns' format
            events BIGINT NOT NULL -- number of fetches and appends in the segment; each fetch of a run counts
            fetches BIGINT NOT NULL -- number of fetches in the segment
            checksum BIGINT NOT NULL -- CRC-32 of the binaries, one after the other
        """),
        *(Column(name, "BINARY", comment) for name, comment in PACKED.items()),
        Column(
            "quiet",
            "BINARY",
            "quiet stretch of the segment, which a replay may skip; udfs/batches/quiet_rows.py has the format",
        ),
        Column(
            "packed_from", "STRING", "hash of the names of the data files that the day was packed from", nullable=False
        ),
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
            change_time TIMESTAMP NOT NULL -- timestamp of the leader's line or the controller's record; without either,
                -- of the first line that shows the changed ISR
            earliest_time TIMESTAMP -- for a change that a line shows late: the last time at which the ISR is known to
                -- have been as before; null if change_time is when it changed
            kind STRING NOT NULL -- shrink or expand
            replica_id INT NOT NULL -- replica that left the ISR (shrink) or joined it (expand)
            isr_before ARRAY<INT> NOT NULL -- in-sync replicas before the change
            isr_after ARRAY<INT> NOT NULL -- in-sync replicas after the change
            high_watermark BIGINT -- high watermark that the leader's Shrinking line prints; null before Kafka 2.2, and
                -- for other changes
            leader_log_end_offset BIGINT -- leader's log end offset that the leader's Shrinking line prints; null before
                -- Kafka 2.2, and for other changes
            follower_log_end_offset BIGINT -- dropped follower's log end offset that the leader's Shrinking line prints;
                -- -1 if the follower had not fetched; null before Kafka 2.2, and for other changes
            last_caught_up_time_ms BIGINT -- lastCaughtUpTimeMs of the dropped follower that the leader's Shrinking line
                -- prints; null before Kafka 3.6, and for other changes
            made_by STRING NOT NULL -- which broker changed the ISR: leader, controller, or unknown (the leader's
                -- server.log lacks its Shrinking lines, and nothing shows that the controller removed the replica)
            answered_time TIMESTAMP -- when the leader logged the response to its ISR write; null without such a line
        """),
        *SOURCE,
        DATE,
    ),
    {
        **KEY_CHECKS,
        "kind_known": "kind IN ('shrink', 'expand')",
        "made_by_known": "made_by IN ('leader', 'controller', 'unknown')",
    },
    ("event_date",),
)

BROKER_EVENTS = Table(
    "broker_events",
    "An event that concerns a broker as a whole: a start, a silence, a check of ISRs, a fencing",
    (
        *key_columns("cluster_id", "broker_id"),
        *columns("""
            event_time TIMESTAMP NOT NULL -- when the event happened, or when a silence began; for a check, when it was
                -- due
            end_time TIMESTAMP NOT NULL -- when a silence ended; for a check, when it ran; for other kinds, the same as
                -- event_time
            kind STRING NOT NULL -- started; silent (the broker did nothing although a request waited, or although its
                -- followers fetched from other brokers); quiet (no follower fetched from it, and the reason is
                -- unknown); check (a run of isr-expiration, due at event_time, that ran at end_time); fenced, unfenced
                -- or shutting_down (by the metadata log, or else by the broker's own server.log); stopping (a ZooKeeper
                -- broker shuts down)
        """),
        DATE,
    ),
    {
        "kind_known": "kind IN ('started', 'silent', 'quiet', 'check', 'fenced', 'unfenced', 'shutting_down', "
        "'stopping')",
        "not_negative": "end_time >= event_time",
    },
    ("event_date",),
)

PLANTED_FAULTS = Table(
    "planted_faults",
    "A fault that a generated scenario planted in its brokers, and the cause that the replay must find for its shrinks",
    (
        *key_columns("cluster_id", "topic"),
        Column("what", "STRING", "kind of fault", nullable=False),
        *key_columns("broker_id"),
        *columns("""
            from_time TIMESTAMP NOT NULL -- start of the fault
            until_time TIMESTAMP NOT NULL -- end of the fault
            expected_cause STRING -- primary cause that the replay must give to the shrinks during the fault; empty if
                -- the fault must not lead to any shrink
        """),
        DATE,
    ),
    {"not_negative": "until_time >= from_time"},
    ("event_date",),
)

QUARANTINE = Table(
    "quarantine",
    "An input line, row or file that was refused, with the reason; or a line that was read but is doubtful",
    (
        *key_columns("cluster_id"),
        *columns("""
            source_file STRING NOT NULL -- file, relative to the ingested folder
            source_line BIGINT -- line in source_file, from 1; null if the file as a whole was refused
            reason STRING NOT NULL -- what is wrong, as one of a fixed set of texts
            detail STRING -- further detail, such as the wrong value
            raw STRING -- the line itself, cut to 500 characters
            rows_kept BOOLEAN NOT NULL -- true for a warning: the rows of the line, if it has any, are in the tables
            ingest_run STRING NOT NULL -- run_id of the ingest that refused the input
        """),
    ),
)

INGESTED_FILES = Table(
    "ingested_files",
    "A log file whose rows are in the lake. An ingest writes this table last, so that an ingest that was killed is "
    "repeated",
    (
        *key_columns("cluster_id"),
        *columns("""
            source_file STRING NOT NULL -- path of the log file, as in the other tables
            kind STRING NOT NULL -- request, server, state-change, metadata, gc, snapshot or properties
            broker_id INT -- broker that wrote the file; null for the metadata log
            size_bytes BIGINT NOT NULL -- size of the file on disk
            content_bytes BIGINT NOT NULL -- size of the file's content when unpacked
            content_hash STRING NOT NULL -- SHA-256 of the unpacked content, in hex
            lines BIGINT NOT NULL -- number of lines in the file
            first_time TIMESTAMP -- least timestamp of the file's lines; null if no line has one
            last_time TIMESTAMP -- greatest timestamp of the file's lines; null if no line has one
            days MAP<DATE, TIMESTAMP> -- UTC days that the file covers; for each, when the lake's rows of that day last
                -- changed
            first_hashes ARRAY<BIGINT> -- hashes of the first 64, 128, 256, ... bytes of the content, by which a shorter
                -- copy of the file is recognized
            code_version STRING NOT NULL -- version of isr-batch that read the file
            ingest_run STRING NOT NULL -- run_id of the ingest that wrote this row
        """),
    ),
    {"kind_known": "kind IN ('request', 'server', 'state-change', 'metadata', 'gc', 'snapshot', 'properties')"},
)

KEPT_LINES = Table(
    "kept_lines",
    "A line of server.log or state-change.log about terms and ISRs, kept so that an ingest of later logs can continue "
    "from it when its file is gone. Lines are kept for three days, and from the last start of their broker on. The "
    "table also keeps settings of brokers, and the last requests of each request log",
    (
        *key_columns("cluster_id"),
        *columns("""
            kind STRING NOT NULL -- server, state-change, properties or request
            broker_id INT NOT NULL -- broker that wrote the line
            source_file STRING NOT NULL -- path of the log file, as in the other tables
            source_line BIGINT NOT NULL -- line in source_file, from 1
            stamp_us BIGINT -- timestamp of the line, in microseconds since 1970; for a request, when an I/O thread took
                -- it; null for settings
            message STRING NOT NULL -- the line; for settings, the settings as JSON; for a fetch, JSON with the follower
                -- and the time when the leader last read its log; empty for a produce request
            line_hash BIGINT -- hash of the line, which is the same for all copies of it; null for settings and requests
        """),
    ),
    {"kind_known": "kind IN ('server', 'state-change', 'properties', 'request')"},
)

SESSION_ENDS = Table(
    "session_ends",
    "The last request of each fetch session of a follower in a request log; an ingest of later logs continues the "
    "session from this request",
    (
        *key_columns("cluster_id"),
        *columns("""
            source_file STRING NOT NULL -- path of the request log, as in the other tables
            broker_id INT NOT NULL -- leader that wrote the request log
            replica_id INT NOT NULL -- follower that fetched
            client_id STRING -- client.id of the follower's fetcher thread
            session BIGINT NOT NULL -- id of the fetch session; 0 for a fetch without a session
            error_code INT -- Kafka error code of the response as a whole
            arrival_us BIGINT -- when the session's last request arrived, in microseconds since 1970
            completed_us BIGINT NOT NULL -- when the session's last request was completed, in microseconds since 1970
            source_line BIGINT NOT NULL -- line in source_file, from 1
            number BIGINT -- session epoch of the last request; for a fetch without a session, the correlation id
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
"""Tables that an ingest writes and other commands read."""
