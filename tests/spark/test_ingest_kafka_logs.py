"""Broker logs into tables: a made-up cluster of one leader and one follower, and recorded ones where they are at hand."""

import gzip
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from isr_batch.kafka_logs import KafkaLogs, read_kafka_logs
from isr_batch.tables import INPUT_TABLES

ID = "QOGIGkfUTjeQvN1wX98dSQ"
START = datetime(2026, 11, 21, 16, 30)  # noqa: DTZ001 log lines carry no zone
TRACES = Path(__file__).parents[3] / "shared" / "traces"
traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded broker logs are not here: ../shared/traces")


def stamp(seconds: float) -> str:
    return f"{START + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S,%f}"[:-3]


def epoch_ms(seconds: float) -> int:
    return round((START - datetime(1970, 1, 1)).total_seconds() * 1000 + seconds * 1000)  # noqa: DTZ001


def line(
    seconds: float, key: int, request: dict[str, Any], response: dict[str, Any],
    queue: float = 1, local: float = 1, remote: float = 0, rest: float = 1,
) -> str:  # fmt: skip
    """Build a line of the request log for a request that arrived at ``seconds``; durations in ms."""
    total = queue + local + remote + rest
    body = {
        "requestHeader": {"requestApiKey": key}, "request": request, "response": response,
        "totalTimeMs": total, "requestQueueTimeMs": queue, "localTimeMs": local, "remoteTimeMs": remote, "sendTimeMs": 0.5,
    }  # fmt: skip
    return f"[{stamp(seconds + total / 1000)}] DEBUG Completed request:{json.dumps(body)} (kafka.request.logger)"


def fetch(seconds: float, epoch: int, offset: int | None, session: int = 7, replica: int = 2, **times: float) -> str:
    partitions = [] if offset is None else [{"partition": 0, "currentLeaderEpoch": 4, "fetchOffset": offset}]
    request = {
        "replicaState": {"replicaId": replica}, "maxWaitMs": 500, "sessionId": session if epoch else 0,
        "sessionEpoch": epoch, "topics": [{"topicId": ID, "partitions": partitions}], "forgottenTopicsData": [],
    }  # fmt: skip
    return line(seconds, 1, request, {"errorCode": 0, "sessionId": session, "responses": []}, **times)


def produce(seconds: float, base_offset: int, error: int = 0, acks: int = -1, **times: float) -> str:
    answer = {"index": 0, "errorCode": error, "baseOffset": base_offset}
    response = {"responses": [{"topicId": ID, "partitionResponses": [answer]}]}
    return line(seconds, 0, {"acks": acks, "topicData": []}, response, **times)


def leads(seconds: float, epoch: int, offset: int, isr: str = "1,2") -> str:
    return (
        f"[{stamp(seconds)}] INFO [Broker id=1] Leader my-t.x-0 with topic id Some({ID}) starts at leader epoch {epoch} from "
        f"offset {offset} with partition epoch {epoch}, high watermark {offset}, ISR [{isr}], adding replicas [] and removing "
        f"replicas [] . Previous leader None and previous leader epoch was -1. (state.change.logger)"
    )


def follows(seconds: float, epoch: int) -> str:
    return f"[{stamp(seconds)}] INFO [Broker id=1] Follower my-t.x-0 starts at leader epoch {epoch} from offset 9 (s)"


def shrinks(seconds: float, caught_up: float) -> str:
    return (
        f"[{stamp(seconds)}] INFO [Partition my-t.x-0 broker=1] Shrinking ISR from 1,2 to 1. Leader: (highWatermark: 5, "
        f"endOffset: 9). Out of sync replicas: (brokerId: 2, endOffset: 5, lastCaughtUpTimeMs: {epoch_ms(caught_up)}). "
        "(kafka.cluster.Partition)"
    )


def record(seconds: float, offset: int, kind: str, **data: Any) -> str:
    payload = json.dumps({"type": kind, "version": 0, "data": data})
    return f"| offset: {offset} CreateTime: {epoch_ms(seconds)} keySize: -1 headerKeys: [] payload: {payload}"


class Cluster:
    """A folder with the logs of broker 1, the leader."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("broker-1/server.properties", "node.id=1", "replica.lag.time.max.ms=4000", "min.insync.replicas=2")

    def write(self, name: str, *lines: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{text}\n" for text in lines))

    def requests(self, *lines: str) -> None:
        self.write("broker-1/request.log", *lines)

    def server(self, *lines: str) -> None:
        started = f"[{stamp(0)}] INFO Registered `kafka:type=kafka.Log4jController` MBean (k)"
        self.write("broker-1/server.log", started, f"[{stamp(1)}] INFO Kafka version: 4.1.0 (k)", *lines)

    def terms(self, *lines: str) -> None:
        self.write("broker-1/state-change.log", *lines)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "logs") if not (tmp_path / "logs").mkdir() else None  # type: ignore[return-value]


@pytest.fixture
def ingest(spark: SparkSession, cluster: Cluster) -> Iterator[Any]:
    """Ingest the cluster's folder."""
    done: list[KafkaLogs] = []

    def run() -> KafkaLogs:
        done.append(read_kafka_logs(spark, cluster.folder, "c", "run-1"))
        return done[-1]

    yield run
    for logs in done:
        logs.release()


def rows(logs: KafkaLogs, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Sorted rows; times as seconds since the start."""
    frame = logs.tables[table]
    since = [(F.unix_micros(name) / 1e6 - epoch_ms(0) / 1e3).alias(name) if name.endswith("_time") else F.col(name) for name in columns]
    return sorted(
        tuple(round(value, 6) if isinstance(value, float) else value for value in row)
        for row in frame.select(*since).collect()
    )


def test_tables_have_the_contracted_columns(cluster: Cluster, ingest: Any) -> None:
    cluster.requests(fetch(10, 0, 5))
    logs = ingest()
    for table in INPUT_TABLES:
        frame = logs.tables[table.name]
        assert frame.columns == table.column_names
        assert [kind.upper() for _, kind in frame.dtypes] == [column.type for column in table.columns]


def test_fetches_of_a_session_with_their_instants(cluster: Cluster, ingest: Any) -> None:
    cluster.terms(leads(5, 4, 5))
    cluster.requests(
        fetch(10, 0, 5, queue=2, local=3, remote=700, rest=5),
        fetch(11, 1, None),
        fetch(11, 9, None, replica=-1, session=8),
    )
    logs = ingest()
    times = ("arrival_time", "handled_time", "processed_time", "released_time", "completed_time")
    assert rows(logs, "fetch_log", "topic", "partition_id", "leader_epoch", "leader_id", "replica_id", "fetch_offset", *times) == [
        ("my-t.x", 0, 4, 1, 2, 5, 10.0, 10.002, 10.005, 10.505, 10.71),
        ("my-t.x", 0, 4, 1, 2, 5, 11.0, 11.001, 11.002, 11.002, 11.003),
    ]


def test_a_stamp_written_late_is_taken_back_to_the_next_request(cluster: Cluster, ingest: Any) -> None:
    late, punctual = fetch(10, 0, 5), fetch(10.1, 1, 6)
    cluster.requests(late.replace(stamp(10.003), stamp(10.153)), punctual)
    assert rows(ingest(), "fetch_log", "fetch_offset", "arrival_time", "completed_time") == [(5, 10.097, 10.1), (6, 10.1, 10.103)]


def test_every_line_is_accounted_for(cluster: Cluster, ingest: Any) -> None:
    cut = fetch(12, 1, 5)
    older = f"[{stamp(1)}] TRACE Completed request:{{api_key=6}} -- {{controller_id=2}} from connection 1;totalTime:46 (k)"
    cluster.requests(
        fetch(10, 0, 5), produce(10, 5), line(10, 3, {}, {}), fetch(10, 1, 1, replica=-1), "", cut[:300], older,
        "no log line", line(10, 1, {"maxWaitMs": 1}, {}), fetch(12, 1, -5), fetch(10, 1, 1).replace(stamp(10.003), "2026-13-41 00:00:00,000"),
        fetch(10, 1, 1).replace('"totalTimeMs"', '"x"'),
    )  # fmt: skip
    logs = ingest()
    assert logs.account() == {
        "lines read": 12, "follower fetch": 1, "other fetch": 1, "produce": 1, "other": 1, "blank": 1, "refused": 7,
    }  # fmt: skip
    assert rows(logs, "quarantine", "source_line", "reason", "ingest_run") == [
        (6, "malformed JSON", "run-1"),
        (7, "request log format of an older broker (text)", "run-1"),
        (8, "not a line of the request log", "run-1"),
        (9, "values out of range", "run-1"),
        (10, "values out of range", "run-1"),
        (11, "no readable time stamp", "run-1"),
        (12, "request without api key or durations", "run-1"),
    ]


def test_bad_files_are_told_and_the_rest_is_read(cluster: Cluster, ingest: Any) -> None:
    cluster.requests(fetch(10, 0, 5))
    folder = cluster.folder / "broker-1"
    (folder / "request.log.1.gz").write_bytes(gzip.compress(fetch(9, 0, 4, session=6).encode() * 40)[:-40])
    (folder / "request.log.2").write_bytes(b"\0\1\2")
    (folder / "server.log").write_bytes(b"")
    (folder / "server.properties").unlink()
    logs = ingest()
    assert rows(logs, "quarantine", "source_file", "reason") == [
        ("broker-1/request.log.1.gz", "truncated or corrupt gzip file"),
        ("broker-1/request.log.2", "binary file"),
        ("broker-1/server.log", "empty file"),
        ("broker-1/server.properties", "no server.properties"),
    ]
    assert logs.account()["follower fetch"] == 1


def test_gaps_in_sessions_are_told(cluster: Cluster, ingest: Any) -> None:
    cluster.requests(fetch(10, 0, 5), fetch(11, 1, 6), fetch(12, 4, 7), fetch(12, 5, 7, session=9))
    assert rows(ingest(), "quarantine", "source_line", "reason") == [
        (3, "gap in fetch session"),
        (4, "fetch session began before the log"),
    ]


def test_fetches_without_a_session_stand_alone(cluster: Cluster, ingest: Any) -> None:
    cluster.requests(fetch(10, 0, 5, session=0), fetch(10.001, 0, 6, session=0))
    logs = ingest()
    assert rows(logs, "fetch_log", "fetch_offset", "arrival_time") == [(5, 10.0), (6, 10.001)]
    assert rows(logs, "quarantine", "reason") == []


def test_appends_end_where_the_next_begins_or_at_the_nearest_evidence(cluster: Cluster, ingest: Any) -> None:
    cluster.terms(leads(5, 4, 0), follows(20, 5), leads(30, 6, 12))
    cluster.requests(
        produce(10, 3, queue=1, local=4, remote=30), produce(11, 5, error=7), produce(12, 5), produce(13, -1, error=19),
        fetch(14, 0, 9), fetch(15, 1, 10), produce(31, 12, acks=1),
    )  # fmt: skip
    logs = ingest()
    assert rows(
        logs, "append_log", "leader_epoch", "append_time", "base_offset", "log_end_offset", "log_end_source", "acknowledged_time", "error_code"
    ) == [
        (4, 10.005, 3, 5, "appends", 10.036, 0),
        (4, 11.002, 5, 9, "fetches", None, 7),
        (4, 13.002, None, None, None, None, 19),
        (6, 31.002, 12, 13, "inferred", 31.003, 0),
    ]
    assert rows(logs, "quarantine", "source_line", "reason") == [(3, "produce request sent again")]


def test_a_later_term_or_a_shrinking_line_ends_the_last_append(cluster: Cluster, ingest: Any) -> None:
    cluster.terms(leads(5, 4, 0), leads(20, 6, 12))
    cluster.server(shrinks(31, 26))
    cluster.requests(produce(10, 3), produce(30, 8))
    assert rows(ingest(), "append_log", "leader_epoch", "base_offset", "log_end_offset", "log_end_source") == [
        (4, 3, 12, "terms"),
        (6, 8, 9, "shrinks"),
    ]


def test_terms_end_with_the_next_or_with_the_process(cluster: Cluster, ingest: Any) -> None:
    cluster.server(f"[{stamp(40)}] INFO Registered `kafka:type=kafka.Log4jController` MBean (k)",
                   f"[{stamp(41)}] INFO [BrokerServer id=1] Transition from SHUTDOWN to STARTING (k)")  # fmt: skip
    cluster.terms(leads(5, 4, 0), leads(15, 5, 3, isr="1"), follows(20, 6), leads(30, 7, 5), leads(45, 7, 5))
    cluster.requests(fetch(10, 0, 5), produce(35, 6), produce(50, 9))
    logs = ingest()
    assert rows(logs, "leader_epochs", "start_time", "end_time", "leader_epoch", "assigned", "min_insync_replicas") == [
        (5.0, 15.0, 4, [1, 2], 2),
        (15.0, 20.0, 5, [1], 2),
        (30.0, 35.003, 7, [1, 2], 2),
        (45.0, 50.003, 7, [1, 2], 2),
    ]
    assert rows(logs, "broker_events", "event_time", "kind") == [(0.0, "started"), (40.0, "started")]
    first = logs.tables["leader_epochs"].orderBy("start_time").first()
    assert isinstance(first, Row)
    assert (first.replica_lag_time_max_ms, first.broker_version, first.check_origin_source) == (4000, "4.1.0", "unknown")


def test_silence_is_a_stretch_without_any_work_while_a_request_waits(cluster: Cluster, ingest: Any) -> None:
    cluster.requests(
        fetch(10, 0, 5, remote=500), fetch(10.6, 1, 5, remote=4000), produce(20, 3),
    )  # fmt: skip
    assert rows(ingest(), "broker_events", "kind", "event_time", "end_time") == [("silent", 10.602, 14.602)]


def test_checks_fall_on_the_grid_of_their_process_and_in_silences(cluster: Cluster, ingest: Any) -> None:
    cluster.server(f"[{stamp(2.1)}] INFO [LogDirFailureHandler]: Starting (k)", shrinks(20.1, 15), shrinks(26.13, 21), shrinks(30.7, 26))
    cluster.terms(leads(5, 4, 0))
    cluster.requests(*(produce(12 + n / 10, n) for n in range(157)), fetch(27.7, 0, 5, queue=2995))
    logs = ingest()
    assert rows(logs, "broker_events", "kind", "event_time", "end_time") == [
        ("check", 20.1, 20.1), ("check", 26.1, 26.13), ("check", 28.1, 30.7), ("silent", 27.7, 30.695), ("started", 0.0, 0.0),
    ]  # fmt: skip
    origin = rows(logs, "leader_epochs", "check_origin_ms", "check_origin_source")
    assert origin == [(epoch_ms(20.1), "shrinks")]


def controller_log() -> tuple[str, ...]:
    partition = {"partitionId": 0, "topicId": ID}
    return (
        record(1, 1, "TOPIC_RECORD", name="my-t.x", topicId=ID),
        record(1, 2, "CONFIG_RECORD", resourceType=4, resourceName="", name="min.insync.replicas", value="3"),
        record(1, 3, "PARTITION_RECORD", **partition, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leaderEpoch=4, partitionEpoch=0),
        record(8, 4, "PARTITION_CHANGE_RECORD", **partition, isr=[1, 2]),
        record(31.1, 5, "PARTITION_CHANGE_RECORD", **partition, isr=[1]),
        record(32, 6, "PARTITION_CHANGE_RECORD", **partition, isr=[1, 2]),
        record(33, 7, "PARTITION_CHANGE_RECORD", **partition, isr=[2], leader=2),
        record(34, 8, "BROKER_REGISTRATION_CHANGE_RECORD", brokerId=1, brokerEpoch=3, fenced=1),
        record(35, 9, "BROKER_REGISTRATION_CHANGE_RECORD", brokerId=1, brokerEpoch=3, inControlledShutdown=1),
        record(36, 10, "REGISTER_BROKER_RECORD", brokerId=1, fenced=True),
        record(37, 11, "UNFENCE_BROKER_RECORD", id=1, epoch=4),
        record(38, 12, "NO_OP_RECORD")[:-3],
    )


def test_isr_changes_and_brokers_by_the_controller(cluster: Cluster, ingest: Any) -> None:
    cluster.terms(leads(5, 4, 0, isr="1,2,3"))
    cluster.server(shrinks(31, 26), shrinks(61, 56))
    cluster.write("metadata-dump.txt", *controller_log())
    logs = ingest()
    assert rows(logs, "observed_isr_changes", "change_time", "kind", "replica_id", "leader_epoch", "leader_id", "isr_after", "made_by") == [
        (8.0, "shrink", 3, 4, 1, [1, 2], "controller"),
        (31.0, "shrink", 2, 4, 1, [1], "leader"),
        (32.0, "expand", 2, 4, 1, [1, 2], "leader"),
        (33.0, "shrink", 1, 5, 2, [2], "controller"),
        (61.0, "shrink", 2, 4, 1, [1], "leader"),
    ]
    assert rows(logs, "leader_epochs", "assigned", "min_insync_replicas") == [([1, 2, 3], 3)]
    assert [row for row in rows(logs, "broker_events", "kind", "event_time") if row[0] not in ("check", "started")] == [
        ("fenced", 34.0), ("fenced", 36.0), ("shutting_down", 35.0), ("unfenced", 37.0),
    ]  # fmt: skip
    assert rows(logs, "quarantine", "reason") == [("malformed metadata record",)]


def test_isr_changes_without_a_metadata_log(cluster: Cluster, ingest: Any) -> None:
    stays = (
        f"[{stamp(40)}] INFO [Broker id=1] Skipped the become-leader state change for my-t.x-0 with topic id Some({ID}) and "
        "partition state LeaderAndIsrPartitionState(topicName='my-t.x', partitionIndex=0, controllerEpoch=-1, leader=1, "
        "leaderEpoch=4, isr=[1, 2], partitionEpoch=6, replicas=[1, 2, 3], addingReplicas=[]) since it is already the leader (s)"
    )
    cluster.terms(leads(5, 4, 0), stays)
    updated = f"[{stamp(31.2)}] INFO [Partition my-t.x-0 broker=1] ISR updated to 1 (under-min-isr) and version updated to 5 (k)"
    cluster.server(shrinks(31, 26), updated)
    logs = ingest()
    columns = ("change_time", "kind", "replica_id", "made_by", "last_caught_up_time_ms", "follower_log_end_offset")
    assert rows(logs, "observed_isr_changes", *columns) == [
        (31.0, "shrink", 2, "leader", epoch_ms(26), 5),
        (40.0, "expand", 2, "leader", None, None),
    ]
    assert rows(logs, "leader_epochs", "assigned", "isr_write_ms") == [([1, 2, 3], 200)]


def write(frame: DataFrame, path: Path) -> list[dict[str, Any]]:
    """Rows as dicts, by way of Arrow: collecting a hundred thousand rows takes longer."""
    return frame.toArrow().to_pylist() if path else []


@traces
@pytest.mark.traces
def test_recorded_stuck_cluster(spark: SparkSession) -> None:
    logs = read_kafka_logs(spark, TRACES / "r12-stuck-min-isr", "r12", "run-1")
    account = logs.account()
    assert (account["follower fetch"], account["produce"], account["refused"]) == (1159, 1443, 0)
    assert account["lines read"] == 2729 == sum(account.values()) // 2
    assert logs.tables["fetch_log"].count() == 9236
    made = logs.tables["observed_isr_changes"].groupBy("kind", "made_by").count().collect()
    assert {tuple(row) for row in made} == {("shrink", "leader", 10), ("shrink", "controller", 38)}
    logs.release()


@traces
@pytest.mark.traces
def test_fetches_are_those_that_the_broker_recorded(spark: SparkSession) -> None:
    run = TRACES / "r4-leader-stop"
    logs = read_kafka_logs(spark, run, "r4", "run-1")
    key = ("leader_id", "topic", "partition_id", "replica_id")
    read = logs.tables["fetch_log"].where("error_code = 0").orderBy(*key, "handled_time").select(*key, "fetch_offset").toArrow()
    logs.release()
    derived = {group: [row[-1] for row in same] for group, same in groupby(zip(*read.to_pydict().values(), strict=True), lambda r: r[:-1])}
    recorded: dict[Any, list[int]] = {}
    pattern = re.compile(r"\[Partition (\S+)-(\d+) broker=(\d+)\] Recorded replica (\d+) log end offset \(LEO\) position (\d+)")
    for path in run.glob("broker-*/partition-debug.log.gz"):
        for match in pattern.finditer(gzip.open(path, "rt").read()):
            topic, partition, leader, replica, offset = match.groups()
            recorded.setdefault((int(leader), topic, int(partition), int(replica)), []).append(int(offset))
    # All but the fetch that was in flight when the brokers were killed at the end.
    assert recorded.keys() == derived.keys()
    assert all(recorded[key] == [*derived[key], recorded[key][-1]] for key in recorded)
