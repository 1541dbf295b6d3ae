"""Input into a lake, in place of what the lake has for the time that the input covers."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.store import Lake, literal
from isr_batch.tables import (
    APPEND_LOG,
    BROKER_EVENTS,
    FETCH_LOG,
    LEADER_EPOCHS,
    OBSERVED_ISR_CHANGES,
    QUARANTINE,
    Table,
)

TABLES_AT_ONCE = 3
"""Planning a query and committing a table keep one core busy at most, and Spark none meanwhile."""

CUT_BY = (
    (FETCH_LOG, "handled_time"),
    (APPEND_LOG, "append_time"),
    (LEADER_EPOCHS, "start_time"),
    (OBSERVED_ISR_CHANGES, "change_time"),
    (BROKER_EVENTS, "event_time"),
)
"""The time by which a table is cut: the one that event_date is the day of."""

Span = tuple[str, str]


def replace_covered(lake: Lake, tables: Mapping[str, DataFrame], cluster_id: str) -> tuple[dict[str, int], int]:
    """Put rows of a cluster into every input table, in place of what was there for the time that they cover.

    Parameters
    ----------
    lake : Lake
        Where to.
    tables : mapping of str to DataFrame
        The input tables by name, with the columns of `isr_batch.tables`. Quarantine is replaced as a whole.
    cluster_id : str
        The cluster's name, which all rows bear.

    Returns
    -------
    written, refused
        Rows written by table, and rows of quarantine.
    """
    cluster = of_cluster(cluster_id)
    frames = [(table, time, tables[table.name].persist()) for table, time in CUT_BY]
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        spans = dict(zip(CUT_BY, pool.map(lambda cut: span_of(cut[2], cut[1]), frames), strict=True))
        # A table with few rows says little about what its log covers; requests come all the time.
        served = [span for (table, _), span in spans.items() if span and table in (FETCH_LOG, APPEND_LOG)]

        def write(cut: tuple[Table, str, DataFrame]) -> int:
            table, time, frame = cut
            own = spans[table, time]
            return lake.replace(table, frame, f"{cluster} AND {between(time, [*served, *([own] if own else [])])}")

        quarantined = pool.submit(lake.replace, QUARANTINE, tables[QUARANTINE.name], cluster)
        written = dict(zip((table.name for table, _ in CUT_BY), pool.map(write, frames), strict=True))
        refused = quarantined.result()
    for _, _, frame in frames:
        frame.unpersist()
    return written, refused


def of_cluster(cluster_id: str) -> str:
    """As SQL: the rows of this cluster."""
    return f"cluster_id = {literal(cluster_id)}"


def span_of(frame: DataFrame, time: str) -> Span | None:
    """First and last instant; None of no rows."""
    # As text: Python would turn an instant into its own time zone.
    first, last = frame.select(F.min(time).cast("string"), F.max(time).cast("string")).collect()[0]
    return (first, last) if first else None


def between(time: str, spans: list[Span]) -> str:
    """As SQL: in the time that all the spans cover together; all rows if there is none."""
    if not spans:
        return "true"
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    # The days say nothing new, but spare Delta the files of all other days.
    return (
        f"event_date BETWEEN DATE'{first[:10]}' AND DATE'{last[:10]}' "
        f"AND {time} BETWEEN TIMESTAMP'{first}' AND TIMESTAMP'{last}'"
    )
