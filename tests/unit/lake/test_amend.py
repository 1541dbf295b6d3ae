"""Rows are amended without Spark: days with rows to be changed are written again, and no others."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import BROKER_EVENTS

BEGIN = datetime(2026, 1, 1, 23, tzinfo=UTC)
KEY = ("cluster_id", "broker_id", "event_time")


def test_amended_rows(tmp_path: Path) -> None:
    lake = Lake(lambda: pytest.fail("Spark is not needed"), str(tmp_path), "a-run")
    rows = [
        {"cluster_id": "it's", "broker_id": broker, "event_time": at, "end_time": at, "kind": "silent",
         "event_date": at.date()}
        for broker in (1, 2) for at in (BEGIN, BEGIN + timedelta(hours=2))
    ]  # fmt: skip
    given = [
        {name: row[name] for name in KEY} | {"end_time": BEGIN + timedelta(hours=9), "kind": "quiet"}
        for row in rows if row["broker_id"] == 2 and row["event_time"] == BEGIN
    ]  # fmt: skip
    schema = arrow_schema(BROKER_EVENTS)
    with InProcess(lake) as engine:
        engine.replace(BROKER_EVENTS, engine.rows(pa.Table.from_pylist(rows, schema)))
        files = set(lake.files(BROKER_EVENTS.name))
        typed = pa.schema([schema.field(name) for name in (*KEY, "end_time", "kind")])
        engine.amend(BROKER_EVENTS, engine.rows(pa.Table.from_pylist(given, typed)), KEY, "kind", "end_time")
    after = read_columns(lake, BROKER_EVENTS.name, schema.names).to_pylist()
    changed = [row | one for row in rows for one in given if all(row[name] == one[name] for name in KEY)]
    unchanged = [row for row in rows if not any(all(row[name] == one[name] for name in KEY) for one in given)]
    assert len(changed) == 1
    assert {tuple(sorted(row.items())) for row in after} == {
        tuple(sorted(row.items())) for row in (*changed, *unchanged)
    }
    assert len(after) == len(rows)
    stayed = files & set(lake.files(BROKER_EVENTS.name))
    assert [file for file in stayed if "event_date=2026-01-02" in file]
    assert not [file for file in stayed if "event_date=2026-01-01" in file]
