"""Find the broker at fault for drops, by which brokers stopped fetching around that time and which continued."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Final

import pyarrow as pa

from isr_batch.lake import sizes
from isr_batch.lake.arrow_read import stored_bytes
from isr_batch.lake.arrow_sql import ArrowSql, without_zones
from isr_batch.lake.engines import engine_for_a_partition
from isr_batch.lake.lake import Lake
from isr_batch.lake.sql_files import text_of
from isr_batch.lake.tables.inputs import FETCH_LOG

CHECK_US: Final = 500_000
"""Drops by a leader that are at most this far apart, in microseconds, are from the same check."""
LEAST: Final = 0.1
"""Share of time in which a healthy follower may have no fetch at its leader, because of round trips and its own writes.
"""
GONE: Final = 0.95
"""If a follower had no fetch at a leader for more than this share of the time before, a later absence of fetches is no
evidence."""
_PACKAGE: Final = "isr_batch.incidents"
_NUMBERS: Final = ("partition_id", "leader_id", "replica_id")
Tables = dict[str, pa.Table]
FetchesOfSpans = Callable[[pa.Table], pa.Table]
"""Function that returns the fetches in progress in given periods, as `isr_batch.lake.lake_engine.LakeEngine.fetches`
does."""


def who_was_absent(sql: ArrowSql, tables: Tables, fetches_of: FetchesOfSpans | None) -> pa.Table:
    """Return for each drop whether fetches show that the follower, the leader or the link between them was absent.

    Parameters
    ----------
    sql : ArrowSql
    tables : dict of str to pa.Table
        ``dropped``, the result of ``sql/dropped.sql``; ``leader_epochs``, ``broker_events`` and ``coverage``.
    fetches_of : callable, optional
        Reads fetches. Without it, the result is unknown for every drop.

    Returns
    -------
    pa.Table
        One row per drop, with the columns of ``sql/who.sql``.
    """
    windows = sql(text_of(_PACKAGE, "windows", check_us=CHECK_US), **tables)
    spans = _with_ids_as_numbers(sql(text_of(_PACKAGE, "spans", least=LEAST), windows=windows, **tables))
    if not spans.num_rows or not fetches_of:
        return sql("SELECT *, false AS served, CAST(NULL AS VARCHAR) AS who FROM windows", windows=windows)
    absences = sql(text_of(_PACKAGE, "absences"), spans=spans, fetches=fetches_of(spans))
    return sql(text_of(_PACKAGE, "who", least=LEAST, gone=GONE), windows=windows, absences=absences)


def find_undelivered(sql: ArrowSql, tables: Tables, fetches_of: FetchesOfSpans | None) -> pa.Table:
    """Mark the drops before which the leader's responses were due but did not arrive, so that the network is suspected.

    Parameters
    ----------
    sql : ArrowSql
    tables : dict of str to pa.Table
        ``dropped``, the result of ``sql/dropped.sql``, and ``broker_events``.
    fetches_of : callable, optional
        Reads fetches. Without it, no drop is marked.

    Returns
    -------
    pa.Table
        ``dropped`` with the columns of ``sql/undelivered.sql``.
    """
    spans = _with_ids_as_numbers(sql(text_of(_PACKAGE, "held_spans"), **tables))
    if not spans.num_rows or not fetches_of:
        return tables["dropped"]
    return sql(text_of(_PACKAGE, "undelivered"), held_spans=spans, fetches=fetches_of(spans), **tables)


def _with_ids_as_numbers(spans: pa.Table) -> pa.Table:
    """Convert ids to the type that they have in tables of fetches."""
    for name in _NUMBERS:
        spans = spans.set_column(spans.column_names.index(name), name, spans[name].cast(pa.int32()))
    return spans


def fetches_of_spans(lake: Lake) -> FetchesOfSpans | None:
    """Return a function that reads the fetches in progress in given periods; None if the lake has too many fetches."""
    return partial(_fetches_around_drops, lake) if stored_bytes(lake, FETCH_LOG.name) <= sizes.ABSENCE_BYTES else None


def _fetches_around_drops(lake: Lake, spans: pa.Table) -> pa.Table:
    """Read from a lake the fetches in progress in some periods."""
    days = _day_of_absence(min(spans["from_us"].to_pylist())), _day_of_absence(max(spans["until_us"].to_pylist()))
    with engine_for_a_partition(lake) as engine:
        # Fetches are stored by the day on which they were handled, which may be after the day of their arrival.
        found = engine.fetches(engine.rows(spans), (days[0] - timedelta(days=1), days[1] + timedelta(days=1)))
        return without_zones(engine.arrow(found))


def _day_of_absence(at_us: int) -> date:
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).date()
