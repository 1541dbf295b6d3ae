"""Broker logs in the format of Kafka 4.1, generated line by line: every case that an ingest must distinguish."""

import gzip
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from isr_batch.ingest.engine.engine import Rows as TableRows
from isr_batch.ingest.engine.in_spark import Spread, spark_frame_of_spread

START = datetime(2026, 11, 21, 16, 30)  # noqa: DTZ001 log lines carry no zone
TRACES = Path(__file__).parents[3] / "shared" / "traces"
traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded broker logs are not here: ../shared/traces")

Rows = Callable[..., list[tuple[Any, ...]]]


def arrow_of(table: TableRows | DataFrame) -> pa.Table:
    """A table that an ingest made, whichever engine holds it."""
    held = spark_frame_of_spread(table) if isinstance(table, Spread) else table
    return held if isinstance(held, pa.Table) else held.toArrow()


def rows_of(table: TableRows | DataFrame) -> list[dict[str, Any]]:
    """Its rows."""
    return list(arrow_of(table).to_pylist())


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
        "requestHeader": {"requestApiKey": key}, "request": request, "response": response, "totalTimeMs": total,
        "requestQueueTimeMs": queue, "localTimeMs": local, "remoteTimeMs": remote, "sendTimeMs": 0.5,
    }  # fmt: skip
    return f"[{stamp(seconds + total / 1000)}] DEBUG Completed request:{json.dumps(body)} (kafka.request.logger)"


def started(seconds: float) -> str:
    return f"[{stamp(seconds)}] INFO Registered `kafka:type=kafka.Log4jController` MBean (k)"


class Leader:
    """Writes the logs of a broker that leads partition 0 of a separate topic."""

    def __init__(self, folder: Path, broker: int) -> None:
        self.broker = broker
        self.folder = folder / f"broker-{broker}"
        self.folder.mkdir()
        self.topic_id = f"QOGIGkfUTjeQvN1wX98d{broker:02}"
        self.write("server.properties", f"node.id={broker}", "replica.lag.time.max.ms=4000", "min.insync.replicas=2")

    def write(self, name: str, *lines: str) -> None:
        (self.folder / name).write_text("".join(f"{text}\n" for text in lines))

    def requests(self, *lines: str) -> None:
        self.write("request.log", *lines)

    def server(self, *lines: str) -> None:
        self.write("server.log", started(0), f"[{stamp(1)}] INFO Kafka version: 4.1.0 (k)", *lines)

    def terms(self, *lines: str) -> None:
        self.write("state-change.log", *lines)

    def fetch(
        self, seconds: float, epoch: int, offset: int | None, session: int = 7, replica: int = 99,
        brings: int = 0, **times: float,
    ) -> str:  # fmt: skip
        asked = {"partition": 0, "currentLeaderEpoch": 4, "fetchOffset": offset}
        answer = {"partitionIndex": 0, "errorCode": 0, "highWatermark": 1, "recordsSizeInBytes": brings}
        request = {
            "replicaState": {"replicaId": replica}, "maxWaitMs": 500, "sessionId": session if epoch else 0,
            "sessionEpoch": epoch,
            "topics": [{"topicId": self.topic_id, "partitions": [] if offset is None else [asked]}],
            "forgottenTopicsData": [],
        }  # fmt: skip
        answers = [{"topicId": self.topic_id, "partitions": [answer]}] if brings else []
        return line(seconds, 1, request, {"errorCode": 0, "sessionId": session, "responses": answers}, **times)

    def produce(self, seconds: float, base_offset: int, error: int = 0, acks: int = -1, **times: float) -> str:
        answer = {"index": 0, "errorCode": error, "baseOffset": base_offset}
        response = {"responses": [{"topicId": self.topic_id, "partitionResponses": [answer]}]}
        return line(seconds, 0, {"acks": acks, "topicData": []}, response, **times)

    def produce_unlogged(self, seconds: float, size: int) -> str:
        """A request that is not answered."""
        data = [{"topicId": self.topic_id, "partitionData": [{"index": 0, "recordsSizeInBytes": size}]}]
        return line(seconds, 0, {"acks": 0, "topicData": data}, {})

    def leads(self, seconds: float, epoch: int, offset: int, others: str = ",99") -> str:
        return (
            f"[{stamp(seconds)}] INFO [Broker id={self.broker}] Leader my-t.{self.broker}-0 with topic id "
            f"Some({self.topic_id}) starts at leader epoch {epoch} from offset {offset} with partition epoch {epoch}, "
            f"high watermark {offset}, ISR [{self.broker}{others}], adding replicas [] and removing replicas [] . "
            "Previous leader None and previous leader epoch was -1. (state.change.logger)"
        )

    def follows(self, seconds: float, epoch: int) -> str:
        return (
            f"[{stamp(seconds)}] INFO [Broker id={self.broker}] Follower my-t.{self.broker}-0 starts at leader epoch "
            f"{epoch} from offset 9 (s)"
        )

    def shrinks(self, seconds: float, caught_up: float) -> str:
        return (
            f"[{stamp(seconds)}] INFO [Partition my-t.{self.broker}-0 broker={self.broker}] Shrinking ISR from "
            f"{self.broker},99 to {self.broker}. Leader: (highWatermark: 5, endOffset: 9). Out of sync replicas: "
            f"(brokerId: 99, endOffset: 5, lastCaughtUpTimeMs: {epoch_ms(caught_up)}). (kafka.cluster.Partition)"
        )


SESSION, LATE, ACCOUNT, BAD_FILES, GAPS, NO_SESSION, APPENDS, OPEN_END, TERMS, SILENCE, QUIET, CHECKS, ISR = range(
    1, 14
)
BROUGHT, UNTOLD, HANDED_OVER = 14, 15, 16


def write_cases(folder: Path) -> None:
    case = Leader(folder, SESSION)
    case.terms(case.leads(5, 4, 5))
    case.requests(
        case.fetch(10, 0, 5, queue=2, local=3, remote=700, rest=5),
        case.fetch(11, 1, None),
        case.fetch(11, 9, None, replica=-1, session=8),
    )

    case = Leader(folder, LATE)
    case.requests(case.fetch(10, 0, 5).replace(stamp(10.003), stamp(10.153)), case.fetch(10.1, 1, 6))

    case = Leader(folder, ACCOUNT)
    case.requests(
        case.fetch(10, 0, 5),
        case.produce(10, 5),
        line(10, 3, {}, {}),
        case.fetch(10, 1, 1, replica=-1),
        "",
        case.fetch(12, 1, 5)[:300],
        f"[{stamp(1)}] TRACE Completed request:{{api_key=6}} -- {{controller_id=2}} from connection 1;totalTime:46 (k)",
        "no log line",
        line(10, 1, {"maxWaitMs": 1}, {}),
        case.fetch(12, 1, -5),
        case.fetch(10, 1, 1).replace(stamp(10.003), "2026-13-41 00:00:00,000"),
        case.fetch(10, 1, 1).replace('"totalTimeMs"', '"x"'),
        case.fetch(10, 1, 1) + case.fetch(11, 2, 1),
    )

    case = Leader(folder, BAD_FILES)
    case.requests(case.fetch(10, 0, 5))
    whole = "".join(f"{case.fetch(9, 0, 4, session=number)}\n" for number in range(400))
    (case.folder / "request.log.1.gz").write_bytes(gzip.compress(whole.encode())[:-40])
    (case.folder / "request.log.2").write_bytes(b"\0\1\2")
    (case.folder / "server.log").write_bytes(b"")
    (case.folder / "server.properties").unlink()

    case = Leader(folder, GAPS)
    case.requests(case.fetch(10, 0, 5), case.fetch(11, 1, 6), case.fetch(12, 4, 7), case.fetch(12, 5, 7, session=9))

    case = Leader(folder, NO_SESSION)
    case.requests(case.fetch(10, 0, 5, session=0), case.fetch(10.001, 0, 6, session=0))

    _write_appends(folder)

    case = Leader(folder, TERMS)
    case.server(started(40), f"[{stamp(41)}] INFO [BrokerServer id={TERMS}] Transition from SHUTDOWN to STARTING (k)")
    case.terms(
        case.leads(5, 4, 0), case.leads(15, 5, 3, others=""), case.follows(20, 6),
        case.leads(30, 7, 5), case.leads(45, 7, 5),
    )  # fmt: skip
    case.requests(case.fetch(10, 0, 5), case.produce(35, 6), case.produce(50, 9))

    case = Leader(folder, SILENCE)
    case.requests(case.fetch(10, 0, 5, remote=500), case.fetch(10.6, 1, 5, remote=4000), case.produce(20, 3))

    case = Leader(folder, QUIET)
    case.requests(*(case.fetch(10 + n * 0.504, n, 5, remote=500) for n in range(20)))

    case = Leader(folder, CHECKS)
    case.terms(case.leads(5, 4, 0))
    scheduled = f"[{stamp(2.1)}] INFO [LogDirFailureHandler]: Starting (k)"
    case.server(scheduled, case.shrinks(20.1, 15), case.shrinks(26.13, 21), case.shrinks(30.7, 26))
    case.requests(*(case.produce(12 + n / 10, n) for n in range(157)), case.fetch(27.7, 0, 5, queue=2995))

    case = Leader(folder, ISR)
    case.terms(
        case.leads(5, 4, 0),
        case.leads(6, 99999999999, 0),
        case.leads(7, 5, 10**19),
        f"[{stamp(40)}] INFO [Broker id={ISR}] Skipped the become-leader state change for my-t.{ISR}-0 with topic id "
        f"Some({case.topic_id}) and partition state LeaderAndIsrPartitionState(topicName='my-t.{ISR}', "
        f"partitionIndex=0, controllerEpoch=-1, leader={ISR}, leaderEpoch=4, isr=[{ISR}, 99], partitionEpoch=6, "
        f"replicas=[{ISR}, 98, 99], addingReplicas=[]) since it is already the leader (s)",
    )
    case.server(
        case.shrinks(31, 26),
        f"[{stamp(31.2)}] INFO [Partition my-t.{ISR}-0 broker={ISR}] ISR updated to {ISR} (under-min-isr) and version "
        "updated to 5 (k)",
        f"[{stamp(50)}] INFO [Partition my-t.{ISR}-0 broker={ISR}] Shrinking ISR in a new way (k)",
        case.shrinks(51, 26).replace("endOffset: 9", f"endOffset: {10**30}"),
        case.shrinks(52, 26).replace("brokerId: 99", "brokerId: 2147483648"),
    )
    stranger = {"session": 8, "replica": 97}
    case.requests(case.fetch(41, 0, 5), case.fetch(41, 0, 5, **stranger), case.fetch(42, 1, 3, **stranger))


def _write_appends(folder: Path) -> None:
    case = Leader(folder, APPENDS)
    case.terms(case.leads(5, 4, 0), case.follows(20, 5), case.leads(30, 6, 12))
    case.requests(
        case.produce(10, 3, queue=1, local=4, remote=30), case.produce(11, 5, error=7), case.produce(12, 5),
        case.produce(13, -1, error=19), case.fetch(14, 0, 9), case.fetch(15, 1, 10), case.produce(31, 12, acks=1),
    )  # fmt: skip

    case = Leader(folder, OPEN_END)
    case.terms(case.leads(5, 4, 0), case.leads(20, 6, 8))
    case.server(case.shrinks(31, 26))
    case.requests(case.produce(10, 5), case.produce(30, 8))

    case = Leader(folder, BROUGHT)
    case.terms(case.leads(5, 4, 0))
    case.requests(
        case.produce(10, 3, local=50),
        case.fetch(10.002, 0, 3, brings=70, remote=8, rest=1.5),
        case.produce(11, 4, local=50),
        case.fetch(11.002, 1, 3, brings=70, remote=8, rest=1.5),
    )

    case = Leader(folder, UNTOLD)
    case.terms(case.leads(5, 4, 0))
    case.requests(
        case.produce_unlogged(10, 300), case.produce_unlogged(10.1, 100), case.fetch(10.2, 0, 0),
        case.fetch(10.3, 1, 4, remote=500), case.produce_unlogged(11, 100), case.fetch(11.2, 2, 4, remote=500),
        case.produce(12, 6), case.fetch(12.5, 3, 8),
    )  # fmt: skip

    case = Leader(folder, HANDED_OVER)
    case.terms(case.leads(5, 4, 0), case.leads(20, 6, 4))
    case.requests(case.fetch(10, 0, 0, brings=70))


def record(seconds: float, offset: int, kind: str, **data: Any) -> str:
    payload = json.dumps({"type": kind, "version": 0, "data": data})
    return f"| offset: {offset} CreateTime: {epoch_ms(seconds)} keySize: -1 headerKeys: [] payload: {payload}"


def write_controlled(folder: Path) -> None:
    """Write the case of a cluster whose metadata log is at hand."""
    case = Leader(folder, 1)
    case.terms(case.leads(5, 4, 0, others=",98,99"))
    case.server(case.shrinks(31, 26), case.shrinks(61, 56))
    partition = {"partitionId": 0, "topicId": case.topic_id}
    change = "PARTITION_CHANGE_RECORD"
    registration = {"brokerId": 1, "brokerEpoch": 3}
    (folder / "metadata-dump.txt").write_text("\n".join([
        record(1, 1, "TOPIC_RECORD", name="my-t.1", topicId=case.topic_id),
        record(1, 2, "CONFIG_RECORD", resourceType=4, resourceName="", name="min.insync.replicas", value="3"),
        record(1, 3, "PARTITION_RECORD", **partition, replicas=[1, 98, 99], isr=[1, 98, 99], leader=1, leaderEpoch=4),
        record(8, 4, change, **partition, isr=[1, 99]),
        record(31.1, 5, change, **partition, isr=[1]),
        record(32, 6, change, **partition, isr=[1, 99]),
        record(33, 7, change, **partition, isr=[99], leader=99),
        record(34, 8, "BROKER_REGISTRATION_CHANGE_RECORD", **registration, fenced=1),
        record(35, 9, "BROKER_REGISTRATION_CHANGE_RECORD", **registration, inControlledShutdown=1),
        record(36, 10, "REGISTER_BROKER_RECORD", brokerId=1, fenced=True),
        record(37, 11, "UNFENCE_BROKER_RECORD", id=1, epoch=4),
        record(38, 12, "NO_OP_RECORD")[:-3],
        record(39, 13, change, topicId=case.topic_id, partitionId=99999999999, isr=[1]),
        record(39, 14, "PARTITION_RECORD", **partition, replicas=[1, 98, 99], isr=[1]),
    ]))  # fmt: skip
