"""Sweeps: all runs of a grid in one pass over the lake, their scores, and advice.

Timelines are not kept and the results of `replay` are not touched: a sweep writes tables of its own.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from isr_batch.lake.ddl import literal
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.scores import SWEEP_ADVICE, SWEEP_SCORES
from isr_batch.replay.event_stream import event_stream
from isr_batch.replay.event_stream import facts as event_facts
from isr_batch.replay.packing import SEGMENTS_AT_A_TIME, damage_told, rows_at_a_time
from isr_batch.replay.replay import events_in, ready_to_replay, replayed
from isr_batch.scoring.lag_time_advice import Row, advice, curve, with_rates
from isr_batch.scoring.scores import facts, results_in, scores
from isr_batch.scoring.sweep_grid import LAG_TIME, Grid, NamedGrid
from udfs.batches.results import SCORED


@dataclass(frozen=True)
class Sweep:
    """What a sweep found: rows of ``sweep_scores`` and ``sweep_advice``; and how many rows it read."""

    rows_in: int
    scores: list[Row]
    advice: list[Row]


def sweep(lake: Lake, named: NamedGrid) -> Sweep:
    """Replay a grid, and write ``sweep_scores`` and ``sweep_advice`` in place of what the lake had of it.

    Raises
    ------
    NoInputError
        When the lake holds no term of a leader, or no fetch.
    """
    ready_to_replay(lake)
    results = replayed(event_stream(lake, event_facts(lake)), named.runs, SCORED).persist(StorageLevel.DISK_ONLY)
    try:
        with damage_told(), rows_at_a_time(lake.spark, SEGMENTS_AT_A_TIME):
            results.count()  # begun by the broadcast side of a join, the pass would end at Spark's 300 s for that
        comparable = results if "min_insync_replicas" in named.grid.grid else _whatever_min_isr(results)
        with_class = _classes(lake, named.grid)
        by_class = {source: with_class(rows) for source, rows in facts(results_in(comparable)).items()}
        scored = [row.asDict() for row in scores(by_class, [("cluster_id", "topic")]).collect()]
    finally:
        results.unpersist()
    rows = [{"sweep": named.name, "topic_class": row.pop("topic"), **with_rates(row)} for row in scored]
    rows.sort(key=lambda row: (curve(row), row[LAG_TIME]))
    answers = [{"sweep": named.name, **row} for row in advice(rows, named.grid.budgets)]
    _write(lake, SWEEP_SCORES, rows, named.name)
    _write(lake, SWEEP_ADVICE, answers, named.name)
    return Sweep(events_in(lake), rows, answers)


def other_params(params_json: str, grid: Grid) -> str:
    """The parameters beside the lag time that the grid varies, for people; those that it leaves alone go without."""
    values = json.loads(params_json)
    varied = [name for name, of_grid in grid.grid.items() if len(of_grid) > 1 and name != LAG_TIME]
    return " ".join(f"{name}={values[name]}" for name in varied if name in values)


def _whatever_min_isr(results: DataFrame) -> DataFrame:
    """Topics of the same run whose brokers say different min.insync.replicas belong together.

    Parameters are told in order of their names, so that the lag time always comes after this one.
    """
    without_min_isr = F.regexp_replace("params_json", '"min_insync_replicas": [0-9]+, ', "")
    return results.withColumn("params_json", without_min_isr)


def _classes(lake: Lake, grid: Grid) -> Callable[[DataFrame], DataFrame]:
    """Put the class in place of the topic, in rows that have one."""
    topics = [row["topic"] for row in lake.read("leader_epochs").select("topic").distinct().collect()]
    classes = lake.spark.createDataFrame(
        [(topic, grid.class_of(topic)) for topic in topics], "topic STRING, topic_class STRING"
    )
    return lambda rows: rows.join(F.broadcast(classes), "topic").drop("topic").withColumnRenamed("topic_class", "topic")


def _write(lake: Lake, table: Table, rows: list[Row], name: str) -> None:
    doubles = {column.name for column in table.columns if column.type == "DOUBLE"}

    def value(row: Row, column: str) -> object:
        return float(row[column]) if column in doubles and row[column] is not None else row[column]

    values = [{column: value(row, column) for column in table.column_names} for row in rows]
    lake.replace(table, lake.spark.createDataFrame(values, table.schema_ddl), f"sweep = {literal(name)}")
