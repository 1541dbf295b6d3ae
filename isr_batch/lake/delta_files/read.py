"""Read a table's data files: whole files, batches, row groups, or single rows by location (file and row number).

If rows have large columns, Spark only shuffles the locations of the rows. Its workers then read these columns from the
files.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import groupby
from operator import and_
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from isr_batch.errors import unreadable_file_error
from isr_batch.lake.delta_files.sound_files import FORMAT, READ, require_sound_footer
from isr_batch.lake.delta_files.stores import Store

ROWS_AT_ONCE: Final = 1 << 17
HELD_BYTES: Final = 1 << 25
"""Maximum size in bytes of the row groups that a worker caches. The cache helps because a row group often contains the
rows of several replica sets."""

PLACE: Final = pa.struct([("path", pa.string()), ("row", pa.int64())])
"""Location of a row: the path of its file within the table, and its row number in the file, from 0."""
OPEN_FILES: Final = 64
"""Maximum number of files that a worker keeps open."""
Group = tuple[str, int]
"""A row group: the path of its file, and its number in the file, from 0."""
File = Mapping[str, Any]
"""A data file, as listed by `DirectTable.data_files`."""


def dataset_of(store: Store, folder: FileSystem, files: Sequence[File], schema: pa.Schema) -> ds.Dataset:
    """Open the columns in ``schema`` of several files as one dataset.

    Columns that a file does not store have the value of its partition, or null.

    Raises
    ------
    SchemaError
        If the footer of a file is damaged. Damage elsewhere in a file is only noticed when its rows are read.
    """
    fragments = []
    for file in files:
        with damaged_files_explained(store, file["path"]):
            require_sound_footer(store, file["path"])
        values = (
            ds.field(field.name) == _value_of_partition(file, field)
            for field in schema
            if _partition_name(field) in file
        )
        fragments.append(FORMAT.make_fragment(file["path"], folder, reduce(and_, values, ds.scalar(True))))
    return ds.FileSystemDataset(fragments, schema, FORMAT, folder)


def read_file(
    store: Store, folder: FileSystem, file: File, schema: pa.Schema, wanted: Mapping[str, Sequence[str]]
) -> pa.Table:
    """Read the columns in ``schema`` of the rows of a file that match ``wanted``.

    ``wanted`` maps names of text columns to the values that a row may have there.

    Raises
    ------
    SchemaError
        If the file cannot be read.
    """
    others = [pa.field(name, pa.string()) for name in wanted if name not in schema.names]
    rows = dataset_of(store, folder, [file], pa.schema([*schema, *others]))
    are_wanted = (ds.field(name).isin(values) for name, values in wanted.items())
    with damaged_files_explained(store, file["path"]):
        return rows.to_table(schema.names, filter=reduce(and_, are_wanted, ds.scalar(True)))


def some_rows_of(store: Store, file: File, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the columns in ``schema`` of all rows of a file, in batches of up to `ROWS_AT_ONCE`."""
    rows = dataset_of(store, store.files(), [file], pa.schema([field.with_nullable(True) for field in schema]))
    with damaged_files_explained(store, file["path"]):
        for batch in rows.to_batches(batch_size=ROWS_AT_ONCE, batch_readahead=1):
            yield pa.Table.from_batches([batch]).cast(schema)


def rows_of_groups(
    store: Store, path: str, columns: Sequence[str], share: tuple[int, int], rows_at_once: int
) -> Iterator[pa.RecordBatch]:
    """Yield columns of every n-th row group of a file, so that n tasks can share the file.

    ``share`` is (number of the first row group, n). ``cluster_id`` and ``topic`` are dictionary-encoded. Columns that
    the file lacks are null.

    Raises
    ------
    SchemaError
        If the file cannot be read.
    """
    names = ["cluster_id", "topic"]
    with (
        damaged_files_explained(store, path),
        _open_data_file(store, store.files(), path, read_dictionary=names) as file,
    ):
        groups = list(range(share[0], file.num_row_groups, share[1]))
        there = [name for name in columns if name in file.schema_arrow.names]
        for batch in file.iter_batches(rows_at_once, groups, there, use_threads=False):
            missing = pa.nulls(batch.num_rows)  # the file was written before the table had the column
            arrays = [batch.column(name) if name in there else missing for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, list(columns))


@contextmanager
def damaged_files_explained(store: Store, path: str) -> Iterator[None]:
    """Convert an error that occurs while the block reads a table's file to a SchemaError with a remedy.

    Raises
    ------
    SchemaError
        If the file cannot be read; the message names it.
    """
    try:
        yield
    except PermissionError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        raise unreadable_file_error(store.address(path)) from error


def _open_data_file(store: Store, folder: FileSystem, path: str, **options: Any) -> pq.ParquetFile:  # noqa: ANN401 those of Arrow
    """Verify the footer of a Parquet file, and open the file. ``options`` are those of `pq.ParquetFile`."""
    require_sound_footer(store, path)
    return pq.ParquetFile(path, filesystem=folder, pre_buffer=not store.is_folder, **READ, **options)


def _partition_name(field: pa.Field) -> str:
    return f"partition.{field.name}"


def _value_of_partition(file: File, field: pa.Field) -> pa.Scalar:
    """Return the value of a partition column in a file, with the field's type; null for the default partition."""
    return pa.scalar(file[_partition_name(field)], pa.string()).cast(field.type)


class FileRows:
    """Reads rows of a table by their locations (`PLACE`), keeps the files open, and caches row groups.

    Parameters
    ----------
    store : Store
        Store of the table.
    schema : pa.Schema
        The columns to read.
    """

    def __init__(self, store: Store, schema: pa.Schema) -> None:
        self._store, self._files, self._schema = store, store.files(), schema
        self.type = pa.struct(list(schema))
        self._opened: dict[str, tuple[pq.ParquetFile, npt.NDArray[np.int64]]] = {}
        self._held: OrderedDict[Group, pa.StructArray] = OrderedDict()
        self._held_bytes = 0

    def at(self, places: pa.StructArray) -> pa.StructArray:
        """Return the columns of the rows at these locations.

        Parameters
        ----------
        places : pa.StructArray
            Locations, of type `PLACE`; some may be null.

        Returns
        -------
        pa.StructArray
            One struct of the columns per location, in the same order; null where the location is null.

        Raises
        ------
        SchemaError
            If a file cannot be read; the message names it.
        """
        parts: list[pa.Array] = [pa.nulls(0, self.type)]
        for path, same in groupby(places.to_pylist(), lambda place: place and place["path"]):
            of_file = [*same]
            if path is None:
                parts.append(pa.nulls(len(of_file), self.type))
                continue
            with damaged_files_explained(self._store, path):
                parts += self._of_file(path, np.array([place["row"] for place in of_file]))
        found = pa.concat_arrays(parts)
        self._let_go()
        return found

    def _of_file(self, path: str, rows: npt.NDArray[np.int64]) -> Iterator[pa.Array]:
        """Yield the rows of one file with these row numbers, in slices of consecutive rows."""
        if path not in self._opened:
            if len(self._opened) >= OPEN_FILES:
                del self._opened[next(iter(self._opened))]
            file = _open_data_file(self._store, self._files, path)
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
        """Read row groups of a file into the cache. One read for all ``numbers`` needs fewer requests to the store."""
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
        """Remove the least recently used row groups from the cache until at most `HELD_BYTES` are left."""
        while self._held_bytes > HELD_BYTES:
            self._held_bytes -= self._held.popitem(last=False)[1].nbytes
