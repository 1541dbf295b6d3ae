"""Parse the cluster metadata log, as decoded by kafka-dump-log.sh: topics, partitions and brokers.

A decoded snapshot (``*.checkpoint``) has the same records, numbered from 0. They replace the log before the offset in
the snapshot's name, and get the time of the last record in it.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs.request_log import LAST_US, RAW_CHARACTERS

_RECORD = r"^\| offset: (\d+) .*?CreateTime: (\d+) .*payload: (\{.*\})"
_SCHEMA = """
    type STRING,
    data STRUCT<
        name: STRING, value: STRING, resourceType: INT, resourceName: STRING,
        topicId: STRING, partitionId: INT, replicas: ARRAY<INT>, isr: ARRAY<INT>,
        leader: INT, leaderEpoch: INT, partitionEpoch: INT,
        brokerId: INT, id: INT, fenced: STRING, inControlledShutdown: STRING>,
    malformed STRING"""
_SNAPSHOT_END = r"^Snapshot end offset: (\d{1,18}), epoch"
_SNAPSHOT_TIME = r"SnapshotHeader .*\"lastContainedLogTimestamp\":(\d{1,15})\b"
_SNAPSHOT = f"{_SNAPSHOT_END}|{_SNAPSHOT_TIME}"
_TOPIC, _BROKER = 2, 4
_NEEDED = {
    "TOPIC_RECORD": ("topicId", "name"),
    "PARTITION_RECORD": ("topicId", "partitionId", "replicas", "isr", "leader", "leaderEpoch"),
    "PARTITION_CHANGE_RECORD": ("topicId", "partitionId"),
}
_UNKNOWN = -1


def parse_metadata(lines: DataFrame) -> DataFrame:
    """Parse the records: record_offset, at_us, type, data; ``malformed`` and ``raw`` if one cannot be parsed."""
    record = lines.where(F.contains("value", F.lit("payload: ")) | F.col("problem").isNotNull()).select(
        "source_file", "source_line", "value", "problem", "detail",
        *(F.nullif(F.regexp_extract("value", _RECORD, group), F.lit("")).alias(name)
          for group, name in enumerate(("record_offset", "at_ms", "json"), start=1)),
    )  # fmt: skip
    parsed = record.withColumn("r", F.from_json("json", _SCHEMA, {"columnNameOfCorruptRecord": "malformed"}))
    at_ms = F.col("at_ms").try_cast("bigint")
    at_ms = F.when(at_ms.between(0, LAST_US // 1000), at_ms)
    absurd = _absurd(F.col("r.type"), F.col("r.data"))
    malformed = F.col("problem").isNull() & (
        F.col("r.malformed").isNotNull() | F.col("r.type").isNull() | absurd | at_ms.isNull()
        | F.col("record_offset").try_cast("bigint").isNull()
    )  # fmt: skip
    rows = parsed.select(
        "source_file", "source_line",
        F.col("record_offset").try_cast("bigint").alias("record_offset"),
        (at_ms * 1000).alias("at_us"),
        F.when(~malformed, F.col("r.type")).alias("type"), F.when(~malformed, F.col("r.data")).alias("data"),
        "problem", "detail", malformed.alias("malformed"),
        F.when(malformed, F.substring("value", 1, RAW_CHARACTERS)).alias("raw"),
    )  # fmt: skip
    return _as_of_their_snapshots(rows, lines)


def _as_of_their_snapshots(rows: DataFrame, lines: DataFrame) -> DataFrame:
    """Give the records of a snapshot the offset and the time at which the snapshot was taken."""

    def number(pattern: str) -> Column:
        return F.max(F.nullif(F.regexp_extract("value", pattern, 1), F.lit("")).cast("bigint"))

    headers = lines.where(F.rlike("value", F.lit(_SNAPSHOT))).groupBy("source_file")
    snapshots = headers.agg(
        (F.coalesce(number(_SNAPSHOT_END), F.lit(0)) - 1).alias("as_of"), number(_SNAPSHOT_TIME).alias("until_ms")
    )
    until_us = F.when(F.col("until_ms").between(1, LAST_US // 1000), F.col("until_ms") * 1000)
    in_log = F.col("as_of").isNull()
    return (
        rows.join(F.broadcast(snapshots), "source_file", "left")
        .withColumns({
            "record_offset": F.when(in_log, F.col("record_offset")).otherwise(F.col("as_of")),
            "at_us": F.when(in_log | F.col("at_us").isNull(), F.col("at_us")).otherwise(F.coalesce(until_us, "at_us")),
        })
        .drop("as_of", "until_ms")
    )  # fmt: skip


def _absurd(type_: Column, data: Column) -> Column:
    """Whether a record has an impossible number or lacks a required one."""

    def odd(number: Column, least: int) -> Column:
        return F.coalesce(number < least, F.lit(False))

    def odd_list(name: str) -> Column:
        return F.coalesce(F.exists(data[name], lambda replica: replica.isNull() | (replica < 0)), F.lit(False))

    lacks = F.lit(False)
    for of_type, names in _NEEDED.items():
        for name in names:
            lacks |= (type_ == of_type) & data[name].isNull()
    nobody = F.contains(type_, F.lit("BROKER")) & F.coalesce(data.brokerId, data.id).isNull()
    return (
        odd(data.partitionId, 0) | odd(data.leaderEpoch, -1) | odd_list("isr") | odd_list("replicas")
        | F.coalesce(lacks | nobody, F.lit(False))
    )  # fmt: skip


def topic_names(metadata: DataFrame) -> DataFrame:
    """List the topics: topic_id, topic."""
    return metadata.where("type = 'TOPIC_RECORD'").select(
        F.col("data.topicId").alias("topic_id"), F.col("data.name").alias("topic")
    )


def min_isr_settings(metadata: DataFrame) -> DataFrame:
    """List the last min.insync.replicas of each topic, or of a ``resource_broker`` ('' for all brokers)."""
    records = metadata.where("type = 'CONFIG_RECORD' AND data.name = 'min.insync.replicas'")
    kind, name = F.col("data.resourceType"), F.col("data.resourceName")
    return (
        records.groupBy(
            F.when(kind == _TOPIC, name).alias("topic"), F.when(kind == _BROKER, name).alias("resource_broker")
        )
        .agg(F.max_by("data.value", "record_offset").try_cast("int").alias("min_insync_replicas"))
        .where("min_insync_replicas IS NOT NULL")
    )


def partition_history(metadata: DataFrame) -> DataFrame:
    """List the partition states: topic_id, partition_id, leader_id, leader_epoch, replicas, isr, at_us, source.

    A record with a leader begins a leader epoch. ``position`` orders the states of a partition. In a log whose
    beginning is missing, leader and epoch are -1 until a record has them.
    """
    records = (
        metadata.where("type IN ('PARTITION_RECORD', 'PARTITION_CHANGE_RECORD')")
        .withColumns({"topic_id": F.col("data.topicId"), "partition_id": F.col("data.partitionId")})
        .dropDuplicates(["record_offset", "topic_id", "partition_id"])
        .drop("topic_id", "partition_id")
    )
    order = Window.partitionBy("topic_id", "partition_id").orderBy("record_offset")
    upto = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = F.col("type") == "PARTITION_RECORD"
    elected = F.sum(F.when(~whole & F.col("leader").isNotNull(), 1).otherwise(0)).over(upto)

    def filled(column: Column) -> Column:
        return F.last(column, ignorenulls=True).over(upto)

    epoch = filled(F.when(whole, F.col("leaderEpoch") - F.col("elected"))) + F.col("elected")
    return (
        records.select(
            "type", "record_offset", "at_us", "source_file", "source_line",
            F.col("data.topicId").alias("topic_id"), F.col("data.partitionId").alias("partition_id"),
            "data.leader", "data.leaderEpoch", "data.replicas", "data.isr",
        )
        .withColumn("elected", elected)
        .select(
            "topic_id", "partition_id", F.col("record_offset").alias("position"),
            F.coalesce(filled(F.col("leader")), F.lit(_UNKNOWN)).alias("leader_id"),
            F.coalesce(epoch, F.lit(_UNKNOWN)).alias("leader_epoch"),
            filled(F.col("replicas")).alias("replicas"),
            filled(F.col("isr")).alias("isr"),
            "at_us", "source_file", "source_line",
        )
    )  # fmt: skip


def broker_changes(metadata: DataFrame) -> DataFrame:
    """List the broker state changes (fenced, unfenced, shutting_down): broker_id, kind, at_us."""
    type_, fenced = F.col("type"), F.col("data.fenced")
    registered = (type_ == "REGISTER_BROKER_RECORD") & (F.coalesce(fenced, F.lit("true")) == "true")
    kinds = {
        "fenced": registered | (type_ == "FENCE_BROKER_RECORD") | (_changed(type_) & (fenced == "1")),
        "unfenced": (type_ == "UNFENCE_BROKER_RECORD") | (_changed(type_) & (fenced == "-1")),
        "shutting_down": _changed(type_) & (F.col("data.inControlledShutdown") == "1"),
    }
    happened = F.array(*(F.when(condition, kind) for kind, condition in kinds.items()))
    broker = F.coalesce("data.brokerId", "data.id").alias("broker_id")
    return metadata.select(broker, "at_us", F.explode(F.array_compact(happened)).alias("kind"))


def _changed(type_: Column) -> Column:
    return type_ == "BROKER_REGISTRATION_CHANGE_RECORD"
