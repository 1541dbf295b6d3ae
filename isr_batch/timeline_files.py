"""Timelines, nearly all of a replay's rows, straight from the workers that make them to their tables' folders.

A task writes the Parquet files of its sets itself, each with rows of one day and rule, and tells the driver of them.
One commit a table then puts these files in place of those of the same days and rules. Files of a task that failed
are in no commit, and VACUUM removes them. docs/adr/0014-timelines-from-the-workers.md has what this saves.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from isr_batch.output_tables import TIMELINES
from isr_batch.tables import Table
from udfs.ledger import DAY_US
from udfs.results import RESULT_SCHEMA

FILE: Final = "file"
"""Kind of result that tells of a file; the column of the same name has it as JSON."""
SCHEMA: Final = RESULT_SCHEMA.append(pa.field(FILE, pa.string()))
"""Of results among which files are told of."""

ROW_GROUP: Final = 1 << 16
"""Rows of a file that are held before they are written: a worker's memory does not grow with its share of the log."""

_TYPES: Final = {
    "STRING": pa.dictionary(pa.int32(), pa.string()), "INT": pa.int32(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"), "ARRAY<INT>": pa.list_(pa.int32()),
}  # fmt: skip
_IN_RESULTS: Final = {"time": "time_us", "isr": "isr_after"}


def timelines_kept(
    results: Iterator[pa.RecordBatch], folders: dict[str, str], since_us: int
) -> Iterator[pa.RecordBatch]:
    """Write the rows of timelines, let others pass, and tell of the files at the end.

    Parameters
    ----------
    results : iterator of RecordBatch
        Each kind in batches of its own; timelines as files take them (``udfs.results.named_results``).
    folders : dict of str
        Of each table, by kind of result.
    since_us : int
        Rows before it are of another window, and dropped.

    Yields
    ------
    RecordBatch
        Of SCHEMA.
    """
    files: dict[tuple[str, int, str], _File] = {}
    schemas = {kind: schema_of_files(TIMELINES[kind]) for kind in folders}
    for batch in results:
        kind = batch.column("result")[0].as_py()
        if kind not in folders:
            yield batch.append_column(SCHEMA.field(FILE), pa.nulls(batch.num_rows, pa.string()))
            continue
        for day, rule, rows in _by_day_and_rule(batch, since_us, schemas[kind]):
            key = kind, day, rule
            if key not in files:
                files[key] = _File(TIMELINES[kind], folders[kind], day, rule, schemas[kind])
            files[key].add(rows)
    told = [{"result": FILE, FILE: json.dumps(file.close())} for file in files.values()]
    if told:
        yield pa.RecordBatch.from_pylist(told, SCHEMA)


def _by_day_and_rule(
    batch: pa.RecordBatch, since_us: int, schema: pa.Schema
) -> Iterator[tuple[int, str, pa.RecordBatch]]:
    """Rows from some time on, as files have them; ordered by rule, so that those of one day are in order already."""
    times = np.asarray(batch.column("time_us"))
    if times.min(initial=since_us) < since_us:
        batch = batch.filter(pa.array(times >= since_us))
        times = np.asarray(batch.column("time_us"))
    if not batch.num_rows:
        return
    rules = batch.column("rule")
    days = times // DAY_US
    group = np.asarray(rules.indices) + (days - days.min()) * len(rules.dictionary)
    if (np.diff(group) < 0).any():
        order = np.argsort(group, kind="stable")
        batch, group, days = batch.take(pa.array(order)), group[order], days[order]
    columns = [batch.column(_IN_RESULTS.get(each.name, each.name)).cast(each.type) for each in schema]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(group)], strict=True):
        yield int(days[start]), batch.column("rule")[start].as_py(), rows.slice(start, end - start)


@dataclass
class _File:
    """A file in the making."""

    table: Table
    folder: str
    day: int
    rule: str
    schema: pa.Schema
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    rows_waiting: int = 0
    metadata: list[pq.FileMetaData] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.partition = {"event_date": str(np.datetime64(self.day, "D")), "rule": self.rule}
        places = [f"{name}={value}" for name, value in self.partition.items()]
        self.path = "/".join([*places, f"part-{uuid.uuid4()}.zstd.parquet"])
        whole = Path(self.folder, self.path)
        whole.parent.mkdir(parents=True, exist_ok=True)
        # Times and offsets grow in small steps: half the bytes and half the time of looking for values that recur.
        steps = [each.name for each in self.schema if each.type in (_TYPES["BIGINT"], _TYPES["TIMESTAMP"])]
        self.writer = pq.ParquetWriter(
            whole,
            self.schema,
            compression="zstd",
            use_dictionary=[name for name in self.schema.names if name not in steps],
            column_encoding=dict.fromkeys(steps, "DELTA_BINARY_PACKED"),
            store_schema=False,
            write_statistics=list(self.table.skipped_by),
            metadata_collector=self.metadata,
        )

    def add(self, rows: pa.RecordBatch) -> None:
        self.waiting.append(rows)
        self.rows_waiting += rows.num_rows
        if self.rows_waiting >= ROW_GROUP:
            self.write()

    def write(self) -> None:
        rows = pa.Table.from_batches(self.waiting, self.schema).unify_dictionaries()
        self.writer.write_table(rows, row_group_size=len(rows))
        self.waiting, self.rows_waiting = [], 0

    def close(self) -> dict[str, Any]:
        """End the file; what a Delta table's log says of it."""
        if self.waiting:
            self.write()
        self.writer.close()
        return {
            "table": self.table.name,
            "path": self.path,
            "size": Path(self.folder, self.path).stat().st_size,
            "partition_values": self.partition,
            "stats": _stats(self.metadata[0], self.table.skipped_by),
        }


def schema_of_files(table: Table) -> pa.Schema:
    """The columns of a table's files: those that it is not partitioned by."""
    stored = [column for column in table.columns if column.name not in table.partitioned_by]
    return pa.schema([pa.field(column.name, _TYPES[column.type], column.nullable) for column in stored])


def _stats(told: pq.FileMetaData, names: Sequence[str]) -> dict[str, Any]:
    groups = [told.row_group(g) for g in range(told.num_row_groups)]
    places = {told.schema.column(c).path: c for c in range(told.num_columns)}
    of = {name: [group.column(places[name]).statistics for group in groups] for name in names}
    return {
        "numRecords": told.num_rows,
        "minValues": {name: _in_log(min(each.min for each in of[name])) for name in names},
        "maxValues": {name: _in_log(max(each.max for each in of[name]), up=True) for name in names},
        "nullCount": dict.fromkeys(names, 0),
    }


def _in_log(value: object, *, up: bool = False) -> object:
    """Delta's log has times in whole milliseconds."""
    if not isinstance(value, datetime):
        return value
    whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
    later = whole + timedelta(milliseconds=1) if up and whole != value else whole
    return later.strftime("%Y-%m-%dT%H:%M:%S.") + f"{later.microsecond // 1000:03d}Z"
