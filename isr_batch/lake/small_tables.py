"""Replace rows of a table with a few others, in one commit and without Spark.

A Spark commit takes at least a second, whatever its size; this one takes some milliseconds (`deltalake`). It reads the
files that may have matching rows, rewrites those that have other rows as well, and commits the changed list of files.
deltalake does not check the constraints of rows written this way, so they are checked here.
"""

import json
import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction, Transaction

from isr_batch.errors import SchemaError, UsageError
from isr_batch.lake.arrow_read import damaged_files_explained
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.contract_sql import count_breaking_contract, rows_that_meet
from isr_batch.lake.delta_files.commit import Actions, commit, now_ms
from isr_batch.lake.delta_files.sound_files import READ, require_sound_footer, write_checksums
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import FileOfWorker, parquet_options, rows_a_group
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table

logger = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
"""Of files that have both rows to be replaced and others: they are read and written here. More is for Spark."""
ROWS_AT_ONCE = 1 << 17

Days = tuple[str, str]
"""First and last day, as text: Python has no year 0, which a line of a log may have."""


class SmallTables:
    """Replaces and appends rows of small tables of a lake without Spark.

    Parameters
    ----------
    lake : Lake
    sql : ArrowSql
        Evaluates conditions on rows.
    """

    def __init__(self, lake: Lake, sql: ArrowSql) -> None:
        self.lake = lake
        self.sql = sql

    def takes(self, table: Table, days: Days | None = None, where: str | None = None) -> bool:
        """Whether `replace` can write a table: it is reachable without Spark, and little has to be rewritten.

        The table is created if it does not exist.

        Parameters
        ----------
        table : Table
        days : (str, str), optional
            As for `replace`; files of other days are ignored.
        where : str, optional
            As for `replace`; in a large table, files without such rows, or without others, are ignored. By default no
            file is. A table with a change feed is only written here if whole files are replaced: the feed is derived
            from them, as after an overwrite by Spark.
        """
        self.lake.ensure(table)
        store, log = self.lake.direct_store(table.name), self.lake.log(table.name)
        if store is None or log is None or not self.lake.is_plain(table.name):
            return False
        files = list(_files(log, days))
        if where is not None and (table.change_feed or _size(files) > MOST_BYTES):
            files = [file for file in files if 0 < self._replaced(store, table, file, where) < file["num_records"]]
        return not (files and table.change_feed) and _size(files) <= MOST_BYTES

    def replace(  # noqa: PLR0913 three of them have a default
        self,
        table: Table,
        rows: pa.Table,
        where: str,
        days: Days | None = None,
        files: Sequence[FileOfWorker] = (),
        *,
        checked: bool = False,
    ) -> int:
        """Put rows in place of those that match a condition, in one commit, as `Lake.replace` does.

        Parameters
        ----------
        table : Table
            One that `takes` accepts.
        rows : pa.Table
            The contract's columns.
        where : str
            SQL condition that both engines understand; every row must meet it.
        days : (str, str), optional
            First and last event_date that the condition selects, so that no other files are read.
        files : sequence of FileOfWorker
            More rows.
        checked : bool
            Whether the rows are known to meet both.

        Returns
        -------
        int
            Number of rows written.

        Raises
        ------
        SchemaError
            When a row breaks the contract or does not meet the condition.
        WriteConflictError
            When others write to the same files.
        """
        store = self.lake.store(table.name)
        schema = arrow_schema(table)
        rows = rows.select(schema.names)
        broken = sum(file.broken for file in files) + (0 if checked else self.count_broken(table, rows, where))
        if broken:
            raise SchemaError(
                f"{broken} rows break the contract of {table.name}, or are not among those that are replaced"
            )

        def replacing(there: deltalake.DeltaTable) -> Actions:
            removed: list[RemoveAction] = []
            after = [rows.cast(schema)]
            for file in _files(there, days):
                replaced = self._replaced(store, table, file, where)
                if replaced:
                    removed.append(RemoveAction(file["path"], True, now_ms(), file["size_bytes"], _partition(file)))
                if 0 < replaced < file["num_records"]:
                    old = _rows_of(store, file, schema)
                    after.append(rows_that_meet(self.sql, old, f"NOT coalesce({where}, false)"))
            return [*removed, *_written(store, table, pa.concat_tables(after)), *map(_added, files)]

        commit(self.lake, table, store, replacing)
        return int(rows.num_rows) + sum(file.rows for file in files)

    def add_files(self, table: Table, files: Sequence[FileOfWorker]) -> None:
        """Add the rows of files whose rows meet the contract, in one commit.

        Raises
        ------
        WriteConflictError
            When others write to the table at the same time.
        """
        commit(self.lake, table, self.lake.store(table.name), lambda _: [_added(file) for file in files])

    def append_once(self, table: Table, row: Mapping[str, object], key: str) -> None:
        """Append a row, unless one with the same key was appended before, as `Lake.append_once`.

        On S3 this works as in a folder: a deltalake commit fails there if another came first; a Spark commit does not
        notice.

        Raises
        ------
        SchemaError
            When the row breaks the contract.
        """
        rows = pa.Table.from_pylist([row], arrow_schema(table))
        self.lake.ensure(table)
        store = self._store(table)
        if store is None or table.change_feed or not self.lake.is_plain(table.name):
            self.lake.append_once(table, self.lake.spark.createDataFrame(rows), key)
            return
        if self.count_broken(table, rows):
            raise SchemaError(f"the row breaks the contract of {table.name}")
        added = [*_written(store, table, rows)]

        def unless_done(there: deltalake.DeltaTable) -> Actions:
            return added if there.transaction_version(key) is None else []

        # The second writer of the same key gets a conflict, and finds the key when it retries.
        commit(self.lake, table, store, unless_done, [Transaction(key, 1, now_ms())])

    def _store(self, table: Table) -> Store | None:
        """Store of a table that deltalake can commit to, and faster than Spark."""
        if store := self.lake.direct_store(table.name):
            return store
        try:
            store = self.lake.store(table.name)
            if store.is_s3:
                store.table()
                return store
        except UsageError as error:
            logger.debug("%s is left to Spark: %s", table.name, error.message)
        return None

    def select(self, rows: pa.Table, where: str) -> pa.Table:
        """Keep the rows that meet a condition that both engines understand."""
        return rows_that_meet(self.sql, rows, where)

    def count_broken(self, table: Table, rows: pa.Table, where: str = "true") -> int:
        """Count the rows that break the contract of a table, or do not meet a condition (`contract_sql`)."""
        return count_breaking_contract(self.sql, table, rows, where)

    def _replaced(self, store: Store, table: Table, file: dict[str, Any], where: str) -> int:
        """Count the rows of a file that match a condition; sets its ``num_records``, which a log may lack."""
        schema = arrow_schema(table)
        named = [field for field in schema if field.name in re.findall(r"\w+", where)]
        found = rows = 0
        for some in some_rows_of(store, file, pa.schema(named or [schema.field(0)])):
            rows += some.num_rows
            found += rows_that_meet(self.sql, some, where).num_rows
        file["num_records"] = rows
        return found


def _size(files: Sequence[dict[str, Any]]) -> int:
    return sum(file["size_bytes"] for file in files)


def _files(there: deltalake.DeltaTable, days: Days | None) -> Iterator[dict[str, Any]]:
    """List the data files of a table for some days; partition values are text."""
    files = pa.table(there.get_add_actions(flatten=True))
    partitions = [name for name in files.column_names if name.startswith("partition.")]
    for name in partitions:
        files = files.set_column(files.column_names.index(name), name, files[name].cast(pa.string()))
    for file in files.select(["path", "size_bytes", *partitions]).to_pylist():
        day = file.get("partition.event_date")
        if day is None or days is None or days[0] <= day <= days[1]:
            yield file


def _rows_of(store: Store, file: dict[str, Any], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *some_rows_of(store, file, schema)])


def some_rows_of(store: Store, file: dict[str, Any], schema: pa.Schema) -> Iterator[pa.Table]:
    """Read some columns of a file in batches of `ROWS_AT_ONCE` rows."""
    with ExitStack() as opened:
        opened.enter_context(damaged_files_explained(store, file["path"]))
        require_sound_footer(store, file["path"])
        parquet = opened.enter_context(pq.ParquetFile(file["path"], filesystem=store.files(), **READ))
        there = [name for name in schema.names if name in parquet.schema_arrow.names]
        for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=there):
            rows = pa.Table.from_batches([batch])
            for field in schema:
                if field.name not in there:  # a partition column, or one that came later
                    value = pa.scalar(file.get(f"partition.{field.name}"), pa.string()).cast(field.type)
                    rows = rows.append_column(field, pa.repeat(value, batch.num_rows))
            yield rows.select(schema.names).cast(schema)


def _partition(file: dict[str, Any]) -> dict[str, str | None] | None:
    return {
        name.removeprefix("partition."): value for name, value in file.items() if name.startswith("partition.")
    } or None


def _written(store: Store, table: Table, rows: pa.Table) -> Iterator[AddAction]:
    """Write the rows to new files, one per partition."""
    files = store.files()
    stored = [name for name in rows.column_names if name not in table.partitioned_by]
    for part, values in _parts(rows, table.partitioned_by):
        place = "".join(f"{name}={value}/" for name, value in values.items())
        path = f"{place}part-{uuid.uuid4()}.zstd.parquet"
        if place:
            files.create_dir(place)
        kept = part.select(stored)
        options = parquet_options(table, kept.schema)
        pq.write_table(kept, path, filesystem=files, row_group_size=rows_a_group(table, kept), **options)
        write_checksums(store, path)
        size = files.get_file_info(path).size
        yield AddAction(path, size, values, now_ms(), True, json.dumps({"numRecords": part.num_rows}))


def _added(file: FileOfWorker) -> AddAction:
    """Describe a worker's file as an action of the table's log."""
    least, most = ({name: _in_log(us, up) for name, us in of.items()}
                   for of, up in ((file.least_us, 0), (file.most_us, 999)))  # fmt: skip
    stats = {"numRecords": file.rows, "minValues": least, "maxValues": most, "nullCount": dict.fromkeys(least, 0)}
    return AddAction(file.path, file.size_bytes, {"event_date": file.day}, now_ms(), True, json.dumps(stats))


def _in_log(us: int, up: int) -> str:
    """Round to whole milliseconds, as in Delta's log."""
    return f"{np.datetime64((us + up) // 1000, 'ms')}Z"


def _parts(rows: pa.Table, by: tuple[str, ...]) -> Iterator[tuple[pa.Table, dict[str, str]]]:
    if not by:
        if rows.num_rows:
            yield rows, {}
        return
    (column,) = by
    text = rows[column].cast(pa.string())
    values = pc.unique(text).to_pylist()
    for value in values:
        yield rows.filter(pc.equal(text, value)) if len(values) > 1 else rows, {column: value}
