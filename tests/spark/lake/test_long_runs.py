"""Runs of fetches, longer than the pieces in which Spark sums them, are expanded as plain Python expands them."""

from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from random import Random
from typing import Any, Final

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from isr_batch.lake.arrow_read import contract_schema
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.fetch_log import single_fetches
from isr_batch.lake.lake_engine import INSTANTS
from isr_batch.lake.memory_lake import MemoryLake
from isr_batch.lake.sql_files import views_for_duckdb
from isr_batch.lake.tables.inputs import FETCH_LOG

DAY: Final = date(2026, 1, 1)
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
LENGTHS: Final = (1, 2, 3, 127, 128, 129, 130, 256, 257, 258, 1000)
Row = dict[str, Any]


def runs_and_fetches() -> tuple[pa.Table, list[Row]]:
    """One run of each length, and its single fetches: the replica, five instants in microseconds, and the line."""
    random, runs, singly = Random(7), [], []
    for replica, length in enumerate(LENGTHS):
        steps = [[random.randrange(1, 1_000_000) for _ in range(6)] for _ in range(length - 1)]
        begins = [10 * replica + place for place in range(5)]
        sums = [list(accumulate((step[place] for step in steps), initial=0)) for place in range(6)]
        for n in range(length):
            times = {f"{name}_us": begins[place] + sums[place][n] for place, name in enumerate(INSTANTS)}
            singly.append({"replica_id": replica, **times, "source_line": 5 + sums[5][n]})
        runs.append({
            "cluster_id": "c", "topic": "t", "partition_id": 0, "leader_epoch": 1, "leader_id": 9,
            "replica_id": replica, "fetch_offset": 3, "leader_log_end_offset": 3, "leader_leo_source": "logged",
            "error_code": 0, "source_file": "f", "source_line": 5, "event_date": DAY, "run_length": length,
            "later_by": [by for step in steps for by in step] or None,
            "last_handled_time": BEGIN + timedelta(microseconds=begins[1] + sums[1][-1]),
            **{f"{name}_time": BEGIN + timedelta(microseconds=begins[n]) for n, name in enumerate(INSTANTS)},
        })  # fmt: skip
    return pa.Table.from_pylist(runs, contract_schema(FETCH_LOG.name, FETCH_LOG.column_names)), singly


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["replica_id"], row["arrival_us"]))


def of_view(rows: list[Row]) -> list[Row]:
    """Rows of the view `fetches`, with times as microseconds since BEGIN."""
    begin = BEGIN.replace(tzinfo=None)
    return in_order([
        {
            "replica_id": row["replica_id"], "source_line": row["source_line"],
            **{f"{name}_us": (row[f"{name}_time"].replace(tzinfo=None) - begin) // timedelta(microseconds=1)
               for name in INSTANTS},
        }
        for row in rows
    ])  # fmt: skip


def test_long_runs_are_expanded_as_python_expands_them(spark_session: SparkSession) -> None:
    runs, singly = runs_and_fetches()
    expected = in_order(singly)
    shown = single_fetches(spark_session.createDataFrame(runs)).toArrow().to_pylist()
    assert of_view(shown) == expected
    with duckdb.connect() as connection:
        connection.sql("SET TimeZone = 'UTC'")
        connection.register("fetch_log", runs)
        assert of_view(connection.sql(views_for_duckdb()["fetches"]).to_arrow_table().to_pylist()) == expected
    first_us = int(BEGIN.timestamp() * 1_000_000)
    span = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_id": 9}
    bounds = (first_us + 2_000_000, first_us + 60_000_000)
    spans = pa.Table.from_pylist([
        {**span, "replica_id": replica, "from_us": bounds[0], "until_us": bounds[1]} for replica in range(len(LENGTHS))
    ])  # fmt: skip
    spans = spans.set_column(4, "replica_id", spans["replica_id"].cast(pa.int32()))
    with InProcess(MemoryLake({FETCH_LOG: runs})) as engine:
        found = engine.arrow(engine.fetches(engine.rows(spans), (DAY, DAY))).to_pylist()
    kept = [
        row for row in expected
        if row["arrival_us"] + first_us <= bounds[1] and row["completed_us"] + first_us >= bounds[0]
    ]  # fmt: skip
    names = ("replica_id", *(f"{name}_us" for name in INSTANTS))
    since_begin = [{name: row[name] - (first_us if name != "replica_id" else 0) for name in names} for row in found]
    assert 0 < len(kept) < len(expected)
    assert in_order(since_begin) == [{name: row[name] for name in names} for row in kept]
