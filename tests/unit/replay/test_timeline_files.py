"""Timelines written by a worker: every row once, in the file of its day, and listed in the table's log."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.commit import added
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import FileOfWorker
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.outputs import TABLES as CONTRACTS
from isr_batch.lake.tables.timelines import PARTITION_STATES, REPLICA_STATES, VIEWS
from isr_batch.replay import timeline_files
from isr_batch.replay.timeline_files import FILE, timelines_kept
from udfs.batches.results import RESULT_SCHEMA, STATES
from udfs.kernel.ledger import DAY_US

NOON_US = DAY_US // 2
PARAMS = '{"a": 1}'
TABLES = {"replica": REPLICA_STATES, "partition": PARTITION_STATES}
SET = {"cluster_id": "c", "partition_id": 3, "leader_epoch": 7, "leader_id": 1}
DAYS = ds.partitioning(pa.schema([("event_date", pa.date32())]), flavor="hive")
RUN_SET = json.dumps([(rule, PARAMS) for rule in "abc"])


def bits(rules: str) -> int:
    """A letter a rule."""
    return sum(1 << "abc".index(rule) for rule in rules)


def replica(rules: str, time_us: int, topic: str = "t", **other: Any) -> dict[str, Any]:
    return {
        **SET, "result": "replica", "topic": topic, "run_set": RUN_SET, "runs": bits(rules), "time_us": time_us,
        "replica_id": 2, "follower_log_end_offset": time_us % 97, "lag_messages": 5, "last_caught_up_time_ms": 0,
        "in_isr": True, "nth": 0,
    } | other  # fmt: skip


def partition(rules: str, time_us: int) -> dict[str, Any]:
    return {
        **SET, "result": "partition", "topic": "t", "run_set": RUN_SET, "runs": bits(rules), "time_us": time_us,
        "leader_log_end_offset": 9, "high_watermark": 8, "isr_after": [1, 2],
        "acknowledged_offset": 0,
    }  # fmt: skip


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """As a replay gives timelines that are stored; others as ever."""
    kind = rows[0]["result"]
    return pa.RecordBatch.from_pylist(list(rows), STATES[kind] if kind in TABLES else RESULT_SCHEMA)


def kept(folder: Path, *batches: pa.RecordBatch, since_us: int = 0) -> tuple[list[dict[str, Any]], list[str]]:
    """Reports of files and runs, and the kinds of the rows that passed."""
    stores = {kind: Store(str(folder / table.name)) for kind, table in TABLES.items()}
    for store in stores.values():
        Path(store.uri).mkdir(parents=True, exist_ok=True)
    passed = pa.Table.from_batches(timelines_kept(iter(batches), stores, since_us, "r1"), timeline_files.SCHEMA)
    return (
        [json.loads(row[FILE]) for row in passed.to_pylist() if row["result"] == FILE],
        [row["result"] for row in passed.to_pylist() if row["result"] != FILE],
    )


def files(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["file"] for each in told if "file" in each]


def statistics(file: dict[str, Any]) -> dict[str, Any]:
    """Those of the log."""
    found: dict[str, Any] = json.loads(added(FileOfWorker(**file), REPLICA_STATES).stats)
    return found


def written(folder: Path, table: str) -> list[dict[str, Any]]:
    return list(ds.dataset(folder / table, partitioning="hive").to_table().to_pylist())


def seen(folder: Path, view: str, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a view."""
    runs = [
        {
            "run_set": each["run_set"],
            "run": n,
            "rule": rule,
            "params_json": params,
            "event_date": date.fromisoformat(day),
            "caught_up_by": "handled",
            "no_lag_while": "at log end",
        }
        for each in told
        if "runs" in each
        for day in each["days"]
        for n, (rule, params) in enumerate(each["runs"])
    ]
    empty = {part: arrow_schema(CONTRACTS[part]).empty_table() for part in VIEWS[view][1]}
    there = {
        part: ds.dataset(folder / part, partitioning=DAYS) for part in empty if [*(folder / part).rglob("*.parquet")]
    }
    with ArrowSql() as sql:
        tables = {**empty, **there, "rule_runs": pa.Table.from_pylist(runs)}
        return list(sql(sql_texts()[view], **tables).to_pylist())


@pytest.mark.parametrize("limits", [(1, 1), (3, 5), (1 << 16, 6), (1 << 16, 1 << 19)], ids=str)
def test_each_row_is_once_in_the_file_of_its_day_and_seen_for_each_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int]
) -> None:
    for name, limit in zip(("ROW_GROUP", "ROWS_WAITING"), limits, strict=True):
        monkeypatch.setattr(timeline_files, name, limit)
    midnight = 3 * DAY_US
    times = [NOON_US, midnight - 1, midnight, midnight + 5]
    rows = [replica(rules, time, topic) for topic in ("t", "u") for time in times for rules in ("b", "ab", "bc", "a")]
    told, passed = kept(tmp_path, batch(*rows[:13]), batch({"result": "change"}), batch(*rows[13:]))
    assert passed == ["change"]
    expected = Counter(
        (rule, row["topic"], row["time_us"]) for row in rows for rule in "abc" if row["runs"] & bits(rule)
    )
    found = seen(tmp_path, "replica_changes", told)
    assert Counter((row["rule"], row["topic"], int(row["time"].timestamp() * 1e6 + 0.5)) for row in found) == expected
    assert {row["params_json"] for row in found} == {PARAMS}
    days = ["1970-01-01", "1970-01-03", "1970-01-04"]
    assert sorted(file["day"] for file in files(told)) == days
    assert sum(file["rows"] for file in files(told)) == len(rows) == len(written(tmp_path, "replica_states"))


@pytest.mark.parametrize(
    ("caught_up_ms", "messages", "lag_ms"),
    [(0, 5, None), (-1, None, None), (NOON_US // 1000, 0, 0), (NOON_US // 1000 - 7, 0, 0), (NOON_US // 1000 - 7, 5, 7),
     (NOON_US // 1000 - 7, None, 7), (NOON_US // 1000 + 7, 5, 0)],
)  # fmt: skip
def test_the_lag_follows_from_the_stored_rows(
    tmp_path: Path, caught_up_ms: int, messages: int | None, lag_ms: int | None
) -> None:
    row = replica("a", NOON_US + 999, last_caught_up_time_ms=caught_up_ms, lag_messages=messages)
    told, _ = kept(tmp_path, batch(row))
    assert [row["lag_ms"] for row in seen(tmp_path, "replica_timeline", told)] == [lag_ms]


def test_rows_before_the_window_are_dropped(tmp_path: Path) -> None:
    rows = batch(replica("a", DAY_US - 1), replica("a", DAY_US))
    told, _ = kept(tmp_path, rows, since_us=DAY_US)
    assert [f["rows"] for f in files(told)] == [1]
    assert kept(tmp_path / "none", rows, since_us=2 * DAY_US) == ([], [])


def test_the_log_has_the_statistics_of_each_file(tmp_path: Path) -> None:
    rows = [replica("a", NOON_US + 1_234_567, "t"), replica("a", NOON_US + 7_000_000, "b")]
    (of_file, runs) = kept(tmp_path, batch(*rows))[0]
    told = of_file["file"]
    path = tmp_path / "replica_states" / told["path"]
    assert told["size_bytes"] == path.stat().st_size
    assert told["path"].startswith("event_date=1970-01-01/part-")
    assert set(pq.read_schema(path).names) == {*REPLICA_STATES.column_names} - {"event_date"}
    of_all = {"partition_id": 3, "run_set": runs["run_set"]}
    assert statistics(told) == {
        "numRecords": 2,
        "minValues": {"topic": "b", "time": "1970-01-01T12:00:01.234Z", **of_all},
        "maxValues": {"topic": "t", "time": "1970-01-01T12:00:07.000Z", **of_all},
        "nullCount": {"topic": 0, "partition_id": 0, "time": 0, "run_set": 0},
    }


def test_few_rows_that_wait_keep_no_others_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_files, "ROW_GROUP", 1000)
    rows = batch(*[replica("ab", NOON_US + i) for i in range(2000)], replica("a", NOON_US + DAY_US))
    held = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(40):
            held.append(pa.total_allocated_bytes())
            yield rows.take(pa.array(range(len(rows))))  # separate memory

    stores = {kind: Store(str(tmp_path / table.name)) for kind, table in TABLES.items()}
    for store in stores.values():
        Path(store.uri).mkdir()
    assert len(list(timelines_kept(batches(), stores, 0, "r1"))) == 1
    assert held[-1] - held[1] < 2 * rows.nbytes
