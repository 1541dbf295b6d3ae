"""Merge pieces of the replay's input that overlap in time, so that each replica set's rows are in order of time.

A replica set is a partition on one leader.
"""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from udfs.batches.quiet_rows import QuietRows
from udfs.batches.results import SET_COLUMNS
from udfs.records import ROW_ORDER

Key = tuple[object, ...]
Piece: TypeAlias = "pa.RecordBatch | QuietRows"


def in_set_order(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Merge pieces of the input that overlap in time, so that each replica set's rows are in the order ROW_ORDER.

    Memory is bounded by overlapping pieces.

    Parameters
    ----------
    pieces : iterator of RecordBatch or QuietRows
        Pieces with the columns SET_COLUMNS and ROW_ORDER (int64), and any others. The rows of each piece are in order,
        with the rows of a replica set adjacent. Within a set, no piece begins earlier than the previous piece.

    Yields
    ------
    RecordBatch or QuietRows
        The same rows in order. A piece without overlap is yielded unchanged.

    Raises
    ------
    ValueError
        If a piece begins earlier than the previous piece of its set.
    """
    waiting: Piece | None = None
    begun: tuple[Key, int] | None = None
    for piece in pieces:
        if isinstance(piece, pa.RecordBatch) and not piece.num_rows:
            continue
        of_set, last_set, begin_us = _begin_of(piece)
        if begun and begun[0] == of_set and begin_us < begun[1]:
            message = f"rows of {of_set} are not in order of time at {begin_us} us"
            raise ValueError(message)
        if isinstance(waiting, QuietRows) and waiting.of_set == of_set and begin_us < waiting.until_us:
            waiting = waiting.rows()
        if isinstance(waiting, pa.RecordBatch) and set_of(waiting, waiting.num_rows - 1) == of_set:
            # Rows before the beginning of this piece are final, because later pieces begin no earlier.
            early = np.flatnonzero(np.asarray(waiting.column("time_us")) < begin_us)
            done = int(early[-1]) + 1 if len(early) else 0
            yield waiting.slice(0, done)
            if done < waiting.num_rows:
                whole = pa.concat_batches([waiting.slice(done), rows_of_piece(piece)])
                piece = whole.take(pa.array(set_order(whole)))
        elif waiting is not None:
            yield waiting
        waiting = piece
        begun = (last_set, begin_us if last_set == of_set else 0)
    if waiting is not None:
        yield waiting


def _begin_of(piece: Piece) -> tuple[Key, Key, int]:
    """Return the replica set of a piece's first row, that of its last row, and the time of its first row."""
    if isinstance(piece, QuietRows):
        return piece.of_set, piece.of_set, piece.first_us
    return set_of(piece, 0), set_of(piece, piece.num_rows - 1), piece.column("time_us")[0].as_py()


def rows_of_piece(piece: Piece) -> pa.RecordBatch:
    """Return a piece of the replay's input as rows. If it is a packed quiet stretch, its segment is unpacked."""
    return piece.rows() if isinstance(piece, QuietRows) else piece


def set_changes(batch: pa.RecordBatch, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Return for each row whether it differs from the previous row in any of these columns; False for the first row."""
    found = np.zeros(batch.num_rows, np.bool_)
    for name in names:
        column = batch.column(name)
        found[1:] |= np.asarray(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).fill_null(True))
    return found


def set_order(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the indices that sort the rows of each replica set by ROW_ORDER, and keep the sets in their order."""
    keys = [np.cumsum(set_changes(batch, SET_COLUMNS)), *(np.asarray(batch.column(name)) for name in ROW_ORDER)]
    return np.lexsort(keys[::-1])


def set_of(batch: pa.RecordBatch, row: int) -> Key:
    """Return the replica set of a row: its values of SET_COLUMNS."""
    return tuple(batch.column(name)[row].as_py() for name in SET_COLUMNS)
