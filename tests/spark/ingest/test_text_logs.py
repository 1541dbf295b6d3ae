"""Server and state-change logs of brokers before 3.0: a line of each form as it is printed."""

from pyspark.sql import DataFrame, SparkSession

from isr_batch.ingest.kafka_logs import server_log, server_log_zookeeper
from isr_batch.ingest.kafka_logs.lines import LINES
from tests.spark.broker_logs import stamp

OLD_IDENT, IDENT = "Partition [t-x,1] on broker 1: ", "[Partition t-x-1 broker=1] "
LEADER_2_2 = ". Leader: (highWatermark: 3, endOffset: 9). Out of sync replicas: "
SHRINKS = {
    "0.10.1": OLD_IDENT + "Shrinking ISR for partition [t-x,1] from 1,2,3 to 1,2",
    "0.11": OLD_IDENT + "Shrinking ISR from 1,2,3 to 1,2",
    "1.0": IDENT + "Shrinking ISR from 1,2,3 to 1,2",
    "2.2": IDENT + "Shrinking ISR from 1,2,3 to 1,2" + LEADER_2_2 + "(brokerId: 3, endOffset: 5).",
    "3.6": IDENT + "Shrinking ISR from 1,2,3 to 1,2" + LEADER_2_2
    + "(brokerId: 3, endOffset: 5, lastCaughtUpTimeMs: 77).",
}  # fmt: skip


def told(spark: SparkSession, *texts: str, level: str = "INFO") -> DataFrame:
    lines = [
        (1, "server.log", number, f"[{stamp(number)}] {level} {text} (k.P)", None, None)
        for number, text in enumerate(texts)
    ]
    return server_log.parse_server_log(spark.createDataFrame(lines, LINES))


def test_shrinking_lines_of_every_release(spark: SparkSession) -> None:
    server = told(spark, *SHRINKS.values())
    rows = server_log.shrink_lines(server).orderBy("stamp_us").toArrow().to_pylist()
    assert [(r["topic"], r["partition_id"], r["isr_before"], r["isr_after"]) for r in rows] == [
        ("t-x", 1, [1, 2, 3], [1, 2])
    ] * len(SHRINKS)
    assert [(r["high_watermark"], r["leader_log_end_offset"]) for r in rows] == [(None, None)] * 3 + [(3, 9)] * 2
    dropped = [tuple(d.values()) for r in rows for d in r["dropped"]]
    assert dropped == [(3, None, None)] * 3 + [(3, 5, None), (3, 5, 77)]
    states = server_log.parse_state_changes(spark.createDataFrame([], LINES))
    assert server_log.unreadable_lines(server, states).isEmpty()


def test_an_attempt_made_again_after_a_failed_write_is_repeated(spark: SparkSession) -> None:
    failed = "Cached zkVersion [4] not equal to that in zookeeper, skip updating ISR"
    expand = "Expanding ISR for partition t-x-1 from 1,2 to 1,2,3"
    writes = server_log_zookeeper.isr_writes(
        told(
            spark, SHRINKS["0.10.1"], OLD_IDENT + failed, SHRINKS["0.10.1"], OLD_IDENT + failed, OLD_IDENT + expand,
            IDENT.replace("t-x", "other") + failed.replace("[4]", "4"), SHRINKS["1.0"],
        )
    )  # fmt: skip
    rows = writes.orderBy("stamp_us").select("shrinks", "failed", "repeated").collect()
    assert [tuple(row) for row in rows] == [
        (True, True, False), (True, True, True), (False, False, False), (True, False, False)
    ]  # fmt: skip


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


def test_leader_and_isr_requests_that_were_acted_on(spark: SparkSession) -> None:
    ignored = ORDERS["2.1"][0].replace("correlation id 3", "correlation id 9").replace("leaderEpoch=4", "leaderEpoch=7")
    texts = [line for lines in ORDERS.values() for line in lines]
    follows = (
        "[Broker id=1] Handling LeaderAndIsr request correlationId 3 from controller 2 epoch 1 starting the "
        "become-follower transition for partition t-x-1 with leader 2"
    )
    lines = [
        (1, "state-change.log", number, f"[{stamp(number)}] TRACE {text} (state.change.logger)", None, None)
        for number, text in enumerate([*texts, ignored, follows])
    ]
    changes = server_log.parse_state_changes(spark.createDataFrame(lines, LINES))
    rows = server_log_zookeeper.accepted(changes).orderBy("stamp_us").toArrow().to_pylist()
    names = ("source_line", "topic", "partition_id", "leads", "leader_epoch", "isr", "partition_epoch", "replicas")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (line, "t-x", 1, leads, 4, [1, 2], 8, [1, 2, 3])
        for line, leads in ((1, True), (3, True), (5, True), (7, False))
    ]
