"""Tables of a lake that are in the memory of this process, and nowhere else."""

from collections.abc import Mapping
from typing import NoReturn

import pyarrow as pa

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.timelines import VIEWS


class MemoryLake(Lake):
    """A lake that lives as long as its object; readers of a lake's tables by Arrow or DuckDB also read these.

    Parameters
    ----------
    tables : mapping of Table to pa.Table
        Rows of each, with at least the columns that will be read; a table that is not here has no rows.
    """

    def __init__(self, tables: Mapping[Table, pa.Table]) -> None:
        super().__init__(_no_spark, "memory")
        self.tables = dict(tables)

    def put(self, table: Table, rows: pa.Table) -> None:
        """Put rows in place of a table's."""
        self.tables[table] = rows

    def has(self, name: str) -> bool:
        """As `Lake.has`."""
        return all(map(self.has, VIEWS[name][1])) if name in VIEWS else self._rows(name) is not None

    def ensure(self, table: Table) -> None:
        """As `Lake.ensure`."""
        self.tables.setdefault(table, arrow_schema(table).empty_table())

    def in_memory(self, name: str) -> pa.Table | None:
        """As `Lake.in_memory`."""
        return self._rows(name)

    def _rows(self, name: str) -> pa.Table | None:
        return next((rows for table, rows in self.tables.items() if table.name == name), None)

    def is_read_here(self, name: str) -> bool:  # noqa: ARG002 always
        """As `Lake.is_read_here`."""
        return True


def _no_spark() -> NoReturn:
    raise AssertionError("tables in memory are read without Spark")
