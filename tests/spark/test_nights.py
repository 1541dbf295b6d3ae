"""Whole nights as scheduled: each command in a separate process and an empty environment, with older files gone.

``pytest -m nightly tests/spark/test_nights.py`` makes ten of them, and thirty in which every command is killed and a
disk fills.
"""

import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from isr_batch.lake.tables.inputs import INGESTED_FILES, INPUT_TABLES
from tests.log_nights import RecordedRun, Rotation, differences
from tests.spark.killed_runs import commits, content

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "data" / "samples"
COMMAND = Path(sys.executable).parent / "isr-batch"
RULES = "kafka-3.7,kip-501-pending"
RESULTS = ("isr_changes", "shrink_verdicts", "rule_scores", "rule_disagreements", "eligible_leaders")
SEED = 20261128
NIGHTS = int(os.environ.get("NIGHTS", "30"))
KILLS = int(os.environ.get("KILLS", "100"))
COMMITS = 25
"""A night makes more of them."""
ON_A_SMALL_DISK = """
mount -t tmpfs small "$1" && cp -a "$2" "$1/lake" || exit 99
used=$(df -k --output=used "$1" | tail -n 1)
mount -o "remount,size=$((used + $3))k" "$1" || exit 99
disk=$1 lake=$2; shift 3
"$@"; code=$?
rm -rf "$lake" && cp -a "$disk/lake" "$lake" || exit 99
exit $code
"""
IN_A_CONTAINER = """
import sys
from datetime import timedelta
from isr_batch.lake import lease
lease.BEAT, lease.EXPIRY = timedelta(seconds=1), timedelta(seconds=4)
from pipelines.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""A command on a compressed clock: ten minutes without a sign of life are four seconds."""


def started(*command: object, within: tuple[object, ...] = ()) -> "subprocess.Popen[str]":
    """Begin a command as a user's schedule does."""
    environment = {"PATH": f"{COMMAND.parent}:{os.environ['PATH']}", "HOME": os.environ["HOME"],
                   "PYTHONPATH": str(ROOT)}  # fmt: skip
    return subprocess.Popen(
        [*map(str, within), *map(str, command)], env=environment, cwd="/", text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def ended(process: "subprocess.Popen[str]", ends: tuple[int, ...] = (0,)) -> str:
    """Wait for its end; return what it said."""
    said, _ = process.communicate()
    assert process.returncode in ends, said
    assert "Traceback" not in said, said
    return said


def run(*command: object, ends: tuple[int, ...] = (0,)) -> str:
    """Run a command to its end."""
    return ended(started(COMMAND, *command), ends)


def killed(process: "subprocess.Popen[str]", lake: Path, after: int, chance: random.Random) -> bool:
    """Kill a run, and all that it has started, shortly after some commits; false if it ended before."""
    until = commits(lake) + after
    while process.poll() is None and commits(lake) < until:
        time.sleep(0.02)
    time.sleep(chance.uniform(0, 0.7))
    alive = process.poll() is None
    if alive:
        os.killpg(process.pid, signal.SIGKILL)
    said, _ = process.communicate()
    assert alive or process.returncode == 0, said
    return alive


def night(lake: Path, logs: Path) -> list[tuple[object, ...]]:
    """Give what a schedule runs every night."""
    return [
        ("ingest", "kafka-logs", logs, "--lake", lake, "--cluster", "c"),
        ("backfill", "--lake", lake, "--rules", RULES),
    ]


def replayed_again(lake: Path, target: Path) -> Path:
    """Replay a lake's own input as if for the first time."""
    for table in (*INPUT_TABLES, INGESTED_FILES):
        shutil.copytree(lake / table.name, target / table.name)
    run("backfill", "--lake", target, "--rules", RULES)
    return target


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
    process = started(COMMAND, *night(lake, logs)[1])
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


@pytest.mark.skipif(
    not shutil.which("unshare")
    or subprocess.run(["unshare", "-pf", "true"], capture_output=True, check=False).returncode != 0,
    reason="this user may not make namespaces",
)
@pytest.mark.timeout(1800)
def test_four_nights_in_a_container_that_is_killed(tmp_path: Path) -> None:
    """Each night is begun again until it comes to its end, as a scheduler does: the tables are those of one ingest."""
    recorded, rotation, chance = RecordedRun(SAMPLES / "leader-stop"), Rotation(packed=True), random.Random(SEED)
    times, lake, whole = recorded.nights(4), tmp_path / "nights", tmp_path / "whole"
    run(*night(whole, recorded.folder_at(times[-1], tmp_path / "all", rotation))[0])
    for number, at in enumerate(times):
        logs = recorded.folder_at(at, tmp_path / f"logs-{number}", rotation, times[number - 1] if number else 0)
        script = " && ".join(
            shlex.join([sys.executable, "-c", IN_A_CONTAINER, *map(str, command)]) for command in night(lake, logs)
        )
        container = ("unshare", "-pf", "--mount-proc", "sh", "-c", script)
        assert killed(started(*container), lake, chance.randrange(COMMITS), chance)
        while "is writing to" in ended(started(*container), (0, 6)):
            time.sleep(1)
    assert differences(lake, whole) == {}
    assert differences(lake, replayed_again(lake, tmp_path / "anew"), RESULTS) == {}


@pytest.mark.nightly
@pytest.mark.timeout(6 * 3600)
def test_thirty_nights_with_kills_and_a_full_disk(tmp_path: Path) -> None:
    recorded, rotation, chance = RecordedRun(SAMPLES / "restart"), Rotation(packed=True), random.Random(SEED)
    times, lake, undisturbed = recorded.nights(NIGHTS), tmp_path / "nights", tmp_path / "undisturbed"
    (tmp_path / "disk").mkdir()
    kills: Counter[str] = Counter()
    full: Counter[str] = Counter()
    made: dict[str, int] = defaultdict(lambda: 20)
    for number, at in enumerate(times):
        logs = recorded.folder_at(at, tmp_path / f"logs-{number}", rotation, times[number - 1] if number else 0)
        for command in [*night(lake, logs), ("maintain", "--lake", lake)]:
            name = str(command[0])
            kills[name] += killed(started(COMMAND, *command), lake, chance.randrange(made[name]), chance)
            if number % 4 == 1:
                here = [tmp_path / "disk" / "lake" if part == lake else part for part in command]
                small = ("unshare", "-m", "sh", "-c", ON_A_SMALL_DISK, "sh", tmp_path / "disk", lake,
                         chance.choice((0, 20, 200)))  # fmt: skip
                full[name] += "No space left" in ended(started(COMMAND, *here, within=small), (0, 2))
            before = commits(lake)
            run(*command)
            made[name] = max(commits(lake) - before, 4)
        sys.stderr.write(f"night {number + 1}: {dict(kills)} kills, {dict(full)} ends on a full disk\n")
    after(lake, tmp_path)
    for number in range(len(times)):
        run(*night(undisturbed, tmp_path / f"logs-{number}")[0])
    assert differences(lake, undisturbed) == {}
    anew = replayed_again(lake, tmp_path / "anew")
    after(anew, tmp_path)  # finds checks that were late, as it has in the other
    assert differences(lake, anew, RESULTS) == {}


@pytest.mark.nightly
@pytest.mark.timeout(3 * 3600)
def test_maintain_killed_at_any_moment(tmp_path: Path) -> None:
    """It puts files together, and changes no row: killed and run again or not, the tables are what they were."""
    recorded, chance = RecordedRun(SAMPLES / "quiet"), random.Random(SEED)
    times, lake, kept = recorded.nights(4), tmp_path / "lake", tmp_path / "kept"
    for number, at in enumerate(times):
        logs = recorded.folder_at(at, tmp_path / f"logs-{number}", Rotation(), times[number - 1] if number else 0)
        for command in night(kept, logs):
            run(*command)
    whole, before = content(kept), commits(kept)
    shutil.copytree(kept, lake)
    run("maintain", "--lake", lake)
    made, kills = commits(lake) - before, 0
    assert made > 1
    while kills < KILLS:
        shutil.rmtree(lake)
        shutil.copytree(kept, lake)
        for _ in range(2):
            kills += killed(started(COMMAND, "maintain", "--lake", lake), lake, chance.randrange(made + 1), chance)
            assert content(lake) == whole, f"after kill {kills}"
        run("maintain", "--lake", lake)
        assert content(lake) == whole, f"after kill {kills}"
        sys.stderr.write(f"maintain: {kills} kills\n")
