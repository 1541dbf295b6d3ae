"""Write rows to new Parquet files of a table, in this process or in workers. One commit of the driver adds all files.

Spark's own writer would copy each row from the Python worker to the JVM (docs/adr/0020). Here each task writes one file
per day in the Python worker, and reports the files to the driver. Files of a failed task are never committed, and
VACUUM deletes them. The commit does not check rows, so a task counts the rows that break their contract, and the driver
refuses files that contain such rows.
"""

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.contract_sql import count_breaking_contract
from isr_batch.lake.delta_files.sound_files import WRITTEN, write_checksums
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.tables.contract import Table

REPORTS = pa.schema([("file", pa.string())])
"""Schema of the reports that a task sends to the driver. Each report is a `FileOfWorker` as JSON."""

GROUP_BYTES = 1 << 25
"""A task collects this many bytes of a day's rows before it checks and writes them."""
BINARIES_BYTES = 1 << 20
"""Size in bytes of a row group if the table has binary columns. It is small, because single rows of such tables are
read by location (`isr_batch.lake.delta_files.read`)."""
BINARIES_OF_FILE = 1 << 28
"""A file with binary columns is closed once it has this size in bytes. Readers of single rows hold the metadata of all
row groups of a file in memory."""
BYTES_WAITING = 1 << 27
"""Maximum size in bytes of the rows that a task has collected for all days and not written yet. It limits the task's
memory."""

DAY = "event_date"
"""The column by which tables are partitioned."""
_BITS: Final = "runs"
"""The only integer column that is written with a Parquet dictionary, because it has few distinct values."""


@dataclass(frozen=True)
class FileOfWorker:
    """A data file that this process or a worker has written to a table's folder, and that is not committed yet.

    Attributes
    ----------
    path : str
        Path of the file relative to the table's folder.
    size_bytes : int
    day : str
        Value of event_date in all rows; empty if the table is not partitioned.
    rows, broken : int
        Number of rows, and number of rows that break the contract.
    least, most : dict of str to int or str
        Minimum and maximum of each column by which readers skip files. These columns are never null. Instants are in
        epoch microseconds.
    """

    path: str
    size_bytes: int
    day: str
    rows: int
    broken: int
    least: dict[str, Any]
    most: dict[str, Any]


def with_files_written(
    table: Table, store: Store, where: str, open_sql: Callable[[], ArrowSql], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task to files, at least one per day, and yield reports of the files.

    Parameters
    ----------
    table : Table
        A table that is partitioned by event_date.
    store : Store
        Location of the table.
    where : str
        SQL condition that the rows must meet in addition to the contract.
    open_sql : callable
        Returns the engine that checks the rows. It is called in the task.
    batches : iterator of RecordBatch
        Batches of any length with the contract's columns.

    Yields
    ------
    RecordBatch
        At most one batch: the reports of the written files (`REPORTS`).
    """
    assert table.partitioned_by == (DAY,)
    files = TaskFiles(table, store, where, open_sql())
    for batch in batches:
        if batch.num_rows:
            files.add(batch)
    reports = [json.dumps(asdict(file)) for file in files.close()]
    if reports:
        yield pa.RecordBatch.from_pydict({"file": reports}, REPORTS)


def reported_files(reports: pa.Table) -> list[FileOfWorker]:
    """Return the files that tasks have written, parsed from their reports (`REPORTS`)."""
    return [FileOfWorker(**json.loads(text)) for text in reports["file"].to_pylist()]


def parquet_options(table: Table, stored: pa.Schema) -> dict[str, Any]:
    """Return the options of `pq.ParquetWriter` for a table. ``stored`` is the schema of its files.

    Times and offsets grow in small steps, so they are delta-encoded, which takes half the space and time of a
    dictionary.
    """
    growing = (pa.int64(), pa.timestamp("us", "UTC"))
    steps = [field.name for field in stored if field.type in growing and field.name != _BITS]
    recurring = [field.name for field in stored if field.name not in steps and field.type != pa.binary()]
    return {
        "compression": "zstd", "store_schema": False, "write_statistics": skipped_by(table),
        "use_dictionary": recurring, "column_encoding": dict.fromkeys(steps, "DELTA_BINARY_PACKED"), **WRITTEN,
    }  # fmt: skip


def has_binaries(table: Table) -> bool:
    """Whether a table has binary columns. The rows of such a table are large, and are read by location."""
    return any(column.type == "BINARY" for column in table.columns)


def rows_a_group(table: Table, rows: pa.Table) -> int:
    """Return the number of rows per row group: all rows, or what fits in `BINARIES_BYTES` if columns are binary."""
    if not has_binaries(table):
        return max(1, int(rows.num_rows))
    return max(1, int(rows.num_rows * BINARIES_BYTES // max(1, rows.nbytes)))


def skipped_by(table: Table) -> list[str]:
    """Return the columns whose minimum and maximum each file stores, so that readers can skip the file.

    The contract lists them in ``skipped_by``. By default, they are the timestamp columns that are never null.
    """
    instants = [column.name for column in table.columns if column.type == "TIMESTAMP" and not column.nullable]
    return list(table.skipped_by) or instants


class TaskFiles:
    """Writes the rows of a task to files, at least one per day.

    Parameters
    ----------
    table : Table
        A table that is partitioned by event_date.
    store : Store
        Location of the table.
    where : str
        SQL condition that the rows must meet in addition to the contract.
    sql : ArrowSql
        Engine that checks the rows.
    """

    def __init__(self, table: Table, store: Store, where: str, sql: ArrowSql) -> None:
        self.table, self.store, self.where, self.sql = table, store, where, sql
        # Columns are nullable here, so that a row with a null in a NOT NULL column is counted instead of raising.
        self.schema = pa.schema([field.with_nullable(True) for field in arrow_schema(table)])
        self.waiting: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        self.bytes_waiting: defaultdict[int, int] = defaultdict(int)
        self.files: dict[int, DayFile] = {}
        self.full: list[FileOfWorker] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Collect rows, which have the columns of the contract, and write each day that has `GROUP_BYTES` of rows."""
        days = np.asarray(batch.column(DAY).cast(pa.int32()).fill_null(0))
        for day in np.unique(days).tolist():
            rows = batch.filter(pa.array(days == day)) if (days[0], days[-1]) != (day, day) else batch
            self.waiting[day].append(rows)
            self.bytes_waiting[day] += rows.nbytes
            if self.bytes_waiting[day] >= GROUP_BYTES:
                self._write(day)
        while sum(self.bytes_waiting.values()) > BYTES_WAITING:
            self._write(max(self.bytes_waiting, key=self.bytes_waiting.__getitem__))

    def _write(self, day: int) -> None:
        """Check a day's collected rows, and write them to its file. Close the file if it reached `BINARIES_OF_FILE`."""
        rows = pa.Table.from_batches(self.waiting.pop(day)).cast(self.schema).combine_chunks()
        del self.bytes_waiting[day]
        if day not in self.files:
            self.files[day] = DayFile(self.table, self.store, str(np.datetime64(day, "D")), self.schema)
        self.files[day].write(rows, count_breaking_contract(self.sql, self.table, rows, self.where))
        if has_binaries(self.table) and self.files[day].bytes >= BINARIES_OF_FILE:
            self.full.append(self.files.pop(day).close())

    def close(self) -> Iterator[FileOfWorker]:
        """Write the remaining rows, close the files, and yield the report of each file."""
        for day in list(self.waiting):
            self._write(day)
        yield from self.full
        for file in self.files.values():
            yield file.close()


class DayFile:
    """A data file that is being written, with rows of one day.

    Parameters
    ----------
    table : Table
    store : Store
        Location of the table.
    day : str
        Value of event_date; empty if the table is not partitioned.
    schema : pa.Schema
        Schema of the table's rows.
    """

    def __init__(self, table: Table, store: Store, day: str, schema: pa.Schema) -> None:
        self.table, self.store, self.files, self.day = table, store, store.files(), day
        place = f"{DAY}={day}/" if day else ""
        self.path = f"{place}part-{uuid.uuid4()}.zstd.parquet"
        self.bytes = self.broken = 0
        self.metadata: list[pq.FileMetaData] = []
        self.stored = pa.schema([field for field in schema if field.name not in table.partitioned_by])
        if place:
            self.files.create_dir(place)
        self.writer = pq.ParquetWriter(
            self.path, self.stored, filesystem=self.files, metadata_collector=self.metadata,
            **parquet_options(table, self.stored),
        )  # fmt: skip

    def write(self, rows: pa.Table, broken: int = 0) -> None:
        """Write rows to the file. ``broken`` of them break their table's contract; `close` reports the sum."""
        self.bytes += rows.nbytes
        self.broken += broken
        with self._abandoned_if_failed():
            self.writer.write_table(rows.select(self.stored.names), row_group_size=rows_a_group(self.table, rows))

    def close(self) -> FileOfWorker:
        """Finish the file, write its checksums, and return its report."""
        with self._abandoned_if_failed():
            self.writer.close()
        write_checksums(self.store, self.path)
        (written,) = self.metadata
        groups = [written.row_group(number) for number in range(written.num_row_groups)]
        places = {written.schema.column(number).path: number for number in range(written.num_columns)}
        of = {name: [group.column(places[name]).statistics for group in groups] for name in skipped_by(self.table)}
        known = {name: each for name, each in of.items() if each and all(one and one.has_min_max for one in each)}
        return FileOfWorker(
            self.path, self.files.get_file_info(self.path).size, self.day, written.num_rows, self.broken,
            {name: min(_plain_statistic(each.min_raw) for each in of_groups) for name, of_groups in known.items()},
            {name: max(_plain_statistic(each.max_raw) for each in of_groups) for name, of_groups in known.items()},
        )  # fmt: skip

    @contextmanager
    def _abandoned_if_failed(self) -> Iterator[None]:
        """Abandon the file if the block raises an OSError, such as for a full disk."""
        try:
            yield
        except OSError:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Stop writing without a footer, because a full disk has no space for one. The file stays incomplete."""
        self.writer.is_open = False  # otherwise its destructor would write a footer


def _plain_statistic(value: Any) -> Any:  # noqa: ANN401 number or bytes
    return value.decode() if isinstance(value, bytes) else value
