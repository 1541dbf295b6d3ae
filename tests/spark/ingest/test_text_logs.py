"""Logs of brokers before 2.8: a line of each form as it is printed, and lines that pretend."""

from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from isr_batch.ingest.kafka_logs.lines import LINES
from isr_batch.ingest.kafka_logs.request_log import FOLLOWER_FETCH, OTHER, OTHER_FETCH, PRODUCE, REFUSED, parse_requests
from tests.spark.broker_logs import stamp

WHERE = " from connection 10.0.0.1:9092-10.0.0.2:4711"
WHOLE_MS = (
    ";totalTime:46,requestQueueTime:34,localTime:11,remoteTime:0,responseQueueTime:1,sendTime:0,securityProtocol:P"
)
REAL = (
    ";totalTime:504.25,requestQueueTime:1.0E-3,localTime:1.5,remoteTime:500.0,throttleTime:0.5,"
    "responseQueueTime:0.249,sendTime:2.0,securityProtocol:P,principal:User:A,listener:L"
)
COMMAS = REAL.replace("1.0E-3", "0,001").replace("504.25", "504,250").replace("500.0", "500,000")
NEW = "RequestHeader(apiKey={}, apiVersion=9, clientId=c, correlationId=4) -- "
OLD = "{{api_key={},api_version=2,correlation_id=4,client_id=c}} -- "
FETCH_2_1 = (
    "{replica_id=2,max_wait_time=500,min_bytes=1,max_bytes=9,isolation_level=0,session_id=7,session_epoch=3,topics="
    "[{topic=t-x,partitions=[{partition=1,current_leader_epoch=4,fetch_offset=5,log_start_offset=0,"
    "partition_max_bytes=9}]}],forgotten_topics_data=[{topic=t.y,partitions=[1,2]}]}"
)
HEAD = "throttle_time_ms=0,error_code=0,session_id=7,"
HEADER = "partition=1,error_code=0,high_watermark=3,last_stable_offset=3,log_start_offset=0,aborted_transactions="


def answer(records: str) -> str:
    """Give a Fetch answer of 1.1 to 2.6."""
    body = f"{{partition_header={{{HEADER}null}},record_set={records}}}"
    return f",response:{{{HEAD}responses=[{{topic=t-x,partition_responses=[{body}]}}]}}"


class Form(NamedTuple):
    """A line, and what it says: offsets or bytes asked for, and (error, offset, bytes) answered, by partition."""

    release: str
    body: str
    kind: str
    asked: dict[tuple[str, int], int | None]
    answered: dict[tuple[str, int], tuple[int, int, int | None]] | None = None
    total_us: int = 504_250


FORMS = [
    Form(
        "0.9", "Name: FetchRequest; Version: 1; CorrelationId: 4; ClientId: ReplicaFetcherThread-0-1; ReplicaId: 2; "
        "MaxWait: 500 ms; MinBytes: 1 bytes; RequestInfo: ([t-x,1],PartitionFetchInfo(5,9))" + WHERE + WHOLE_MS,
        FOLLOWER_FETCH, {("t-x", 1): 5}, None, 46_000,
    ),
    Form(
        "0.10.1", "Name: FetchRequest; Version: 3; CorrelationId: 4; ClientId: a; b; ReplicaId: -1; MaxWait: 500 ms; "
        "MinBytes: 1 bytes; MaxBytes:99 bytes; RequestInfo: " + WHERE + WHOLE_MS, OTHER_FETCH, {}, None, 46_000,
    ),
    Form(
        "0.10.1", OLD.format(0) + "{acks=1,timeout=30000,topic_data=[{topic=t-x,data=[{partition=1,record_set="
        "java.nio.HeapByteBuffer[pos=0 lim=634 cap=640]},{partition=2,record_set=null}]}]}" + WHERE + WHOLE_MS,
        PRODUCE, {("t-x", 1): 634, ("t-x", 2): 0}, None, 46_000,
    ),
    Form(
        "0.10.2", OLD.format(1) + "{replica_id=2,max_wait_time=500,min_bytes=1,max_bytes=9,topics=[{topic=t-x,"
        "partitions=[{partition=1,fetch_offset=5,max_bytes=9}]}]}" + WHERE + WHOLE_MS,
        FOLLOWER_FETCH, {("t-x", 1): 5}, None, 46_000,
    ),
    Form(
        "0.11", OLD.format(0) + "{acks=-1,timeout=3,partitionSizes=[t-x-1=670,t.y-0=1]}" + WHERE + COMMAS,
        PRODUCE, {("t-x", 1): 670, ("t.y", 0): 1},
    ),
    Form(
        "1.0", NEW.format("PRODUCE") + "{acks=-1,timeout=3,numPartitions=1},response:{responses=[{topic=t-x,"
        "partition_responses=[{partition=1,error_code=0,base_offset=9,log_append_time=-1}]}],throttle_time_ms=0}"
        + WHERE + REAL, PRODUCE, {}, {("t-x", 1): (0, 9, None)},
    ),
    Form(
        "2.1", NEW.format("FETCH") + FETCH_2_1 + answer("FileRecords(file= /d/t-x-1/0.log, start=100, end=170)")
        + WHERE + REAL, FOLLOWER_FETCH, {("t-x", 1): 5}, {("t-x", 1): (0, 3, 70)},
    ),
    Form("2.1", NEW.format("FETCH") + FETCH_2_1 + answer("[]") + WHERE + REAL,
         FOLLOWER_FETCH, {("t-x", 1): 5}, {("t-x", 1): (0, 3, 0)}),
    Form(
        "2.1, records of an older format", NEW.format("FETCH") + FETCH_2_1
        + answer("[(record=LegacyRecord(offset=5, Record(magic=1, key=0 bytes, value=3 bytes)))]") + WHERE + REAL,
        FOLLOWER_FETCH, {("t-x", 1): 5}, {("t-x", 1): (0, 3, 1)},
    ),
    Form(
        "2.4", NEW.format("FETCH") + FETCH_2_1[:-1] + ",rack_id=r, {topics=[x}}"
        + answer("FileRecords(size=70, file=/d/t-x-1/0.log, start=0, end=70)") + WHERE + REAL,
        FOLLOWER_FETCH, {("t-x", 1): 5}, {("t-x", 1): (0, 3, 70)},
    ),
    Form(
        "2.4", NEW.format("PRODUCE") + "{acks=1,timeout=3,partitionSizes=[t-x-1=7]},response:{responses=[{topic=t-x,"
        "partition_responses=[{partition=1,error_code=87,base_offset=-1,log_append_time=-1,log_start_offset=-1,"
        "record_errors=[{batch_index=0,batch_index_error_message=base_offset=3, bad}],error_message=one, two]}]}],"
        "throttle_time_ms=0}" + WHERE + REAL, PRODUCE, {("t-x", 1): 7}, {("t-x", 1): (87, -1, None)},
    ),
    Form(
        "2.7", NEW.format("FETCH") + "{replica_id=2,max_wait_ms=500,min_bytes=1,max_bytes=9,isolation_level=0,"
        "session_id=7,session_epoch=3,topics=[{topic=t-x,partitions=[{partition=1,current_leader_epoch=4,"
        "fetch_offset=5,last_fetched_epoch=2,log_start_offset=0,partition_max_bytes=9,_tagged_fields={}}],"
        "_tagged_fields={}}],forgotten_topics_data=[],rack_id=,_tagged_fields={}},response:{" + HEAD + "responses=["
        "{topic=t-x,partition_responses=[{" + HEADER + "[{producer_id=1,first_offset=2,_tagged_fields={}}],"
        "preferred_read_replica=-1,record_set=MemoryRecords(size=3, buffer=java.nio.HeapByteBuffer[pos=0 lim=3 cap=3])"
        ",_tagged_fields={0={epoch=3,end_offset=4,_tagged_fields={}}}}],_tagged_fields={}}],_tagged_fields={}}"
        + WHERE + "-0" + REAL + ",clientInformation:C(x)", FOLLOWER_FETCH, {("t-x", 1): 5}, {("t-x", 1): (0, 3, 3)},
    ),
    Form("2.7", NEW.format("METADATA") + "MetadataRequestData(topics=[x])" + WHERE + REAL, OTHER, {}),
    Form(
        "2.8", '{"requestHeader":{"requestApiKey":1},"request":{"replicaId":2,"maxWaitMs":500,"topics":[{"topic":"t-x",'
        '"partitions":[{"partition":1,"currentLeaderEpoch":4,"fetchOffset":5}]}]},"response":{"responses":[{"topic":'
        '"t-x","partitionResponses":[{"partition":1,"errorCode":0,"highWatermark":3,"recordSetSizeInBytes":70}]}]},'
        '"totalTimeMs":504.25,"requestQueueTimeMs":0.001,"localTimeMs":1.5,"remoteTimeMs":500.0}',
        FOLLOWER_FETCH, {("t-x", 1): 5}, {("t-x", 1): (0, 3, 70)},
    ),
]  # fmt: skip

TWO, UNKNOWN = "text request that can be read in two ways", "text request of an unknown form"
GOOD = FORMS[6].body
PRETENDING = {
    GOOD.replace("clientId=c", "clientId=c -- {replica_id=3,topics=[]}"): TWO,
    GOOD.replace("clientId=c", "clientId=;totalTime:1,requestQueueTime:0"): TWO,
    GOOD.replace("clientId=c", "clientId=" + WHERE): TWO,
    FORMS[0].body.replace("ClientId: R", "ClientId: ; ReplicaId: 3; MaxWait: 5 ms; R"): TWO,
    FORMS[9].body.replace("rack_id=r", "rack_id=},response:{error_code=0,responses=[]}"): TWO,
    GOOD.replace("principal:User:A", "principal:User:;totalTime:3"): TWO,
    FORMS[0].body.replace("; RequestInfo: ([t-x,1],PartitionFetchInfo(5,9))", ""): "fetch logged without its "
    "partitions (TRACE is needed)",
    FORMS[0].body.replace("(5,9)", "(5"): UNKNOWN,
    GOOD.replace("topic=t-x", 'topic=t"x'): UNKNOWN,
    GOOD.replace("localTime:1.5,", ""): UNKNOWN,
    GOOD.replace("fetch_offset=5", "fetch_offset=-5"): "offset or partition out of range",
    GOOD[:400]: UNKNOWN,
}


def parsed(spark: SparkSession, bodies: list[str]) -> list[dict[str, Any]]:
    lines = [
        (1, "request.log", number, f"[{stamp(10)}] DEBUG Completed request:{body} (kafka.request.logger)", None, None)
        for number, body in enumerate(bodies)
    ]
    rows = parse_requests(spark.createDataFrame(lines, LINES)).toArrow().to_pylist()
    return sorted(rows, key=lambda row: row["source_line"])


def test_a_line_of_every_release(spark: SparkSession) -> None:
    for form, row in zip(FORMS, parsed(spark, [form.body for form in FORMS]), strict=True):
        assert (row["kind"], row["reason"]) == (form.kind, None), form.release
        assert row["completed_us"] - row["arrival_us"] == form.total_us, form.release
        asked = {
            (t["topic"], p["partition"]): p["recordsSizeInBytes"] if form.kind == PRODUCE else p["fetchOffset"]
            for t in row["topics"] or [] for p in t["partitions"]
        }  # fmt: skip
        assert asked == form.asked, form.release
        if form.kind == PRODUCE:
            answered = {
                (t["topic"], p["index"]): (p["errorCode"], p["baseOffset"], None)
                for t in row["responses"] or [] for p in t["partitionResponses"]
            }  # fmt: skip
        else:
            answered = {
                (t["topic"], p["partitionIndex"]): (p["errorCode"], p["highWatermark"], p["recordsSizeInBytes"])
                for t in row["responses"] or [] for p in t["partitions"]
            }  # fmt: skip
        assert answered == (form.answered or {}), form.release


def test_epochs_sessions_and_divergence(spark: SparkSession) -> None:
    row, newest = parsed(spark, [GOOD, FORMS[11].body])
    assert (row["asked_session"], row["session_epoch"], row["given_session"]) == (7, 3, 7)
    assert row["topics"][0]["partitions"][0]["currentLeaderEpoch"] == 4
    assert row["forgotten"] == [{"topicId": None, "topic": "t.y", "partitions": [1, 2]}]
    assert newest["responses"][0]["partitions"][0]["divergingEpoch"] == {"epoch": 3}


def test_what_pretends_to_be_another_request_is_refused(spark: SparkSession) -> None:
    for row, reason in zip(parsed(spark, list(PRETENDING)), PRETENDING.values(), strict=True):
        assert (row["kind"], row["reason"]) == (REFUSED, reason), row["raw"]
