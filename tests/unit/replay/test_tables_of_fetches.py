"""Replays of tables of fetches: the same for any cut, and nothing that a table leaves open is guessed."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isr_batch.errors import QualityGateError
from isr_batch.ingest.own_table.ingest import ingest_own_table
from isr_batch.ingest.own_table.mapping import load_mapping
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.run_log import write_run_log
from isr_batch.lake.tables.outputs import SHRINK_VERDICTS
from isr_batch.nightly import is_replayed, replay_window
from isr_batch.replay.replay import rule_runs
from isr_batch.settings import ReplaySettings
from isr_batch.window import Window
from tests.made_up_tables import MAPPING, made_up_table, pieces
from udfs.batches.rule_runs import RuleRun

REPOSITORY = Path(__file__).parents[3]
SAMPLE = REPOSITORY / "data" / "samples" / "tables"
RULES = rule_runs(ReplaySettings(rules=["kafka-3.7", "kafka-0.10.2"]))


def verdicts(folder: Path, files: list[Path], mapping: str = MAPPING) -> list[str]:
    (folder / "mapping.yaml").write_text(mapping)
    lake = Lake(lambda: pytest.fail("Spark is not needed"), str(folder / f"lake-{len(files)}"), "a-run")
    for file in files:
        ingest_own_table(lake, [str(file)], load_mapping(folder / "mapping.yaml"))
    replay_window(lake, RULES, Window(), timelines="none")
    names = [name for name in SHRINK_VERDICTS.column_names if name != "leader_epoch"]
    return sorted(map(str, read_columns(lake, SHRINK_VERDICTS.name, names).to_pylist()))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_any_cut_gives_the_same_verdicts(seed: int, tmp_path: Path) -> None:
    table = made_up_table(seed)
    pq.write_table(table, tmp_path / "whole.parquet")
    of_whole = verdicts(tmp_path, [tmp_path / "whole.parquet"])
    assert of_whole
    assert verdicts(tmp_path, list(pieces(table, seed, tmp_path))) == of_whole


@pytest.mark.parametrize("grows", [False, True])
def test_a_leader_that_pauses_is_not_its_followers_fault(grows: bool, tmp_path: Path) -> None:
    """All its followers go on to fetch from others. If its log grew meanwhile, it was at work, and out of reach."""
    table = made_up_table(11, brokers=6, partitions=12, faults=False)
    leaders, ms = table["leader"].to_numpy(), table["ts_ms"].to_numpy()
    begins, leader = int(ms.min()) + 100_000, 1
    paused = (leaders == leader) & (ms > begins) & (ms < begins + 45_000)
    if not grows:
        lacks = np.where((leaders == leader) & (ms >= begins), 45 * 20, 0)
        for name in ("offset", "leo"):
            at = table.column_names.index(name)
            table = table.set_column(at, name, pa.array(table[name].to_numpy() - lacks))
    pq.write_table(table.filter(pa.array(~paused)), tmp_path / "t.parquet")
    verdicts(tmp_path, [tmp_path / "t.parquet"])
    lake = Lake(lambda: pytest.fail("Spark is not needed"), str(tmp_path / "lake-1"))
    names = ["leader_id", "rule", "change_time", "verdict", "primary_cause"]
    rows = read_columns(lake, SHRINK_VERDICTS.name, names, {"rule": "kafka-3.7"}).to_pylist()
    dropped = [
        row for row in rows
        if row["leader_id"] == leader and begins + 30_000 < row["change_time"].timestamp() * 1000 < begins + 50_000
    ]  # fmt: skip
    assert dropped
    expected = ("unknown", "unknown") if grows else ("spurious", "slow_leader")
    assert {(row["verdict"], row["primary_cause"]) for row in dropped} == {expected}


@pytest.mark.long
def test_a_user_replays_the_sample(tmp_path: Path) -> None:
    """In a separate process with an empty environment."""
    command = [sys.executable, "-m", "pipelines.cli", "run", "--table", str(SAMPLE / "fetches.parquet"), "--json",
               "--mapping", str(SAMPLE / "mapping.yaml"), "--lake", str(tmp_path / "lake")]  # fmt: skip
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (answer,) = (line["answer"] for line in lines if "answer" in line)
    with (SAMPLE / "changes.csv").open(newline="") as file:
        changes = [(set(row["isr_before"].split()), set(row["isr_after"].split())) for row in csv.DictReader(file)]
    dropped = sum(len(before - after) for before, after in changes)
    changed = sum(len(before ^ after) for before, after in changes)
    assert answer[0].startswith(f"Of {dropped} followers that your brokers dropped, ")
    assert f"The replay agrees with the brokers on {changed - 2} of {changed} changes." in answer
    report = tmp_path / "lake" / "report.html"
    assert report.stat().st_size > 100_000
    report.unlink()
    again = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False, timeout=400)
    assert again.returncode == 0, again.stderr[-2000:]
    assert "nothing has changed since the last run" in again.stderr
    assert answer in [json.loads(line).get("answer") for line in again.stdout.splitlines()]
    assert report.stat().st_size > 100_000


def test_results_are_kept_while_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no longer than that: not after another row, with other rules, settings or code, nor after a failed run."""
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    mapping, place = load_mapping(tmp_path / "mapping.yaml"), str(tmp_path / "lake")
    table = made_up_table(5)
    pq.write_table(table.slice(0, table.num_rows - 1), tmp_path / "first.parquet")
    pq.write_table(table.slice(table.num_rows - 1), tmp_path / "last.parquet")

    def run(run_id: str, *files: str, fails: bool = False) -> Lake:
        lake = Lake(lambda: pytest.fail("Spark is not needed"), place, run_id)
        with suppress(QualityGateError), write_run_log(lake, "run", None, "settings"):
            for file in files:
                ingest_own_table(lake, [str(tmp_path / file)], mapping)
            replay_window(lake, RULES, timelines="none")
            if fails:
                raise QualityGateError("too few changes match", "look at them")
        return lake

    def kept(lake: Lake, runs: Sequence[RuleRun] = RULES, command: str = "run", settings: str = "settings") -> bool:
        return is_replayed(lake, runs, Window(), command, settings)

    lake = run("one", "first.parquet")
    assert kept(lake)
    assert not kept(lake, RULES[:1])
    assert not kept(lake, settings="others")
    assert not kept(lake, command="run --timelines all")
    with monkeypatch.context() as other_code:
        other_code.setattr("isr_batch.lake.run_log.digest_of_results", lambda: "of-another-checkout")
        assert not kept(lake)
    ingest_own_table(lake, [str(tmp_path / "last.parquet")], mapping)
    assert not kept(lake)
    assert not kept(run("two", fails=True))
    assert kept(run("three"))
