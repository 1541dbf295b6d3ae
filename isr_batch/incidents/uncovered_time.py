"""Find what the logs do not cover: periods without a request log, and logs that are missing or were refused."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from isr_batch.incidents.own_shrinks import Row
from isr_batch.phrases import brokers_text, count_of

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


def sentence_of_no_drop(cluster: Row, who: str) -> str:
    """Return the sentence that no follower was dropped. If logs are missing or were refused, it mentions this.

    Parameters
    ----------
    cluster : dict
        One row of ``sql/clusters.sql``.
    who : str
        The brokers, or the rule that was replayed in their place, as the subject of the sentence.
    """
    missing = sorted({*(cluster["unlogged"] or ()), *(cluster["unseen"] or ())}) if cluster["logged"] else []
    gaps = [f"server.log of {brokers_text(missing)} is missing"] if missing else []
    if (refused := cluster["refused_files"]) and not cluster["of_table"]:
        gaps.append(f"{count_of(refused, 'file')} {'was' if refused == 1 else 'were'} refused")
    if gaps:
        return f"In the logs that could be read, {who} dropped no follower; {' and '.join(gaps)}."
    return f"{who[0].upper() if cluster['logged'] else who[0]}{who[1:]} dropped no follower."
