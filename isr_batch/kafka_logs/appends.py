"""append_log: produce requests, with the log end offset after each."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from isr_batch.kafka_logs.request_log import PRODUCE
from isr_batch.kafka_logs.terms import PARTITION, Sources, epoch_at, in_force, listed_fetches, named

_TERM = (*PARTITION, "leader_epoch")


def produced(sources: Sources, terms: DataFrame) -> DataFrame:
    """Give a row a partition of a produce request: term, append_us, base_offset (null: refused), next_offset, repeated.

    An offset above -1 was appended, whatever the error. A producer that sends a batch again gets the offset of
    the first time; those rows are ``repeated``, and no appends.
    """
    answered = (
        sources.requests.where(F.col("kind") == PRODUCE)
        .select("*", F.explode("responses").alias("t"))
        .select(
            "*",
            F.coalesce("t.topicId", "t.topic", "t.name").alias("topic_id"),
            F.explode("t.partitionResponses").alias("p"),
        )
        .drop("topics", "forgotten", "responses", "t")
    )
    rows = (
        named(answered, sources.topic_names)
        .withColumnRenamed("broker_id", "leader_id")
        .withColumn("partition_id", F.col("p.index"))
        .join(F.broadcast(in_force(terms)), list(PARTITION), "left")
        .select(
            *PARTITION, epoch_at("processed_us").alias("leader_epoch"), F.col("processed_us").alias("append_us"),
            "handled_us",
            F.when(F.col("p.baseOffset") >= 0, F.col("p.baseOffset")).alias("base_offset"), "acks",
            F.when((F.col("acks") != 0) & (F.col("p.errorCode") == 0), F.col("completed_us"))
            .when(F.col("acks") == 0, F.col("processed_us")).alias("acknowledged_us"),
            F.col("p.errorCode").alias("error_code"), "source_file", "source_line",
        )
    )  # fmt: skip
    again = Window.partitionBy(*_TERM).orderBy("base_offset", "append_us", "source_line")
    same = F.coalesce(F.lag("base_offset").over(again) == F.col("base_offset"), F.lit(False))
    following = F.lead("base_offset").over(Window.partitionBy(*_TERM, "repeated").orderBy("base_offset"))
    return rows.withColumn("repeated", same).withColumn(
        "next_offset", F.when(F.col("base_offset").isNotNull(), following)
    )


def seen_by_followers(rows: DataFrame, fetched: DataFrame) -> DataFrame:
    """Take an append back to the first answer that brought it to a follower, where that came before its own end.

    The answer went to a fetch that asked for exactly its first offset, so the log had grown by then. A leader that just
    woke up goes on with a produce request for tens of milliseconds after that.
    """
    brought = (
        fetched.where("records_size > 0")
        .groupBy(*PARTITION, F.col("fetch_offset").alias("base_offset"))
        .agg(F.min("answered_us").alias("answered_us"))
    )
    began = F.greatest("handled_us", F.least("append_us", F.coalesce("answered_us", "append_us")))
    return rows.join(brought, [*PARTITION, "base_offset"], "left").withColumn("append_us", began)


def append_log(rows: DataFrame, sources: Sources, shrinks: DataFrame, terms: DataFrame) -> DataFrame:
    """Columns of append_log, instants still in microseconds.

    An append ends where the next one of the term begins. The last one of a term ends at the least offset above its
    beginning that anything else names: a follower that asks for what comes after, a Shrinking line, a later term.
    """
    once = rows.where("NOT repeated")
    open_ended = once.where("base_offset IS NOT NULL AND next_offset IS NULL").select(*_TERM, "base_offset")
    ends = (
        _evidence(sources, shrinks, terms)
        .join(F.broadcast(open_ended), ["topic", "partition_id"])
        .where(
            "named_offset > base_offset AND (named_epoch > leader_epoch "
            "OR (named_epoch = leader_epoch AND named_by = leader_id))"
        )
        .groupBy(*_TERM)
        .agg(F.min(F.struct("named_offset", "named_in")).alias("end"))
    )
    nothing = F.col("base_offset").isNull()
    return once.join(F.broadcast(ends), list(_TERM), "left").select(
        *_TERM, "append_us", "base_offset",
        F.when(nothing, None).otherwise(F.coalesce("next_offset", "end.named_offset", F.col("base_offset") + 1))
        .alias("log_end_offset"),
        F.when(nothing, None).when(F.col("next_offset").isNotNull(), "appends")
        .otherwise(F.coalesce("end.named_in", F.lit("inferred"))).alias("log_end_source"),
        "acks", "acknowledged_us", "error_code", "source_file", "source_line",
    )  # fmt: skip


def _evidence(sources: Sources, shrinks: DataFrame, terms: DataFrame) -> DataFrame:
    """Offsets at which a log ended: topic, partition_id, named_by, named_epoch, named_offset, named_in."""
    fetched = listed_fetches(sources).select("topic", "partition_id", "leader_id", "leader_epoch", "fetch_offset")
    printed = shrinks.select(
        "topic", "partition_id", "leader_id", "leader_epoch",
        F.explode(F.array("leader_log_end_offset", "high_watermark")),
    )  # fmt: skip
    begun = terms.select("topic", "partition_id", "leader_id", "leader_epoch", "start_offset")
    names = ("topic", "partition_id", "named_by", "named_epoch", "named_offset", "named_in")
    return (
        fetched.withColumn("named_in", F.lit("fetches")).toDF(*names)
        .unionAll(printed.withColumn("named_in", F.lit("shrinks")).toDF(*names))
        .unionAll(begun.withColumn("named_in", F.lit("terms")).toDF(*names))
    )  # fmt: skip
