"""Queries of a local lake that run without Spark, and lakes whose files Spark reads for DuckDB."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from isr_batch.explain.shrink_data import explain_shrink
from isr_batch.explain.shrink_text import shrink_lines
from isr_batch.explain.swimlane_data import swimlane_scene
from isr_batch.lake import arrow_read, engines, sizes
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.engines import NearSpark
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine
from isr_batch.lake.spark_engine import BySpark
from isr_batch.replay.days import days_status, fingerprints
from isr_batch.replay.packing import pack_stale_days
from isr_batch.scoring.broker_check import summary
from isr_batch.scoring.scores import rules_side_by_side
from isr_batch.window import AskedTime, Window
from udfs.rules import ALL_RULES

AT_US = 1_795_278_714_023_000
"""Leader 1 of sample `leader-stop` has woken up, and drops followers."""


def no_spark() -> SparkSession:
    raise AssertionError


def test_showing_results_takes_no_spark(sample_lake: Lake) -> None:
    lake = Lake(no_spark, sample_lake.root)
    assert pack_stale_days(lake) == 0
    assert [row["status"] for row in days_status(lake, Window(), fingerprints(lake))] == ["done"]
    assert summary(lake).matched_ratio > 0.95
    assert len({row["rule"] for row in rules_side_by_side(lake)}) == len(ALL_RULES)
    story = explain_shrink(lake, "busy", 3, AskedTime(AT_US), "kafka-3.7")
    assert {follower.verdict for follower in story.dropped} == {"spurious"}
    assert swimlane_scene(lake, story).fetches


def test_spark_explains_alike(sample_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    story = explain_shrink(sample_lake, "busy", 3, AskedTime(AT_US), "kafka-3.7")
    drawn = swimlane_scene(sample_lake, story)
    for module in ("shrink_data", "swimlane_data"):
        monkeypatch.setattr(f"isr_batch.explain.{module}.engine_for_a_partition", BySpark)
    assert shrink_lines(explain_shrink(sample_lake, "busy", 3, AskedTime(AT_US), "kafka-3.7")) == shrink_lines(story)
    assert swimlane_scene(sample_lake, story) == drawn


def test_files_that_cannot_be_read_here(sample_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an object store: Spark reads, and the same comes of it."""
    elsewhere = Lake(sample_lake.spark, sample_lake.root)
    key = {"cluster_id": "leader-stop", "topic": "busy", "partition_id": 4, "leader_id": 2, "replica_id": 1}
    types = [pa.string(), pa.string(), pa.int32(), pa.int32(), pa.int32()]
    span = {name: pa.array([value], type_) for (name, value), type_ in zip(key.items(), types, strict=True)}
    span |= {"from_us": pa.array([AT_US - 60_000_000]), "until_us": pa.array([AT_US + 60_000_000])}
    day = fingerprints(sample_lake).days()[0]

    def asked(engine: LakeEngine) -> list[list[dict[str, Any]]]:
        spans = engine.rows(pa.table(span))
        terms = engine("SELECT cluster_id, count(*) AS n FROM {terms} GROUP BY cluster_id",
                       terms=engine.table("leader_epochs"))  # fmt: skip
        found = (terms, engine.fetches(spans, (day, day)), engine.appends(spans, (day, day)))
        return [sorted(engine.listed(rows), key=lambda row: json.dumps(row, sort_keys=True)) for rows in found]

    here = asked(InProcess(sample_lake))
    assert all(here)
    monkeypatch.setattr(Lake, "reached", lambda *_: None)
    assert arrow_read.open_columns(elsewhere, "leader_epochs", ("topic",)) is None
    assert asked(NearSpark(elsewhere)) == here
    monkeypatch.setattr(sizes, "QUERIED_BYTES", arrow_read.stored_bytes(elsewhere, "leader_epochs") - 1)
    assert isinstance(engines.engine_for(elsewhere, ["leader_epochs"]), BySpark)


def test_kept_tables_are_made_once(lake: Lake, tmp_path: Path) -> None:
    """Whatever is asked of it: to replay a log again for each question took five times as long."""
    schema = pa.schema([("key", pa.int64())])
    made = tmp_path / "made"

    def noted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with made.open("a") as file:
                file.write("x" * batch.num_rows)
            yield batch

    with BySpark(lake) as engine:
        stream = engine.stream(engine.rows(pa.table({"key": [1, 2, 3]})), ["key"], ["key"], noted, schema)
        kept = engine.keep(engine("SELECT key, rand() AS drawn FROM {stream} AS stream", stream=stream))
        for text in ("SELECT key FROM {rows} AS rows", "SELECT max(key) AS key FROM {rows} AS rows"):
            assert max(row["key"] for row in engine.listed(engine(text, rows=stream))) == 3
        first, again = (engine.listed(engine("SELECT * FROM {kept} AS kept", kept=kept)) for _ in range(2))
        assert first == again
    assert made.read_text() == "xxx"
    assert not lake.spark.sql("SHOW VIEWS LIKE 'rows_*'").count()
