"""Lines of small logs that a worker passes on."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.folder.log_folder import SERVER, STATE_CHANGE
from isr_batch.ingest.kafka_logs.lines_of_interest import (
    _FOUND,
    _chosen_lines,
    _other_lines_by_file,
    _other_state_changes,
    read_lines_of_interest,
)
from isr_batch.ingest.kafka_logs.read import survey_logs
from isr_batch.lake.arrow_sql import ArrowSql

BATCH = pa.schema([
    _FOUND.field(name)
    for name in ("kind", "broker_id", "source_file", "source_line", "stamp_us", "message", "line_hash", "informs",
                 "problem", "detail")
])  # fmt: skip
DAY_US = 86_400_000_000


def chosen(*rows: dict[str, Any], kind: str = SERVER, overlapping: frozenset[int | None] = frozenset()) -> pa.Table:
    common = {"kind": kind, "broker_id": 1, "source_file": "broker-1/a.log"}
    given = [{**common, "source_line": n, "line_hash": n, **row} for n, row in enumerate(rows, 1)]
    batches = _chosen_lines(pa.RecordBatch.from_pylist(given, BATCH), overlapping)
    return pa.Table.from_batches(batches, _FOUND)


def figures(table: pa.Table) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if row["lines"] is not None]


def test_lines_of_interest_and_problems_are_passed_on() -> None:
    table = chosen(
        {"stamp_us": 5, "message": "Shrinking"}, {"stamp_us": 6}, {"problem": "line too long", "detail": "9 bytes"},
        {"message": "\ta = 1"}, {"source_line": None, "problem": "damaged"},
    )  # fmt: skip
    lines = [row for row in table.to_pylist() if row["lines"] is None]
    assert [(row["source_line"], row["message"], row["problem"]) for row in lines] == [
        (1, "Shrinking", None), (3, None, "line too long"), (4, "\ta = 1", None), (None, None, "damaged")
    ]  # fmt: skip
    (row,) = figures(table)
    assert (row["lines"], row["first_us"], row["last_us"], row["days"], row["active_us"]) == (4, 5, 6, [0], [5, 6])


def test_activity_is_the_first_and_the_last_line_of_each_bucket() -> None:
    times = (49_999, 0, 10, 70_000, 60_000, DAY_US + 1)
    (row,) = figures(chosen(*({"stamp_us": us} for us in times)))
    assert row["active_us"] == [0, 49_999, 60_000, 70_000, DAY_US + 1]
    assert row["days"] == [0, 1]


def test_kinds_of_files_are_distinguished(sql: ArrowSql) -> None:
    table = chosen({"stamp_us": 5}, {"stamp_us": 7, "source_file": "broker-1/b.log"}, {"stamp_us": 9}, {})
    rows = (
        _other_lines_by_file(sql, table.filter(pa.compute.is_valid(table["lines"])), NO_RECORDS)
        .sort_by("source_file")
        .to_pylist()
    )
    assert [(row["source_file"], row["lines"], row["first_us"], row["last_us"], row["days"]) for row in rows] == [
        ("broker-1/a.log", 3, 5, 9, [0]), ("broker-1/b.log", 1, 7, 7, [0])
    ]  # fmt: skip


NO_RECORDS = pa.table({"source_file": pa.array([], pa.string()), "at_us": pa.array([], pa.int64())})


def test_other_lines_of_overlapping_files_count_once(sql: ArrowSql) -> None:
    rows: list[dict[str, Any]] = [
        {"stamp_us": 5, "line_hash": 1}, {"stamp_us": 5, "line_hash": 1}, {"stamp_us": 5, "line_hash": 2},
        {"stamp_us": 6, "line_hash": 1}, {}, {"stamp_us": 7, "message": "Leader"},
    ]  # fmt: skip
    assert _other_state_changes(sql, chosen(*rows, kind=STATE_CHANGE)) == 4
    assert _other_state_changes(sql, chosen(*rows, kind=STATE_CHANGE, overlapping=frozenset({1}))) == 3


def test_a_line_that_two_shippers_sent_into_one_file_counts_once(sql: ArrowSql, tmp_path: Path) -> None:
    shrink = "[2026-11-21 16:30:5{},034] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1 (kafka.Partition)"
    (tmp_path / "server.log").write_text("\n".join(shrink.format(second) for second in (1, 1, 2, 2, 3)))
    read = read_lines_of_interest(Here(sql), sql, survey_logs(Here(sql), tmp_path))
    assert read.server["source_line"].to_pylist() == [1, 3, 5]
    assert read.used[SERVER] == 3
