"""Whole nights as a schedule has them: each command a process of its own, in an empty environment, older files gone.

``pytest -m nightly tests/spark/test_nights.py`` kills thirty of them, and lets a disk fill.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from tests.log_nights import RecordedRun, Rotation, differences

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "data" / "samples"
COMMAND = Path(sys.executable).parent / "isr-batch"
RULES = "kafka-3.7,kip-501-pending"
RESULTS = ("isr_changes", "shrink_verdicts", "rule_scores", "rule_disagreements", "eligible_leaders")
SEED = 20261128


def started(*command: object, file_bytes: int | None = None) -> "subprocess.Popen[str]":
    """Begin a command as a user's schedule does; with a limit, no file may be longer than that."""
    limit = ["prlimit", f"--fsize={file_bytes}"] if file_bytes else []
    environment = {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "HOME": os.environ["HOME"],
                   "PYTHONPATH": str(ROOT)}  # fmt: skip
    return subprocess.Popen(
        [*limit, COMMAND, *map(str, command)], env=environment, cwd="/", text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def run(*command: object, ends: tuple[int, ...] = (0,), file_bytes: int | None = None) -> str:
    """Run it to its end."""
    process = started(*command, file_bytes=file_bytes)
    said, _ = process.communicate()
    assert process.returncode in ends, said
    assert "Traceback" not in said, said
    return said


def night(lake: Path, logs: Path) -> list[tuple[object, ...]]:
    """Give what a schedule runs every night."""
    return [
        ("ingest", "kafka-logs", logs, "--lake", lake, "--cluster", "c"),
        ("backfill", "--lake", lake, "--rules", RULES),
    ]


def after(lake: Path, scratch: Path) -> None:
    """Run what is asked of a lake, and keep it in order."""
    run("validate", "--lake", lake, ends=(0, 4))
    run("backfill", "--lake", lake, "--rules", RULES)
    assert "stale" not in run("status", "--lake", lake)
    run("maintain", "--lake", lake)
    run("export", "csv", "--lake", lake, "--out", scratch / "verdicts.csv")


@pytest.mark.timeout(1800)
@pytest.mark.nightly
def test_ten_nights(tmp_path: Path) -> None:
    recorded, rotation = RecordedRun(SAMPLES / "leader-stop"), Rotation()
    times = recorded.nights(10)
    lake, whole = tmp_path / "nights", tmp_path / "whole"
    for number, at in enumerate(times):
        logs = recorded.folder_at(at, tmp_path / f"logs-{number}", rotation, times[number - 1] if number else 0)
        for command in night(lake, logs):
            run(*command)
        if number % 4 == 3:
            after(lake, tmp_path)
    after(lake, tmp_path)
    for command in night(whole, recorded.folder_at(times[-1], tmp_path / "all", rotation)):
        run(*command)
    after(whole, tmp_path)
    assert differences(lake, whole) == {}
    assert differences(lake, whole, RESULTS) == {}


def test_a_command_that_is_stopped_gives_its_turn_back(tmp_path: Path) -> None:
    logs = RecordedRun(SAMPLES / "quiet").folder_at(float("inf"), tmp_path / "logs", Rotation())
    lake = tmp_path / "lake"
    run(*night(lake, logs)[0])
    process = started(*night(lake, logs)[1])
    while not (lake / "run_lease" / "_delta_log" / f"{1:020}.json").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.terminate()
    said, _ = process.communicate()
    assert process.returncode == 143, said
    assert "stopped by SIGTERM" in said
    rows = pa.table(deltalake.DeltaTable(str(lake / "run_log")).to_pyarrow_table()).to_pylist()
    assert [row["exit_code"] for row in rows if row["command"] == "backfill"] == [143]
    turns = pa.table(deltalake.DeltaTable(str(lake / "run_lease")).to_pyarrow_table()).to_pylist()
    assert {row["given_back"] for row in turns if row["turn"] == 1} == {True, False}
    run(*night(lake, logs)[1])


@pytest.mark.nightly
@pytest.mark.timeout(6 * 3600)
def test_thirty_nights_with_kills_and_a_full_disk(tmp_path: Path) -> None:
    recorded, rotation, chance = RecordedRun(SAMPLES / "restart"), Rotation(packed=True), random.Random(SEED)
    times = recorded.nights(30)
    lake, whole = tmp_path / "nights", tmp_path / "whole"
    for number, at in enumerate(times):
        logs = recorded.folder_at(at, tmp_path / f"logs-{number}", rotation, times[number - 1] if number else 0)
        for command in night(lake, logs):
            process = started(*command)
            try:
                process.communicate(timeout=chance.uniform(0.5, 8))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
            if number % 7 == 3:
                run(*command, ends=(0, 2), file_bytes=chance.choice((2_000, 20_000)))
            run(*command)
    after(lake, tmp_path)
    for command in night(whole, recorded.folder_at(times[-1], tmp_path / "all", rotation)):
        run(*command)
    after(whole, tmp_path)
    assert differences(lake, whole) == {}
    assert differences(lake, whole, RESULTS) == {}
