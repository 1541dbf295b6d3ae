"""Input into a lake, in place of what the lake has for the time that the input covers."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.fetch_runs import take_runs_apart
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


def replace_covered(
    lake: Lake,
    tables: Mapping[str, DataFrame],
    cluster_id: str,
    *,
    replaced: Mapping[str, str] | None = None,
    left_alone: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Put rows of a cluster into input tables, in place of what was there for the time that they cover.

    Parameters
    ----------
    lake : Lake
        Where to.
    tables : mapping of str to DataFrame
        Tables by name, with the columns of `isr_batch.tables`.
    cluster_id : str
        The cluster's name, which all rows bear.
    replaced : mapping of str to str, optional
        SQL condition of the cluster's rows that are replaced, of tables where it is not the time that is covered. By
        default quarantine is replaced as a whole.
    left_alone : mapping of str to str, optional
        SQL condition of rows, by table, of which the lake keeps its own.

    Returns
    -------
    dict of str to int
        Rows written by table.
    """
    replaced = {QUARANTINE.name: "true"} | dict(replaced or {})
    left_alone = left_alone or {}
    cuts = [(table, time) for table, time in CUT_BY if table.name in tables]
    frames = {table.name: tables[table.name].persist() for table, _ in cuts}
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        spans = dict(zip(frames, pool.map(lambda cut: span_of(frames[cut[0].name], cut[1]), cuts), strict=True))
        # A table with few rows says little about what its log covers; requests come all the time.
        served = [span for name, span in spans.items() if span and name in (FETCH_LOG.name, APPEND_LOG.name)]

        def write(cut: tuple[Table, str]) -> int:
            table, time = cut
            others = f"NOT ({left_alone.get(table.name, 'false')})"
            own = spans.get(table.name)
            covers = [*served, *([own] if own else [])]
            where = replaced.get(table.name) or between(time, covers)
            if table is FETCH_LOG and table.name not in replaced and covers:
                take_runs_apart(lake, of_cluster(cluster_id), time, whole_of(covers))
            rows = frames.get(table.name, tables[table.name])
            return lake.replace(table, rows.where(others), f"{of_cluster(cluster_id)} AND ({where}) AND {others}")

        cuts.append((QUARANTINE, ""))
        written = dict(zip((table.name for table, _ in cuts), pool.map(write, cuts), strict=True))
    for frame in frames.values():
        frame.unpersist()
    return written


def of_cluster(cluster_id: str) -> str:
    """As SQL: the rows of this cluster."""
    return f"cluster_id = {literal(cluster_id)}"


def span_of(frame: DataFrame, time: str) -> Span | None:
    """First and last instant; None of no rows."""
    upto = "last_handled_time" if time == "handled_time" else time
    # As text: Python would turn an instant into its own time zone.
    first, last = frame.select(F.min(time).cast("string"), F.max(upto).cast("string")).collect()[0]
    return (first, last) if first else None


def whole_of(spans: list[Span]) -> Span:
    """The time that the spans cover together, and what lies between them."""
    return min(span[0] for span in spans), max(span[1] for span in spans)


def between(time: str, spans: list[Span]) -> str:
    """As SQL: in the time that all the spans cover together; all rows if there is none."""
    if not spans:
        return "true"
    first, last = whole_of(spans)
    # The days say nothing new, but spare Delta the files of all other days.
    return (
        f"event_date BETWEEN DATE'{first[:10]}' AND DATE'{last[:10]}' "
        f"AND {time} BETWEEN TIMESTAMP'{first}' AND TIMESTAMP'{last}'"
    )
