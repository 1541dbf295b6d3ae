"""Build table observed_isr_changes: ISR changes that the leaders logged or that the controller made.

Before AlterPartition (ZooKeeper, up to 2.7) the leaders log Shrinking and Expanding lines, and the controller sends its
own changes to the leaders in LeaderAndIsr requests. Later, the metadata log has all changes.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from isr_batch.ingest.kafka_logs import metadata_log, server_log, server_log_zookeeper
from isr_batch.ingest.kafka_logs.coverage import Stretch, stretch_number
from isr_batch.ingest.kafka_logs.leader_epochs import Sources, epoch_at, in_force

_PARTITION = ["topic", "partition_id"]
_RECORD_EARLY_US, _RECORD_LATE_US = 1_000_000, 5_000_000
_TICKS_US = 60_000_000
"""Longer than any controller election; a controller that is down for longer is an outage of its own."""
_CHANGE = ("leader_epoch", "leader_id", "at_us", "isr_before", "isr_after", "source_file", "source_line")


def led_shrinks(server: DataFrame, terms: DataFrame, stretches: Sequence[Stretch] = ()) -> DataFrame:
    """List the Shrinking lines with the term they were logged in: leader_id, leader_epoch, at_us and the line's values.

    Retries after a failed write to ZooKeeper are left out.
    """
    repeated = server_log_zookeeper.isr_writes(server).where("repeated").select("source_file", "source_line")
    lines = server_log.shrink_lines(server).join(F.broadcast(repeated), ["source_file", "source_line"], "left_anti")
    return _in_their_terms(lines, terms).withColumn("log_stretch", stretch_number(stretches, "leader_id", "at_us"))


def _in_their_terms(lines: DataFrame, terms: DataFrame) -> DataFrame:
    """Add leader_id, at_us and leader_epoch to the lines of a leader."""
    return (
        lines.withColumnsRenamed({"broker_id": "leader_id", "stamp_us": "at_us"})
        .join(F.broadcast(in_force(terms)), ["leader_id", *_PARTITION], "left")
        .withColumn("leader_epoch", epoch_at("at_us"))
        .drop("in_force")
    )


def metadata_complete_until(sources: Sources, log_ends_us: int) -> int | None:
    """Find the time up to which the metadata log has every ISR change, in epoch microseconds; None without such a log.

    A dump may be older than the logs. Since 3.3 an active controller writes a record twice a second, so the dump ends
    at its last record. Before 3.3, a later change in a leader's log shows that the dump ended earlier.
    """
    last_us, ticks = sources.metadata.agg(
        F.max("at_us"), F.coalesce(F.max(F.col("type") == "NO_OP_RECORD"), F.lit(False))
    ).collect()[0]  # fmt: skip
    if last_us is None:
        return None
    lines = (
        server_log.isr_updated_lines(sources.server).select("stamp_us")
        .unionAll(server_log.still_leader_lines(sources.state_changes).select("stamp_us"))
        .unionAll(server_log.leader_lines(sources.state_changes).select("stamp_us"))
    )  # fmt: skip
    goes_on = not lines.where(F.col("stamp_us") > last_us + _RECORD_LATE_US).isEmpty()
    ended = ticks and last_us < log_ends_us - _TICKS_US
    return int(last_us) if goes_on or ended else max(last_us, log_ends_us)


def observed_isr_changes(
    sources: Sources, shrinks: DataFrame, terms: DataFrame, begun: DataFrame, *, controller_known: bool
) -> DataFrame:
    """Build the columns of observed_isr_changes; times are still microseconds.

    ``begun`` has the terms that began before the log, with isr_at_start: the first logged change is relative to that
    ISR.

    A shrink in the metadata log without a Shrinking line at about that time was made by the controller. A Shrinking
    line without such a record was an attempt (of a deposed leader, say); it stays a row.
    """
    if controller_known:
        history = _from_metadata(sources).withColumn("begins", F.lit(False))
    else:
        history = _with_beginnings(_from_leaders(sources, terms), begun)
    order = Window.partitionBy(*_PARTITION).orderBy("position")
    changes = history.withColumn("isr_before", F.lag("isr").over(order)).withColumnRenamed("isr", "isr_after")
    changes = changes.where("isr_before IS NOT NULL AND NOT begins").select(*_PARTITION, *_CHANGE)
    expanding = _in_their_terms(
        server_log_zookeeper.isr_writes(sources.server).where("NOT shrinks AND NOT repeated"), terms
    )
    left = F.explode(F.array_except("isr_before", "isr_after")).alias("replica_id")
    joined = F.explode(F.array_except("isr_after", "isr_before")).alias("replica_id")
    by_leader = shrinks.select(
        *_PARTITION, *_CHANGE, "high_watermark", "leader_log_end_offset", F.explode("dropped").alias("d")
    ).select("*", "d.*", F.lit("shrink").alias("kind"), F.lit("leader").alias("made_by"))
    by_controller = (
        _without_line(changes, shrinks).unionByName(_by_order(sources, begun))
        .select("*", left, F.lit("shrink").alias("kind"), F.lit("controller").alias("made_by"))
    )  # fmt: skip
    expands = (
        _without_line(changes, expanding).unionByName(expanding.select(*_PARTITION, *_CHANGE))
        .select("*", joined, F.lit("expand").alias("kind"), F.lit("leader").alias("made_by"))
    )  # fmt: skip
    return by_leader.drop("d").unionByName(by_controller.unionByName(expands), allowMissingColumns=True)


def _without_line(changes: DataFrame, announced: DataFrame) -> DataFrame:
    """Keep the changes without a line in a leader's log."""
    lines = announced.select(*_PARTITION, F.array_sort("isr_after").alias("after"), F.col("at_us").alias("line_us"))
    same = (
        F.col("c.topic").eqNullSafe(F.col("l.topic"))
        & (F.col("c.partition_id") == F.col("l.partition_id"))
        & (F.array_sort("c.isr_after") == F.col("l.after"))
        & (F.col("c.at_us") - F.col("l.line_us")).between(-_RECORD_EARLY_US, _RECORD_LATE_US)
    )
    return changes.alias("c").join(lines.alias("l"), same, "left_anti")


def _by_order(sources: Sources, begun: DataFrame) -> DataFrame:
    """List the changes in LeaderAndIsr requests: the ISR in a request compared with the last known ISR before it."""
    renamed = {"stamp_us": "at_us", "broker_id": "leader_id"}
    columns = (*_PARTITION, *(name for name in _CHANGE if name != "isr_before"), "ordered")
    with_versions = server_log.leader_lines(sources.state_changes).where("partition_epoch IS NOT NULL")
    orders = (
        sources.accepted.where("leads")
        .join(with_versions, ["broker_id", *_PARTITION, "leader_epoch"], "left_anti")
        .drop("leader_id")
        .withColumnsRenamed({**renamed, "isr": "isr_after"})
        .withColumn("ordered", F.lit(True))
        .select(*columns)
    )
    writes = (
        server_log_zookeeper.isr_writes(sources.server).where("NOT failed")
        .withColumnsRenamed(renamed)
        .withColumns({"ordered": F.lit(False), "leader_epoch": F.lit(None).cast("int")})
        .select(*columns)
    )  # fmt: skip
    known = begun.withColumnsRenamed({"start_us": "at_us", "isr_at_start": "isr_after"}).withColumns(
        {"ordered": F.lit(False), "source_file": F.lit(None).cast("string"), "source_line": F.lit(None).cast("bigint")}
    )
    order = Window.partitionBy(*_PARTITION).orderBy("at_us", "source_line")
    return (
        orders.unionAll(writes)
        .unionAll(known.select(*columns))
        .withColumn("isr_before", F.lag("isr_after").over(order))
        .where("ordered AND isr_before IS NOT NULL")
        .select(*_PARTITION, *_CHANGE)
    )


def _from_metadata(sources: Sources) -> DataFrame:
    return metadata_log.partition_history(sources.metadata).join(F.broadcast(sources.topic_names), "topic_id")


def _with_beginnings(history: DataFrame, begun: DataFrame) -> DataFrame:
    """Insert the ISR at the start of each stretch of the log before the first state after it."""
    start = begun.select(*_PARTITION, "leader_id", "leader_epoch", F.col("isr_at_start").alias("isr"), "start_us")
    later = history.select(*_PARTITION, "position", F.col("at_us").alias("state_us"))
    first = (
        start.join(later, _PARTITION).where("state_us > start_us")
        .groupBy(*_PARTITION, "leader_id", "leader_epoch", "isr", "start_us").agg(F.min("position").alias("next"))
    )  # fmt: skip
    before = first.withColumns(
        {"position": 2 * F.col("next") - 1, "at_us": F.col("start_us"), "begins": F.lit(True),
         "partition_epoch": F.lit(None).cast("int"), "source_file": F.lit(None).cast("string"),
         "source_line": F.lit(None).cast("bigint")}
    ).drop("next", "start_us")  # fmt: skip
    states = history.withColumns({"position": 2 * F.col("position"), "begins": F.lit(False)})
    return states.unionByName(before)


def _from_leaders(sources: Sources, terms: DataFrame) -> DataFrame:
    """List the partition states that leaders logged, from the earliest line of each; for lack of a metadata log."""
    columns = (
        *_PARTITION,
        "leader_id",
        "leader_epoch",
        "partition_epoch",
        "isr",
        "at_us",
        "source_file",
        "source_line",
    )
    renamed = {"stamp_us": "at_us", "broker_id": "leader_id"}
    began = server_log.leader_lines(sources.state_changes).withColumnsRenamed(renamed).select(*columns)
    stayed = (
        server_log.still_leader_lines(sources.state_changes).withColumnRenamed("stamp_us", "at_us").select(*columns)
    )
    updated = (
        server_log.isr_updated_lines(sources.server)
        .withColumnsRenamed(renamed)
        .join(F.broadcast(in_force(terms)), ["leader_id", *_PARTITION], "left")
        .withColumn("leader_epoch", epoch_at("at_us"))
        .select(*columns)
    )
    state = F.struct(*(name for name in columns if name not in _PARTITION))
    return (
        began.unionAll(stayed).unionAll(updated)
        .where("partition_epoch IS NOT NULL")
        .groupBy(*_PARTITION, F.col("partition_epoch").alias("position"))
        .agg(F.min_by(state, F.struct("at_us", state)).alias("state"))
        .select(*_PARTITION, "position", "state.*")
    )  # fmt: skip
