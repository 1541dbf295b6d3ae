"""Compare two tables as multisets: the same rows, each as often, in any order."""

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake

STEPS = {"arrival_time": 1, "handled_time": 2, "processed_time": 3, "released_time": 4, "completed_time": 5}
"""Times of a fetch, and the place of each in a step of ``later_by``; the sixth is the line."""


def assert_same_rows(found: pa.Table, expected: pa.Table, what: str) -> None:
    """Fail unless both tables have the same rows; compares hashes first, because that is fast."""
    with duckdb.connect() as db:
        db.register("found", found.select(expected.column_names)).register("expected", expected)
        sums = [db.execute(f"SELECT count(*), sum(hash(t)) FROM {name} AS t").fetchone()
                for name in ("found", "expected")]  # fmt: skip
        if sums[0] != sums[1]:
            apart = [
                db.execute(f"FROM {one} EXCEPT ALL FROM {other} LIMIT 3").fetchall()
                for one, other in (("found", "expected"), ("expected", "found"))
            ]
            assert apart == [[], []], what


def rows_in(lake: Lake, name: str, columns: Sequence[str] = ()) -> list[str]:
    """All rows of a table or view as text, sorted; read without Spark, whose jobs took most of a test's time."""
    with InProcess(lake) as engine:
        return sorted(str([*row.values()]) for row in engine.arrow(engine.table(name, columns)).to_pylist())


def single_fetches_of(fetch_log: pa.Table) -> pa.Table:
    """Take the runs of ``fetch_log`` apart into one row per fetch.

    Where a run ends depends on how the log was read in batches, so only single fetches can be compared.
    """
    later = "coalesce(list_sum(later_by[{0}:6 * n:6]), 0)"
    times = ", ".join(
        f"CAST(epoch_us({name}) + {later.format(place)} AS BIGINT) AS {name}" for name, place in STEPS.items()
    )
    with duckdb.connect() as db:
        db.register("fetch_log", fetch_log)
        return db.sql(
            f"""
            SELECT * EXCLUDE (n, run_length, later_by, last_handled_time)
              REPLACE ({times}, CAST(source_line + {later.format(6)} AS BIGINT) AS source_line)
            FROM (SELECT *, unnest(range(run_length)) AS n FROM fetch_log)
            """
        ).to_arrow_table()
