"""``fetch_segments``: fetches and appends packed for the replay, kept in step with the tables that they are from.

Events are grouped by set here, once per day of logs, some hundred in a row (``udfs.batches.event_chunks``): rows are
expensive in an exchange. A replay moves packed rows only. Without deletion vectors or column mapping, workers read the
Parquet files with Arrow: Spark's row reader costs more than everything done with the rows.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from isr_batch.errors import SchemaError
from isr_batch.lake.engines import engine_for_a_partition
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, FETCH_SEGMENTS
from udfs.batches.event_chunks import (
    CHUNK_ROWS,
    COLUMNS_OF_APPENDS,
    COLUMNS_OF_FETCHES,
    KEY,
    PIECES,
    pieces_of_appends,
    pieces_of_fetches,
)
from udfs.batches.results import SET_COLUMNS
from udfs.batches.segments import SEGMENTS, DamagedSegmentError, pack

SEGMENTS_AT_A_TIME, PIECES_AT_A_TIME = 128, 1024
"""Rows that are read from a file at a time, and that go to a worker: a segment has some 300 kB, a piece 70 at most."""
_ROWS_AT_A_TIME = ("spark.sql.parquet.columnarReaderBatchSize", "spark.sql.execution.arrow.maxRecordsPerBatch")
SHARE_BYTES = 1 << 25
"""What a task reads of tables' files."""

_DAY = re.compile(r"/event_date=(\d{4}-\d\d-\d\d)/")
_OF = {
    FETCH_LOG.name: (pieces_of_fetches, (*KEY, *COLUMNS_OF_FETCHES.values(), "later_by")),
    APPEND_LOG.name: (pieces_of_appends, (*KEY, *COLUMNS_OF_APPENDS.values())),
}
"""How pieces are made of a table, and of which columns."""


class UnreadableFileError(Exception):
    """In a worker: a table's file is damaged, or gone. `isr_batch.errors` knows it by its name."""


class Part(NamedTuple):
    """Row groups of a file: every ``parts``-th from ``number`` on."""

    path: str
    number: int
    parts: int


@contextmanager
def rows_at_a_time(spark: SparkSession, rows: int) -> Iterator[None]:
    """While a plan whose rows are large is made and run: batches of few rows."""
    usual = {name: str(spark.conf.get(name)) for name in _ROWS_AT_A_TIME}
    for name in _ROWS_AT_A_TIME:
        spark.conf.set(name, str(rows))
    try:
        yield
    finally:
        for name, value in usual.items():
            spark.conf.set(name, value)


def pack_stale_days(lake: Lake) -> int:
    """Pack the days whose fetches or appends are not those that ``fetch_segments`` was made of.

    Returns
    -------
    int
        Segments written.
    """
    lake.ensure(FETCH_SEGMENTS)
    found = _files_by_day(lake)
    packed: dict[date, str] = {}
    if lake.files(FETCH_SEGMENTS.name):
        with engine_for_a_partition(lake) as engine:
            segments = engine.table(FETCH_SEGMENTS.name, ["event_date", "packed_from"])
            known = engine.listed(engine("SELECT DISTINCT event_date, packed_from FROM {segments}", segments=segments))
        packed = {row["event_date"]: row["packed_from"] for row in known}
    stale = sorted(day for day in found.keys() | packed.keys() if found.get(day) != packed.get(day))
    if not stale:
        return 0
    days = ", ".join(f"DATE'{day}'" for day in stale)
    where = f"event_date IN ({days})"
    told = F.create_map(*(F.lit(value) for day in stale for value in (day, found.get(day))))
    pieces = [_pieces(lake, table, where, stale) for table in (FETCH_LOG, APPEND_LOG)]
    with rows_at_a_time(lake.spark, PIECES_AT_A_TIME):
        rows = _packed(pieces[0].unionByName(pieces[1])).withColumn("packed_from", told[F.col("event_date")])
        return lake.replace(FETCH_SEGMENTS, rows, where)


@contextmanager
def damage_told() -> Iterator[None]:
    """Say of a damaged segment what to do about it.

    Raises
    ------
    SchemaError
        Naming the segment.
    """
    try:
        yield
    except PythonException as error:
        _, name, told = str(error).partition(f"{DamagedSegmentError.__name__}: ")
        if not name:
            raise
        raise SchemaError(
            f"{FETCH_SEGMENTS.name}: {told.partition(chr(10))[0]}",
            "move that table away and run the same command again, which packs fetch_log and append_log anew",
        ) from error


def _files_by_day(lake: Lake) -> dict[date, str]:
    """A hash of what each day's rows are in: data files never change under their name, but rows of them may go."""
    names = defaultdict(list)
    for table in (FETCH_LOG, APPEND_LOG):
        gone = "" if lake.is_plain(table.name) else f" in version {lake.version(table.name)}"
        for path in lake.files(table.name):
            if day := _day_of(path):
                names[day].append(path.rpartition("/")[2] + gone)
    return {day: hashlib.sha256("\n".join(sorted(of_day)).encode()).hexdigest() for day, of_day in names.items()}


def _day_of(path: str) -> date | None:
    match = _DAY.search(path)
    return date.fromisoformat(match[1]) if match else None


def _pieces(lake: Lake, table: Table, where: str, days: Sequence[date]) -> DataFrame:
    """Rows of ``udfs.batches.event_chunks.PIECES``, of some days of a table."""
    make, columns = _OF[table.name]
    if not (lake.folder(table.name) and lake.is_plain(table.name)):
        rows = lake.read(table.name).where(where).select(*columns)
        return rows.mapInArrow(make, from_arrow_schema(PIECES))
    shares = _shares([path for path in lake.files(table.name) if _day_of(path) in days])

    def read(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = [part for batch in numbers for number in batch.column("id") for part in shares[number.as_py()]]
        return make(batch for part in mine for batch in _rows_of(part, columns))

    return lake.spark.range(0, len(shares), 1, max(1, len(shares))).mapInArrow(read, from_arrow_schema(PIECES))


def _shares(paths: Sequence[str]) -> list[list[Part]]:
    """Parts of files, as many a task as have SHARE_BYTES; large files are several."""
    shares: list[list[Part]] = []
    room = 0
    for path in paths:
        # Of a file that is gone the worker tells, as of one that is damaged.
        size = Path(path).stat().st_size if Path(path).exists() else 1
        parts = -(-size // SHARE_BYTES)
        for number in range(parts):
            if room < size // parts:
                shares.append([])
                room = SHARE_BYTES
            shares[-1].append(Part(path, number, parts))
            room -= size // parts
    return shares


def _rows_of(part: Part, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Those of the file's row groups that are the part's."""
    try:
        with pq.ParquetFile(
            part.path, read_dictionary=["cluster_id", "topic"], coerce_int96_timestamp_unit="us"
        ) as file:
            groups = list(range(part.number, file.num_row_groups, part.parts))
            there = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(CHUNK_ROWS, groups, there, use_threads=False):
                # A column that the table got later is in no older file.
                missing = pa.nulls(batch.num_rows)
                yield pa.RecordBatch.from_arrays(
                    [batch.column(name) if name in there else missing for name in columns], list(columns)
                )
    except PermissionError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        message = f"{part.path}: {error}"
        raise UnreadableFileError(message) from error


def _packed(pieces: DataFrame) -> DataFrame:
    segments = (
        pieces.repartition(*SET_COLUMNS)
        .sortWithinPartitions(*SET_COLUMNS, "first_us")
        .mapInArrow(pack, from_arrow_schema(SEGMENTS))
    )
    return segments.withColumns(
        {
            "event_date": F.date_from_unix_date("day"),
            "first_time": F.timestamp_micros("first_us"),
            "last_time": F.timestamp_micros("last_us"),
        }
    )
