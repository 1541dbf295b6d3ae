"""Changes on purpose, causes other than the network (reassignments, pauses of JVMs), and what is not known."""

import pytest

from isr_batch.incidents.incident_card import what_to_check
from isr_batch.incidents.incident_lines import incident_lines
from isr_batch.incidents.incident_story import incident_story, incident_time
from isr_batch.incidents.sentences import cluster_headline
from tests.own_shrinks_log import KEY, Log, at, leader_was_silent
from tests.unit.incidents.test_incident_lines import rows_of


def removed(log: Log, seconds: float, partition: int, assigned: list[int]) -> None:
    """The controller takes broker 3 out of a partition of broker 1, whose term then has these replicas."""
    key = KEY | {"partition_id": partition, "leader_id": 1, "leader_epoch": 5}
    log.add("observed_isr_changes", **key, replica_id=3, change_time=at(seconds), kind="shrink", made_by="controller",
            last_caught_up_time_ms=None, source_file=None, source_line=None)  # fmt: skip
    log.add("leader_epochs", **key, start_time=at(seconds), end_time=at(100), assigned=assigned,
            replica_lag_time_max_ms=4000, begins_mid_term=False)  # fmt: skip


def test_a_replica_that_is_no_longer_assigned_was_reassigned() -> None:
    log = Log()
    removed(log, 20, 4, [1, 2])
    removed(log, 20.1, 5, [1, 2, 3])
    removed(log, 60, 6, [1, 2])
    # Without the metadata log, replicas of a term may be those that were seen in it: broker 3 may be gone for good.
    assert not any(row["reassigned"] for row in log.found().drops.to_pylist())
    log.add("leader_epochs", **KEY | {"partition_id": 7, "leader_id": 3}, start_time=at(0), end_time=at(100),
            assigned=[3, 1], replica_lag_time_max_ms=4000, begins_mid_term=False)  # fmt: skip
    assert sum(row["reassigned"] for row in log.found().drops.to_pylist()) == 2
    log.rows["leader_epochs"].pop()
    log.add("controller_records", cluster_id="c", kind="partition")
    own = log.found()
    first, second = (incident_story(one) for one in own.incidents)
    assert first == "Broker 3 was removed from 1 ISR by a reassignment and was removed from 1 ISR by the controller."
    assert second == "Broker 3 was removed from 1 ISR by a reassignment."
    assert cluster_headline(own, own.clusters[0])[1] == (
        "3 were removed by the controller: broker 3 at 00:00:20 (2, 1 of them reassigned), at 00:01:00 (1, reassigned)."
    )


def test_changes_of_min_insync_replicas_are_said_and_first_settings_are_not() -> None:
    log = Log()
    for seconds, topic, value in ((1, "t", 1), (1, "u", 2), (20, "t", 2), (21, "u", 2), (30, "t", 1)):
        log.add("controller_records", cluster_id="c", kind="min_isr", topic=topic, value=value, record_time=at(seconds))
    own = log.found()
    said = "min.insync.replicas was changed: t to 2 at 00:00:20; t to 1 at 00:00:30."
    assert said in cluster_headline(own, own.clusters[0])
    log.rows["controller_records"] = log.rows["controller_records"][:2]
    own = log.found()
    assert not any("min.insync.replicas" in each for each in cluster_headline(own, own.clusters[0]))


def test_a_silence_that_was_a_pause_of_the_jvm_is_said_to_be_one_with_its_line() -> None:
    log = Log()
    leader_was_silent(log)
    log.add("broker_troubles", cluster_id="c", broker_id=1, kind="pause", what="Pause Full (G1 Compaction Pause)",
            from_time=at(10), until_time=at(15.9), source_file="broker-1/gc.log", source_line=12)  # fmt: skip
    log.add("broker_troubles", cluster_id="c", broker_id=1, kind="session_expired", what="Session expired",
            from_time=at(17), until_time=at(17), source_file="broker-1/server.log", source_line=99)  # fmt: skip
    own = log.found()
    (incident,) = own.incidents
    lines = incident_lines(own, incident)
    assert lines[1] == "  was silent for 6 s"
    assert [line for line in lines[3:] if "SELECT" not in line][:5] == [
        "  the JVM of broker 1 was the cause, paused for 5.9 s (Pause Full (G1 Compaction Pause), ends at 00:00:15)",
        "    broker-1/gc.log:12",
        "  the ZooKeeper session of broker 1 expired at 00:00:17",
        "    broker-1/server.log:99",
        "  broker 2 dropped broker 1 from 1 ISR",
    ]
    queries = [line for line in lines if "FROM broker_troubles" in line]
    assert [rows_of(own, query) for query in queries] == [1, 1]


def test_without_a_pause_the_jvm_is_cleared_where_its_log_covers_the_silence() -> None:
    log = Log()
    leader_was_silent(log)
    assert "JVM" not in incident_story(log.found().incidents[0])
    log.add("coverage", cluster_id="c", broker_id=1, log="gc", from_time=at(0), until_time=at(100))
    assert "the JVM of broker 1 was not the cause (gc.log has no pause of 10 ms then)" in incident_story(
        log.found().incidents[0]
    )


def test_no_broker_is_at_fault_where_the_lines_that_decide_are_missing() -> None:
    log = Log()
    log.shrink(10, 1, 3, "genuine", "follower_stopped")
    log.add("shrink_evidence", cluster_id="c", topic="t", partition_id=0, leader_id=1, replica_id=3, change_time=at(10),
            suspect="unknown", strength="none", spurious="none")  # fmt: skip
    own = log.found()
    assert own.drops["fault_id"].to_pylist() == [None]
    (incident,) = own.incidents
    assert (
        incident_story(incident) == "1 follower left an ISR (broker 3); the logs do not show which broker was at fault."
    )
    assert what_to_check(incident).startswith("The missing server.log of other brokers, 00:00:05 to 00:00:10")
    assert cluster_headline(own, own.clusters[0])[1:3] == [
        "1 was really behind.",
        "Of 1 of these drops the broker at fault is not known: server.log of brokers 2 and 3 is missing.",
    ]


@pytest.mark.parametrize("cause", ["slow_leader", "caught_up"])
def test_a_follower_that_was_silent_itself_is_not_healthy_where_a_silent_leader_drops_it(cause: str) -> None:
    """Broker 1 stands still from 10 to 20 s, broker 3 until 22 s and broker 2 until 17 s; the lag time is 4 s.

    Broker 4 has not fetched from broker 2 until 22 s.
    """
    log = Log()
    for broker, until in ((1, 20), (2, 17), (3, 22)):
        log.add("broker_events", cluster_id="c", broker_id=broker, kind="silent", event_time=at(10), end_time=at(until))
    for follower in (2, 3):
        log.shrink(20, 1, follower, "spurious", cause, lag_ms=10_000)
    log.shrink(16, 2, 4, "genuine", "follower_stopped", lag_ms=6000, back_s=6)
    log.shrink(20, 1, 4, "spurious", cause, lag_ms=10_000)
    own = log.found()
    drops = {row["replica_id"]: row for row in own.drops.to_pylist()}
    names = ("verdict", "cause", "fault_id")
    assert [[drops[broker][name] for name in names] for broker in (2, 3, 4)] == [
        ["spurious", cause, 1], ["genuine", "follower_stopped", 3], ["genuine", "follower_stopped", 4]
    ]  # fmt: skip
    (silent,) = (one for one in own.incidents if one["fault_id"] == 1)
    assert incident_story(silent) == "Broker 1 was silent for 10 s; it dropped 1 healthy follower (broker 2)."


def test_a_removal_is_dated_by_when_the_silence_began_and_one_seen_late_has_a_bound() -> None:
    log = Log()
    removed = KEY | {"leader_id": 2, "leader_epoch": 2, "replica_id": 1, "kind": "shrink", "made_by": "controller"}
    log.add("coverage", cluster_id="c", broker_id=2, log="server", from_time=at(0), until_time=at(100))
    log.add("broker_events", cluster_id="c", broker_id=1, kind="silent", event_time=at(10), end_time=at(25))
    log.add("observed_isr_changes", **removed, change_time=at(19))
    late = removed | {"replica_id": 3, "earliest_time": at(5)}
    log.add("observed_isr_changes", **late, change_time=at(70))
    own = log.found()
    assert [incident_time(one) for one in own.incidents] == [
        "2026-01-01 00:00:10 to 00:00:19", "by 2026-01-01 00:01:10"
    ]  # fmt: skip
    assert "2 were removed by the controller: broker 1 at 00:00:19 (1); broker 3 by 00:01:10 (1)." in cluster_headline(
        own, own.clusters[0]
    )
