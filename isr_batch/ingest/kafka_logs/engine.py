"""Process the rows of an ingest in this process if they are few, in Spark's workers if they are many.

What is done with the rows is written once: functions of Arrow batches, and SQL over Arrow tables (DuckDB). A small log
is not worth a Spark plan, which takes the driver longer than the rows take (docs/adr/0020-small-logs-in-the-driver.md).
"""

import os
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa

from isr_batch.ingest.kafka_logs.in_spark import InSpark, OfBatches, OfTables, Query, Spread, meeting
from isr_batch.ingest.kafka_logs.kernels import load_kernels
from isr_batch.lake.arrow_rows import cast_rows, table_of_batches
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.lake import Lake

Rows: TypeAlias = pa.Table | Spread


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

    def collect(self, rows: Rows) -> pa.Table:
        """Bring the rows to this process."""

    def count(self, rows: Rows) -> int:
        """Count the rows."""

    def keep(self, rows: Rows) -> Rows:
        """Compute the rows now, and once."""

    def answers(self, rows: Rows, asked: Mapping[str, Query]) -> dict[str, Rows]:
        """Compute now, in one pass over the rows, what `sql` would answer to some queries."""

    def keep_with(self, rows: Rows, asked: Mapping[str, Query]) -> tuple[Rows, dict[str, Rows]]:
        """Compute the rows now, and once, and in the same pass what `sql` would answer to some queries."""


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
        return table_of_batches(work(iter(parts.to_batches())), schema)

    def map(self, rows: Rows, work: OfBatches, schema: pa.Schema) -> pa.Table:  # noqa: D102
        return table_of_batches(work(iter(_here(rows).to_batches())), schema)

    def sql(self, rows: Rows, query: str, schema: pa.Schema, **small: pa.Table) -> pa.Table:  # noqa: D102
        return cast_rows(self.engine(query, rows=_here(rows), **small), schema)

    def select(self, rows: Rows, names: Sequence[str]) -> pa.Table:  # noqa: D102
        return _here(rows).select(list(names))

    def where(self, rows: Rows, condition: str) -> pa.Table:  # noqa: D102
        return meeting(self.engine, _here(rows), condition)

    def by_key(self, keys: Sequence[str], work: OfTables, schema: pa.Schema, **tables: Rows) -> pa.Table:  # noqa: ARG002, D102
        return cast_rows(work(self.engine, **tables), schema)

    def ordered(self, rows: Rows, keys: Sequence[str], order: Sequence[str]) -> pa.Table:  # noqa: ARG002, D102
        # Rows are taken from one chunk in a third of the time.
        return _here(rows).combine_chunks().sort_by([(name, "ascending") for name in order])

    def union(self, *rows: Rows) -> pa.Table:  # noqa: D102
        return pa.concat_tables(map(_here, rows))

    def collect(self, rows: Rows) -> pa.Table:  # noqa: D102
        return _here(rows)

    def count(self, rows: Rows) -> int:  # noqa: D102
        return int(_here(rows).num_rows)

    def keep(self, rows: Rows) -> Rows:  # noqa: D102
        return rows

    def answers(self, rows: Rows, asked: Mapping[str, Query]) -> dict[str, Rows]:  # noqa: D102
        return {name: self.sql(rows, *query) for name, query in asked.items()}

    def keep_with(self, rows: Rows, asked: Mapping[str, Query]) -> tuple[Rows, dict[str, Rows]]:  # noqa: D102
        return rows, self.answers(rows, asked)


MOST_BYTES = min(2 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)
"""Log text. It takes up to twice as much memory; in Spark, on two cores, nearly three times as long."""


def ingest_engine_for(lake: Lake, sql: ArrowSql, size_bytes: int) -> Engine:
    """Choose by what is wanted, and by the size of the log text."""
    return InSpark(lake.spark) if lake.engine.by_spark(size_bytes, MOST_BYTES, "bytes of log text") else Here(sql)


def _here(rows: Rows) -> pa.Table:
    assert isinstance(rows, pa.Table)
    return rows
