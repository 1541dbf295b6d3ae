"""Read some columns of a lake's tables into Arrow, without Spark where the files can be read here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import TABLES
from udfs.arrow_types import ARROW_TYPES


def read_columns(
    lake: Lake, name: str, columns: Sequence[str], equal: Mapping[str, str | Sequence[str]] | None = None
) -> pa.Table:
    """Read columns of a table; a table that the lake lacks is empty.

    Parameters
    ----------
    lake : Lake
    name : str
        Of the table.
    columns : sequence of str
    equal : mapping of str to str or sequence of str, optional
        Columns of text, and the value, or one of the values, that a row must have there.

    Returns
    -------
    pa.Table
        The columns with the types of the contract; times are UTC microseconds.

    Raises
    ------
    SchemaError
        When the table's columns or types differ from the contract.
    """
    schema = contract_schema(name, columns)
    if not lake.has(name):
        return schema.empty_table()
    lake.ensure(TABLES[name])
    wanted = {column: [value] if isinstance(value, str) else [*value] for column, value in (equal or {}).items()}
    folder = lake.folder(name)
    if folder is None or not lake.is_plain(name):
        rows = lake.read(name)
        for column, values in wanted.items():
            rows = rows.where(F.col(column).isin(values))
        return rows.select(*columns).toArrow().cast(schema)
    files = pa.table(deltalake.DeltaTable(folder).get_add_actions(flatten=True)).to_pylist()
    return pa.concat_tables([schema.empty_table(), *(_read(folder, file, schema, wanted) for file in files)])


def contract_schema(name: str, columns: Sequence[str]) -> pa.Schema:
    """Types of some columns of a table by its contract; any may be null."""
    contract = {column.name: column for column in TABLES[name].columns}
    types = {**ARROW_TYPES, "DOUBLE": pa.float64()}
    return pa.schema([pa.field(column, types[contract[column].type]) for column in columns])


def _read(folder: str, file: Mapping[str, Any], schema: pa.Schema, wanted: Mapping[str, Sequence[str]]) -> pa.Table:
    path = Path(folder, file["path"])
    there = pq.read_schema(path).names
    rows = pq.read_table(
        path, columns=[name for name in schema.names if name in there],
        filters=[(name, "in", values) for name, values in wanted.items()] or None,
        partitioning=None, coerce_int96_timestamp_unit="us",
    )  # fmt: skip
    for field in schema:
        if field.name not in there:  # a partition column, or one that came later
            value = file.get(f"partition.{field.name}")
            scalar = pa.scalar(None if value is None else str(value), pa.string()).cast(field.type)
            rows = rows.append_column(field, pa.repeat(scalar, rows.num_rows))
    return rows.select(schema.names).cast(schema)
