"""Make Arrow schemas from Spark's DDL, and convert Arrow's integers to numpy."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

ARROW_TYPES = {
    "STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_(), "BINARY": pa.binary(),
    "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us", "UTC"), "ARRAY<INT>": pa.list_(pa.int32()),
    "ARRAY<BIGINT>": pa.list_(pa.int64()), "ARRAY<STRING>": pa.list_(pa.string()),
    "MAP<DATE, TIMESTAMP>": pa.map_(pa.date32(), pa.timestamp("us", "UTC")),
}  # fmt: skip


def arrow_columns(ddl: str) -> pa.Schema:
    """Convert columns in Spark's DDL, such as ``name TYPE, name TYPE``, to an Arrow schema."""
    pairs = (column.split(" ", 1) for column in ddl.split(", "))
    return pa.schema([(name, ARROW_TYPES[spelt]) for name, spelt in pairs])


def int64_array(array: pa.Array, missing: int = 0) -> npt.NDArray[np.int64]:
    """Convert an Arrow column of integers to a numpy array of int64; nulls become ``missing``."""
    return np.asarray(pc.fill_null(array, missing).cast(pa.int64()))
