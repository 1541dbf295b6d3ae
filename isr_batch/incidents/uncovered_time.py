"""Find the periods that no request log of a broker covers."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from isr_batch.incidents.own_shrinks import Row

Span = tuple[int, int]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def uncovered_time(coverage: Iterable[Row], broker: int, within: Span) -> tuple[Span, ...]:
    """Return the parts of a period that a broker's request log does not cover.

    If the log begins with the start of the broker, the time before its first line is not returned.

    Parameters
    ----------
    coverage : iterable of dict
        Rows of table coverage for one cluster. If none is about a request log, the lake was not made from broker logs,
        and the result is empty.
    broker : int
    within : (int, int)
        The period, in microseconds since 1970.
    """
    rows = [row for row in coverage if row["log"] == "request"]
    mine = sorted(
        (_uncovered_time_us(row["from_time"]), _uncovered_time_us(row["until_time"]), row["begins_mid_term"])
        for row in rows
        if row["broker_id"] == broker
    )
    if not mine:
        return (within,) if rows else ()
    edges = [edge for since, until, _ in mine for edge in (since, until)]
    edges = [within[0], *edges, within[1]] if mine[0][2] else [*edges[1:], within[1]]
    gaps = zip(edges[::2], edges[1::2], strict=True)
    return tuple(
        (max(start, within[0]), min(end, within[1])) for start, end in gaps if start < within[1] and end > within[0]
    )


def _uncovered_time_us(time: datetime) -> int:
    return (time.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
