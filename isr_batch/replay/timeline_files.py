"""Timelines, nearly all of a replay's rows, straight from the workers that make them to their tables' folders.

A task writes the Parquet files of its sets itself, each with rows of one day, and tells the driver of them. Most rows
are those of several runs of rules, and no file says whose it is: that is Delta's partition, and in the table's log. So
a file that runs share is written once, and has a name (a hard link) in the folder of each rule.

One commit a table then puts these files in place of those of the same days and rules. Files of a task that failed
are in no commit, and VACUUM removes them. docs/adr/0014-timelines-from-the-workers.md and
0015-runs-share-files.md have what this saves.
"""

import json
import os
import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.outputs import TIMELINES
from udfs.batches.results import RESULT_SCHEMA
from udfs.kernel.ledger import DAY_US

FILE: Final = "file"
"""Kind of result that tells of a file; the column of the same name has it as JSON."""
SCHEMA: Final = RESULT_SCHEMA.append(pa.field(FILE, pa.string()))
"""Of results among which files are told of."""

ROW_GROUP: Final = 1 << 16
"""Rows of a file that are held before they are written."""
ROWS_WAITING: Final = 1 << 19
"""Rows of all files of a task that are held: its memory does not grow with its share of the log."""
SHARED_ROWS: Final = 1 << 13
"""Rows that are worth a file that runs share. Fewer are written for each run, so that files stay few."""

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
        Each kind in batches of its own; timelines as files take them (``udfs.batches.results.named_results``).
    folders : dict of str
        Of each table, by kind of result.
    since_us : int
        Rows before it are of another window, and dropped.

    Yields
    ------
    RecordBatch
        Of SCHEMA.
    """
    files = _Files(folders)
    for batch in results:
        kind = batch.column("result")[0].as_py()
        if kind in folders:
            files.add(kind, batch, since_us)
        else:
            yield batch.append_column(SCHEMA.field(FILE), pa.nulls(batch.num_rows, pa.string()))
    told = [{"result": FILE, FILE: json.dumps(each)} for each in files.close()]
    if told:
        yield pa.RecordBatch.from_pylist(told, SCHEMA)


Key = tuple[str, int, str]
"""Kind of result, day, and the runs as JSON: what tells one file from another."""


class _Files:
    """The files of a task, in the making."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self.folders = folders
        self.schemas = {kind: schema_of_files(TIMELINES[kind]) for kind in folders}
        self.waiting: defaultdict[Key, list[pa.RecordBatch]] = defaultdict(list)
        self.rows_waiting: defaultdict[Key, int] = defaultdict(int)
        self.files: dict[Key, _File] = {}

    def add(self, kind: str, batch: pa.RecordBatch, since_us: int) -> None:
        """Take in rows of a timeline from some time on."""
        for day, runs, rows in _by_day_and_runs(batch, since_us, self.schemas[kind]):
            self._keep((kind, day, runs), rows)
            if self.rows_waiting[kind, day, runs] >= ROW_GROUP:
                self._write((kind, day, runs))
        while sum(self.rows_waiting.values()) > ROWS_WAITING:
            self._write(max(self.rows_waiting, key=self.rows_waiting.__getitem__))

    def _keep(self, key: Key, rows: pa.RecordBatch) -> None:
        self.waiting[key].append(rows)
        self.rows_waiting[key] += rows.num_rows

    def _write(self, key: Key) -> None:
        kind, day, runs = key
        if key not in self.files:
            self.files[key] = _File(TIMELINES[kind], self.folders[kind], day, json.loads(runs), self.schemas[kind])
        self.files[key].write(self.waiting.pop(key))
        del self.rows_waiting[key]

    def close(self) -> Iterator[dict[str, Any]]:
        """End the files; what a Delta table's log says of each of their names."""
        for key in [key for key in self.waiting if key not in self.files and self.rows_waiting[key] < SHARED_ROWS]:
            kind, day, runs = key
            if len(each_run := json.loads(runs)) > 1:
                few = self.waiting.pop(key)
                del self.rows_waiting[key]
                for run in each_run:
                    of_run = kind, day, json.dumps([run])
                    for rows in few:
                        self._keep(of_run, rows)
        for key in list(self.waiting):
            self._write(key)
        for file in self.files.values():
            yield from file.close()


def _by_day_and_runs(
    batch: pa.RecordBatch, since_us: int, schema: pa.Schema
) -> Iterator[tuple[int, str, pa.RecordBatch]]:
    """Rows from some time on, as files have them; ordered by runs, so that those of one day are in order already."""
    times = np.asarray(batch.column("time_us"))
    if times.min(initial=since_us) < since_us:
        batch = batch.filter(pa.array(times >= since_us))
        times = np.asarray(batch.column("time_us"))
    if not batch.num_rows:
        return
    runs = batch.column("runs")
    days = times // DAY_US
    group = np.asarray(runs.indices) + (days - days.min()) * len(runs.dictionary)
    if (np.diff(group) < 0).any():
        order = np.argsort(group, kind="stable")
        batch, group, days = batch.take(pa.array(order)), group[order], days[order]
    columns = [batch.column(_IN_RESULTS.get(each.name, each.name)).cast(each.type) for each in schema]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(group)], strict=True):
        few = rows.slice(start, end - start)
        if 2 * len(few) < len(rows):  # a slice that waits would keep all of the batch
            few = pa.concat_batches([few, few.slice(0, 0)])
        yield int(days[start]), batch.column("runs")[start].as_py(), few


@dataclass
class _File:
    """A file in the making, and the runs (rule, params_json) whose rows it has."""

    table: Table
    folder: str
    day: int
    runs: Sequence[tuple[str, str]]
    schema: pa.Schema
    metadata: list[pq.FileMetaData] = field(default_factory=list)

    def __post_init__(self) -> None:
        name = uuid.uuid4()
        self.date = str(np.datetime64(self.day, "D"))
        self.paths = [
            f"event_date={self.date}/rule={rule}/part-{n:03}-{name}.zstd.parquet"
            for n, (rule, _) in enumerate(self.runs)
        ]
        for path in self.paths:
            Path(self.folder, path).parent.mkdir(parents=True, exist_ok=True)
        # Times and offsets grow in small steps: half the bytes and half the time of looking for values that recur.
        steps = [each.name for each in self.schema if each.type in (_TYPES["BIGINT"], _TYPES["TIMESTAMP"])]
        self.writer = pq.ParquetWriter(
            Path(self.folder, self.paths[0]),
            self.schema,
            compression="zstd",
            use_dictionary=[name for name in self.schema.names if name not in steps],
            column_encoding=dict.fromkeys(steps, "DELTA_BINARY_PACKED"),
            store_schema=False,
            write_statistics=list(self.table.skipped_by),
            metadata_collector=self.metadata,
        )

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        # In one piece: Parquet's writer begins anew with each, and there are hundreds.
        rows = pa.Table.from_batches(batches, self.schema).unify_dictionaries().combine_chunks()
        self.writer.write_table(rows, row_group_size=len(rows))

    def close(self) -> Iterator[dict[str, Any]]:
        """End the file; what a Delta table's log says of each of its names."""
        self.writer.close()
        first = Path(self.folder, self.paths[0])
        for path, (rule, params_json) in zip(self.paths, self.runs, strict=True):
            if path != self.paths[0]:
                _same_file(first, Path(self.folder, path))
            yield {
                "table": self.table.name,
                "path": path,
                "size": first.stat().st_size,
                "partition_values": {"event_date": self.date, "rule": rule, "params_json": params_json},
                "stats": _stats(self.metadata[0], self.table.skipped_by),
            }


def _same_file(first: Path, other: Path) -> None:
    """Under another name; a copy where the file system has no links."""
    try:
        os.link(first, other)
    except OSError:
        shutil.copyfile(first, other)


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
