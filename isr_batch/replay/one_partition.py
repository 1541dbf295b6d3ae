"""The timelines of one partition, made from the log when somebody asks: what a replay need not have written."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from isr_batch.errors import NoInputError
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.replay.event_stream import event_stream, facts
from isr_batch.replay.packing import SEGMENTS_AT_A_TIME, damage_told, pack_stale_days, rows_at_a_time
from isr_batch.replay.replay import replayed
from isr_batch.window import Window
from udfs.batches.replay import RuleRun

Partition = tuple[str | None, str, int]
"""Cluster, or None where one cluster has the topic; topic; partition."""


def timelines_of(lake: Lake, runs: Sequence[RuleRun], partition: Partition, window: Window) -> dict[str, pa.Table]:
    """Replay one partition, from its first day to the end of a window, on all its leaders.

    Parameters
    ----------
    lake : Lake
    runs : sequence of RuleRun
    partition : (cluster_id or None, topic, partition_id)
    window : Window
        Rows of other days are left out.

    Returns
    -------
    dict of str to pa.Table
        The rows of the views of `VIEWS`, in their columns, those of each leader in order of time.

    Raises
    ------
    NoInputError
        When the lake has no such partition, or several clusters have it.
    """
    cluster_id, topic, partition_id = partition
    pack_stale_days(lake)
    named = {"cluster_id": cluster_id, "topic": topic, "partition_id": partition_id}
    terms = lake.read("leader_epochs")
    for name, value in named.items():
        terms = terms if value is None else terms.where(F.col(name) == value)
    clusters = sorted(row["cluster_id"] for row in terms.select("cluster_id").distinct().collect())
    if len(clusters) != 1:
        what = f"{topic}-{partition_id}" + (f" of {cluster_id}" if cluster_id else "")
        if clusters:
            raise NoInputError(f"{', '.join(clusters)} have a {what} each", "choose one with --cluster")
        raise NoInputError(
            f"{lake.root} knows nothing of {what}",
            f'`isr-batch sql "SELECT DISTINCT cluster_id, topic, partition_id FROM leader_epochs" --lake {lake.root}`',
        )
    of_partition = (F.col("cluster_id") == clusters[0]) & (F.col("topic") == topic)
    stream = event_stream(lake, facts(lake)).where(of_partition & (F.col("partition_id") == partition_id))
    kinds = [name.removesuffix("_timeline") for name in VIEWS]
    with damage_told(), rows_at_a_time(lake.spark, SEGMENTS_AT_A_TIME):
        results = replayed(stream, runs, kinds, window).where(window.within("time_us")).toArrow()
    return {name: _rows(name, results) for name in VIEWS}


def write_parquet(timelines: Mapping[str, pa.Table], folder: Path) -> None:
    """Write each to a file of its name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in timelines.items():
        pq.write_table(rows, folder / f"{name}.parquet")


def _rows(name: str, results: pa.Table) -> pa.Table:
    rows = results.filter(pc.equal(results["result"], name.removesuffix("_timeline")))
    time = rows["time_us"].cast(pa.timestamp("us", "UTC"))
    given = {"time": time, "event_date": time.cast(pa.timestamp("us")).cast(pa.date32()), "isr": rows["isr_after"]}
    schema = arrow_schema(VIEWS[name][0])
    columns = [given[field.name] if field.name in given else rows[field.name] for field in schema]
    return pa.table(columns, names=schema.names).cast(schema)
