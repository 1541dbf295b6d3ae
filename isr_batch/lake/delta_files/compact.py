"""Compact small files of a table, in the format of the workers' files.

delta-rs can compact too, but it neither writes nor verifies checksums: a damaged file would become a valid one.
"""

import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any, Final

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, RemoveAction

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.delta_files.commit import Actions, commit, now_ms
from isr_batch.lake.delta_files.sound_files import write_checksums
from isr_batch.lake.delta_files.stores import Store, data_files
from isr_batch.lake.delta_files.write import GROUP_BYTES, parquet_options
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import some_rows_of
from isr_batch.lake.tables.contract import Table

LARGE: Final = 1 << 27
"""Bytes of a file that is left as it is, and of files that become one."""
File = Mapping[str, Any]


def compact_files(lake: Lake, table: Table, store: Store) -> None:
    """Compact the small files of each partition, in one commit that changes no row.

    Raises
    ------
    SchemaError
        When a file is damaged.
    WriteConflictError
        When others write to the same files.
    """
    commit(lake, table, store, partial(_compacted, table, store))


def _compacted(table: Table, store: Store, there: deltalake.DeltaTable) -> Actions:
    actions: list[AddAction | RemoveAction] = []
    for files in _together(table, data_files(there)):
        values = _partition(table, files[0])
        actions.append(_as_one(table, store, files, values))
        actions += [RemoveAction(file["path"], False, now_ms(), file["size_bytes"], values or None) for file in files]
    return actions


def _together(table: Table, files: Sequence[File]) -> Iterator[list[File]]:
    """Choose the groups of files to merge, per partition and in commit order."""
    of_partition = defaultdict(list)
    for file in sorted(files, key=lambda file: (file["modification_time"], file["path"])):
        if file["size_bytes"] < LARGE:
            of_partition[tuple(_partition(table, file).values())].append(file)
    for small in of_partition.values():
        some: list[File] = []
        for file in small:
            if sum(each["size_bytes"] for each in some) + file["size_bytes"] > LARGE:
                yield from [some] if len(some) > 1 else []
                some = []
            some.append(file)
        yield from [some] if len(some) > 1 else []


def _partition(table: Table, file: File) -> dict[str, str | None]:
    values = {name: file[f"partition.{name}"] for name in table.partitioned_by}
    return {name: None if value is None else str(value) for name, value in values.items()}


def _as_one(table: Table, store: Store, files: Sequence[File], values: Mapping[str, str | None]) -> AddAction:
    schema = pa.schema([field for field in arrow_schema(table) if field.name not in table.partitioned_by])
    place = "".join(f"{name}={value}/" for name, value in values.items())
    path, folder = f"{place}part-{uuid.uuid4()}.zstd.parquet", store.files()
    with pq.ParquetWriter(path, schema, filesystem=folder, **parquet_options(table, schema)) as writer:
        held: list[pa.Table] = []
        for file in files:
            for rows in some_rows_of(store, dict(file), schema):
                held.append(rows)
                if sum(each.nbytes for each in held) > GROUP_BYTES:
                    writer.write_table(pa.concat_tables(held).combine_chunks())
                    held = []
        if held:
            writer.write_table(pa.concat_tables(held).combine_chunks())
    write_checksums(store, path)
    size = folder.get_file_info(path).size
    return AddAction(path, size, dict(values), now_ms(), False, json.dumps(_statistics(files)))


def _statistics(files: Sequence[File]) -> dict[str, Any]:
    """Merge the log's statistics of some files, as far as each file has them."""

    def of_all(prefix: str) -> dict[str, list[Any]]:
        names = [name.removeprefix(prefix) for name in files[0] if name.startswith(prefix)]
        found = {name: [file[f"{prefix}{name}"] for file in files] for name in names}
        return {name: values for name, values in found.items() if None not in values}

    return {
        "numRecords": sum(file["num_records"] for file in files),
        "minValues": {name: _in_log(min(values)) for name, values in of_all("min.").items()},
        "maxValues": {name: _in_log(max(values)) for name, values in of_all("max.").items()},
        "nullCount": {name: sum(values) for name, values in of_all("null_count.").items()},
    }


def _in_log(value: Any) -> object:  # noqa: ANN401 (of any type that a column has)
    if isinstance(value, datetime):  # the log has whole milliseconds
        return f"{np.datetime64(value.replace(tzinfo=None), 'ms')}Z"
    return str(value) if isinstance(value, date) else value
