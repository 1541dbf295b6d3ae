"""Small files become one, with the same rows, and with the span of their instants in the log."""

from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.compact import compact_files
from isr_batch.lake.delta_files.open import data_files
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.outputs import RUN_LOG


def no_spark() -> NoReturn:
    raise AssertionError


def test_joined_files_have_the_same_rows_and_their_span(tmp_path: Path) -> None:
    lake = Lake(no_spark, str(tmp_path / "lake"))
    instants = [datetime(2026, 1, 1, 12, minute, 0, 250, UTC) for minute in (5, 1, 3)]
    with ArrowSql() as sql:
        for number, at in enumerate(instants):
            row = {
                "run_id": str(number), "started_time": at, "command": "replay", "status": "done", "seconds": 0.5,
                "code_version": "1", "config_hash": "0", "exit_code": 0,
            }  # fmt: skip
            rows = pa.Table.from_pylist([row], arrow_schema(RUN_LOG))
            lake.ensure(RUN_LOG)
            SmallTables(lake, sql).replace(RUN_LOG, rows, "false", checked=True)
    there = lake.by_delta_rs(RUN_LOG.name)
    before = read_columns(lake, RUN_LOG.name, ["run_id", "started_time"]).sort_by("run_id")
    assert len(there.data_files()) == 3
    compact_files(there, RUN_LOG)
    assert read_columns(lake, RUN_LOG.name, ["run_id", "started_time"]).sort_by("run_id") == before
    (file,) = data_files(there.log(), None, "num_records", "min.started_time", "max.started_time")
    assert file["num_records"] == 3
    assert file["min.started_time"] == datetime(2026, 1, 1, 12, 1, 0, 0, UTC)
    assert file["max.started_time"] == datetime(2026, 1, 1, 12, 5, 0, 1000, UTC)  # whole milliseconds, rounded up
