"""Pieces of the replay's stream that may overlap, as one stream in order: of each set, rows by ROW_ORDER."""

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
    """Merge pieces; memory is bounded by those that overlap at a time.

    Parameters
    ----------
    pieces : iterator of RecordBatch or QuietRows
        SET_COLUMNS and ROW_ORDER (int64) among their columns, the rows of a set together. Each in order, and none
        begins at an earlier time than one that came before it.

    Yields
    ------
    RecordBatch or QuietRows
        The same rows in order. Pieces that overlap with no other are passed on as they are.

    Raises
    ------
    ValueError
        When a piece begins earlier than the one before it.
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
            # Nothing to come is earlier than this piece begins.
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
    """The set of its first and of its last row, and the time of the first."""
    if isinstance(piece, QuietRows):
        return piece.of_set, piece.of_set, piece.first_us
    return set_of(piece, 0), set_of(piece, piece.num_rows - 1), piece.column("time_us")[0].as_py()


def rows_of_piece(piece: Piece) -> pa.RecordBatch:
    """Its rows, read if it is a quiet stretch."""
    return piece.rows() if isinstance(piece, QuietRows) else piece


def set_changes(batch: pa.RecordBatch, names: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """Whether a row differs from the one before it in any of these columns; the first row does not."""
    found = np.zeros(batch.num_rows, np.bool_)
    for name in names:
        column = batch.column(name)
        found[1:] |= np.asarray(pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).fill_null(True))
    return found


def set_order(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Positions of the rows in order; sets stay where they are."""
    keys = [np.cumsum(set_changes(batch, SET_COLUMNS)), *(np.asarray(batch.column(name)) for name in ROW_ORDER)]
    return np.lexsort(keys[::-1])


def set_of(batch: pa.RecordBatch, row: int) -> Key:
    """The set that a row belongs to: values of SET_COLUMNS."""
    return tuple(batch.column(name)[row].as_py() for name in SET_COLUMNS)
