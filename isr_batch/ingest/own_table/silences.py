"""Find the silences of leaders in a table of fetches, even if it has only one instant per fetch.

If there are no fetches from a leader for a while, the leader was stopped, its followers were stopped, or rows are
missing. Fetches from other leaders distinguish these cases, as they show that a follower was running.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from isr_batch.ingest.own_table.broker_days import SECOND_US
from isr_batch.lake.arrow_sql import ArrowSql, ArrowView

SILENCES: Final = pa.schema([
    ("broker_id", pa.int32()), ("kind", pa.string()), ("event_us", pa.int64()), ("end_us", pa.int64())
])  # fmt: skip
LEAST_US: Final = 2 * SECOND_US
CADENCES_A_SILENCE: Final = 3
"""A period without fetches is examined if it lasts at least this many times the usual interval between fetches. Shorter
periods may be due to irregular fetching."""
WITNESSES: Final = 2
"""Minimum number of running followers that must have stopped fetching from the leader. A single one may have lost its
fetcher thread."""


class _SilenceSpans(NamedTuple):
    """Time spans with fetches that are less than a second apart, sorted by start.

    After the end of a span, the follower is considered stopped once ``patience_us`` have passed without a fetch.
    """

    from_us: npt.NDArray[np.int64]
    until_us: npt.NDArray[np.int64]
    patience_us: npt.NDArray[np.int64]

    def longest_hole_us(self, from_us: int, until_us: int) -> int:
        """Return the longest time without a fetch within a period. All times are in microseconds."""
        inside = (self.until_us > from_us) & (self.from_us < until_us)
        ends = np.maximum.accumulate(np.append(from_us, self.until_us[inside]))
        return int((np.append(self.from_us[inside], until_us) - ends).max())

    def patience_at_us(self, at_us: int) -> int | None:
        """Return the shortest ``patience_us`` of the spans that contain an instant or end shortly before it.

        A span ends shortly before it if it does so by at most its ``patience_us``.

        Return None without such a span.
        """
        running = (self.from_us <= at_us) & (at_us <= self.until_us + self.patience_us)
        return int(self.patience_us[running].min()) if running.any() else None


_Pairs = dict[tuple[int, int], _SilenceSpans]
"""Time spans with fetches, by (leader, follower)."""


def leader_silences(broker_days: pa.Table, terms: pa.Table) -> pa.Table:
    """Find the periods in which no follower fetched from a leader that led partitions, and classify the periods.

    There are three cases:

    - ``silent``: at least two of its followers went on fetching from other leaders. The leader was stopped, or its
      followers could not reach it.
    - No row: all its followers also stopped fetching from other leaders, while other brokers went on. So the followers
      were stopped.
    - ``quiet``: the reason is unknown. No broker fetched from any other leader, or another leader took over partitions
      of this one, or there were too few followers to decide.

    Parameters
    ----------
    broker_days : pa.Table
        Rows of `isr_batch.ingest.own_table.broker_days.BROKER_DAYS` of one cluster, in any order.
    terms : pa.Table
        Terms of leaders: leader_id, start_us, end_us.

    Returns
    -------
    pa.Table
        Columns of `SILENCES`, sorted by broker and time.
    """
    pairs = _pairs_of_broker_days(broker_days)
    found = []
    for leader in sorted({leader for leader, _ in pairs}):
        led = terms.filter(pc.equal(terms["leader_id"], leader))
        start_us, end_us = (led[name].to_numpy() for name in ("start_us", "end_us"))
        for from_us, until_us in _periods_without_fetches(pairs, leader):
            kind = None
            if ((start_us <= from_us) & (until_us <= end_us)).any():
                kind = _kind_of_silence(pairs, leader, from_us, until_us, (start_us, end_us))
            if kind:
                found.append({"broker_id": leader, "kind": kind, "event_us": from_us, "end_us": until_us})
    return pa.Table.from_pylist(found, SILENCES)


def quiet_where_logs_grew(sql: ArrowSql, silences: pa.Table, fetches: pa.Table | ds.Dataset | ArrowView) -> pa.Table:
    """Change the kind of silences from ``silent`` to ``quiet`` where the leader's log grew over half as fast as before.

    A leader whose log grew was running. Its followers could not reach it, or rows are missing.

    Parameters
    ----------
    sql : ArrowSql
    silences : pa.Table
        Result of `leader_silences`.
    fetches : pa.Table, ds.Dataset or ArrowView
        Fetches from the silent leaders: leader_id, topic, partition_id, handled_us, fetch_offset, leader_log_end_offset
        (or null). For a silence of n seconds, all fetches from n seconds before it until one second after it are
        needed.

    Returns
    -------
    pa.Table
        All rows of ``silences``, with the new ``kind``.
    """
    found = sql(
        f"""
        WITH near AS (
            SELECT broker_id, kind, event_us, end_us, topic, partition_id, handled_us,
                coalesce(leader_log_end_offset, fetch_offset) AS position
            FROM silences JOIN fetches ON leader_id = broker_id AND handled_us BETWEEN 2 * event_us - end_us
                AND end_us + {SECOND_US}
            WHERE kind = 'silent'
        ), by_partition AS (
            SELECT broker_id, event_us, min(position) FILTER (handled_us <= event_us) AS first,
                max(position) FILTER (handled_us <= event_us) AS last,
                min(position) FILTER (handled_us >= end_us) AS next
            FROM near GROUP BY broker_id, event_us, topic, partition_id
        ), growth AS (
            SELECT broker_id, event_us, sum(last - first) AS before, sum(greatest(next - last, 0)) AS meanwhile
            FROM by_partition GROUP BY broker_id, event_us
        )
        SELECT broker_id, CASE WHEN 2 * meanwhile > before THEN 'quiet' ELSE kind END AS kind, event_us, end_us
        FROM silences LEFT JOIN growth USING (broker_id, event_us) ORDER BY broker_id, event_us
        """,
        silences=silences,
        fetches=fetches,
    )
    return found.cast(SILENCES)


def _pairs_of_broker_days(broker_days: pa.Table) -> _Pairs:
    """Return the time spans with fetches for each pair of leader and follower."""
    order = [(name, "ascending") for name in ("leader_id", "replica_id", "first_us")]
    if not broker_days.num_rows:
        return {}
    days = broker_days.sort_by(order).combine_chunks()
    leader, replica = days["leader_id"].to_numpy(), days["replica_id"].to_numpy()
    begins = np.flatnonzero((np.diff(leader, prepend=-1) != 0) | (np.diff(replica, prepend=-1) != 0))
    ends = np.append(begins[1:], days.num_rows)
    return {
        (int(leader[begin]), int(replica[begin])): _spans_of_pair(days.slice(begin, end - begin))
        for begin, end in zip(begins, ends, strict=True)
    }


def _spans_of_pair(days: pa.Table) -> _SilenceSpans:
    """Return the time spans with fetches of one pair. A span continues across midnight if fetches do."""
    pauses = days["pauses"].combine_chunks()
    paused_us, back_us = (pauses.flatten().field(name).to_numpy() for name in ("from_us", "until_us"))
    begins = np.sort(np.append(back_us, days["first_us"]))
    ends = np.sort(np.append(paused_us, days["last_us"]))
    cadence_us = pc.fill_null(days["cadence_us"], 0).to_numpy()
    patience_us = np.repeat(
        np.maximum(LEAST_US, CADENCES_A_SILENCE * cadence_us), pc.list_value_length(pauses).to_numpy() + 1
    )
    apart = begins[1:] - ends[:-1] >= SECOND_US
    first, last = np.flatnonzero(np.append(True, apart)), np.flatnonzero(np.append(apart, True))
    return _SilenceSpans(begins[first], ends[last], np.maximum.reduceat(patience_us, first))


def _silence_spans_of_pairs(spans: Collection[_SilenceSpans]) -> _SilenceSpans:
    """Combine the spans of several pairs of leader and follower, sorted by start."""
    from_us, until_us, patience_us = (np.concatenate(values) for values in zip(*spans, strict=True))
    order = np.argsort(from_us, kind="stable")
    return _SilenceSpans(from_us[order], until_us[order], patience_us[order])


def _periods_without_fetches(pairs: _Pairs, leader: int) -> list[tuple[int, int]]:
    """Return the periods in which no follower fetched from a leader, as (start, end) in microseconds since 1970.

    ``pairs`` are the times with fetches, by (leader, follower).
    """
    spans = _silence_spans_of_pairs([of_pair for (led_by, _), of_pair in pairs.items() if led_by == leader])
    last_us, first_us = np.maximum.accumulate(spans.until_us)[:-1], spans.from_us[1:]
    long = first_us - last_us >= spans.patience_us.min()
    holes = zip(last_us[long].tolist(), first_us[long].tolist(), strict=True)
    return [(last, first) for last, first in holes if first - last >= (spans.patience_at_us(last) or 0)]


def _kind_of_silence(
    pairs: _Pairs,
    leader: int,
    from_us: int,
    until_us: int,
    led_us: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
) -> str | None:
    """Classify a period without fetches from a leader: silent, quiet, or None (see `leader_silences`).

    ``pairs`` are the times with fetches, by (leader, follower).
    """
    half_us = (until_us - from_us) / 2  # half the period suffices, because brokers' clocks differ
    others = [of_pair for (led_by, _), of_pair in pairs.items() if led_by != leader]
    if not others or _silence_spans_of_pairs(others).longest_hole_us(from_us, until_us) >= half_us:
        return "quiet"
    run = stopped = active = 0
    for (led_by, replica), of_pair in pairs.items():
        patience_us = of_pair.patience_at_us(from_us)
        if led_by != leader or patience_us is None:
            continue
        active += 1
        elsewhere = [spans for (other, follower), spans in pairs.items() if follower == replica and other != leader]
        if elsewhere:
            fetches = _silence_spans_of_pairs(elsewhere)
            if fetches.longest_hole_us(from_us, until_us) < half_us:
                run += 1
            else:
                patience_us = fetches.patience_at_us(from_us)
                stopped += patience_us is not None and patience_us <= half_us
    if run < WITNESSES:
        return None if stopped == active else "quiet"
    start_us, end_us = led_us
    taken_over = (start_us <= from_us) & (from_us - SECOND_US <= end_us) & (end_us < until_us)
    return "quiet" if taken_over.any() else "silent"
