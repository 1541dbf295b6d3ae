"""Small commands, an ingest of few lines, and `run` on a long log: each in a separate process."""

import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from benchmarks.first_minute import SAMPLES
from benchmarks.long_log import BROKER, write_long_log
from benchmarks.measure import Contestant, interleaved
from benchmarks.page import Section, Wait
from udfs.rules import ALL_RULES, BASELINE

LONG_ROUNDS = 2
"""Rounds of the long log, at most."""
TARGETS = ("0.5 CPU s", "1 CPU s", "1 CPU s")
"""For the small commands."""
IMPORTS = "import pyarrow.dataset, deltalake, duckdb, typer, yaml"
PARSED = """
import json, pathlib, sys
for path in pathlib.Path(sys.argv[1]).glob("request.log*"):
    with path.open() as log:
        for line in log:
            json.loads(line[line.index("{") : line.rindex("}") + 1])
"""


def measure(few: int, lines: int, folder: Path, rounds: int) -> Section:
    """Run each command in turn, with everything compiled; `run` on the long log has a new lake per round."""
    shutil.rmtree(folder, ignore_errors=True)
    counts = [write_long_log(folder / name, count) for name, count in (("first", few), ("long", lines))]
    lake, new = folder / "lake", folder / "new"
    for logs in (SAMPLES / "follower-stop", folder / "first"):  # compiles what is not compiled
        _isr_batch("run", "--logs", logs, "--lake", lake if logs.is_relative_to(SAMPLES) else new)

    def of_new_lake(name: str, *command: object) -> Contestant:
        def prepare() -> None:
            shutil.rmtree(new, ignore_errors=True)

        return Contestant(name, lambda: _isr_batch(*command, "--lake", new), prepare=prepare)

    small_work = [
        Contestant("Python that imports Arrow, delta-rs, DuckDB, typer and yaml", lambda: _python("-c", IMPORTS)),
        Contestant("`rules list`", lambda: _isr_batch("rules", "list")),
        Contestant("`status`", lambda: _isr_batch("status", "--lake", lake)),
        Contestant("`explain` of one shrink", lambda: _isr_batch("explain", *_shrink(lake), "--lake", lake)),
        Contestant(
            "json.loads of the lines of the short log", lambda: _python("-c", PARSED, folder / "first" / BROKER)
        ),
        of_new_lake("`ingest kafka-logs` of the short log", "ingest", "kafka-logs", folder / "first"),
    ]
    long_work = [
        Contestant("json.loads of the lines of the long log", lambda: _python("-c", PARSED, folder / "long" / BROKER)),
        of_new_lake(f"`run` on the long log, {len(ALL_RULES)} rules, all steps", "run", "--logs", folder / "long"),
    ]
    interleaved(small_work, rounds, cpu=_cpu_of_children)
    interleaved(long_work, min(rounds, LONG_ROUNDS), cpu=_cpu_of_children)
    shutil.rmtree(folder)
    imports, *commands, first_parsed, first = small_work
    long_parsed, run = long_work
    return Section(
        "Commands",
        f"""Each command ran in a new process with compiled kernels. CPU seconds are those of all processes; the best
        round is shown. The lake of `status` and `explain` is that of the sample follower-stop; the logs are those of
        one broker of three, with {counts[0]:,} and {counts[1]:,} lines. *json.loads* parses each line in Python and
        does nothing with it.""",
        ("command", "CPU time, best (s)", "wall time, best (s)"),
        [[each.name, f"{min(each.cpu_seconds):.2f}", f"{each.best:.2f}"] for each in (*small_work, *long_work)],
        waits=[
            *(
                _cpu_wait(each.name, each, imports, "its imports alone", target)
                for each, target in zip(commands, TARGETS, strict=True)
            ),
            _cpu_wait(
                f"{first.name} ({counts[0]:,} lines)", first, first_parsed, "json.loads of these lines", "3 CPU s"
            ),
            Wait(
                f"{run.name} ({counts[1]:,} lines)",
                f"{run.best:.0f} s of wall time",
                "json.loads of these lines",
                f"{long_parsed.best:.0f} s",
                run.best / long_parsed.best,
                "45 s",
            ),
        ],
    )


def _cpu_wait(work: str, command: Contestant, peer: Contestant, peer_name: str, target: str) -> Wait:
    cpu, of_peer = min(command.cpu_seconds), min(peer.cpu_seconds)
    return Wait(work, f"{cpu:.2f} CPU s", peer_name, f"{of_peer:.2f} CPU s", cpu / of_peer, target)


def _shrink(lake: Path) -> list[str]:
    """Options that name a shrink of the baseline in a lake."""
    columns = ["rule", "topic", "partition_id", "change_time"]
    rows: list[dict[str, Any]] = DeltaTable(str(lake / "shrink_verdicts")).to_pyarrow_table(columns=columns).to_pylist()
    one = next(row for row in rows if row["rule"] == BASELINE)
    at = f"{one['change_time']:%Y-%m-%dT%H:%M:%S}"
    return ["--topic", one["topic"], "--partition", str(one["partition_id"]), "--at", at]


def _isr_batch(*arguments: object) -> None:
    _python("-m", "pipelines.cli", *arguments)


def _python(*arguments: object) -> None:
    subprocess.run([sys.executable, *map(str, arguments)], check=True, capture_output=True)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
