"""Lines of server.log and state-change.log: one per form, as printed, and lines with impossible numbers."""

import pyarrow.compute as pc
import pytest

from isr_batch.broker_lines import server_log, server_log_zookeeper
from isr_batch.broker_lines.forms import (
    FOLLOWER,
    ISR_UPDATED,
    LEADER,
    START_OFFSET,
    STILL_LEADER,
    TOPIC_ID,
)
from isr_batch.broker_lines.log_sql import rows_of
from isr_batch.broker_lines.unread import unreadable_lines
from isr_batch.ingest.folder.settings_files import Broker, ClusterSettings
from isr_batch.ingest.terms.broker_settings import broker_settings
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import SECOND, lines

OLD_IDENT, IDENT = "Partition [t-x,1] on broker 1: ", "[Partition t-x-1 broker=1] "
LEADER_2_2 = ". Leader: (highWatermark: 3, endOffset: 9). Out of sync replicas: "
SHRINKS = {
    "0.10.1": OLD_IDENT + "Shrinking ISR for partition [t-x,1] from 1,2,3 to 1,2",
    "0.11": OLD_IDENT + "Shrinking ISR from 1,2,3 to 1,2",
    "1.0": IDENT + "Shrinking ISR from 1,2,3 to 1,2",
    "2.2": IDENT + "Shrinking ISR from 1,2,3 to 1,2" + LEADER_2_2 + "(brokerId: 3, endOffset: 5).",
    "3.6": IDENT + "Shrinking ISR from 1,2,3 to 1,2" + LEADER_2_2
    + "(brokerId: 3, endOffset: 5, lastCaughtUpTimeMs: 77).",
    "3.0, of a replica without state": IDENT + "Shrinking ISR from 1,2,3 to 1,2" + LEADER_2_2
    + "(brokerId: 3, endOffset: unknown, lastCaughtUpTimeMs: unknown).",
    "3.6, cut behind the last parenthesis": IDENT + "Shrinking ISR from 1,2,3 to 1,2" + LEADER_2_2
    + "(brokerId: 3, endOffset: 5, lastCaughtUpTimeMs: 77)",
}  # fmt: skip


def test_shrinking_lines_of_every_release(sql: ArrowSql) -> None:
    server = lines(*SHRINKS.values())
    rows = server_log.shrink_lines(sql, server).sort_by("stamp_us").to_pylist()
    assert [(r["topic"], r["partition_id"], r["isr_before"], r["isr_after"]) for r in rows] == [
        ("t-x", 1, [1, 2, 3], [1, 2])
    ] * len(SHRINKS)
    assert [(r["high_watermark"], r["leader_log_end_offset"]) for r in rows] == [(None, None)] * 3 + [(3, 9)] * 4
    dropped = [tuple(d.values()) for r in rows for d in r["dropped"]]
    assert dropped == [(3, None, None)] * 3 + [(3, 5, None), (3, 5, 77), (3, None, None), (3, 5, 77)]
    assert unreadable_lines(sql, server, lines()).num_rows == 0


@pytest.mark.parametrize(
    "odd",
    [
        SHRINKS["2.2"].replace("endOffset: 9", f"endOffset: {10**30}"),
        SHRINKS["2.2"].replace("brokerId: 3", "brokerId: 2147483648"),
        SHRINKS["1.0"].replace("1,2,3", "1,99999999999"),
        SHRINKS["1.0"].replace("t-x-1", "t-x-99999999999"),
        SHRINKS["1.0"] + ". Leader: gone",
        IDENT + "Shrinking ISR in a new way",
    ],
)
def test_a_shrinking_line_of_an_unknown_form_is_unreadable(sql: ArrowSql, odd: str) -> None:
    server = lines(SHRINKS["1.0"], odd)
    assert server_log.shrink_lines(sql, server).num_rows == 1
    (row,) = unreadable_lines(sql, server, lines()).to_pylist()
    assert (row["source_line"], row["reason"]) == (2, "Shrinking ISR line of an unknown form")
    assert odd in row["raw"]


LEADS = (
    "[Broker id=1] Leader t-x-1 with topic id Some(QOGIGkfUTjeQvN1wX98d01) starts at leader epoch 4 from offset 9 with "
    "partition epoch 6, high watermark 8, ISR [1,2], adding replicas [] and removing replicas [] . Previous leader "
    "Some(2) and previous leader epoch was 3."
)
FOLLOWS = "[Broker id=1] Follower t-x-1 starts at leader epoch 5 from offset 9"


def test_terms(sql: ArrowSql) -> None:
    told = lines(LEADS, LEADS.replace("Some(2)", "None"), LEADS.split(" . Previous", maxsplit=1)[0], FOLLOWS)
    names = ("topic", "partition_id", "leader_epoch", "start_offset", "partition_epoch", "start_high_watermark", "isr",
             "previous_leader_id", "tells_previous")  # fmt: skip
    rows = rows_of(sql, told, LEADER).sort_by("stamp_us").to_pylist()
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("t-x", 1, 4, 9, 6, 8, [1, 2], 2, True),
        ("t-x", 1, 4, 9, 6, 8, [1, 2], None, True),
        ("t-x", 1, 4, 9, 6, 8, [1, 2], None, False),
    ]
    (row,) = rows_of(sql, told, FOLLOWER).to_pylist()
    assert (row["topic"], row["partition_id"], row["leader_epoch"], row["stamp_us"]) == ("t-x", 1, 5, 3 * SECOND)
    assert set(rows_of(sql, told, TOPIC_ID)["topic_id"].to_pylist()) == {"QOGIGkfUTjeQvN1wX98d01"}


@pytest.mark.parametrize(
    "odd",
    [
        LEADS.replace("leader epoch 4", "leader epoch 99999999999"),
        LEADS.replace("from offset 9", f"from offset {10**19}"),
        LEADS.replace("t-x-1 ", "t-x-9999999999 "),
        FOLLOWS.replace("leader epoch 5", "leader epoch 2100000000"),
        "[Broker id=1] Skipped the become-leader state change for t-x-1 with State(leader=1, partitionEpoch=5)",
    ],
)
def test_a_term_with_an_impossible_number_is_unreadable(sql: ArrowSql, odd: str) -> None:
    told = lines(odd)
    assert rows_of(sql, told, LEADER).num_rows == rows_of(sql, told, FOLLOWER).num_rows == 0
    (row,) = unreadable_lines(sql, lines(), told).to_pylist()
    assert row["reason"] == "leader or follower line of an unknown form"


def test_the_largest_numbers_that_kafka_may_print_are_read(sql: ArrowSql) -> None:
    told = lines(LEADS.replace("leader epoch 4", "leader epoch 2099999999").replace("offset 9", f"offset {10**18 - 1}"))
    (row,) = rows_of(sql, told, LEADER).to_pylist()
    assert (row["leader_epoch"], row["start_offset"]) == (2_099_999_999, 10**18 - 1)


def test_isr_updates_and_how_long_they_took(sql: ArrowSql) -> None:
    updated = IDENT + "ISR updated to {} and version updated to {}"
    told = lines(
        SHRINKS["1.0"], updated.format("1,2 (under-min-isr)", 5), updated.format("[1,2,3]", "[7]"),
        updated.format("1,2", 10**11), SHRINKS["1.0"], updated.format("2,1", 9),
    )  # fmt: skip
    shrinks = server_log.shrink_lines(sql, told)
    rows = rows_of(sql, told, ISR_UPDATED).sort_by("stamp_us").to_pylist()
    assert [(row["isr"], row["partition_epoch"]) for row in rows] == [([1, 2], 5), ([1, 2, 3], 7), ([2, 1], 9)]
    updates, led = rows_of(sql, told, ISR_UPDATED), rows_of(sql, told, LEADER)
    assert server_log.isr_write_times(sql, shrinks, updates, led).to_pylist() == [
        {"broker_id": 1, "isr_write_ms": 1000}
    ]
    # Where a shrink begins a new term, the line of this term has the ISR, and none says "ISR updated".
    since = updates.slice(0, 0)
    begun = shrinks.select(["broker_id", "topic", "partition_id", "stamp_us", "isr_after"])
    begun = begun.rename_columns({"isr_after": "isr"}).slice(0, 1)
    later = begun.set_column(3, "stamp_us", pc.add(begun["stamp_us"], 70_000))
    assert server_log.isr_write_times(sql, shrinks, since, later).to_pylist() == [{"broker_id": 1, "isr_write_ms": 70}]


def test_a_leader_that_stays(sql: ArrowSql) -> None:
    before = (
        "[Broker id=1] Skipped the become-leader state change for t-x-1 with topic id Some(QOGIGkfUTjeQvN1wX98d01) and "
        "partition state LeaderAndIsrPartitionState(topicName='t-x', partitionIndex=1, controllerEpoch=-1, leader=1, "
        "leaderEpoch=4, isr=[1, 2], partitionEpoch=6, replicas=[1, 2, 3], addingReplicas=[]) since it is the leader"
    )
    now = (
        "[Broker id=1] Skipped the become-leader state change for t-x-1 with topic id Some(QOGIGkfUTjeQvN1wX98d01) and "
        "partition registration PartitionRegistration(replicas=[1, 2, 3], directories=[a], isr=[1, 2], "
        "removingReplicas=[], addingReplicas=[], leader=1, leaderRecoveryState=RECOVERED, leaderEpoch=4, "
        "partitionEpoch=6) since it is the leader"
    )
    rows = rows_of(sql, lines(before, now), STILL_LEADER).to_pylist()
    names = ("topic", "partition_id", "leader_id", "leader_epoch", "isr", "partition_epoch", "replicas")
    assert [tuple(row[name] for name in names) for row in rows] == [("t-x", 1, 1, 4, [1, 2], 6, [1, 2, 3])] * 2


STARTED = "Registered `kafka:type=kafka.Log4jController` MBean"


def test_a_process_that_starts_prints_several_lines(sql: ArrowSql) -> None:
    told = lines(STARTED, "[BrokerServer id=1] Transition from SHUTDOWN to STARTING", STARTED)
    assert sorted(server_log.process_starts(sql, told)["stamp_us"].to_pylist()) == [0, 2 * SECOND]


def test_settings_by_precedence(sql: ArrowSql) -> None:
    server = lines(
        STARTED, "\treplica.lag.time.max.ms = 7000", "\tmin.insync.replicas = 99999999999", "Kafka version: 2.4.1",
        "Kafka version : 2.3.0",
    )  # fmt: skip
    first, second = broker_settings(sql, server, [Broker(1, None, None), Broker(2, 8000, 2)]).to_pylist()
    assert first == {
        "broker_id": 1, "replica_lag_time_max_ms": 7000, "min_insync_replicas": 1, "starts_us": [0],
        "checks_per_lag_time": 2, "lag_time_source": "logged", "version": "2.4.1",
    }  # fmt: skip
    assert second == {
        "broker_id": 2, "replica_lag_time_max_ms": 8000, "min_insync_replicas": 2, "starts_us": [],
        "checks_per_lag_time": 2, "lag_time_source": "properties", "version": None,
    }  # fmt: skip
    given = ClusterSettings("0.8.2", 1, 3)
    assert broker_settings(sql, server, [Broker(1, 5, 5)], given).to_pylist() == [
        {**first, "replica_lag_time_max_ms": 1, "min_insync_replicas": 3, "lag_time_source": "given",
         "version": "0.8.2", "checks_per_lag_time": 1}
    ]  # fmt: skip


@pytest.mark.parametrize(("release", "lag_ms"), [("2.4.1", 10_000), ("2.5.0", 30_000), ("10.0", 30_000)])
def test_the_default_of_the_lag_time_is_that_of_the_release(sql: ArrowSql, release: str, lag_ms: int) -> None:
    settings = broker_settings(sql, lines(), [Broker(1, None, None)], assumed=release)
    assert settings["replica_lag_time_max_ms"].to_pylist() == [lag_ms]
    assert settings["lag_time_source"].to_pylist() == ["default"]


def test_facts_of_each_process(sql: ArrowSql) -> None:
    server = lines(
        "Kafka version: 2.3.0", STARTED, "Kafka version: 2.4.1", "[LogDirFailureHandler]: Starting",
        "[ExpirationReaper-1-Produce], Starting",
    )  # fmt: skip
    settings = broker_settings(sql, server, [Broker(1, None, None)])
    rows = sorted(server_log.process_lines(sql, server, settings).to_pylist(), key=lambda row: row["process"])
    assert [tuple(row.values()) for row in rows] == [(1, 0, "2.3.0", None), (1, 1, "2.4.1", 3 * SECOND)]


def test_the_least_isr_of_a_topic_as_its_logs_were_created(sql: ArrowSql) -> None:
    created = "Created log for partition {} in /d/t-x-1 with properties {{a -> b, min.insync.replicas -> {}}}"
    server = lines(
        created.format("[t-x,1]", 2), created.format("t-x-2", 3), "Created log for partition t-y-0 in /d with {}",
        created.format("t-z-2", 10**10),
    )  # fmt: skip
    assert server_log.min_isr_of_logs(sql, server).to_pylist() == [{"topic": "t-x", "min_insync_replicas": 3}]


def test_an_attempt_made_again_after_a_failed_write_is_repeated(sql: ArrowSql) -> None:
    failed = "Cached zkVersion [4] not equal to that in zookeeper, skip updating ISR"
    expand = "Expanding ISR for partition t-x-1 from 1,2 to 1,2,3"
    writes = server_log_zookeeper.zookeeper_isr_writes(
        sql,
        lines(
            SHRINKS["0.10.1"], OLD_IDENT + failed, SHRINKS["0.10.1"], OLD_IDENT + failed, OLD_IDENT + expand,
            IDENT.replace("t-x", "other") + failed.replace("[4]", "4"), SHRINKS["1.0"],
        ),
    )  # fmt: skip
    rows = writes.sort_by("stamp_us").select(["shrinks", "failed", "repeated", "isr_after"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (True, True, False, [1, 2]), (True, True, True, [1, 2]), (False, False, False, [1, 2, 3]),
        (True, False, False, [1, 2]),
    ]  # fmt: skip


def test_start_offsets_of_terms_before_2_5(sql: ArrowSql) -> None:
    starts = IDENT + "t-x-1 starts at Leader Epoch 4 from offset 9"
    told = lines(
        starts + ". Previous Leader Epoch was: 3", starts + " with high watermark 8. Previous",
        starts + " with high watermark 99999999999999999999. Previous", starts.replace("Epoch 4", "Epoch 40000000000"),
    )  # fmt: skip
    rows = rows_of(sql, told, START_OFFSET).sort_by("stamp_us").to_pylist()
    names = ("broker_id", "stamp_us", "topic", "partition_id", "leader_epoch", "start_offset", "start_high_watermark")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (1, n * SECOND, "t-x", 1, 4, 9, watermark) for n, watermark in enumerate((None, 8, None))
    ]


STATE = "controllerEpoch=1, leader=1, leaderEpoch=4, isr={}, zkVersion=8, replicas={}"
ORDERS = {
    "0.10.1": (
        "Broker 1 received LeaderAndIsr request PartitionState("
        + STATE.format("[1, 2]", "[1, 2, 3]")
        + ") correlation id 2 from controller 2 epoch 1 for partition [t-x,1]",
        (
            "Broker 1 stopped fetchers as part of become-leader request from controller 2 epoch 1 with correlation "
            "id 2 for partition [t-x,1]"
        ),
    ),
    "2.1": (
        "[Broker id=1] Received LeaderAndIsr request PartitionState("
        + STATE.format("1,2", "1,2,3")
        + ", isNew=true) correlation id 3 from controller 2 epoch 1 for partition t-x-1",
        (
            "[Broker id=1] Skipped the become-leader state change after marking its partition as leader with "
            "correlation id 3 from controller 2 epoch 1 for partition t-x-1 (last update controller epoch 1) since it "
            "is already the leader for the partition."
        ),
    ),
    "2.4": (
        "[Broker id=1] Received LeaderAndIsr request LeaderAndIsrPartitionState(topicName='t-x', partitionIndex=1, "
        + STATE.format("[1, 2]", "[1, 2, 3]")
        + ", addingReplicas=[], removingReplicas=[], isNew=false) correlation id 5 from controller 2 epoch 1",
        (
            "[Broker id=1] Stopped fetchers as part of become-leader request from controller 2 epoch 1 with "
            "correlation id 5 for partition t-x-1 (last update controller epoch 1)"
        ),
    ),
}


def test_leader_and_isr_requests_that_were_acted_on(sql: ArrowSql) -> None:
    ignored = ORDERS["2.1"][0].replace("correlation id 3", "correlation id 9").replace("leaderEpoch=4", "leaderEpoch=7")
    texts = [line for requests in ORDERS.values() for line in requests]
    follows = (
        "[Broker id=1] Handling LeaderAndIsr request correlationId 3 from controller 2 epoch 1 starting the "
        "become-follower transition for partition t-x-1 with leader 2"
    )
    rows = server_log_zookeeper.zookeeper_accepted(sql, lines(*texts, ignored, follows, level="TRACE")).sort_by(
        "stamp_us"
    )
    names = ("source_line", "topic", "partition_id", "leads", "leader_epoch", "isr", "partition_epoch", "replicas")
    assert [tuple(row[name] for name in names) for row in rows.to_pylist()] == [
        (line, "t-x", 1, leads, 4, [1, 2], 8, [1, 2, 3])
        for line, leads in ((2, True), (4, True), (6, True), (8, False))
    ]


def test_a_request_with_an_impossible_number_begins_no_term(sql: ArrowSql) -> None:
    for number in ("leaderEpoch=4", "leader=1", "zkVersion=8"):
        request, acted = ORDERS["2.1"]
        odd = request.replace(number, number.split("=")[0] + "=99999999999")
        assert server_log_zookeeper.zookeeper_accepted(sql, lines(odd, acted)).num_rows == 0


def test_states_that_a_broker_logs_of_itself(sql: ArrowSql) -> None:
    logger = "[BrokerLifecycleManager id=1]"
    texts = (
        f"{logger} Successfully registered broker 1 with broker epoch 21",
        f"{logger} The broker has been unfenced. Transitioning from RECOVERY to RUNNING.",
        f"{logger} Beginning controlled shutdown.",
        "Terminating process due to signal SIGTERM",
    )
    rows = server_log.own_states(sql, lines(*texts)).sort_by("at_us").to_pylist()
    assert [row["kind"] for row in rows] == ["fenced", "unfenced", "shutting_down", "shutting_down"]
    # Without a KRaft controller, no replica is kept out of the ISR for a signal.
    assert server_log.own_states(sql, lines(texts[-1])).num_rows == 0
    for stops in ("[KafkaServer id=1] shutting down", "[Kafka Server 1], shutting down"):
        said = server_log.own_states(sql, lines(texts[-1], f"{stops} (kafka.server.KafkaServer)"))
        assert said["kind"].to_pylist() == ["stopping"]
