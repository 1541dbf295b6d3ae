"""What a worker writes of timelines: every row in the file of its day and rule, and told of in the table's log."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from isr_batch import timeline_files
from isr_batch.output_tables import PARTITION_TIMELINE, REPLICA_TIMELINE
from isr_batch.timeline_files import FILE, timelines_kept
from udfs.ledger import DAY_US
from udfs.results import RESULT_SCHEMA, schema_of

NOON_US = DAY_US // 2
TEXT = {field.name for field in RESULT_SCHEMA if field.type == pa.string()}
TABLES = {"replica": REPLICA_TIMELINE, "partition": PARTITION_TIMELINE}
SET = {"cluster_id": "c", "partition_id": 3, "leader_epoch": 7, "leader_id": 1, "params_json": '{"a": 1}'}


def replica(rule: str, time_us: int, topic: str = "t") -> dict[str, Any]:
    return {
        **SET, "result": "replica", "topic": topic, "rule": rule, "time_us": time_us, "replica_id": 2,
        "follower_log_end_offset": time_us % 97, "lag_ms": None, "lag_messages": 5, "last_caught_up_time_ms": 0,
        "in_isr": True,
    }  # fmt: skip


def partition(rule: str, time_us: int) -> dict[str, Any]:
    return {
        **SET, "result": "partition", "topic": "t", "rule": rule, "time_us": time_us, "leader_log_end_offset": 9,
        "high_watermark": 8, "isr_after": [1, 2],
    }  # fmt: skip


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """As a replay gives timelines for files; others as ever."""
    kind = rows[0]["result"]
    if kind not in TABLES:
        return pa.RecordBatch.from_pylist(list(rows), RESULT_SCHEMA)
    plain = pa.RecordBatch.from_pylist(list(rows), schema_of([kind]))
    texts = {name: plain.column(name).dictionary_encode() for name in plain.schema.names if name in TEXT}
    return pa.record_batch({name: texts.get(name, plain.column(name)) for name in plain.schema.names})


def kept(folder: Path, *batches: pa.RecordBatch, since_us: int = 0) -> tuple[list[dict[str, Any]], list[str]]:
    """What is told of the files, and the kinds of the rows that passed."""
    folders = {kind: str(folder / table.name) for kind, table in TABLES.items()}
    passed = pa.Table.from_batches(timelines_kept(iter(batches), folders, since_us), timeline_files.SCHEMA).to_pylist()
    return (
        [json.loads(row[FILE]) for row in passed if row["result"] == FILE],
        [row["result"] for row in passed if row["result"] != FILE],
    )


def written(folder: Path, table: str) -> list[dict[str, Any]]:
    return list(ds.dataset(folder / table, partitioning="hive").to_table().to_pylist())


@pytest.mark.parametrize("row_group", [1, 3, 1 << 16])
def test_each_row_is_in_the_file_of_its_day_and_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_group: int
) -> None:
    monkeypatch.setattr(timeline_files, "ROW_GROUP", row_group)
    midnight = 3 * DAY_US
    times = [NOON_US, midnight - 1, midnight, midnight + 5]
    rows = [replica(rule, time, topic) for topic in ("t", "u") for time in times for rule in ("b", "a")]
    told, passed = kept(tmp_path, batch(*rows[:5]), batch({"result": "change"}), batch(*rows[5:]))
    assert passed == ["change"]
    found = written(tmp_path, "replica_timeline")
    assert Counter((r["topic"], r["rule"], r["time"].timestamp() * 1e6) for r in found) == Counter(
        (r["topic"], r["rule"], float(r["time_us"])) for r in rows
    )
    assert all(str(r["event_date"]) == str(r["time"])[:10] for r in found)
    assert {(f["partition_values"]["event_date"], f["partition_values"]["rule"]) for f in told} == {
        (day, rule) for day in ("1970-01-01", "1970-01-03", "1970-01-04") for rule in ("a", "b")
    }
    assert len(told) == 6  # a file each, however often it was written to


def test_values_and_nulls_come_through(tmp_path: Path) -> None:
    kept(tmp_path, batch(replica("a", NOON_US)), batch(partition("a", NOON_US)))
    (row,) = written(tmp_path, "replica_timeline")
    assert {name: row[name] for name in REPLICA_TIMELINE.column_names if name in replica("a", 0)} == {
        name: value for name, value in replica("a", NOON_US).items() if name in REPLICA_TIMELINE.column_names
    }
    (row,) = written(tmp_path, "partition_timeline")
    assert (row["isr"], row["high_watermark"], row["leader_log_end_offset"]) == ([1, 2], 8, 9)


def test_rows_before_the_window_are_dropped(tmp_path: Path) -> None:
    rows = batch(replica("a", DAY_US - 1), replica("a", DAY_US))
    told, _ = kept(tmp_path, rows, since_us=DAY_US)
    assert [f["stats"]["numRecords"] for f in told] == [1]
    assert kept(tmp_path / "none", rows, since_us=2 * DAY_US) == ([], [])


def test_the_log_is_told_the_truth_of_each_file(tmp_path: Path) -> None:
    rows = [replica("a", NOON_US + 1_234_567, "t"), replica("a", NOON_US + 7_000_000, "b")]
    (told,), _ = kept(tmp_path, batch(*rows))
    path = tmp_path / "replica_timeline" / told["path"]
    assert told["size"] == path.stat().st_size
    assert told["path"].startswith("event_date=1970-01-01/rule=a/")
    assert set(pq.read_schema(path).names) == {*REPLICA_TIMELINE.column_names} - {"event_date", "rule"}
    assert told["stats"] == {
        "numRecords": 2,
        "minValues": {"topic": "b", "partition_id": 3, "time": "1970-01-01T12:00:01.234Z"},
        "maxValues": {"topic": "t", "partition_id": 3, "time": "1970-01-01T12:00:07.000Z"},
        "nullCount": {"topic": 0, "partition_id": 0, "time": 0},
    }


def test_the_latest_time_is_rounded_up(tmp_path: Path) -> None:
    (told,), _ = kept(tmp_path, batch(replica("a", NOON_US + 1)))
    times = [told["stats"][name]["time"] for name in ("minValues", "maxValues")]
    assert times == ["1970-01-01T12:00:00.000Z", "1970-01-01T12:00:00.001Z"]
