"""Derive table controller_records: partition states in metadata records, and settings that matter for ELR (KIP-966)."""

from collections.abc import Iterable

import pyarrow as pa

from isr_batch.broker_lines.forms import REGISTRATION
from isr_batch.broker_lines.log_sql import rows_of
from isr_batch.ingest.folder.partition_listing import Listed
from isr_batch.ingest.terms.parsed_logs import ParsedLogs

_TOPIC, _BROKER = 2, 4
_NOBODY = -1
_FEATURES = {"eligible.leader.replicas.version": "elr_version", "metadata.version": "metadata_version"}


_INTS = pa.list_(pa.int32())
_LISTED = pa.schema([
    ("kind", pa.string()), ("record_us", pa.int64()), ("topic", pa.string()), ("partition_id", pa.int32()),
    ("leader_id", pa.int32()), ("assigned", _INTS), ("isr", _INTS), ("elr", _INTS), ("last_known_elr", _INTS),
])  # fmt: skip


def controller_records(sources: ParsedLogs, listed: Iterable[Listed] = (), begins_us: int = 0) -> pa.Table:
    """Return the rows of table controller_records. Times are in microseconds since 1970.

    Parameters
    ----------
    sources : ParsedLogs
    listed : iterable of Listed
        Partitions of listings.
    begins_us : int
        Time at which the first term begins, in microseconds since 1970. It is used as the time of listings, which have
        none.
    """
    return sources.sql(
        """
        SELECT * FROM states
        UNION ALL BY NAME SELECT * FROM settings
        UNION ALL BY NAME SELECT * FROM restarts
        UNION ALL BY NAME
        SELECT 'noted' AS kind, broker_id, topic, partition_id, leader_id, leader_epoch, replicas AS assigned, isr, elr,
            last_known_elr, stamp_us AS record_us, source_file, source_line
        FROM noted
        UNION ALL BY NAME
        SELECT 'min_isr_in_force' AS kind, broker_id, topic, min_insync_replicas AS value, at_us AS record_us,
            source_file, source_line
        FROM in_force WHERE changed
        UNION ALL BY NAME SELECT * FROM listed
        """,
        states=_partition_states(sources),
        settings=_records_of_settings(sources),
        restarts=_unclean_restarts(sources),
        in_force=sources.min_isr_settings,
        noted=rows_of(sources.sql, sources.state_changes, REGISTRATION),
        listed=pa.Table.from_pylist(
            [
                {**one._asdict(), "kind": "listed", "record_us": begins_us, "assigned": one.replicas}
                for one in listed if one.elr is not None
            ],
            _LISTED,
        ),
    )  # fmt: skip


def _partition_states(sources: ParsedLogs) -> pa.Table:
    """Return the state of each partition after each of its records.

    A record only contains the fields that it changes.
    """
    upto = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    last = "last_value({} IGNORE NULLS) OVER upto"
    return sources.sql(
        f"""
        WITH own AS (
            -- A record, and not several copies of it.
            SELECT DISTINCT ON (record_offset, type, data.topicId, data.partitionId) type = 'PARTITION_RECORD' AS whole,
                data.topicId AS topic_id, data.partitionId AS partition_id, data.replicas AS assigned, data.isr AS isr,
                data.eligibleLeaderReplicas AS elr, data.lastKnownElr AS last_known_elr, data.leader AS leader,
                data.leaderEpoch AS leader_epoch, data.leaderRecoveryState AS recovery,
                record_offset, at_us, source_file, source_line
            FROM metadata WHERE type IN ('PARTITION_RECORD', 'PARTITION_CHANGE_RECORD')
            ORDER BY record_offset, source_file, source_line
        ), clears AS (
            SELECT DISTINCT ON (record_offset) nullif(data.topicName, '') AS topic, record_offset, at_us, source_file,
                source_line
            FROM metadata WHERE type = 'CLEAR_ELR_RECORD' ORDER BY record_offset, source_file, source_line
        ), known AS (
            SELECT topic_id, partition_id, any_value(topic) AS topic
            FROM own JOIN topics USING (topic_id) GROUP BY topic_id, partition_id
        ), named AS (
            SELECT own.*, topic, 'partition' AS kind FROM own JOIN known USING (topic_id, partition_id)
            UNION ALL BY NAME
            SELECT clears.*, k.topic_id, k.partition_id, k.topic AS topic, 'cleared' AS kind, false AS whole,
                CAST([] AS INTEGER[]) AS elr, CAST([] AS INTEGER[]) AS last_known_elr
            FROM (SELECT * EXCLUDE (topic), topic AS cleared FROM clears) clears
                JOIN known k ON coalesce(cleared = k.topic, true)
        ), counted AS (
            SELECT * REPLACE (
                    CASE WHEN whole THEN coalesce(elr, []) ELSE elr END AS elr,
                    CASE WHEN whole THEN coalesce(last_known_elr, []) ELSE last_known_elr END AS last_known_elr,
                    CASE WHEN whole THEN coalesce(recovery, 0) ELSE recovery END AS recovery),
                sum(CASE WHEN NOT whole AND leader IS NOT NULL THEN 1 ELSE 0 END) OVER upto AS elected
            FROM named WINDOW upto AS (PARTITION BY topic_id, partition_id ORDER BY record_offset, kind {upto})
        ), states AS (
            SELECT topic_id, partition_id, topic, kind, record_offset, at_us AS record_us, source_file, source_line,
                leader AS named_leader, recovery AS named_recovery, whole,
                {last.format("leader")} AS leader_id,
                CAST({last.format("CASE WHEN whole THEN leader_epoch - elected END")} + elected AS INTEGER)
                    AS leader_epoch,
                {last.format("assigned")} AS assigned, {last.format("isr")} AS isr, {last.format("elr")} AS elr,
                {last.format("last_known_elr")} AS last_known_elr,
                {last.format("recovery")} AS leader_recovery_state
            FROM counted WINDOW upto AS (PARTITION BY topic_id, partition_id ORDER BY record_offset, kind {upto})
        ), following AS (
            SELECT *, lag(leader_id) OVER w AS former, lag(isr) OVER w AS former_isr, lag(elr) OVER w AS former_elr,
                lag(last_known_elr) OVER w AS former_last
            FROM states WINDOW w AS (PARTITION BY topic_id, partition_id ORDER BY record_offset, kind)
        )
        SELECT * EXCLUDE (topic_id, named_leader, named_recovery, whole, former, former_isr, former_elr, former_last),
            CASE
                WHEN whole OR named_leader IS NULL OR former IS NULL OR named_leader = former THEN NULL
                WHEN named_leader = {_NOBODY} THEN 'nobody'
                WHEN named_recovery = 1 AND len(former_isr) = 0 AND len(former_elr) = 0
                    AND former_last = [named_leader] THEN 'last_known_leader'
                WHEN named_recovery = 1 THEN 'unclean'
                WHEN list_contains(former_elr, named_leader) AND NOT list_contains(former_isr, named_leader)
                    THEN 'eligible'
                ELSE 'in_sync'
            END AS election
        FROM following
        """,
        metadata=sources.metadata,
        topics=sources.topics,
    )


def _records_of_settings(sources: ParsedLogs) -> pa.Table:
    """Return the records that set a feature level, or min.insync.replicas for a topic or for all brokers."""
    features = " ".join(f"WHEN '{name}' THEN '{kind}'" for name, kind in _FEATURES.items())
    return sources.sql(
        f"""
        SELECT DISTINCT ON (record_offset, kind, topic) * FROM (
            SELECT CASE data.name {features} END AS kind, CAST(NULL AS VARCHAR) AS topic, data.featureLevel AS value,
                record_offset, at_us AS record_us, source_file, source_line
            FROM metadata WHERE type = 'FEATURE_LEVEL_RECORD'
            UNION ALL
            SELECT 'min_isr', CASE WHEN data.resourceType = {_TOPIC} THEN data.resourceName END,
                TRY_CAST(data.value AS INTEGER), record_offset, at_us, source_file, source_line
            FROM metadata WHERE type = 'CONFIG_RECORD' AND data.name = 'min.insync.replicas'
                AND (data.resourceType = {_TOPIC} OR data.resourceType = {_BROKER} AND data.resourceName = '')
        ) WHERE kind IS NOT NULL ORDER BY record_offset, kind, topic, source_file, source_line
        """,
        metadata=sources.metadata,
    )


def _unclean_restarts(sources: ParsedLogs) -> pa.Table:
    """Return the registrations of brokers that had not been shut down cleanly since their previous registration.

    The controller decides this by the clean-shutdown file on the broker's disk, which the broker reports when it
    registers. No record contains this, so a shutdown is considered clean here if the records show a controlled
    shutdown.
    """
    return sources.sql(
        """
        WITH records AS (
            SELECT DISTINCT ON (record_offset, broker_id, type) coalesce(data.brokerId, data.id) AS broker_id,
                data.incarnationId AS incarnation, data.inControlledShutdown IN ('1', 'true') AS shuts_down,
                record_offset, at_us AS record_us, source_file, source_line
            FROM metadata WHERE type IN ('REGISTER_BROKER_RECORD', 'BROKER_REGISTRATION_CHANGE_RECORD')
            ORDER BY record_offset, broker_id, type, source_file, source_line
        ), processes AS (
            SELECT *, sum(CASE WHEN incarnation IS NOT NULL THEN 1 ELSE 0 END) OVER (
                PARTITION BY broker_id ORDER BY record_offset ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) AS number
            FROM records
        ), each_one AS (
            SELECT broker_id, number, any_value(incarnation) AS incarnation, bool_or(coalesce(shuts_down, false))
                AS shuts_down, min(record_offset) AS record_offset, arg_min(record_us, record_offset) AS record_us,
                arg_min(source_file, record_offset) AS source_file, arg_min(source_line, record_offset) AS source_line
            FROM processes GROUP BY broker_id, number
        ), following AS (
            SELECT *, lag(incarnation) OVER w AS former, lag(shuts_down) OVER w AS was_shut_down
            FROM each_one WINDOW w AS (PARTITION BY broker_id ORDER BY number)
        )
        SELECT 'unclean_restart' AS kind, broker_id, record_offset, record_us, source_file, source_line
        FROM following WHERE former IS NOT NULL AND former <> incarnation AND NOT was_shut_down
        """,
        metadata=sources.metadata,
    )
