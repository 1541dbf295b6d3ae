"""Messages of commands about a folder of logs before Spark starts."""

import gzip
import json
from pathlib import Path

import pytest

from isr_batch.ingest.log_files.look import HEAD_BYTES
from tests.unit.command_line import Run

SHRINK = (
    "[2026-11-21 {}:30:51,034] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1. Leader: (highWatermark: 5, "
    "endOffset: 6). Out of sync replicas: (brokerId: 2, endOffset: 5, lastCaughtUpTimeMs: 1795278645931). (a.Partition)"
)


def test_a_look_lists_the_logs_and_the_possible_answers(isr_batch: Run, tmp_path: Path) -> None:
    (tmp_path / "kafka-1").mkdir()
    (tmp_path / "kafka-1" / "stdout.log").write_text(SHRINK.format(16))
    (tmp_path / "kafka-1" / "notes.md").write_text("no log")
    code, out, _ = isr_batch("look", str(tmp_path), "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert any(row.get("file") == "kafka-1/stdout.log" and row["broker"] == 1 for row in rows)
    assert any(
        row.get("file") == "kafka-1/notes.md" and row["reason"] == "its name is that of a document" for row in rows
    )
    assert any("no follower fetches" in row.get("found", "") for row in rows)


@pytest.mark.parametrize(
    ("name", "until"), [("server.log", "17:30:51"), ("server.log.gz", "after 2026-11-21 16:30:51")]
)
def test_a_look_does_not_take_the_end_of_its_sample_for_the_end(
    isr_batch: Run, tmp_path: Path, name: str, until: str
) -> None:
    text = "\n".join([SHRINK.format(16)] * (5 * HEAD_BYTES // 4 // len(SHRINK)) + [SHRINK.format(17)]).encode()
    (tmp_path / "kafka-1").mkdir()
    (tmp_path / "kafka-1" / name).write_bytes(gzip.compress(text, 1) if name.endswith(".gz") else text)
    _, out, _ = isr_batch("look", str(tmp_path), "--json")
    (file,) = [row for row in map(json.loads, out.splitlines()) if row.get("broker") == 1]
    assert file["until"].endswith(until)


@pytest.mark.parametrize("command", [["look"], ["ingest", "kafka-logs"], ["run", "--logs"]])
def test_stamps_in_local_time_end_a_command_at_once(isr_batch: Run, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "kafka-1").mkdir()
    (tmp_path / "kafka-1" / "server.log").write_text(SHRINK.format(18))
    lake = ["--lake", str(tmp_path / "lake")] if command != ["look"] else []
    code, _, error = isr_batch(*command, str(tmp_path), *lake)
    assert code == 2
    assert "UTC+02:00" in error.replace("\n", " ")
    assert "--time-zone +02:00" in error.replace("\n", " ")
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("command", [["look"], ["ingest", "kafka-logs"], ["run", "--logs"]])
def test_a_layout_that_is_not_read_ends_a_command_by_name(isr_batch: Run, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "kafka-1").mkdir()
    (tmp_path / "kafka-1" / "server.log").write_text(SHRINK.format(16).replace("2026-11-21", "21/11/2026"))
    lake = ["--lake", str(tmp_path / "lake")] if command != ["look"] else []
    code, _, error = isr_batch(*command, str(tmp_path), *lake)
    assert code == 4
    assert "kafka-1/server.log: time stamps of an ambiguous form" in error.replace("\n", " ")
    assert not (tmp_path / "lake").exists()


def test_kubectl_logs_of_three_brokers_is_enough(isr_batch: Run, tmp_path: Path) -> None:
    for pod in range(3):
        line = SHRINK.format(16).replace("broker=1", f"broker={pod}")
        (tmp_path / f"my-cluster-kafka-{pod}.log").write_text(line)
    code, out, _ = isr_batch("look", str(tmp_path), "--json")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    brokers = {row["file"]: row["broker"] for row in rows if "broker" in row}
    assert brokers == {f"my-cluster-kafka-{pod}.log": pod for pod in range(3)}


def test_a_line_of_another_broker_at_a_time_that_its_own_log_lacks(
    isr_batch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME")  # it would stand for a cluster
    for broker, stamps in ((1, ["[2026-11-21 16:30:51,034]"] * 40), (2, ["[2026-11-21 16:40:51,034]"])):
        (tmp_path / "logs" / f"kafka-{broker}").mkdir(parents=True)
        lines = [f"{stamp}{SHRINK[25:].replace('broker=1', f'broker={broker}')}" for stamp in stamps]
        (tmp_path / "logs" / f"kafka-{broker}" / "server.log").write_text("\n".join(lines))
    with (tmp_path / "logs" / "kafka-1" / "server.log").open("a") as log:
        log.write(f"\n{SHRINK.format(16).replace('broker=1', 'broker=2')}")
    code, _, error = isr_batch("ingest", "kafka-logs", str(tmp_path / "logs"), "--lake", str(tmp_path / "lake"))
    assert code == 0, error
