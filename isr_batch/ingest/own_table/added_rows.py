"""Add the rows to a table that it does not have yet, day by day; equal rows are one."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import functions as F

from isr_batch.ingest.own_table.checked_rows import TIMES, Checked
from isr_batch.ingest.own_table.read_source import with_dictionaries
from isr_batch.ingest.own_table.row_order import Bools, Ints, order_of_rows
from isr_batch.lake.arrow_read import open_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.worker_files import DayFile, FileOfWorker
from isr_batch.window import Window

DAY_US: Final = 86_400_000_000
ROWS_AT_ONCE: Final = 1 << 20
"""Rows of a day that get all columns of their table at once."""

_KEYS: Final = ("topic", "partition_id", "leader_id", "leader_epoch")

EpochsInForce = Callable[[pa.Table, str], pa.Array]
"""Gives the leader epoch of rows with ``topic`` and ``partition_id``, by their column of times (microseconds)."""


@dataclass
class Account:
    """What became of the rows of a source, by day (None: not known) and leader.

    Rows in = new + known + left out + refused.
    """

    new: Counter[tuple[str, int]] = field(default_factory=Counter)
    known: Counter[tuple[str, int]] = field(default_factory=Counter)
    left_out: int = 0
    refused: int = 0
    gone: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Rows of the lake that are taken away: the source that replaces them lacks them."""

    @property
    def rows_in(self) -> int:
        """All rows."""
        return self.new.total() + self.known.total() + self.left_out + self.refused


@dataclass(frozen=True)
class Replaced:
    """Rows of the lake that go unless the source has them: of these days, and perhaps of one leader or topic only."""

    window: Window
    leader_id: int | None = None
    topic: str | None = None

    def are_in(self, rows: pa.Table, time: str) -> Bools:
        """Tell which rows it is about; ``rows`` have ``topic`` and ``leader_id``."""
        us = rows[time].to_numpy()
        chosen: Bools = (us >= self.window.start_us) & (us < self.window.end_us)
        if self.leader_id is not None:
            chosen &= rows["leader_id"].to_numpy() == self.leader_id
        if self.topic is not None:
            chosen &= np.asarray(pc.equal(rows["topic"].cast(pa.string()), self.topic))
        return chosen


@dataclass
class AddedRows:
    """Rows of a cluster that a table is about to get: files are written, but in the table only after `commit`.

    Attributes
    ----------
    checked : Checked
        How the rows were read.
    cluster_id : str
    leo_source : str
        Source of the leader's log end offset for fetches without that value.
    epochs : callable, optional
        Where rows have no leader epoch of their own, but a table of terms has.
    """

    small: SmallTables
    checked: Checked
    cluster_id: str
    leo_source: str
    epochs: EpochsInForce | None
    account: Account
    replaced: Replaced | None = None
    first_new_us: int | None = None
    """The earliest instant of a new row."""
    _files: list[FileOfWorker] = field(default_factory=list)
    _for_spark: list[pa.Table] = field(default_factory=list)
    _days_again: dict[str, pa.Table] = field(default_factory=dict)

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self.small.lake

    @property
    def table(self) -> Table:
        """The table."""
        return self.checked.table

    def add(self, rows: pa.Table, epochs_changed_us: int | None = None) -> None:
        """Find the new ones among clean rows of the cluster.

        Parameters
        ----------
        rows : pa.Table
            Columns of `Checked.columns` but for ``cluster_id``.
        epochs_changed_us : int, optional
            The earliest instant whose leader epoch may be another than it was.
        """
        self.lake.ensure(self.table)
        days = np.asarray(rows[TIMES[self.table]].combine_chunks()) // DAY_US if rows.num_rows else np.zeros(0, int)
        order = np.argsort(days, kind="stable")
        found, begins = np.unique(days[order], return_index=True)
        names = (str(np.datetime64(int(day), "D")) for day in found)
        of_day = dict(zip(names, np.split(order, begins[1:]), strict=False))  # without rows there is one part
        if epochs_changed_us is not None and self.epochs:
            again = str(np.datetime64(epochs_changed_us // DAY_US, "D"))
            of_day = {day: order[:0] for day in self._stored_days() if day >= again} | of_day
        if self.replaced:
            window = self.replaced.window
            of_day = {day: order[:0] for day in self._stored_days() if window.has(date.fromisoformat(day))} | of_day
        for day, places in sorted(of_day.items()):
            self._add_day(day, rows if len(of_day) == 1 else rows.take(pa.array(places)))

    def _add_day(self, day: str, given: pa.Table) -> None:
        there = self._stored_rows(day, [*given.column_names, *(["leader_epoch"] if self.epochs else [])])
        # A leader epoch that is looked up is no part of what a row is.
        rows = pa.concat_tables([there.select(given.column_names), given]).unify_dictionaries()
        order, is_first = order_of_rows(rows, [key for key in _KEYS if key in given.column_names], TIMES[self.table])
        firsts = order[is_first]
        new = firsts[firsts >= there.num_rows]
        stay = firsts if self.replaced is None else self._without_gone(day, rows, order, is_first, there.num_rows)
        self._count(day, given, new - there.num_rows)
        if len(new):
            first_us = pc.min(rows[TIMES[self.table]].take(pa.array(new))).as_py()
            self.first_new_us = min(first_us, first_us if self.first_new_us is None else self.first_new_us)
        has_changed = False
        if self.epochs:
            found = self.epochs(self._with_constants(rows, "topic", "partition_id"), TIMES[self.table])
            rows = rows.append_column("leader_epoch", found)
            has_changed = not pc.all(pc.equal(found.slice(0, there.num_rows), there["leader_epoch"])).as_py()
        if has_changed or len(stay) < len(firsts):
            self._days_again[day] = self._completed(rows.take(pa.array(stay)), day)
            return
        if self.lake.direct_store(self.table.name) is None:
            self._for_spark.append(self._completed(rows.take(pa.array(new)), day))
        elif len(new):
            self._write(day, rows, new)

    def _without_gone(self, day: str, rows: pa.Table, order: Ints, is_first: Bools, stored: int) -> Ints:
        """Places of distinct rows, but for those of the lake that are replaced and that the source lacks."""
        assert self.replaced is not None
        is_given = np.bincount(np.cumsum(is_first) - 1, order >= stored) > 0
        firsts = order[is_first]
        named = self._with_constants(rows, "topic", "leader_id")
        gone = self.replaced.are_in(named, TIMES[self.table])[firsts] & ~is_given
        for leader, many in zip(
            *np.unique(named["leader_id"].to_numpy()[firsts[gone]], return_counts=True), strict=True
        ):
            self.account.gone[day, int(leader)] += int(many)
        return firsts[~gone]

    def _count(self, day: str, given: pa.Table, new: Ints) -> None:
        leaders = self._with_constants(given, "leader_id")["leader_id"].to_numpy()
        of_new = dict(zip(*np.unique(leaders[new], return_counts=True), strict=True))
        for leader, rows in zip(*np.unique(leaders, return_counts=True), strict=True):
            key, added = (day, int(leader)), int(of_new.get(leader, 0))
            self.account.new[key] += added
            self.account.known[key] += int(rows) - added

    def _write(self, day: str, rows: pa.Table, places: Ints) -> None:
        schema = pa.schema([field.with_nullable(True) for field in arrow_schema(self.table)])
        file = DayFile(self.table, self.lake.store(self.table.name), day, schema)
        for begin in range(0, len(places), ROWS_AT_ONCE):
            some = self._completed(rows.take(pa.array(places[begin : begin + ROWS_AT_ONCE])), day)
            file.write(some.cast(schema), 0)
        self._files.append(file.close())

    def _with_constants(self, rows: pa.Table, *names: str) -> pa.Table:
        for name in names:
            if name not in rows.column_names:
                constant = pa.scalar(self.checked.constants[name], arrow_schema(self.table).field(name).type)
                rows = rows.append_column(name, pa.repeat(constant, rows.num_rows))
        return rows

    def _completed(self, rows: pa.Table, day: str) -> pa.Table:
        """Give rows all columns of the table."""
        rows = self.checked.completed(rows)
        if self.table is OBSERVED_ISR_CHANGES:
            rows = _replicas_that_changed(rows)
        many = rows.num_rows
        more = {"cluster_id": pa.repeat(self.cluster_id, many), "event_date": pa.repeat(_date(day), many)}
        if self.table is FETCH_LOG:
            source = pc.if_else(pc.is_valid(rows["leader_log_end_offset"]), "logged", self.leo_source)
            one = pa.repeat(pa.scalar(1, pa.int32()), many)
            more |= {"leader_leo_source": source, "run_length": one, "last_handled_time": rows["handled_time"]}
        schema = arrow_schema(self.table)
        columns = [
            more[field.name] if field.name in more
            else rows[field.name] if field.name in rows.column_names
            else pa.nulls(many, field.type)
            for field in schema
        ]  # fmt: skip
        return pa.table(columns, names=schema.names)

    def _stored_days(self) -> set[str]:
        files = open_columns(self.lake, self.table.name, ["event_date", "cluster_id"])
        if files is None:
            rows = self.lake.read(self.table.name).where(F.col("cluster_id") == self.cluster_id)
            return {str(row[0]) for row in rows.select("event_date").distinct().collect()}
        found = _of_cluster(files, self.cluster_id, None, ["event_date"])
        return {str(day) for day in pc.unique(found["event_date"]).to_pylist()}

    def _stored_rows(self, day: str, names: list[str]) -> pa.Table:
        """Read what the table has of the cluster on a day, as `Checked` has it."""
        files = open_columns(self.lake, self.table.name, [*names, "cluster_id", "event_date"])
        if files is None:
            where = f"cluster_id = {sql_literal(self.cluster_id)} AND event_date = DATE'{day}'"
            rows = self.lake.read(self.table.name).where(where).select(*names).toArrow()
        else:
            rows = _of_cluster(files, self.cluster_id, day, names)
        return with_dictionaries(rows, self.checked)

    def commit(self) -> None:
        """Put the rows into the table."""
        name = self.table.name
        if self._files:
            self.small.add_files(self.table, self._files)
        if any(rows.num_rows for rows in self._for_spark):
            rows = pa.concat_tables(self._for_spark).cast(arrow_schema(self.table))
            self.lake.append_once(self.table, self.lake.spark.createDataFrame(rows), f"{self.lake.run_id}/{name}")
        for day, rows in self._days_again.items():
            where = f"cluster_id = {sql_literal(self.cluster_id)} AND event_date = DATE'{day}'"
            if self.small.takes(self.table, (day, day), where):
                self.small.replace(self.table, rows, where, (day, day))
            else:
                self.lake.replace(
                    self.table, self.lake.spark.createDataFrame(rows.cast(arrow_schema(self.table))), where
                )

    def discard(self) -> None:
        """Delete the files that were written: the rows are not wanted."""
        for file in self._files:
            self.lake.store(self.table.name).files().delete_file(file.path)


def _date(day: str) -> pa.Scalar:
    return pa.scalar(day).cast(pa.date32())


def _of_cluster(files: ds.Dataset | pa.Table, cluster_id: str, day: str | None, names: list[str]) -> pa.Table:
    of_cluster = ds.field("cluster_id") == cluster_id
    if day is not None:
        of_cluster &= ds.field("event_date") == _date(day)
    return (ds.dataset(files) if isinstance(files, pa.Table) else files).to_table(names, of_cluster)


def _replicas_that_changed(rows: pa.Table) -> pa.Table:
    """Make a row for each replica that is in one of the ISRs before and after, but not in both."""
    before, after = rows["isr_before"].to_pylist(), rows["isr_after"].to_pylist()
    found = [
        (place, kind, replica)
        for place, (was, now) in enumerate(zip(before, after, strict=True))
        for kind, replicas in (("shrink", set(was) - set(now)), ("expand", set(now) - set(was)))
        for replica in sorted(replicas)
    ]
    places, kinds, replicas = zip(*found, strict=True) if found else ((), (), ())
    return (
        rows.take(pa.array(places, pa.int64()))
        .append_column("kind", pa.array(kinds, pa.string()))
        .append_column("replica_id", pa.array(replicas, pa.int32()))
    )
