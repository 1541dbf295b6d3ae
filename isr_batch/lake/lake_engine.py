"""The interface of the two engines for SQL over a lake's tables: DuckDB in this process, and Spark.

Both engines run the same SQL text. In the text, ``{name}`` stands for a table, and functions have Spark's names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import Any, Final, Protocol

import pyarrow as pa

from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.tables.contract import Table

Rows = Any
"""Rows of a table or of a query's result, in the engine's own form. Only the engine that returned them can use them."""
Days = tuple[date, date]
OfTable = Callable[[pa.Table], pa.Table]
OfBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

FOLLOWER: Final = ("cluster_id", "topic", "partition_id", "leader_id", "replica_id")
INSTANTS: Final = ("arrival", "handled", "processed", "released", "completed")
FIGURES: Final = ("fetch_offset", "leader_log_end_offset", "error_code")
"""Columns that `LakeEngine.fetches` returns, in addition to the follower and one column ``INSTANT_us`` per instant."""
LARGE_ROWS_AT_A_TIME: Final = 128
"""Number of rows per batch of `LakeEngine.stream`. It is small, because a row may be a segment of some 300 kB."""


class LakeEngine(AbstractContextManager["LakeEngine"], Protocol):
    """An engine that runs queries on the tables of a lake. At the end of a ``with`` block, resources are released."""

    in_process: bool
    """Whether queries run in this process (DuckDB) and not in Spark."""

    def table(self, name: str, columns: Sequence[str] = ()) -> Rows:
        """Return columns of a table, by default all. If the lake has no such table, the result is empty."""

    def with_struct(
        self, name: str, columns: Sequence[str], struct: str, fields: Sequence[str], days: tuple[str, str]
    ) -> Rows:
        """Return ``columns`` of a table, and one more column, ``struct``, which packs its large columns ``fields``.

        Pass the struct on to `stream`, and do not use it elsewhere: an engine may read its data only in `stream`.
        ``days`` are the first and the last day whose files are read.
        """

    def rows(self, given: pa.Table) -> Rows:
        """Convert an Arrow table to the form that queries of this engine accept."""

    def fetches(self, spans: Rows, days: Days) -> Rows:
        """Return followers' fetches that were in progress during time spans, one row per fetch.

        Parameters
        ----------
        spans : Rows
            One row per follower and span: ``cluster_id``, ``topic``, ``partition_id``, ``leader_id``, ``replica_id``,
            and the span's limits ``from_us`` and ``until_us``, in epoch microseconds, both inclusive.
        days : (date, date)
            First and last event_date. Files of other days are not read.

        Returns
        -------
        Rows
            All columns of the span, and of the fetch ``arrival_us``, ``handled_us``, ``processed_us``,
            ``released_us``, ``completed_us``, ``fetch_offset``, ``leader_log_end_offset``, ``error_code``.
        """

    def appends(self, spans: Rows, days: Days) -> Rows:
        """Return the appends to partitions on their leaders during time spans, one row per append.

        Parameters
        ----------
        spans, days
            As for `fetches`.

        Returns
        -------
        Rows
            All columns of the span, and the append's time ``append_us`` in epoch microseconds.
        """

    def by_key(self, rows: Rows, keys: Sequence[str], work: OfTable, schema: pa.Schema) -> Rows:
        """Call ``work`` once per distinct value of ``keys``, with all its rows, and concatenate the returned tables."""

    def stream(self, rows: Rows, keys: Sequence[str], order: Sequence[str], work: OfBatches, schema: pa.Schema) -> Rows:
        """Call ``work`` with an iterator over sorted batches of rows, and return the rows of the batches it yields.

        Each call (one per Spark task, or a single one) gets all rows of some keys, sorted by ``order``, in batches of
        `LARGE_ROWS_AT_A_TIME`. All calls happen before this method returns, and only once.
        """

    def only(self, rows: Rows, wanted: Rows, keys: Sequence[str]) -> Rows:
        """Return the rows whose values of ``keys`` occur in ``wanted``.

        If the rows are from a view, the tables that it reads are filtered first, so that the view's other rows are not
        computed. A table that has only some of the ``keys`` as columns is filtered by these.
        """

    def union(self, *rows: Rows) -> Rows:
        """Concatenate rows. Columns are matched by name, and missing columns are null."""

    def __call__(self, text: str, **tables: Rows) -> Rows:
        """Run a SELECT statement, in which ``{name}`` stands for the table passed as ``name``. Return the result."""

    def struct(self, fields: Mapping[str, str]) -> str:
        """Return the SQL expression of a struct, in this engine's dialect, given the SQL expression of each field."""

    def literal(self, value: str | int) -> str:
        """Return a string or an integer as a literal in this engine's SQL."""

    def keep(self, rows: Rows) -> Rows:
        """Return the same rows, stored so that several queries can use them without computing them again."""

    def listed(self, rows: Rows) -> list[dict[str, Any]]:
        """Collect rows into this process, and return one dictionary per row."""

    def arrow(self, rows: Rows) -> pa.Table:
        """Collect rows into this process, and return them as an Arrow table."""

    def columns(self, rows: Rows) -> list[str]:
        """Return the names of the rows' columns."""

    def replace(
        self,
        table: Table,
        rows: Rows,
        where: str = "true",
        days: tuple[str, str] | None = None,
        files: Sequence[FileOfWorker] = (),
    ) -> int:
        """Replace the rows of a table that meet ``where`` with ``rows`` and with the rows in ``files``, in one commit.

        Returns the number of rows written. By default, all rows are replaced. If the condition only selects rows of
        some days, ``days`` may be the first and the last of them, so that files of other days are not read.
        """

    def amend(self, table: Table, rows: Rows, key: Sequence[str], *columns: str) -> None:
        """Copy ``columns`` from ``rows`` to existing rows with the same ``key`` if the first of ``columns`` differs."""


def appends_text(days: Days) -> str:
    """Return the SQL query that `LakeEngine.appends` runs.

    Placeholders ``{append_log}`` and ``{spans}`` stand for the two tables. ``days`` are the first and the last
    event_date.
    """
    same = " AND ".join(f"appends.{name} = spans.{name}" for name in FOLLOWER[:-1])
    return f"""
        SELECT /*+ BROADCAST(spans) */ spans.*, unix_micros(append_time) AS append_us
        FROM {{append_log}} AS appends JOIN {{spans}} AS spans
        ON appends.event_date BETWEEN DATE '{days[0]}' AND DATE '{days[1]}' AND {same}
        WHERE unix_micros(append_time) BETWEEN from_us AND until_us
    """
