"""A lake whose tables are in this process' memory, for notebooks and for tasks in users' own Spark jobs."""

from collections.abc import Mapping, Sequence
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.lake.arrow_rows import cast_rows, no_rows
from isr_batch.lake.delta_files.open import DirectTable
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS


class MemoryLake(Lake):
    """A lake whose tables are Arrow tables in memory. Only code that reads a lake through Arrow or DuckDB can use it.

    Parameters
    ----------
    tables : mapping of Table to pa.Table
        Rows of each table, with at least the columns that will be read. Tables that are not in the mapping have no
        rows.
    """

    def __init__(self, tables: Mapping[Table, pa.Table]) -> None:
        super().__init__(_no_spark, "memory")
        self.tables = dict(tables)

    def put(self, table: Table, rows: pa.Table) -> None:
        """Set the rows of a table, in place of its earlier rows."""
        self.tables[table] = rows

    def has(self, name: str) -> bool:
        """Whether the lake contains a table or, for a view, all its tables (overrides `Lake.has`)."""
        return all(map(self.has, VIEWS[name][1])) if name in VIEWS else self._rows(name) is not None

    def ensure(self, table: Table) -> None:
        """Add an empty table if the lake does not contain this one (overrides `Lake.ensure`)."""
        self.tables.setdefault(table, no_rows(table))

    def direct(self, name: str) -> "MemoryTable | None":
        """Return a table, or an empty one if the lake does not contain it (overrides `Lake.direct`)."""
        rows = self._rows(name)
        return MemoryTable(no_rows(TABLES[name]) if rows is None else rows)

    def _rows(self, name: str) -> pa.Table | None:
        return next((rows for table, rows in self.tables.items() if table.name == name), None)


class MemoryTable(DirectTable):
    """A table in memory, with the methods of a `DirectTable` that are needed to read it."""

    size_bytes = 0

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def read(self, schema: pa.Schema, wanted: Mapping[str, Sequence[str]]) -> pa.Table:
        """Return the columns in ``schema`` of the rows that match ``wanted`` (see `DirectTable.read`)."""
        rows = self._rows
        for column, values in wanted.items():
            rows = rows.filter(pc.is_in(rows[column], pa.array(values, pa.string())))
        return cast_rows(rows, schema)

    def open(self, schema: pa.Schema) -> pa.Table:
        """Return the columns in ``schema`` of all rows."""
        return self.read(schema, {})


def _no_spark() -> NoReturn:
    """Stand in for the function that starts Spark: raise, because tables in memory never need a session."""
    raise AssertionError("tables in memory are read without Spark")
