"""Derive the terms of leaders in clusters from users' tables: from a table of terms or, without one, from fetches.

Fetches are summed up by day in table ``fetch_days``, from which terms are derived. An ingest therefore only processes
the fetches of days that it changes. Fetches of later days can change the end of a term, but never its start.
"""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.folder.listed_observers import (
    EVERY,
    observers_from_json,
    observers_of_partition,
    require_known_names,
)
from isr_batch.lake.arrow_read import contract_schema, read_columns
from isr_batch.lake.arrow_sql import ArrowSql, without_zones
from isr_batch.lake.lake import Lake
from isr_batch.lake.sql_files import text_of
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.lake.tables.own_tables import FETCH_DAYS, GIVEN_TERMS, MAPPED_CLUSTERS

UNKNOWN_EPOCH: Final = -1
"""Leader epoch of a row whose time is before the first term of its partition in the user's table of terms."""
HOLE_US: Final = 3_600_000_000
"""If no fetches from a leader are known for this long, in microseconds, it is unknown which partitions it led in that
time."""
_PARTITION: Final = ["cluster_id", "topic", "partition_id"]
_LISTED: Final = pa.field("listed", pa.list_(pa.int32()))
GAP_US: Final = 2_000_000
"""A gap in a leader's fetches that is shorter than this, in microseconds, does not end its term, even if another leader
has fetches in the gap. When leadership moves, fetches of both leaders may interleave, because their clocks differ."""


def terms_of_epochs(lake: Lake, cluster_id: str, given: pa.Table) -> pa.Table:
    """Return the terms of a cluster in which `look_up_epochs` searches: the lake's terms, and the new terms, ``given``.

    Parameters
    ----------
    lake : Lake
    cluster_id : str
    given : pa.Table
        The new terms: ``topic``, ``partition_id``, ``leader_epoch``, ``start_time`` (microseconds since 1970).
    """
    names = ["topic", "partition_id", "leader_epoch", "start_time"]
    stored = read_columns(lake, GIVEN_TERMS.name, names, {"cluster_id": cluster_id})
    us = pc.cast(stored["start_time"], pa.timestamp("us")).cast(pa.int64())
    stored = stored.set_column(names.index("start_time"), "start_time", us)
    return pa.concat_tables([stored, given.select(names).cast(stored.schema)])


def look_up_epochs(sql: ArrowSql, terms: pa.Table, rows: pa.Table, time: str) -> pa.ChunkedArray:
    """Return the leader epoch of each row: that of its partition's latest term that had begun by the row's time.

    Without such a term, the leader epoch is `UNKNOWN_EPOCH`.

    Parameters
    ----------
    sql : ArrowSql
    terms : pa.Table
        Result of `terms_of_epochs`.
    rows : pa.Table
        Rows with ``topic`` and ``partition_id``.
    time : str
        Name of the column with a row's time, in microseconds since 1970.
    """
    numbered = pa.table({
        "number": pa.array(range(rows.num_rows), pa.int64()), "topic": rows["topic"].cast(pa.string()),
        "partition_id": rows["partition_id"], "us": rows[time],
    })  # fmt: skip
    text = f"""
        SELECT CAST(coalesce(leader_epoch, {UNKNOWN_EPOCH}) AS INTEGER) AS leader_epoch
        FROM numbered ASOF LEFT JOIN (
          SELECT topic, partition_id, start_time, max(leader_epoch) AS leader_epoch FROM terms GROUP BY ALL
        ) AS terms ON numbered.topic = terms.topic AND numbered.partition_id = terms.partition_id
          AND numbered.us >= terms.start_time
        ORDER BY number
    """
    return sql(text, numbered=numbered, terms=terms)["leader_epoch"]


def leader_epochs_of_own_table(lake: Lake, sql: ArrowSql) -> pa.Table:
    """Return the rows of ``leader_epochs`` for all clusters from users' tables."""
    mapped_clusters = read_columns(lake, MAPPED_CLUSTERS.name, MAPPED_CLUSTERS.column_names)
    clusters = sql(
        """
        SELECT cluster_id, replica_lag_time_max_ms, min_insync_replicas, broker_version,
          CASE WHEN lag_time_is_given THEN 'given' ELSE 'default' END AS lag_time_source,
          json_exists(mapped, '$.epochs') AS has_epochs,
          coalesce(list_contains(json_extract_string(mapped, '$.epochs[*]'), 'previous_leader_id'), false)
            AS has_previous
        FROM mapped_clusters
        """,
        mapped_clusters=mapped_clusters,
    )
    names = clusters["cluster_id"].to_pylist()
    tables = {
        table.name: without_zones(read_columns(lake, table.name, table.column_names, {"cluster_id": names}))
        for table in (FETCH_DAYS, GIVEN_TERMS)
    }
    tables |= {"clusters": clusters, "observing": _observing(mapped_clusters, tables.values())}
    parts = [
        sql(text_of("isr_batch.ingest.own_table", name, gap_us=GAP_US, hole_us=HOLE_US), **tables)
        for name in ("given_terms", "inferred_terms")
    ]
    schema = contract_schema(LEADER_EPOCHS.name, LEADER_EPOCHS.column_names)
    return pa.concat_tables(_conformed_terms(part, schema) for part in parts)


def require_known_observers(lake: Lake) -> None:
    """Raise an error if the mapping of a cluster lists observers of a topic or partition without any row.

    Raises
    ------
    UsageError
        The message names the topic or partition.
    """
    mapped_clusters = read_columns(lake, MAPPED_CLUSTERS.name, ["cluster_id", "observers"])
    listed = {row["cluster_id"]: observers_from_json(row["observers"]) for row in mapped_clusters.to_pylist()}
    named = {name: of_cluster for name, of_cluster in listed.items() if of_cluster.keys() - {EVERY}}
    if not named:
        return
    names, wanted = (FETCH_DAYS.name, GIVEN_TERMS.name), {"cluster_id": [*named]}
    rows = _partitions(read_columns(lake, name, _PARTITION, wanted) for name in names)
    for name, of_cluster in named.items():
        partitions = ((row["topic"], row["partition_id"]) for row in rows if row["cluster_id"] == name)
        require_known_names(of_cluster, partitions, f"the mapping of {name}")


def _observing(mapped_clusters: pa.Table, tables: Iterable[pa.Table]) -> pa.Table:
    """Return the partitions that occur in ``tables``, with the brokers that observe by the mapping (``listed``)."""
    of_cluster = {row["cluster_id"]: observers_from_json(row["observers"]) for row in mapped_clusters.to_pylist()}
    rows = [
        row | {"listed": observers_of_partition(of_cluster[row["cluster_id"]], row["topic"], row["partition_id"])}
        for row in _partitions(tables)
    ]
    return pa.Table.from_pylist(rows, contract_schema(FETCH_DAYS.name, _PARTITION).append(_LISTED))


def _partitions(tables: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """Return each distinct (cluster, topic, partition) in tables, as a dict with the names in `_PARTITION`."""
    every = pa.concat_tables(rows.select(_PARTITION) for rows in tables)
    found: list[dict[str, Any]] = every.group_by(_PARTITION).aggregate([]).to_pylist()
    return found


def _conformed_terms(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert rows to a schema. Missing columns become null."""
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
