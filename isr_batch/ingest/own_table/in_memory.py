"""Convert a user's Arrow tables to input tables in memory, with the same checks as an ingest."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from isr_batch.ingest.own_table.added_rows import DAY_US
from isr_batch.ingest.own_table.checked_rows import TIMES
from isr_batch.ingest.own_table.day_of_rows import EpochsInForce, RowsOfCluster
from isr_batch.ingest.own_table.items import Item
from isr_batch.ingest.own_table.leader_epochs import look_up_epochs
from isr_batch.ingest.own_table.mapped_clusters import mapped_cluster
from isr_batch.ingest.own_table.mapping import TableMapping
from isr_batch.ingest.own_table.read_source import Input, ReadTable, read_input
from isr_batch.lake.arrow_rows import arrow_schema, no_rows
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.memory_lake import MemoryLake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import INPUT_TABLES, QUARANTINE
from isr_batch.lake.tables.own_tables import GIVEN_TERMS, MAPPED_CLUSTERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from isr_batch.lake.lake import Lake


class RowsHere:
    """A source whose rows are an Arrow table in this process.

    Parameters
    ----------
    place : str
        Name of the source in messages.
    table : pa.Table
    """

    is_csv = False

    def __init__(self, place: str, table: pa.Table) -> None:
        self.place = place
        self.schema = table.schema.remove_metadata()
        # The item has no version, so it is always read. Rows that are already in the lake are recognised by their
        # content.
        self.items = (Item(place, ""),)
        self._table = table

    def count(self, items: Sequence[Item]) -> int:  # noqa: D102 as `Source`
        return int(self._table.num_rows) if items else 0

    def rows(self, items: Sequence[Item], columns: Sequence[str]) -> pa.Table:  # noqa: ARG002, D102
        return self._table

    def frame(self, lake: "Lake", items: Sequence[Item], columns: Sequence[str]) -> "DataFrame":  # noqa: ARG002, D102
        return lake.spark.createDataFrame(self._table.select(columns))


def input_tables(
    sql: ArrowSql, inputs: Sequence[Input], mapping: TableMapping, also: Collection[str] = ()
) -> MemoryLake:
    """Return the input tables that an ingest of sources into an empty lake would write, in memory.

    Parameters
    ----------
    sql : ArrowSql
    inputs : sequence of Input
        Result of `isr_batch.ingest.own_table.read_source.inputs_of_sources`.
    mapping : TableMapping
    also : collection of str
        Clusters to include even if the sources contain no rows of them.

    Raises
    ------
    UsageError
        If the condition ``where`` in the mapping cannot be evaluated on the rows.
    """
    read = {given.section: read_input(sql, given, given.source.items) for given in inputs}
    clusters = sorted({*also, *(name for each in read.values() for name in each.clusters())})
    lake = MemoryLake({})
    for table in (*INPUT_TABLES, GIVEN_TERMS):
        lake.ensure(table)
    lake.put(MAPPED_CLUSTERS, _columns_same_in_all(MAPPED_CLUSTERS, pa.table({"cluster_id": clusters}),
                                           mapped_cluster(mapping) | {"ingest_run": ""}))  # fmt: skip
    refused = pa.concat_tables(each.refused for each in read.values())
    lake.put(QUARANTINE, _columns_same_in_all(QUARANTINE, refused, {"rows_kept": False, "ingest_run": ""}))
    for section, each in read.items():
        source = "appends" if mapping.appends else "inferred"
        rows = [
            part
            for cluster_id in clusters
            for part in _rows_by_day(sql, read, section, RowsOfCluster(each.checked, cluster_id, source))
        ] or [no_rows(each.checked.table)]
        nullable = pa.schema([field.with_nullable(True) for field in arrow_schema(each.checked.table)])
        lake.put(each.checked.table, pa.concat_tables(part.cast(nullable) for part in rows))
    return lake


def _rows_by_day(sql: ArrowSql, read: Mapping[str, ReadTable], section: str, target: RowsOfCluster) -> list[pa.Table]:
    """Return the distinct rows of a cluster in one section of ``read``, with all columns, as one table per day."""
    given = read[section].of_cluster(target.cluster_id)
    if not given.num_rows:
        return []
    epochs: EpochsInForce | None = None
    if "epochs" in read and section != "epochs" and "leader_epoch" in target.checked.constants:
        terms = read["epochs"].of_cluster(target.cluster_id)

        def epochs(rows: pa.Table, time: str) -> pa.ChunkedArray:
            return look_up_epochs(sql, terms, rows, time)

    none = given.slice(0, 0)
    if epochs:
        none = none.append_column("leader_epoch", pa.array([], pa.int32()))
    merged = target.merged(none, given, epochs)
    # Rows with the same time are replayed in stored order. They are sorted, so that results do not depend on the order
    # in the source.
    distinct = merged.rows.take(pa.array(merged.distinct))
    days = np.asarray(distinct[TIMES[target.checked.table.name]].combine_chunks()) // DAY_US
    return [
        target.completed(distinct if len(found) == 1 else distinct.filter(pa.array(days == day)),
                         str(np.datetime64(int(day), "D")))
        for found in [np.unique(days)] for day in found
    ]  # fmt: skip


def _columns_same_in_all(table: Table, rows: pa.Table, values: Mapping[str, object]) -> pa.Table:
    """Complete rows with all columns of a table. Missing columns are filled with their value in ``values``, or null."""
    schema = arrow_schema(table)
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names
        else pa.repeat(pa.scalar(values.get(field.name), field.type), rows.num_rows)
        for field in schema
    ]  # fmt: skip
    return pa.table(columns, names=schema.names)
