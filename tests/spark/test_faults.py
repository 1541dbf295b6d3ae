"""Faults of a machine and its users: each ends in its exit code, names the remedy, and leaves the tables unchanged."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import TABLES
from pipelines import cli

RULE = "kafka-3.7"
MAPPING = """
format: parquet
cluster_id: {constant: mine}
fetches:
  columns:
    topic: topic
    partition_id: partition_id
    leader_id: leader_id
    replica_id: replica_id
    handled_time: handled_time
    fetch_offset: fetch_offset
"""

Told = Callable[..., str]


@pytest.fixture(scope="module")
def told() -> Told:
    """Run a command, expect its exit code, and give what it says."""

    def run(capsys: pytest.CaptureFixture[str], code: int, *command: object) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main([*map(str, command), "--quiet"])
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == code, captured.err
        assert "Traceback" not in captured.err
        return captured.out + captured.err

    return run


@pytest.fixture
def lake(sample_lake: Lake, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample_lake.root, tmp_path / "lake"))


@contextmanager
def no_room(spark: SparkSession, file_bytes: int) -> Iterator[None]:
    """Let neither this process nor the JVM write a file longer than this, as if the disk were full."""
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    processes = jvm, os.getpid()
    soft, hard = resource.prlimit(jvm, resource.RLIMIT_FSIZE)
    for process in processes:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (file_bytes, hard))
    try:
        yield
    finally:
        for process in processes:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))


def content(lake: Path, *but: str) -> dict[str, list[str]]:
    """The files of each table, which never change under their name."""
    names = TABLES.keys() - {"run_log", "run_lease", *but}
    there = [name for name in sorted(names) if (lake / name / "_delta_log").is_dir()]
    return {name: sorted(deltalake.DeltaTable(str(lake / name)).file_uris()) for name in there}


def results(lake: Path, *but: str) -> dict[str, list[str]]:
    """Without the marks, which are taken away from days that are being replayed."""
    return content(lake, "replayed_days", *but)


def data_file(lake: Path, table: str) -> Path:
    files = deltalake.DeltaTable(str(lake / table)).file_uris()
    return max(map(Path, files), key=lambda path: path.stat().st_size)


def damage(file: Path) -> None:
    raw = file.read_bytes()
    file.write_bytes(raw[: len(raw) // 2])
    # Hadoop's checksum would find it first; other writers leave none.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def test_disk_full(told: Told, spark: SparkSession, lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Before: codecs put their native code into a file at their first use, and would never try again.
    spark.read.format("delta").load(f"{lake}/isr_changes").repartition(2).write.format("delta").save(f"{lake}/warm")
    whole = results(lake)
    with no_room(spark, 8000):  # enough for the lease, not for the first timeline
        text = told(capsys, 2, "replay", "--lake", lake, "--rules", RULE)
    assert "disk is full" in text
    assert "repeat the command" in text
    assert results(lake) == whole
    with no_room(spark, 500):
        told(capsys, 2, "generate", "kip-501-example", "--lake", lake)
    assert results(lake) == whole


@pytest.mark.parametrize(
    ("table", "done"), [("fetch_segments", damage), ("append_log", damage), ("fetch_log", Path.unlink)]
)
def test_damaged_file_of_a_table(
    told: Told, lake: Path, capsys: pytest.CaptureFixture[str], table: str, done: Callable[[Path], None]
) -> None:
    if table != "fetch_segments":
        shutil.rmtree(lake / "fetch_segments")  # is packed again, from what is damaged
    whole = results(lake, "fetch_segments", table)
    file = data_file(lake, table)
    done(file)
    text = told(capsys, 5, "replay", "--lake", lake, "--rules", RULE)
    assert file.name in text
    assert "restore the file" in text
    assert results(lake, "fetch_segments", table) == whole


def test_damaged_file_of_ones_own(told: Told, lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = content(lake)
    mine, mapping = tmp_path / "mine.parquet", tmp_path / "mine.yaml"
    mapping.write_text(MAPPING)
    shutil.copy(data_file(lake, "fetch_log"), mine)
    good = mine.read_bytes()
    for raw in (good[: len(good) // 2], good[:200] + b"\0" * 400 + good[600:]):
        mine.write_bytes(raw)
        text = told(capsys, 5, "ingest", "table", mine, "--lake", lake, "--mapping", mapping)
        assert "mine.parquet cannot be read" in text
        assert content(lake) == whole
    mine.unlink()
    mine.symlink_to("nowhere")
    told(capsys, 3, "ingest", "table", mine, "--lake", lake, "--mapping", mapping)
    assert content(lake) == whole


def test_logs_that_cannot_be_read(told: Told, lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = content(lake)
    broker = tmp_path / "logs" / "broker-1"
    broker.mkdir(parents=True)
    (broker / "request.log").symlink_to("nowhere")
    (broker / "server.log").mkdir()
    text = told(capsys, 3, "ingest", "kafka-logs", tmp_path / "logs", "--lake", lake)
    assert "request.log" in text or str(tmp_path / "logs") in text
    assert content(lake) == whole
    told(capsys, 2, "replay", "--lake", lake, "--grid", tmp_path)


def test_no_such_day(told: Told, lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = content(lake)
    assert "1999-01-01" in told(capsys, 3, "replay", "--lake", lake, "--rules", RULE, "--date", "1999-01-01")
    assert content(lake) == whole


def test_changed_schema(told: Told, spark: SparkSession, lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spark.sql(f"ALTER TABLE delta.`{lake}/isr_changes` ADD COLUMNS (mine STRING)")
    whole = content(lake)
    text = told(capsys, 5, "replay", "--lake", lake, "--rules", RULE)
    assert "unknown column mine" in text
    assert "move this table away" in text
    assert content(lake) == whole
