"""Values in queries: what a name holds is never SQL; and the view of days to replay."""

from datetime import UTC, date, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from isr_batch.lake.arrow_sql import quoted
from isr_batch.lake.lake_sql import _sql_with_values, lake_sql_for_spark
from isr_batch.lake.sql_files import views_for_duckdb

QUERY = "SELECT * FROM (VALUES :rows) AS t(a, b) WHERE a > :least AND c = '12:30'"


def test_rows_are_written_as_each_engine_reads_them() -> None:
    rows = [("it's", 1), ("a\\b", None)]
    assert lake_sql_for_spark(QUERY, rows=rows, least="0") == (
        "SELECT * FROM (VALUES ('it\\'s', 1), ('a\\\\b', NULL)) AS t(a, b) WHERE a > 0 AND c = '12:30'"
    )
    assert _sql_with_values(QUERY, {"rows": rows, "least": "0"}, quoted) == (
        "SELECT * FROM (VALUES ('it''s', 1), ('a\\b', NULL)) AS t(a, b) WHERE a > 0 AND c = '12:30'"
    )


def test_a_value_that_looks_like_a_name_is_none() -> None:
    assert lake_sql_for_spark("SELECT :rows", rows=[(":least",)], least="1") == "SELECT (':least')"


def days_to_replay(*runs: tuple[int, str, str]) -> list[tuple[int, int]]:
    """Days of November, and the minutes of their changes, of two files after these runs (minute, command, window)."""
    start = datetime(2026, 11, 22, tzinfo=UTC)
    days = [{date(2026, 11, 20): start, date(2026, 11, 22): start}, {date(2026, 11, 21): start + timedelta(minutes=10)}]
    files = pa.table({
        "cluster_id": ["c", "c"],
        "days": pa.array([list(each.items()) for each in days], pa.map_(pa.date32(), pa.timestamp("us", "UTC"))),
    })  # fmt: skip
    rows = [{"started_time": start + timedelta(minutes=minute), "command": command, "window": window,
             "seconds": 120.0, "status": "done"} for minute, command, window in runs]  # fmt: skip
    kinds = {"started_time": pa.timestamp("us", "UTC"), "command": pa.string(), "window": pa.string(),
             "seconds": pa.float64(), "status": pa.string()}  # fmt: skip
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("ingested_files", files)
        db.register("run_log", pa.Table.from_pylist(rows, pa.schema(kinds)))
        found = db.execute(f"SELECT event_date, epoch_us(changed_time) FROM ({views_for_duckdb()['days_to_replay']})")
        return sorted((day.day, (at - round(start.timestamp() * 1e6)) // 60_000_000) for day, at in found.fetchall())


@pytest.mark.parametrize(
    ("runs", "left"),
    [
        ([], [(20, 0), (21, 10), (22, 10)]),
        ([(5, "backfill", "..")], [(21, 10), (22, 10)]),  # what changed on the 21st makes the 22nd stale too
        ([(5, "backfill", ".."), (15, "replay", "2026-11-21..2026-11-22")], [(22, 10)]),
        ([(15, "backfill", "..2026-11-22")], [(22, 10)]),
        ([(9, "run --timelines none", "..")], []),  # it replays after its ingest
        ([(15, "ingest", "..")], [(20, 0), (21, 10), (22, 10)]),
    ],
)
def test_days_to_replay(runs: list[tuple[int, str, str]], left: list[tuple[int, int]]) -> None:
    assert days_to_replay(*runs) == left
