"""Sort rows so that equal rows are adjacent, because an ingest stores equal rows only once."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NULL = -(1 << 63)
"""Number in place of null. It is less than all values."""


def order_of_rows(rows: pa.Table, keys: Sequence[str], time: str) -> tuple[Ints, Bools]:
    """Sort rows by set and time so that equal rows are adjacent, and find the first of equal rows.

    A set consists of the rows with the same values in all columns ``keys``, such as the rows of a replica set.

    Parameters
    ----------
    rows : pa.Table
        Columns of numbers, text (perhaps dictionary-encoded) and lists of numbers.
    keys : sequence of str
        Columns whose values identify a set. Sets are in arbitrary order.
    time : str
        Column by which the rows of a set are sorted.

    Returns
    -------
    order : array of int64, shape (rows,)
        Indices of the rows in sorted order. Of equal rows, the one that comes first in ``rows`` is first.
    is_first : array of bool, shape (rows,)
        For each element of ``order``, whether it is the first of the rows that are equal in all columns.
    """
    times = _numbered_values(rows[time])
    sets = _codes_of_rows([_numbered_values(rows[name]) for name in keys])
    # Stable sorts are fast here: times are almost in order, and numpy uses radix sort for 16-bit numbers.
    order = np.argsort(times, kind="stable")
    order = order[np.argsort(sets[order], kind="stable")]
    same = np.ones(max(0, len(order) - 1), np.bool_)
    for column in (sets, times):
        ordered = column[order]
        same &= ordered[1:] == ordered[:-1]
    is_first = np.append(True, ~same)[: len(order)]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if not len(tied):
        return order, is_first
    # Rows with the same set and time are usually the lake's and the source's copy of a row, equal in all columns.
    others = [name for name in rows.column_names if name not in {time, *keys}]
    which = np.cumsum(is_first)[tied]
    alike = rows.select(others).take(pa.array(order[tied]))
    differs = _differs(alike, which)
    mixed = np.isin(which, which[differs & ~is_first[tied]])
    if mixed.any():
        # Only rows with the same set and time that differ, which are few, must be sorted by all columns.
        places, within, few = order[tied[mixed]], which[mixed], alike.filter(pa.array(mixed))
        sort = np.lexsort([np.arange(len(places)), *(_numbered_values(few[name]) for name in others), within])
        order[tied[mixed]] = places[sort]
        differs[mixed] = _differs(few.take(pa.array(sort)), within)
    is_first[tied] = differs
    return order, is_first


def _differs(rows: pa.Table, which: Ints) -> Bools:
    """Return a mask of the rows that differ from the row before them.

    ``which`` contains a number for each row, which identifies its set and time. Rows with different numbers always
    differ.
    """
    differs = np.ones(len(which), np.bool_)
    differs[1:] = np.diff(which) != 0
    for column in rows.columns:
        values = _numbered_values(column)
        differs[1:] |= values[1:] != values[:-1]
    return differs


def _numbered_values(column: pa.ChunkedArray) -> npt.NDArray[np.integer]:
    """Return a number for each value. Equal values get the same number.

    The order of times and integers is preserved.
    """
    values = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_list(values.type):
        values = pc.binary_join(values.cast(pa.list_(pa.string())), ",")
    if pa.types.is_string(values.type):
        values = values.dictionary_encode()
    if pa.types.is_dictionary(values.type):
        values = values.indices
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
    if values.null_count:
        values = values.cast(pa.int64()).fill_null(NULL)
    return np.asarray(values)


def _codes_of_rows(columns: Sequence[npt.NDArray[np.integer]]) -> npt.NDArray[np.integer]:
    """Return a number from 0 for each row. Rows with equal values in all columns get the same number."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        least = column.min() if len(column) else 0
        if (column == least).all():
            continue
        values = np.asarray(pa.array(column).dictionary_encode().indices, np.int64)
        codes = np.asarray(pa.array(codes << 32 | values).dictionary_encode().indices, np.int64)
    return codes.astype(np.uint16) if len(codes) and codes.max() < 1 << 16 else codes
