"""Compute the timelines of one partition from the log on request, without those of a replay."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from isr_batch.errors import NoInputError
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.engines import engine_for_a_partition
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.timelines import VIEWS
from isr_batch.replay.event_stream import event_stream, joined_terms, stream_facts
from isr_batch.replay.packing import pack_stale_days
from isr_batch.replay.replay import replayed_stream
from isr_batch.window import Window
from udfs.batches.replay import RuleRun

Partition = tuple[str | None, str, int]
"""Cluster, or None where one cluster has the topic; topic; partition."""


def timelines_of_one_partition(
    lake: Lake, runs: Sequence[RuleRun], partition: Partition, window: Window
) -> dict[str, pa.Table]:
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
    with engine_for_a_partition(lake) as engine:
        same = " AND ".join(f"{name} = {engine.literal(value)}" for name, value in named.items() if value is not None)
        text = f"SELECT DISTINCT cluster_id FROM {{terms}} AS terms WHERE {same}"
        clusters = sorted(row["cluster_id"] for row in engine.listed(engine(text, terms=joined_terms(engine))))
        if len(clusters) != 1:
            raise _not_one(lake, partition, clusters)
        of_partition = f"{same} AND cluster_id = {engine.literal(clusters[0])}"
        stream = event_stream(engine, stream_facts(engine), where=of_partition)
        kinds = [name.removesuffix("_timeline") for name in VIEWS]
        results = replayed_stream(engine, stream, runs, kinds, window)
        in_window = f"SELECT * FROM {{results}} AS results WHERE {window.within('time_us')}"
        found = engine.arrow(engine(in_window, results=results))
    return {name: timeline_rows(name, found) for name in VIEWS}


def _not_one(lake: Lake, partition: Partition, clusters: Sequence[str]) -> NoInputError:
    cluster_id, topic, partition_id = partition
    what = f"{topic}-{partition_id}" + (f" of {cluster_id}" if cluster_id else "")
    if clusters:
        return NoInputError(f"{', '.join(clusters)} have a {what} each", "choose one with --cluster")
    return NoInputError(
        f"{lake.root} knows nothing of {what}",
        f'`isr-batch sql "SELECT DISTINCT cluster_id, topic, partition_id FROM leader_epochs" --lake {lake.root}`',
    )


def write_parquet_of_one_partition(timelines: Mapping[str, pa.Table], folder: Path) -> None:
    """Write each to a file of its name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in timelines.items():
        pq.write_table(rows, folder / f"{name}.parquet")


def timeline_rows(name: str, results: pa.Table) -> pa.Table:
    """Make rows of a view of `VIEWS` of results, in their order."""
    rows = results.filter(pc.equal(results["result"], name.removesuffix("_timeline")))
    time = rows["time_us"].cast(pa.timestamp("us", "UTC"))
    given = {"time": time, "event_date": time.cast(pa.timestamp("us")).cast(pa.date32()), "isr": rows["isr_after"]}
    schema = arrow_schema(VIEWS[name][0])
    columns = [given[field.name] if field.name in given else rows[field.name] for field in schema]
    return pa.table(columns, names=schema.names).cast(schema)
