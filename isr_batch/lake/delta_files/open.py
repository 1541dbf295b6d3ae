"""Open a Delta table without Spark: read its log and its data files."""

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake.exceptions import TableNotFoundError

from isr_batch.lake.delta_files.read import dataset_of, read_file
from isr_batch.lake.delta_files.stores import Store

Days = tuple[str, str]
"""First and last day as text, such as "2026-01-31". A log line may contain the year 0, which `date` cannot hold."""


class DirectTable:
    """A table that delta-rs can read and commit to without Spark.

    Parameters
    ----------
    store : Store
        Location of the table, which may not exist yet.
    metadata : callable
        Returns the user metadata for the next commit, as JSON.
    """

    def __init__(self, store: Store, metadata: Callable[[], str]) -> None:
        self.store, self.metadata = store, metadata
        self._log: deltalake.DeltaTable | None = None
        self._is_old = False
        self._seen: object = None
        self._reading = Lock()

    def exists(self) -> bool:
        """Whether the table exists."""
        if self.store.is_folder:
            return self.store.has_table()
        try:
            return self.log() is not None
        except TableNotFoundError:
            return False

    def log(self) -> deltalake.DeltaTable:
        """Return the newest version of the table's Delta log.

        The log is cached until this process writes to the table (see `was_written`). In a local folder, commits of
        other processes are noticed too.
        """
        with self._reading:
            seen = self.store.files_of_log()
            if self._log is None or (self.store.is_folder and (self._is_old or seen != self._seen)):
                self._log = self.store.table()
            elif self._is_old:
                self._log.update_incremental()
            self._is_old, self._seen = False, seen
            return self._log

    def was_written(self) -> None:
        """Invalidate the cached Delta log. Call this after this process has written to the table."""
        self._is_old = True

    def data_files(self, days: Days | None = None) -> list[dict[str, Any]]:
        """Return the data files of the newest version, by default of all days (see the function `data_files`)."""
        return data_files(self.log(), days)

    @property
    def size_bytes(self) -> int:
        """Total size of the table's data files, in bytes."""
        return sum(int(file["size_bytes"]) for file in self.data_files())

    def read(self, schema: pa.Schema, wanted: Mapping[str, Sequence[str]]) -> pa.Table:
        """Read the columns in ``schema`` of the rows that match ``wanted``.

        ``wanted`` maps names of text columns to the values that a row may have there.

        Raises
        ------
        SchemaError
            If a file is damaged.
        """
        folder = self.store.files()
        read = (read_file(self.store, folder, file, schema, wanted) for file in self.data_files())
        return pa.concat_tables([schema.empty_table(), *read])

    def open(self, schema: pa.Schema) -> ds.Dataset | pa.Table:
        """Open the columns in ``schema`` of all rows. A dataset can then be read batch by batch."""
        files = self.data_files()
        return dataset_of(self.store, self.store.files(), files, schema) if files else schema.empty_table()


def data_files(there: deltalake.DeltaTable, days: Days | None, *more: str) -> list[dict[str, Any]]:
    """Return the data files of a version of a table, in partitions of these days or, if ``days`` is None, in all.

    Each file is a dict with ``path``, ``size_bytes``, ``partition.NAME`` for each partition column, and those fields of
    Delta's add action that ``more`` names.
    """
    files = pa.table(there.get_add_actions(flatten=True))
    partitions = [name for name in files.column_names if name.startswith("partition.")]
    for name in partitions:
        files = files.set_column(files.column_names.index(name), name, files[name].cast(pa.string()))
    wanted = ["path", "size_bytes", *partitions, *(name for name in more if name in files.column_names)]
    listed, day = files.select(wanted).to_pylist(), "partition.event_date"
    return [file for file in listed if days is None or days[0] <= (file.get(day) or days[0]) <= days[1]]
