"""Replace a few rows of a table in one commit, without Spark.

A Spark commit takes at least a second, whatever its size; a commit by `deltalake` takes some milliseconds. This module
reads the files that may contain rows to replace, rewrites files that also contain other rows, and commits the changed
list of files. deltalake does not check constraints in such a commit, so they are checked here.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction, RemoveAction, Transaction

from isr_batch.errors import SchemaError, UsageError
from isr_batch.lake import sizes
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.contract_sql import count_breaking_contract, rows_that_meet
from isr_batch.lake.delta_files.commit import Actions, added, commit, now_ms, removed
from isr_batch.lake.delta_files.open import Days, DirectTable, data_files
from isr_batch.lake.delta_files.read import some_rows_of
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import DayFile, FileOfWorker
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table

logger = logging.getLogger(__name__)


class SmallTables:
    """Replaces and appends rows of a lake's small tables, without Spark.

    Parameters
    ----------
    lake : Lake
    sql : ArrowSql
        Evaluates conditions on rows.
    """

    def __init__(self, lake: Lake, sql: ArrowSql) -> None:
        self.lake = lake
        self.sql = sql

    def takes(self, table: Table, days: Days | None = None, where: str | None = None) -> DirectTable | None:
        """Return the table if `replace` can write to it and would rewrite at most `sizes.REWRITTEN_BYTES`; else None.

        The table is created if it does not exist.

        Parameters
        ----------
        table : Table
        days : (str, str), optional
            As for `replace`. Files of other days are ignored.
        where : str, optional
            As for `replace`. By default, all files are assumed to be rewritten. With ``where``, the files of a large
            table are examined: a file is rewritten only if some of its rows match and others do not. A table with a
            change feed is only accepted if no file would be rewritten, because Delta derives the feed from whole files
            that a commit adds and removes.
        """
        self.lake.ensure(table)
        there = self.lake.direct(table.name)
        if there is None:
            return None
        files = there.data_files(days)
        if where is not None and (table.change_feed or _size_of_small_files(files) > sizes.REWRITTEN_BYTES):
            files = [
                file for file in files if 0 < self._replaced(there.store, table, file, where) < file["num_records"]
            ]
        return None if (files and table.change_feed) or _size_of_small_files(files) > sizes.REWRITTEN_BYTES else there

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
        """Replace the rows of a table that meet a condition with other rows, in one commit, without Spark.

        Parameters
        ----------
        table : Table
            A table that `takes` accepts.
        rows : pa.Table
            The new rows, with the contract's columns.
        where : str
            Condition on the rows to replace, in SQL that both DuckDB and Spark understand. Each new row must meet it
            too.
        days : (str, str), optional
            First and last event_date of rows that can meet the condition. Files of other days are not read.
        files : sequence of FileOfWorker
            Written data files with further new rows, which the same commit adds.
        checked : bool
            Whether ``rows`` are already known to meet the contract and the condition.

        Returns
        -------
        int
            Number of rows written.

        Raises
        ------
        SchemaError
            If a row breaks the contract or does not meet the condition.
        WriteConflictError
            If another process committed first at every attempt.
        """
        to = self.lake.by_delta_rs(table.name)
        schema = arrow_schema(table)
        rows = rows.select(schema.names)
        broken = sum(file.broken for file in files) + (0 if checked else self.count_broken(table, rows, where))
        if broken:
            raise SchemaError(f"{broken} rows break the contract of {table.name}, or are outside the rows to replace")

        def replacing(there: deltalake.DeltaTable) -> Actions:
            """Return the actions that replace the rows in the version ``there`` of the table."""
            gone: list[RemoveAction] = []
            after = [rows.cast(schema)]
            for file in data_files(there, days):
                replaced = self._replaced(to.store, table, file, where)
                if replaced:
                    gone.append(removed(file))
                if 0 < replaced < file["num_records"]:
                    old = pa.concat_tables([schema.empty_table(), *some_rows_of(to.store, file, schema)])
                    after.append(rows_that_meet(self.sql, old, f"NOT coalesce({where}, false)"))
            new = (added(file, table) for file in files)
            return [*gone, *_small_files_written(to.store, table, pa.concat_tables(after)), *new]

        commit(to, table, replacing)
        return int(rows.num_rows) + sum(file.rows for file in files)

    def add_files(self, table: Table, files: Sequence[FileOfWorker]) -> None:
        """Add data files that are already written to a table, in one commit. The files' rows are not checked again.

        Raises
        ------
        WriteConflictError
            If another process writes to the table at the same time.
        """
        commit(self.lake.by_delta_rs(table.name), table, lambda _: [added(file, table) for file in files])

    def append_once(self, table: Table, row: Mapping[str, object], key: str) -> None:
        """Append a row, unless a row was appended with the same ``key`` before.

        This is also safe on S3: if another process commits at the same time, deltalake notices the conflict and the
        append is retried, whereas Spark could overwrite the other commit.

        Raises
        ------
        SchemaError
            If the row breaks the contract.
        """
        rows = pa.Table.from_pylist([row], arrow_schema(table))
        self.lake.ensure(table)
        to = self._committed_to(table)
        if to is None or table.change_feed or not self.lake.is_plain(table.name):
            self.lake.append_once(table, self.lake.spark.createDataFrame(rows), key)
            return
        if self.count_broken(table, rows):
            raise SchemaError(f"the row breaks the contract of {table.name}")
        new = [*_small_files_written(to.store, table, rows)]

        def unless_done(there: deltalake.DeltaTable) -> Actions:
            """Return the actions that append the row; none if the version ``there`` already contains the key."""
            return new if there.transaction_version(key) is None else []

        # If two processes append with the same key, the later commit fails, and its retry finds the key.
        commit(to, table, unless_done, [Transaction(key, 1, now_ms())])

    def _committed_to(self, table: Table) -> DirectTable | None:
        """Return the table if deltalake can commit to it; None if only Spark can, which is slower."""
        if there := self.lake.reached(table.name):
            return there
        try:
            there = self.lake.by_delta_rs(table.name)
            if there.store.is_s3:
                there.log()
                return there
        except UsageError as error:
            logger.debug("%s is left to Spark: %s", table.name, error.message)
        return None

    def select(self, rows: pa.Table, where: str) -> pa.Table:
        """Return those of ``rows`` that meet ``where``, a condition in Spark SQL."""
        return rows_that_meet(self.sql, rows, where)

    def count_broken(self, table: Table, rows: pa.Table, where: str = "true") -> int:
        """Return the number of rows that break the contract of a table or do not meet the SQL condition ``where``."""
        return count_breaking_contract(self.sql, table, rows, where)

    def _replaced(self, store: Store, table: Table, file: dict[str, Any], where: str) -> int:
        """Return the number of rows of a file that meet a condition, and set ``num_records`` in the dict ``file``."""
        schema = arrow_schema(table)
        named = [field for field in schema if field.name in re.findall(r"\w+", where)]
        found = rows = 0
        for some in some_rows_of(store, file, pa.schema(named or [schema.field(0)])):
            rows += some.num_rows
            found += rows_that_meet(self.sql, some, where).num_rows
        file["num_records"] = rows
        return found


def _size_of_small_files(files: Sequence[dict[str, Any]]) -> int:
    return sum(file["size_bytes"] for file in files)


def _small_files_written(store: Store, table: Table, rows: pa.Table) -> Iterator[AddAction]:
    """Write rows to new files, one per partition, and yield an ``add`` action for each, without column statistics."""
    for part, day in _parts_of_small_table(rows, table.partitioned_by):
        file = DayFile(table, store, day, rows.schema)
        file.write(part)
        yield added(replace(file.close(), least={}, most={}), table)


def _parts_of_small_table(rows: pa.Table, by: tuple[str, ...]) -> Iterator[tuple[pa.Table, str]]:
    """Split rows by the partition column ``by``, and yield (rows, partition value). If ``by`` is empty, this is ""."""
    if not by:
        if rows.num_rows:
            yield rows, ""
        return
    (column,) = by
    text = rows[column].cast(pa.string())
    values = pc.unique(text).to_pylist()
    for value in values:
        yield rows.filter(pc.equal(text, value)) if len(values) > 1 else rows, value
