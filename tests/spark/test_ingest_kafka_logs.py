"""Broker logs into tables: made-up leaders, each a case of its own, and recorded logs where they are at hand.

An ingest takes as long for twenty brokers as for one, so all cases share one, and each looks at its own broker.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from isr_batch.kafka_logs import KafkaLogs, read_kafka_logs
from isr_batch.tables import INPUT_TABLES

START = datetime(2026, 11, 21, 16, 30)  # noqa: DTZ001 log lines carry no zone
TRACES = Path(__file__).parents[3] / "shared" / "traces"
traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the recorded broker logs are not here: ../shared/traces")

Rows = Callable[..., list[tuple[Any, ...]]]


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
    """Writes the logs of a broker that leads partition 0 of a topic of its own."""

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
BROUGHT = 14


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

    case = Leader(folder, TERMS)
    case.server(started(40), f"[{stamp(41)}] INFO [BrokerServer id=1] Transition from SHUTDOWN to STARTING (k)")
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
    )


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
    ]))  # fmt: skip


def ingested(spark: SparkSession, folder: Path) -> Iterator[tuple[KafkaLogs, dict[str, list[dict[str, Any]]]]]:
    logs = read_kafka_logs(spark, folder, "c", "run-1")
    yield logs, {name: frame.toArrow().to_pylist() for name, frame in logs.tables.items()}
    logs.release()


@pytest.fixture(scope="module")
def cases(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("cases")
    write_cases(folder)
    yield from ingested(spark_session, folder)


@pytest.fixture(scope="module")
def controlled(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("controlled")
    write_controlled(folder)
    yield from ingested(spark_session, folder)


def chosen(tables: dict[str, list[dict[str, Any]]], broker: int, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Sorted rows of one broker; times as seconds since the start."""

    def of_broker(row: dict[str, Any]) -> bool:
        named = row.get("leader_id", row.get("broker_id"))
        return bool(named == broker if named is not None else row["source_file"].startswith(f"broker-{broker}/"))

    def plain(value: Any) -> Any:
        return round((value.replace(tzinfo=None) - START).total_seconds(), 6) if isinstance(value, datetime) else value

    rows = [tuple(plain(row[name]) for name in columns) for row in tables[table] if of_broker(row)]
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


@pytest.fixture
def rows(cases: tuple[KafkaLogs, dict[str, Any]]) -> Rows:
    return lambda *what: chosen(cases[1], *what)


def test_tables_have_the_contracted_columns(cases: tuple[KafkaLogs, Any]) -> None:
    for table in INPUT_TABLES:
        frame = cases[0].tables[table.name]
        assert frame.columns == table.column_names
        assert [kind.upper() for _, kind in frame.dtypes] == [column.type for column in table.columns]


def test_fetches_of_a_session_with_their_instants(rows: Rows) -> None:
    columns = ("topic", "partition_id", "leader_epoch", "replica_id", "fetch_offset", "event_date")
    day = date(2026, 11, 21)
    assert rows(SESSION, "fetch_log", *columns) == [(f"my-t.{SESSION}", 0, 4, 99, 5, day)] * 2
    times = ("arrival_time", "handled_time", "processed_time", "released_time", "completed_time")
    assert rows(SESSION, "fetch_log", *times) == [
        (10.0, 10.002, 10.005, 10.505, 10.71), (11.0, 11.001, 11.002, 11.002, 11.003)
    ]  # fmt: skip


def test_a_stamp_written_late_is_taken_back_to_the_next_request(rows: Rows) -> None:
    times = rows(LATE, "fetch_log", "fetch_offset", "arrival_time", "completed_time")
    assert times == [(5, 10.097, 10.1), (6, 10.1, 10.103)]


def test_an_unknown_topic_keeps_its_id(rows: Rows) -> None:
    assert rows(LATE, "fetch_log", "topic")[0] == (f"QOGIGkfUTjeQvN1wX98d{LATE:02}",)


def test_every_line_is_accounted_for(cases: tuple[KafkaLogs, Any], rows: Rows) -> None:
    account = cases[0].account()
    refused = [row for row in cases[1]["quarantine"] if row["raw"] and "request.log" in row["source_file"]]
    assert (account["other fetch"], account["other"], account["blank"]) == (2, 1, 1)
    assert account["refused"] == len(refused)
    assert account.pop("lines read") == sum(account.values())
    assert rows(ACCOUNT, "quarantine", "source_line", "reason", "ingest_run") == [
        (6, "malformed JSON", "run-1"),
        (7, "request log format of an older broker (text)", "run-1"),
        (8, "not a line of the request log", "run-1"),
        (9, "values out of range", "run-1"),
        (10, "values out of range", "run-1"),
        (11, "no readable time stamp", "run-1"),
        (12, "request without api key or durations", "run-1"),
        (13, "two requests in one line", "run-1"),
    ]
    assert rows(ACCOUNT, "quarantine", "raw")[-1] == ("no log line",)


def test_bad_files_are_told_and_the_rest_is_read(rows: Rows) -> None:
    whole_files = [
        row for row in rows(BAD_FILES, "quarantine", "source_file", "source_line", "reason") if row[1] is None
    ]
    folder = f"broker-{BAD_FILES}"
    assert whole_files == [
        (f"{folder}/request.log.1.gz", None, "truncated or corrupt gzip file"),
        (f"{folder}/request.log.2", None, "binary file"),
        (f"{folder}/server.log", None, "empty file"),
        (f"{folder}/server.properties", None, "no server.properties"),
    ]
    read = rows(BAD_FILES, "fetch_log", "source_file")
    assert 100 < len(read) < 401
    assert (f"{folder}/request.log",) in read


def test_gaps_in_sessions_are_told(rows: Rows) -> None:
    assert rows(GAPS, "quarantine", "source_line", "reason") == [
        (3, "gap in fetch session"), (4, "fetch session began before the log")
    ]  # fmt: skip
    assert len(rows(GAPS, "fetch_log", "source_line")) == 4


def test_fetches_without_a_session_stand_alone(rows: Rows) -> None:
    assert rows(NO_SESSION, "fetch_log", "fetch_offset", "arrival_time") == [(5, 10.0), (6, 10.001)]
    assert rows(NO_SESSION, "quarantine", "reason") == []


def test_appends_end_where_the_next_begins_or_at_the_nearest_evidence(rows: Rows) -> None:
    ends = rows(APPENDS, "append_log", "leader_epoch", "base_offset", "log_end_offset", "log_end_source")
    assert ends == [
        (4, 3, 5, "appends"), (4, 5, 9, "fetches"), (4, None, None, None), (6, 12, 13, "inferred")
    ]  # fmt: skip
    told = rows(APPENDS, "append_log", "append_time", "acknowledged_time", "error_code", "acks")
    assert told == [(10.005, 10.036, 0, -1), (11.002, None, 7, -1), (13.002, None, 19, -1), (31.002, 31.003, 0, 1)]
    assert rows(APPENDS, "quarantine", "source_line", "reason") == [(3, "produce request sent again")]


def test_a_later_term_or_a_shrinking_line_ends_the_last_append(rows: Rows) -> None:
    ends = rows(OPEN_END, "append_log", "leader_epoch", "base_offset", "log_end_offset", "log_end_source")
    assert ends == [(4, 5, 8, "terms"), (6, 8, 9, "shrinks")]


def test_an_append_is_dated_by_the_answer_that_first_brought_it_to_a_follower(rows: Rows) -> None:
    # The answer began to be written half a millisecond before it was done. Nobody asked for offset 4.
    assert rows(BROUGHT, "append_log", "base_offset", "append_time") == [(3, 10.0125), (4, 11.051)]


def test_terms_end_with_the_next_or_with_the_process(rows: Rows) -> None:
    columns = ("start_time", "end_time", "leader_epoch", "assigned", "min_insync_replicas")
    assert rows(TERMS, "leader_epochs", *columns) == [
        (5.0, 15.0, 4, [TERMS, 99], 2),
        (15.0, 20.0, 5, [TERMS], 2),
        (30.0, 35.003, 7, [TERMS, 99], 2),
        (45.0, 50.003, 7, [TERMS, 99], 2),
    ]
    assert rows(TERMS, "broker_events", "event_time", "kind") == [(0.0, "started"), (40.0, "started")]
    facts = rows(TERMS, "leader_epochs", "replica_lag_time_max_ms", "broker_version", "check_origin_source")
    assert facts[0] == (4000, "4.1.0", "unknown")


def test_silence_is_a_stretch_without_any_work_while_a_request_waits(rows: Rows) -> None:
    assert rows(SILENCE, "broker_events", "kind", "event_time", "end_time") == [("silent", 10.602, 14.6025)]


def test_followers_that_all_wait_for_data_are_no_silence(rows: Rows) -> None:
    assert rows(QUIET, "broker_events", "kind") == []


def test_checks_fall_on_the_grid_of_their_process_and_in_silences(rows: Rows) -> None:
    assert rows(CHECKS, "broker_events", "kind", "event_time", "end_time") == [
        ("check", 20.1, 20.1), ("check", 26.1, 26.13), ("check", 28.1, 30.7),
        ("silent", 27.7, 30.695), ("started", 0.0, 0.0),
    ]  # fmt: skip
    origin = rows(CHECKS, "leader_epochs", "check_origin_ms", "check_origin_source")
    assert origin == [(epoch_ms(20.1), "shrinks")]


def test_isr_changes_without_a_metadata_log(rows: Rows) -> None:
    columns = ("change_time", "kind", "replica_id", "made_by", "last_caught_up_time_ms", "follower_log_end_offset")
    assert rows(ISR, "observed_isr_changes", *columns) == [
        (31.0, "shrink", 99, "leader", epoch_ms(26), 5),
        (40.0, "expand", 99, "leader", None, None),
    ]
    assert rows(ISR, "leader_epochs", "assigned", "isr_write_ms") == [([ISR, 98, 99], 200)]
    assert rows(ISR, "quarantine", "reason") == [("Shrinking ISR line of an unknown form",)]


def test_isr_changes_and_brokers_by_the_controller(controlled: tuple[KafkaLogs, dict[str, Any]]) -> None:
    tables = controlled[1]
    columns = ("change_time", "kind", "replica_id", "leader_epoch", "isr_after", "made_by")
    assert chosen(tables, 1, "observed_isr_changes", *columns) == [
        (8.0, "shrink", 98, 4, [1, 99], "controller"),
        (31.0, "shrink", 99, 4, [1], "leader"),
        (32.0, "expand", 99, 4, [1, 99], "leader"),
        (61.0, "shrink", 99, 4, [1], "leader"),
    ]
    assert chosen(tables, 99, "observed_isr_changes", *columns) == [(33.0, "shrink", 1, 5, [99], "controller")]
    assert chosen(tables, 1, "leader_epochs", "assigned", "min_insync_replicas") == [([1, 98, 99], 3)]
    told = chosen(tables, 1, "broker_events", "kind", "event_time")
    assert [row for row in told if row[0] not in {"check", "started"}] == [
        ("fenced", 34.0), ("fenced", 36.0), ("shutting_down", 35.0), ("unfenced", 37.0)
    ]  # fmt: skip
    assert [row["reason"] for row in tables["quarantine"]] == ["malformed metadata record"]


@traces
@pytest.mark.traces
def test_recorded_stuck_cluster(spark: SparkSession) -> None:
    logs = read_kafka_logs(spark, TRACES / "r12-stuck-min-isr", "r12", "run-1")
    account = logs.account()
    assert (account["follower fetch"], account["produce"], account["refused"]) == (1159, 1443, 0)
    assert account["lines read"] == 2729
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
    good = logs.tables["fetch_log"].where("error_code = 0").orderBy(*key, "handled_time")
    read = good.select(*key, "fetch_offset").toArrow().to_pydict()
    logs.release()
    in_order = groupby(zip(*read.values(), strict=True), lambda row: row[:-1])
    derived = {partition: [row[-1] for row in same] for partition, same in in_order}
    recorded: dict[Any, list[int]] = {}
    update = re.compile(
        r"\[Partition (\S+)-(\d+) broker=(\d+)\] Recorded replica (\d+) log end offset \(LEO\) position (\d+)"
    )
    for path in run.glob("broker-*/partition-debug.log.gz"):
        for match in update.finditer(gzip.decompress(path.read_bytes()).decode()):
            topic, partition, leader, replica, offset = match.groups()
            recorded.setdefault((int(leader), topic, int(partition), int(replica)), []).append(int(offset))
    assert recorded.keys() == derived.keys()
    # All but the fetch that was in flight when the brokers were killed at the end.
    assert all(recorded[partition][:-1] == derived[partition] for partition in recorded)
