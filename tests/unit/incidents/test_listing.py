"""Incidents chosen and listed; all numbers by hand."""

import pytest

from isr_batch.errors import NoInputError
from isr_batch.incidents.listing import chosen_incidents, listed_incidents, nearest_drop_us
from isr_batch.incidents.sentences import incidents_answer
from isr_batch.phrases import from_asked_time
from isr_batch.window import AskedTime, parse_asked_time
from tests.own_shrinks_log import Log, at, leader_was_silent


@pytest.fixture
def log() -> Log:
    return Log()


def test_incidents_are_chosen_by_broker_and_time(log: Log) -> None:
    leader_was_silent(log)
    log.shrink(50, 1, 3, "genuine", "follower_stopped")
    log.shrink(80, 2, 3, "genuine", "follower_stopped")
    own = log.found()
    assert [(one["fault_id"], one["incident"]) for one in chosen_incidents(own)] == [(1, 1), (3, 1), (3, 2)]
    assert [(one["fault_id"], one["incident"]) for one in chosen_incidents(own, broker=3)] == [(1, 1), (3, 1), (3, 2)]
    assert [(one["fault_id"], one["incident"]) for one in chosen_incidents(own, broker=2)] == [(1, 1), (3, 2)]
    with pytest.raises(NoInputError, match="no broker 4") as refused:
        chosen_incidents(own, broker=4)
    assert refused.value.hint == "the brokers are 1, 2 and 3"
    for seconds, first_s in ((0, 14.5), (49, 50), (70, 80), (99, 80)):
        (one,) = chosen_incidents(own, at=AskedTime(int(at(seconds).timestamp() * 1e6)))
        assert one["first_us"] == int(at(first_s).timestamp() * 1e6)
    assert listed_incidents(own, [], "LAKE") == ["No follower was dropped, or no drop involves this broker."]


def test_incidents_of_others_come_last_and_in_brief(log: Log) -> None:
    leader_was_silent(log)
    log.shrink(50, 1, 3, "genuine", "follower_stopped")
    own = log.found()
    lines = listed_incidents(own, chosen_incidents(own, broker=3), "LAKE", whole=True, broker=3)
    others = lines.index("Others in which broker 3 dropped followers, or was dropped:")
    assert lines[0] == "2026-01-01 00:00:45 to 00:00:50: broker 3"
    assert lines[others + 1].startswith("2026-01-01 00:00:10 to 00:00:16: Broker 1 was silent for 6 s; broker 2")
    lines = listed_incidents(own, chosen_incidents(own, broker=2), "LAKE", whole=True, broker=2)
    assert lines[0] == "Others in which broker 2 dropped followers, or was dropped:"


def test_the_worst_come_first(log: Log) -> None:
    log.shrink(5, 1, 3, "genuine", "follower_stopped")
    leader_was_silent(log)
    own = log.found()
    lines = listed_incidents(own, chosen_incidents(own), "LAKE")
    times = [line[:19] for line in lines if line.startswith("2026")]
    assert times == ["2026-01-01 00:00:10", "2026-01-01 00:00:00"]


def test_how_far_the_nearest_drop_is(log: Log) -> None:
    leader_was_silent(log)
    log.shrink(80, 2, 3, "genuine", "follower_stopped")
    own = log.found()
    for asked, seconds in (("00:02:00", -40), ("00:00:12", 2.5), ("23:59:59", 15.5), ("2026-01-01T00:01:20", 0)):
        time = parse_asked_time("--at", asked)
        assert nearest_drop_us(own, chosen_incidents(own, at=time), time) == seconds * 1e6
    assert from_asked_time(-40_000_000, "drop") == ["The nearest drop came 40 s before that time."]
    assert from_asked_time(9_045_000_000, "drop") == ["The nearest drop came 2 h 30 min after that time."]
    assert from_asked_time(999_999, "drop") == []


def test_a_list_has_the_command_for_each_incident_and_the_worst_partitions(log: Log) -> None:
    leader_was_silent(log)
    log.shrink(50, 1, 3, None, partition=2)
    own = log.found()
    lines = listed_incidents(own, chosen_incidents(own), "/my lake")
    assert lines[0].startswith("2026-01-01 00:00:10 to 00:00:16: Broker 1 was silent for 6 s")
    shrink = f"--topic t --partition 0 --at {int(at(16).timestamp() * 1000)} --rule kafka-3.7"
    assert lines[1] == f"  isr-batch explain {shrink} --lake '/my lake'"
    # A drop that cannot be judged has no counterpart in the replay to explain.
    assert lines[2] == "2026-01-01 00:00:50: 1 follower left an ISR; the logs do not say why."
    partitions = lines[lines.index("Partitions with most healthy followers dropped:") :]
    assert partitions[1::2] == ["t-0: 2 of 3 drops spurious", "t-1: 2 of 2 drops spurious"]


def test_an_answer_has_at_most_ten_lines(log: Log) -> None:
    for number in range(12):
        log.shrink(10 + 5 * number, 1 + number % 2, 3, "genuine", "follower_stopped", lag_ms=10)
    lines = incidents_answer(log.found())
    assert len(lines) == 10
    assert lines[0].startswith("c, 2026-01-01 00:00:00 to 2026-01-01 00:01:40 UTC: Of 12 followers that your brokers")
    assert lines[-1] == "  4 more incidents: isr-batch explain --lake LAKE"
    for number in range(11):
        log.rows["leader_epochs"].append(log.rows["leader_epochs"][0] | {"cluster_id": f"d{number:02}"})
    lines = incidents_answer(log.found())
    assert len(lines) == 10
    assert lines[0].startswith("c, ")
    assert lines[-1] == "The report has 3 more clusters."
    assert "none was healthy. 12 were really stopped or behind: broker 3" in lines[0]
    assert "The replay agrees" not in lines[0]
