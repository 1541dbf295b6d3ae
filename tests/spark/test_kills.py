"""A run is killed at random instants, and run again: every table as if nothing had happened.

``KILLS=100 pytest -m nightly tests/spark/test_kills.py`` takes an hour or two.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.measure import processes_below
from isr_batch.store import Lake
from tests.spark.test_windows import RULES, copy_of, stories, tables

__all__ = ["stories"]

KILLS = int(os.environ.get("KILLS", "10"))
SEED = 20261122


def backfill(lake: Lake) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "pipelines.cli", "backfill", "--lake", lake.root, "--rules", ",".join(RULES)]
    small = os.environ | {"ISR_BATCH__SPARK__DRIVER_MEMORY": "1g"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=small)


def finished(lake: Lake) -> float:
    begun = time.monotonic()
    run = backfill(lake)
    _, told = run.communicate()
    assert run.returncode == 0, told.decode()
    return time.monotonic() - begun


def victims(run: "subprocess.Popen[bytes]", chosen: random.Random) -> Iterator[int]:
    """The driver with all below it, or one Python worker alone, which Spark starts again or gives up on."""
    below = processes_below(run.pid)
    workers = [pid for pid in below if b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"java")[0]]
    if workers and chosen.random() < 0.25:
        yield chosen.choice(workers)
    else:
        yield from below[::-1]


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_killed_and_run_again(stories: Lake, tmp_path: Path) -> None:
    undisturbed, killed = copy_of(stories, tmp_path / "undisturbed"), copy_of(stories, tmp_path / "killed")
    seconds = finished(undisturbed)
    whole = tables(undisturbed)
    chosen = random.Random(SEED)
    ended = 0
    for _ in range(KILLS):
        run = backfill(killed)
        try:
            run.wait(chosen.uniform(0, seconds))
        except subprocess.TimeoutExpired:
            for pid in victims(run, chosen):
                os.kill(pid, signal.SIGKILL)
        run.communicate()
        ended += run.returncode == 0
        if run.returncode == 0:  # nothing is left to do: begin anew
            killed.spark.sql(f"DELETE FROM {killed.identifier('replayed_days')}")
    finished(killed)
    assert ended < KILLS
    found = tables(killed)
    for name, rows in whole.items():
        assert found[name] == rows, name
