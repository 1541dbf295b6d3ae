"""Rows of a table as Arrow has them."""

import pyarrow as pa

from isr_batch.lake.tables.contract import Table
from udfs.arrow_types import ARROW_TYPES


def arrow_schema(table: Table) -> pa.Schema:
    """Columns of a table by their contract."""
    return pa.schema([pa.field(column.name, ARROW_TYPES[column.type], column.nullable) for column in table.columns])
