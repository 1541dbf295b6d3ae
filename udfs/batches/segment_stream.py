"""Unpack the segments (many events in one row) in the replay's input. Quiet stretches of segments can stay packed."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.batches.quiet_rows import QuietRows, unpacked_quiet
from udfs.batches.results import SET_COLUMNS
from udfs.batches.segments import DamagedSegmentError, unpack_segment
from udfs.batches.set_order import Piece, in_set_order, set_of
from udfs.records import Rows

Ints = npt.NDArray[np.int64]


def one_row_an_event(batches: Iterator[pa.RecordBatch], *, quiet: bool = False) -> Iterator[Piece]:
    """Unpack the segments in the replay's input, and yield its events in order, with one row per event.

    Memory is bounded by overlapping segments and one batch.

    Parameters
    ----------
    batches : iterator of RecordBatch
        Rows with SET_COLUMNS, the columns of ``Rows`` (int64), any other columns, and ``segment``, sorted by replica
        set, then ROW_ORDER. In the row of a segment, ``segment`` is a SEGMENT and ``time_us`` the time of its first
        event. In the row of a single event, ``segment`` is null.
    quiet : bool
        Whether quiet stretches stay packed. A stretch is still unpacked if another row of the replica set falls into
        it.

    Yields
    ------
    RecordBatch or QuietRows
        RecordBatches without the column ``segment``. A quiet stretch that stays packed is a separate item.

    Raises
    ------
    DamagedSegmentError
        If a segment is damaged. The message names its replica set and time.
    ValueError
        If rows are not in order.
    """
    return in_set_order(_pieces_of_stream(batches, quiet=quiet))


class _Segment(NamedTuple):
    """A packed segment: the batch of the stream that contains its row, the row's index, and the segment's binaries."""

    rows: pa.RecordBatch
    place: int
    packed: pa.StructScalar

    def pieces(self, following: tuple[pa.RecordBatch, int] | None) -> Iterator[Piece]:
        """Yield the segment's events. Its quiet stretch stays packed, unless the next row, ``following``, is in it."""
        of_set = set_of(self.rows, self.place)
        try:
            around = unpacked_quiet(self.packed["quiet"].as_py() or b"")
        except ValueError as error:
            raise self.damaged(error) from error
        if around is None:
            yield self.unpacked()
            return
        piece = QuietRows(of_set, around, self.unpacked)
        if following and set_of(*following) == of_set:
            rows, place = following
            if rows.column("time_us")[place].as_py() <= piece.until_us:
                yield self.unpacked()
                return
        yield self._rows_of(around.before._asdict(), len(around.before.time_us))
        yield piece
        yield self._rows_of(around.after._asdict(), len(around.after.time_us))

    def unpacked(self) -> pa.RecordBatch:
        """Return all events of the segment, one per row."""
        segment = self.packed.as_py()
        try:
            return self._rows_of(unpack_segment(segment), segment["events"])
        except DamagedSegmentError as error:
            raise self.damaged(error) from error

    def damaged(self, error: Exception) -> DamagedSegmentError:
        """Return an error whose message names the segment's replica set and the time of its first event."""
        at_us = self.rows.column("time_us")[self.place].as_py()
        return DamagedSegmentError(
            f"the segment of {set_of(self.rows, self.place)} that begins at {at_us} us is damaged: {error}"
        )

    def _rows_of(self, columns: Mapping[str, Ints], events: int) -> pa.RecordBatch:
        """Return unpacked events as rows of the stream, with the segment's replica set. All other columns are null."""
        return pa.RecordBatch.from_arrays(
            [
                pa.array(columns[field.name])
                if field.name in Rows._fields
                else pa.repeat(self.rows.column(field.name)[self.place], events)
                if field.name in SET_COLUMNS
                else _null_columns(field.type, 1 << events.bit_length()).slice(0, events)
                for field in self.rows.schema
            ],
            schema=self.rows.schema,
        )


def _pieces_of_stream(batches: Iterator[pa.RecordBatch], *, quiet: bool) -> Iterator[Piece]:
    """Yield the input's rows in order: slices of the rows of single events, and the unpacked events of segments."""
    waiting: _Segment | None = None  # whether it is unpacked depends on the next row
    for batch in batches:
        segments = batch.column("segment")
        rows = batch.drop_columns(["segment"])
        is_segment = np.asarray(segments.is_valid())
        edges = np.flatnonzero(is_segment[1:] | is_segment[:-1]) + 1
        for first, end in pairwise([0, *edges.tolist(), rows.num_rows]):
            if first == end:
                continue
            if waiting:
                yield from waiting.pieces((rows, first))
                waiting = None
            if not is_segment[first]:
                yield rows.slice(first, end - first)
            elif quiet:
                waiting = _Segment(rows, first, segments[first])
            else:
                yield _Segment(rows, first, segments[first]).unpacked()
    if waiting:
        yield from waiting.pieces(None)


@lru_cache
def _null_columns(type_: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, type_)
