"""Merge small data files of a table into large ones.

delta-rs can compact as well, but it neither verifies nor writes checksums. It would copy damaged rows into a new file
that looks valid.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import deltalake
import pyarrow as pa

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.delta_files.commit import Actions, added, commit, removed
from isr_batch.lake.delta_files.open import DirectTable, data_files
from isr_batch.lake.delta_files.read import File, some_rows_of
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import DAY, GROUP_BYTES, DayFile, FileOfWorker
from isr_batch.lake.tables.contract import Table

LARGE: Final = 1 << 27
"""Files of at least this size in bytes are not merged. Merged files have about this size."""


def compact_files(there: DirectTable, table: Table) -> None:
    """Merge the small files of each of a table's partitions, in one commit. The rows stay the same.

    Raises
    ------
    SchemaError
        If a file is damaged.
    WriteConflictError
        If another process writes to the same files.
    """
    commit(there, table, partial(_compacted_files, table, there.store))


def _compacted_files(table: Table, store: Store, there: deltalake.DeltaTable) -> Actions:
    """Write the merged files, and return the actions that replace the small files with the merged ones."""
    groups = [*_files_to_merge(data_files(there, None, "modification_time"))]
    new = [added(_as_one_file(table, store, files), table, moved=True) for files in groups]
    return [*new, *(removed(file, moved=True) for files in groups for file in files)]


def _files_to_merge(files: Sequence[File]) -> Iterator[list[File]]:
    """Yield groups of small files to merge. A group is from one partition, in the order of the files' commits."""
    of_partition = defaultdict(list)
    for file in sorted(files, key=lambda file: (file["modification_time"], file["path"])):
        if file["size_bytes"] < LARGE:
            of_partition[_day_of_file(file)].append(file)
    for small in of_partition.values():
        some: list[File] = []
        for file in small:
            if sum(each["size_bytes"] for each in some) + file["size_bytes"] > LARGE:
                yield from [some] if len(some) > 1 else []
                some = []
            some.append(file)
        yield from [some] if len(some) > 1 else []


def _day_of_file(file: File) -> str:
    """Return the day of a file's partition; empty if the table is not partitioned."""
    return file.get(f"partition.{DAY}") or ""


def _as_one_file(table: Table, store: Store, files: Sequence[File]) -> FileOfWorker:
    """Write the rows of several files to one new file."""
    schema = pa.schema([field for field in arrow_schema(table) if field.name not in table.partitioned_by])
    one = DayFile(table, store, _day_of_file(files[0]), schema)
    held: list[pa.Table] = []
    for file in files:
        for rows in some_rows_of(store, file, schema):
            held.append(rows)
            if sum(each.nbytes for each in held) > GROUP_BYTES:
                one.write(pa.concat_tables(held).combine_chunks())
                held = []
    if held:
        one.write(pa.concat_tables(held).combine_chunks())
    return one.close()
