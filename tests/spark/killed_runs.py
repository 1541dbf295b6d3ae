"""Runs of a schedule in separate processes, some of them killed, and the content of their tables."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from benchmarks.measure import processes_below
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS
from pipelines import cli
from tests.spark.broker_logs import Leader

MIDNIGHT = 7.5 * 3600
"""In seconds of `broker_logs`."""
LEADERS, FOLLOWERS = (1, 2), (98, 99)
RULES = "kafka-0.9,kafka-3.7,kip-501-pending"
OWN = {"ingest_run", "run_id", "replayed_time", "packed_from"}
"""Columns with the run that wrote a row, or with names of files."""
RUNS = {"run_log", "run_lease"}
OF_VIEWS = {name for _, names in VIEWS.values() for name in names}
"""Tables with rows that no view shows: those of runs that were killed."""
LATER = ("arrival_time", "handled_time", "processed_time", "released_time", "completed_time", "source_line")
OF_FETCH_RUNS = {"run_length", "later_by", "last_handled_time"}
_SCRIPT = """
import json, sys
from pipelines.cli import main
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as ended:
        if ended.code:
            raise
"""


def write_cluster(folder: Path, first: float, seconds: int, *, starts: bool = True) -> None:
    """Write logs of some seconds; each leader's second follower stalls for longer than the lag time, twice."""
    folder.mkdir(parents=True)
    for number, broker in enumerate(LEADERS):
        leader = Leader(folder, broker)
        if starts:
            leader.terms(leader.leads(first - 1, 4, 0, others="".join(f",{follower}" for follower in FOLLOWERS)))
        lines = [(first + n + 0.3, leader.produce(first + n + 0.3, n)) for n in range(seconds)]
        stalls = [first + seconds * part + 3 * number for part in (0.2, 0.6)]
        for follower in FOLLOWERS:
            polls = [first + n * 0.5 for n in range(2 * seconds)]
            stalled = [any(begin <= at < begin + 9 for begin in stalls) and follower == FOLLOWERS[1] for at in polls]
            awake = [at for at, asleep in zip(polls, stalled, strict=True) if not asleep]
            lines += [
                (at, leader.fetch(at, epoch, int(at - first), session=follower, replica=follower, remote=400))
                for epoch, at in enumerate(awake)
            ]
        leader.requests(*(text for _, text in sorted(lines)), "no log line")
        shrinks = [leader.shrinks(begin + 6, begin) for begin in stalls]
        if starts:
            leader.server(*shrinks)
        else:
            leader.write("server.log", *shrinks)


def commands(lake: Path, logs: Path) -> list[list[str]]:
    """Give what a night is made of."""
    return [
        ["ingest", "kafka-logs", str(logs), "--lake", str(lake), "--quiet"],
        ["backfill", "--lake", str(lake), "--rules", RULES, "--quiet"],
        ["validate", "--lake", str(lake), "--quiet"],
    ]


def started(of_night: list[list[str]], scratch: Path) -> "subprocess.Popen[bytes]":
    """Start a run in a separate process."""
    scratch.mkdir(parents=True, exist_ok=True)
    small = {
        "ISR_BATCH__SPARK__MASTER": "local[2]",
        "ISR_BATCH__SPARK__SHUFFLE_PARTITIONS": "2",
        "ISR_BATCH__SPARK__DRIVER_MEMORY": "1g",
        "ISR_BATCH__VALIDATION__MIN_MATCHED_RATIO": "0",
        "ISR_BATCH__INGEST__MAX_QUARANTINE_RATIO": "1",
        "PYSPARK_SUBMIT_ARGS": "--conf spark.sql.adaptive.enabled=false pyspark-shell",
        "SPARK_LOCAL_DIRS": str(scratch),
        # Half of a short run is the compiler's: the first of its two stages is enough, but with the room of both.
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
        f"-Djava.io.tmpdir={scratch}",
    }
    told = (scratch / "told").open("wb")
    with told:
        return subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, json.dumps(of_night)], env=os.environ | small, stdout=told, stderr=told
        )


def finished(of_night: list[list[str]], scratch: Path) -> None:
    """Run to the end."""
    assert started(of_night, scratch).wait() == 0, (scratch / "told").read_text()


def here(command: list[str]) -> None:
    """Run to the end in this process and its running session."""
    with pytest.raises(SystemExit) as ended:
        cli.main(command)
    assert not ended.value.code


def commits(lake: Path) -> int:
    """Count the commits of all tables."""
    return sum(1 for _ in lake.glob("*/_delta_log/*[0-9].json"))


def killed(run: "subprocess.Popen[bytes]", lake: Path, after: int, scratch: Path, chosen: random.Random) -> str | None:
    """Kill a run shortly after some commits; returns the killed process, or None if the run ended before."""
    until = commits(lake) + after
    while commits(lake) < until and run.poll() is None:
        time.sleep(0.01)
    time.sleep(chosen.uniform(0, 1.5))
    who = chosen.choice(("all", "all", "driver", "jvm", "worker"))
    if run.poll() is not None:
        assert run.returncode == 0, (scratch / "told").read_text()
        return None
    tree = processes_below(run.pid)
    for pid in _victims(tree, who, chosen):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    # The rest of the run is not waited for: the next one may begin while its JVM notices that its parent is gone.
    return who if run.wait() else None


def _victims(tree: list[int], who: str, chosen: random.Random) -> list[int]:
    """The whole tree, Python's driver, the JVM, or a Python worker; the tree if that process does not exist yet."""
    java = [pid for pid in tree if _name(pid) == "java"]
    workers = [pid for pid in tree[1:] if _name(pid).startswith("python")]
    among = {"driver": tree[:1], "jvm": java, "worker": workers}.get(who)
    return [chosen.choice(among)] if among else tree


def _name(pid: int) -> str:
    """Name of a process that is alive."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(") ")
    except OSError:
        return ""
    return "" if rest.startswith("Z") else name


def content(lake: Path) -> dict[str, list[str]]:
    """Every table's rows as text, in order, as another engine reads them.

    Of fetches one by one, since a run of identical ones ends where a batch of Spark's does.
    """
    found = {}
    for name in TABLES.keys() - RUNS - OF_VIEWS:
        if (lake / name / "_delta_log").is_dir():
            rows = _stored(lake, name)
            told = (
                fetch for row in rows.to_pylist() for fetch in (fetches_of_run(row) if name == "fetch_log" else [row])
            )
            found[name] = sorted(map(_cells, told))
    with ArrowSql() as sql:
        for view, (_, names) in VIEWS.items():
            if (lake / names[0] / "_delta_log").is_dir():
                rows = sql(f"FROM ({sql_texts()[view]})", **{name: _stored(lake, name) for name in names})
                found[view] = sorted(map(str, rows.to_pylist()))
    return found


def _stored(lake: Path, name: str) -> pa.Table:
    return pa.table(deltalake.DeltaTable(str(lake / name)).to_pyarrow_table())


def fetches_of_run(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give each fetch of a run of identical ones."""
    steps = [0] * len(LATER) + (row["later_by"] or [])
    assert len(steps) == len(LATER) * row["run_length"]
    fetch = {name: value for name, value in row.items() if name not in OF_FETCH_RUNS}
    for n in range(row["run_length"]):
        for name, step in zip(LATER, steps[len(LATER) * n : len(LATER) * (n + 1)], strict=True):
            fetch[name] += timedelta(microseconds=step) if name.endswith("time") else step
        yield fetch


def _cells(row: dict[str, Any]) -> str:
    # Days that a log file covers, with the time of their ingest.
    days = {name: [day for day, _ in value] for name, value in row.items() if name == "days"}
    return str({name: value for name, value in (row | days).items() if name not in OWN})
