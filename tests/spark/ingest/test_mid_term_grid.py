"""Recorded clusters with part of their logs left out, in every way that happens, against the replay of the whole logs.

All cuts of a run are clusters of one lake, so that one replay does for them. The result of each cut is a line
of ``build/mid-term-grid.csv``; ``docs/measurements/0017`` has the figures. A nightly test: it takes hours.
"""

import csv
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from isr_batch.ingest.broker_logs import ingest_broker_logs
from isr_batch.lake.lake import Lake
from isr_batch.replay.replay import replay
from tests.log_cuts import ALL_LOGS, after, before, between, copy_of, without
from tests.spark.broker_logs import TRACES, traces
from tests.spark.ingest.test_mid_term import Cut, rule_of, written
from udfs.batches.rule_runs import RuleRun
from udfs.rules import REGISTRY

pytestmark = [traces, pytest.mark.traces, pytest.mark.nightly]

FIGURES = Path(__file__).parents[3] / "build" / "mid-term-grid.csv"
NEAR = timedelta(milliseconds=100)
SHARE = float(os.environ.get("GRID_SHARE", "1"))
"""Share of the cuts to try, drawn by a seed, where there is no night for all."""


class Change(NamedTuple):
    """A change that a rule made, without the leader epoch, which a log may lack."""

    topic: str
    partition_id: int
    leader_id: int
    replica_id: int
    kind: str
    made_by: str


class Figures(NamedTuple):
    """Comparison of the replay of a cut log with the changes of the whole log after the warm-up."""

    run: str
    cut: str
    wanted: int
    matched: int
    equal: int
    extra: int
    """Extra changes, but shrinks whose verdict is ``unknown``."""
    certain: int
    """Extra changes that are not called ``possible`` either."""


def cuts(run: str, metadata: bool) -> Iterator[tuple[str, Cut]]:
    options = {"metadata": metadata}
    for at in range(20, 200, 18):
        yield f"from {at} s", Cut(run, after(at), ALL_LOGS, options)
    for log in ALL_LOGS:
        yield f"{log} from 60 s", Cut(run, after(60), (log,), options)
    yield "to 120 s", Cut(run, before(120), ALL_LOGS, options)
    yield "50 to 130 s", Cut(run, between(50, 130), ALL_LOGS, options)
    yield "not 60 to 90 s", Cut(run, without(60, 90), ALL_LOGS, options)
    yield "without broker 2", Cut(run, after(0), ALL_LOGS, {**options, "brokers": (2,)})


def runs() -> Iterator[tuple[str, bool]]:
    """Each run, with its metadata log and, if it has one, without."""
    for folder in sorted(TRACES.glob("*/")) if TRACES.is_dir() else ():
        if any(folder.glob("metadata-dump*")):
            yield folder.name, True
        yield folder.name, False


def changes(lake: Lake) -> dict[str, dict[Change, list[dict[str, Any]]]]:
    """Changes of each cluster, in the order of time."""
    key = ("cluster_id", "topic", "partition_id", "leader_id", "replica_id", "change_time")
    verdicts = {
        tuple(row[name] for name in key): row["verdict"] for row in lake.read("shrink_verdicts").toArrow().to_pylist()
    }
    found: dict[str, dict[Change, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(lake.read("isr_changes").toArrow().to_pylist(), key=lambda row: row["change_time"]):
        change = Change(*(row[name] for name in Change._fields))
        verdict = verdicts.get(tuple(row[name] for name in key))
        found[row["cluster_id"]][change].append(row | {"verdict": verdict})
    return found


def error_of(change: dict[str, Any]) -> timedelta:
    """By how much the time of a change may differ: of a shrink, as much as it says itself."""
    return max(NEAR, timedelta(milliseconds=change["time_error_ms"] or 0))


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two changes have the same verdict and offsets, and followers last caught up within 2 ms."""
    same = ("verdict", "high_watermark", "leader_log_end_offset", "follower_log_end_offset")
    caught_up = [row["last_caught_up_time_ms"] for row in (one, other)]
    if None in caught_up:
        return caught_up == [None, None] and all(one[name] == other[name] for name in same)
    return abs(caught_up[0] - caught_up[1]) <= 2 and all(one[name] == other[name] for name in same)


@pytest.mark.parametrize(("run", "metadata"), list(runs()))
def test_cuts_give_the_same_as_the_whole(run: str, metadata: bool, spark_session: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark_session, str(tmp_path / "lake"), "run-1")
    ingest_broker_logs(lake, copy_of(TRACES / run, tmp_path / "whole", after(0), metadata=metadata), "whole")
    drawn = [
        (name, cut) for name, cut in cuts(run, metadata) if random.Random(f"{run} {metadata} {name}").random() <= SHARE
    ]
    for number, (_, cut) in enumerate(drawn):
        ingest_broker_logs(lake, written(cut, tmp_path / str(number)), f"cut-{number}")
    replay(lake, [RuleRun(rule_of(run))])
    every = changes(lake)
    found = [
        compared(lake, run, name + ("" if metadata else ", no metadata"), f"cut-{number}", every)
        for number, (name, _) in enumerate(drawn)
    ]
    with FIGURES.open("a", newline="") as file:
        csv.writer(file).writerows(found)
    share = 1 if metadata else 0.99
    assert not [figures for figures in found if figures.matched < share * figures.wanted or figures.certain]


def compared(
    lake: Lake, run: str, name: str, cluster: str, every: dict[str, dict[Change, list[dict[str, Any]]]]
) -> Figures:
    of_cluster = f"cluster_id = '{cluster}'"
    vouched = lake.read("coverage").where(f"log = 'request' AND {of_cluster}").toArrow().to_pylist()
    lag_times = lake.read("leader_epochs").where(of_cluster).selectExpr("max(replica_lag_time_max_ms)").collect()
    lag_ms = lag_times[0][0]
    if lag_ms is None:  # nothing is left of the log
        assert not every[cluster]
        return Figures(run, name, 0, 0, 0, 0, 0)
    warm_up = timedelta(milliseconds=lag_ms + lag_ms / REGISTRY[rule_of(run)].checks_per_lag_time + 1)
    earliest = min(stretch["from_time"] for stretch in vouched)

    def known(row: dict[str, Any]) -> bool:
        at = row["change_time"]
        for stretch in vouched:
            # A broker that started within the cut log has led before, in what was left out.
            begin = stretch["from_time"] + warm_up if stretch["begins_mid_term"] else earliest
            if stretch["broker_id"] == row["leader_id"] and begin <= at <= stretch["until_time"]:
                return True
        return False

    left = {change: list(rows) for change, rows in every[cluster].items()}
    wanted = matched = equal = 0
    for change, rows in every["whole"].items():
        for row in rows:
            near = [o for o in left.get(change, ()) if abs(o["change_time"] - row["change_time"]) <= error_of(o)]
            if known(row):
                wanted += 1
                matched += bool(near)
                equal += any(alike(row, other) for other in near)
            for other in near[:1]:
                left[change].remove(other)
    extra = [
        row["certainty"]
        for rows in left.values()
        for row in rows
        if known(row) and (row["kind"] == "expand" or row["verdict"] != "unknown")
    ]
    certain = sum(certainty != "possible" for certainty in extra)
    return Figures(run, name, wanted, matched, equal, len(extra), certain)
