"""How the JVM is started: by the size of what there is to do, with an archive of classes where there is one."""

import os
import stat
from pathlib import Path

import pytest
from py4j import protocol  # type: ignore[import-untyped]

from isr_batch import jvm, jvm_archive
from isr_batch.errors import explained_error
from pipelines.job import LITTLE_BYTES, size_of_job

GIVEN = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "a home"))
    (tmp_path / "a home").mkdir()
    for name in GIVEN:
        monkeypatch.delenv(name, raising=False)


def sparse(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, size)
    return path


@pytest.mark.parametrize(
    ("name", "size", "little"),
    [
        ("b1/kafka-request.log", 199 << 20, True),
        ("b1/kafka-request.log", 201 << 20, False),
        ("b1/kafka-request.log.gz", 9 << 20, True),
        ("b1/kafka-request.log.gz", 11 << 20, False),
    ],
)
def test_logs_are_little_up_to_a_million_events(tmp_path: Path, name: str, size: int, little: bool) -> None:
    sparse(tmp_path / "logs" / name, size)
    assert ((size_of_job(str(tmp_path / "lake"), tmp_path / "logs") or 0) <= LITTLE_BYTES) is little


def test_the_heap_counts_the_lake_and_the_new_logs(tmp_path: Path) -> None:
    lake, logs = str(tmp_path / "lake"), tmp_path / "logs"
    sparse(tmp_path / "lake" / "fetch_log" / "event_date=2026-01-01" / "a.parquet", 6 << 20)
    sparse(tmp_path / "lake" / "isr_changes" / "b.parquet", 60 << 20)
    sparse(logs / "b1" / "server.log.gz", 6 << 20)
    assert size_of_job(lake) == 6 << 20
    assert size_of_job(lake, logs) == 12 << 20


@pytest.mark.parametrize("lake", [None, "s3a://bucket/lake"])
def test_of_a_lake_elsewhere_nothing_is_known(lake: str | None) -> None:
    assert size_of_job(lake) is None


def test_no_option_of_ours_contradicts_a_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "UseSerialGC" in jvm.jvm_options(little=True)
    assert jvm.jvm_options(little=False) == jvm.NO_PERF_DATA
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:+UseZGC")
    assert jvm.jvm_options(little=True) == jvm.NO_PERF_DATA


def test_the_archive_is_used_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "a home" / "isr-batch-classes.jsa").touch()
    quoted = f"'-XX:SharedArchiveFile={tmp_path}/a home/isr-batch-classes.jsa'"
    assert quoted in jvm.jvm_options(little=False)
    assert quoted in jvm.jvm_options(little=True)


def test_without_java_there_is_no_archive_and_no_error(tmp_path: Path) -> None:
    before = jvm.class_archive()
    before.touch()  # of another environment
    assert jvm_archive.write_class_archive() is None  # this home has no script that would start Spark
    assert not list((tmp_path / "a home").iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_nor_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a home").chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert jvm_archive.write_class_archive() is None


def test_a_response_that_java_did_not_finish() -> None:
    """The JVM ended while a call waited for it; a wrong argument is our own fault."""
    with pytest.raises(KeyError) as cut_off:
        protocol.get_return_value("yp", None)
    with pytest.raises(AttributeError) as ours:
        protocol.get_command_part(object())
    with pytest.raises(KeyError) as elsewhere:
        dict[str, int]()["p"]
    assert str(explained_error(cut_off.value)).startswith("Spark's Java process ended")
    assert str(explained_error(protocol.Py4JNetworkError("Answer from Java side is empty"))).startswith("Spark's Java")
    assert [explained_error(error.value) for error in (ours, elsewhere)] == [None, None]
