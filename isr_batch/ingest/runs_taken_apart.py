"""Split runs of fetches into one row per fetch, so that part of a run can be replaced."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import functions as F

from isr_batch.lake.engines import engine_for
from isr_batch.lake.fetch_log import single_fetches
from isr_batch.lake.lake import Lake
from isr_batch.lake.sql_files import views_for_duckdb
from isr_batch.lake.tables.inputs import FETCH_LOG

_LAST: Final[Mapping[str, str]] = {
    "handled_time": "last_handled_time",
    "completed_time": "timestamp_micros(unix_micros(completed_time) + CAST({sum} AS BIGINT))",
}
"""For each column with an instant of a run's first fetch, SQL for the same instant of the last fetch."""
_SUM_IN_SPARK: Final = (
    "aggregate(sequence(1, run_length - 1), 0L, (later_us, i) -> later_us + get(later_by, 6 * i - 2))"
)
_SUM_HERE: Final = "list_sum(later_by[5 : 6 * run_length : 6])"


def take_runs_apart(lake: Lake, of_rows: str, time: str, span: tuple[str, str] | tuple[datetime, datetime]) -> None:
    """Split each run of fetches that is only partly in a period into one row per fetch.

    Afterwards, the fetches in the period can be replaced without losing those outside it. Table fetch_log still
    contains the same fetches.

    Parameters
    ----------
    lake : Lake
        The lake. Without a table fetch_log, nothing is done.
    of_rows : str
        SQL condition that selects the rows to examine, valid in both Spark and DuckDB.
    time : str
        Column that decides whether a fetch is in the period: handled_time or completed_time.
    span : (str, str) or (datetime, datetime)
        First and last instant of the period, both included, in UTC. Text must be castable to TIMESTAMP.
    """
    if not lake.has(FETCH_LOG.name):
        return
    begin, end = (f"TIMESTAMP'{at}'" if isinstance(at, str) else f"TIMESTAMP'{at.astimezone(UTC)}'" for at in span)
    with engine_for(lake, (FETCH_LOG.name,)) as engine:
        last = _LAST[time].format(sum=_SUM_HERE if engine.in_process else _SUM_IN_SPARK)
        across = (
            f"run_length > 1 AND ({time} < {begin} AND {last} >= {begin} OR {time} <= {end} AND {last} > {end})"
        )  # fmt: skip
        there, of_these = engine.table(FETCH_LOG.name), of_rows.replace("{", "{{").replace("}", "}}")
        edges = engine(
            "SELECT CAST(min(handled_time) AS STRING) AS first, CAST(max(last_handled_time) AS STRING) AS last "
            f"FROM {{there}} AS there WHERE ({of_these}) AND {across}",
            there=there,
        )
        first, until = engine.listed(edges)[0].values()
        if first is None:
            return
        # The affected runs may be on several days, but each run is within one day.
        days = (first[:10], until[:10])
        near = (
            f"({of_rows}) AND event_date BETWEEN DATE'{days[0]}' AND DATE'{days[1]}' "
            f"AND handled_time BETWEEN TIMESTAMP'{first}' AND TIMESTAMP'{until}'"
        )
        if not engine.in_process:
            _take_apart_in_spark(lake, near, across)
            return
        found = engine(f"SELECT * FROM {{there}} AS there WHERE {near.replace(of_rows, of_these, 1)}", there=there)
        others = engine(f"SELECT * FROM {{found}} WHERE NOT coalesce({across}, false)", found=found)
        single = engine(
            "SELECT *, handled_time AS last_handled_time, 1 AS run_length, CAST(NULL AS INT[]) AS later_by "
            f"FROM ({views_for_duckdb()['fetches'].replace('FROM fetch_log', 'FROM {runs}')})",
            runs=engine(f"SELECT * FROM {{found}} WHERE {across}", found=found),
        )
        engine.replace(FETCH_LOG, engine.union(others, single), near, days)


def _take_apart_in_spark(lake: Lake, near: str, across: str) -> None:
    """Among the rows ``near`` the period, replace the runs that meet the condition ``across`` by single fetches."""
    found = lake.read(FETCH_LOG.name).where(near)
    is_across = F.coalesce(F.expr(across), F.lit(False))
    single = single_fetches(found.where(is_across)).withColumns(
        {"run_length": F.lit(1), "later_by": F.lit(None), "last_handled_time": F.col("handled_time")}
    )
    lake.replace(FETCH_LOG, found.where(~is_across).unionByName(single), near)
