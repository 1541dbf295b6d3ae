"""Arrow types by their names in Spark's DDL."""

import pyarrow as pa

ARROW_TYPES = {
    "STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_(), "BINARY": pa.binary(),
    "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us", "UTC"), "ARRAY<INT>": pa.list_(pa.int32()),
    "ARRAY<BIGINT>": pa.list_(pa.int64()), "ARRAY<STRING>": pa.list_(pa.string()),
    "MAP<DATE, TIMESTAMP>": pa.map_(pa.date32(), pa.timestamp("us", "UTC")),
}  # fmt: skip


def arrow_columns(ddl: str) -> pa.Schema:
    """Make a schema of ``name TYPE, name TYPE``."""
    pairs = (column.split(" ", 1) for column in ddl.split(", "))
    return pa.schema([(name, ARROW_TYPES[spelt]) for name, spelt in pairs])
