"""Answers held to the truth: to the faults of a recording, and to the tables that they are made from.

``tests/golden/network`` is a cluster of release 4.2.1 with a lag time of 4 s, whose networks failed: leaders out of
reach, lossy and slow, a lossy follower, a link, a broker cut off both ways; and one leader stopped.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from isr_batch.evidence.evidence_table import read_evidence_table
from isr_batch.incidents.incident_story import incident_story, incident_time
from isr_batch.incidents.own_shrinks import OwnShrinks, own_shrinks
from isr_batch.incidents.sentences import cluster_headline
from isr_batch.ingest.broker_logs import ingest_broker_logs
from isr_batch.lake.lake import Lake
from isr_batch.replay.replay import replay, rule_runs
from isr_batch.scoring.broker_check import validate
from isr_batch.scoring.eligible_leaders import write_eligible_leaders
from isr_batch.scoring.scores import write_scores
from isr_batch.settings import ReplaySettings
from tests.figures_in_answers import check_figures
from tests.figures_on_page import check_explanations, check_page
from tests.recorded_faults import (
    RecordedFault,
    count_answers,
    drops_of_leaders,
    recorded_faults,
)
from tests.said_in_answers import contradictions, said_in, unnamed_drops

GOLDEN: Final = Path(__file__).parents[1] / "golden"
NETWORK: Final = GOLDEN / "network"
Row = dict[str, Any]


@pytest.fixture(scope="session")
def network_lake(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark_session, str(tmp_path_factory.mktemp("network")), "test")
    ingest_broker_logs(lake, NETWORK, "network")
    replay(lake, rule_runs(ReplaySettings(rules=["kafka-3.7", "kip-501-pending"])))
    write_eligible_leaders(lake, "auto")
    write_scores(lake)
    validate(lake)
    return lake


def test_every_drop_points_at_the_broker_at_fault(network_lake: Lake) -> None:
    faults = recorded_faults(NETWORK / "timeline.jsonl")
    assert len(faults) == 9
    own = own_shrinks(network_lake)
    assert count_answers(faults, own.drops.to_pylist()) == {"right": 61}
    # The evidence of server.log alone about the same drops has the same limits.
    by_lines = [
        row | {"change_us": int(row["change_time"].timestamp() * 1e6), "fault_id": row["suspect_broker"]}
        for row in read_evidence_table(network_lake, "network").to_pylist()
    ]
    assert count_answers(faults, by_lines) == {"right": 61}
    said = cluster_headline(own, own.clusters[0])[1]
    for broker, times in ((1, "06:36:45 and 06:39:06"), (2, "06:36:17"), (3, "06:38:34 and 06:40:05")):
        assert f"broker {broker} could not be reached at {times} (" in said
    assert "broker 1 did not get through to broker 3 at 06:38:01 (" in said
    assert "stopped or slow: broker 3 at 06:37:26 (" in said


def faults_of(cluster_id: str) -> list[RecordedFault]:
    timeline = NETWORK / "timeline.jsonl" if cluster_id == "network" else GOLDEN / "faults" / f"{cluster_id}.jsonl"
    return recorded_faults(timeline) if timeline.exists() else []


@pytest.mark.parametrize(
    ("name", "drops"),
    [("sample_lake", {"follower-stop": 58, "leader-stop": 86}), ("network_lake", {"network": 61})],
)
def test_two_sentences_lead_to_broker_and_time_and_nothing_contradicts_them(
    name: str, drops: dict[str, int], request: pytest.FixtureRequest
) -> None:
    lake: Lake = request.getfixturevalue(name)
    own, found = own_shrinks(lake), drops_of_leaders(lake)
    assert {cluster: len(rows) for cluster, rows in found.items()} == drops
    for cluster in own.clusters:
        name = cluster["cluster_id"]
        faults, mine = faults_of(name), found.get(name, [])
        sentences = cluster_headline(own, cluster)
        assert count_answers(faults, mine) == Counter(right=len(mine))
        assert unnamed_drops(sentences[:2], faults, mine) == [], sentences
        stories = [f"{incident_time(one)}: {incident_story(one)}" for one in own.incidents if one["cluster_id"] == name]
        assert contradictions(said_in([*sentences, *stories])) == []
        # Nor do the lines of server.log, which the report lists.
        strong = {
            (row["topic"], row["partition_id"], row["replica_id"], int(row["change_time"].timestamp() * 1e6)): row
            for row in read_evidence_table(lake, name).to_pylist() if row["strength"] == "strong"
        }  # fmt: skip
        for drop in mine:
            row = strong.get((drop["topic"], drop["partition_id"], drop["replica_id"], drop["change_us"]))
            assert row is None or row["suspect_broker"] == drop["fault_id"], row


@pytest.mark.parametrize("name", ["sample_lake", "network_lake"])
def test_figures_of_an_answer_are_in_the_tables(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake: Lake = request.getfixturevalue(name)
    found = check_figures(lake)
    assert found.wrong == []
    assert len(found.kinds) >= 4

    # A number that is one too high is noticed in each sentence that says how many.
    def off_by_one(own: OwnShrinks, cluster: Row) -> list[str]:
        return [
            re.sub(r"\d+", lambda number: str(int(number[0]) + 1), said, count=1)
            for said in cluster_headline(own, cluster)
            if re.match(r"(Of )?\d", said)
        ]

    monkeypatch.setattr("tests.figures_in_answers.cluster_headline", off_by_one)
    own = own_shrinks(lake)
    assert set(check_figures(lake).wrong) >= {said for one in own.clusters for said in off_by_one(own, one)}


def test_figures_of_report_and_explain_are_in_the_tables(sample_lake: Lake, sample_report: Path) -> None:
    """`tests.answers_bench` does the same with recordings."""
    page = sample_report.read_text(encoding="utf-8")
    assert check_page(sample_lake, page) == []
    assert check_explanations(sample_lake, most=2) == []
    # Another lag and an unknown broker are noticed.
    lag = re.search(r"Last caught up ([\d,]+) ms before", page)
    assert lag
    wrong = check_page(sample_lake, page.replace(lag[0], "Last caught up 1 ms before"))
    assert any("lag of broker" in said for said in wrong)
    assert any("Broker 7 " in said for said in check_page(sample_lake, page.replace("Broker 2 ", "Broker 7 ")))
