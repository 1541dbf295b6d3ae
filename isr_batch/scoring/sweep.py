"""Run sweeps: replay all rule runs of a grid in one pass over the lake, score them, and derive advice.

A sweep writes its own tables; it writes no timelines, and does not change the results of `replay`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.engines import BySpark
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.scores import SWEEP_ADVICE, SWEEP_SCORES
from isr_batch.replay.event_stream import event_stream
from isr_batch.replay.event_stream import facts as event_facts
from isr_batch.replay.packing import SEGMENTS_AT_A_TIME, damage_told, rows_at_a_time
from isr_batch.replay.replay import events_in, ready_to_replay, replayed
from isr_batch.scoring.eligible_leaders import Elr, eligible_leaders
from isr_batch.scoring.lag_time_advice import Row, curve_of_advice, lag_time_advice, with_mistake_rates
from isr_batch.scoring.scores import Results, results_in, score_inputs, scores
from isr_batch.scoring.sweep_grid import LAG_TIME, NamedGrid, SweepGrid
from udfs.batches.results import SCORED


@dataclass(frozen=True)
class Sweep:
    """Result of a sweep: rows of ``sweep_scores`` and ``sweep_advice``, and the number of rows read."""

    rows_in: int
    scores: list[Row]
    advice: list[Row]


def sweep(lake: Lake, named: NamedGrid, elr: Elr = "auto") -> Sweep:
    """Replay a grid, and replace its rows in ``sweep_scores`` and ``sweep_advice``.

    Parameters
    ----------
    lake : Lake
    named : NamedGrid
    elr : {"auto", "off", "on"}
        As for a replay.

    Raises
    ------
    NoInputError
        If the lake has no leader's term, or no fetch.
    """
    ready_to_replay(lake)
    results = replayed(event_stream(lake, event_facts(lake)), named.runs, SCORED).persist(StorageLevel.DISK_ONLY)
    try:
        with damage_told(), rows_at_a_time(lake.spark, SEGMENTS_AT_A_TIME):
            results.count()  # begun by the broadcast side of a join, the pass would end at Spark's 300 s for that
        spark = BySpark(lake)
        tables = {name: rows for name, rows in vars(results_in(results)).items() if rows is not None}
        tables["eligible_leaders"] = eligible_leaders(spark, elr, tables)
        if "min_insync_replicas" not in named.grid.grid:
            tables = {name: _whatever_min_isr(rows) for name, rows in tables.items()}
        with_class = _classes(lake, named.grid)
        by_class = {source: with_class(rows) for source, rows in score_inputs(spark, Results(**tables)).items()}
        scored = spark.listed(scores(spark, by_class, [("cluster_id", "topic")]))
    finally:
        results.unpersist()
    rows = [{"sweep": named.name, "topic_class": row.pop("topic"), **with_mistake_rates(row)} for row in scored]
    rows.sort(key=lambda row: (curve_of_advice(row), row[LAG_TIME]))
    answers = [{"sweep": named.name, **row} for row in lag_time_advice(rows, named.grid.budgets)]
    _write(lake, SWEEP_SCORES, rows, named.name)
    _write(lake, SWEEP_ADVICE, answers, named.name)
    return Sweep(events_in(lake), rows, answers)


def swept_params(params_json: str, grid: SweepGrid) -> str:
    """Format the parameters that the grid varies, except the lag time, for display."""
    values = json.loads(params_json)
    varied = [name for name, of_grid in grid.grid.items() if len(of_grid) > 1 and name != LAG_TIME]
    return " ".join(f"{name}={values[name]}" for name in varied if name in values)


def _whatever_min_isr(results: DataFrame) -> DataFrame:
    """Remove min.insync.replicas from the parameters, so that topics with different values have the same run.

    Parameters are sorted by name, so the lag time always follows this one.
    """
    without_min_isr = F.regexp_replace("params_json", '"min_insync_replicas": [0-9]+, ', "")
    return results.withColumn("params_json", without_min_isr)


def _classes(lake: Lake, grid: SweepGrid) -> Callable[[DataFrame], DataFrame]:
    """Replace the topic by its class, in rows that have a topic."""
    topics = [row["topic"] for row in lake.read("leader_epochs").select("topic").distinct().collect()]
    classes = lake.spark.createDataFrame(
        [(topic, grid.class_of(topic)) for topic in topics], "topic STRING, topic_class STRING"
    )
    return lambda rows: rows.join(F.broadcast(classes), "topic").drop("topic").withColumnRenamed("topic_class", "topic")


def _write(lake: Lake, table: Table, rows: list[Row], name: str) -> None:
    values = lake.spark.createDataFrame(pa.Table.from_pylist(rows, arrow_schema(table)))
    lake.replace(table, values, f"sweep = {sql_literal(name)}")
