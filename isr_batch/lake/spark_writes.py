"""Write to Delta tables with Spark: cast rows to the types of a contract, and retry after conflicts."""

import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Final

import delta.exceptions
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql import functions as F

from isr_batch.errors import RETRIES, SchemaError, UsageError, write_conflict_error
from isr_batch.lake.tables.contract import Table

# Delta's conflicts have no common base class in Python.
_CONFLICTS: Final[tuple[type[Exception], ...]] = tuple(
    getattr(delta.exceptions, name) for name in delta.exceptions.__all__
)


def retrying(write: Callable[[], object], name: str) -> None:
    """Call ``write``, with which Spark writes to the table ``name``. Repeat it if another process committed first.

    Raises
    ------
    WriteConflictError
        If another process committed first at every one of the `RETRIES` retries too.
    """
    for attempt in range(RETRIES + 1):
        try:
            write()
        except _CONFLICTS as error:
            if attempt == RETRIES:
                raise write_conflict_error(name) from error
            # The wait is random: after equal waits, the same writers would collide again.
            time.sleep(2**attempt * random.uniform(0.5, 1.0))
        else:
            return


def conformed(table: Table, rows: DataFrame) -> DataFrame:
    """Select a contract's columns from rows, and cast them to the contract's types.

    Raises
    ------
    SchemaError
        If the rows lack a column.
    """
    missing = [name for name in table.column_names if name not in rows.columns]
    if missing:
        raise SchemaError(f"rows for {table.name} lack {', '.join(missing)}")
    return rows.select([F.col(f"`{column.name}`").cast(column.type).alias(column.name) for column in table.columns])


def amend(identifier: str, rows: DataFrame, key: Sequence[str], columns: Sequence[str]) -> None:
    """Copy ``columns`` from ``rows`` to a table's rows with the same ``key``, where the first of these columns differs.

    ``identifier`` is the table as Spark SQL names it.
    """
    given = f"given_{uuid.uuid4().hex}"
    same = " AND ".join(f"there.{name} = given.{name}" for name in key)
    changed = f"there.{columns[0]} IS DISTINCT FROM given.{columns[0]}"
    taken = ", ".join(f"there.{name} = given.{name}" for name in columns)
    rows.createTempView(given)
    try:
        rows.sparkSession.sql(
            f"MERGE INTO {identifier} AS there USING {given} AS given"
            f" ON {same} AND {changed} WHEN MATCHED THEN UPDATE SET {taken}"
        )
    finally:
        rows.sparkSession.catalog.dropTempView(given)


def is_delta(spark: SparkSession, place: str) -> bool:
    """Whether there is a Delta table at an address.

    Raises
    ------
    UsageError
        Over Spark Connect, which cannot check it.
    """
    if is_remote():
        raise UsageError(
            f"Spark Connect cannot say whether there is a table at {place}",
            "name the lake by its schema in a catalog, or by a folder of this machine, or by an address on S3 or HDFS",
        )
    return bool(DeltaTable.isDeltaTable(spark, place))
