"""Infer leaders' terms from fetches and appends, if the input has none or incomplete ones."""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from isr_batch.ingest.own_table.mapping import TableMapping
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.lake.tables.leaders import LEADER_EPOCHS


def complete_leader_epochs(
    given: DataFrame | None,
    known: Collection[str],
    fetches: DataFrame,
    appends: DataFrame | None,
    mapping: TableMapping,
) -> DataFrame:
    """Complete the given terms; without any, infer one term per replica set in the fetches.

    A term that does not say when it ended lasts until the partition's next one, or until the last row of its leader:
    if it ended with the partition's own last fetch, a follower that stops alone would never be missed.

    Parameters
    ----------
    given : DataFrame, optional
        Columns of leader_epochs, null where missing.
    known : collection of str
        Columns of it that are mapped.
    fetches, appends : DataFrame
        Columns of fetch_log and append_log, of one cluster.
    mapping : TableMapping
        With the settings for brokers whose own are unknown.

    Returns
    -------
    DataFrame
        Columns of leader_epochs, but for event_date.
    """
    seen = _seen(fetches)
    if given is None:
        others = [column for column in LEADER_EPOCHS.columns if column.name not in SET_KEY]
        rows = seen.withColumns({column.name: F.lit(None).cast(column.type) for column in others})
    else:
        rows = given.join(seen, list(SET_KEY), "left")
    rows = rows.withColumns(
        {"start_time": F.coalesce("start_time", "first_time"), "log_ends_time": _by_leader(F.max("last_time"))}
    )
    if appends is not None:
        last = appends.groupBy("leader_id").agg(F.max("append_time").alias("last_append_time"))
        rows = rows.join(F.broadcast(last), "leader_id", "left").withColumn(
            "log_ends_time", F.greatest("log_ends_time", "last_append_time")
        )
    in_partition = Over.partitionBy("topic", "partition_id").orderBy("start_time", "leader_epoch")
    goes_on = F.least(F.lead("start_time").over(in_partition), "log_ends_time")
    former = F.lag("leader_id").over(in_partition)
    followers = F.coalesce("followers", F.array().cast("array<int>"))
    start_offset = F.coalesce("start_offset", "first_offset", F.lit(0))
    assigned = F.coalesce("assigned", F.array_union(F.array("leader_id"), followers))
    return rows.withColumns(
        {
            "end_time": F.coalesce("end_time", F.greatest("start_time", "last_time", goes_on)),
            "previous_leader_id": F.col("previous_leader_id") if "previous_leader_id" in known else former,
            "start_offset": start_offset,
            "start_high_watermark": F.coalesce("start_high_watermark", F.least(start_offset, "first_offset")),
            "assigned": assigned,
            "isr_at_start": F.coalesce("isr_at_start", assigned),
            "replica_lag_time_max_ms": F.coalesce("replica_lag_time_max_ms", F.lit(mapping.replica_lag_time_max_ms)),
            "min_insync_replicas": F.coalesce("min_insync_replicas", F.lit(mapping.min_insync_replicas)),
            "broker_version": F.coalesce("broker_version", F.lit(mapping.broker_version)),
            "check_origin_ms": F.coalesce("check_origin_ms", F.lit(0)),
            "check_origin_source": F.coalesce(
                "check_origin_source", F.when(F.col("check_origin_ms").isNotNull(), "given"), F.lit("unknown")
            ),
        }
    )


def _by_leader(value: Column) -> Column:
    return value.over(Over.partitionBy("leader_id"))


def _seen(fetches: DataFrame) -> DataFrame:
    """By SET_KEY: first_time, last_time, followers, and first_offset, the least at which a follower began."""
    counted = F.when(F.col("error_code") == 0, F.struct("handled_time", "fetch_offset"))
    return (
        fetches.groupBy(*SET_KEY, "replica_id")
        .agg(
            F.min("arrival_time").alias("first_time"),
            F.max("completed_time").alias("last_time"),
            F.coalesce(F.min_by("fetch_offset", counted), F.min("fetch_offset")).alias("first_offset"),
        )
        .groupBy(*SET_KEY)
        .agg(
            F.min("first_time").alias("first_time"),
            F.max("last_time").alias("last_time"),
            F.min("first_offset").alias("first_offset"),
            F.array_sort(F.collect_set("replica_id")).alias("followers"),
        )
    )
