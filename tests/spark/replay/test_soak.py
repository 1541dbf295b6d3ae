"""Many nights, with late files and killed runs: the result is that of one clean run over all logs.

Only killed runs are separate processes: in the others, half of the time would be the start of Spark.
``DAYS=30 pytest -m nightly tests/spark/replay/test_soak.py`` takes hours.
"""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from tests.spark.killed_runs import (
    MIDNIGHT,
    RULES,
    commands,
    commits,
    content,
    here,
    killed,
    started,
    write_cluster,
)

SEED = 20261122
DAY_S = 86_400
LATE_SHARE, KILLED_SHARE = 0.05, 0.5


def write_days(folder: Path, days: int) -> list[Path]:
    """Write request and server logs, one file per broker and day; the brokers start on the first one."""
    for day in range(days):
        write_cluster(folder / "of-day", MIDNIGHT + day * DAY_S - 20, 40, starts=day == 0)
        for log in sorted((folder / "of-day").glob("*/*")):
            name = f"{log.name}.{day}" if log.name in ("request.log", "server.log") else log.name
            broker = folder / "all" / log.parent.name
            broker.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, broker / name)
        shutil.rmtree(folder / "of-day")
    return sorted((folder / "all").glob("*/*.log.*"), key=lambda log: int(log.suffix[1:]))


@pytest.mark.nightly
@pytest.mark.timeout(12 * 3600)
@pytest.mark.usefixtures("spark")
def test_nights_on_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISR_BATCH__INGEST__MAX_QUARANTINE_RATIO", "1")
    monkeypatch.setenv("ISR_BATCH__VALIDATION__MIN_MATCHED_RATIO", "0")
    days = int(os.environ.get("DAYS", "30"))
    chosen = random.Random(SEED)
    scratch, lake, clean, logs = (tmp_path / name for name in ("scratch", "lake", "clean", "logs"))
    files = write_days(tmp_path, days)
    requests = [file for file in files if file.name.startswith("request.log")]
    late = set(chosen.sample(requests[:-2], max(1, round(LATE_SHARE * len(requests)))))
    shutil.copytree(tmp_path / "all", logs, ignore=shutil.ignore_patterns("*.log.*"))
    arrival = {file: int(file.suffix[1:]) + (file in late) * chosen.randint(1, 2) for file in files}
    of_a_night, kills = 20, 0
    for night in range(days + 2):
        for file in (file for file, comes in arrival.items() if comes == night):
            shutil.copy(file, logs / file.parent.name)
        ingest, backfill, _ = commands(lake, logs)
        if chosen.random() < KILLED_SHARE:
            run = started([ingest, backfill], scratch)
            who = killed(run, lake, chosen.randint(0, of_a_night), scratch, chosen)
            kills += who is not None
            sys.stderr.write(f"night {night}, {kills} kills: {who}\n")
        before = commits(lake)
        here(ingest)
        here(backfill)
        of_a_night = max(20, commits(lake) - before)
    assert kills
    *_, validate = commands(lake, logs)
    here(validate)
    ingest, _, validate = commands(clean, tmp_path / "all")
    replay = ["replay", "--lake", str(clean), "--rules", RULES, "--quiet"]
    for command in ([*ingest, "--cluster", "logs"], replay, validate):
        here(command)
    found, whole = content(lake), content(clean)
    assert found.pop("replay_state")  # of each day; one run over all needs none
    whole.pop("replay_state")
    assert found.keys() == whole.keys()
    for name, rows in whole.items():
        assert found[name] == rows, name
