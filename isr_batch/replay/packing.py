"""Pack fetches and appends into the table ``fetch_segments``, which replays read, whenever some have changed.

A shuffle is expensive per row. Therefore events are first grouped by replica set (a partition on one leader) into
chunks, with some hundred events per row (``udfs.batches.event_chunks``). The chunks are shuffled, sorted, and packed
into segments, once per day of logs. A replay then only shuffles segments. If the tables use neither deletion vectors
nor column mapping, workers read the Parquet files with Arrow, because Spark's row reader takes longer than all other
work on the rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from isr_batch.errors import SchemaError
from isr_batch.lake import sizes
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.day_files import day_of_file, files_by_day, made_from
from isr_batch.lake.ddl import days_as_sql
from isr_batch.lake.delta_files.read import rows_of_groups
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import REPORTS, reported_files, with_files_written
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import OfBatches
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.spark_engine import rows_at_a_time
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, FETCH_SEGMENTS
from udfs.batches.event_chunks import (
    CHUNK_ROWS,
    COLUMNS_OF_APPENDS,
    COLUMNS_OF_FETCHES,
    KEY,
    PIECES,
    event_chunks_of_appends,
    event_chunks_of_fetches,
)
from udfs.batches.results import SET_COLUMNS
from udfs.batches.segments import DamagedSegmentError, pack_segments

PIECES_AT_A_TIME = 1024
"""Number of chunks per batch that a worker reads from a file or receives from Spark. A chunk has at most 70 kB."""
PIECES_HERE = 64
"""Number of chunks per batch when the driver packs. It is small, because all columns of a batch are sorted together and
should fit in the processor's cache."""
SHARE_BYTES = 1 << 25
"""Size in bytes of the data files that one packing task reads."""

_OF = {
    FETCH_LOG.name: (event_chunks_of_fetches, (*KEY, *COLUMNS_OF_FETCHES.values(), "later_by")),
    APPEND_LOG.name: (event_chunks_of_appends, (*KEY, *COLUMNS_OF_APPENDS.values())),
}
"""For fetch_log and append_log: the function that groups their rows into chunks, and the columns that it needs."""


_ROWS = pa.schema([field.with_nullable(True) for field in arrow_schema(FETCH_SEGMENTS)])


class DataFile(NamedTuple):
    """A data file of fetches or appends: its table's store, its path in the table's folder, and its size in bytes."""

    store: Store
    path: str
    size: int


FilesOfTables = Mapping[str, list[DataFile] | None]


class Part(NamedTuple):
    """A share of a Parquet file: every ``parts``-th row group, starting with row group ``number``."""

    file: DataFile
    number: int
    parts: int


def pack_stale_days(lake: Lake) -> int:
    """Pack into ``fetch_segments`` the days whose fetches or appends have changed since they were last packed.

    Returns
    -------
    int
        Number of segments written.
    """
    lake.ensure(FETCH_SEGMENTS)
    found, packed = files_by_day(lake), made_from(lake, FETCH_SEGMENTS.name, "packed_from")
    stale = sorted(day for day in found.keys() | packed.keys() if found.get(day) != packed.get(day))
    if not stale:
        return 0
    where = days_as_sql(stale)
    bounds = str(stale[0]), str(stale[-1])
    conform = partial(_conformed_segments, found)
    with ArrowSql() as sql:
        small = SmallTables(lake, sql)
        to = small.takes(FETCH_SEGMENTS, bounds, where)
        files = {table.name: _files_to_pack(lake, table, stale) for table in (FETCH_LOG, APPEND_LOG)}
        few = _pieces_of_few(files) if to and lake.engine.wanted != "spark" else None
        if few is not None:
            _load_kernels()
            rows = pa.Table.from_batches(conform(pack_segments(iter(few))), _ROWS)
            return small.replace(FETCH_SEGMENTS, rows, where, bounds)
        with rows_at_a_time(lake.spark, PIECES_AT_A_TIME):
            pieces = _chunks_of_days(lake, FETCH_LOG, where, files).unionByName(
                _chunks_of_days(lake, APPEND_LOG, where, files)
            )
            if to is None:
                return lake.replace(FETCH_SEGMENTS, _packed_chunks(pieces, conform, _ROWS), where)
            reports = _packed_chunks(pieces, partial(_segments_written, conform, to.store, where), REPORTS).toArrow()
        return small.replace(FETCH_SEGMENTS, _ROWS.empty_table(), where, bounds, reported_files(reports))


@contextmanager
def damaged_segments_explained() -> Iterator[None]:
    """If the ``with`` block fails because of a damaged segment, raise a SchemaError that says what to do.

    Raises
    ------
    SchemaError
        If a segment is damaged; the message names it.
    """
    try:
        yield
    except (PythonException, DamagedSegmentError) as error:
        # Spark only passes on the text of an error in a worker, so the error is recognised by its text.
        _, name, damage = f"{type(error).__name__}: {error}".partition(f"{DamagedSegmentError.__name__}: ")
        if not name:
            raise
        raise SchemaError(
            f"{FETCH_SEGMENTS.name}: {damage.partition(chr(10))[0]}",
            "move that table away and repeat the command, which packs fetch_log and append_log again",
        ) from error


def _files_to_pack(lake: Lake, table: Table, days: Sequence[date]) -> list[DataFile] | None:
    """Return a table's data files of these days; None if only Spark can read them."""
    there = lake.direct(table.name)
    if there is None:
        return None
    files = (DataFile(there.store, file["path"], int(file["size_bytes"])) for file in there.data_files())
    return [file for file in files if day_of_file(f"/{file.path}") in days]


def _pieces_of_few(files: FilesOfTables) -> list[pa.RecordBatch] | None:
    """Read the rows of data files in the driver, group the rows into chunks, and return batches of sorted chunks.

    None if the files are too large (`sizes.PACKED_BYTES`), or if only Spark can read a table.
    """
    read = {name: of_table for name, of_table in files.items() if of_table is not None}
    if len(read) < len(files) or sum(file.size for of_table in read.values() for file in of_table) > sizes.PACKED_BYTES:
        return None
    return _chunks_in_order(
        batch
        for name, of_table in read.items()
        for make, columns in [_OF[name]]
        for batch in make(rows for file in of_table for rows in _rows_to_pack(Part(file, 0, 1), columns))
    )


def _chunks_in_order(made: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Sort the chunks by replica set and time, as `pack_segments` needs them. Return batches of `PIECES_HERE`."""
    order = [(name, "ascending") for name in (*SET_COLUMNS, "first_us")]
    pieces = pa.Table.from_batches(list(made), PIECES).sort_by(order).combine_chunks()
    return list(pieces.to_batches(max_chunksize=PIECES_HERE))


def _chunks_of_days(lake: Lake, table: Table, where: str, files: FilesOfTables) -> DataFrame:
    """Return a frame of a table's rows of some days, grouped into chunks (``event_chunks.PIECES``).

    ``where`` selects the days, for tables that only Spark can read; ``files`` are the files of these days for others.
    """
    make, columns = _OF[table.name]
    of_table = files[table.name]
    if of_table is None:
        rows = lake.read(table.name).where(where).select(*columns)
        return rows.mapInArrow(make, from_arrow_schema(PIECES))
    shares = _shares_of_packing(of_table)

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read a task's share of the files, whose number is in column ``id``, and group the rows into chunks."""
        mine = [part for batch in numbers for number in batch.column("id") for part in shares[number.as_py()]]
        return make(batch for part in mine for batch in _rows_to_pack(part, columns))

    return lake.spark.range(0, len(shares), 1, max(1, len(shares))).mapInArrow(read, from_arrow_schema(PIECES))


def _shares_of_packing(files: Sequence[DataFile]) -> list[list[Part]]:
    """Split files into shares of about `SHARE_BYTES`, one per task. A larger file is split into parts."""
    shares: list[list[Part]] = []
    room = 0
    for file in files:
        parts = -(-file.size // SHARE_BYTES)
        for number in range(parts):
            if room < file.size // parts:
                shares.append([])
                room = SHARE_BYTES
            shares[-1].append(Part(file, number, parts))
            room -= file.size // parts
    return shares


def _rows_to_pack(part: Part, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part of a file."""
    return rows_of_groups(part.file.store, part.file.path, columns, (part.number, part.parts), CHUNK_ROWS)


def _packed_chunks(pieces: DataFrame, work: OfBatches, schema: pa.Schema) -> DataFrame:
    """Pack the chunks into segments in each task of Spark, and return the rows that ``work`` makes of the segments."""

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _load_kernels()
        return work(pack_segments(batches))

    together = pieces.repartition(*SET_COLUMNS).sortWithinPartitions(*SET_COLUMNS, "first_us")
    return together.mapInArrow(packed, from_arrow_schema(schema))


def _conformed_segments(
    packed_from: Mapping[date, str], segments: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Convert segments to rows of ``fetch_segments``. ``packed_from`` maps each day to the hash of its files' names."""
    for batch in segments:
        days = batch.column("day").cast(pa.date32())
        columns = {name: batch.column(name) for name in batch.schema.names} | {
            "event_date": days,
            "first_time": batch.column("first_us").cast(pa.timestamp("us", "UTC")),
            "last_time": batch.column("last_us").cast(pa.timestamp("us", "UTC")),
            "packed_from": pa.array([packed_from.get(day) for day in days.to_pylist()], pa.string()),
        }
        yield pa.RecordBatch.from_arrays([columns[name] for name in _ROWS.names], schema=_ROWS)


def _segments_written(
    conform: OfBatches, store: Store, where: str, segments: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Write segments to files of the table ``fetch_segments``, in a worker, and yield reports of the files.

    ``conform`` converts segments to rows of the table, and ``where`` is the condition that these rows must meet.
    """
    return with_files_written(FETCH_SEGMENTS, store, where, ArrowSql, conform(segments))


def _load_kernels() -> None:
    """Let numba load the functions that pack segments. Loading is slow, so call this only if there are rows to pack."""
    from isr_batch.replay.kernel_cache import keep_packing_compiled

    keep_packing_compiled()
