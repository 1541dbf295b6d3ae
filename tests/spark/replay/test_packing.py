"""``fetch_segments`` in the lake: made from its tables, again after a change, and reported if damaged."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from isr_batch.errors import SchemaError
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LARGE_ROWS_AT_A_TIME
from isr_batch.lake.tables.inputs import APPEND_LOG, FETCH_LOG, FETCH_SEGMENTS
from isr_batch.replay.packing import pack_stale_days
from isr_batch.replay.replay import events_to_replay, ready_to_replay, replay, rule_runs
from isr_batch.replay.timeline_files import FILE
from isr_batch.settings import ReplaySettings
from isr_batch.window import Window
from tests.spark.replay.test_replay import DAY, stopped_follower

NEXT_DAY = "2026-01-02"


@pytest.fixture(scope="module")
def made(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(stopped_follower(spark_session, tmp_path_factory.mktemp("made"), {"t": 2}).root)


@pytest.fixture
def lake(spark: SparkSession, made: Path, tmp_path: Path) -> Lake:
    return Lake(spark, str(shutil.copytree(made, tmp_path / "lake")), "test")


def a_day_later(rows: DataFrame) -> DataFrame:
    times = [name for name in rows.columns if name.endswith("_time")]
    later = {name: F.expr(f"{name} + INTERVAL 1 DAY") for name in times}
    return rows.withColumns({**later, "event_date": F.date_add("event_date", 1)})


def days(lake: Lake) -> dict[str, tuple[int, int]]:
    """Fetches and appends by day."""
    of_day = lake.read("fetch_segments").groupBy(F.col("event_date").cast("string"))
    rows = of_day.agg(F.sum("fetches"), F.sum(F.expr("events - fetches"))).collect()
    return {row[0]: (row[1], row[2]) for row in rows}


def test_days_that_changed_are_packed_again_and_no_others(lake: Lake) -> None:
    assert pack_stale_days(lake) == 1
    assert days(lake) == {DAY: (350, 300)}
    version = lake.version("fetch_segments")
    assert pack_stale_days(lake) == 0
    assert lake.version("fetch_segments") == version
    (first,) = lake.read("fetch_segments").select("packed_from").collect()

    with_next = lake.read("fetch_log").unionByName(a_day_later(lake.read("fetch_log")))
    lake.replace(FETCH_LOG, with_next.where(f"event_date = DATE'{NEXT_DAY}'"), f"event_date = DATE'{NEXT_DAY}'")
    assert pack_stale_days(lake) == 1
    assert days(lake) == {DAY: (350, 300), NEXT_DAY: (350, 0)}
    assert first in lake.read("fetch_segments").select("packed_from").collect()

    of_day = f"event_date = DATE'{DAY}'"
    lake.replace(APPEND_LOG, lake.read("append_log").where("base_offset < 100"), of_day)
    ready_to_replay(lake)
    assert events_to_replay(lake) == 800
    assert events_to_replay(lake, Window(NEXT_DAY)) == 350
    assert days(lake) == {DAY: (350, 100), NEXT_DAY: (350, 0)}

    of_next = f"event_date = DATE'{NEXT_DAY}'"
    lake.replace(FETCH_LOG, lake.read("fetch_log").where("false"), of_next)
    assert pack_stale_days(lake) == 0
    assert days(lake) == {DAY: (350, 100)}


@pytest.mark.long
def test_rows_are_read_by_spark_where_files_do_not_say_all(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def repacked() -> list[Row]:
        assert pack_stale_days(lake) == 1
        return lake.read("fetch_segments").drop("packed_from").collect()

    by_files = repacked()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(Lake, "is_plain", lambda *_: False)
        assert repacked() == by_files
    table = lake.identifier("fetch_log")
    lake.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    files = lake.files("fetch_log")
    lake.spark.sql(f"DELETE FROM {table} WHERE replica_id = 2")
    assert lake.files("fetch_log") == files
    left = lake.read("fetch_log").count()
    assert 0 < left < 350
    assert pack_stale_days(lake) == 1
    assert days(lake) == {DAY: (left, 300)}
    assert pack_stale_days(lake) == 0


def test_the_driver_workers_and_spark_pack_the_same(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def repacked() -> list[str]:
        shutil.rmtree(tmp_path / "lake" / "fetch_segments", ignore_errors=True)
        again = Lake(lake.spark, lake.root, "test")
        assert pack_stale_days(again) == 1
        return sorted(map(str, again.read("fetch_segments").collect()))

    by_driver = repacked()
    monkeypatch.setattr("isr_batch.lake.sizes.PACKED_BYTES", -1)
    assert repacked() == by_driver
    monkeypatch.setattr("isr_batch.lake.small_tables.SmallTables.takes", lambda *_: None)
    assert repacked() == by_driver


@pytest.mark.parametrize("rows_a_group", [1000, 50])
def test_large_files_are_read_by_several_tasks(lake: Lake, monkeypatch: pytest.MonkeyPatch, rows_a_group: int) -> None:
    """Parts that have no row group among them have no rows."""
    (path,) = lake.files("fetch_log")
    pq.write_table(pq.read_table(path), path, row_group_size=rows_a_group)
    file = Path(path)
    file.with_name(f".{file.name}.crc").unlink()  # of what it was before
    monkeypatch.setattr("isr_batch.replay.packing.SHARE_BYTES", Path(path).stat().st_size // 3)
    monkeypatch.setattr("isr_batch.lake.sizes.PACKED_BYTES", -1)
    assert pack_stale_days(lake) == 1
    assert days(lake) == {DAY: (350, 300)}


def test_damage_is_reported_with_a_remedy(lake: Lake) -> None:
    pack_stale_days(lake)
    rows = lake.read("fetch_segments").withColumn("checksum", F.col("checksum") + 1).localCheckpoint()
    lake.replace(FETCH_SEGMENTS, rows, "true")
    with pytest.raises(SchemaError, match=r"fetch_segments: .*'t', 0, 1.*checksum differs") as told:
        replay(lake, rule_runs(ReplaySettings(rules=["kafka-3.7"])))
    assert "packs fetch_log and append_log again" in told.value.hint


def test_few_segments_are_read_at_a_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's reader would take 4096: of a long log more than the heap holds."""

    class LookedError(Exception):
        pass

    def look(schema: pa.Schema) -> StructType:
        if FILE in schema.names:
            raise LookedError(reader())
        return from_arrow_schema(schema)

    def reader() -> str:
        return str(lake.spark.conf.get("spark.sql.parquet.columnarReaderBatchSize"))

    monkeypatch.setattr("isr_batch.lake.sizes.REPLAYED_EVENTS", -1)
    monkeypatch.setattr("isr_batch.lake.spark_engine.from_arrow_schema", look)
    usual = reader()
    with pytest.raises(LookedError, match=f"^{LARGE_ROWS_AT_A_TIME}$"):
        replay(lake, rule_runs(ReplaySettings(rules=["kafka-3.7"])))
    assert reader() == usual
