"""Runs of identical fetches in the lake: shown singly, refused when they do not add up, replayed, replaced in part."""

from typing import Any

import pytest
from pyspark.sql import DataFrame

from isr_batch.ingest.runs_taken_apart import take_runs_apart
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.fetch_log import single_fetches
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.replay.event_stream import event_stream, stream_facts
from isr_batch.replay.packing import pack_stale_days
from isr_batch.replay.replay import replayed_stream, rule_runs
from isr_batch.settings import ReplaySettings

DAY = "2026-01-01"
SET = "'c' AS cluster_id, 't' AS topic, 0 AS partition_id, 0 AS leader_epoch, 1 AS leader_id"
EACH = 10
INSTANTS = {"arrival": 0, "handled": 1, "processed": 2, "released": 450, "completed": 460}
SINGLE = "1 AS run_length, CAST(NULL AS ARRAY<INT>) AS later_by"
ONE_ROW = f"{EACH} AS run_length, flatten(array_repeat(array(500000, 500000, 500000, 500000, 500000, 2), {EACH - 1}))"


def at(ms: str) -> str:
    return f"TIMESTAMP'{DAY} 12:00:00' + make_interval(0, 0, 0, 0, 0, 0, ({ms}) / 1000)"


def put(lake: Lake, table: Table, query: str) -> None:
    rows = lake.spark.sql(query)
    missing = [column for column in table.columns if column.name not in rows.columns]
    lake.replace(table, rows.selectExpr("*", *(f"CAST(NULL AS {c.type}) AS {c.name}" for c in missing)), "true")


def fetches(first_ms: str, runs: str, last_ms: str) -> str:
    """A query of ten fetches of replica 2, twice a second, or of the row that they are; and one of replica 3."""
    count = EACH if runs == SINGLE else 1
    line = "10 + 2 * id" if runs == SINGLE else "10L"
    return f"""
        SELECT {SET}, r AS replica_id, 5L AS fetch_offset, 'appends' AS leader_leo_source, 0 AS error_code, 'f' AS
        source_file, {line} AS source_line, DATE'{DAY}' AS event_date,
        {", ".join(f"{at(f'{first_ms} + 10 * r + {ms}')} AS {name}_time" for name, ms in INSTANTS.items())},
        {at(f"{last_ms} + 10 * r + {INSTANTS['handled']}")} AS last_handled_time, {runs}
        FROM range({count}) LATERAL VIEW explode(array(2, 3)) AS r"""


AS_FETCHES = fetches("500 * id", SINGLE, "500 * id")
AS_RUNS = fetches("0", f"{ONE_ROW} AS later_by", f"{500 * (EACH - 1)}")


def content(rows: DataFrame) -> list[str]:
    return sorted(str(row) for row in rows.select(sorted(rows.columns)).collect())


def test_the_view_has_a_row_a_fetch(lake: Lake) -> None:
    put(lake, FETCH_LOG, AS_FETCHES)
    columns = [name for name in FETCH_LOG.column_names if name not in ("run_length", "later_by", "last_handled_time")]
    expected = content(lake.read("fetch_log").select(columns))
    assert content(single_fetches(lake.read("fetch_log"))) == expected
    put(lake, FETCH_LOG, AS_RUNS)
    assert lake.read("fetch_log").count() == 2
    assert "fetches" in lake.register_views()
    assert content(lake.spark.table("fetches")) == expected
    assert lake.spark.table("fetches").columns == columns


@pytest.mark.parametrize(
    ("told", "last_ms", "broken"),
    [
        ("2 AS run_length, NULL AS later_by", "1", "run_told"),
        ("1 AS run_length, array(1, 1, 1, 1, 1, 1) AS later_by", "0", "run_told"),
        ("2 AS run_length, array(1, 1, 1, 1, 1) AS later_by", "1", "run_told"),
        ("0 AS run_length, NULL AS later_by", "1", "run_told"),
        ("2 AS run_length, array(1, 1, 1, 1, 1, 1) AS later_by", "0", "run_in_order"),
    ],
)
def test_a_run_that_does_not_add_up_is_refused(lake: Lake, told: str, last_ms: str, broken: str) -> None:
    with pytest.raises(Exception, match=broken):
        put(lake, FETCH_LOG, fetches("0", told, last_ms))


def test_a_replay_of_runs_is_one_of_fetches(lake: Lake) -> None:
    put(
        lake,
        LEADER_EPOCHS,
        f"""SELECT {SET}, {at("0")} AS start_time, {at("30000")} AS end_time, 5L AS start_offset,
        5L AS start_high_watermark, array(1, 2, 3) AS assigned, array(1, 2, 3) AS isr_at_start,
        400L AS replica_lag_time_max_ms, 2 AS min_insync_replicas, '4.1.0' AS broker_version, 0L AS check_origin_ms,
        'unknown' AS check_origin_source, DATE'{DAY}' AS event_date""",
    )
    put(
        lake,
        APPEND_LOG,
        f"""SELECT {SET}, {at("1700")} AS append_time, 5L AS base_offset, 6L AS log_end_offset, -1 AS acks,
        0 AS error_code, DATE'{DAY}' AS event_date""",
    )
    for table in (OBSERVED_ISR_CHANGES, BROKER_EVENTS):
        lake.ensure(table)

    def results(query: str) -> list[str]:
        put(lake, FETCH_LOG, query)
        assert pack_stale_days(lake)
        with InProcess(lake) as engine:
            stream = event_stream(engine, stream_facts(engine))
            rows = replayed_stream(engine, stream, rule_runs(ReplaySettings(rules=["kafka-0.9", "kafka-3.7"])))
            return sorted(map(str, engine.listed(rows)))

    singly = results(AS_FETCHES)
    assert any("shrink" in row for row in singly)
    assert results(AS_RUNS) == singly


@pytest.mark.parametrize(
    ("time", "span", "runs"),
    [
        ("handled_time", ("12:00:00.011", "12:00:04.521"), [2]),  # all of replica 2; the last of 3 comes later
        ("handled_time", ("12:00:01", "12:00:02"), []),
        ("completed_time", ("12:00:04.980", "12:00:06"), []),  # the last of replica 2, and the last of 3
        ("completed_time", ("12:00:04.981", "12:00:06"), [2]),
        ("completed_time", ("12:00:04.991", "12:00:06"), [2, 3]),
    ],
)
@pytest.mark.parametrize("in_spark", [False, True])
def test_runs_partly_in_a_span_are_split(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, time: str, span: tuple[str, str], runs: list[int], in_spark: bool
) -> None:
    put(lake, FETCH_LOG, AS_RUNS)
    monkeypatch.setattr("isr_batch.lake.sizes.QUERIED_BYTES", -1 if in_spark else 1 << 26)
    before = content(single_fetches(lake.read("fetch_log")))
    take_runs_apart(lake, "cluster_id = 'c'", time, (f"{DAY} {span[0]}", f"{DAY} {span[1]}"))
    rows = lake.read("fetch_log")
    whole: list[Any] = rows.where(f"run_length = {EACH}").select("replica_id").collect()
    assert sorted(row["replica_id"] for row in whole) == runs
    assert rows.count() == len(runs) + (2 - len(runs)) * EACH
    assert content(single_fetches(rows)) == before
