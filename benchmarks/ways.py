"""Ways from the log in Delta to results in Delta: ours, and the alternatives.

All read the same input tables. The docstring of each and the page list what it leaves out.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from isr_batch.lake import sizes
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.timelines import Timelines
from isr_batch.replay.event_stream import stream_terms
from isr_batch.replay.packing import pack_stale_days
from isr_batch.replay.replay import ORDER, replay, rule_runs
from isr_batch.scoring.disagreements import write_disagreements
from isr_batch.scoring.scores import write_scores
from isr_batch.settings import ReplaySettings
from isr_batch.window import Window
from udfs.batches.event_chunks import COLUMNS_OF_APPENDS, COLUMNS_OF_FETCHES
from udfs.batches.results import SET_COLUMNS
from udfs.batches.rule_runs import RuleRun
from udfs.records import APPEND, FETCH, UNKNOWN, Rows

OURS = (*SET_COLUMNS, "replica_id")


def runs_of(*rules: str) -> list[RuleRun]:
    """Runs of these rules, or of ``all``."""
    return rule_runs(ReplaySettings(rules=list(rules)))


def packed(spark: SparkSession, lake: Path) -> Path:
    """Write the log as packed segments next to its rows, as an ingest does."""
    pack_stale_days(Lake(spark, str(lake)))
    return lake


def ours(spark: SparkSession, lake: Path, runs: Sequence[RuleRun], timelines: Timelines = "all") -> Path:
    """Timelines, changes, verdicts and the ledger of each rule; packs what is not packed.

    By Spark's workers whatever the size, since it is measured against what else Spark can do.
    """
    sizes.REPLAYED_EVENTS = -1
    replay(Lake(spark, str(lake)), runs, timelines=timelines)
    return lake


def whole_command(spark: SparkSession, lake: Path, runs: Sequence[RuleRun]) -> Path:
    """What `isr-batch replay` does in its session: the replay, then rules compared with each other and scored."""
    ours(spark, lake, runs)
    write_disagreements(Lake(spark, str(lake)), Window())
    write_scores(Lake(spark, str(lake)))
    return lake


def rows_of(lake: Lake) -> DataFrame:
    """Terms, fetches and appends as single rows of one stream: what a replay has to move without packed segments."""
    fetches = _events(lake.read("fetch_log"), FETCH, COLUMNS_OF_FETCHES)
    appends = _events(lake.read("append_log"), APPEND, COLUMNS_OF_APPENDS)
    terms: DataFrame = stream_terms(BySpark(lake), lake.read("leader_epochs"))
    return terms.unionByName(fetches.unionByName(appends), allowMissingColumns=True)


def _events(rows: DataFrame, kind: np.int64, columns: Mapping[str, str]) -> DataFrame:
    given = {
        name: F.unix_micros(column) if column.endswith("_time") else F.col(column).cast("bigint")
        for name, column in columns.items()
    }
    unknown = F.lit(int(UNKNOWN))
    values = {name: F.coalesce(given[name], unknown) if name in given else unknown for name in Rows._fields}
    return rows.select(
        *SET_COLUMNS, *(value.alias(name) for name, value in (values | {"kind": F.lit(int(kind))}).items())
    )


def floor(spark: SparkSession, lake: Path) -> DataFrame:
    """Spark's floor for the rows of the log: read, shuffle, sort, pass to Python and back unchanged, no replay."""

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    stream = rows_of(Lake(spark, str(lake)))
    return stream.repartition(*SET_COLUMNS).sortWithinPartitions(*ORDER).mapInArrow(same, stream.schema)


def floor_to_nowhere(spark: SparkSession, lake: Path) -> None:
    """The floor, and nothing is written."""
    floor(spark, lake).write.format("noop").mode("overwrite").save()


def floor_to_delta(spark: SparkSession, lake: Path) -> None:
    """The floor, and the rows themselves are written to one Delta table."""
    floor(spark, lake).write.format("delta").save(str(lake / "floor"))


def sql_windows(spark: SparkSession, lake: Path) -> Path:
    """One rule in SQL: lastCaughtUpTimeMs, lag in time and in messages at each fetch, by two windows.

    No ISR, no high watermark, no check: each depends on the previous one. No rows for appends either.
    """
    tables = Lake(spark, str(lake))
    fetches = tables.read("fetch_log").select(
        *OURS,
        F.col("handled_time").alias("time"),
        F.unix_millis("handled_time").alias("handled_ms"),
        "processed_time",
        "fetch_offset",
    )
    appends = tables.read("append_log").select(*SET_COLUMNS, F.col("append_time").alias("time"), "log_end_offset")
    terms = tables.read("leader_epochs").select(
        *SET_COLUMNS,
        F.col("start_time").alias("time"),
        F.col("start_offset").alias("log_end_offset"),
    )
    start_ms = F.min(F.when(F.col("is_term"), F.unix_millis("time")))
    rows = fetches.unionByName(appends, allowMissingColumns=True).withColumn("is_term", F.lit(False))
    rows = rows.unionByName(terms.withColumn("is_term", F.lit(True)), allowMissingColumns=True)
    # A fetch reads before an append of the same microsecond.
    so_far = (
        Over.partitionBy(*SET_COLUMNS)
        .orderBy("time", F.col("replica_id").isNull())
        .rowsBetween(Over.unboundedPreceding, Over.currentRow)
    )
    known = rows.withColumn("leader_end", F.max("log_end_offset").over(so_far)).withColumn(
        "term_start_ms", start_ms.over(so_far)
    )
    follower = Over.partitionBy(*OURS).orderBy("time")
    before = F.lag("leader_end").over(follower), F.lag("handled_ms").over(follower)
    caught_up = (
        F.when(F.col("fetch_offset") >= F.col("leader_end"), F.col("handled_ms"))
        .when(F.col("fetch_offset") >= before[0], before[1])
        .when(before[0].isNull(), F.lit(0))
    )
    fetched = known.where("replica_id IS NOT NULL").withColumn("candidate_ms", caught_up)
    last = F.greatest(F.max("candidate_ms").over(follower), "term_start_ms")
    timeline = fetched.select(
        *OURS,
        F.col("processed_time").alias("time"),
        F.col("fetch_offset").alias("follower_log_end_offset"),
        last.alias("last_caught_up_time_ms"),
        F.when(F.col("fetch_offset") >= F.col("leader_end"), 0)
        .otherwise(F.unix_millis("processed_time") - last)
        .alias("lag_ms"),
        (F.col("leader_end") - F.col("fetch_offset")).alias("lag_messages"),
    )
    timeline.write.format("delta").save(str(lake / "windows"))
    return lake


def differences_of_windows(spark: SparkSession, lake: Path, rule: str) -> tuple[int, int]:
    """Instants that both have, our timeline and SQL; and at how many their lastCaughtUpTimeMs differ."""
    windows = spark.read.format("delta").load(str(lake / "windows"))
    mine = Lake(spark, str(lake)).read("replica_changes").where(F.col("rule") == rule)
    both = mine.select(*OURS, "time", F.col("last_caught_up_time_ms").alias("ours")).join(windows, [*OURS, "time"])
    row = both.agg(F.count("*"), F.count_if(F.col("ours") != F.col("last_caught_up_time_ms"))).collect()[0]
    return int(row[0]), int(row[1])
