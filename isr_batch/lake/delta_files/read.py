"""Read rows of a table's files by location: Spark only moves locations, and workers read the large columns."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from isr_batch.lake.delta_files.sound_files import READ, require_sound_footer
from isr_batch.lake.delta_files.stores import Store

HELD_BYTES: Final = 1 << 25
"""Of row groups that a worker holds: rows of a set are in a group of each day, and the next set's in the same ones."""

PLACE: Final = pa.struct([("path", pa.string()), ("row", pa.int64())])
"""Where a row is: its file, within the table, and its number there, from 0."""
OPEN_FILES: Final = 64
"""Files that a worker keeps open."""
Group = tuple[str, int]
"""A file, and the number of one of its row groups."""


class UnreadableFileError(Exception):
    """Raised in a worker when a table's file is damaged or gone; `isr_batch.errors` recognises it by its name."""


class FileRows:
    """Reads columns of rows, given their files and positions.

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
            The columns; null where the location is null.

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
        found = pa.concat_arrays(parts)
        self._let_go()
        return found

    def _of_file(self, path: str, rows: npt.NDArray[np.int64]) -> Iterator[pa.Array]:
        if path not in self._opened:
            if len(self._opened) >= OPEN_FILES:
                del self._opened[next(iter(self._opened))]
            require_sound_footer(self._store, path)
            file = pq.ParquetFile(path, filesystem=self._files, pre_buffer=not self._store.is_folder, **READ)
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            self._opened[path] = file, np.cumsum([0, *groups])
        file, starts = self._opened[path]
        numbers = np.searchsorted(starts, rows, "right") - 1
        self._read(path, file, [number for number in np.unique(numbers).tolist() if (path, number) not in self._held])
        edges = np.flatnonzero((np.diff(rows) != 1) | (np.diff(numbers) != 0)) + 1
        for some, of_group in zip(np.split(rows, edges), np.split(numbers, edges), strict=True):
            number = int(of_group[0])
            self._held.move_to_end((path, number))
            yield self._held[path, number].slice(int(some[0] - starts[number]), len(some))

    def _read(self, path: str, file: pq.ParquetFile, numbers: Sequence[int]) -> None:
        """Read row groups in one call: one request to a store, or a few."""
        if not numbers:
            return
        columns = file.read_row_groups(numbers, self._schema.names, use_threads=False).select(self._schema.names)
        begin = 0
        for number in numbers:
            count = file.metadata.row_group(number).num_rows
            rows = columns.slice(begin, count)
            arrays = [rows[field.name].combine_chunks().cast(field.type) for field in self._schema]
            self._held[path, number] = pa.StructArray.from_arrays(arrays, fields=list(self._schema))
            self._held_bytes += self._held[path, number].nbytes
            begin += count

    def _let_go(self) -> None:
        while self._held_bytes > HELD_BYTES:
            self._held_bytes -= self._held.popitem(last=False)[1].nbytes
