"""Let Spark's workers write results (all but timelines) directly to files of their tables.

For a log with many ISR changes, Spark's own writer would take longer than the replay. A worker with few results sends
them to the driver instead of writing them, so that tables do not get a small file from each task.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.lake import sizes
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import FileOfWorker, TaskFiles
from isr_batch.lake.duckdb_engine import answered
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.replay.result_tables import SCORED_TABLES, scored_result_tables
from isr_batch.replay.timeline_files import FILE, SCHEMA
from isr_batch.window import Window
from udfs.batches.results import SCORED, SET_COLUMNS

RESULT_FILE: Final = "result file"
"""Kind of a result row that reports a written file. Its column `FILE` contains the report as JSON."""
HELD_ROWS: Final = 1 << 15
"""Number of rows that a worker collects before it writes them. The ISR changes of a replica set (a partition on one
leader) are collected until they are complete."""
_OF_SET: Final = ["rule", *SET_COLUMNS]


class ResultFiles(NamedTuple):
    """How workers write results: to which tables, which rows, and from how many rows on they write a file.

    Attributes
    ----------
    stores : dict of Store
        Store of each table, by name.
    where : str
        SQL condition that all written rows must meet, else the replay fails.
    in_window : str
        SQL condition that selects the rows to write.
    few_of_task, held_rows : int
        The driver's values of `sizes.TASK_ROWS` and `HELD_ROWS`. Workers use them in place of the values in their
        process.
    """

    stores: Mapping[str, Store]
    where: str
    in_window: str
    few_of_task: int
    held_rows: int


def result_files_for(lake: Lake, where: str, window: Window) -> ResultFiles | None:
    """Return the settings with which workers write results. Tables' rows that meet ``where`` will be replaced.

    None if workers cannot write to one of the tables.
    """
    stores = {}
    with ArrowSql() as sql:
        small = SmallTables(lake, sql)
        for table in SCORED_TABLES:
            to = small.takes(table, window.days, where)
            if to is None:
                return None
            stores[table.name] = to.store
    return ResultFiles(stores, where, window.condition, sizes.TASK_ROWS, HELD_ROWS)


def results_written(results: Iterator[pa.RecordBatch], to: ResultFiles) -> Iterator[pa.RecordBatch]:
    """Write results to files, and pass all other rows through. This runs in a worker.

    Parameters
    ----------
    results : iterator of RecordBatch
        Rows with the schema ``timeline_files.SCHEMA``. A batch contains results of only one kind. For each rule, all
        results for one replica set (a partition on one leader) come before those for the next replica set.
    to : ResultFiles

    Yields
    ------
    RecordBatch
        Rows with the same schema: the results that are not written, and reports of the written files.
    """
    held = _HeldResultFiles(to)
    for batch in results:
        if batch.column("result")[0].as_py() in SCORED:
            held.add(batch)
        else:
            yield batch
    yield from held.close()


def reported_result_files(reports: Sequence[str]) -> dict[str, list[FileOfWorker]]:
    """Return the written files by name of their table, parsed from workers' reports (JSON)."""
    found: dict[str, list[FileOfWorker]] = {}
    for report in map(json.loads, reports):
        found.setdefault(report["table"], []).append(FileOfWorker(**report["file"]))
    return found


class _HeldResultFiles:
    """Collects the results of one Spark task, and writes them to files if there are many."""

    def __init__(self, to: ResultFiles) -> None:
        self.to = to
        self.waiting: list[pa.RecordBatch] = []
        self.rows = 0
        self.sql: ArrowSql | None = None
        self.files: dict[str, TaskFiles] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Collect results. Once there are over `HELD_ROWS`, write all except the last replica set's ISR changes."""
        self.waiting.append(batch)
        self.rows += batch.num_rows
        if self.rows > self.to.held_rows:
            rows = pa.Table.from_batches(self.waiting, SCHEMA)
            going_on = _sets_that_may_go_on(rows)
            self._write(rows.filter(pa.array(~going_on)))
            self.waiting = rows.filter(pa.array(going_on)).combine_chunks().to_batches()
            self.rows = int(going_on.sum())

    def close(self) -> Iterator[pa.RecordBatch]:
        """Write the remaining results, and yield reports of the files. If there are few results in all, yield these."""
        if not self.files and self.rows <= self.to.few_of_task:
            yield from self.waiting
            return
        self._write(pa.Table.from_batches(self.waiting, SCHEMA))
        with ThreadPoolExecutor(len(self.files)) as pool:  # concurrently, because closing a file waits for the store
            ended = pool.map(lambda files: list(files.close()), self.files.values())
        reports = [
            {"result": RESULT_FILE, FILE: json.dumps({"table": name, "file": asdict(file)})}
            for name, files in zip(self.files, ended, strict=True)
            for file in files
        ]
        yield pa.RecordBatch.from_pylist(reports, SCHEMA)

    def _write(self, rows: pa.Table) -> None:
        """Convert results to rows of their tables, and write them to files."""
        if self.sql is None:
            self.sql = ArrowSql(threads=1)
            self.files = {
                name: TaskFiles(TABLES[name], store, self.to.where, self.sql) for name, store in self.to.stores.items()
            }
        ask = partial(answered, self.sql)
        for table, made in scored_result_tables(ask, rows).items():
            wanted = ask(f"SELECT * FROM {{made}} AS made WHERE {self.to.in_window}", made=made)
            for batch in wanted.select(table.column_names).combine_chunks().to_batches():
                self.files[table.name].add(batch)


def _sets_that_may_go_on(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of those ISR changes that belong to the last replica set of their rule in ``rows``.

    More changes of this replica set may follow in the next batch, and its changes must be converted together.
    """
    numbered = rows.select(_OF_SET).append_column("n", pa.array(np.arange(len(rows))))
    changes = numbered.filter(pc.equal(rows["result"], "change"))
    last = numbered.take(changes.group_by("rule").aggregate([("n", "max")])["n_max"]).select(_OF_SET)
    going_on = np.zeros(len(rows), np.bool_)
    going_on[changes.join(last, _OF_SET, join_type="left semi")["n"].to_numpy()] = True
    return going_on
