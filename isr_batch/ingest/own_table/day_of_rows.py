"""Merge a source's rows of one day with the lake's rows of that day, and find the rows that are new."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.own_table.checked_rows import TIMES, Checked
from isr_batch.ingest.own_table.row_order import Bools, Ints, order_of_rows
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import DayFile, FileOfWorker
from isr_batch.lake.tables.inputs import FETCH_LOG, OBSERVED_ISR_CHANGES

ROWS_AT_ONCE: Final = 1 << 20
"""Number of rows that are completed with the table's other columns and written to a file at a time."""

_KEYS: Final = ("topic", "partition_id", "leader_id", "leader_epoch")

EpochsInForce = Callable[[pa.Table, str], pa.Array]
"""Function that looks up leader epochs. Its arguments are rows with ``topic`` and ``partition_id``, and the name of
their time column. It returns the leader epoch of each row."""


class MergedRows(NamedTuple):
    """The rows of a day, those of the lake before those of the source, with an order in which duplicates are adjacent.

    Attributes
    ----------
    rows : pa.Table
        All rows. If leader epochs are looked up, the rows contain the result of the new look-up.
    order, is_first : arrays
        Result of `order_of_rows`.
    stored : int
        Number of rows from the lake, which are the first ones in ``rows``.
    has_other_epochs : bool
        Whether the look-up of leader epochs yields another epoch than the stored one for some row from the lake.
    """

    rows: pa.Table
    order: Ints
    is_first: Bools
    stored: int
    has_other_epochs: bool

    @property
    def distinct(self) -> Ints:
        """The indices of the distinct rows, in order. Of duplicates, the row from the lake is used."""
        return self.order[self.is_first]

    @property
    def new(self) -> Ints:
        """The indices of the distinct rows of the source that are not in the lake."""
        distinct = self.distinct
        return distinct[distinct >= self.stored]

    @property
    def is_given(self) -> Bools:
        """For each row in `distinct`, whether the table of the user contains it."""
        return np.bincount(np.cumsum(self.is_first) - 1, self.order >= self.stored) > 0


@dataclass(frozen=True)
class RowsOfCluster:
    """Converts a source's rows of one cluster to rows of a table of the lake.

    Attributes
    ----------
    checked : Checked
        The SELECT with which the source's rows were read and checked.
    cluster_id : str
    leo_source : str
        Value of leader_leo_source for fetches without a leader_log_end_offset.
    """

    checked: Checked
    cluster_id: str
    leo_source: str

    @property
    def time(self) -> str:
        """Name of the table's time column, from which event_date is derived."""
        return TIMES[self.checked.table.name]

    def merged(self, there: pa.Table, given: pa.Table, epochs: EpochsInForce | None) -> MergedRows:
        """Merge the lake's rows of a day with those of a source.

        Parameters
        ----------
        there : pa.Table
            Rows of the lake, with the columns of ``given`` and, if leader epochs are looked up, ``leader_epoch``.
        given : pa.Table
            Rows of the source that passed all checks.
        epochs : callable, optional
            Looks up leader epochs. If it is given, leader epochs are ignored when rows are compared.
        """
        names = given.column_names
        rows = pa.concat_tables([there.select(names), given]).unify_dictionaries()
        order, is_first = order_of_rows(rows, [key for key in _KEYS if key in names], self.time)
        has_changed = False
        if epochs:
            found = epochs(self.with_constants(rows, "topic", "partition_id"), self.time)
            has_changed = not pc.all(pc.equal(found.slice(0, there.num_rows), there["leader_epoch"])).as_py()
            rows = rows.append_column("leader_epoch", found)
        return MergedRows(rows, order, is_first, there.num_rows, has_changed and there.num_rows > 0)

    def with_constants(self, rows: pa.Table, *names: str) -> pa.Table:
        """Return ``rows`` with the named columns. Missing columns are added with their constant value."""
        for name in names:
            if name not in rows.column_names:
                constant = pa.scalar(self.checked.constants[name], arrow_schema(self.checked.table).field(name).type)
                rows = rows.append_column(name, pa.repeat(constant, rows.num_rows))
        return rows

    def counts_by_leader(self, rows: pa.Table, places: Ints | None = None) -> dict[int, int]:
        """Return the number of rows by leader id: of all rows, or of those at the indices ``places``."""
        leaders = self.with_constants(rows, "leader_id")["leader_id"].to_numpy()
        found = np.unique(leaders if places is None else leaders[places], return_counts=True)
        return dict(zip(*(values.tolist() for values in found), strict=True))

    def completed(self, rows: pa.Table, day: str) -> pa.Table:
        """Complete a day's rows with all columns of the table. An ISR change becomes one row per changed replica."""
        table = self.checked.table
        rows = self.checked.completed(rows)
        if table.name == OBSERVED_ISR_CHANGES.name:
            rows = _replicas_that_changed(rows)
        many = rows.num_rows
        of_day = pa.scalar(day).cast(pa.date32())
        more = {"cluster_id": pa.repeat(self.cluster_id, many), "event_date": pa.repeat(of_day, many)}
        if table.name == FETCH_LOG.name:
            source = pc.if_else(pc.is_valid(rows["leader_log_end_offset"]), "logged", self.leo_source)
            one = pa.repeat(pa.scalar(1, pa.int32()), many)
            more |= {"leader_leo_source": source, "run_length": one, "last_handled_time": rows["handled_time"]}
        schema = arrow_schema(table)
        columns = [
            more[field.name] if field.name in more
            else rows[field.name] if field.name in rows.column_names
            else pa.nulls(many, field.type)
            for field in schema
        ]  # fmt: skip
        return pa.table(columns, names=schema.names)

    def written(self, store: Store, day: str, rows: pa.Table, places: Ints) -> FileOfWorker:
        """Complete the rows at the indices ``places``, and write them to a new file of the table."""
        schema = pa.schema([field.with_nullable(True) for field in arrow_schema(self.checked.table)])
        file = DayFile(self.checked.table, store, day, schema)
        for begin in range(0, len(places), ROWS_AT_ONCE):
            some = self.completed(rows.take(pa.array(places[begin : begin + ROWS_AT_ONCE])), day)
            file.write(some.cast(schema), 0)
        return file.close()


def _replicas_that_changed(rows: pa.Table) -> pa.Table:
    """Replace each ISR change by one row per replica that it removes (shrink) or adds (expand)."""
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
