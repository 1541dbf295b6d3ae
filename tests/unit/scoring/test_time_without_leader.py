"""Time between leaders' terms, by hand."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.scoring.score_sources import SOURCES

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = {"cluster_id": "c", "topic": "t", "partition_id": 0, "event_date": date(2026, 1, 1)}
LOGGED = 0, 0, 10, True, False
"""Epoch, begin and end in seconds, and whether it begins and ends in mid-term."""


def no_spark() -> NoReturn:
    raise AssertionError


@pytest.mark.parametrize(
    ("terms", "seconds"),
    [
        ([LOGGED, (1, 14, 60, False, True)], [0, 4]),
        ([LOGGED, (1, 9, 60, False, True)], [0, 0]),  # the new leader knew of it first
        ([(0, 0, 10, True, True), (0, 20, 60, True, True)], [0, 0]),  # a gap of the log
        ([(0, 0, 10, True, True), (1, 14, 60, False, True)], [0, None]),  # its last line may be older than its end
        ([LOGGED, (1, 14, 60, True, True)], [0, None]),
        ([LOGGED, (2, 14, 60, False, True)], [0, None]),  # another one led in between
        ([LOGGED], [None]),  # the logs do not show the next leader
    ],
)
def test_time_between_terms(
    tmp_path: Path, terms: list[tuple[int, int, int, bool, bool]], seconds: list[int | None]
) -> None:
    rows: list[dict[str, Any]] = [
        {**KEY, "leader_epoch": epoch, "leader_id": 1 + epoch, "begins_mid_term": begins, "ends_mid_term": ends,
         "start_time": NOON + timedelta(seconds=begin), "end_time": NOON + timedelta(seconds=end)}
        for epoch, begin, end, begins, ends in terms
    ]  # fmt: skip
    scores = [{**row, "rule": "kafka-3.7", "params_json": "{}"} for row in rows]
    with InProcess(Lake(no_spark, str(tmp_path), "test")) as engine:
        tables = {
            name: engine.rows(pa.Table.from_pylist(of))
            for name, of in (("leader_epochs", rows), ("partition_scores", scores))
        }
        found = engine.listed(engine(SOURCES["terms"], **tables))
    in_order = sorted(found, key=lambda row: (row["leader_id"], row["no_leader_us"] is None))
    assert [us if us is None else us / 1e6 for us in (row["no_leader_us"] for row in in_order)] == seconds
