"""Recorded clusters whose logs begin late, or have a gap: the same is replayed as of the whole log, and nothing else.

`test_mid_term_grid` has the whole grid of such cuts, a nightly test.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from isr_batch.ingest.broker_logs import IngestOfBrokerLogs, ingest_broker_logs
from isr_batch.lake.lake import Lake
from isr_batch.nightly import replay_window
from isr_batch.replay.replay import replay
from isr_batch.report import write_report
from isr_batch.scoring.broker_check import predict_broker_changes, validate
from tests.log_cuts import ALL_LOGS, REQUEST, Keep, after, before, copy_of, span, without
from tests.spark.broker_logs import TRACES, traces
from udfs.batches.rule_runs import RuleRun
from udfs.rules import rule_of_release

SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "mid-term" / "long-running"
RELEASES = {
    "old-0.10.1.1": "0.10.1.1", "old-2.1.1": "2.1.1", "k2.8.2": "2.8.2", "k3.2.3": "3.2.3", "k3.6.2": "3.6.2",
}  # fmt: skip
"""The others ran the rule of today."""

pytestmark = [traces, pytest.mark.traces]


class Found(NamedTuple):
    """A cut log, ingested, replayed and compared with its brokers."""

    lake: Lake
    ingest: IngestOfBrokerLogs
    checked: Counter[str]


class Cut(NamedTuple):
    """The remaining part of a run; times are seconds from its first request."""

    run: str
    keep: Keep
    logs: tuple[str, ...] = ALL_LOGS
    options: Mapping[str, Any] = {}


def rule_of(run: str) -> str:
    return rule_of_release(RELEASES.get(run, "4.1.0"))


def replayed(spark: SparkSession, logs: Path, to: Path, run: str) -> Found:
    lake = Lake(spark, str(to), "run-1")
    done = ingest_broker_logs(lake, logs, run)
    replay(lake, [RuleRun(rule_of(run))])
    checked: Counter[str] = Counter()
    for row in validate(lake).rows:
        checked.update({status: row[status] for status in ("matched", "missing", "extra", "unknown")})
    return Found(lake, done, checked)


def written(cut: Cut, to: Path) -> Path:
    """Write what is left into a folder."""
    first, _ = span(TRACES / cut.run)
    return copy_of(TRACES / cut.run, to / "logs", lambda at: cut.keep(at - first), cut.logs, **cut.options)


# Brokers and replay agree on the remaining time. Changes that are missing are missing from the replay of the whole log
# as well: a leader that woke up.
CUTS = {
    "4.1.0, from the middle, without metadata": (
        Cut("r4-leader-stop", after(100), options={"metadata": False}), {"matched": 68},
    ),
    "2.1.1, a hole": (Cut("old-2.1.1", without(80, 100)), {"matched": 212, "missing": 2}),
    "3.9.1, requests alone are late": (Cut("k3.9.1", after(90), (REQUEST,)), {"matched": 93}),
}  # fmt: skip


@pytest.mark.parametrize("name", CUTS)
def test_the_rest_of_a_log_is_replayed_as_in_the_whole(
    name: str, spark_session: SparkSession, compiled_expressions: None, tmp_path: Path  # noqa: ARG001 for what it does
) -> None:  # fmt: skip
    cut, expected = CUTS[name]
    found = replayed(spark_session, written(cut, tmp_path), tmp_path / "lake", cut.run)
    # Changes outside the log, or too near to its beginning, are marked and not counted.
    assert {status: n for status, n in found.checked.items() if n and status != "unknown"} == expected
    # Every replica that a leader's line drops is there, in its log and in the comparison, with a twin or without.
    checked = found.lake.read("replay_check").where("kind = 'shrink' AND observed_time IS NOT NULL")
    by_leaders = found.lake.read("observed_isr_changes").where("kind = 'shrink' AND made_by = 'leader'")
    assert checked.count() == by_leaders.count() == dropped_in(tmp_path / "logs")
    told = found.lake.read("coverage").where("log = 'request' AND begins_mid_term").count()
    assert told >= 2
    terms = found.lake.read("leader_epochs").where("begins_mid_term")
    assert terms.count() > 0
    assert terms.where("start_offset IS NULL AND isr_source IS NULL").count() == 0
    shrinks = found.lake.read("shrink_verdicts").where("verdict = 'spurious' AND primary_cause = 'unknown'")
    assert shrinks.count() == 0


def isr_by_records(run: str, at: datetime) -> dict[tuple[str, int], list[int]]:
    """ISR at an instant, from the controller's records one by one."""
    names: dict[str, str] = {}
    isr: dict[tuple[str, int], list[int]] = {}
    for record in records(run):
        data = record["data"]
        if record["type"] == "TOPIC_RECORD":
            names[data["topicId"]] = data["name"]
        elif (
            record["type"] in {"PARTITION_RECORD", "PARTITION_CHANGE_RECORD"} and record["ms"] <= at.timestamp() * 1000
        ):
            key = names[data["topicId"]], data["partitionId"]
            isr[key] = data.get("isr") or isr[key]
    return isr


def records(run: str) -> Iterator[dict[str, Any]]:
    text = gzip.decompress((TRACES / run / "metadata-dump.txt.gz").read_bytes()).decode()
    for ms, payload in re.findall(r"^\| offset: \d+ CreateTime: (\d+) .*payload: (.*)$", text, re.MULTILINE):
        yield {"ms": int(ms), **json.loads(payload)}


def write_checkpoint(run: str, to: Path, at: float) -> None:
    """Write what the dump tool prints of a snapshot of the metadata log at ``at``, in seconds since the epoch."""
    state: dict[tuple[str, ...], dict[str, Any]] = {}
    for record in records(run):
        if record.pop("ms") > at * 1000:
            continue
        if record["type"] in {"TOPIC_RECORD", "PARTITION_RECORD"}:
            state[record["type"], record["data"]["topicId"], str(record["data"].get("partitionId"))] = record
        elif record["type"] == "PARTITION_CHANGE_RECORD" and ("PARTITION_RECORD", *key_of(record)) in state:
            whole = state["PARTITION_RECORD", *key_of(record)]["data"]
            whole["leaderEpoch"] += "leader" in record["data"]
            whole |= record["data"]
    lines = [f'SnapshotHeader {{"version":0,"lastContainedLogTimestamp":{round(at * 1000)}}}']
    lines += [f"payload: {json.dumps(record)}" for record in state.values()]
    stamp = "CreateTime: 1 keySize: -1 valueSize: 9 sequence: -1 headerKeys: []"
    told = [f"| offset: {number} {stamp} {line}" for number, line in enumerate(lines)]
    (to / "checkpoint.txt").write_text("\n".join(["Dumping x", "Snapshot end offset: 900, epoch: 1", *told]) + "\n")


def key_of(record: dict[str, Any]) -> tuple[str, str]:
    return record["data"]["topicId"], str(record["data"]["partitionId"])


@pytest.mark.parametrize("checkpoint", [False, True], ids=["nothing else", "a checkpoint of before"])
def test_the_isr_in_mid_term_is_the_controllers(
    checkpoint: bool, spark_session: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    """A follower was dropped before; what the controller wrote is not there to be read."""
    cut = Cut("r2-follower-stop", after(96), options={"metadata": False})
    logs = written(cut, tmp_path)
    first, _ = span(TRACES / cut.run)
    if checkpoint:
        write_checkpoint(cut.run, logs, first + 90)
    lake = Lake(spark_session, str(tmp_path / "lake"), "run-1")
    ingest_broker_logs(lake, logs, "r2")
    begun = lake.read("leader_epochs").where("begins_mid_term").toArrow().to_pylist()
    assert len(begun) >= 18
    found = {(term["topic"], term["partition_id"]): sorted(term["isr_at_start"]) for term in begun}
    truth = isr_by_records(cut.run, min(term["start_time"] for term in begun))
    assert found == {key: sorted(truth[key]) for key in found}
    assert len({tuple(isr) for isr in found.values()}) > 1


def test_one_broker_of_three_is_replayed_by_itself(
    spark_session: SparkSession, compiled_expressions: None, tmp_path: Path  # noqa: ARG001 for what it does
) -> None:  # fmt: skip
    alone = Cut("r2-follower-stop", after(0), options={"brokers": (2, 3), "metadata": False})
    logs = written(alone, tmp_path)
    found = replayed(spark_session, logs, tmp_path / "lake", "r2-follower-stop")
    assert found.checked["missing"] == found.checked["extra"] == 0
    assert found.checked["matched"] > 0
    assert {row[0] for row in found.lake.read("isr_changes").select("leader_id").distinct().collect()} == {1}


def test_a_night_goes_on_from_the_one_before(
    spark_session: SparkSession, compiled_expressions: None, tmp_path: Path  # noqa: ARG001 for what it does
) -> None:  # fmt: skip
    """Followers are out of the ISR when the logs are rotated; nothing is inferred again, and nothing is lost."""
    lake = Lake(spark_session, str(tmp_path / "lake"), "run-1")
    for night, keep in enumerate((before(62), after(62))):
        part = Cut("r2-follower-stop", keep, options={"metadata": False})
        ingest_broker_logs(lake, written(part, tmp_path / str(night)), "r2")
    replay(lake, [RuleRun("kafka-3.7")])
    checked: Counter[str] = Counter()
    for row in validate(lake).rows:
        checked.update({status: row[status] for status in ("matched", "missing", "extra", "unknown")})
    assert {status: n for status, n in checked.items() if n} == {"matched": 116}


def test_the_sample_begins_in_the_middle_of_everything(
    spark_session: SparkSession, compiled_expressions: None, tmp_path: Path  # noqa: ARG001 for what it does
) -> None:  # fmt: skip
    found = replayed(spark_session, SAMPLE, tmp_path / "lake", "k3.9.1")
    assert {status: n for status, n in found.checked.items() if n} == {"matched": 28}
    # No line of a change gives a time then, and the phase of the check is from the broker's start, or unknown.
    predicted = predict_broker_changes(found.lake)
    assert sum(row["matched"] + row["missing"] for row in predicted.rows) == 28
    assert predicted.matched >= 20
    # Further results of `run`: eligible leaders, scores, the page.
    replay_window(found.lake, [RuleRun(rule_of("k3.9.1"))])
    assert not found.lake.read("rule_scores").isEmpty()
    write_report(found.lake, tmp_path / "report.html")
    assert "healthy" in (tmp_path / "report.html").read_text(encoding="utf-8")
    terms = found.lake.read("leader_epochs").toArrow().to_pylist()
    assert {term["begins_mid_term"] for term in terms} == {True}
    assert {tuple(sorted(term["assigned"])) for term in terms} == {(1, 2, 3)}
    assert {note.about for note in found.ingest.notes} >= {"request log of broker 1", "release", "terms"}


SHRINKS = re.compile(r"Shrinking ISR (?:for partition \S+ )?from ([\d,]+) to ([\d,]*)")


def dropped_in(logs: Path) -> int:
    """Count the replicas that the brokers' own lines drop, by their text alone."""
    text = "".join(path.read_text() for path in logs.glob("broker-*/server.log"))
    return sum(len(before.split(",")) - len(after.split(",")) for before, after in SHRINKS.findall(text))
