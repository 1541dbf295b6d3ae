"""What a worker writes of timelines: every row in the file of its day and rule, and told of in the table's log."""

import errno
import json
import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from isr_batch.lake.tables.outputs import PARTITION_TIMELINE, REPLICA_TIMELINE
from isr_batch.replay import timeline_files
from isr_batch.replay.timeline_files import FILE, timelines_kept
from udfs.batches.results import FILED, RESULT_SCHEMA
from udfs.kernel.ledger import DAY_US

NOON_US = DAY_US // 2
PARAMS = '{"a": 1}'
TABLES = {"replica": REPLICA_TIMELINE, "partition": PARTITION_TIMELINE}
SET = {"cluster_id": "c", "partition_id": 3, "leader_epoch": 7, "leader_id": 1}


def runs(rules: str) -> str:
    """A letter a rule."""
    return json.dumps([(rule, PARAMS) for rule in rules])


def replica(rules: str, time_us: int, topic: str = "t") -> dict[str, Any]:
    return {
        **SET, "result": "replica", "topic": topic, "runs": runs(rules), "time_us": time_us, "replica_id": 2,
        "follower_log_end_offset": time_us % 97, "lag_ms": None, "lag_messages": 5, "last_caught_up_time_ms": 0,
        "in_isr": True,
    }  # fmt: skip


def partition(rules: str, time_us: int) -> dict[str, Any]:
    return {
        **SET, "result": "partition", "topic": "t", "runs": runs(rules), "time_us": time_us, "leader_log_end_offset": 9,
        "high_watermark": 8, "isr_after": [1, 2],
    }  # fmt: skip


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """As a replay gives timelines for files; others as ever."""
    kind = rows[0]["result"]
    if kind not in TABLES:
        return pa.RecordBatch.from_pylist(list(rows), RESULT_SCHEMA)
    return pa.RecordBatch.from_pylist(list(rows), FILED[kind])


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


def told_of(folder: Path, table: str, told: list[dict[str, Any]]) -> Counter[tuple[str, ...]]:
    """Rows of the table's files as its log tells of them: day, rule, parameters, topic, time."""
    rows: Counter[tuple[str, ...]] = Counter()
    for file in told:
        found = pq.read_table(folder / table / file["path"], partitioning=None)
        assert len(found) == file["stats"]["numRecords"]
        rows.update((*file["partition_values"].values(), row["topic"], str(row["time"])) for row in found.to_pylist())
    return rows


def is_link(folder: Path, file: dict[str, Any]) -> bool:
    return Path(folder, file["table"], file["path"]).stat().st_nlink > 1


@pytest.mark.parametrize(
    "limits", [(1, 1, 1), (3, 5, 1), (3, 5, 4), (1 << 16, 6, 9), (1 << 16, 1 << 19, 1 << 13)], ids=str
)
def test_each_row_is_in_the_files_of_its_day_and_of_each_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int, int]
) -> None:
    for name, limit in zip(("ROW_GROUP", "ROWS_WAITING", "SHARED_ROWS"), limits, strict=True):
        monkeypatch.setattr(timeline_files, name, limit)
    midnight = 3 * DAY_US
    times = [NOON_US, midnight - 1, midnight, midnight + 5]
    rows = [replica(rules, time, topic) for topic in ("t", "u") for time in times for rules in ("b", "ab", "bc", "a")]
    told, passed = kept(tmp_path, batch(*rows[:13]), batch({"result": "change"}), batch(*rows[13:]))
    assert passed == ["change"]
    expected = Counter(
        (str(time)[:10], rule, PARAMS, row["topic"], str(time))
        for row in rows
        for rule, _ in json.loads(row["runs"])
        for time in [datetime.fromtimestamp(row["time_us"] / 1e6, UTC)]
    )
    assert told_of(tmp_path, "replica_timeline", told) == expected
    days = ("1970-01-01", "1970-01-03", "1970-01-04")
    most = [(day, rules) for day in days for rules in ("b", "ab", "bc", "a", "c") for _ in json.loads(runs(rules))]
    assert len(told) <= len(most)  # a file each, however often it was written to


def test_runs_share_a_file_that_has_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_files, "SHARED_ROWS", 3)
    many, few = (batch(*(replica(rules, NOON_US + i) for i in range(n))) for rules, n in (("abc", 3), ("ab", 2)))
    told, _ = kept(tmp_path, many, few)
    assert Counter((f["partition_values"]["rule"], f["stats"]["numRecords"], is_link(tmp_path, f)) for f in told) == {
        ("a", 3, True): 1, ("b", 3, True): 1, ("c", 3, True): 1, ("a", 2, False): 1, ("b", 2, False): 1
    }  # fmt: skip
    assert len({(tmp_path / f["table"] / f["path"]).stat().st_ino for f in told}) == 3


def test_runs_have_copies_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_files, "SHARED_ROWS", 1)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    told, _ = kept(tmp_path, batch(replica("ab", NOON_US), replica("ab", NOON_US + 1)))
    assert [is_link(tmp_path, file) for file in told] == [False, False]
    rows = told_of(tmp_path, "replica_timeline", told)
    assert sorted(rule for _, rule, *_ in rows) == ["a", "a", "b", "b"]


def test_runs_of_one_rule_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_files, "SHARED_ROWS", 1)
    params = ['{"a": 1}', '{"a": 2}']
    row = replica("", NOON_US) | {"runs": json.dumps([("r", each) for each in params])}
    told, _ = kept(tmp_path, batch(row))
    assert [file["partition_values"]["params_json"] for file in told] == params
    assert len({file["path"] for file in told}) == 2


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
    assert set(pq.read_schema(path).names) == {*REPLICA_TIMELINE.column_names} - {"event_date", "rule", "params_json"}
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


def test_few_rows_that_wait_keep_no_others_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_files, "ROW_GROUP", 1000)
    rows = batch(*[replica("ab", NOON_US + i) for i in range(2000)], replica("a", NOON_US))
    held = []

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(40):
            held.append(pa.total_allocated_bytes())
            yield rows.take(pa.array(range(len(rows))))  # memory of its own

    folders = {kind: str(tmp_path / table.name) for kind, table in TABLES.items()}
    assert len(list(timelines_kept(batches(), folders, 0))) == 1
    assert held[-1] - held[1] < 2 * rows.nbytes
