"""Rows of a table as Arrow has them."""

import pyarrow as pa

from isr_batch.lake.tables.contract import Table

_TYPES = {
    "STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_(), "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"), "ARRAY<INT>": pa.list_(pa.int32()), "ARRAY<BIGINT>": pa.list_(pa.int64()),
    "ARRAY<STRING>": pa.list_(pa.string()),
    "MAP<DATE, TIMESTAMP>": pa.map_(pa.date32(), pa.timestamp("us", "UTC")),
}  # fmt: skip


def arrow_schema(table: Table) -> pa.Schema:
    """Columns of a table by their contract."""
    return pa.schema([pa.field(column.name, _TYPES[column.type], column.nullable) for column in table.columns])
