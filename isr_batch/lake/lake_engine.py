"""What is asked of an engine that answers SQL over the tables of a lake (`isr_batch.lake.engines` has two).

One text serves both: ``{name}`` stands for a table, and what the engines call by other names has Spark's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import date
from typing import Any, Final, Protocol

import pyarrow as pa

from isr_batch.lake.tables.contract import Table
from isr_batch.lake.worker_files import FileOfWorker

Rows = Any
"""Rows of a table or an answer, in the form of an engine, which alone has a use for them."""
Days = tuple[date, date]
OfTable = Callable[[pa.Table], pa.Table]
OfBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

FOLLOWER: Final = ("cluster_id", "topic", "partition_id", "leader_id", "replica_id")
INSTANTS: Final = ("arrival", "handled", "processed", "released", "completed")
FIGURES: Final = ("fetch_offset", "leader_log_end_offset", "error_code")
"""Columns that `LakeEngine.fetches` gives; of an instant ``INSTANT_us``."""
LARGE_ROWS_AT_A_TIME: Final = 128
"""Of `LakeEngine.stream`: a segment of the log has some 300 kB."""


class LakeEngine(AbstractContextManager["LakeEngine"], Protocol):
    """Answers queries on the tables of a lake; on leaving the context it lets go of what it holds."""

    def table(self, name: str, columns: Sequence[str] = ()) -> Rows:
        """Columns of a table, by default all; of a table that the lake lacks no rows."""

    def with_struct(
        self, name: str, columns: Sequence[str], struct: str, fields: Sequence[str], days: tuple[str, str]
    ) -> Rows:
        """Columns of a table, and a struct of others that are large: these may be read as late as in `stream`.

        Files of other days than these, the first and the last, are not looked at.
        """

    def rows(self, given: pa.Table) -> Rows:
        """Rows that are in this process."""

    def fetches(self, spans: Rows, days: Days) -> Rows:
        """Fetches of followers that were under way in a span of time, one a row.

        Parameters
        ----------
        spans : Rows
            ``cluster_id, topic, partition_id, leader_id, replica_id``, and ``from_us`` and ``until_us``: microseconds,
            both within.
        days : (date, date)
            First and last value of event_date, so that no other files are read.

        Returns
        -------
        Rows
            The columns of the span; ``arrival_us``, ``handled_us``, ``processed_us``, ``released_us``,
            ``completed_us``; ``fetch_offset``, ``leader_log_end_offset``, ``error_code``.
        """

    def appends(self, spans: Rows, days: Days) -> Rows:
        """Appends to a leader's partition within a span of time.

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
        """Give what a function makes of all rows with equal keys; it is given those of one key at a time."""

    def stream(self, rows: Rows, keys: Sequence[str], order: Sequence[str], work: OfBatches, schema: pa.Schema) -> Rows:
        """Give what a function makes of a stream of rows, now and once.

        Rows with equal keys come together and in order, `LARGE_ROWS_AT_A_TIME`: they may be large.
        """

    def union(self, *rows: Rows) -> Rows:
        """Put rows together; a column that some lack is null there."""

    def __call__(self, text: str, **tables: Rows) -> Rows:
        """Run a SELECT statement, in which ``{name}`` stands for a table."""

    def struct(self, fields: Mapping[str, str]) -> str:
        """Write a struct as this engine's SQL has it, of an expression a field."""

    def literal(self, value: str | int) -> str:
        """Write a value as this engine's SQL has it."""

    def keep(self, rows: Rows) -> Rows:
        """Compute rows once that are used several times."""

    def listed(self, rows: Rows) -> list[dict[str, Any]]:
        """Rows as dictionaries."""

    def arrow(self, rows: Rows) -> pa.Table:
        """Rows in this process."""

    def columns(self, rows: Rows) -> list[str]:
        """Names of the columns of rows."""

    def replace(
        self,
        table: Table,
        rows: Rows,
        where: str = "true",
        days: tuple[str, str] | None = None,
        files: Sequence[FileOfWorker] = (),
    ) -> int:
        """Put rows, and those of files that workers wrote, in place of those that meet a condition; returns how many.

        If the condition lets only some days through, ``days`` are the first and the last of them: no other files are
        looked at then.
        """

    def amend(self, table: Table, rows: Rows, key: Sequence[str], *columns: str) -> None:
        """Set columns of rows that are there, found by their key, where the first of them differs."""


def appends_text(days: Days) -> str:
    """Write the query of `LakeEngine.appends`, of a table ``append_log``."""
    same = " AND ".join(f"appends.{name} = spans.{name}" for name in FOLLOWER[:-1])
    return f"""
        SELECT /*+ BROADCAST(spans) */ spans.*, unix_micros(append_time) AS append_us
        FROM {{append_log}} AS appends JOIN {{spans}} AS spans
        ON appends.event_date BETWEEN DATE '{days[0]}' AND DATE '{days[1]}' AND {same}
        WHERE unix_micros(append_time) BETWEEN from_us AND until_us
    """
