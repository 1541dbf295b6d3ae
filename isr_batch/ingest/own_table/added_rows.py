"""Add the rows of a source to a table of the lake, day by day. Rows that the table has already are not added again."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import functions as F

from isr_batch.ingest.own_table.day_of_rows import EpochsInForce, MergedRows, RowsOfCluster
from isr_batch.ingest.own_table.read_source import with_dictionaries
from isr_batch.ingest.own_table.row_order import Bools, Ints
from isr_batch.lake.arrow_read import open_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.contract import Table
from isr_batch.window import Window

DAY_US: Final = 86_400_000_000


@dataclass
class Account:
    """Numbers of rows of a source by outcome: new, already known, left out, or refused.

    New and known rows are counted by (day, leader).
    """

    new: Counter[tuple[str, int]] = field(default_factory=Counter)
    known: Counter[tuple[str, int]] = field(default_factory=Counter)
    left_out: int = 0
    refused: int = 0
    gone: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Numbers of rows that ``--replace`` deletes from the lake because the source does not contain them, by (day,
    leader)."""

    @property
    def rows_in(self) -> int:
        """Total number of rows in the source."""
        return self.new.total() + self.known.total() + self.left_out + self.refused

    def count(self, day: str, given: dict[int, int], new: dict[int, int]) -> None:
        """Count the rows of a day.

        Parameters
        ----------
        day : str
        given : dict of int to int
            By leader, the number of rows in the source.
        new : dict of int to int
            By leader, the number of these rows that the lake did not have yet.
        """
        for leader, rows in given.items():
            added = new.get(leader, 0)
            self.new[day, leader] += added
            self.known[day, leader] += rows - added


@dataclass(frozen=True)
class Replaced:
    """Which rows of the lake the source replaces (``--replace``): some days, perhaps only of one leader or topic."""

    window: Window
    leader_id: int | None = None
    topic: str | None = None

    def are_in(self, rows: pa.Table, time: str) -> Bools:
        """Return a mask of the rows to replace. ``rows`` has ``topic``, ``leader_id`` and a time column, ``time``."""
        us = rows[time].to_numpy()
        chosen: Bools = (us >= self.window.start_us) & (us < self.window.end_us)
        if self.leader_id is not None:
            chosen &= rows["leader_id"].to_numpy() == self.leader_id
        if self.topic is not None:
            chosen &= np.asarray(pc.equal(rows["topic"].cast(pa.string()), self.topic))
        return chosen


@dataclass
class AddedRows:
    """Collects the new rows of a cluster for one table, and writes them to files, which `commit` adds to the table.

    Attributes
    ----------
    target : RowsOfCluster
        Converts rows of the source to rows of the table.
    epochs : callable, optional
        Looks up leader epochs in the user's table of terms. None unless there is such a table and the rows lack epochs.
    replaced : Replaced, optional
        Which rows of the lake are deleted if the source does not contain them.
    """

    small: SmallTables
    target: RowsOfCluster
    epochs: EpochsInForce | None
    account: Account
    replaced: Replaced | None = None
    first_new_us: int | None = None
    """Earliest time of a new row, in microseconds since 1970; None without new rows."""
    files: list[FileOfWorker] = field(default_factory=list)
    _for_spark: list[pa.Table] = field(default_factory=list)
    _days_again: dict[str, pa.Table] = field(default_factory=dict)

    @property
    def lake(self) -> Lake:
        """The lake of the table."""
        return self.small.lake

    @property
    def table(self) -> Table:
        """The table to which the rows are added."""
        return self.target.checked.table

    def add(self, rows: pa.Table, epochs_changed_us: int | None = None) -> None:
        """Find the rows that the table does not have yet, and write them to files.

        Parameters
        ----------
        rows : pa.Table
            Rows that passed all checks, with the columns of `Checked.columns` except ``cluster_id``.
        epochs_changed_us : int, optional
            The time from which on the user's table of terms has changed, in microseconds since 1970; None if it is
            unchanged. For stored rows of this day and later days, leader epochs are looked up again.
        """
        self.lake.ensure(self.table)
        days = np.asarray(rows[self.target.time].combine_chunks()) // DAY_US if rows.num_rows else np.zeros(0, int)
        order = np.argsort(days, kind="stable")
        found, begins = np.unique(days[order], return_index=True)
        names = (str(np.datetime64(int(day), "D")) for day in found)
        of_day = dict(
            zip(names, np.split(order, begins[1:]), strict=False)
        )  # np.split returns one part even without rows
        if epochs_changed_us is not None and self.epochs:
            again = str(np.datetime64(epochs_changed_us // DAY_US, "D"))
            of_day = {day: order[:0] for day in self._stored_days() if day >= again} | of_day
        if self.replaced:
            window = self.replaced.window
            of_day = {day: order[:0] for day in self._stored_days() if window.has(date.fromisoformat(day))} | of_day
        for day, places in sorted(of_day.items()):
            self._add_day(day, rows if len(of_day) == 1 else rows.take(pa.array(places)))

    def _add_day(self, day: str, given: pa.Table) -> None:
        """Merge a day's rows with the table's. New rows are written to a file, or kept until Spark writes them.

        If stored rows change, all rows of the day are kept, and `commit` replaces the day.
        """
        there = self._stored_rows(day, [*given.column_names, *(["leader_epoch"] if self.epochs else [])])
        merged = self.target.merged(there, given, self.epochs)
        stay = merged.distinct if self.replaced is None else self._without_gone(day, merged, self.replaced)
        new = merged.new
        self.account.count(day, self.target.counts_by_leader(given), self.target.counts_by_leader(merged.rows, new))
        if len(new):
            first_us = pc.min(merged.rows[self.target.time].take(pa.array(new))).as_py()
            self.first_new_us = min(first_us, first_us if self.first_new_us is None else self.first_new_us)
        if merged.has_other_epochs or len(stay) < len(merged.distinct):
            self._days_again[day] = self.target.completed(merged.rows.take(pa.array(stay)), day)
        elif len(new) and self.lake.reached(self.table.name) is None:
            self._for_spark.append(self.target.completed(merged.rows.take(pa.array(new)), day))
        elif len(new):
            self.files.append(self.target.written(self.lake.by_delta_rs(self.table.name).store, day, merged.rows, new))

    def _without_gone(self, day: str, merged: MergedRows, replaced: Replaced) -> Ints:
        """Return the indices of the rows that stay: all distinct rows except those to replace that the source lacks."""
        distinct = merged.distinct
        named = self.target.with_constants(merged.rows, "topic", "leader_id")
        gone = replaced.are_in(named, self.target.time)[distinct] & ~merged.is_given
        for leader, many in self.target.counts_by_leader(merged.rows, distinct[gone]).items():
            self.account.gone[day, leader] += many
        return distinct[~gone]

    def _stored_days(self) -> set[str]:
        """Return the days for which the table contains rows of the cluster."""
        files = open_columns(self.lake, self.table.name, ["event_date", "cluster_id"])
        if files is None:
            rows = self.lake.read(self.table.name).where(F.col("cluster_id") == self.target.cluster_id)
            return {str(row[0]) for row in rows.select("event_date").distinct().collect()}
        found = _stored_rows_of_cluster(files, self.target.cluster_id, None, ["event_date"])
        return {str(day) for day in pc.unique(found["event_date"]).to_pylist()}

    def _stored_rows(self, day: str, names: list[str]) -> pa.Table:
        """Return the cluster's rows of a day in the table, with the columns ``names``."""
        files = open_columns(self.lake, self.table.name, [*names, "cluster_id", "event_date"])
        if files is None:
            where = f"cluster_id = {sql_literal(self.target.cluster_id)} AND event_date = DATE'{day}'"
            rows = self.lake.read(self.table.name).where(where).select(*names).toArrow()
        else:
            rows = _stored_rows_of_cluster(files, self.target.cluster_id, day, names)
        return with_dictionaries(rows, self.target.checked)

    def commit(self) -> None:
        """Write to the table: replace each day whose stored rows have changed, and add the new rows of other days."""
        name = self.table.name
        for day, rows in self._days_again.items():
            where = f"cluster_id = {sql_literal(self.target.cluster_id)} AND event_date = DATE'{day}'"
            if self.small.takes(self.table, (day, day), where):
                self.small.replace(self.table, rows, where, (day, day))
            else:
                conformed = rows.cast(arrow_schema(self.table))
                self.lake.replace(self.table, self.lake.spark.createDataFrame(conformed), where)
        if self.files:
            self.small.add_files(self.table, self.files)
        if any(rows.num_rows for rows in self._for_spark):
            rows = pa.concat_tables(self._for_spark).cast(arrow_schema(self.table))
            self.lake.append_once(self.table, self.lake.spark.createDataFrame(rows), f"{self.lake.run_id}/{name}")

    def discard(self) -> None:
        """Delete the written files. Called if the ingest fails."""
        for file in self.files:
            self.lake.by_delta_rs(self.table.name).store.files().delete_file(file.path)


def _stored_rows_of_cluster(
    files: ds.Dataset | pa.Table, cluster_id: str, day: str | None, names: list[str]
) -> pa.Table:
    """Return columns of a cluster's rows in a table: of one day, or of all days if ``day`` is None."""
    of_cluster = ds.field("cluster_id") == cluster_id
    if day is not None:
        of_cluster &= ds.field("event_date") == pa.scalar(day).cast(pa.date32())
    return (ds.dataset(files) if isinstance(files, pa.Table) else files).to_table(names, of_cluster)
