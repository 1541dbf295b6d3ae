"""What a replay or a simulation gives (rows of ``udfs.batches.results.RESULT_SCHEMA``), as the rows of the tables."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.engines import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import SET_KEY, Table
from isr_batch.lake.tables.outputs import ISR_CHANGES, SHRINK_VERDICTS
from isr_batch.lake.tables.scores import PARTITION_SCORES, REPLICA_SCORES
from isr_batch.window import Window
from udfs.records import FOLLOWER_MEASURES, MEASURES, VIOLATIONS


def scored_of(results: DataFrame) -> dict[Table, DataFrame]:
    """Return the rows of the tables that scores are made of, with their time and day."""
    changes = _dated(_without_doubts(results.where("result = 'change'")), "change_time")
    scores = _measured(results.where("result = 'score'"), MEASURES)
    follower_scores = _measured(results.where("result = 'follower_score'"), FOLLOWER_MEASURES)
    return {
        ISR_CHANGES: changes,
        SHRINK_VERDICTS: _with_restored_time(changes).where("kind = 'shrink'"),
        PARTITION_SCORES: _dated(_with_first_violation(scores), "time"),
        REPLICA_SCORES: _dated(follower_scores, "time"),
    }


def replace_together(lake: Lake, frames: Mapping[Table, DataFrame], where: str, *, few: bool) -> dict[str, int]:
    """Replace tables side by side, since the driver plans for most of the time; rows written, by table.

    A ``few`` rows come to the driver, which commits them by itself: Spark takes more jobs to commit them than to
    compute them.
    """

    def replace(table: Table) -> int:
        if not few:
            return lake.replace(table, frames[table], where)
        rows = frames[table].select(*table.column_names).toArrow().cast(arrow_schema(table))
        with ArrowSql() as sql:
            return replace_arrow(lake, sql, table, rows, where)

    with ThreadPoolExecutor(len(frames)) as pool:
        return dict(zip((table.name for table in frames), pool.map(replace, frames), strict=True))


def restore(lake: Lake, of_runs: str, window: Window) -> None:
    """Tell shrinks of some runs when their followers were back, where that is beyond an edge of the window."""
    if window == Window():
        return
    changes = lake.read(ISR_CHANGES.name).where(of_runs).withColumn("time_us", F.unix_micros("change_time"))
    told = _with_restored_time(changes).where("kind = 'shrink'").select(*_SHRINK, "restored_time")
    lake.amend(SHRINK_VERDICTS, told, _SHRINK, "restored_time")


_SHRINK = (*SET_KEY, "rule", "params_json", "replica_id", "change_time")
"""Tells one shrink from another."""


def _dated(rows: DataFrame, name: str) -> DataFrame:
    time = F.timestamp_micros("time_us")
    return rows.withColumns({name: time, "event_date": time.cast("date")})


def _measured(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    return rows.withColumns({name: F.col("measures")[i] for i, name in enumerate(names)})


def _with_first_violation(scores: DataFrame) -> DataFrame:
    first, at_us = F.col("first_violation"), F.col("first_violation_us")
    name = F.get(F.array(*(F.lit(name) for name in VIOLATIONS)), first.cast("int"))
    return scores.withColumns(
        {
            "first_violation": F.when(first >= 0, name),
            "first_violation_time": F.when(at_us >= 0, F.timestamp_micros(at_us)),
        }
    )


def _without_doubts(changes: DataFrame) -> DataFrame:
    """Add to each shrink what its rows of kind doubt say that it depends on, and to the expand that undoes it."""
    follower = Over.partitionBy(*SET_KEY, "rule", "params_json", "replica_id").orderBy("time_us")
    of_shrink = F.when(F.col("kind") == "doubt", F.col("depends_on"))
    at_this_time = F.max(of_shrink).over(follower.rangeBetween(0, 0))
    changes = changes.withColumn("depends_on", at_this_time).where("kind <> 'doubt'")
    before: Column = F.lag(F.when(F.col("kind") == "shrink", F.col("depends_on"))).over(follower)
    depends_on = F.when(F.col("kind") == "expand", before).when(F.col("kind") == "shrink", F.col("depends_on"))
    certainty = F.when(F.col("depends_on").isNull(), "certain").otherwise("possible")
    return changes.withColumn("depends_on", depends_on).withColumn("certainty", certainty)


def _with_restored_time(changes: DataFrame) -> DataFrame:
    """When the dropped follower was back under the same rule, within the same term."""
    follower = Over.partitionBy(*SET_KEY, "rule", "params_json", "replica_id").orderBy("time_us")
    next_kind: Column = F.lead("kind").over(follower)
    return changes.withColumn(
        "restored_time", F.when(next_kind == "expand", F.timestamp_micros(F.lead("time_us").over(follower)))
    )
