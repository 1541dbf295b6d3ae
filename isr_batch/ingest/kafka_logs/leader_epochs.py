"""Build table leader_epochs: each leader's terms, from its own state-change log (before 2.5 also its server.log)."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs import metadata_log, server_log, server_log_zookeeper
from isr_batch.ingest.kafka_logs.kernels import with_kernels
from isr_batch.ingest.kafka_logs.request_log import FOLLOWER_FETCH
from isr_batch.ingest.kafka_logs.server_log import process_of
from udfs.batches.listed_partitions import FETCHED, LISTED, listed_by_fetches

NOTED_WITHIN_US = 5_000_000
EARLY_US = 100_000
"""State-change lines may be written this much after the term began."""

PARTITION = ("leader_id", "topic", "partition_id")
UNKNOWN_EPOCH = -1
UNKNOWN_LEADER = -1


@dataclass(frozen=True)
class Sources:
    """The parsed log files; the last four frames are small.

    ``topic_names``: topic_id to topic; ``min_isr``: min.insync.replicas as set; ``accepted``: as
    `isr_batch.ingest.kafka_logs.server_log_zookeeper.accepted` gives it.
    """

    requests: DataFrame
    server: DataFrame
    state_changes: DataFrame
    metadata: DataFrame
    settings: DataFrame
    topic_names: DataFrame
    min_isr: DataFrame
    accepted: DataFrame


def terms(
    sources: Sources, starts: DataFrame, begun: DataFrame, followers: DataFrame, processes: DataFrame
) -> DataFrame:
    """List all terms: columns of leader_epochs, with ``start_us``, ``end_us``, ``next_us`` and ``in_force_us``.

    ``in_force_us`` is the earliest time the term may have begun: some ms before its line, but after the previous term.
    ``next_us`` is when the broker received its next state for the partition.

    Parameters
    ----------
    sources : Sources
    starts : DataFrame
        As `term_starts` gives them.
    begun : DataFrame
        Terms that go on, as `isr_batch.ingest.kafka_logs.mid_term.Begun`.
    followers : DataFrame
        broker_id, topic, partition_id, leader_epoch, ``fetched``: replicas that fetched the partition.
    processes : DataFrame
        As `isr_batch.ingest.kafka_logs.broker_events.processes` gives them.
    """
    going_on = begun.withColumns(
        {"leads": F.lit(True), "new_leader_id": F.col("broker_id"), "tells_previous": F.lit(True),
         "begins_mid_term": F.lit(True), "isr": F.array().cast("array<int>")}
    )  # fmt: skip
    own = Window.partitionBy("broker_id", "topic", "partition_id").orderBy("stamp_us", "source_line")
    of_process = Window.partitionBy("broker_id", "topic", "partition_id", "process").orderBy("stamp_us", "source_line")
    previous = F.when(F.col("tells_previous"), F.col("previous_leader_id")).otherwise(
        F.lag("new_leader_id").over(of_process)
    )
    spans = (
        starts.unionByName(going_on, allowMissingColumns=True)
        .withColumn("next_us", F.lead("stamp_us").over(own))
        .join(F.broadcast(sources.settings), "broker_id")
        .withColumn("process", process_of("stamp_us"))
        .withColumn("previous_leader_id", previous)
        .where("leads")
        .join(F.broadcast(processes), ["broker_id", "process"], "left")
        .join(F.broadcast(server_log.isr_write_times(sources.server)), "broker_id", "left")
        .join(F.broadcast(_metadata_delays(sources)), "broker_id", "left")
        .withColumn("end_us", F.greatest("stamp_us", F.least("next_us", F.coalesce("last_led_us", "next_us"))))
        .withColumn("former_end_us", F.lag("end_us").over(own))
    )
    return _with_offsets(_with_topic_facts(spans, sources, followers), sources).select(
        F.col("broker_id").alias("leader_id"), "topic", "partition_id", "leader_epoch",
        F.col("stamp_us").alias("start_us"), "end_us",
        F.least("stamp_us", F.greatest(F.col("former_end_us") + 1, F.col("stamp_us") - EARLY_US)).alias("in_force_us"),
        "next_us", F.coalesce("begins_mid_term", F.lit(False)).alias("begins_mid_term"),
        F.coalesce("term_source", F.lit("logged")).alias("term_source"),
        "start_offset", "start_high_watermark", "assigned", F.col("isr").alias("isr_at_start"),
        "previous_leader_id", "start_offset_source",
        "replica_lag_time_max_ms", "lag_time_source", "min_insync_replicas", "broker_version", "version",
        F.coalesce("check_origin_ms", F.lit(0)).alias("check_origin_ms"), "isr_write_ms", "metadata_delay_ms",
        F.coalesce("check_origin_source", F.lit("unknown")).alias("check_origin_source"),
    )  # fmt: skip


def term_starts(sources: Sources) -> DataFrame:
    """List each broker's term starts, as leader (``leads``) or follower; ``new_leader_id`` -1 means not logged."""
    another = F.lit(UNKNOWN_LEADER)
    led = server_log.leader_lines(sources.state_changes).withColumns(
        {"leads": F.lit(True), "new_leader_id": F.col("broker_id")}
    )
    followed = server_log.follower_lines(sources.state_changes).withColumns(
        {"leads": F.lit(False), "new_leader_id": another}
    )
    logged = led.unionByName(followed, allowMissingColumns=True)
    accepted = (
        sources.accepted.withColumnsRenamed({"leader_id": "new_leader_id"})
        .drop("replicas")
        .join(logged, ["broker_id", "topic", "partition_id", "leader_epoch"], "left_anti")
        # The zkVersion is the partition epoch, but set here it would mean that all ISR changes are logged with it.
        .withColumns({"partition_epoch": F.lit(None).cast("int"), "tells_previous": F.lit(False)})
    )
    return logged.unionByName(_with_start_lines(accepted, sources), allowMissingColumns=True)


def _with_start_lines(accepted: DataFrame, sources: Sources) -> DataFrame:
    """Add the start_offset and the more exact time that server.log has for the same request."""
    line = server_log_zookeeper.start_lines(sources.server).withColumnRenamed("stamp_us", "line_us")
    key = ["broker_id", "topic", "partition_id", "leader_epoch"]
    near = F.abs(F.col("line_us") - F.col("stamp_us")) <= NOTED_WITHIN_US
    nearest = Window.partitionBy(*key, "stamp_us").orderBy(F.abs(F.col("line_us") - F.col("stamp_us")))
    found = accepted.select(*key, "stamp_us").join(line, key).where(near).withColumn(
        "nth", F.row_number().over(nearest)
    ).where("nth = 1").drop("nth")  # fmt: skip
    return (
        accepted.join(F.broadcast(found), [*key, "stamp_us"], "left")
        .withColumn("stamp_us", F.coalesce("line_us", "stamp_us"))
        .drop("line_us")
    )


def _with_offsets(spans: DataFrame, sources: Sources) -> DataFrame:
    """Fill in start_offset and start_high_watermark from fetches where no line has them.

    The log end offset is at least the highest fetch offset of any follower before the term. The high watermark is at
    most the lowest first fetch offset of an ISR member in the term.
    """
    if sources.accepted.isEmpty():
        return spans.withColumn("start_offset_source", F.lit("logged"))
    term = ["broker_id", "topic", "partition_id", "leader_epoch", "stamp_us"]
    logged = ~F.coalesce("begins_mid_term", F.lit(False))
    incomplete = spans.where(logged & (F.isnull("start_offset") | F.isnull("start_high_watermark"))).select(
        *term, "next_us", F.col("isr").alias("members")
    )
    asked = listed_fetches(sources).select(
        "leader_id", "topic", "partition_id", "replica_id", "fetch_offset", "handled_us"
    )
    seen = asked.join(F.broadcast(incomplete), ["topic", "partition_id"])
    before = seen.where("handled_us < stamp_us").groupBy(*term).agg(F.max("fetch_offset").alias("shown_before"))
    first = (
        seen.where("leader_id = broker_id AND array_contains(members, replica_id)")
        .where("handled_us >= stamp_us AND (next_us IS NULL OR handled_us < next_us)")
        .groupBy(*term, "replica_id")
        .agg(F.min_by("fetch_offset", F.struct("handled_us", "fetch_offset")).alias("first_offset"))
        .groupBy(*term)
        .agg(F.min("first_offset").alias("held_by_all"))
    )
    start = F.coalesce("start_offset", F.when(logged, F.coalesce("shown_before", F.lit(0).cast("bigint"))))
    return (
        spans.join(F.broadcast(before), term, "left")
        .join(F.broadcast(first), term, "left")
        .withColumn("start_offset_source", F.when(F.col("start_offset").isNull(), "inferred").otherwise("logged"))
        .withColumn("start_offset", start)
        .withColumn(
            "start_high_watermark",
            F.coalesce(
                "start_high_watermark",
                F.when(logged, F.least("start_offset", F.coalesce("held_by_all", "start_offset"))),
            ),
        )
    )


def _with_topic_facts(spans: DataFrame, sources: Sources, followers: DataFrame) -> DataFrame:
    config = sources.min_isr
    of_topic = config.where("topic IS NOT NULL").select("topic", F.col("min_insync_replicas").alias("of_topic"))
    of_broker = config.where("resource_broker != ''").select(
        F.col("resource_broker").cast("int").alias("broker_id"), F.col("min_insync_replicas").alias("of_broker")
    )
    of_all = config.where("resource_broker = ''").agg(F.max("min_insync_replicas").alias("of_all"))
    of_log = server_log.min_isr_of_logs(sources.server).withColumnRenamed("min_insync_replicas", "of_log")
    term = ["broker_id", "topic", "partition_id", "leader_epoch"]
    return (
        spans.withColumnRenamed("min_insync_replicas", "of_properties")
        .join(F.broadcast(of_topic), "topic", "left")
        .join(F.broadcast(of_broker), "broker_id", "left")
        .crossJoin(F.broadcast(of_all))
        .join(F.broadcast(of_log), "topic", "left")
        .join(_assignments(sources), ["topic", "partition_id", "leader_epoch"], "left")
        .join(F.broadcast(followers), term, "left")
        .withColumn("min_insync_replicas", F.coalesce("of_topic", "of_broker", "of_all", "of_log", "of_properties"))
        .withColumn("assigned", F.coalesce("replicas", F.array_union("isr", F.coalesce("fetched", "isr"))))
        .withColumn("assigned", F.array_union("assigned", F.array("broker_id")))
    )


def _metadata_delays(sources: Sources) -> DataFrame:
    """Compute the median delay from a controller's record to the leader's line: broker_id, metadata_delay_ms."""
    state = ("topic", "partition_id", "leader_epoch")
    recorded = metadata_log.partition_history(sources.metadata).join(F.broadcast(sources.topic_names), "topic_id")
    recorded = recorded.select(*state, F.array_sort("isr").alias("isr"), "at_us")
    noted = server_log.still_leader_lines(sources.state_changes)
    noted = noted.select("broker_id", *state, F.array_sort("isr").alias("isr"), "stamp_us")
    delay_us = F.col("stamp_us") - F.col("at_us")
    return (
        noted.join(recorded, [*state, "isr"])
        .where(delay_us.between(0, NOTED_WITHIN_US))
        .groupBy("broker_id")
        .agg(F.round(F.median(delay_us) / 1000).cast("bigint").alias("metadata_delay_ms"))
    )


def _assignments(sources: Sources) -> DataFrame:
    """Find the assigned replicas by topic, partition_id and leader_epoch."""
    controller = metadata_log.partition_history(sources.metadata).join(F.broadcast(sources.topic_names), "topic_id")
    leader = server_log.still_leader_lines(sources.state_changes)
    keys = ("topic", "partition_id", "leader_epoch")
    both = controller.select(*keys, "replicas", F.col("position").alias("at"))
    for lines in (leader, sources.accepted):
        both = both.unionAll(lines.select(*keys, "replicas", F.col("partition_epoch").cast("bigint").alias("at")))
    return both.groupBy(*keys).agg(F.max_by("replicas", F.struct("at", "replicas")).alias("replicas"))


def listed_fetches(sources: Sources) -> DataFrame:
    """List the partitions of all follower fetches, whether served or not.

    Returns
    -------
    DataFrame
        leader_id, topic, partition_id, leader_epoch, replica_id, fetch_offset, handled_us, completed_us, ``failed``:
        the request or the partition was answered with an error.
    """
    fetches = sources.requests.where(F.col("kind") == FOLLOWER_FETCH).select(*FETCHED, "error_code", "partitions")
    listed = fetches.mapInArrow(with_kernels(listed_by_fetches), LISTED).withColumnRenamed("broker_id", "leader_id")
    return named(listed, sources.topic_names).drop("topic_id")


def named(rows: DataFrame, topic_names: DataFrame) -> DataFrame:
    """Set ``topic`` to the name of ``topic_id`` where it is known; otherwise to the id, which may already be a name."""
    return rows.join(F.broadcast(topic_names), "topic_id", "left").withColumn("topic", F.coalesce("topic", "topic_id"))


def in_force(terms_: DataFrame) -> DataFrame:
    """Collect the terms of each partition and leader in an array ``in_force``, for `epoch_at` to search."""
    term = F.struct("in_force_us", "leader_epoch")
    return terms_.groupBy(*PARTITION).agg(F.array_sort(F.collect_list(term)).alias("in_force"))


def epoch_at(instant_us: str) -> Column:
    """Look up the leader epoch at a time; -1 before the first known term of the leader."""
    begun = F.filter("in_force", lambda term: term.in_force_us <= F.col(instant_us))
    return F.coalesce(F.try_element_at(begun, F.lit(-1)).leader_epoch, F.lit(UNKNOWN_EPOCH))
