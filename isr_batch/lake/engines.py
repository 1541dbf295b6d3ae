"""Choose the engine for SQL over a lake's tables: DuckDB in this process, or Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from isr_batch.lake import sizes
from isr_batch.lake.arrow_read import stored_bytes
from isr_batch.lake.arrow_sql import without_zones
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import Days, LakeEngine, Rows
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG


class NearSpark(InProcess):
    """DuckDB in this process. Spark selects fetches and appends only if DuckDB cannot read their files."""

    def fetches(self, spans: Rows, days: Days) -> Rows:
        """Return the fetches in time spans (`LakeEngine.fetches`). Spark selects them if DuckDB cannot read them."""
        if self.reads(FETCH_LOG.name):
            return super().fetches(spans, days)
        with BySpark(self._lake) as spark:
            return without_zones(spark.arrow(spark.fetches(spark.rows(spans), days)))

    def appends(self, spans: Rows, days: Days) -> Rows:
        """Return the appends in time spans (`LakeEngine.appends`). Spark selects them if DuckDB cannot read them."""
        if self.reads(APPEND_LOG.name):
            return super().appends(spans, days)
        with BySpark(self._lake) as spark:
            return without_zones(spark.arrow(spark.appends(spark.rows(spans), days)))


def engine_for(lake: Lake, names: Sequence[str]) -> LakeEngine:
    """Return the engine for queries on these tables: DuckDB if it can hold them all in memory, else Spark."""
    few = sum(stored_bytes(lake, name) for name in names) <= sizes.QUERIED_BYTES
    return NearSpark(lake) if few else BySpark(lake)


def engine_for_a_partition(lake: Lake) -> LakeEngine:
    """Return the engine for queries about one partition: DuckDB if fetch_log is local or small, else Spark."""
    there = lake.direct(FETCH_LOG.name)
    few = there and (there.store.is_folder or there.size_bytes <= sizes.S3_BYTES)
    return InProcess(lake) if few else BySpark(lake)


@contextmanager
def engine_for_results(
    lake: Lake, engine: LakeEngine, results: Rows, where: str, most: int | None
) -> Iterator[tuple[LakeEngine, Rows]]:
    """Select the ``results`` of a replay that meet the condition ``where``, and yield an engine to write them.

    The second value is the selected rows, in the form that this engine needs. Spark takes seconds to write any table.
    Therefore the engine is DuckDB in this process for up to ``most`` rows, or for any number of rows if ``most`` is
    None. Otherwise it is ``engine``.
    """
    chosen = engine(f"SELECT * FROM {{results}} AS results WHERE {where}", results=results)
    if not engine.in_process and (most is None or _count_by_engine(engine, chosen) <= most):
        with InProcess(lake) as here:
            yield here, here.rows(engine.arrow(chosen))
    else:
        yield engine, chosen


def _count_by_engine(engine: LakeEngine, rows: Rows) -> int:
    return int(engine.listed(engine("SELECT count(*) AS n FROM {rows}", rows=rows))[0]["n"])
