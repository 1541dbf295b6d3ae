"""Pack consecutive fetches and appends of one replica set into segments: one row, with each column as one binary.

A replica set is a partition on one leader. Spark is slow per row and fast per byte: 16,384 events pass through it as
one row of about 300 kB. In format 1, a binary contains little-endian signed integers. The first value takes 8 bytes.
The next byte is the width of the differences in bytes (0, 1, 2, 4 or 8; 0 if all values are equal). Then follows the
difference of each value from the one before. ``PACKED`` lists the columns. ``checksum`` is the CRC-32 of the
concatenated binaries.
"""

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.batches.event_chunks import Events, events_of, joined_events, sorted_events
from udfs.batches.quiet_rows import packed_quiet
from udfs.batches.results import SET_COLUMNS
from udfs.batches.set_order import set_of
from udfs.jit import entry
from udfs.kernel.ledger import DAY_US
from udfs.records import FETCH, UNKNOWN, Rows

FORMAT = 1
SEGMENT_ROWS = 1 << 14
PACKED = {
    "time_us": "arrival of a fetch, or instant of an append: microseconds since the epoch",
    "kind": "5: fetch, 4: append",
    "offset": "the follower's fetch offset, or the leader's log end offset after the append",
    "code": "Kafka error code of the fetch, or acks of the append (-2 if no producer waits)",
    "replica_id": "follower that made the fetch; for fetches only, like all columns below",
    "leader_log_end_offset": "the leader's log end offset when the fetch was handled; -1 if unknown",
    "handled_us": "time from the arrival of the fetch until an I/O thread took it",
    "processed_us": "time from handled_us until the local work was done",
    "released_us": "time from processed_us until the requested wait for data ended",
    "until_us": "time from released_us until the response was sent",
}
"""Columns of ``udfs.records.Rows`` that a segment stores, with their meaning. The last six are stored for fetches only.
"""
OF_FETCHES = tuple(PACKED)[4:]
_INSTANTS = ("time_us", *tuple(PACKED)[6:])
"""Columns with the times of a fetch's steps, in chronological order. The first is stored as a time, and each later one
as the difference from the one before it."""
SEGMENT = pa.struct(
    [
        ("format_version", pa.int32()),
        ("events", pa.int64()),
        ("fetches", pa.int64()),
        ("checksum", pa.int64()),
        *((name, pa.binary()) for name in PACKED),
        ("quiet", pa.binary()),
    ]
)
SEGMENTS = pa.schema(
    [
        ("cluster_id", pa.string()),
        ("topic", pa.string()),
        ("partition_id", pa.int32()),
        ("leader_id", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("day", pa.int32()),  # days since 1970: day of an append, or of the instant at which a fetch was handled
        ("segment_number", pa.int32()),
        ("first_us", pa.int64()),
        ("last_us", pa.int64()),
        *SEGMENT,
    ]
)
Ints = npt.NDArray[np.int64]


class DamagedSegmentError(ValueError):
    """Raised if a segment's binaries contradict each other or their checksum, or have an unknown format."""


class _Widths(NamedTuple):
    """A width in bytes, and the smallest and the largest signed integer that fit in it."""

    width: int
    least: int
    most: int


_WIDTHS = (_Widths(0, 0, 0), *(_Widths(w, -(1 << 8 * w - 1), (1 << 8 * w - 1) - 1) for w in (1, 2, 4, 8)))


def packed_for_segment(values: Ints) -> bytes:
    """Pack a column of integers into a binary of format 1 (see the module). An empty column becomes an empty binary."""
    if not len(values):
        return b""
    steps = np.diff(values)  # an overflow is undone when the sums overflow as well
    least, most = (int(steps.min()), int(steps.max())) if len(steps) else (0, 0)
    width = next(w.width for w in _WIDTHS if w.least <= least and most <= w.most)
    head = values[:1].astype("<i8").tobytes() + bytes([width])
    return head + (steps.astype(f"<i{width}").tobytes() if width else b"")


def unpack_steps(binary: bytes, steps: Ints) -> None:
    """Unpack into ``steps`` a column that `packed_for_segment` packed.

    ``steps[0]`` receives the first value, each later element the difference from the value before.

    Raises
    ------
    DamagedSegmentError
        If the number of values differs from the length of ``steps``.
    """
    width = _width_of_steps(binary, len(steps))
    if len(steps):
        steps[0] = np.frombuffer(binary, "<i8", 1)[0]
        steps[1:] = np.frombuffer(binary, f"<i{width}", offset=9) if width else 0


def _width_of_steps(binary: bytes, count: int) -> int:
    """Return the width in bytes of a packed column's differences. Raise if the column's length is not ``count``."""
    if not count and not binary:
        return 0
    width = binary[8] if len(binary) > 8 else -1
    if width not in (0, 1, 2, 4, 8) or len(binary) != 9 + width * (count - 1):
        message = f"{count} numbers are not in {len(binary)} bytes of width {width}"
        raise DamagedSegmentError(message)
    return width


def pack_segments(pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack chunks of fetches and appends into segments.

    Memory is bounded by one segment, one batch and overlapping chunks.

    Parameters
    ----------
    pieces : iterator of RecordBatch
        Chunks with the schema ``udfs.batches.event_chunks.PIECES``, sorted by replica set, then ``first_us``.

    Yields
    ------
    RecordBatch
        Rows with the schema SEGMENTS. A segment contains at most SEGMENT_ROWS events. They have the same leader epoch
        and the same ``day``, and their times ``time_us`` are on one UTC day. For a fetch, ``time_us`` is when it
        arrived, and ``day`` the day on which it was handled, which may be the next day.
    """
    number = _SegmentNumber()
    rest: Events | None = None
    for batch in pieces:
        if not batch.num_rows:
            continue
        events = events_of(batch)
        if rest and set_of(rest.sets, -1) == set_of(events.sets, 0):
            events = joined_events(rest, events)
        elif rest:
            yield _segments_of_events(rest, [*_segment_starts(rest), len(rest)], number)
        events = sorted_events(events)
        starts = _segment_starts(events)
        # Later chunks begin no earlier than the last chunk of this batch. So of the segments that begin before this
        # chunk, only the last may get further events.
        begins = int(np.searchsorted(events.columns["set"], events.columns["set"][-1]))
        last_us = batch.column("first_us")[-1].as_py()
        known = begins + int(np.searchsorted(events.columns["time_us"][begins:], last_us))
        whole = bisect_left(starts, max(known, begins + 1))
        yield _segments_of_events(events, starts[:whole], number)
        rest = events.part(starts[whole - 1], len(events))
    if rest:
        yield _segments_of_events(rest, [*_segment_starts(rest), len(rest)], number)


def segments_of_events(events: Events) -> pa.RecordBatch:
    """Pack all events of one replica set, as sorted by `sorted_events`, into rows of SEGMENTS."""
    return _segments_of_events(events, [*_segment_starts(events), len(events)], _SegmentNumber())


class _SegmentNumber:
    """Numbers the segments of each replica set from 0. The caller asks for all numbers of a set one after the other."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._next = 0

    def next_of(self, key: tuple[object, ...]) -> int:
        """Return the number for the next segment of the replica set ``key`` (values of SET_COLUMNS)."""
        self._next = self._next + 1 if key == self._of else 0
        self._of = key
        return self._next


def _segment_starts(events: Events) -> list[int]:
    """Return the indices at which segments begin, given sorted events.

    Segments begin where the replica set, the leader epoch or the day changes, and after SEGMENT_ROWS events.
    """
    columns = events.columns
    new = np.ones(len(events), np.bool_)
    new[1:] = False
    # A fetch that arrived on one day and was handled on the next only shares a segment with others of this kind:
    # earlier arrivals have another `day`, and later arrivals are on another day.
    for values in (columns["set"], columns["leader_epoch"], _days_of_events(columns), columns["time_us"] // DAY_US):
        new[1:] |= np.diff(values) != 0
    edges = [*np.flatnonzero(new).tolist(), len(events)]
    return [start for first, end in pairwise(edges) for start in range(first, end, SEGMENT_ROWS)]


def _days_of_events(columns: dict[str, Ints]) -> Ints:
    """Return the UTC day under which each event is stored, as days since 1970.

    For a fetch, it is the day on which the fetch was handled.
    """
    return np.where(columns["kind"] == FETCH, columns["handled_us"], columns["time_us"]) // DAY_US


def _segments_of_events(events: Events, edges: Sequence[int], number: _SegmentNumber) -> pa.RecordBatch:
    """Pack the events between each two successive edges into one row of SEGMENTS."""
    rows = [_segment_row(events.part(first, end), number) for first, end in pairwise(edges)]
    return pa.RecordBatch.from_pylist(rows, schema=SEGMENTS)


def _segment_row(events: Events, number: _SegmentNumber) -> dict[str, Any]:
    """Pack the events of one segment into a row."""
    columns = events.columns
    fetches = columns["kind"] == FETCH
    key = set_of(events.sets, int(columns["set"][0]))
    return {
        **dict(zip(SET_COLUMNS, key, strict=True)),
        "leader_epoch": int(columns["leader_epoch"][0]),
        "day": int(_days_of_events({name: column[:1] for name, column in columns.items()})[0]),
        "segment_number": number.next_of(key),
        "first_us": int(columns["time_us"][0]),
        "last_us": int(columns["time_us"][-1]),
        "format_version": FORMAT,
        "events": len(events),
        "fetches": int(fetches.sum()),
        **_segment_binaries({name: columns[name] for name in PACKED}, fetches),
        "quiet": packed_quiet(Rows(*(columns[name] for name in Rows._fields))),
    }


def _segment_binaries(columns: dict[str, Ints], fetches: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Pack the columns of a segment into binaries, with their checksum."""
    instants = np.stack([columns[name][fetches] for name in _INSTANTS])
    distances = dict(zip(_INSTANTS[1:], np.diff(instants, axis=0), strict=True))
    binaries = {}
    for name, values in columns.items():
        of_row = values if name not in OF_FETCHES else distances[name] if name in distances else values[fetches]
        binaries[name] = packed_for_segment(of_row)
    return {"checksum": zlib.crc32(b"".join(binaries.values())), **binaries}


def unpack_segment(segment: dict[str, Any]) -> dict[str, Ints]:
    """Unpack a segment, a struct of SEGMENT, into the columns of ``Rows`` (int64).

    Raises
    ------
    DamagedSegmentError
        If the segment is damaged or has an unknown format.
    """
    if segment["format_version"] != FORMAT:
        message = f"format {segment['format_version']}, and {FORMAT} is known"
        raise DamagedSegmentError(message)
    if zlib.crc32(b"".join(segment[name] for name in PACKED)) != segment["checksum"]:
        message = "the checksum differs"
        raise DamagedSegmentError(message)
    events, fetches = segment["events"], segment["fetches"]
    for name in PACKED:  # checked before memory is allocated, because the number of events may be damaged
        _width_of_steps(segment[name], fetches if name in OF_FETCHES else events)
    of_events = np.empty((len(PACKED) - len(OF_FETCHES), events), np.int64)
    of_fetches = np.empty((len(OF_FETCHES), fetches), np.int64)
    for steps, name in zip((*of_events, *of_fetches), PACKED, strict=True):
        unpack_steps(segment[name], steps)
    columns = np.empty((len(PACKED), events), np.int64)
    if spread_steps(of_events, of_fetches, columns) != fetches:
        message = f"it should have {fetches} fetches"
        raise DamagedSegmentError(message)
    return dict(zip(PACKED, columns, strict=True))


@entry
def spread_steps(of_events: Ints, of_fetches: Ints, columns: Ints) -> int:
    """Compute the values of a segment's columns from the stored differences, and write them into ``columns``.

    The rows of ``columns`` are the columns of ``Rows`` in the order of ``PACKED``.

    Parameters
    ----------
    of_events, of_fetches : int64 of shapes (4, events) and (6, fetches)
        Differences, as `unpack_steps` unpacks them, of the columns in PACKED.
    columns : int64 of shape (10, events)
        The result is written here. For events that are not fetches, the last six columns are UNKNOWN.

    Returns
    -------
    int
        Number of events that are fetches.
    """
    time_us = kind = offset = code = np.int64(0)
    replica_id = log_end_offset = handled_us = processed_us = released_us = until_us = np.int64(0)
    fetches = 0
    for i in range(of_events.shape[1]):
        time_us += of_events[0, i]
        kind += of_events[1, i]
        offset += of_events[2, i]
        code += of_events[3, i]
        columns[0, i], columns[1, i], columns[2, i], columns[3, i] = time_us, kind, offset, code
        if kind != FETCH:
            for column in range(4, 10):
                columns[column, i] = UNKNOWN
            continue
        if fetches < of_fetches.shape[1]:
            replica_id += of_fetches[0, fetches]
            log_end_offset += of_fetches[1, fetches]
            handled_us += of_fetches[2, fetches]
            processed_us += of_fetches[3, fetches]
            released_us += of_fetches[4, fetches]
            until_us += of_fetches[5, fetches]
            columns[4, i], columns[5, i] = replica_id, log_end_offset
            columns[6, i] = time_us + handled_us
            columns[7, i] = columns[6, i] + processed_us
            columns[8, i] = columns[7, i] + released_us
            columns[9, i] = columns[8, i] + until_us
        fetches += 1
    return fetches
