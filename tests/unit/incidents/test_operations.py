"""Changes on purpose, and causes other than the network: reassignments, settings, pauses of JVMs."""

from isr_batch.incidents.incident_lines import incident_lines
from isr_batch.incidents.incident_story import incident_story
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
        "  it was its JVM, paused for 5.9 s (Pause Full (G1 Compaction Pause), ends at 00:00:15)",
        "    broker-1/gc.log:12",
        "  its ZooKeeper session expired at 00:00:17",
        "    broker-1/server.log:99",
        "  broker 2 dropped it from 1 ISR",
    ]
    queries = [line for line in lines if "FROM broker_troubles" in line]
    assert [rows_of(own, query) for query in queries] == [1, 1]


def test_without_a_pause_the_jvm_is_cleared_where_its_log_covers_the_silence() -> None:
    log = Log()
    leader_was_silent(log)
    assert "JVM" not in incident_story(log.found().incidents[0])
    log.add("coverage", cluster_id="c", broker_id=1, log="gc", from_time=at(0), until_time=at(100))
    assert "it was no pause of its JVM (gc.log has none of 10 ms then)" in incident_story(log.found().incidents[0])
