"""Writes by Spark: the columns of a contract, with retries after a conflict."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Final

import delta.exceptions
from delta.tables import DeltaMergeBuilder, DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.errors import RETRIES, SchemaError, write_conflict_error
from isr_batch.lake.tables.contract import Table

# Delta's conflicts have no common base class in Python.
_CONFLICTS: Final[tuple[type[Exception], ...]] = tuple(
    getattr(delta.exceptions, name) for name in delta.exceptions.__all__
)


def retrying(write: Callable[[], object], name: str) -> None:
    """Let Spark write to a table, with retries if others commit first.

    Raises
    ------
    WriteConflictError
        After RETRIES failures.
    """
    for attempt in range(RETRIES + 1):
        try:
            write()
        except _CONFLICTS as error:
            if attempt == RETRIES:
                raise write_conflict_error(name) from error
            # Writers that collided once would collide again if they all waited equally long.
            time.sleep(2**attempt * random.uniform(0.5, 1.0))
        else:
            return


def conformed(table: Table, rows: DataFrame) -> DataFrame:
    """Select a contract's columns by name, and cast them to its types.

    Raises
    ------
    SchemaError
        When a column is missing.
    """
    missing = [name for name in table.column_names if name not in rows.columns]
    if missing:
        raise SchemaError(f"rows for {table.name} lack {', '.join(missing)}")
    return rows.select([F.col(f"`{column.name}`").cast(column.type).alias(column.name) for column in table.columns])


def amending(there: DeltaTable, rows: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DeltaMergeBuilder:
    """Prepare a MERGE that updates columns of rows matched by key, where the first column differs."""
    same = " AND ".join(f"there.{name} = given.{name}" for name in key)
    changed = f"{same} AND there.{columns[0]} IS DISTINCT FROM given.{columns[0]}"
    merge = there.alias("there").merge(rows.alias("given"), changed)
    return merge.whenMatchedUpdate(set={name: f"given.{name}" for name in columns})
