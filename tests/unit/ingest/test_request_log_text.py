"""Request logs of brokers before 2.8: a line of each form as it is printed, and lines that pretend."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from isr_batch.ingest.requests.request_log import (
    FOLLOWER_FETCH,
    OTHER,
    OTHER_FETCH,
    PRODUCE,
    REFUSED,
    parse_requests,
)
from tests.request_pieces import partitions_of

LINES = pa.schema([
    ("broker_id", pa.int32()), ("source_file", pa.string()), ("source_line", pa.int64()), ("value", pa.string()),
    ("problem", pa.string()), ("detail", pa.string()),
])  # fmt: skip
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
    Form(  # as recorded: records that are read from a file have no text
        "1.0", NEW.format("FETCH") + FETCH_2_1 + answer("org.apache.kafka.common.record.FileRecords@40d84a00")
        + WHERE + REAL, FOLLOWER_FETCH, {("t-x", 1): 5}, {("t-x", 1): (0, 3, 1)},
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
        "2.7, diverging", NEW.format("FETCH") + "{replica_id=2,max_wait_ms=500,min_bytes=1,max_bytes=9,"
        "isolation_level=0,session_id=7,session_epoch=3,topics=[{topic=t-x,partitions=[{partition=1,current_leader_epoch=4,"
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
GOOD = next(form.body for form in FORMS if form.release == "2.1")
PRETENDING = {
    GOOD.replace("clientId=c", "clientId=c -- {replica_id=3,topics=[]}"): TWO,
    GOOD.replace("clientId=c", "clientId=;totalTime:1,requestQueueTime:0"): TWO,
    GOOD.replace("clientId=c", "clientId=" + WHERE): TWO,
    FORMS[0].body.replace("ClientId: R", "ClientId: ; ReplicaId: 3; MaxWait: 5 ms; R"): TWO,
    next(form.body for form in FORMS if form.release == "2.4").replace(
        "rack_id=r", "rack_id=},response:{error_code=0,responses=[]}"
    ): TWO,
    GOOD.replace("principal:User:A", "principal:User:;totalTime:3"): TWO,
    FORMS[0].body.replace("; RequestInfo: ([t-x,1],PartitionFetchInfo(5,9))", ""): "fetch logged without its "
    "partitions (TRACE is needed)",
    FORMS[0].body.replace("(5,9)", "(5"): UNKNOWN,
    GOOD.replace("topic=t-x", 'topic=t"x'): UNKNOWN,
    GOOD.replace("localTime:1.5,", ""): UNKNOWN,
    GOOD.replace("fetch_offset=5", "fetch_offset=-5"): "offset or partition out of range",
    GOOD[:400]: UNKNOWN,
}


def parsed(bodies: Sequence[str]) -> pa.RecordBatch:
    lines = [
        {"broker_id": 1, "source_file": "request.log", "source_line": number,
         "value": f"[2026-11-21 16:30:10,000] DEBUG Completed request:{body} (kafka.request.logger)"}
        for number, body in enumerate(bodies)
    ]  # fmt: skip
    return parse_requests(pa.RecordBatch.from_pylist(lines, LINES))


def test_a_line_of_every_release() -> None:
    rows = parsed([form.body for form in FORMS])
    for form, row, partitions in zip(FORMS, rows.to_pylist(), partitions_of(rows), strict=True):
        assert (row["kind"], row["reason"]) == (form.kind, None), form.release
        assert row["completed_us"] - row["arrival_us"] == form.total_us, form.release
        if row["partitions"] is None:
            assert form.kind in {OTHER, OTHER_FETCH}, form.release
            continue
        asked = {key: numbers[-1] for key, numbers in partitions["asked"].items()}
        assert asked == form.asked, form.release
        answered = form.answered or {}
        if form.kind == PRODUCE:
            assert partitions["answered"] == {key: numbers[:2] for key, numbers in answered.items()}, form.release
        else:
            errors = {key: -1 if "diverging" in form.release else numbers[0] for key, numbers in answered.items()}
            expected = {key: (errors[key], *numbers[1:]) for key, numbers in answered.items()}
            assert partitions["answered"] == expected, form.release


def test_epochs_and_sessions() -> None:
    rows = parsed([GOOD])
    (row,), (partitions,) = rows.to_pylist(), partitions_of(rows)
    assert (row["asked_session"], row["session_epoch"], row["given_session"]) == (7, 3, 7)
    assert (row["api_version"], row["correlation_id"], row["client_id"]) == (9, 4, "c")
    assert partitions["asked"] == {("t-x", 1): (4, 5)}
    assert partitions["forgotten"] == {("t.y", 1): (), ("t.y", 2): ()}


def test_sessions_as_1_1_to_2_0_spell_them() -> None:
    old = GOOD.replace("session_epoch=", "epoch=").replace("forgotten_topics_data=", "forgetten_topics_data=")
    assert "session_epoch" not in old
    assert "forgetten_topics_data=[{" in old
    rows = parsed([old])
    assert rows["session_epoch"].to_pylist() == [3]
    assert partitions_of(rows)[0]["forgotten"] == {("t.y", 1): (), ("t.y", 2): ()}


def test_a_fetch_that_should_have_a_session_epoch_is_refused_without_one() -> None:
    without = GOOD.replace("session_epoch=3,", "")
    rows = parsed([without, without.replace("apiVersion=9", "apiVersion=6")]).to_pylist()
    assert rows[0]["reason"] == "fetch of version 7 or later without a readable session epoch"
    assert (rows[1]["kind"], rows[1]["reason"]) == (FOLLOWER_FETCH, None)


def test_a_disguised_request_is_refused() -> None:
    for row, reason in zip(parsed(list(PRETENDING)).to_pylist(), PRETENDING.values(), strict=True):
        assert (row["kind"], row["reason"]) == (REFUSED, reason), row["raw"]


def test_a_line_that_cannot_be_used_has_its_first_fault_as_the_reason() -> None:
    two = GOOD.replace("clientId=c", "clientId=;totalTime:1,requestQueueTime:0")
    lines = [f"[2026-11-21 16:30:10,000] DEBUG Completed request:{GOOD} (k)[x] DEBUG Completed request:{{}}",
             f"[2026-13-21 16:30:10,000] DEBUG Completed request:{two}",
             f"[1926-11-21 16:30:10,000] DEBUG Completed request:{two}",
             f"[1926-11-21 16:30:10,000] DEBUG Completed request:{GOOD}"]  # fmt: skip
    batch = pa.RecordBatch.from_pylist([{"source_line": n, "value": text} for n, text in enumerate(lines)], LINES)
    rows = parse_requests(batch)
    assert rows.column("reason").to_pylist() == [
        "two requests in one line", "no readable time stamp", "time out of range", "time out of range",
    ]  # fmt: skip
