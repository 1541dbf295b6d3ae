"""Compute the timelines of one partition for the command `timeline`, without storing them in the lake."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from isr_batch.errors import NoInputError
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.engines import engine_for_a_partition
from isr_batch.lake.lake import Lake
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.inputs import FETCH_LOG
from isr_batch.lake.tables.timelines import PARTITION_TIMELINE, REPLICA_TIMELINE, RULE_RUNS, TIMELINES, VIEWS
from isr_batch.phrases import did_you_mean
from isr_batch.replay.event_stream import event_stream, joined_terms, stream_facts
from isr_batch.replay.packing import pack_stale_days
from isr_batch.replay.replay import replayed_stream
from isr_batch.window import Window
from udfs.batches.rule_runs import RuleRun
from udfs.rules import REGISTRY

_TIME: Final = "make_timestamp(time_us)"
_RUNS: Final = f"""
    SELECT * FROM (
      SELECT DISTINCT rule || params_json AS run_set, 0 AS run, rule, params_json FROM results
    ) CROSS JOIN (
      SELECT CAST({_TIME} AS DATE) AS event_date FROM results UNION SELECT event_date FROM fetch_log
    )
"""

Partition = tuple[str | None, str, int]
"""Cluster, topic and partition. The cluster may be None if only one cluster of the lake contains the partition."""


def timelines_of_one_partition(
    lake: Lake, runs: Sequence[RuleRun], partition: Partition, window: Window
) -> dict[str, pa.Table]:
    """Replay one partition from its first day to the end of a window, and return its timelines within the window.

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
        As for `timelines_of_results`.

    Raises
    ------
    NoInputError
        If the lake does not contain the partition, or contains it in several clusters.
    """
    cluster_id, topic, partition_id = partition
    pack_stale_days(lake)
    named = {"cluster_id": cluster_id, "topic": topic, "partition_id": partition_id}
    with engine_for_a_partition(lake) as engine:
        same = " AND ".join(f"{name} = {engine.literal(value)}" for name, value in named.items() if value is not None)
        text = f"SELECT DISTINCT cluster_id FROM {{terms}} AS terms WHERE {same}"
        clusters = sorted(row["cluster_id"] for row in engine.listed(engine(text, terms=joined_terms(engine))))
        if len(clusters) != 1:
            raise _not_one_partition(lake, partition, clusters)
        of_partition = f"{same} AND cluster_id = {engine.literal(clusters[0])}"
        stream = event_stream(engine, stream_facts(engine), where=of_partition)
        results = engine.arrow(replayed_stream(engine, stream, runs, [*TIMELINES], window))
        text = f"SELECT * FROM {{fetch_log}} AS fetch_log WHERE {of_partition}"
        fetch_log = engine.arrow(engine(text, fetch_log=engine.table(FETCH_LOG.name)))
    return timelines_of_results(results, fetch_log, window)


def _not_one_partition(lake: Lake, partition: Partition, clusters: Sequence[str]) -> NoInputError:
    """Return the error for a partition that is in none or in several clusters of the lake (``clusters``)."""
    cluster_id, topic, partition_id = partition
    topics = sorted(set(read_columns(lake, "leader_epochs", ("topic",))["topic"].to_pylist()))
    if topics and topic not in topics:
        return NoInputError(f"{lake.root} has no topic {topic}", did_you_mean(topic, topics))
    what = f"{topic}-{partition_id}" + (f" of {cluster_id}" if cluster_id else "")
    if clusters:
        return NoInputError(f"{', '.join(clusters)} have a {what} each", "choose one with --cluster")
    return NoInputError(
        f"{lake.root} has no data of {what}",
        f'`isr-batch sql "SELECT DISTINCT cluster_id, topic, partition_id FROM leader_epochs" --lake {lake.root}`',
    )


def write_parquet_of_one_partition(timelines: Mapping[str, pa.Table], folder: Path) -> None:
    """Write each timeline to a Parquet file, named after the timeline."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in timelines.items():
        pq.write_table(rows, folder / f"{name}.parquet")


def timelines_of_results(
    results: pa.Table,
    fetch_log: pa.Table,
    window: Window = Window(),  # noqa: B008 frozen
) -> dict[str, pa.Table]:
    """Convert the results of a replay to the rows that a lake's views of timelines would return.

    Parameters
    ----------
    results : pa.Table
        Results with the schema ``udfs.batches.results.RESULT_SCHEMA``, of the kinds in `TIMELINES`.
    fetch_log : pa.Table
        The rows of ``fetch_log`` that were replayed.
    window : Window
        Rows of other days are left out.

    Returns
    -------
    dict of str to pa.Table
        The rows of the views replica_timeline and partition_timeline, in chronological order per leader and rule.
    """
    tables = {FETCH_LOG.name: fetch_log}
    with ArrowSql() as sql:
        for kind, table in TIMELINES.items():
            given = {"run_set": "rule || params_json", "runs": "1", "time": _TIME, "isr": "isr_after"}
            given["event_date"] = f"CAST({_TIME} AS DATE)"
            columns = ", ".join(f"{given.get(name, name)} AS {name}" for name in table.column_names)
            tables[table.name] = sql(f"SELECT {columns} FROM results WHERE result = '{kind}'", results=results)
        runs = sql(_RUNS, results=results, fetch_log=fetch_log)
        for name in ("caught_up_by", "no_lag_while"):
            of_rules = [getattr(REGISTRY[rule], name) for rule in runs["rule"].to_pylist()]
            runs = runs.append_column(name, pa.array(of_rules, pa.string()))
        tables[RULE_RUNS.name] = runs
        found = {}
        for view in (REPLICA_TIMELINE, PARTITION_TIMELINE):
            text = f"SELECT * FROM ({sql_texts()[view.name]}) WHERE {window.condition} ORDER BY leader_id, rule, time"
            rows = sql(text, **{part: tables[part] for part in VIEWS[view.name][1]})
            schema = arrow_schema(view)
            found[view.name] = rows.select(schema.names).cast(schema)
        return found
