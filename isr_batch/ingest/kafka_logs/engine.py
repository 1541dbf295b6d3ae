"""Where the rows of an ingest are worked on: in this process if they are few, in Spark's workers if they are many.

What is done with the rows is written once: functions of Arrow batches, and SQL over Arrow tables (DuckDB). A small log
is not worth a Spark plan, which takes the driver longer than the rows take (docs/adr/0020-small-logs-in-the-driver.md).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from isr_batch.ingest.kafka_logs.kernels import load_kernels
from isr_batch.ingest.kafka_logs.log_sql import log_sql
from isr_batch.lake.arrow_sql import ArrowSql

Rows: TypeAlias = pa.Table | DataFrame
OfBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
OfTables = Callable[..., pa.Table]
"""Takes an `ArrowSql`, and tables by name."""

_TABLE = "of_table"


class Engine(Protocol):
    """What an ingest does with its rows."""

    def over(self, parts: pa.Table, work: OfBatches, schema: pa.Schema) -> Rows:
        """Give what a function makes of each row of ``parts``, which say what to read."""

    def map(self, rows: Rows, work: OfBatches, schema: pa.Schema) -> Rows:
        """Give what a function makes of the rows; ordered rows come in their order."""

    def sql(self, rows: Rows, query: str, schema: pa.Schema, **small: pa.Table) -> Rows:
        """Answer a query on any part of the ``rows`` by itself, and on small tables as a whole."""

    def select(self, rows: Rows, names: Sequence[str]) -> Rows:
        """Keep some columns."""

    def where(self, rows: Rows, condition: str) -> Rows:
        """Keep the rows that meet a condition that Spark and DuckDB understand."""

    def by_key(self, keys: Sequence[str], work: OfTables, schema: pa.Schema, **tables: Rows) -> Rows:
        """Give what a function makes of all rows with equal keys; it is given those of several keys at once.

        Small tables may be Arrow tables everywhere.
        """

    def ordered(self, rows: Rows, keys: Sequence[str], order: Sequence[str]) -> Rows:
        """Bring rows with equal keys together, and sort them."""

    def union(self, *rows: Rows) -> Rows:
        """Put rows with the same columns together."""

    def collect(self, rows: Rows, limit: int | None = None) -> pa.Table:
        """Bring the rows to this process; no more than ``limit`` if they are elsewhere."""

    def keep(self, rows: Rows) -> Rows:
        """Compute the rows now, and once."""


class Here:
    """The process of the driver: rows are Arrow tables.

    Parameters
    ----------
    engine : ArrowSql
    """

    def __init__(self, engine: ArrowSql) -> None:
        self.engine = engine
        load_kernels()

    def over(self, parts: pa.Table, work: OfBatches, schema: pa.Schema) -> pa.Table:  # noqa: D102 as `Engine`
        return _table(work(iter(parts.to_batches())), schema)

    def map(self, rows: Rows, work: OfBatches, schema: pa.Schema) -> pa.Table:  # noqa: D102
        return _table(work(iter(_here(rows).combine_chunks().to_batches())), schema)

    def sql(self, rows: Rows, query: str, schema: pa.Schema, **small: pa.Table) -> pa.Table:  # noqa: D102
        return _cast(self.engine(query, rows=_here(rows), **small), schema)

    def select(self, rows: Rows, names: Sequence[str]) -> pa.Table:  # noqa: D102
        return _here(rows).select(list(names))

    def where(self, rows: Rows, condition: str) -> pa.Table:  # noqa: D102
        return self.engine(f"SELECT * FROM rows WHERE {condition}", rows=_here(rows))

    def by_key(self, keys: Sequence[str], work: OfTables, schema: pa.Schema, **tables: Rows) -> pa.Table:  # noqa: ARG002, D102
        return _cast(work(self.engine, **tables), schema)

    def ordered(self, rows: Rows, keys: Sequence[str], order: Sequence[str]) -> pa.Table:  # noqa: ARG002, D102
        return _here(rows).sort_by([(name, "ascending") for name in order])

    def union(self, *rows: Rows) -> pa.Table:  # noqa: D102
        return pa.concat_tables(map(_here, rows))

    def collect(self, rows: Rows, limit: int | None = None) -> pa.Table:  # noqa: ARG002, D102 they are here
        return _here(rows)

    def keep(self, rows: Rows) -> Rows:  # noqa: D102
        return rows


MOST_BYTES = 512 << 20
"""Log text. It takes 1.3 GB of memory; in Spark, on two cores, several times the CPU time."""


def engine_for(spark: SparkSession, sql: ArrowSql, size_bytes: int) -> Engine:
    """Choose by the size of the log text."""
    return Here(sql) if size_bytes <= MOST_BYTES else InSpark(spark)


class InSpark:
    """Spark's workers: rows are Spark frames."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def over(self, parts: pa.Table, work: OfBatches, schema: pa.Schema) -> DataFrame:  # noqa: D102 as `Engine`
        if not parts.num_rows:
            return self.spark.createDataFrame([], from_arrow_schema(schema))
        numbered = parts.append_column("task", pa.array(range(parts.num_rows), pa.int32()))
        tasks = self.spark.createDataFrame(numbered).repartitionById(parts.num_rows, "task")
        return tasks.mapInArrow(partial(_mapped, work, schema), from_arrow_schema(schema))

    def map(self, rows: Rows, work: OfBatches, schema: pa.Schema) -> DataFrame:  # noqa: D102
        return _frame(rows).mapInArrow(partial(_mapped, work, schema), from_arrow_schema(schema))

    def sql(self, rows: Rows, query: str, schema: pa.Schema, **small: pa.Table) -> DataFrame:  # noqa: D102
        frame = _frame(rows)
        # Rows are copied to the workers: only the columns that the query names, unless it may mean all.
        named = [name for name in frame.columns if "*" in query or re.search(rf"\b{name}\b", query)]
        return self.map(frame.select(*named), partial(_answered, query, small), schema)

    def select(self, rows: Rows, names: Sequence[str]) -> DataFrame:  # noqa: D102
        return _frame(rows).select(*names)

    def where(self, rows: Rows, condition: str) -> DataFrame:  # noqa: D102
        return _frame(rows).where(condition)

    def by_key(self, keys: Sequence[str], work: OfTables, schema: pa.Schema, **tables: Rows) -> DataFrame:  # noqa: D102
        frames = {
            name: self.spark.createDataFrame(rows) if isinstance(rows, pa.Table) else rows
            for name, rows in tables.items()
        }
        columns = {name: frame.columns for name, frame in frames.items()}
        every, *others = (frame.withColumn(_TABLE, F.lit(name)) for name, frame in frames.items())
        for other in others:
            every = every.unionByName(other, allowMissingColumns=True)
        together = every.repartition(*keys)
        return together.mapInArrow(partial(_of_keys, work, columns, schema), from_arrow_schema(schema))

    def ordered(self, rows: Rows, keys: Sequence[str], order: Sequence[str]) -> DataFrame:  # noqa: D102
        return _frame(rows).repartition(*keys).sortWithinPartitions(*order)

    def union(self, *rows: Rows) -> DataFrame:  # noqa: D102
        first, *others = map(_frame, rows)
        for other in others:
            first = first.unionByName(other)
        return first

    def collect(self, rows: Rows, limit: int | None = None) -> pa.Table:  # noqa: D102
        frame = _frame(rows)
        return (frame if limit is None else frame.limit(limit)).toArrow()

    def keep(self, rows: Rows) -> DataFrame:  # noqa: D102
        # What follows is planned from these rows, and not again from the text of the logs: cached frames have the
        # plans of all before them, which took more of the driver's time and memory than the rows (docs/adr/0009). It
        # costs that a lost executor ends the ingest, which is then done again.
        return _frame(rows).localCheckpoint()


def _here(rows: Rows) -> pa.Table:
    assert isinstance(rows, pa.Table)
    return rows


def _frame(rows: Rows) -> DataFrame:
    assert not isinstance(rows, pa.Table)
    return rows


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.select(schema.names).cast(schema)


def _table(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *(_cast(pa.table(batch), schema) for batch in batches)])


@lru_cache(maxsize=1)
def _worker_sql() -> ArrowSql:
    return log_sql()


def _mapped(work: OfBatches, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    load_kernels()
    for batch in work(batches):
        yield from _cast(pa.table(batch), schema).to_batches()


def _answered(query: str, small: dict[str, pa.Table], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from _worker_sql()(query, rows=pa.table(batch), **small).to_batches()


def _of_keys(
    work: OfTables, columns: dict[str, list[str]], schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Give the rows of a Spark partition to the function, a table each."""
    load_kernels()
    parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in columns}
    for batch in batches:
        for name, names in columns.items():
            parts[name].append(batch.filter(pc.equal(batch[_TABLE], name)).select(names))
    if any(parts.values()):
        tables = {name: pa.Table.from_batches(found) for name, found in parts.items()}
        yield from _cast(work(_worker_sql(), **tables), schema).to_batches()
