"""Build table fetch_log: one row per partition that a follower fetch read, resolved through its fetch session."""

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs.kernels import with_kernels
from isr_batch.ingest.kafka_logs.leader_epochs import PARTITION, epoch_at, in_force, named
from udfs.batches.session_requests import READ_SCHEMA, REQUEST_COLUMNS, UNKNOWN_OFFSET, sessions_read
from udfs.batches.sessions import Members


def fetches_of(sessions: DataFrame, topic_names: DataFrame, terms: DataFrame, members: Members) -> DataFrame:
    """Build the columns of fetch_log; times are still microseconds.

    And ``records_size`` (bytes), ``fell_from``, ``last_read_us`` and ``last_waited_us``, of
    `udfs.batches.session_requests.sessions_read`. Rows with a ``reason`` are no fetches, but what `session_gaps`
    gives.

    Parameters
    ----------
    sessions : DataFrame
        As `isr_batch.ingest.kafka_logs.request_log.in_sessions` gives them.
    topic_names, terms : DataFrame
        topic_id, topic; all terms.
    members : mapping
        What sessions had that were opened before the log (`isr_batch.ingest.kafka_logs.session_partitions`).
    """
    read = (
        sessions.select(*REQUEST_COLUMNS)
        .mapInArrow(with_kernels(partial(sessions_read, members=members)), READ_SCHEMA)
        .withColumnsRenamed({"topic": "topic_id", "broker_id": "leader_id"})
    )
    # Only fetches older than v9 come without an epoch; the null key keeps all others out of the look-up.
    epochs = in_force(terms).withColumnRenamed("partition_id", "unknown_in")
    unknown = F.when(F.col("leader_epoch") < 0, F.col("partition_id"))
    return (
        named(read, topic_names)
        .withColumn("unknown_in", unknown)
        .join(F.broadcast(epochs), ["leader_id", "topic", "unknown_in"], "left")
        .withColumn(
            "leader_epoch", F.when(F.col("in_force").isNull(), F.col("leader_epoch")).otherwise(epoch_at("handled_us"))
        )
        .withColumn("fetch_offset", F.nullif("fetch_offset", F.lit(UNKNOWN_OFFSET)))
        .withColumns({"leader_log_end_offset": F.lit(None), "leader_leo_source": F.lit("appends")})
    )


def session_gaps(read: DataFrame) -> DataFrame:
    """Find the requests whose predecessors in the session are missing: ``reason``, ``detail``, source."""
    return read.where("reason IS NOT NULL").select("source_file", "source_line", "reason", "detail")


def going_back(fetched: DataFrame) -> DataFrame:
    """Find the fetches whose offset is lower than the previous one although no response asked for a truncation.

    Returns
    -------
    DataFrame
        ``source_file``, ``source_line``, ``reason``, ``detail``.
    """
    detail = F.format_string(
        "replica %d of %s-%d in epoch %d, from %d to %d",
        "replica_id", "topic", "partition_id", "leader_epoch", "fell_from", "fetch_offset",
    )  # fmt: skip
    return fetched.where("fell_from IS NOT NULL").select(
        "source_file", "source_line", F.lit("offset goes back without a truncation").alias("reason"),
        detail.alias("detail"),
    )  # fmt: skip


def not_assigned(fetched: DataFrame, terms: DataFrame) -> DataFrame:
    """Find the followers that fetched a partition which they were not assigned in that term; one row per follower.

    This may happen for a moment after a reassignment; the rows are kept.

    Returns
    -------
    DataFrame
        ``source_file`` and ``source_line`` of the first such fetch, ``reason``, ``detail``.
    """
    term = [*PARTITION, "leader_epoch"]
    assigned = terms.groupBy(*term).agg(F.flatten(F.collect_list("assigned")).alias("assigned"))
    followers = fetched.groupBy(*term, "replica_id").agg(
        F.min(F.struct("source_file", "source_line")).alias("first"), F.sum("run_length").alias("fetches")
    )
    others = followers.join(F.broadcast(assigned), term).where("NOT array_contains(assigned, replica_id)")
    detail = F.format_string(
        "replica %d of %s-%d in epoch %d, %d times", "replica_id", "topic", "partition_id", "leader_epoch", "fetches"
    )
    return others.select("first.*", F.lit("replica not assigned").alias("reason"), detail.alias("detail"))
