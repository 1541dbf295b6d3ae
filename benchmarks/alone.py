"""Measurements in separate processes: one and two cores, longer logs, hot partitions, first use on a machine."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.page import Section, Wait
from udfs.rules import ALL_RULES

Measured = tuple[Path, int]
"""A lake, and the rows in it."""
HEADINGS = (
    "log, Spark master",
    "rows",
    "wall time, best (s)",
    "wall time, median (s)",
    "worker's peak memory (MiB)",
    "JVM's peak memory (MiB)",
)


class Jobs:
    """Replays in separate processes, one after the other, each warmed up by a small one."""

    def __init__(self, warm: Path, rounds: int) -> None:
        self._warm, self._rounds = warm, rounds
        self._told: dict[tuple[str, Path], Mapping[str, float]] = {}

    def told(self, master: str, log: Measured) -> Mapping[str, float]:
        """Seconds, best and median and best a row; peaks of memory in MiB. Once measured, it is not measured again."""
        lake, rows = log
        if (master, lake) not in self._told:
            job = [sys.executable, "-m", "benchmarks.job", master, str(self._rounds), str(self._warm), str(lake)]
            told = _output(job)
            best, median = min(told["seconds"]), float(np.median(told["seconds"]))
            memory = {"worker": told["worker"], "jvm": told["jvm"]}
            self._told[master, lake] = {"best": best, "median": median, "row": best / rows, **memory}
        return self._told[master, lake]


NOTE = f"""`replay` ran with {len(ALL_RULES)} rules, and packed the rows first. Each measurement had a separate
process, warmed up by a small replay. Peaks of resident memory are those of a single Python worker, and of the JVM.
ISR changes were not compared in this measurement."""


def longer(jobs: Jobs, log: Measured, shorter: Measured) -> Section:
    """Group c: the log, and one of the same partitions for a shorter time."""
    usual, short = jobs.told("local[2]", log), jobs.told("local[2]", shorter)
    return Section(
        "A longer log",
        f"{NOTE} The shorter log has the same partitions.",
        HEADINGS,
        [_row("the log, local[2]", log[1], usual), _row("a shorter log, local[2]", shorter[1], short)],
        [
            ("number of rows of the log relative to the shorter log", log[1] / shorter[1]),
            ("replay time of the log relative to the shorter log", usual["best"] / short["best"]),
            ("peak memory of a worker with the log, relative to the shorter log", usual["worker"] / short["worker"]),
            ("peak memory of the JVM with the log, relative to the shorter log", usual["jvm"] / short["jvm"]),
        ],
    )


def cores_and_skew(jobs: Jobs, log: Measured, half: Measured, alone: Measured) -> Section:
    """Groups c and d: one core and two, hot partitions."""
    cases = {
        "the log, local[2]": ("local[2]", log),
        "the log, local[1]": ("local[1]", log),
        "one partition with half of the rows, local[2]": ("local[2]", half),
        "one partition alone, local[2]": ("local[2]", alone),
    }
    found = {name: jobs.told(*case) for name, case in cases.items()}
    usual, one_core, hot, single = found.values()
    return Section(
        "Cores and skew",
        f"""{NOTE} Each replica set is replayed by one task. Therefore the replay of a single partition keeps one core
        busy in Python, and at most a second one in the JVM; so does a replay with local[1]. In the last row
        of the table, the single partition has {alone[1] / log[1]:.0f} times as many rows as the log.""",
        HEADINGS,
        [_row(name, cases[name][1][1], figures) for name, figures in found.items()],
        [
            ("replay time with two cores relative to one core", usual["best"] / one_core["best"]),
            ("time per row if half of the rows are in one partition, relative to no skew", hot["row"] / usual["row"]),
            (
                "peak memory of a worker if half of the rows are in one partition, relative to no skew",
                hot["worker"] / usual["worker"],
            ),
            ("time per row of one partition alone, relative to no skew", single["row"] / usual["row"]),
            (
                "peak memory of a worker with one partition alone, relative to no skew",
                single["worker"] / usual["worker"],
            ),
        ],
    )


def _row(name: str, rows: int, found: Mapping[str, float]) -> list[str]:
    seconds = [f"{found[which]:.1f}" for which in ("best", "median")]
    return [name, f"{rows:,}", *seconds, f"{found['worker']:.0f}", f"{found['jvm']:.0f}"]


KERNELS = """
import time
from benchmarks import kernel, log
from benchmarks.measure import CpuOfTree
from isr_batch.replay.kernel_cache import keep_compiled
rows = kernel.read_only(log.log_of(log.Plan(1000, 2)))
begun = time.perf_counter()
keep_compiled()
kernel.replay_in_memory(rows, [kernel.RuleRun("kafka-3.7")])
print([time.perf_counter() - begun, CpuOfTree()()])
"""
SESSION = """
import time
from benchmarks.measure import CpuOfTree
begun = time.perf_counter()
from isr_batch.session import start_session
from isr_batch.settings import SparkSettings
spark = start_session(SparkSettings())
spark.range(1).count()
print([time.perf_counter() - begun, CpuOfTree()()])
spark.stop()
"""


def first_use(rounds: int) -> Section:
    """Group e: with nothing compiled, and with what the first process left."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(Path(folder) / "kernels")}
        python = [sys.executable, "-c"]
        session = [_output([*python, SESSION]) for _ in range(rounds)]
        cold, *warm = [_output([*python, KERNELS], environment) for _ in range(1 + rounds)]
    told = {
        "Spark's session, from its start to its first result": session,
        "the replay's kernels, compiled because no machine code is on disk": [cold],
        "the replay's kernels, loaded from machine code on disk": warm,
    }
    loaded = min(cpu for _, cpu in warm)
    return Section(
        "First use",
        """Each measurement ran in a separate process. Kernels are compiled once per machine, and loaded
        after that. CPU seconds are those of all processes, with Python's start and all imports.""",
        ("what was measured", "wall time, best (s)", "CPU time, best (s)", "times measured"),
        [[what, *(f"{min(each):.1f}" for each in zip(*s, strict=True)), str(len(s))] for what, s in told.items()],
        waits=[
            Wait(
                "the first replay after an upgrade: compiling the kernels",
                f"{cold[1] - loaded:.0f} CPU s",
                "loading compiled kernels, with Python's start and imports",
                f"{loaded:.1f} CPU s",
                (cold[1] - loaded) / loaded,
                "20 CPU s",
            )
        ],
    )


def _output(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Any:
    """Last line of a process's output, as JSON."""
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
