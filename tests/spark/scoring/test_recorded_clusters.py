"""Clusters that print text logs, recorded under faults: their logs in, their own decisions as the measure."""

import gzip
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from isr_batch.ingest.broker_logs import ingest_broker_logs
from isr_batch.ingest.kafka_logs.line_account import READ, Tally, refused_as_bad, total_lines
from isr_batch.lake.fetch_log import single_fetches
from isr_batch.lake.lake import Lake
from isr_batch.replay.replay import replay
from isr_batch.scoring.broker_check import BrokerCheckSummary, validate
from tests.spark.broker_logs import TRACES, traces
from udfs.batches.rule_runs import RuleRun


class Recorded(NamedTuple):
    """A cluster, what its logs hold, and how the replay of its rule compares."""

    release: str
    rule: str
    lines: int
    produced: int
    shrinks: dict[str, int]
    expands: dict[str, int]


# Missing or extra changes belong to a leader that woke up: whole milliseconds do not show which partitions its late
# check reached before the waiting fetches.
CLUSTERS = {
    "old-0.10.1.1": Recorded(
        "0.10.1.1", "kafka-0.9", 29_017, 10_026,
        {"matched": 114, "missing": 6, "extra": 24}, {"matched": 136, "missing": 10, "extra": 28},
    ),
    "old-2.1.1": Recorded(
        "2.1.1", "kafka-2.1", 29_115, 10_084,
        {"matched": 98, "missing": 1, "extra": 0}, {"matched": 124, "missing": 1, "extra": 0},
    ),
}  # fmt: skip


class Found(NamedTuple):
    name: str
    lake: Lake
    account: list[Tally]
    match: BrokerCheckSummary


pytestmark = [traces, pytest.mark.traces]


@pytest.fixture(scope="module", params=CLUSTERS)
def found(
    spark_session: SparkSession,
    compiled_expressions: None,  # noqa: ARG001 for what it does
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Found:
    lake = Lake(spark_session, str(tmp_path_factory.mktemp("recorded")), "run-1")
    done = ingest_broker_logs(lake, TRACES / request.param, request.param)
    replay(lake, [RuleRun(CLUSTERS[request.param].rule)])
    return Found(request.param, lake, done.account, validate(lake))


def test_every_line_is_read(found: Found) -> None:
    cluster = CLUSTERS[found.name]
    account = [tally for tally in found.account if tally.log == "request"]
    assert (total_lines(account, READ), refused_as_bad(account)) == (cluster.lines, 0)
    assert sum(tally.lines for tally in account if tally.what == "produce") == cluster.produced
    terms = found.lake.read("leader_epochs").toArrow().to_pylist()
    assert len(terms) == 52
    assert all(sorted(term["assigned"]) == [1, 2, 3] for term in terms)


def test_changes_are_replayed(found: Found, record_property: Any) -> None:
    cluster = CLUSTERS[found.name]
    counts: dict[str, Counter[str]] = {"shrink": Counter(), "expand": Counter()}
    for row in found.match.rows:
        counts[row["kind"]].update({status: row[status] for status in ("matched", "missing", "extra")})
    assert counts == {"shrink": cluster.shrinks, "expand": cluster.expands}
    assert cluster.shrinks["matched"] >= 0.95 * (cluster.shrinks["matched"] + cluster.shrinks["missing"])
    removed = found.lake.read("observed_isr_changes").where("made_by = 'controller'").groupBy("kind").count()
    assert [tuple(row) for row in removed.collect()] == [("shrink", 26)]
    record_property("recorded", found.name)
    record_property("release", cluster.release)
    record_property("rule", cluster.rule)
    record_property("counts", counts)


RECORDED = re.compile(
    r"Partition (?:\[(?P<t>[^,\]]+),(?P<p>\d+)\] on broker (?P<b>\d+):"
    r"|(?P<topic>\S+)-(?P<id>\d+) broker=(?P<broker>\d+)\])"
    r" Recorded replica (?P<replica>\d+) log end offset \(LEO\) position (?P<offset>\d+)"
)


def recorded(run: Path) -> dict[tuple[int, str, int, int], list[int]]:
    """Every follower offset that the brokers say they recorded."""
    offsets: dict[tuple[int, str, int, int], list[int]] = {}
    for path in run.glob("broker-*/partition-debug.log.gz"):
        for match in RECORDED.finditer(gzip.decompress(path.read_bytes()).decode()):
            g = match.groupdict()
            key = (int(g["b"] or g["broker"]), g["t"] or g["topic"], int(g["p"] or g["id"]), int(g["replica"]))
            offsets.setdefault(key, []).append(int(g["offset"]))
    return offsets


def fits(derived: list[int], offsets: list[int], *, answered: bool) -> bool:
    """Equal but for the fetch in flight when the brokers were killed, and, without answers, refused ones.

    A fetch just before or just after a term is refused: the broker does not lead. Nothing says so up to 0.11.
    """
    refused = (0,) if answered else (0, 1)
    shorter = (derived[first : len(derived) - last] for first in refused for last in refused)
    return any(rest in (offsets, offsets[:-1]) for rest in shorter)


def test_fetches_are_those_that_the_brokers_recorded(found: Found) -> None:
    key = ["leader_id", "topic", "partition_id", "replica_id"]
    good = (
        single_fetches(found.lake.read("fetch_log"))
        .where("error_code = 0")
        .orderBy(*key, "handled_time", "source_line")
    )
    derived: dict[Any, list[int]] = {}
    for *partition, offset in zip(*good.select(*key, "fetch_offset").toArrow().to_pydict().values(), strict=True):
        derived.setdefault(tuple(partition), []).append(offset)
    truth = recorded(TRACES / found.name)
    assert truth.keys() == derived.keys()
    answered = CLUSTERS[found.name].release == "2.1.1"
    assert all(fits(derived[partition], offsets, answered=answered) for partition, offsets in truth.items())
