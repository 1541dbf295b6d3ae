"""Let workers write timelines, which are nearly all result rows of a replay, directly to files of their tables.

Most rows are the same for several rule runs. Such a row is written only once, with one bit per rule run that has it
(docs/adr/0024-timelines-once.md has the savings). A task writes one file per day, to any store that delta-rs supports,
and reports its files to the driver. One commit then adds all files (``timeline_tables``). Files of a failed task are
never added, and VACUUM deletes them.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pyarrow as pa

from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import DayFile
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.timelines import TIMELINES
from udfs.batches.results import RESULT_SCHEMA
from udfs.kernel.ledger import DAY_US

FILE: Final = "file"
"""Kind of a result row with which a worker reports a file that it wrote, or a set of rule runs. It is also the name of
the column that contains the report as JSON."""
SCHEMA: Final = RESULT_SCHEMA.append(pa.field(FILE, pa.string()))
"""Schema of a replay's results, with the column `FILE` for reports."""

ROW_GROUP: Final = 1 << 16
"""Number of rows that a task collects for a file before it writes them as one row group."""
ROWS_WAITING: Final = 1 << 19
"""Maximum number of rows that a task has collected for all its files and not written yet. It limits the task's
memory."""

_TYPES: Final = {
    "STRING": pa.dictionary(pa.int32(), pa.string()), "INT": pa.int32(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"), "ARRAY<INT>": pa.list_(pa.int32()),
}  # fmt: skip
_IN_RESULTS: Final = {"time": "time_us", "isr": "isr_after"}


def timelines_kept(
    results: Iterator[pa.RecordBatch], stores: Mapping[str, Store], since_us: int, replay_id: str
) -> Iterator[pa.RecordBatch]:
    """Write the rows of timelines to files. Yield all other rows, and at the end reports of the files.

    Parameters
    ----------
    results : iterator of RecordBatch
        Results. A batch contains results of only one kind. Timelines have the columns in which they are stored
        (``udfs.batches.results.STATES``).
    stores : dict of Store
        Store of each timeline's table, by kind of result. Other kinds are passed through.
    since_us : int
        Rows of timelines before this time, in epoch microseconds, are dropped, because they belong to another window.
    replay_id : str
        Id of this replay. It is part of ``run_set``, which distinguishes its rule runs from those of other replays.

    Yields
    ------
    RecordBatch
        Rows with the schema `SCHEMA`.
    """
    files = _TimelineFiles(stores, replay_id)
    try:
        for batch in results:
            kind = batch.column("result")[0].as_py()
            if kind in stores:
                files.add(kind, batch, since_us)
            else:
                yield batch.append_column(SCHEMA.field(FILE), pa.nulls(batch.num_rows, pa.string()))
        described = [{"result": FILE, FILE: json.dumps(each)} for each in files.close()]
    except BaseException:
        files.abandon()
        raise
    if described:
        yield pa.RecordBatch.from_pylist(described, SCHEMA)


def replay_of(run_set: str) -> str:
    """Return the id of the replay that wrote the timeline rows whose column ``run_set`` has this value."""
    return run_set.partition("-")[0]


Key = tuple[str, int]
"""Key of a file: the kind of result, and the day as number of days since 1970."""


class _TimelineFiles:
    """Writes the timelines of a task to one file per kind and day."""

    def __init__(self, stores: Mapping[str, Store], replay_id: str) -> None:
        self.stores, self.replay_id = stores, replay_id
        self.schemas = {kind: schema_of_files(TIMELINES[kind]) for kind in stores}
        self.waiting: defaultdict[Key, list[pa.RecordBatch]] = defaultdict(list)
        self.rows_waiting: defaultdict[Key, int] = defaultdict(int)
        self.files: dict[Key, DayFile] = {}
        self.run_sets: dict[str, str] = {}
        self.days_of: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, kind: str, batch: pa.RecordBatch, since_us: int) -> None:
        """Collect the rows of a timeline that are not earlier than ``since_us``, and write them once there are many.

        ``kind`` is the timeline's kind of result.
        """
        for day, rows in _timeline_by_day(self._named(batch), since_us, self.schemas[kind]):
            sets = rows.column("run_set")
            for index in np.unique(np.asarray(sets.indices)):
                self.days_of[sets.dictionary[int(index)].as_py()].add(_date_of_timeline(day))
            key = kind, day
            self.waiting[key].append(rows)
            self.rows_waiting[key] += rows.num_rows
            if self.rows_waiting[key] >= ROW_GROUP:
                self._write(key)
        while sum(self.rows_waiting.values()) > ROWS_WAITING:
            self._write(max(self.rows_waiting, key=self.rows_waiting.__getitem__))

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Replace the kernel's lists of rule runs in ``run_set`` with names that are unique in the lake."""
        sets = batch.column("run_set")
        names = []
        for runs in sets.dictionary.to_pylist():
            names.append(f"{self.replay_id}-{hashlib.sha256(runs.encode()).hexdigest()[:8]}")
            self.run_sets[names[-1]] = runs
        named = pa.DictionaryArray.from_arrays(sets.indices, pa.array(names, pa.string()))
        return batch.set_column(batch.schema.get_field_index("run_set"), "run_set", named)

    def _write(self, key: Key) -> None:
        """Write the collected rows of one timeline and day to their file, as one row group."""
        kind, day = key
        if key not in self.files:
            self.files[key] = DayFile(TIMELINES[kind], self.stores[kind], _date_of_timeline(day), self.schemas[kind])
        # The hundreds of chunks are combined into one, because the Parquet writer has overhead for each chunk.
        rows = pa.Table.from_batches(self.waiting.pop(key), self.schemas[kind])
        self.files[key].write(rows.unify_dictionaries().combine_chunks())
        del self.rows_waiting[key]

    def close(self) -> Iterator[dict[str, Any]]:
        """Write the remaining rows and close the files. Yield a report per file, and one per set of rule runs."""
        for key in list(self.waiting):
            self._write(key)
        with ThreadPoolExecutor(
            len(self.files) or 1
        ) as pool:  # concurrently, because closing a file waits for the store
            for file, closed in zip(self.files.values(), pool.map(DayFile.close, self.files.values()), strict=True):
                yield {"table": file.table.name, "file": asdict(closed)}
        for run_set, days in self.days_of.items():
            yield {"run_set": run_set, "runs": json.loads(self.run_sets[run_set]), "days": sorted(days)}

    def abandon(self) -> None:
        """Stop writing after a failure. The files stay incomplete, and are never added to a table."""
        for file in self.files.values():
            file.abandon()


def _date_of_timeline(day: int) -> str:
    """Return a day, given as number of days since 1970, as text such as "2026-01-31"."""
    return str(np.datetime64(day, "D"))


def _timeline_by_day(batch: pa.RecordBatch, since_us: int, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Drop rows before ``since_us``, convert the others to the columns of a file, and yield (day, rows of the day)."""
    times = np.asarray(batch.column("time_us"))
    if times.min(initial=since_us) < since_us:
        batch = batch.filter(pa.array(times >= since_us))
        times = np.asarray(batch.column("time_us"))
    if not batch.num_rows:
        return
    days = times // DAY_US
    if (np.diff(days) < 0).any():
        order = np.argsort(days, kind="stable")
        batch, days = batch.take(pa.array(order)), days[order]
    columns = [batch.column(_IN_RESULTS.get(each.name, each.name)).cast(each.type) for each in schema]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    starts = np.flatnonzero(np.diff(days, prepend=days[0] - 1))
    for start, end in zip(starts, [*starts[1:], len(days)], strict=True):
        few = rows.slice(start, end - start)
        if 2 * len(few) < len(rows):  # copy the rows, because a slice keeps the whole batch in memory
            few = pa.concat_batches([few, few.slice(0, 0)])
        yield int(days[start]), few


def schema_of_files(table: Table) -> pa.Schema:
    """Return the schema of a timeline table's files: its columns except those by which it is partitioned."""
    stored = [column for column in table.columns if column.name not in table.partitioned_by]
    return pa.schema([pa.field(column.name, _TYPES[column.type], column.nullable) for column in stored])
