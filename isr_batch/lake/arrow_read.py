"""Read some columns of a lake's tables into Arrow, without Spark if this process can read the files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem
from pyspark.sql import functions as F

from isr_batch.errors import unreadable_file_error
from isr_batch.lake.arrow_rows import TYPES
from isr_batch.lake.delta_files.sound_files import FORMAT, READ, require_sound_footer
from isr_batch.lake.delta_files.stores import Store, data_files
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS


def read_columns(
    lake: Lake, name: str, columns: Sequence[str], equal: Mapping[str, str | Sequence[str]] | None = None
) -> pa.Table:
    """Read columns of a lake's table into Arrow; a table that the lake lacks is empty.

    Parameters
    ----------
    lake : Lake
    name : str
        Of the table.
    columns : sequence of str
    equal : mapping of str to str or sequence of str, optional
        Columns of text, and the value, or one of the values, that a row must have there.

    Returns
    -------
    pa.Table
        The columns with the types of the contract; times are UTC microseconds.

    Raises
    ------
    SchemaError
        When the table's columns or types differ from the contract.
    """
    schema = contract_schema(name, columns)
    if not lake.has(name):
        return schema.empty_table()
    wanted = {column: [value] if isinstance(value, str) else [*value] for column, value in (equal or {}).items()}
    if (rows := lake.in_memory(name)) is not None:
        for column, values in wanted.items():
            rows = rows.filter(pc.is_in(rows[column], pa.array(values, pa.string())))
        return rows.select(columns).cast(schema)
    lake.ensure(TABLES[name])
    store, log = lake.direct_store(name), lake.log(name)
    if store is None or log is None or not lake.is_plain(name):
        rows = lake.read(name)
        for column, values in wanted.items():
            rows = rows.where(F.col(column).isin(values))
        return rows.select(*columns).toArrow().cast(schema)
    files = store.files()
    read = (read_data_file(store, files, file, schema, wanted) for file in data_files(log))
    return pa.concat_tables([schema.empty_table(), *read])


def open_columns(lake: Lake, name: str, columns: Sequence[str]) -> ds.Dataset | pa.Table | None:
    """Open columns of a lake's table, to be read into Arrow batch by batch: tables may have many rows.

    Returns
    -------
    ds.Dataset, pa.Table or None
        The columns with the types of the contract; no rows if the lake lacks the table; None if this process cannot
        read the files.

    Raises
    ------
    SchemaError
        When the table's columns or types differ from the contract.
    """
    schema = contract_schema(name, columns)
    if not lake.has(name):
        return schema.empty_table()
    if (rows := lake.in_memory(name)) is not None:
        return rows.select(columns).cast(schema)
    lake.ensure(TABLES[name])
    store, log = lake.direct_store(name), lake.log(name)
    if store is None or log is None or not lake.is_plain(name):
        return None
    files = store.files()
    by = [column for column in TABLES[name].partitioned_by if column in schema.names]
    fragments = []
    for file in data_files(log):
        values = (ds.field(column) == _value(file, schema.field(column)) for column in by)
        of_file = reduce(and_, values, ds.scalar(True))
        with damaged_files_explained(store, file["path"]):
            require_sound_footer(store, file["path"])
        fragments.append(FORMAT.make_fragment(file["path"], files, of_file))
    if not fragments:
        return schema.empty_table()
    return ds.FileSystemDataset(fragments, schema, FORMAT, files)


def stored_bytes(lake: Lake, name: str) -> int:
    """Size of the files that a read of a lake's table scans; 0 if the lake lacks it."""
    if not lake.has(name) or lake.in_memory(name) is not None:
        return 0
    log = lake.log(name)
    return sum(int(file["size_bytes"]) for file in data_files(log)) if log else int(lake.detail(name)["sizeInBytes"])


def contract_schema(name: str, columns: Sequence[str]) -> pa.Schema:
    """Arrow schema in which some columns of a table are read, by its contract; any may be null."""
    contract = {column.name: column for column in contract_of(name).columns}
    return pa.schema([pa.field(column, TYPES[contract[column].type]) for column in columns])


def contract_of(name: str) -> Table:
    """Find the contract by which a table is read into Arrow, or a view whose rows are read like a table's."""
    return VIEWS[name][0] if name in VIEWS else TABLES[name]


def read_data_file(
    store: Store, files: FileSystem, file: Mapping[str, Any], schema: pa.Schema, wanted: Mapping[str, Sequence[str]]
) -> pa.Table:
    """Read a data file, given its entry in the table's log (`data_files`); ``wanted`` as in `read_columns`.

    Raises
    ------
    SchemaError
        When it cannot be read.
    """
    path = file["path"]
    with damaged_files_explained(store, path):
        require_sound_footer(store, path)
        with files.open_input_file(path) as opened:
            there = pq.read_schema(opened).names
            rows = pq.read_table(
                opened, columns=[name for name in schema.names if name in there],
                filters=[(name, "in", values) for name, values in wanted.items()] or None,
                partitioning=None, **READ,
            )  # fmt: skip
    for field in schema:
        if field.name not in there:  # a partition column, or one that came later
            rows = rows.append_column(field, pa.repeat(_value(file, field), rows.num_rows))
    return rows.select(schema.names).cast(schema)


@contextmanager
def damaged_files_explained(store: Store, path: str) -> Iterator[None]:
    """Turn errors of reading a table's file into a message with the remedy.

    Raises
    ------
    SchemaError
        Naming the file.
    """
    try:
        yield
    except PermissionError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        raise unreadable_file_error(store.address(path)) from error


def _value(file: Mapping[str, Any], field: pa.Field) -> pa.Scalar:
    """Value of a column that the file itself does not have."""
    value = file.get(f"partition.{field.name}")
    return pa.scalar(None if value is None else str(value), pa.string()).cast(field.type)
