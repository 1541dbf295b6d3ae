"""Rows of a table's files by their places: a worker reads what is large, and Spark moves where it is."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from isr_batch.lake.stores import Store

HELD_BYTES: Final = 1 << 25
"""Of row groups that a worker holds: rows of a set are in a group of each day, and the next set's in the same ones."""

PLACE: Final = pa.struct([("path", pa.string()), ("row", pa.int64())])
"""Where a row is: its file, within the table, and its number there, from 0."""
OPEN_FILES: Final = 64
"""Files that a worker keeps open."""
Group = tuple[str, int]
"""A file, and the number of one of its row groups."""


class UnreadableFileError(Exception):
    """In a worker: a table's file is damaged, or gone. `isr_batch.errors` knows it by its name."""


class FileRows:
    """Reads columns of rows that are named by their files and places.

    Parameters
    ----------
    store : Store
        Of the table.
    schema : pa.Schema
        The columns.
    """

    def __init__(self, store: Store, schema: pa.Schema) -> None:
        self._store, self._files, self._schema = store, store.files(), schema
        self.type = pa.struct(list(schema))
        self._opened: dict[str, tuple[pq.ParquetFile, npt.NDArray[np.int64]]] = {}
        self._held: OrderedDict[Group, pa.StructArray] = OrderedDict()
        self._held_bytes = 0

    def at(self, places: pa.StructArray) -> pa.StructArray:
        """Read rows.

        Parameters
        ----------
        places : pa.StructArray
            Of PLACE; may be null.

        Returns
        -------
        pa.StructArray
            The columns; null where there is no place.

        Raises
        ------
        UnreadableFileError
            Naming the file.
        """
        parts: list[pa.Array] = [pa.nulls(0, self.type)]
        for path, same in groupby(places.to_pylist(), lambda place: place and place["path"]):
            of_file = [*same]
            if path is None:
                parts.append(pa.nulls(len(of_file), self.type))
                continue
            try:
                parts += self._of_file(path, np.array([place["row"] for place in of_file]))
            except PermissionError:
                raise
            except (pa.ArrowInvalid, OSError) as error:
                message = f"{self._store.address(path)}: {error}"
                raise UnreadableFileError(message) from error
        return pa.concat_arrays(parts)

    def _of_file(self, path: str, rows: npt.NDArray[np.int64]) -> Iterator[pa.Array]:
        if path not in self._opened:
            if len(self._opened) >= OPEN_FILES:
                del self._opened[next(iter(self._opened))]
            file = pq.ParquetFile(path, filesystem=self._files, pre_buffer=not self._store.is_folder)
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            self._opened[path] = file, np.cumsum([0, *groups])
        _, starts = self._opened[path]
        numbers = np.searchsorted(starts, rows, "right") - 1
        edges = np.flatnonzero((np.diff(rows) != 1) | (np.diff(numbers) != 0)) + 1
        for some, of_group in zip(np.split(rows, edges), np.split(numbers, edges), strict=True):
            number = int(of_group[0])
            yield self._group((path, number)).slice(int(some[0] - starts[number]), len(some))

    def _group(self, group: Group) -> pa.StructArray:
        if group in self._held:
            self._held.move_to_end(group)
            return self._held[group]
        path, number = group
        columns = self._opened[path][0].read_row_group(number, self._schema.names, use_threads=False)
        rows = pa.StructArray.from_arrays(
            [columns[field.name].combine_chunks().cast(field.type) for field in self._schema], fields=list(self._schema)
        )
        self._held_bytes += rows.nbytes
        while self._held and self._held_bytes > HELD_BYTES:
            self._held_bytes -= self._held.popitem(last=False)[1].nbytes
        self._held[group] = rows
        return rows
