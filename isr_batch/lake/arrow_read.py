"""Read columns of a lake's table into Arrow. Spark is used only if this process cannot read the table's files."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import functions as F

from isr_batch.lake.arrow_rows import TYPES
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS


def read_columns(
    lake: Lake, name: str, columns: Sequence[str], equal: Mapping[str, str | Sequence[str]] | None = None
) -> pa.Table:
    """Read columns of a lake's table into Arrow. If the lake has no such table, the result is empty.

    Parameters
    ----------
    lake : Lake
    name : str
        Name of the table.
    columns : sequence of str
    equal : mapping of str to str or sequence of str, optional
        For each text column to filter by, the required value or a sequence of allowed values.

    Returns
    -------
    pa.Table
        The columns with the types in the table's contract. Times are UTC microseconds.

    Raises
    ------
    SchemaError
        If the table's columns or types differ from the contract.
    """
    schema = contract_schema(name, columns)
    if not lake.has(name):
        return schema.empty_table()
    wanted = {column: [value] if isinstance(value, str) else [*value] for column, value in (equal or {}).items()}
    if there := lake.direct(name):
        return there.read(schema, wanted)
    rows = lake.read(name)
    for column, values in wanted.items():
        rows = rows.where(F.col(column).isin(values))
    return rows.select(*columns).toArrow().cast(schema)


def open_columns(lake: Lake, name: str, columns: Sequence[str]) -> ds.Dataset | pa.Table | None:
    """Open columns of a lake's table, so that a large table can be read batch by batch.

    Returns
    -------
    ds.Dataset, pa.Table or None
        The columns with the types in the table's contract: a dataset, or an empty table if the lake has no such table.
        None if this process cannot read the table's files.

    Raises
    ------
    SchemaError
        If the table's columns or types differ from the contract.
    """
    schema = contract_schema(name, columns)
    if not lake.has(name):
        return schema.empty_table()
    there = lake.direct(name)
    return there.open(schema) if there else None


def stored_bytes(lake: Lake, name: str) -> int:
    """Return the total size of a table's data files in bytes; 0 if the lake has no such table."""
    if not lake.has(name):
        return 0
    there = lake.direct(name)
    return there.size_bytes if there else int(lake.detail(name)["sizeInBytes"])


def contract_schema(name: str, columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, with the types in the table's contract. All fields are nullable."""
    contract = {column.name: column for column in contract_of(name).columns}
    return pa.schema([pa.field(column, TYPES[contract[column].type]) for column in columns])


def contract_of(name: str) -> Table:
    """Return the contract (columns and types) of a table or a view."""
    return VIEWS[name][0] if name in VIEWS else TABLES[name]
