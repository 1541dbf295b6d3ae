"""SQL over the tables of a lake by the engine that suits them: in this process, or by Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from isr_batch.lake.arrow_read import stored_bytes
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.small_tables import MOST_BYTES
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.inputs import FETCH_LOG

MOST_FROM_S3: Final = 1 << 28
"""Bytes of a table on S3 that one partition's rows are looked for in by this process, and not by a cluster."""


def engine_for(lake: Lake, names: Sequence[str]) -> LakeEngine:
    """Choose by the size of the tables that a query holds in memory."""
    few = sum(stored_bytes(lake, name) for name in names) <= MOST_BYTES
    return InProcess(lake) if few else BySpark(lake)


def engine_for_a_partition(lake: Lake) -> LakeEngine:
    """Choose for queries that ask for one partition's rows: files of this machine are read here, however large."""
    store = lake.direct_store(FETCH_LOG.name)
    few = store is not None and (store.is_folder or stored_bytes(lake, FETCH_LOG.name) <= MOST_FROM_S3)
    return InProcess(lake) if few and lake.is_plain(FETCH_LOG.name) else BySpark(lake)


@contextmanager
def engine_for_results(
    lake: Lake, engine: LakeEngine, results: Rows, where: str, most: int | None
) -> Iterator[tuple[LakeEngine, Rows]]:
    """Give the results that meet a condition, and the engine that goes on with them: this process if they are few.

    Few are ``most`` rows; None says that they are known to be.

    Then Spark has no table of results to write, each of which takes it seconds.
    """
    chosen = engine(f"SELECT * FROM {{results}} AS results WHERE {where}", results=results)
    if isinstance(engine, BySpark) and (most is None or _count(engine, chosen) <= most):
        with InProcess(lake) as here:
            yield here, here.rows(engine.arrow(chosen))
    else:
        yield engine, chosen


def _count(engine: LakeEngine, rows: Rows) -> int:
    return int(engine.listed(engine("SELECT count(*) AS n FROM {rows}", rows=rows))[0]["n"])
