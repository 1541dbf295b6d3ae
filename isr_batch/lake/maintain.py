"""Maintain a lake's tables: merge small files, delete unreferenced files, and delete old replay states.

delta-rs is used if possible, because it takes milliseconds per table. Spark takes about four seconds per table,
whatever its size.
"""

from datetime import timedelta
from pathlib import Path

import pyarrow.compute as pc
from deltalake import CommitProperties
from deltalake.exceptions import CommitFailedError

from isr_batch.errors import write_conflict_error
from isr_batch.lake import sizes
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.compact import compact_files
from isr_batch.lake.delta_files.open import DirectTable
from isr_batch.lake.delta_files.write import has_binaries
from isr_batch.lake.duckdb_engine import replace_arrow
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.outputs import REPLAY_STATE, TABLES

Row = dict[str, object]


def maintain_tables(lake: Lake, retain_hours: int, state_days: int) -> list[Row]:
    """Merge small files and delete unreferenced files in every table of the lake, and delete old replay states.

    Parameters
    ----------
    lake : Lake
    retain_hours : int
        Files that no current version references are deleted once they are this old. Table versions that need them can
        then no longer be read.
    state_days : int
        The replay states of this many most recent days are kept, so that a replay can continue from them. A replay of
        an older day starts at the beginning of the log.

    Returns
    -------
    list of dict
        One dict per table: ``table`` (its name), ``files_before`` and ``files_after`` (numbers of data files), and
        ``bytes`` (their total size afterwards).

    Raises
    ------
    WriteConflictError
        If another process writes to a table at the same time.
    """
    if lake.has(REPLAY_STATE.name):
        _maintain_old_states(lake, state_days)
    return [_maintain_table(lake, table, retain_hours) for table in TABLES.values() if lake.has(table.name)]


def _maintain_old_states(lake: Lake, days: int) -> None:
    """Delete the stored replay states of all but the last ``days`` days."""
    kept = pc.min_max(read_columns(lake, REPLAY_STATE.name, ["event_date"])["event_date"])
    first, last = kept["min"].as_py(), kept["max"].as_py()
    if last is not None and first <= last - timedelta(days=days):
        where = f"event_date <= DATE'{last - timedelta(days=days)}'"
        with ArrowSql() as sql:
            replace_arrow(lake, sql, REPLAY_STATE, arrow_schema(REPLAY_STATE).empty_table(), where)


def _maintain_table(lake: Lake, table: Table, retain_hours: int) -> Row:
    """Merge small files of a table and delete unreferenced files. Return its row of `maintain_tables`.

    Files that have been unreferenced for ``retain_hours`` are deleted.
    """
    before, size = _count_data_files(lake, table)
    there = lake.direct(table.name)
    if there and size <= sizes.MAINTAINED_BYTES:
        _maintain_here(there, table, retain_hours)
    else:
        identifier = lake.identifier(table.name)
        if not has_binaries(table):
            lake.spark.sql(f"OPTIMIZE {identifier}")
        lake.spark.sql(f"VACUUM {identifier} RETAIN {retain_hours} HOURS")
    lake.was_written(table.name)
    after, size = _count_data_files(lake, table)
    return {"table": table.name, "files_before": before, "files_after": after, "bytes": size}


def _maintain_here(there: DirectTable, table: Table, retain_hours: int) -> None:
    """Merge small files of a table, and delete files unreferenced for ``retain_hours``, with delta-rs."""
    said = CommitProperties(custom_metadata={"userMetadata": there.metadata()})
    try:
        # Tables with binary columns are not compacted: their files are already large, and must keep small row groups,
        # because their rows are read by location (`delta_files.write`).
        if not has_binaries(table):
            compact_files(there, table)
        there.store.table().vacuum(
            retain_hours, dry_run=False, enforce_retention_duration=False, commit_properties=said, full=True
        )
    except CommitFailedError as error:
        raise write_conflict_error(table.name) from error
    if there.store.is_folder:
        _maintain_checksums(Path(there.store.uri))


def _maintain_checksums(folder: Path) -> None:
    """Delete checksum files whose data file no longer exists."""
    for sums in folder.rglob(".*.parquet.crc"):
        if "_delta_log" not in sums.parts and not sums.with_name(sums.name[1 : -len(".crc")]).exists():
            sums.unlink(missing_ok=True)


def _count_data_files(lake: Lake, table: Table) -> tuple[int, int]:
    """Return the number of a table's data files, and their total size in bytes."""
    if there := lake.reached(table.name):
        sizes = [file["size_bytes"] for file in there.data_files()]
        return len(sizes), sum(sizes)
    detail = lake.detail(table.name)
    return detail["numFiles"], detail["sizeInBytes"]
