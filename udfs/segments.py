"""Packed segments: a stretch of one set's fetches and appends as one row, a column of numbers as one binary.

Rows are dear in Spark, bytes are cheap: 16,384 events cross it as one row of some 300 kB. Format 1: a binary holds
whole numbers, the first as 8 bytes, then a byte that says how wide the differences are (0, 1, 2, 4 or 8 bytes; 0: all
numbers are the same), then the difference of each number from the one before, all little-endian and signed. ``PACKED``
tells what the numbers are. ``checksum`` is the CRC-32 of the binaries one after the other.
"""

import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.fetch_runs import one_row_a_fetch
from udfs.ledger import DAY_US
from udfs.order import changes, in_order, set_of
from udfs.records import FETCH, UNKNOWN, Rows
from udfs.results import SET_COLUMNS

FORMAT = 1
SEGMENT_ROWS = 1 << 14
PACKED = {
    "time_us": "arrival of a fetch, or instant of an append: microseconds since the epoch",
    "kind": "5 a fetch, 4 an append",
    "offset": "the follower's fetch offset, or the leader's log end offset after the append",
    "code": "Kafka error code of the fetch, or acks of the append (-2: nobody waits)",
    "replica_id": "of each fetch: the follower",
    "leader_log_end_offset": "of each fetch: the leader's log end offset when it was handled, -1 where unknown",
    "handled_us": "of each fetch: from its arrival until an io thread took it",
    "processed_us": "of each fetch: from then until its local work was done",
    "released_us": "of each fetch: from then until the wait for data ended that it asked for",
    "until_us": "of each fetch: from then until its response was sent",
}
"""Columns of ``udfs.records.Rows`` as they are packed; what is said of fetches is left out for appends."""
OF_FETCHES = tuple(PACKED)[4:]
_INSTANTS = ("time_us", *tuple(PACKED)[6:])
"""Each is told as the distance from the one before it."""
SEGMENT = pa.struct(
    [
        ("format_version", pa.int32()),
        ("events", pa.int64()),
        ("fetches", pa.int64()),
        ("checksum", pa.int64()),
        *((name, pa.binary()) for name in PACKED),
    ]
)
SEGMENTS = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("topic", pa.string()),
        ("partition_id", pa.int32()),
        ("leader_id", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("day", pa.int32()),  # since 1970-01-01: of an append, or of the instant when a fetch was handled
        ("segment_number", pa.int32()),
        ("first_us", pa.int64()),
        ("last_us", pa.int64()),
        *SEGMENT,
    ]
)
Ints = npt.NDArray[np.int64]


class DamagedSegmentError(ValueError):
    """A segment is not what was packed."""


class _Widths(NamedTuple):
    """Least and largest difference that fit."""

    width: int
    least: int
    most: int


_WIDTHS = (_Widths(0, 0, 0), *(_Widths(w, -(1 << 8 * w - 1), (1 << 8 * w - 1) - 1) for w in (1, 2, 4, 8)))


def packed(values: Ints) -> bytes:
    """Whole numbers as a binary; none as nothing."""
    if not len(values):
        return b""
    steps = np.diff(values)  # may wrap around, and so do their sums
    least, most = (int(steps.min()), int(steps.max())) if len(steps) else (0, 0)
    width = next(w.width for w in _WIDTHS if w.least <= least and most <= w.most)
    head = values[:1].astype("<i8").tobytes() + bytes([width])
    return head + (steps.astype(f"<i{width}").tobytes() if width else b"")


def unpacked(binary: bytes, count: int) -> Ints:
    """So many numbers of a binary.

    Raises
    ------
    DamagedSegmentError
        When they are not there.
    """
    if not count and not binary:
        return np.empty(0, np.int64)
    width = binary[8] if len(binary) > 8 else -1
    if width not in (0, 1, 2, 4, 8) or len(binary) != 9 + width * (count - 1):
        message = f"{count} numbers are not in {len(binary)} bytes of width {width}"
        raise DamagedSegmentError(message)
    first = np.frombuffer(binary, "<i8", 1)[0]
    if not width:
        return np.full(count, first, np.int64)
    values = np.empty(count, np.int64)
    values[0] = first
    values[1:] = np.frombuffer(binary, f"<i{width}", offset=9)
    return np.cumsum(values, out=values)


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack fetches and appends; memory is bounded by a segment and a batch.

    Parameters
    ----------
    batches : iterator of RecordBatch
        SET_COLUMNS, ``leader_epoch`` (int32), the columns of ``Rows`` (int64), ``later_by`` (list of int32); sorted by
        set, then ROW_ORDER.

    Yields
    ------
    RecordBatch
        Of SEGMENTS. A segment has SEGMENT_ROWS events at most, of one leader epoch, and one day of both ``day`` and
        time.
    """
    key, number = None, 0
    for piece in _stretches(one_row_a_fetch(batches)):
        key, number = (key, number + 1) if set_of(piece, 0) == key else (set_of(piece, 0), 0)
        yield _segment(piece, number)


def _stretches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of a segment each."""
    rest: pa.RecordBatch | None = None
    for batch in batches:
        whole = pa.concat_batches([rest, batch]) if rest else batch
        starts = _starts(whole)
        for first, end in pairwise(starts):
            yield whole.slice(first, end - first)
        # What begins last may go on.
        rest = whole.slice(starts[-1]) if starts else None
    if rest:
        yield rest


def _starts(batch: pa.RecordBatch) -> list[int]:
    """Where segments begin."""
    if not batch.num_rows:
        return []
    new = changes(batch, (*SET_COLUMNS, "leader_epoch"))
    new[1:] |= np.diff(_days(batch)) != 0
    # A day ends with what arrived on it, though it was handled on the next.
    new[1:] |= np.diff(np.asarray(batch.column("time_us")) // DAY_US) != 0
    new[0] = True
    starts = np.flatnonzero(new)
    sizes = np.diff(starts, append=batch.num_rows)
    return [
        int(first + part) for first, size in zip(starts, sizes, strict=True) for part in range(0, size, SEGMENT_ROWS)
    ]


def _days(batch: pa.RecordBatch) -> Ints:
    fetches = np.asarray(batch.column("kind")) == FETCH
    return np.where(fetches, np.asarray(batch.column("handled_us")), np.asarray(batch.column("time_us"))) // DAY_US


def _segment(piece: pa.RecordBatch, number: int) -> pa.RecordBatch:
    columns = {name: np.asarray(piece.column(name)) for name in PACKED}
    fetches = columns["kind"] == FETCH
    row = {
        **dict(zip(SET_COLUMNS, set_of(piece, 0), strict=True)),
        "leader_epoch": piece.column("leader_epoch")[0].as_py(),
        "day": int(_days(piece.slice(0, 1))[0]),
        "segment_number": number,
        "first_us": int(columns["time_us"][0]),
        "last_us": int(columns["time_us"][-1]),
        "format_version": FORMAT,
        "events": piece.num_rows,
        "fetches": int(fetches.sum()),
        **_binaries(columns, fetches),
    }
    return pa.RecordBatch.from_pylist([row], schema=SEGMENTS)


def _binaries(columns: dict[str, Ints], fetches: npt.NDArray[np.bool_]) -> dict[str, Any]:
    instants = np.stack([columns[name][fetches] for name in _INSTANTS])
    distances = dict(zip(_INSTANTS[1:], np.diff(instants, axis=0), strict=True))
    binaries = {}
    for name, values in columns.items():
        of_row = values if name not in OF_FETCHES else distances[name] if name in distances else values[fetches]
        binaries[name] = packed(of_row)
    return {"checksum": zlib.crc32(b"".join(binaries.values())), **binaries}


def unpack(segment: dict[str, Any]) -> dict[str, Ints]:
    """Columns of ``Rows`` (int64) of a segment, a struct of SEGMENT.

    Raises
    ------
    DamagedSegmentError
        When it is of a format that is not known, or is not what was packed.
    """
    if segment["format_version"] != FORMAT:
        message = f"format {segment['format_version']}, and {FORMAT} is known"
        raise DamagedSegmentError(message)
    if zlib.crc32(b"".join(segment[name] for name in PACKED)) != segment["checksum"]:
        message = "the checksum differs"
        raise DamagedSegmentError(message)
    events, fetches = segment["events"], segment["fetches"]
    columns = {name: unpacked(segment[name], fetches if name in OF_FETCHES else events) for name in PACKED}
    of_fetch = columns["kind"] == FETCH
    told = np.cumsum([columns["time_us"][of_fetch], *(columns[name] for name in _INSTANTS[1:])], axis=0)
    columns |= dict(zip(_INSTANTS[1:], told[1:], strict=True))
    for name in OF_FETCHES:
        of_row = np.full(events, UNKNOWN)
        of_row[of_fetch] = columns[name]
        columns[name] = of_row
    return columns


def one_row_an_event(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Unpack the segments in the stream of the replay; memory is bounded by those that overlap, and a batch.

    Parameters
    ----------
    batches : iterator of RecordBatch
        SET_COLUMNS, the columns of ``Rows`` (int64), more of any kind, and ``segment`` (SEGMENT, null in rows of
        one event), with the time of its first event; sorted by set, then ROW_ORDER.

    Yields
    ------
    RecordBatch
        The same without ``segment``, an event a row, in order.

    Raises
    ------
    DamagedSegmentError
        Naming the segment.
    ValueError
        When rows are not in order.
    """
    return in_order(_pieces(batches))


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        segments = batch.column("segment")
        rows = batch.drop_columns(["segment"])
        is_segment = np.asarray(segments.is_valid())
        edges = np.flatnonzero(is_segment[1:] | is_segment[:-1]) + 1
        for first, end in pairwise([0, *edges.tolist(), rows.num_rows]):
            if first < end and is_segment[first]:
                yield _unpacked_rows(rows, first, segments[first].as_py())
            else:
                yield rows.slice(first, end - first)


def _unpacked_rows(rows: pa.RecordBatch, place: int, segment: dict[str, Any]) -> pa.RecordBatch:
    try:
        columns = unpack(segment)
    except DamagedSegmentError as error:
        at_us = rows.column("time_us")[place].as_py()
        message = f"the segment of {set_of(rows, place)} that begins at {at_us} us is damaged: {error}"
        raise DamagedSegmentError(message) from error
    events = segment["events"]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(columns[field.name])
            if field.name in Rows._fields
            else pa.repeat(rows.column(field.name)[place], events)
            if field.name in SET_COLUMNS
            else pa.nulls(events, field.type)
            for field in rows.schema
        ],
        schema=rows.schema,
    )
