"""A run is killed at random instants, and run again: every table as if nothing had happened.

``KILLS=100 pytest -m nightly tests/spark/replay/test_kills.py`` takes hours.
"""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from tests.spark.killed_runs import (
    MIDNIGHT,
    commands,
    commits,
    content,
    finished,
    here,
    killed,
    started,
    write_cluster,
)

SEED = 20261122
COMMITS_OF_A_DAY = 12
"""A backfill of one day makes a few more."""


def same(found: dict[str, list[str]], whole: dict[str, list[str]]) -> None:
    assert found.keys() == whole.keys()
    for name, rows in whole.items():
        assert found[name] == rows, name


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("spark")
def test_backfill_killed_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISR_BATCH__INGEST__MAX_QUARANTINE_RATIO", "1")
    undisturbed, disturbed, scratch = tmp_path / "undisturbed", tmp_path / "disturbed", tmp_path / "scratch"
    write_cluster(tmp_path / "logs", MIDNIGHT - 100, 60)
    ingest, backfill, _ = commands(undisturbed, tmp_path / "logs")
    here(ingest)
    shutil.copytree(undisturbed, disturbed)
    here(backfill)
    whole = content(undisturbed)
    assert whole["shrink_verdicts"]
    backfill = commands(disturbed, tmp_path / "logs")[1]
    chosen = random.Random(SEED)
    kills = [
        killed(started([backfill], scratch), disturbed, chosen.randint(1, COMMITS_OF_A_DAY), scratch, chosen)
        for _ in range(3)
    ]
    assert any(kills)
    here(backfill)
    same(content(disturbed), whole)


@pytest.mark.nightly
@pytest.mark.timeout(8 * 3600)
def test_nights_killed_anywhere(tmp_path: Path) -> None:
    """Ingest, replay of two days and validation; each night is killed until it comes to its end."""
    undisturbed, scratch = tmp_path / "undisturbed", tmp_path / "scratch"
    write_cluster(tmp_path / "logs", MIDNIGHT - 40, 80)
    finished(commands(undisturbed, tmp_path / "logs"), scratch)
    whole = content(undisturbed)
    chosen = random.Random(SEED)
    of_a_night, kills, night = commits(undisturbed), 0, 0
    while kills < int(os.environ.get("KILLS", "100")):
        lake, night = tmp_path / f"night-{night}", night + 1
        ended = False
        while not ended:
            run = started(commands(lake, tmp_path / "logs"), scratch)
            who = killed(run, lake, chosen.randint(0, of_a_night), scratch, chosen)
            ended, kills = who is None, kills + bool(who)
            sys.stderr.write(f"night {night}, {kills} kills, {commits(lake)} commits: {who}\n")
        same(content(lake), whole)
        shutil.rmtree(lake)
