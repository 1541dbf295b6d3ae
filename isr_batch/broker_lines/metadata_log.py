"""Parse the output of kafka-dump-log.sh for the cluster metadata log: topics, partitions, brokers and settings.

The output for a snapshot (``*.checkpoint``) contains the same kinds of records, but their offsets start at 0. Such a
record is instead given the last offset that the snapshot covers, and the time of the record at that offset.
"""

import pyarrow as pa

from isr_batch.broker_lines.log_sql import RAW_CHARACTERS
from isr_batch.lake.arrow_sql import ArrowSql, quoted
from udfs.request_log.fields import LAST_US

_RECORD = r"^\| offset: (\d+) .*?CreateTime: (\d+) .*payload: (\{.*\})"
_NUMBERS = (
    "resourceType", "partitionId", "leader", "leaderEpoch", "partitionEpoch", "leaderRecoveryState", "featureLevel",
    "brokerId", "id",
)  # fmt: skip
_LISTS = ("replicas", "isr", "eligibleLeaderReplicas", "lastKnownElr")
_TEXTS = ("name", "value", "resourceName", "topicId", "topicName", "fenced", "inControlledShutdown", "incarnationId")
_SNAPSHOT_END = r"^Snapshot end offset: (\d{1,18}), epoch"
_SNAPSHOT_TIME = r"SnapshotHeader .*\"lastContainedLogTimestamp\":(\d{1,15})\b"
_HAS_RECORD = "payload: "
METADATA_LINES = f"{_HAS_RECORD}|{_SNAPSHOT_END}|{_SNAPSHOT_TIME}"
"""Pattern of the lines of interest in a decoded metadata log. Other lines are skipped."""
_TOPIC, _BROKER = 2, 4
_NEEDED = {
    "TOPIC_RECORD": ("topicId", "name"),
    "PARTITION_RECORD": ("topicId", "partitionId", "replicas", "isr", "leader", "leaderEpoch"),
    "PARTITION_CHANGE_RECORD": ("topicId", "partitionId"),
}
_UNKNOWN = -1
_LINE_LATE_US = 5_000_000
"""Longest time, in microseconds, from the metadata record that removes a topic to a broker's line about the
deletion."""


def metadata_records(sql: ArrowSql, lines: pa.Table) -> pa.Table:
    """Parse each line of a decoded metadata log that contains a record.

    Parameters
    ----------
    sql : ArrowSql
    lines : pa.Table
        Lines, with their text in column ``message``.

    Returns
    -------
    pa.Table
        The lines, with further columns: record_offset, at_us (microseconds since 1970), type, data (a struct),
        malformed. In a line without a record, all of these are null. If a record cannot be parsed, type and data are
        null and ``malformed`` is true.
    """
    types = dict.fromkeys(_NUMBERS, '"INTEGER"') | dict.fromkeys(_LISTS, '["INTEGER"]')
    types |= dict.fromkeys(_TEXTS, '"VARCHAR"')
    structure = "{" + ", ".join(f'"{name}": {types[name]}' for name in types) + "}"
    # `json_transform` turns a value of the wrong type into null, and text like "1" into a number. Both are malformed.
    kind = "coalesce(json_type(json, '$.data.{}'), 'NULL')"
    odd = [f"{kind.format(name)} NOT IN ('NULL', 'BIGINT', 'UBIGINT')" for name in _NUMBERS]
    odd += [f"data.{name} IS NULL AND {kind.format(name)} != 'NULL'" for name in (*_NUMBERS, *_LISTS)]
    odd += [f"len(list_filter(json_type(json, '$.data.{name}[*]'), lambda t: t NOT IN ('BIGINT', 'UBIGINT'))) > 0"
            for name in _LISTS]  # fmt: skip
    odd += [f"coalesce(len(list_filter(data.{name}, lambda replica: replica IS NULL OR replica < 0)) > 0, false)"
            for name in _LISTS]  # fmt: skip
    odd += ["coalesce(data.partitionId < 0, false)", "coalesce(data.leaderEpoch < -1, false)"]
    odd += [f"type = '{of_type}' AND data.{name} IS NULL" for of_type, names in _NEEDED.items() for name in names]
    odd.append("contains(type, 'BROKER') AND coalesce(data.brokerId, data.id) IS NULL")
    return sql(
        f"""
        WITH found AS (
            SELECT *, contains(coalesce(message, ''), {quoted(_HAS_RECORD)}) AS has_record,
                regexp_extract(message, {quoted(_RECORD)}, ['number', 'at', 'json']) AS record FROM lines
        ), numbers AS (
            SELECT * EXCLUDE (record), TRY_CAST(record.number AS BIGINT) AS record_offset,
                CASE WHEN TRY_CAST(record.at AS BIGINT) BETWEEN 0 AND {LAST_US // 1000}
                    THEN TRY(TRY_CAST(record.at AS BIGINT) * 1000) END AS at_us,
                CASE WHEN json_valid(record.json) THEN record.json END AS json
            FROM found
        ), parsed AS (
            SELECT *, json ->> '$.type' AS type, json_transform(json -> '$.data', {quoted(structure)}) AS data
            FROM numbers
        ), judged AS (
            SELECT *, at_us IS NULL OR record_offset IS NULL OR type IS NULL OR coalesce({" OR ".join(odd)}, false)
                AS malformed
            FROM parsed
        )
        SELECT * EXCLUDE (has_record, json) REPLACE (
            CASE WHEN has_record THEN record_offset END AS record_offset, CASE WHEN has_record THEN at_us END AS at_us,
            CASE WHEN has_record AND NOT malformed THEN type END AS type,
            CASE WHEN has_record AND NOT malformed THEN data END AS data,
            CASE WHEN has_record THEN malformed END AS malformed)
        FROM judged
        """,
        lines=lines,
    )


def parse_metadata(sql: ArrowSql, lines: pa.Table) -> pa.Table:
    """Return the records of metadata logs, with malformed ones marked.

    The columns are source_file, source_line, record_offset, at_us, type, data, problem, detail, malformed and raw. Each
    record of a snapshot gets the last offset that the snapshot covers, and the time of the record at that offset.

    Parameters
    ----------
    sql : ArrowSql
    lines : pa.Table
        Lines of interest: source_file, source_line, message, problem, detail, and the columns that `metadata_records`
        adds.
    """
    number = "max(CAST(nullif(regexp_extract(message, {}, 1), '') AS BIGINT))"
    return sql(
        f"""
        WITH snapshots AS (
            SELECT source_file, coalesce({number.format(quoted(_SNAPSHOT_END))}, 0) - 1 AS as_of,
                {number.format(quoted(_SNAPSHOT_TIME))} AS until_ms
            FROM lines
            WHERE regexp_matches(message, {quoted(f"{_SNAPSHOT_END}|{_SNAPSHOT_TIME}")}) GROUP BY source_file
        )
        SELECT source_file, source_line,
            CASE WHEN as_of IS NULL THEN record_offset ELSE as_of END AS record_offset,
            CASE WHEN as_of IS NULL OR at_us IS NULL OR NOT coalesce(until_ms BETWEEN 1 AND {LAST_US // 1000}, false)
                THEN at_us ELSE until_ms * 1000 END AS at_us,
            type, data, problem, detail, coalesce(malformed, false) AS malformed,
            CASE WHEN malformed THEN substring(message, 1, {RAW_CHARACTERS}) END AS raw
        FROM lines LEFT JOIN snapshots USING (source_file)
        WHERE malformed IS NOT NULL OR problem IS NOT NULL
        """,
        lines=lines,
    )


def metadata_topics(sql: ArrowSql, metadata: pa.Table) -> pa.Table:
    """Return the id and the name of each topic in the result of `parse_metadata`: topic_id, topic."""
    return sql(
        "SELECT data.topicId AS topic_id, data.name AS topic FROM metadata WHERE type = 'TOPIC_RECORD'",
        metadata=metadata,
    )


def metadata_min_isr(sql: ArrowSql, metadata: pa.Table) -> pa.Table:
    """Return the last value of min.insync.replicas in the metadata log for each topic and each broker that sets it.

    The columns are topic, resource_broker and min_insync_replicas. One of the first two is null. If resource_broker is
    '', the value is the default of all brokers.
    """
    return sql(
        f"""
        SELECT CASE WHEN data.resourceType = {_TOPIC} THEN data.resourceName END AS topic,
            CASE WHEN data.resourceType = {_BROKER} THEN data.resourceName END AS resource_broker,
            TRY_CAST(arg_max_null(data.value, record_offset) AS INTEGER) AS min_insync_replicas
        FROM metadata WHERE type = 'CONFIG_RECORD' AND data.name = 'min.insync.replicas'
        GROUP BY ALL HAVING min_insync_replicas IS NOT NULL
        """,
        metadata=metadata,
    )


def metadata_min_isr_records(sql: ArrowSql, metadata: pa.Table) -> pa.Table:
    """Return each record that sets a topic's min.insync.replicas, or removes the setting (the value is then null)."""
    return sql(
        f"""
        SELECT data.resourceName AS topic, at_us, TRY_CAST(data.value AS INTEGER) AS min_insync_replicas, source_file,
            source_line
        FROM metadata
        WHERE type = 'CONFIG_RECORD' AND data.name = 'min.insync.replicas' AND data.resourceType = {_TOPIC}
        """,
        metadata=metadata,
    )


def metadata_partitions(sql: ArrowSql, metadata: pa.Table, topic_names: pa.Table) -> pa.Table:
    """Return the state of each partition after each of its metadata records.

    Each record that contains a leader begins a leader epoch. If the beginning of the log is missing, leader_id and
    leader_epoch are -1 up to the first such record.

    Returns
    -------
    pa.Table
        topic, partition_id, leader_id, leader_epoch, replicas, isr, at_us, source_file, source_line; ``position``, by
        which the states of a partition are sorted; ``begins``, which is true for the first state of a partition.
        A topic that was deleted and created again has two first states under its name.
    """
    return sql(
        f"""
        WITH records AS (
            SELECT DISTINCT ON (record_offset, data.topicId, data.partitionId)
                record_offset, at_us, source_file, source_line, type = 'PARTITION_RECORD' AS whole,
                data.topicId AS topic_id, data.partitionId AS partition_id,
                data.leader AS leader, data.leaderEpoch AS leader_epoch, data.replicas AS replicas, data.isr AS isr
            FROM metadata WHERE type IN ('PARTITION_RECORD', 'PARTITION_CHANGE_RECORD')
            ORDER BY record_offset, source_file, source_line
        ), counted AS (
            SELECT *, CAST(sum(CASE WHEN NOT whole AND leader IS NOT NULL THEN 1 ELSE 0 END) OVER upto AS INTEGER)
                AS elected
            FROM records WINDOW upto AS (PARTITION BY topic_id, partition_id ORDER BY record_offset
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        ), states AS (
            SELECT topic_id, partition_id, record_offset AS position,
                coalesce(last_value(leader IGNORE NULLS) OVER upto, {_UNKNOWN}) AS leader_id,
                coalesce(last_value(CASE WHEN whole THEN leader_epoch - elected END IGNORE NULLS) OVER upto + elected,
                    {_UNKNOWN}) AS leader_epoch,
                last_value(replicas IGNORE NULLS) OVER upto AS replicas, last_value(isr IGNORE NULLS) OVER upto AS isr,
                at_us, source_file, source_line, row_number() OVER upto = 1 AS begins
            FROM counted WINDOW upto AS (PARTITION BY topic_id, partition_id ORDER BY record_offset
                ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
        )
        SELECT topic, states.* EXCLUDE (topic_id) FROM states JOIN topic_names USING (topic_id)
        """,
        metadata=metadata,
        topic_names=topic_names,
    )


def with_deletions(sql: ArrowSql, logged: pa.Table, metadata: pa.Table, topic_names: pa.Table) -> pa.Table:
    """Return the deletions of replicas that brokers logged, and those that only the metadata log shows.

    ``logged`` holds the deletions in server.log (the lines of the form `forms.DELETED`), ``metadata`` is the records
    from `parse_metadata`, and ``topic_names`` has the columns topic_id and topic. The result has the columns of
    ``logged``.
    """
    return sql(
        f"""
        WITH replicas AS (
            SELECT DISTINCT data.topicId AS topic_id, data.partitionId AS partition_id,
                unnest(data.replicas) AS broker_id
            FROM metadata WHERE type IN ('PARTITION_RECORD', 'PARTITION_CHANGE_RECORD')
        ), removed AS (
            SELECT data.topicId AS topic_id, at_us AS stamp_us, source_file, source_line
            FROM metadata WHERE type = 'REMOVE_TOPIC_RECORD'
        ), recorded AS (
            SELECT * EXCLUDE (topic_id) FROM removed JOIN replicas USING (topic_id) JOIN topic_names USING (topic_id)
        )
        SELECT * FROM logged
        UNION ALL BY NAME
        SELECT r.* FROM recorded r ANTI JOIN logged l ON r.broker_id = l.broker_id AND r.topic = l.topic
            AND r.partition_id = l.partition_id AND abs(r.stamp_us - l.stamp_us) <= {_LINE_LATE_US}
        """,
        logged=logged,
        metadata=metadata,
        topic_names=topic_names,
    )


def metadata_brokers(sql: ArrowSql, metadata: pa.Table) -> pa.Table:
    """Return the times at which brokers became fenced, unfenced or shutting down, according to metadata records.

    Returns
    -------
    pa.Table
        broker_id, kind (the new state), at_us.
    """
    return sql(
        """
        WITH records AS (
            SELECT coalesce(data.brokerId, data.id) AS broker_id, at_us, type, data.fenced AS fenced,
                type = 'BROKER_REGISTRATION_CHANGE_RECORD' AS changed,
                data.inControlledShutdown = '1' AS shutting_down
            FROM metadata WHERE contains(type, 'BROKER')
        )
        SELECT broker_id, 'fenced' AS kind, at_us FROM records
        WHERE type = 'REGISTER_BROKER_RECORD' AND coalesce(fenced, 'true') = 'true'
            OR type = 'FENCE_BROKER_RECORD' OR changed AND fenced = '1'
        UNION ALL
        SELECT broker_id, 'unfenced', at_us FROM records
        WHERE type = 'UNFENCE_BROKER_RECORD' OR changed AND fenced = '-1'
        UNION ALL
        SELECT broker_id, 'shutting_down', at_us FROM records WHERE changed AND shutting_down
        """,
        metadata=metadata,
    )
