"""The interface of an engine for SQL over the tables of a lake. DuckDB and Spark implement it.

Both engines run the same text, in which ``{name}`` is replaced by a table, and functions have their names in Spark.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import Any, Final, Protocol

import pyarrow as pa

from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.tables.contract import Table

Rows = Any
"""Rows of a table or of a result, in a form that only the engine that returned them can use."""
Days = tuple[date, date]
OfTable = Callable[[pa.Table], pa.Table]
OfBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

FOLLOWER: Final = ("cluster_id", "topic", "partition_id", "leader_id", "replica_id")
INSTANTS: Final = ("arrival", "handled", "processed", "released", "completed")
FIGURES: Final = ("fetch_offset", "leader_log_end_offset", "error_code")
"""Columns that `LakeEngine.fetches` returns, in addition to the follower and one column ``INSTANT_us`` per instant."""
LARGE_ROWS_AT_A_TIME: Final = 128
"""Number of rows per batch of `LakeEngine.stream`. A row may be a segment of the log with some 300 kB."""


class LakeEngine(AbstractContextManager["LakeEngine"], Protocol):
    """An engine that runs queries on the tables of a lake. Its ``with`` block releases its resources at the end."""

    in_process: bool
    """Whether this process does the work, and not Spark."""

    def table(self, name: str, columns: Sequence[str] = ()) -> Rows:
        """Open columns of a table, by default all columns. If the lake has no such table, there are no rows."""

    def with_struct(
        self, name: str, columns: Sequence[str], struct: str, fields: Sequence[str], days: tuple[str, str]
    ) -> Rows:
        """Open columns of a table, and a struct of its large columns, which is only read when `stream` needs it.

        ``days`` are the first and the last day whose files are read.
        """

    def rows(self, given: pa.Table) -> Rows:
        """Return an Arrow table in the form that queries of this engine accept."""

    def fetches(self, spans: Rows, days: Days) -> Rows:
        """Return followers' fetches that were in progress during time spans, one row per fetch.

        Parameters
        ----------
        spans : Rows
            ``cluster_id, topic, partition_id, leader_id, replica_id``, and ``from_us`` and ``until_us``, in
            microseconds and inclusive.
        days : (date, date)
            First and last event_date. Files of other days are not read.

        Returns
        -------
        Rows
            The columns of the span; ``arrival_us``, ``handled_us``, ``processed_us``, ``released_us``,
            ``completed_us``; ``fetch_offset``, ``leader_log_end_offset``, ``error_code``.
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
            The columns of the span, and ``append_us``.
        """

    def by_key(self, rows: Rows, keys: Sequence[str], work: OfTable, schema: pa.Schema) -> Rows:
        """Apply a function to the rows of each key separately, and return all results."""

    def stream(self, rows: Rows, keys: Sequence[str], order: Sequence[str], work: OfBatches, schema: pa.Schema) -> Rows:
        """Apply a function, immediately and only once, to a stream of rows sorted by keys, and return the results.

        Rows with equal keys arrive together and in order, in batches of `LARGE_ROWS_AT_A_TIME`, because rows may be
        large.
        """

    def only(self, rows: Rows, wanted: Rows, keys: Sequence[str]) -> Rows:
        """Return the rows whose ``keys`` are in ``wanted``. Other rows of a view are not computed.

        For a view, each of its tables is filtered by those of the keys that it has.
        """

    def union(self, *rows: Rows) -> Rows:
        """Concatenate rows. Columns are matched by name, and missing columns are null."""

    def __call__(self, text: str, **tables: Rows) -> Rows:
        """Run a SELECT statement, in which ``{name}`` is replaced by a table, and return the result."""

    def struct(self, fields: Mapping[str, str]) -> str:
        """Return a struct expression in this engine's SQL, given one expression per field."""

    def literal(self, value: str | int) -> str:
        """Return a value as a literal in this engine's SQL."""

    def keep(self, rows: Rows) -> Rows:
        """Compute rows now and store the result, because several queries will use them."""

    def listed(self, rows: Rows) -> list[dict[str, Any]]:
        """Collect rows in this process, as dictionaries."""

    def arrow(self, rows: Rows) -> pa.Table:
        """Collect rows in this process, as an Arrow table."""

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
        """Replace the rows of a table that meet a condition by ``rows`` and by the rows in ``files``.

        Returns the number of rows written. If the condition only selects certain days, ``days`` are the first and the
        last of them, and files of other days are not read.
        """

    def amend(self, table: Table, rows: Rows, key: Sequence[str], *columns: str) -> None:
        """Update ``columns`` of existing rows from ``rows`` with the same ``key``, if the first column differs."""


def appends_text(days: Days) -> str:
    """Return the query for `LakeEngine.appends` on a table ``append_log``."""
    same = " AND ".join(f"appends.{name} = spans.{name}" for name in FOLLOWER[:-1])
    return f"""
        SELECT /*+ BROADCAST(spans) */ spans.*, unix_micros(append_time) AS append_us
        FROM {{append_log}} AS appends JOIN {{spans}} AS spans
        ON appends.event_date BETWEEN DATE '{days[0]}' AND DATE '{days[1]}' AND {same}
        WHERE unix_micros(append_time) BETWEEN from_us AND until_us
    """
