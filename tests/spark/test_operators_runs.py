"""Operators' folders through ingest, replay and comparison: the right rule, lag time and answers for the logs."""

from pathlib import Path

import pytest

from isr_batch.evidence.evidence_table import read_evidence_table
from isr_batch.evidence.questions import answer_questions
from isr_batch.evidence.questions_with_requests import collect_with_requests
from isr_batch.ingest.broker_logs import ingest_broker_logs
from isr_batch.lake.lake import Lake
from isr_batch.replay.replay import replay, rule_runs
from isr_batch.scoring.broker_check import validate
from isr_batch.settings import ReplaySettings

ROOT = Path(__file__).parents[2]
CASES = ROOT.parent / "shared" / "cases"
RULES = ["kafka-2.1", "kafka-3.3", "kafka-3.7"]


@pytest.mark.skipif(not CASES.is_dir(), reason="the operators' folders are not here: ../shared/cases")
def test_each_folder_is_compared_with_the_rule_and_the_lag_time_of_its_brokers(lake: Lake) -> None:
    names = {
        "H2": "H2-console-iso-thread", "H5": "H5-folder-number-is-no-id", "H7": "H7-server-log-only",
        "H8": "H8-vendor-numbers", "H9": "H9-lag-time-not-set",
    }  # fmt: skip
    for cluster, name in names.items():
        ingest_broker_logs(lake, CASES / name / "input", cluster)
    replay(lake, rule_runs(ReplaySettings(rules=RULES)))
    validate(lake)
    own, _ = lake.query(
        "SELECT DISTINCT cluster_id, rule FROM replay_check WHERE rule <> 'unknown' ORDER BY cluster_id"
    )
    assert {row["cluster_id"]: row["rule"] for row in own} == {
        "H2": "kafka-3.7", "H5": "kafka-3.7", "H8": "kafka-3.3", "H9": "kafka-2.1",
    }  # fmt: skip
    times, _ = lake.query(
        "SELECT DISTINCT cluster_id, CAST(get_json_object(params_json, '$.replica_lag_time_max_ms') AS INT) AS ms "
        "FROM partition_timeline"
    )
    assert {row["cluster_id"]: row["ms"] for row in times} == {"H2": 4000, "H5": 4000, "H8": 4000, "H9": 10_000}
    requests = collect_with_requests(lake, list(names))
    answers = {
        cluster: {one.question: one for one in answer_questions(read_evidence_table(lake, cluster), requests[cluster])}
        for cluster in names
    }
    for cluster in ("H5", "H8"):  # the same lines in other layouts
        assert [(one.answer, one.how_sure) for one in answers[cluster].values()] == [
            (one.answer, one.how_sure) for one in answers["H2"].values()
        ]
    wrote = "Which client wrote when it happened?"
    assert "only request logs" in answers["H7"][wrote].answer


def test_the_lag_time_that_is_said_to_be_enough_is_enough(lake: Lake) -> None:
    ingest_broker_logs(lake, ROOT / "data" / "samples" / "leader-stop", "c")
    replay(lake, rule_runs(ReplaySettings(rules=["kafka-3.7"])))
    validate(lake)
    found, _ = lake.query(
        "SELECT topic, partition_id, replica_id, lag_ms, avoiding_lag_time_ms FROM evidence_and_verdicts "
        "WHERE known_by = 'both' AND verdict <> 'excluded'"
    )
    enough = [int(str(row["avoiding_lag_time_ms"])) for row in found]
    assert len(enough) > 80
    assert all(each >= int(str(row["lag_ms"])) for each, row in zip(enough, found, strict=True))
    # Half of them would not have been, and those are no others.
    chosen = sorted(enough)[len(enough) // 2]
    params = {"kafka-3.7": {"replica_lag_time_max_ms": chosen}}
    replay(lake, rule_runs(ReplaySettings(rules=["kafka-3.7"], params=params)))
    left, _ = lake.query("SELECT topic, partition_id, replica_id FROM shrink_verdicts WHERE made_by = 'rule'")
    place = ("topic", "partition_id", "replica_id")
    still = {tuple(row[name] for name in place) for row in left}
    may = {tuple(row[name] for name in place) for each, row in zip(enough, found, strict=True) if each > chosen}
    assert still
    assert still <= may
    wrote = collect_with_requests(lake, ["c"])["c"].clients
    assert {(row["client_id"], row["topic"]) for row in wrote} == {
        ("drv-1-acks1", "bursty"), ("drv-0-acksall", "busy"), ("drv-2-acksall", "sparse"),
    }  # fmt: skip
