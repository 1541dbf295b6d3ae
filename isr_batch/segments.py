"""``fetch_segments``: fetches and appends packed for the replay, kept in step with the tables that they are from.

The one shuffle and sort of rows is here, once a day of logs. A replay moves packed rows only.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date

import pyarrow as pa
from pyspark.errors import PythonException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from isr_batch.errors import SchemaError
from isr_batch.store import Lake
from isr_batch.stream import appends_of, fetches_of
from isr_batch.tables import APPEND_LOG, FETCH_LOG, FETCH_SEGMENTS
from udfs.records import ROW_ORDER
from udfs.results import SET_COLUMNS
from udfs.segments import SEGMENTS, DamagedSegmentError, pack

_DAY = re.compile(r"/event_date=(\d{4}-\d\d-\d\d)/")


def pack_stale_days(lake: Lake) -> int:
    """Pack the days whose fetches or appends are not those that ``fetch_segments`` was made of.

    Returns
    -------
    int
        Segments written.
    """
    lake.ensure(FETCH_SEGMENTS)
    found = _files_by_day(lake)
    packed: dict[date, str] = dict(
        lake.read(FETCH_SEGMENTS.name).select("event_date", "packed_from").distinct().collect()
    )
    stale = sorted(day for day in found.keys() | packed.keys() if found.get(day) != packed.get(day))
    if not stale:
        return 0
    days = ", ".join(f"DATE'{day}'" for day in stale)
    where = f"event_date IN ({days})"
    told = F.create_map(*(F.lit(value) for day in stale for value in (day, found.get(day))))
    rows = _packed(lake, where).withColumn("packed_from", told[F.col("event_date")])
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
    """A hash of the names of each day's data files, which never change under their name."""
    names = defaultdict(list)
    for table in (FETCH_LOG, APPEND_LOG):
        for path in lake.files(table.name):
            if match := _DAY.search(path):
                names[date.fromisoformat(match[1])].append(path.rpartition("/")[2])
    return {day: hashlib.sha256("\n".join(sorted(of_day)).encode()).hexdigest() for day, of_day in names.items()}


def _packed(lake: Lake, where: str) -> DataFrame:
    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack(batches)

    fetches = fetches_of(lake.read(FETCH_LOG.name).where(where), "leader_epoch")
    appends = appends_of(lake.read(APPEND_LOG.name).where(where), "leader_epoch")
    segments = (
        fetches.unionByName(appends, allowMissingColumns=True)
        .repartition(*SET_COLUMNS)
        .sortWithinPartitions(*SET_COLUMNS, *ROW_ORDER)
        .mapInArrow(make, from_arrow_schema(SEGMENTS))
    )
    return segments.withColumns(
        {
            "event_date": F.date_from_unix_date("day"),
            "first_time": F.timestamp_micros("first_us"),
            "last_time": F.timestamp_micros("last_us"),
        }
    )
