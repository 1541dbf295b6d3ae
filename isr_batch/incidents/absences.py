"""Find the broker at fault for a drop (a shrink that brokers made): see which followers stopped fetching then."""

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
"""Two drops by a leader come from the same check if they are at most this many microseconds apart."""
LEAST: Final = 0.1
"""Share of the time in which even a healthy follower may have no fetch in progress at its leader, because it waits for
the network or writes records."""
GONE: Final = 0.95
"""If a follower already had no fetch in progress for at least this share of the time before, its later absence proves
nothing."""
REMOVED_AFTER_US: Final = 60_000_000
"""Longest time, in microseconds, from a broker's last fetch until the controller removed it. Sessions are shorter."""
STOPPED_BEFORE_US: Final = 10_000_000
"""Longest time, in microseconds, that a broker that shuts down needs until it is removed."""
_PACKAGE: Final = "isr_batch.incidents"
_NUMBERS: Final = ("partition_id", "leader_id", "replica_id")
Tables = dict[str, pa.Table]
FetchesOfSpans = Callable[[pa.Table], pa.Table]
"""A function from periods to the fetches in progress in them, such as `isr_batch.lake.lake_engine.LakeEngine.fetches`.
"""


def who_was_absent(sql: ArrowSql, tables: Tables, fetches_of: FetchesOfSpans | None) -> pa.Table:
    """Decide for each drop whether the follower, the leader or their link failed, using the fetches around that time.

    Parameters
    ----------
    sql : ArrowSql
    tables : dict of str to pa.Table
        The lake's tables ``leader_epochs``, ``broker_events`` and ``coverage``, and ``dropped``, which is the result of
        ``sql/dropped.sql``.
    fetches_of : callable, optional
        Result of `fetches_of_spans`, which reads fetches. Without it, ``who`` is null in all rows.

    Returns
    -------
    pa.Table
        One row for all drops of one follower that a leader made at one check (run of isr-expiration). Drops with the
        verdict unknown or excluded, or with the cause slow_leader, have no row. ``who`` is leader, follower, link, or
        null if the fetches do not show it. ``served`` is whether most other followers of the leader went on fetching.
        ``sql/windows.sql`` describes the other columns.
    """
    windows = sql(text_of(_PACKAGE, "windows", check_us=CHECK_US), **tables)
    spans = _with_ids_as_numbers(sql(text_of(_PACKAGE, "spans", least=LEAST), windows=windows, **tables))
    if not spans.num_rows or not fetches_of:
        return sql("SELECT *, false AS served, CAST(NULL AS VARCHAR) AS who FROM windows", windows=windows)
    absences = sql(text_of(_PACKAGE, "absences"), spans=spans, fetches=fetches_of(spans))
    return sql(text_of(_PACKAGE, "who", least=LEAST, gone=GONE), windows=windows, absences=absences)


def find_undelivered(sql: ArrowSql, tables: Tables, fetches_of: FetchesOfSpans | None) -> pa.Table:
    """Find drops for which the network is to blame, because responses were due but not delivered to the follower.

    Parameters
    ----------
    sql : ArrowSql
    tables : dict of str to pa.Table
        The lake's table ``broker_events``, and ``dropped``, which is the result of ``sql/dropped.sql``.
    fetches_of : callable, optional
        Result of `fetches_of_spans`, which reads fetches. Without it, no such drops are found.

    Returns
    -------
    pa.Table
        ``dropped``, in which the cause of such drops is answer_not_delivered instead of slow_leader.
    """
    spans = _with_ids_as_numbers(sql(text_of(_PACKAGE, "held_spans"), **tables))
    if not spans.num_rows or not fetches_of:
        return tables["dropped"]
    return sql(text_of(_PACKAGE, "undelivered"), held_spans=spans, fetches=fetches_of(spans), **tables)


def find_last_seen(sql: ArrowSql, tables: Tables, fetches_of: FetchesOfSpans | None) -> pa.Table:
    """Find out when brokers that the controller removed from ISRs made their last fetch before that.

    The controller removes a killed broker when its session ends, which is seconds after the broker is gone.

    Parameters
    ----------
    sql : ArrowSql
    tables : dict of str to pa.Table
        The lake's tables ``leader_epochs``, ``observed_isr_changes``, ``broker_events`` and ``coverage``, and
        ``drops``, which is the result of ``sql/drops.sql``.
    fetches_of : callable, optional
        Reads fetches. Without it, the result is empty.

    Returns
    -------
    pa.Table
        cluster_id, fault_id, incident, seen_us. Brokers that fetched until they were removed have no row.
    """
    values = {"reach_us": REMOVED_AFTER_US, "stop_us": STOPPED_BEFORE_US}
    spans = _with_ids_as_numbers(sql(text_of(_PACKAGE, "removed_spans", **values), **tables))
    if not spans.num_rows or not fetches_of:
        return sql("SELECT cluster_id, fault_id, incident, until_us AS seen_us FROM spans LIMIT 0", spans=spans)
    return sql(text_of(_PACKAGE, "last_seen"), removed_spans=spans, fetches=fetches_of(spans), **tables)


def _with_ids_as_numbers(spans: pa.Table) -> pa.Table:
    """Convert the columns with ids to int32, the type that they have in tables of fetches."""
    for name in _NUMBERS:
        spans = spans.set_column(spans.column_names.index(name), name, spans[name].cast(pa.int32()))
    return spans


def fetches_of_spans(lake: Lake) -> FetchesOfSpans | None:
    """Return a function that reads from the lake the fetches in progress in given periods.

    None if table fetch_log takes more than `isr_batch.lake.sizes.ABSENCE_BYTES`, because reading it would take long.
    """
    return partial(_fetches_around_drops, lake) if stored_bytes(lake, FETCH_LOG.name) <= sizes.ABSENCE_BYTES else None


def _fetches_around_drops(lake: Lake, spans: pa.Table) -> pa.Table:
    days = _day_of_absence(min(spans["from_us"].to_pylist())), _day_of_absence(max(spans["until_us"].to_pylist()))
    with engine_for_a_partition(lake) as engine:
        # Fetches are stored by the day on which they were handled, which may be after the day of their arrival.
        found = engine.fetches(engine.rows(spans), (days[0] - timedelta(days=1), days[1] + timedelta(days=1)))
        return without_zones(engine.arrow(found))


def _day_of_absence(at_us: int) -> date:
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).date()
