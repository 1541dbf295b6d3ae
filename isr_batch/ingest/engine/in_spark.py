"""Run the operations of an ingest in Spark's workers, for logs that are too large for one process.

Spark stages exchange packets: a packet is one Spark row with thousands of rows as an Arrow stream. Converting each row
to Spark and back took longer than the workers' own processing (docs/measurements/0020).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.ingest.engine.kernels import begin_task
from isr_batch.lake import sizes
from isr_batch.lake.arrow_rows import cast_rows, table_of_batches
from isr_batch.lake.arrow_sql import ArrowSql

OfBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
OfTables = Callable[..., pa.Table]
"""A function that takes an `ArrowSql` and, as keyword arguments, several tables, and returns a table."""

ROWS_AT_ONCE = 100_000
"""Maximum number of rows that a worker passes to one run of a query."""
PACKET_ROWS = 20_000
BUCKETS_A_SHARE = 4
"""Number of hash buckets per shuffle partition. Spark merges buckets into tasks."""
PACKETS_AT_ONCE = 16
"""Number of packets per batch that Spark passes to a worker. A batch has 2 MB at most, except with huge log lines."""

_PACKETS = pa.schema(
    [("bucket", pa.int32()), ("of_table", pa.string()), ("rows", pa.int64()), ("packet", pa.binary())]
)  # fmt: skip
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
"""Compression to a fifth is worth its CPU time, because Spark copies and stores each packet several times."""
_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"


class Spread(NamedTuple):
    """Rows that Spark's workers will compute when they are needed: a Spark frame and a function to apply to it.

    Attributes
    ----------
    frame : DataFrame
        The input, usually packets.
    work : callable
        Function that computes the rows from the batches of ``frame``.
    schema : pa.Schema
        Schema of the rows.
    packed : int or None
        Total number of rows that the packets of ``frame`` contain; None if unknown.
    """

    frame: DataFrame
    work: OfBatches
    schema: pa.Schema
    packed: int | None = None


Rows: TypeAlias = pa.Table | Spread


class Query(NamedTuple):
    """A SQL query that runs separately on each part of the table ``rows``, and the schema of its result."""

    text: str
    schema: pa.Schema


@contextmanager
def packets_at_once(spark: SparkSession) -> Iterator[None]:
    """Return a context manager in which Spark passes at most PACKETS_AT_ONCE packets (Spark rows) at once to Python."""
    usual = str(spark.conf.get(_AT_ONCE))
    spark.conf.set(_AT_ONCE, str(PACKETS_AT_ONCE))
    try:
        yield
    finally:
        spark.conf.set(_AT_ONCE, usual)


class InSpark:
    """Runs the operations of an ingest in Spark's workers.

    Parameters
    ----------
    spark : SparkSession
        The session. The caller has entered the context of `packets_at_once` for it.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.buckets = BUCKETS_A_SHARE * int(str(spark.conf.get("spark.sql.shuffle.partitions")))

    def over(self, parts: pa.Table, work: OfBatches, schema: pa.Schema) -> Rows:  # noqa: D102 as `Engine`
        if not parts.num_rows:
            return schema.empty_table()
        numbered = parts.append_column("task", pa.array(range(parts.num_rows), pa.int32()))
        tasks = self.spark.createDataFrame(numbered).repartitionById(parts.num_rows, "task")
        return Spread(tasks, partial(_mapped_in_spark, work, schema), schema)

    def map(self, rows: Rows, work: OfBatches, schema: pa.Schema) -> Rows:  # noqa: D102
        return self._then(rows, partial(_mapped_in_spark, work, schema), schema)

    def sql(self, rows: Rows, query: str, schema: pa.Schema, **small: pa.Table) -> Rows:  # noqa: D102
        return self._then(rows, partial(_answered_in_spark, query, small, schema), schema)

    def select(self, rows: Rows, names: Sequence[str]) -> Rows:  # noqa: D102
        names = list(names)
        return self._then(
            rows, partial(_selected_in_spark, names), pa.schema([rows.schema.field(name) for name in names])
        )

    def where(self, rows: Rows, condition: str) -> Rows:  # noqa: D102
        return self._then(rows, partial(_meeting_in_spark, condition), rows.schema)

    def by_key(self, keys: Sequence[str], work: OfTables, schema: pa.Schema, **tables: Rows) -> Rows:  # noqa: D102
        if all(isinstance(rows, pa.Table) for rows in tables.values()):
            return cast_rows(work(worker_sql(), **tables), schema)
        together = self._together(keys, tables)
        schemas = {name: rows.schema for name, rows in tables.items()}
        return Spread(together, partial(_worked_by_key, work, schemas, schema), schema)

    def ordered(self, rows: Rows, keys: Sequence[str], order: Sequence[str]) -> Rows:  # noqa: D102
        together = self._together(keys, {"rows": rows})
        return Spread(
            together, partial(_sorted_in_spark, [(name, "ascending") for name in order], rows.schema), rows.schema
        )

    def union(self, *rows: Rows) -> Rows:  # noqa: D102
        if all(isinstance(each, pa.Table) for each in rows):
            return pa.concat_tables(rows)
        first, *others = (self._packets(each, _packed_for_spark) for each in rows)
        for other in others:
            first = first.unionAll(other)
        return Spread(first, _unpacked_in_spark, rows[0].schema)

    def collect(self, rows: Rows) -> pa.Table:  # noqa: D102
        return (
            rows
            if isinstance(rows, pa.Table)
            else _collected_from_spark(_packets_of_spread(rows, _packed_for_spark), rows.schema)
        )

    def count(self, rows: Rows) -> int:  # noqa: D102
        return (
            rows.num_rows
            if isinstance(rows, pa.Table)
            else _counted_in_spark(_packets_of_spread(rows, _packed_for_spark))
        )

    def keep(self, rows: Rows) -> Rows:  # noqa: D102
        if isinstance(rows, pa.Table):
            return rows
        return _kept_in_spark(_packets_of_spread(rows, _packed_for_spark), {"": rows.schema}, few=0)[""]

    def answers(self, rows: Rows, asked: Mapping[str, Query]) -> dict[str, Rows]:  # noqa: D102
        if isinstance(rows, pa.Table):
            return {name: self.sql(rows, *query) for name, query in asked.items()}
        made = _packets_of_spread(rows, partial(_packed_with, dict(asked), with_rows=False))
        return _kept_in_spark(made, {name: query.schema for name, query in asked.items()}, sizes.ANSWER_ROWS)

    def keep_with(self, rows: Rows, asked: Mapping[str, Query]) -> tuple[Rows, dict[str, Rows]]:  # noqa: D102
        if isinstance(rows, pa.Table):
            return rows, self.answers(rows, asked)
        made = _packets_of_spread(rows, partial(_packed_with, dict(asked), with_rows=True))
        kept = _kept_in_spark(
            made, {"": rows.schema} | {name: query.schema for name, query in asked.items()}, sizes.ANSWER_ROWS
        )
        return kept.pop(""), kept

    def _then(self, rows: Rows, work: OfBatches, schema: pa.Schema) -> Rows:
        """Apply a function to rows. If they are a `Spread`, this is done when the workers compute them."""
        if isinstance(rows, pa.Table):
            return table_of_batches(work(iter(rows.to_batches())), schema)
        return Spread(rows.frame, partial(_both_in_spark, rows.work, work), schema, rows.packed)

    def _together(self, keys: Sequence[str], tables: dict[str, Rows]) -> DataFrame:
        """Pack all tables into one Spark frame, and shuffle it so that rows with equal keys are in the same task."""
        first, *_ = tables.values()
        types = pa.schema([pa.field(key, first.schema.field(key).type) for key in keys])
        every, *others = (
            self._packets(rows, partial(_packets_in_buckets, name, types, self.buckets))
            for name, rows in tables.items()
        )
        for other in others:
            every = every.unionAll(other)
        return every.repartition("bucket")

    def _packets(self, rows: Rows, pack: OfBatches) -> DataFrame:
        """Pack the rows with the function ``pack``, and return a Spark frame with the packets."""
        if isinstance(rows, pa.Table):
            return self.spark.createDataFrame(table_of_batches(pack(iter(rows.to_batches())), _PACKETS))
        return _packets_of_spread(rows, pack)


def here_if_few(rows: Spread, most: int) -> pa.Table | None:
    """Compute rows in this process if their input is known to have at most ``most`` rows; otherwise return None."""
    is_few = rows.packed is not None and rows.packed <= most
    return _collected_from_spark(_packets_of_spread(rows, _packed_for_spark), rows.schema) if is_few else None


def reported_by_workers(rows: Spread, work: OfBatches, schema: pa.Schema) -> pa.Table:
    """Have Spark workers compute the rows and apply ``work`` to them, and collect its results in this process."""
    reports = rows.frame.mapInArrow(
        partial(_worked_in_spark, partial(_both_in_spark, rows.work, work)), from_arrow_schema(schema)
    )
    return reports.toArrow()


def spark_frame_of_spread(rows: Spread) -> DataFrame:
    """Return rows as a Spark frame with one Spark row for each of them, so that Spark can write them to a table."""
    return rows.frame.mapInArrow(partial(_worked_in_spark, rows.work), from_arrow_schema(rows.schema))


def meeting(sql: ArrowSql, rows: pa.Table, condition: str) -> pa.Table:
    """Return the rows that meet a SQL condition."""
    meets = sql(f"SELECT coalesce({condition}, false) AS meets FROM rows", rows=rows)["meets"]
    return rows if pc.all(meets).as_py() else rows.filter(meets)  # `filter` copies, even if all rows meet the condition


def _packets_of_spread(rows: Spread, pack: OfBatches) -> DataFrame:
    """Return a Spark frame of packets: workers compute the rows and pack them with the function ``pack``."""
    if pack is _packed_for_spark and rows.work is _unpacked_in_spark:
        return rows.frame.withColumn("of_table", F.lit(""))  # the rows themselves, not a query's result
    return rows.frame.mapInArrow(
        partial(_worked_in_spark, partial(_both_in_spark, rows.work, pack)), from_arrow_schema(_PACKETS)
    )


def _collected_from_spark(packets: DataFrame, schema: pa.Schema) -> pa.Table:
    return table_of_batches(_unpacked_in_spark(iter(packets.select("packet").toArrow().to_batches())), schema)


def _kept_in_spark(packets: DataFrame, schemas: Mapping[str, pa.Schema], few: int) -> dict[str, Rows]:
    """Compute and store the packets. Return each table in them by name, in Arrow if it has at most ``few`` rows.

    Later stages start from the stored packets instead of the log text. The packets are stored on the executors' disks,
    because they would fill the heap. If an executor is lost, the ingest therefore fails and must be repeated.
    """
    kept = packets.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)
    sizes = Counter(dict.fromkeys(schemas, 0))
    for packet in kept.select("of_table", "rows").toArrow().to_pylist():  # this computes the packets
        sizes[packet["of_table"]] += packet["rows"]
    here = [name for name, rows in sizes.items() if 0 < rows <= few]
    parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in here}
    for batch in kept.where(F.col("of_table").isin(here)).toArrow().to_batches() if here else ():
        for name in here:
            parts[name] += _unpacked_in_spark(iter([batch.filter(pc.equal(batch["of_table"], name))]))
    return {
        name: Spread(kept.where(F.col("of_table") == name), _unpacked_in_spark, schema, sizes[name])
        if sizes[name] > few
        else table_of_batches(iter(parts.get(name, ())), schema)
        for name, schema in schemas.items()
    }


def _counted_in_spark(packets: DataFrame) -> int:
    ((counted,),) = packets.agg(F.sum("rows")).collect()
    return int(counted or 0)


@lru_cache(maxsize=1)
def worker_sql() -> ArrowSql:
    """Return this process's SQL engine for the queries of an ingest. The first call opens it."""
    return log_sql()


def _worked_in_spark(work: OfBatches, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply ``work`` to the batches of a Spark task. The compiled functions are loaded first."""
    begin_task()
    yield from work(batches)


def _both_in_spark(first: OfBatches, then: OfBatches, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return then(first(batches))


def _some_batches(batches: Iterator[pa.RecordBatch], rows: int = ROWS_AT_ONCE) -> Iterator[pa.Table]:
    parts: list[pa.RecordBatch] = []
    for batch in batches:
        if parts and sum(part.num_rows for part in parts) + batch.num_rows > rows:
            yield pa.Table.from_batches(parts)
            parts = []
        parts.append(batch)
    if parts:
        yield pa.Table.from_batches(parts)


def _mapped_in_spark(work: OfBatches, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply ``work`` to batches, and yield its results, cast to a schema."""
    for batch in work(batches):
        yield from cast_rows(pa.table(batch), schema).to_batches()


def _answered_in_spark(
    query: str, small: dict[str, pa.Table], schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for rows in _some_batches(batches):
        yield from cast_rows(worker_sql()(query, rows=rows, **small), schema).to_batches()


def _meeting_in_spark(condition: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in _some_batches(batches):
        yield from meeting(worker_sql(), rows, condition).to_batches()


def _selected_in_spark(names: list[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(names)


def _packet_for_spark(bucket: int, name: str, rows: pa.Table) -> pa.RecordBatch:
    """Make a packet, a batch of one row: hash bucket, table name, row count, and the rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_table(rows.combine_chunks())
    packet = sink.getvalue()
    edges = pa.py_buffer(np.array([0, packet.size], np.int32))
    columns = [
        pa.array([value], type_) for value, type_ in zip((bucket, name, rows.num_rows), _PACKETS.types, strict=False)
    ]
    return pa.RecordBatch.from_arrays(
        [*columns, pa.Array.from_buffers(pa.binary(), 1, [None, edges, packet])], schema=_PACKETS
    )


def _packed_for_spark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in packets of at most PACKET_ROWS rows."""
    for rows in _some_batches(batches, PACKET_ROWS):
        for begin in range(0, rows.num_rows, PACKET_ROWS):
            yield _packet_for_spark(0, "", rows.slice(begin, PACKET_ROWS))


def _packed_with(
    asked: Mapping[str, Query], batches: Iterator[pa.RecordBatch], *, with_rows: bool
) -> Iterator[pa.RecordBatch]:
    """Yield packets of the results of the queries ``asked`` and, if ``with_rows`` is true, packets of the rows."""
    for rows in _some_batches(batches):
        answers = {name: cast_rows(worker_sql()(query.text, rows=rows), query.schema) for name, query in asked.items()}
        for name, table in (({"": rows} if with_rows else {}) | answers).items():
            for begin in range(0, table.num_rows, PACKET_ROWS):
                yield _packet_for_spark(0, name, table.slice(begin, PACKET_ROWS))


def _packets_in_buckets(
    name: str, keys: pa.Schema, buckets: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Divide the rows into buckets by the hash of their keys, and yield each bucket in packets."""
    query = f"SELECT CAST(hash({', '.join(keys.names)}) % {buckets} AS INTEGER) AS bucket FROM rows"
    for rows in _some_batches(batches):
        number = worker_sql()(query, rows=cast_rows(rows, keys))["bucket"].to_numpy()
        sorted_ = rows.take(pa.array(np.argsort(number, kind="stable")))
        begin = 0
        for bucket, size in enumerate(np.bincount(number, minlength=buckets).tolist()):
            for at in range(begin, begin + size, PACKET_ROWS):
                yield _packet_for_spark(bucket, name, sorted_.slice(at, min(PACKET_ROWS, begin + size - at)))
            begin += size


def _unpacked_in_spark(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for packet in batch.column("packet"):
            # Kernels are only compiled for aligned arrays. A stream's length is a multiple of 8, so packets usually
            # begin at an aligned address; a packet that does not is copied.
            held = packet.as_buffer()
            yield from pa.ipc.open_stream(held if held.address % 8 == 0 else packet.as_py())


def _worked_by_key(
    work: OfTables, schemas: dict[str, pa.Schema], schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Call ``work`` once, with all rows of the Spark task as one table per input, and yield the rows that it returns.

    ``schemas`` are the schemas of the inputs by name, and ``schema`` is that of the result.
    """
    parts: dict[str, list[pa.RecordBatch]] = {name: [] for name in schemas}
    for batch in batches:
        for name in schemas:
            parts[name] += _unpacked_in_spark(iter([batch.filter(pc.equal(batch["of_table"], name))]))
    if any(parts.values()):
        tables = {name: table_of_batches(iter(found), schemas[name]) for name, found in parts.items()}
        yield from cast_rows(work(worker_sql(), **tables), schema).to_batches()


def _sorted_in_spark(
    order: list[tuple[str, str]], schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Sort all rows of the Spark task by the columns in ``order``."""
    rows = table_of_batches(_unpacked_in_spark(batches), schema).combine_chunks()
    places = pc.sort_indices(rows, sort_keys=order)
    for begin in range(0, rows.num_rows, ROWS_AT_ONCE):  # in parts, so that memory holds no second copy of all rows
        yield from rows.take(places.slice(begin, ROWS_AT_ONCE)).combine_chunks().to_batches()
