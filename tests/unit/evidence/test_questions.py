"""The questions about shrinks, in logs with and without the answers."""

import pyarrow as pa

from isr_batch.evidence.questions import NOT_IN_LOGS, AnsweredQuestion, RequestsForQuestions, answer_questions
from tests.log_lines import SERVER_LOG_ONLY, evidence_table, of_brokers, of_folder

SHRINK = "[Partition t-0 broker=1] Shrinking ISR from 1,2 to 1"


def asked(lines: pa.Table) -> dict[str, AnsweredQuestion]:
    return {one.question: one for one in answer_questions(evidence_table(lines, "c"))}


def test_recorded_logs_of_release_4_1() -> None:
    found = asked(of_folder(SERVER_LOG_ONLY))
    assert {one.question for one in found.values() if not one.known} == {
        "Which client wrote when it happened?", "Why could the follower not fetch?",
        "Right after an election, a restart or a topic's creation?",
    }  # fmt: skip
    assert found["Leader, follower, or the link?"].answer == (
        "link or follower 2: 6 replicas, strong evidence; follower 1: 3 replicas, strong evidence; "
        "leader 1: 2 replicas, strong evidence"
    )
    first = found["Which broker dropped out first, and when?"]
    assert (first.answer, first.how_sure) == ("Broker 1, 16:30:45.931 UTC", "strong evidence")
    lag_time = found["Which lag time would have avoided it?"]
    assert "more than 6378 ms" in lag_time.answer
    assert (lag_time.how_sure, lag_time.lines[0]) == ("bound", "broker-1/server.log:16")
    assert found["How long under min ISR?"].answer == (
        "Under min ISR: 1 shrink, for 215 ms. For 3 replicas, min.insync.replicas is unknown."
    )


def test_a_line_without_offsets_or_times_shows_only_the_replica() -> None:
    found = asked(of_brokers(b1=[(0, SHRINK)]))
    known = [one.question for one in found.values() if one.known]
    assert known == ["Leader, follower, or the link?", "Which broker dropped out first, and when?"]
    assert all(one.answer.startswith(NOT_IN_LOGS) and not one.lines for one in found.values() if not one.known)


def test_trouble_of_the_follower_and_a_new_topic() -> None:
    found = asked(of_brokers(
        b1=[(0, "Created log for partition t-0 in /d/t-0 with properties {min.insync.replicas=2}"), (9, SHRINK)],
        b2=[(5, "Stopping serving logs in dir /d")],
    ))  # fmt: skip
    trouble = found["Why could the follower not fetch?"]
    assert trouble.answer == "Its log directory failed (1 replica)"
    assert (trouble.how_sure, len(trouble.lines)) == ("weak evidence", 1)
    event = found["Right after an election, a restart or a topic's creation?"]
    assert (event.answer, event.how_sure) == ("1 replica left 9000 ms after the topic's creation", "printed")
    assert found["How long under min ISR?"].answer == "Under min ISR: 1 shrink; the log does not show for how long."


def test_no_shrink_no_question() -> None:
    assert not asked(of_brokers(b1=[(0, "Kafka version: 4.1.0")]))


def test_request_logs_add_verdicts_clients_and_the_lag_time_that_is_enough() -> None:
    client = {"client_id": "loader", "topic": "t", "appends": 3, "records": 7, "drops": 1,
              "first": {"source_file": "b1/request.log", "source_line": 4}}  # fmt: skip
    verdict = {"known_by": "both", "verdict": "genuine", "primary_cause": "follower_slow", "true_lag_ms": 5000,
               "avoiding_lag_time_ms": 9000}  # fmt: skip
    spurious = verdict | {"verdict": "spurious", "primary_cause": "caught_up", "true_lag_ms": 0}
    requests = RequestsForQuestions(
        [verdict, spurious | {"avoiding_lag_time_ms": 6000}, verdict | {"avoiding_lag_time_ms": None}],
        [client, client | {"client_id": None, "records": 2}],
    )
    lines = evidence_table(of_brokers(b1=[(0, SHRINK)]), "c")
    found = {one.question: one for one in answer_questions(lines, requests)}
    assert found["Leader, follower, or the link?"].answer.endswith(
        "By the replay: 2 genuine (follower_slow), 1 spurious (caught_up)"
    )
    behind = found["Were they really behind, and by how much?"]
    assert behind.answer.startswith("By their own fetches they lagged 0 to 5000 ms; 1 of 3 had all the records.")
    lag_time = found["Which lag time would have avoided it?"]
    assert lag_time.answer.startswith(
        "By the replay, 9000 ms is enough for all 2 shrinks whose follower caught up, and 6000 ms for half of them; "
        "of 1 the log or the term ends before it did."
    )
    assert behind.how_sure == lag_time.how_sure == "replayed"
    wrote = found["Which client wrote when it happened?"]
    assert wrote.answer == "Most: loader to t (7 records, before 1 shrink); 2 records without a logged request"
    assert (wrote.how_sure, wrote.lines) == ("printed", ["b1/request.log:4"])


def test_appends_without_a_logged_request_name_no_client() -> None:
    nobody = {"client_id": None, "topic": "t", "appends": 3, "records": 7, "drops": 1, "first": None}
    verdict = {"verdict": "genuine", "primary_cause": "follower_slow", "true_lag_ms": 1, "avoiding_lag_time_ms": None}
    lines = evidence_table(of_brokers(b1=[(0, SHRINK)]), "c")
    for verdicts, reason in (([], "only request logs"), ([verdict], "could be tied to a logged produce request")):
        found = {one.question: one for one in answer_questions(lines, RequestsForQuestions(verdicts, [nobody]))}
        wrote = found["Which client wrote when it happened?"]
        assert not wrote.known
        assert reason in wrote.answer


def state(epoch: int, isr: str) -> str:
    return f"[Broker id=1] Leader t-0 starts at leader epoch {epoch} from offset 0 with high watermark 0, ISR [{isr}]"


def test_a_rolling_restart_asks_nothing_about_lag() -> None:
    lines = of_brokers(
        b1=[(0, state(1, "1,2,3")), (10, state(2, "1,3")), (14, state(3, "1,2,3")), (20, state(4, "1,2"))]
    )
    found = asked(lines)
    assert len(found) == 5
    assert found["Leader, follower, or the link?"].answer.endswith("broker 2: 1 replica, broker 3: 1 replica")
    assert found["Which broker dropped out first, and when?"].answer == "Broker 2, 16:00:10.000 UTC"
    whole = found["How long until the ISR was whole again?"]
    assert whole.answer == (
        "Removed by the controller, and back: broker 2 after at most 4000 ms. "
        "At the end 1 partition had not been seen whole again."
    )
    assert found["How long under min ISR?"].how_sure == "unknown"
