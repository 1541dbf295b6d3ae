"""Few rows into a table in place of others, in one commit and without Spark.

A commit of Spark's takes a second or more whatever its size; this one takes some milliseconds (`deltalake`). It reads
the files that may have rows to be replaced, writes anew those that have some and others, and tells the table's log of
both. deltalake does not check the constraints of rows that are written so: they are checked here.
"""

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from isr_batch.errors import SchemaError, conflict
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql, quoted, without_zones
from isr_batch.lake.lake import RETRIES, Lake
from isr_batch.lake.tables.contract import Table

MOST_BYTES = 64 << 20
"""Of files that may have rows to be replaced: they are read here. More is for Spark."""

Days = tuple[str, str]
"""First and last day, as text: Python has no year 0, which a line of a log may have."""


class SmallTables:
    """Tables of a lake, as far as they can be read and written without Spark.

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
        """Whether `replace` can write a table: a small one in a local folder, with nothing that only Spark can write.

        The table is created if it is not there.

        Parameters
        ----------
        table : Table
        days : (str, str), optional
            As for `replace`; files of other days do not count.
        where : str, optional
            As for `replace`. A table with a change feed is written here only if whole files are replaced: the feed is
            read off them, as after an overwrite of Spark's.
        """
        self.lake.ensure(table)
        folder = self.lake.folder(table.name)
        if folder is None or not self.lake.is_plain(table.name):
            return False
        size: int = sum(file["size_bytes"] for file in _files(deltalake.DeltaTable(folder), days))
        if size > MOST_BYTES:
            return False
        return not table.change_feed or (where is not None and self.replaces_files(table, where))

    def replaces_files(self, table: Table, where: str) -> bool:
        """Whether each file has only rows that a condition lets through, or none of them; for a small table."""
        folder, schema = str(self.lake.folder(table.name)), arrow_schema(table)
        for file in _files(deltalake.DeltaTable(folder), None):
            rows = _rows_of(folder, file, schema)
            if _select(self.sql, rows, where).num_rows not in {0, rows.num_rows}:
                return False
        return True

    def read(self, table: Table, where: str) -> pa.Table:
        """Read the rows that match a condition; with Spark if `takes` says no.

        Parameters
        ----------
        table : Table
        where : str
            SQL condition that both engines understand.
        """
        schema = arrow_schema(table)
        if not self.takes(table):
            return self.lake.read(table.name).where(where).toArrow().select(schema.names).cast(schema)
        folder = str(self.lake.folder(table.name))
        files = [_rows_of(folder, file, schema) for file in _files(deltalake.DeltaTable(folder), None)]
        return _select(self.sql, pa.concat_tables([schema.empty_table(), *files]), where)

    def replace(self, table: Table, rows: pa.Table, where: str, days: Days | None = None) -> int:
        """Put rows in place of those that match a condition, in one commit, as `Lake.replace` does.

        Parameters
        ----------
        table : Table
            One of which `takes` says yes.
        rows : pa.Table
            The contract's columns.
        where : str
            SQL condition that both engines understand; every row must meet it.
        days : (str, str), optional
            First and last value of event_date that the condition lets through, so that no other files are read.

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
        folder = str(self.lake.folder(table.name))
        schema = arrow_schema(table)
        rows = rows.select(schema.names)
        broken = self.count_broken(table, rows, where)
        if broken:
            raise SchemaError(
                f"{broken} rows break the contract of {table.name}, or are not among those that are replaced"
            )
        for attempt in range(RETRIES + 1):
            there = deltalake.DeltaTable(folder)
            removed: list[AddAction | RemoveAction] = []
            after = [rows.cast(schema)]
            for file in _files(there, days):
                old = _rows_of(folder, file, schema)
                kept = _select(self.sql, old, f"NOT coalesce({where}, false)")
                if kept.num_rows < old.num_rows:
                    removed.append(RemoveAction(file["path"], True, _now_ms(), file["size_bytes"], _partition(file)))
                    after.append(kept)
            added = list(_written(folder, table, pa.concat_tables(after)))
            if not added and not removed:
                break
            try:
                there.create_write_transaction(
                    [*removed, *added], "append", there.schema(), list(table.partitioned_by),
                    commit_properties=CommitProperties(custom_metadata={"userMetadata": self.lake.metadata()}),
                )  # fmt: skip
            except CommitFailedError as error:
                if attempt == RETRIES:
                    raise conflict(table.name) from error
            else:
                break
        return int(rows.num_rows)

    def append_once(self, table: Table, row: Mapping[str, object], key: str) -> None:
        """Append a row unless an append with the same key was done before, as `Lake.append_once`.

        Raises
        ------
        SchemaError
            When the row breaks the contract.
        """
        rows = pa.Table.from_pylist([row], arrow_schema(table))
        self.lake.ensure(table)
        folder = self.lake.folder(table.name)
        if folder is None or table.change_feed or not self.lake.is_plain(table.name):
            self.lake.append_once(table, self.lake.spark.createDataFrame(rows), key)
            return
        if self.count_broken(table, rows):
            raise SchemaError(f"the row breaks the contract of {table.name}")
        added: list[AddAction | RemoveAction] = [*_written(folder, table, rows)]
        for attempt in range(RETRIES + 1):
            there = deltalake.DeltaTable(folder)
            if there.transaction_version(key) is not None:
                return
            try:
                there.create_write_transaction(
                    added, "append", there.schema(), list(table.partitioned_by),
                    commit_properties=CommitProperties(
                        custom_metadata={"userMetadata": self.lake.metadata()},
                        app_transactions=[Transaction(key, 1, _now_ms())],
                    ),
                )  # fmt: skip
            except CommitFailedError as error:
                # Also who came second with the same key: the next look finds it.
                if attempt == RETRIES:
                    raise conflict(table.name) from error
            else:
                return

    def select(self, rows: pa.Table, where: str) -> pa.Table:
        """Keep the rows that meet a condition that both engines understand."""
        return _select(self.sql, rows, where)

    def count_broken(self, table: Table, rows: pa.Table, where: str = "true") -> int:
        """Count the rows that break the contract of a table, or do not meet a condition.

        Parameters
        ----------
        table : Table
        rows : pa.Table
            The contract's columns.
        where : str
            As for `replace`.
        """
        holds = [f"coalesce({condition}, true)" for condition in table.constraints.values()]
        # Maps do not go into queries.
        required = [column for column in table.columns if not column.nullable]
        holds += [f"{column.name} IS NOT NULL" for column in required if not column.type.startswith("MAP")]
        if any(rows[column.name].null_count for column in required if column.type.startswith("MAP")):
            return int(rows.num_rows)
        holds.append(f"coalesce({where}, false)")
        return int(rows.num_rows - _select(self.sql, rows, " AND ".join(f"({each})" for each in holds)).num_rows)


def _select(sql: ArrowSql, rows: pa.Table, where: str) -> pa.Table:
    """Keep the rows that meet a condition, which is in Spark's SQL: text has escapes, and instants are in UTC."""
    plain = [
        name for name, type_ in zip(rows.column_names, rows.schema.types, strict=True) if not pa.types.is_map(type_)
    ]
    known = without_zones(rows.select(plain))
    text = re.sub(r"'((?:[^'\\]|\\.)*)'", lambda found: quoted(re.sub(r"\\(.)", r"\1", found[1])), where)
    return rows.filter(sql(f"SELECT coalesce({text}, false) AS meets FROM stored", stored=known)["meets"])


def _files(there: deltalake.DeltaTable, days: Days | None) -> Iterator[dict[str, Any]]:
    """List the data files of a table, of some days only; values of partitions are text."""
    files = pa.table(there.get_add_actions(flatten=True))
    partitions = [name for name in files.column_names if name.startswith("partition.")]
    for name in partitions:
        files = files.set_column(files.column_names.index(name), name, files[name].cast(pa.string()))
    for file in files.select(["path", "size_bytes", *partitions]).to_pylist():
        day = file.get("partition.event_date")
        if day is None or days is None or days[0] <= day <= days[1]:
            yield file


def _rows_of(folder: str, file: dict[str, Any], schema: pa.Schema) -> pa.Table:
    rows = pq.read_table(Path(folder, file["path"]), partitioning=None, coerce_int96_timestamp_unit="us")
    for field in schema:
        if field.name not in rows.column_names:  # a partition column, or one that came later
            value = pa.scalar(file.get(f"partition.{field.name}"), pa.string()).cast(field.type)
            rows = rows.append_column(field, pa.repeat(value, rows.num_rows))
    return rows.select(schema.names).cast(schema)


def _partition(file: dict[str, Any]) -> dict[str, str | None] | None:
    return {
        name.removeprefix("partition."): value for name, value in file.items() if name.startswith("partition.")
    } or None


def _written(folder: str, table: Table, rows: pa.Table) -> Iterator[AddAction]:
    """Write the rows to new files, one for each partition."""
    stored = [name for name in rows.column_names if name not in table.partitioned_by]
    for part, values in _parts(rows, table.partitioned_by):
        place = "".join(f"{name}={value}/" for name, value in values.items())
        path = f"{place}part-{uuid.uuid4()}.zstd.parquet"
        Path(folder, place).mkdir(parents=True, exist_ok=True)
        pq.write_table(part.select(stored), Path(folder, path), compression="zstd", store_schema=False)
        size = Path(folder, path).stat().st_size
        yield AddAction(path, size, values, _now_ms(), True, json.dumps({"numRecords": part.num_rows}))


def _parts(rows: pa.Table, by: tuple[str, ...]) -> Iterator[tuple[pa.Table, dict[str, str]]]:
    if not by:
        if rows.num_rows:
            yield rows, {}
        return
    (column,) = by
    text = rows[column].cast(pa.string())
    for value in pc.unique(text).to_pylist():
        yield rows.filter(pc.equal(text, value)), {column: value}


def _now_ms() -> int:
    return int(time.time() * 1000)
