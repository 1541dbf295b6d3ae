"""Every command as a user runs it: in a separate process with an empty environment, here without Java.

The lake's path has unusual but legal characters, so that each command meets them.
"""

import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_cli import COMMANDS

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "data" / "samples"
ODD = "a*b[c]{d} 'e\" ,;:&=+@!$(f)ä~^|`<>"
EXPERIMENT = "scenario: kip-501-thrash\nhours: 0.01\nrules: [kafka-3.7]\noutcome: '{shrinks} shrinks'\n"

AS_USED = {
    "run": (
        "--logs {samples}/mid-term --rules kafka-3.7,true-lag",
        0,
        "long-running, 2026-11-25 07:54:57 to 2026-11-25 07:55:43 UTC: Of 14 followers",
    ),
    "look": ("{samples}/mid-term", 0, "Logs of long-running"),
    "anonymize": ("{root}/tests/golden/server-log-only {out}/anonymized", 0, "copy: "),
    "ingest kafka-logs": ("{root}/tests/golden/server-log-only --lake {new}", 0, "Logs of server-log-only"),
    "ingest table": (
        "{samples}/tables/fetches.parquet --mapping {samples}/tables/shortest.yaml --lake {new}",
        0,
        "Rows by day and leader",
    ),
    "replay": ("--rules kafka-3.7,true-lag", 0, "Shrinks by rule, and the causes of the spurious ones"),
    "sweep": ("--grid {root}/conf/grids/lag-times.yaml --out {out}/sweep.html", 0, "Smallest lag times within"),
    "generate": ("paused-follower --partitions 1 --hours 0.01", 0, None),
    "experiment": ("{experiment} --lake {new}", 0, "experiment"),
    "backfill": ("--rules kafka-3.7,true-lag", 0, "Days"),
    "status": ("", 0, "Days"),
    "maintain": ("", 0, "Tables"),
    "timeline": ("--topic busy --partition 0 --rules kafka-3.7 --out {out}/timeline", 0, "timelines: "),
    "validate": ("", 0, "ISR changes of the replay and of the brokers"),
    "report": ("--out {out}/report.html", 0, None),
    "sql": ("'SELECT count(*) AS fetches FROM fetch_log'", 0, "fetches"),
    "views": ("--format duckdb", 0, "SET default_null_order"),
    "compare": ("kafka-3.7 true-lag", 0, "Shrinks of a: kafka-3.7, b: true-lag, and of both by"),
    "kip": ("kafka-3.7 true-lag --out {out}/kip.md", 0, None),
    "explain": ("", 0, "(long-running, )?2026-11-25 07:55:36 to 07:55:42: Broker 1 was silent for 6 s"),
    "export prometheus": ("--out {out}/isr.prom", 0, None),
    "export csv": ("--out {out}/verdicts.csv", 0, None),
    "export incident": ("--markdown --out {out}/incident.md", 0, None),
    "rules list": ("", 0, "rule +kind +year +in force"),
    "rules show": ("kafka-3.7", 0, "kafka-3.7: the high watermark is frozen"),
    "config show": ("", 0, "spark:"),
    "doctor": ("", 2, "check +ok +found +what to do"),
}
"""By command: its arguments, its exit code, and how the first line of its results begins."""
WITHOUT_LAKE = {"look", "anonymize", "rules list", "rules show", "config show", "doctor"}
WRITTEN = {
    "report": "report.html", "sweep": "sweep.html", "export csv": "verdicts.csv", "export prometheus": "isr.prom",
    "timeline": "timeline/replica_timeline.parquet", "export incident": "incident.md",
}  # fmt: skip
"""A file that a command leaves in ``out``."""


def test_no_command_is_left_out() -> None:
    assert {*AS_USED} == {*COMMANDS}


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.defpath, "HOME": str(folder), "PYTHONPATH": str(ROOT), "JAVA_HOME": "/nowhere"}
    return subprocess.run(
        [sys.executable, "-m", "pipelines.cli", *command],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def run_as_used(folder: Path, command: str, lake: Path) -> subprocess.CompletedProcess[str]:
    places = {
        "root": ROOT, "samples": SAMPLES, "out": folder / ODD, "new": folder / ODD / command,
        "experiment": folder / "experiment.yaml",
    }  # fmt: skip
    given = [argument.strip("'").format(**places) for argument in re.findall(r"'[^']*'|\S+", AS_USED[command][0])]
    if command not in WITHOUT_LAKE and "--lake" not in given:
        given += ["--lake", str(lake)]
    return run(folder, *command.split(), *given)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    (folder / ODD).mkdir()
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    return folder


@pytest.fixture(scope="module")
def made(user: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    lake = user / ODD / "lake"
    return lake, run_as_used(user, "run", lake)


@pytest.mark.parametrize("command", AS_USED)
def test_each_command_as_a_user_runs_it(
    user: Path, made: tuple[Path, subprocess.CompletedProcess[str]], command: str
) -> None:
    lake, done = made
    if command != "run":
        done = run_as_used(user, command, lake)
    _, code, first = AS_USED[command]
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    results = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    assert re.match(first, results[0]) if first else not results, done.stdout
    if command in WRITTEN:
        assert (user / ODD / WRITTEN[command]).stat().st_size


def test_a_second_copy_of_a_log_starts_no_spark(user: Path) -> None:
    """Runs of identical fetches that only one of the copies has in part are taken apart."""
    of_broker = SAMPLES / "mid-term" / "long-running"
    lake = str(user / "copies")
    for night, part in (("first", slice(None, 60)), ("second", slice(40, None))):
        logs = user / night
        shutil.copytree(of_broker, logs)
        for file in logs.rglob("request.log*"):
            lines = gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True)
            share = slice(*(edge and len(lines) * edge // 100 for edge in (part.start, part.stop)))
            file.with_name(f"request.log.{night}").write_text("".join(lines[share]))
            file.unlink()
        done = run(user, "ingest", "kafka-logs", str(logs), "--lake", lake, "--cluster", "c", "--quiet")
        assert done.returncode == 0, done.stderr
    shutil.copytree(of_broker, user / "whole")
    whole = str(user / "lake-of-whole")
    assert run(user, "ingest", "kafka-logs", str(user / "whole"), "--lake", whole, "--cluster", "c").returncode == 0
    query = "SELECT sum(run_length) AS fetches FROM fetch_log"
    counts = [run(user, "sql", query, "--lake", each).stdout for each in (lake, whole)]
    assert counts[0] == counts[1] != ""


def test_a_run_on_a_log_that_refutes_changes_starts_no_spark(user: Path) -> None:
    """A line that the log should have and lacks makes a change possible, which is written into existing rows."""
    logs, lake = user / "refuting", str(user / "refuted")
    shutil.copytree(SAMPLES / "follower-stop", logs, ignore=shutil.ignore_patterns("metadata*"))
    for file in logs.rglob("server.log.gz"):
        lines = gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True)
        cut = re.compile(r"busy-0.*((Shrinking|Expanding) ISR|ISR updated)")
        kept = [line for line in lines if not cut.search(line)]
        file.write_bytes(gzip.compress("".join(kept).encode()))
    done = run(user, "run", "--logs", str(logs), "--lake", lake, "--rules", "kafka-3.7")
    assert done.returncode == 0, done.stderr
    query = "SELECT count(*) AS changes FROM isr_changes WHERE depends_on = 'not_logged' AND certainty = 'possible'"
    assert run(user, "sql", query, "--lake", lake, "--json").stdout == '{"table": "", "changes": 1}\n'
