"""Expand runs of identical fetches: to query single fetches, and to replace part of a run."""

from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from isr_batch.lake.lake import Lake
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.inputs import FETCH_LOG

_LAST = {
    "handled_time": "last_handled_time",
    "completed_time": "timestamp_micros(unix_micros(completed_time) + aggregate(sequence(1, run_length - 1), 0L, "
    "(later_us, i) -> later_us + get(later_by, 6 * i - 2)))",
}
"""An instant of the last fetch of a run, by the column that has the first's."""


def single_fetches(rows: DataFrame) -> DataFrame:
    """Rows of ``fetch_log`` with one row per fetch: the columns of view ``fetches``."""
    text = sql_texts()["fetches"].replace("fetch_log", "{fetch_log}")
    return rows.sparkSession.sql(text, fetch_log=rows)


def take_runs_apart(lake: Lake, of_rows: str, time: str, span: tuple[str, str] | tuple[datetime, datetime]) -> None:
    """Split the runs of fetches that lie only partly in a span of time into single rows.

    Then the fetches of that span can be replaced row by row. The content of ``fetch_log`` stays the same.

    Parameters
    ----------
    lake : Lake
        With or without a ``fetch_log``.
    of_rows : str
        SQL condition that selects the rows.
    time : str
        Column that decides whether a fetch is in the span: handled_time or completed_time.
    span : (str, str) or (datetime, datetime)
        First and last instant, both within the span; UTC, text as SQL casts it to a TIMESTAMP.
    """
    if not lake.has(FETCH_LOG.name):
        return
    begin, end = (f"TIMESTAMP'{at}'" if isinstance(at, str) else f"TIMESTAMP'{at.astimezone(UTC)}'" for at in span)
    last = _LAST[time]
    across = (
        f"run_length > 1 AND ({time} < {begin} AND {last} >= {begin} OR {time} <= {end} AND {last} > {end})"
    )  # fmt: skip
    rows = lake.read(FETCH_LOG.name).where(of_rows)
    edges = rows.where(across).agg(F.min("handled_time").cast("string"), F.max("last_handled_time").cast("string"))
    first, until = edges.collect()[0]
    if first is None:
        return
    # A run has one day, but there may be some on several.
    near = (
        f"({of_rows}) AND event_date BETWEEN DATE'{first[:10]}' AND DATE'{until[:10]}' "
        f"AND handled_time BETWEEN TIMESTAMP'{first}' AND TIMESTAMP'{until}'"
    )
    found = rows.where(near)
    is_across = F.coalesce(F.expr(across), F.lit(False))
    single = single_fetches(found.where(is_across)).withColumns(
        {"run_length": F.lit(1), "later_by": F.lit(None), "last_handled_time": F.col("handled_time")}
    )
    lake.replace(FETCH_LOG, found.where(~is_across).unionByName(single), near)
