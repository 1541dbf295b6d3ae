"""The answer in a few lines, the table of the terminal, and the page."""

from datetime import datetime
from pathlib import Path

import pyarrow as pa

from isr_batch.evidence.answer import COLUMNS, answer_table, evidence_answer
from isr_batch.evidence.evidence_table import evidence_rows
from isr_batch.evidence.missing_logs import absent_brokers, metadata_alone, missing_logs, returns_alone
from isr_batch.report.evidence_page import write_evidence_page
from tests.log_lines import SERVER_LOG_ONLY, epoch_ms, evidence_table, found_in, of_brokers, of_folder


def evidence(lines: pa.Table) -> pa.Table:
    return evidence_table(lines, "c")


def test_the_answer_names_both_kinds_and_the_limits() -> None:
    said = evidence_answer(evidence(of_folder(SERVER_LOG_ONLY)))
    assert said[0] == (
        "11 replicas left the ISR in 2 storms, from 2026-11-21 16:30:50.618 to 16:31:08.360 UTC. First to drop out was "
        "broker 1, since about 16:30:45.931 (strong evidence). Most of the shrinks point at broker 2 or the link to it."
    )
    assert said[1].startswith(
        "16:30:50.618, 5 replicas of 4 partitions: this points at broker 1 (strong evidence); not all were seen to "
        "come back. Broker 1 dropped 2 followers of 1 partition at one check; "
    )
    assert said[1].endswith(
        "the sign of a leader that was silent. [broker-1/server.log:4, broker-1/server.log:6, broker-2/server.log:4]"
    )
    assert said[2].startswith(
        "16:31:06.360, 6 replicas of 6 partitions: this points at broker 2 or the link to it (strong evidence); "
        "not all were seen to come back. Only broker 1 dropped broker 2"
    )
    assert said[3:-1] == [
        (
            "According to their leaders, they were 1 to 249 records behind; none had nothing to fetch, "
            "last caught up 4378 to 6378 ms before."
        ),
        (
            "Back in the ISR: 7 after 215 to 3738 ms, 1 after at most 15326 ms, 3 not in the log. "
            "Most often: broker 1 dropped broker 2 at 3 checks."
        ),
        "Only a replica.lag.time.max.ms of more than 6378 ms would have avoided all of these (it was 4000 ms).",
        "Under min ISR: 1 shrink, for 215 ms.",
    ]
    assert "no rule was compared" in said[-1]
    assert "docs/getting-logs.md" in said[-1]


def test_the_answer_has_ten_lines_at_most() -> None:
    shrink = "[Partition t-0 broker={leader}] Shrinking ISR from 1,2,3,4,5 to {after}"
    lines = of_brokers(
        b1=[(at, shrink.format(leader=1, after="1,2,3,4")) for at in range(0, 5000, 200)]
        + [(9000, "Created log for partition t-0 in /d/t-0 with properties {min.insync.replicas=9}"),
           (9001, shrink.format(leader=1, after="1")),
           (9002, "[Partition t-0 broker=1] Cached zkVersion [4] not equal to that in zookeeper, skip updating ISR")],
        b5=[(4799, "Stopping serving logs in dir /d")],
    )  # fmt: skip
    said = evidence_answer(evidence(lines))
    assert len(said) == 10
    assert "1 in the follower's own log just before: its log directory failed" in said[-2]
    assert "right after the topic's creation" in said[-2]
    assert "no rule was compared" in said[-1]


def test_the_answer_to_logs_without_a_shrink() -> None:
    said = evidence_answer(evidence(of_brokers(b1=[(0, "Kafka version: 4.1.0")])))
    assert said[0] == "No leader dropped a replica from an ISR in these logs: there is no Shrinking ISR line."
    assert len(said) == 2
    assert answer_table(evidence(of_brokers())) == []


def test_the_answer_names_the_controllers_removals_and_a_leader_that_did_not_know() -> None:
    started = "[Broker id=1] Leader t-0 starts at leader epoch {} from offset 0 with high watermark 0 ISR [{}]"
    only = evidence_answer(
        evidence(of_brokers(b1=[(n * 100, started.format(n, isr)) for n, isr in enumerate(("1,2", "1", "1,2"))]))
    )
    assert only[0].startswith("No leader dropped a replica")
    assert only[-2].startswith(
        "Also: 1 removed by the controller (broker 2 from 16:01:40.000 on), 1 back after at most 100000 ms"
    )
    shrink = "[Partition t-0 broker=1] Shrinking ISR from 1,2 to 1"
    failed = "[Partition t-0 broker=1] Cached zkVersion [4] not equal to that in zookeeper, skip updating ISR"
    zombie = evidence_answer(evidence(of_brokers(b1=[(at, text) for n in range(3) for at, text in (
        (n * 5, shrink), (n * 5 + 0.5, failed)
    )])))  # fmt: skip
    assert zombie[0].startswith("1 replica left the ISR in 1 storm")
    assert "3 not written (broker 1 kept trying for 10500 ms: it did not know that it no longer led)" in zombie[-2]


def test_a_replica_that_did_not_lag_was_removed_on_purpose() -> None:
    """Its leader printed a lag below its own lag time: no lag rule does that."""
    shrink = (
        "[Partition t-{} broker=1] Shrinking ISR from 1,2,3 to 1,2. Leader: (highWatermark: 9, endOffset: 9). "
        f"Out of sync replicas: (brokerId: 3, endOffset: {{}}, lastCaughtUpTimeMs: {epoch_ms(99.8)})."
    )
    lines = of_brokers(b1=[(100, shrink.format(0, 9)), (100.1, shrink.format(1, 8))])
    found = found_in(lines)
    found.settings[1, "replica.lag.time.max.ms"] = 10_000
    said = evidence_answer(evidence_rows(found, "c"))
    assert said[0] == (
        "2 replicas of broker 3 left the ISR at 2026-11-21 16:01:40.000 to 16:01:40.100 UTC, 200 to 300 ms after they "
        "were last caught up: that is below replica.lag.time.max.ms (10000), so no lag rule explains it. It was "
        "removed on purpose (an observer, a patched release), or its two timestamps are from different clocks. "
        "1 of them had nothing to fetch."
    )
    assert not any("silent" in line or "Only a replica.lag.time.max.ms" in line for line in said)
    rows = evidence_rows(found, "c").to_pylist()
    assert [(row["suspect"], row["spurious"]) for row in rows] == [(None, "strong"), (None, "none")]


def test_made_by_is_unknown_outside_the_time_of_server_log() -> None:
    """It is the current file after a roll, and state-change.log is whole."""
    stayed = (
        "[Broker id=1] Skipped the become-leader state change for t-0 with topic id Some(x) and partition state "
        "LeaderAndIsrPartitionState(topicName='t', partitionIndex=0, leader=1, leaderEpoch=0, isr=[{}], "
        "partitionEpoch={}, replicas=[1, 2]) since it is already the leader"
    )
    found = found_in(of_brokers(b1=[(10, stayed.format("1, 2", 1)), (50, stayed.format("1", 2))]))
    assert [row["made_by"] for row in evidence_rows(found, "c").to_pylist()] == ["controller"]
    begin = found.span_us[1][0]
    for server_us, made_by in (
        ({1: (begin, begin + 90_000_000)}, "controller"),
        ({1: (begin + 1, begin + 90_000_000)}, "unknown"),
        ({}, "unknown"),
    ):
        found.server_us = server_us
        rows = evidence_rows(found, "c")
        assert [row["made_by"] for row in rows.to_pylist()] == [made_by]
    said = evidence_answer(rows, missing=["server.log of broker 1 is missing."])
    assert said[:2] == [
        "server.log of broker 1 is missing.",
        (
            "1 replica left an ISR from 16:00:50.000 to 16:00:50.000, a time for which the leader's "
            "server.log or its Shrinking ISR lines are missing or not understood: "
            "either the leader or the controller removed them."
        ),
    ]


def test_a_metadata_log_alone_gives_who_left_and_by_whom() -> None:
    def left(kind: str, made_by: str, second: int) -> dict[str, object]:
        return {"kind": kind, "made_by": made_by, "change_time": datetime(2026, 1, 1, 0, 0, second)}  # noqa: DTZ001

    changes = [left("shrink", "leader", 5), left("expand", "leader", 9), left("shrink", "controller", 3)]
    (said,) = metadata_alone(changes)
    assert said.startswith(
        "2 replicas left the ISR from 2026-01-01 00:00:03.000 to 00:00:05.000 UTC: 1 dropped by their"
    )
    assert metadata_alone(changes[1:2])[0].startswith("No replica left an ISR.")
    assert returns_alone(changes)[0].startswith("1 replica came back into an ISR from 2026-01-01 00:00:09.000 to")
    assert not returns_alone(changes[:1])


def test_missing_logs_are_named() -> None:
    def covered(broker: int, log: str, second: int) -> dict[str, object]:
        return {"broker_id": broker, "log": log, "from_time": datetime(2026, 1, 1, 0, 0, second)}  # noqa: DTZ001

    both = [covered(1, "server", 0), covered(1, "state-change", 0)]
    assert missing_logs(both, {1}, {1}) == []
    late = [
        covered(2, "server", 9),
        covered(2, "state-change", 0),
        covered(3, "server", 9),
        covered(3, "state-change", 2),
    ]
    assert missing_logs([*both, *late], {1, 2, 3, 4, 5}, {1, 2, 3, 5}) == [
        "server.log of broker 4 is missing, and only it shows which replicas the leader dropped.",
        (
            "server.log of broker 5 only has lines at WARN and ERROR, but leaders log "
            "which replicas they drop at INFO: "
            "set the logger kafka.cluster.Partition to INFO."
        ),
        (
            "server.log begins at 00:00:09 (brokers 2 and 3), after state-change.log: earlier drops by leaders are "
            "not known."
        ),
    ]


def test_brokers_of_an_isr_without_logs_are_named() -> None:
    assert absent_brokers({1, 2, 3}, {1, 2}) == [
        (
            "No logs of broker 3 are here: only others show what happened to it and to its links; drops by a leader "
            "without logs are missing or not judged."
        )
    ]
    (two,) = absent_brokers({1, 2, 3}, {1})
    assert two.startswith("No logs of brokers 2 and 3 are here: only others show what happened to them and to their")
    assert absent_brokers({1, 2, 3}, {1, 2, 3}) == []
    assert absent_brokers({1, 2, 3}, set()) == []  # a metadata log alone


def test_the_last_line_knows_of_a_request_log() -> None:
    assert "replay's tables" in evidence_answer(evidence(of_folder(SERVER_LOG_ONLY)), request_log=True)[-1]


def test_rows_for_the_terminal() -> None:
    rows = answer_table(evidence(of_folder(SERVER_LOG_ONLY)), most=5)
    assert len(rows) == 5
    assert [row["back_after_ms"] for row in rows] == ["462", "not in the log", "not in the log", "215", "at most 15326"]
    assert [rows[3][name] for name in COLUMNS] == [
        "2026-11-21 16:30:51.034 UTC", "busy-0", 1, 2, 5103, 1, "215", 2, "leader", "strong"
    ]  # fmt: skip


def test_the_page_has_the_same_answer(tmp_path: Path) -> None:
    rows = evidence(of_folder(SERVER_LOG_ONLY))
    clusters = {"<one>": rows, "empty": rows.slice(0, 0)}
    answers = {name: evidence_answer(each) for name, each in clusters.items()}
    write_evidence_page(clusters, tmp_path / "report.html", answers)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "&lt;one&gt;" in page
    assert "the sign of a leader that was silent" in page
    assert "at most 15326" in page
    assert page.count("no rule was compared") == 2
    assert page.count("<h3>Questions</h3>") == 1
    assert "only request logs name the clients of produce requests" in page
    assert '"#shrinks0"' in page or 'id="shrinks0"' in page
