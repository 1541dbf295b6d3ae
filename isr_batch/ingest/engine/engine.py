"""Run the operations of an ingest in this process for small logs, and in Spark's workers for large ones.

Each operation is written once, as a function of Arrow batches or as SQL that DuckDB runs on Arrow tables, and works in
both places. For a small log, planning in Spark takes longer than processing the rows
(docs/adr/0020-small-logs-in-the-driver.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.engine.in_spark import InSpark, OfBatches, OfTables, Query, Spread, meeting
from isr_batch.ingest.engine.kernels import load_kernels
from isr_batch.lake import sizes
from isr_batch.lake.arrow_rows import cast_rows, table_of_batches
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.progress import counted

if TYPE_CHECKING:
    from isr_batch.lake.lake import Lake  # for types only: executors import this module, and lack Delta

Rows: TypeAlias = pa.Table | Spread


class Engine(Protocol):
    """The operations that an ingest applies to its rows.

    `Here` runs them in this process, `InSpark` in Spark's workers.
    """

    def over(self, parts: pa.Table, work: OfBatches, schema: pa.Schema) -> Rows:
        """Call ``work`` with the rows of ``parts``, in separate batches, and return the rows that it yields.

        Each row of ``parts`` names a file, or a range of a file, for ``work`` to read.
        """

    def map(self, rows: Rows, work: OfBatches, schema: pa.Schema) -> Rows:
        """Apply a function to all batches of the rows, in their order, and return the rows that it yields."""

    def sql(self, rows: Rows, query: str, schema: pa.Schema, **small: pa.Table) -> Rows:
        """Divide the rows into parts, run a DuckDB query on each part, and return the results of all parts.

        In the query, table ``rows`` is the part. Each table in ``small`` is available under its name, complete.
        """

    def select(self, rows: Rows, names: Sequence[str]) -> Rows:
        """Return the rows with only the given columns."""

    def where(self, rows: Rows, condition: str) -> Rows:
        """Return the rows that meet a SQL condition, which must be valid in both Spark and DuckDB."""

    def by_key(self, keys: Sequence[str], work: OfTables, schema: pa.Schema, **tables: Rows) -> Rows:
        """Divide the tables by key, call ``work`` on each division, and return the rows of all results.

        All rows with equal keys are passed in the same call, which may include rows of several keys. Small tables may
        be passed as Arrow tables, even to `InSpark`.
        """

    def ordered(self, rows: Rows, keys: Sequence[str], order: Sequence[str]) -> Rows:
        """Divide the rows into parts, with rows of equal ``keys`` in the same part, and sort each part by ``order``."""

    def union(self, *rows: Rows) -> Rows:
        """Concatenate tables that have the same columns."""

    def collect(self, rows: Rows) -> pa.Table:
        """Return the rows as an Arrow table in this process."""

    def count(self, rows: Rows) -> int:
        """Count the rows."""

    def keep(self, rows: Rows) -> Rows:
        """Compute the rows now and store them.

        Return the stored rows, so that later operations do not compute them again.
        """

    def answers(self, rows: Rows, asked: Mapping[str, Query]) -> dict[str, Rows]:
        """Run the queries ``asked`` as `sql` does, in a single pass over the rows. Return their results by name."""

    def keep_with(self, rows: Rows, asked: Mapping[str, Query]) -> tuple[Rows, dict[str, Rows]]:
        """Do `keep` and `answers` in one pass. Return the stored rows, and the results of the queries by name."""


class Here:
    """Runs the operations of an ingest in this process, on Arrow tables.

    Parameters
    ----------
    engine : ArrowSql
    """

    def __init__(self, engine: ArrowSql) -> None:
        self.engine = engine
        load_kernels()

    def over(self, parts: pa.Table, work: OfBatches, schema: pa.Schema) -> pa.Table:  # noqa: D102 as `Engine`
        return table_of_batches(work(_one_by_one(parts)), schema)

    def map(self, rows: Rows, work: OfBatches, schema: pa.Schema) -> pa.Table:  # noqa: D102
        return table_of_batches(work(iter(_rows_in_process(rows).to_batches())), schema)

    def sql(self, rows: Rows, query: str, schema: pa.Schema, **small: pa.Table) -> pa.Table:  # noqa: D102
        return cast_rows(self.engine(query, rows=_rows_in_process(rows), **small), schema)

    def select(self, rows: Rows, names: Sequence[str]) -> pa.Table:  # noqa: D102
        return _rows_in_process(rows).select(list(names))

    def where(self, rows: Rows, condition: str) -> pa.Table:  # noqa: D102
        return meeting(self.engine, _rows_in_process(rows), condition)

    def by_key(self, keys: Sequence[str], work: OfTables, schema: pa.Schema, **tables: Rows) -> pa.Table:  # noqa: ARG002, D102
        return cast_rows(work(self.engine, **tables), schema)

    def ordered(self, rows: Rows, keys: Sequence[str], order: Sequence[str]) -> pa.Table:  # noqa: ARG002, D102
        # Combined to one chunk first: `take` then needs a third of the time.
        return _rows_in_process(rows).combine_chunks().sort_by([(name, "ascending") for name in order])

    def union(self, *rows: Rows) -> pa.Table:  # noqa: D102
        return pa.concat_tables(map(_rows_in_process, rows))

    def collect(self, rows: Rows) -> pa.Table:  # noqa: D102
        return _rows_in_process(rows)

    def count(self, rows: Rows) -> int:  # noqa: D102
        return int(_rows_in_process(rows).num_rows)

    def keep(self, rows: Rows) -> Rows:  # noqa: D102
        return rows

    def answers(self, rows: Rows, asked: Mapping[str, Query]) -> dict[str, Rows]:  # noqa: D102
        return {name: self.sql(rows, *query) for name, query in asked.items()}

    def keep_with(self, rows: Rows, asked: Mapping[str, Query]) -> tuple[Rows, dict[str, Rows]]:  # noqa: D102
        return rows, self.answers(rows, asked)


def ingest_engine_for(lake: "Lake", sql: ArrowSql, size_bytes: int) -> Engine:
    """Return the engine that the lake's settings demand. By default, use Spark only if there is much log text.

    ``size_bytes`` is the size of the uncompressed log text.
    """
    return InSpark(lake.spark) if lake.engine.by_spark(size_bytes, sizes.LOG_BYTES, "bytes of log text") else Here(sql)


def _one_by_one(parts: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield each row of ``parts`` as its own batch, and report progress (in megabytes for ranges, otherwise files)."""
    known = "end" in parts.schema.names
    sizes = pc.divide(pc.subtract(parts["end"], parts["start"]), 1e6).to_pylist() if known else [1] * len(parts)
    singly = (batch.slice(n, 1) for batch in parts.to_batches() for n in range(batch.num_rows))
    return counted(zip(singly, sizes, strict=True), sum(sizes), "MB" if known else "files")


def _rows_in_process(rows: Rows) -> pa.Table:
    """Return the rows with the narrower type pa.Table. `Here` never handles a `Spread`."""
    assert isinstance(rows, pa.Table)
    return rows
