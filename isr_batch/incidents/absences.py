"""Find the broker at fault for drops: whose fetches stopped around that time, and whose continued."""

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
"""Drops by a leader that follow each other within this time belong to one check."""
LEAST: Final = 0.1
"""Normal share of time in which a healthy follower has no fetch at its leader, because of round trips and its
writes."""
GONE: Final = 0.95
"""If a pair was absent for more than this share of the time before, its later absence proves nothing."""
_PACKAGE: Final = "isr_batch.incidents"
_NUMBERS: Final = ("partition_id", "leader_id", "replica_id")
Tables = dict[str, pa.Table]
FetchesOfSpans = Callable[[pa.Table], pa.Table]
"""Returns the fetches in progress during spans, like `isr_batch.lake.lake_engine.LakeEngine.fetches`."""


def who_was_absent(sql: ArrowSql, tables: Tables, fetches_of: FetchesOfSpans | None) -> pa.Table:
    """Find for each drop what kept the follower from its leader, from the fetches of that time.

    Parameters
    ----------
    sql : ArrowSql
    tables : dict of str to pa.Table
        ``dropped`` as ``sql/dropped.sql`` gives it, ``leader_epochs``, ``broker_events`` and ``coverage``.
    fetches_of : callable, optional
        Reader of fetches; without it, every result is unknown.

    Returns
    -------
    pa.Table
        As ``sql/who.sql`` says.
    """
    windows = sql(text_of(_PACKAGE, "windows", check_us=CHECK_US), **tables)
    spans = _with_ids_as_numbers(sql(text_of(_PACKAGE, "spans", least=LEAST), windows=windows, **tables))
    if not spans.num_rows or not fetches_of:
        return sql("SELECT *, CAST(NULL AS VARCHAR) AS who FROM windows", windows=windows)
    absences = sql(text_of(_PACKAGE, "absences"), spans=spans, fetches=fetches_of(spans))
    return sql(text_of(_PACKAGE, "who", least=LEAST, gone=GONE), windows=windows, absences=absences)


def find_undelivered(sql: ArrowSql, tables: Tables, fetches_of: FetchesOfSpans | None) -> pa.Table:
    """Distinguish responses that were not delivered from a leader that was slow, by the phases of its responses.

    Parameters
    ----------
    sql : ArrowSql
    tables : dict of str to pa.Table
        ``dropped`` as ``sql/dropped.sql`` gives it, and ``broker_events``.
    fetches_of : callable, optional
        Without it nothing is known.

    Returns
    -------
    pa.Table
        ``dropped`` as ``sql/undelivered.sql`` gives it.
    """
    spans = _with_ids_as_numbers(sql(text_of(_PACKAGE, "held_spans"), **tables))
    if not spans.num_rows or not fetches_of:
        return tables["dropped"]
    return sql(text_of(_PACKAGE, "undelivered"), held_spans=spans, fetches=fetches_of(spans), **tables)


def _with_ids_as_numbers(spans: pa.Table) -> pa.Table:
    """Give ids the type that tables of fetches have."""
    for name in _NUMBERS:
        spans = spans.set_column(spans.column_names.index(name), name, spans[name].cast(pa.int32()))
    return spans


def fetches_of_spans(lake: Lake) -> FetchesOfSpans | None:
    """Return a reader of the fetches in progress during spans of time; None if the log is too large."""
    return partial(_fetches_around_drops, lake) if stored_bytes(lake, FETCH_LOG.name) <= sizes.ABSENCE_BYTES else None


def _fetches_around_drops(lake: Lake, spans: pa.Table) -> pa.Table:
    days = _day_of_absence(min(spans["from_us"].to_pylist())), _day_of_absence(max(spans["until_us"].to_pylist()))
    with engine_for_a_partition(lake) as engine:
        # The day of a fetch is the one on which it was handled.
        found = engine.fetches(engine.rows(spans), (days[0] - timedelta(days=1), days[1] + timedelta(days=1)))
        return without_zones(engine.arrow(found))


def _day_of_absence(at_us: int) -> date:
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).date()
