"""Scenarios into a lake: the same input tables as an ingest writes, for a cluster named like the scenario."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.errors import UsageError
from isr_batch.runs import Counts
from isr_batch.scenarios.stories import START_MS, STORIES, Story
from isr_batch.settings import did_you_mean
from isr_batch.store import Lake
from isr_batch.tables import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, LEADER_EPOCHS, OBSERVED_ISR_CHANGES, Table

_DATED_BY = (
    (FETCH_LOG, "handled_time"),
    (APPEND_LOG, "append_time"),
    (LEADER_EPOCHS, "start_time"),
    (OBSERVED_ISR_CHANGES, "change_time"),
    (BROKER_EVENTS, "event_time"),
)


def generate(lake: Lake, scenario: str) -> Counts:
    """Write a scenario; what the lake had of it before is replaced.

    Raises
    ------
    UsageError
        When there is no such scenario.
    """
    if scenario not in STORIES:
        raise UsageError(f"no scenario {scenario}", did_you_mean(scenario, STORIES))
    return write_input(lake, scenario, _story_rows(lake, scenario, STORIES[scenario]()))


def write_input(lake: Lake, cluster_id: str, frames: Mapping[str, DataFrame]) -> Counts:
    """Replace all input rows of a cluster. Columns that are not there stay null, tables that are not there empty."""
    rows_out = 0
    for table, time in _DATED_BY:
        where = f"cluster_id = '{cluster_id}'"
        if table.name in frames:
            rows = frames[table.name].withColumn("event_date", F.col(time).cast("date"))
            rows_out += lake.replace(table, _with_nulls(table, rows), where)
        else:
            lake.replace(table, lake.spark.createDataFrame([], table.schema_ddl), where)
    return Counts(rows_out=rows_out)


def _with_nulls(table: Table, rows: DataFrame) -> DataFrame:
    return rows.withColumns(
        {column.name: F.lit(None).cast(column.type) for column in table.columns if column.name not in rows.columns}
    )


def _story_rows(lake: Lake, name: str, story: Story) -> dict[str, DataFrame]:
    """A frame for each table; times come as microseconds and become instants."""
    fetches: dict[str, list[Any]] = {
        "replica_id": [fetch.replica_id for fetch in story.fetches],
        "fetch_offset": [fetch.fetch_offset for fetch in story.fetches],
        "arrival_time": [_us(fetch.arrival_ms) for fetch in story.fetches],
        "handled_time": [_us(fetch.handled_ms) for fetch in story.fetches],
        "last_handled_time": [_us(fetch.handled_ms) for fetch in story.fetches],
        "processed_time": [_us(fetch.recorded_ms) for fetch in story.fetches],
        "released_time": [_us(fetch.released_ms) for fetch in story.fetches],
        "completed_time": [_us(fetch.completed_ms) for fetch in story.fetches],
        "error_code": [0] * len(story.fetches),
        "run_length": [1] * len(story.fetches),
    }
    before = [story.log_end_offset, *(append.log_end_offset for append in story.appends)]
    appends: dict[str, list[Any]] = {
        "append_time": [_us(append.time_ms) for append in story.appends],
        "base_offset": before[:-1],
        "log_end_offset": before[1:],
        "acks": [append.acks for append in story.appends],
        "error_code": [0] * len(story.appends),
    }
    terms: dict[str, list[Any]] = {
        "start_time": [_us(0)],
        "end_time": [_us(story.end_ms)],
        "start_offset": [story.log_end_offset],
        "start_high_watermark": [story.log_end_offset],
        "assigned": [list(story.replicas)],
        "isr_at_start": [list(story.isr or story.replicas)],
        "replica_lag_time_max_ms": [story.lag_time_max_ms],
        "min_insync_replicas": [story.min_insync_replicas],
        "check_origin_ms": [START_MS],
        "check_origin_source": ["startup"],
    }
    tables = {FETCH_LOG.name: fetches, LEADER_EPOCHS.name: terms}
    if story.appends:
        tables[APPEND_LOG.name] = appends
    return {table: _frame(lake, name, story.replicas[0], columns) for table, columns in tables.items()}


def _frame(lake: Lake, cluster_id: str, leader: int, columns: dict[str, list[Any]]) -> DataFrame:
    rows = lake.spark.createDataFrame(pa.table(columns))
    times = [name for name in columns if name.endswith("_time")]
    return rows.withColumns({name: F.timestamp_micros(name) for name in times}).withColumns(
        {
            "cluster_id": F.lit(cluster_id),
            "topic": F.lit("story"),
            "partition_id": F.lit(0),
            "leader_epoch": F.lit(0),
            "leader_id": F.lit(leader),
        }
    )


def _us(ms: int) -> int:
    return (START_MS + ms) * 1000
