"""Convert rows of a table to Arrow, with the types in the table's contract."""

from collections.abc import Iterator
from functools import cache
from typing import Final

import pyarrow as pa

from isr_batch.lake.tables.contract import Table
from udfs.arrow_types import ARROW_TYPES

TYPES: Final = {
    **ARROW_TYPES,
    "DOUBLE": pa.float64(),
    "MAP<STRING, BIGINT>": pa.map_(pa.string(), pa.int64()),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    "ARRAY<STRUCT<from_us: BIGINT, until_us: BIGINT>>": pa.list_(
        pa.struct([("from_us", pa.int64()), ("until_us", pa.int64())])
    ),
    "ARRAY<STRUCT<latency_ms: DOUBLE, appends: BIGINT>>": pa.list_(
        pa.struct([("latency_ms", pa.float64()), ("appends", pa.int64())])
    ),
    "ARRAY<STRUCT<wait_ms: DOUBLE, time_us: BIGINT>>": pa.list_(
        pa.struct([("wait_ms", pa.float64()), ("time_us", pa.int64())])
    ),
}
"""The Arrow type for each Spark type in contracts."""


@cache
def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table. Types and nullability are those of its contract."""
    return pa.schema([pa.field(column.name, TYPES[column.type], column.nullable) for column in table.columns])


@cache
def no_rows(table: Table) -> pa.Table:
    """Return an empty Arrow table with the contract's columns, cached because making one takes longer than a query."""
    return arrow_schema(table).empty_table()


def cast_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Select the columns of a schema from Arrow rows, and cast them to the schema's types."""
    rows = rows.select(schema.names)
    return rows if rows.schema == schema else rows.cast(schema)  # a cast takes time even if it changes nothing


def table_of_batches(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Concatenate Arrow batches into a table with the columns and types of a schema."""
    return pa.concat_tables([schema.empty_table(), *(cast_rows(pa.table(batch), schema) for batch in batches)])
