"""LeaderAndIsr requests in the request log, as brokers of several releases print them."""

from typing import Any

import pyarrow as pa
import pytest

from isr_batch.ingest.requests.leader_and_isr import (
    LEADER_AND_ISR_LINES,
    accepted_requests,
    are_leader_and_isr,
    partly_read_leader_and_isr,
)

TIMES = "from connection 127.0.0.1:9092-127.0.0.1:4-5;totalTime:4.8,requestQueueTime:3.0,localTime:1.5,remoteTime:0.0"
OLD = (
    "Completed request:{api_key=4,api_version=0,correlation_id=2,client_id=2} -- {controller_id=2,controller_epoch=1,"
    "partition_states=[{topic=a.b,partition=1,controller_epoch=1,leader=2,leader_epoch=3,isr=[2,1],zk_version=7,"
    "replicas=[2,1,3]},{topic=a.b,partition=4,controller_epoch=1,leader=1,leader_epoch=0,isr=[1],zk_version=0,"
    f"replicas=[1,2,3]}}],live_leaders=[{{id=1,host=h,port=9092}}]}} {TIMES}"
)
ANSWERED = (
    "Completed request:RequestHeader(apiKey=LEADER_AND_ISR, apiVersion=1, clientId=3, correlationId=1) -- "
    "{controller_id=3,controller_epoch=2,partition_states=[{topic=t,partition=5,controller_epoch=1,leader=1,"
    "leader_epoch=1,isr=[1,3],zk_version=1,replicas=[2,1,3],is_new=false},{topic=t,partition=0,controller_epoch=1,"
    "leader=3,leader_epoch=1,isr=[],zk_version=12,replicas=[1,2,3],is_new=false}],live_leaders=[]},response:"
    "{error_code=0,partitions=[{topic=t,partition=0,error_code=0},{topic=t,partition=5,error_code=11}]} " + TIMES
)
BY_TOPIC = (
    "Completed request:RequestHeader(apiKey=LEADER_AND_ISR, apiVersion=4, clientId=1, correlationId=9) -- "
    "{controller_id=1,controller_epoch=1,broker_epoch=24,topic_states=[{topic_name=x,partition_states=[{"
    "partition_index=0,controller_epoch=1,leader=1,leader_epoch=2,isr=[1,2],zk_version=3,replicas=[1,2],"
    "adding_replicas=[],removing_replicas=[],is_new=true,_tagged_fields={}}],_tagged_fields={}},{topic_name=y,"
    "partition_states=[{partition_index=0,controller_epoch=1,leader=-1,leader_epoch=5,isr=[2],zk_version=4,"
    "replicas=[1,2],adding_replicas=[],removing_replicas=[],is_new=false,_tagged_fields={}}],_tagged_fields={}}],"
    "live_leaders=[],_tagged_fields={}},response:{error_code=0,partition_errors=[{topic_name=x,partition_index=0,"
    "error_code=0,_tagged_fields={}},{topic_name=y,partition_index=0,error_code=0,_tagged_fields={}}],"
    "_tagged_fields={}} " + TIMES
)
JSON = (
    'Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":4,"requestApiVersion":5,"correlationId":1,'
    '"clientId":"2","requestApiKeyName":"LEADER_AND_ISR"},"request":{"controllerId":2,"controllerEpoch":1,'
    '"brokerEpoch":63,"type":0,"topicStates":[{"topicName":"busy","topicId":"HuELyfjkQfyF2dKWXl57OA",'
    '"partitionStates":[{"partitionIndex":0,"controllerEpoch":1,"leader":1,"leaderEpoch":4,"isr":[1,2,3],"zkVersion":6,'
    '"replicas":[1,2,3],"addingReplicas":[],"removingReplicas":[],"isNew":true}]},{"topicName":"idle",'
    '"topicId":"ZY2DXSYIRwWdTvY_BWtC1w","partitionStates":[{"partitionIndex":0,"controllerEpoch":1,"leader":2,'
    '"leaderEpoch":1,"isr":[2],"partitionEpoch":2,"replicas":[2,1,3],"addingReplicas":[],"removingReplicas":[],'
    '"isNew":false}]}],"liveLeaders":[]},"response":{"errorCode":0,"topics":[{"topicId":"HuELyfjkQfyF2dKWXl57OA",'
    '"partitionErrors":[{"partitionIndex":0,"errorCode":11}]},{"topicId":"ZY2DXSYIRwWdTvY_BWtC1w",'
    '"partitionErrors":[{"partitionIndex":0,"errorCode":0}]}]},"totalTimeMs":12.5}'
)
UNGROUPED = (  # by inter.broker.protocol.version up to 2.1
    'Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":4,"requestApiVersion":1,"correlationId":1,'
    '"clientId":"2","requestApiKeyName":"LEADER_AND_ISR"},"request":{"controllerId":2,"controllerEpoch":1,'
    '"ungroupedPartitionStates":[{"topicName":"busy","partitionIndex":0,"controllerEpoch":1,"leader":1,"leaderEpoch":4,'
    '"isr":[1,2,3],"zkVersion":6,"replicas":[1,2,3],"isNew":true}],"liveLeaders":[]},"response":{"errorCode":0,'
    '"partitionErrors":[{"topicName":"busy","partitionIndex":0,"errorCode":0}]},"totalTimeMs":12.5}'
)


def lines_of(*messages: str) -> pa.Table:
    rows = [
        {"broker_id": 1, "source_file": "request.log", "source_line": line, "stamp_us": line * 10, "message": message}
        for line, message in enumerate(messages, 1)
    ]
    return pa.Table.from_pylist(rows, schema=LEADER_AND_ISR_LINES.schema)


def read(*messages: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = accepted_requests(lines_of(*messages)).to_pylist()
    return found


def states(*messages: str) -> list[tuple[Any, ...]]:
    names = ("topic", "partition_id", "leads", "leader_id", "leader_epoch", "isr", "partition_epoch", "replicas")
    return [tuple(row[name] for name in names) for row in read(*messages)]


def test_each_partition_is_a_row() -> None:
    assert states(OLD) == [
        ("a.b", 1, False, 2, 3, [2, 1], 7, [2, 1, 3]),
        ("a.b", 4, True, 1, 0, [1], 0, [1, 2, 3]),
    ]
    assert [(row["source_line"], row["stamp_us"]) for row in read(OLD)] == [(1, 10), (1, 10)]


def test_partitions_are_in_topics_since_2_2() -> None:
    assert states(BY_TOPIC) == [("x", 0, True, 1, 2, [1, 2], 3, [1, 2]), ("y", 0, False, -1, 5, [2], 4, [1, 2])]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (ANSWERED, [("t", 0, False, 3, 1, [], 12, [1, 2, 3])]),
        (JSON, [("idle", 0, False, 2, 1, [2], 2, [2, 1, 3])]),
        (UNGROUPED, [("busy", 0, True, 1, 4, [1, 2, 3], 6, [1, 2, 3])]),
        (UNGROUPED.replace('"partitionIndex":0,"errorCode":0', '"partitionIndex":0,"errorCode":11'), []),
        (ANSWERED.replace("{error_code=0,partitions", "{error_code=11,partitions"), []),
        (ANSWERED.replace("{topic=t,partition=0,error_code=0},", ""), []),
    ],
)
def test_a_partition_counts_if_it_was_answered_without_error(message: str, expected: list[Any]) -> None:
    assert states(message) == expected


def test_without_answers_a_later_epoch_counts() -> None:
    again = OLD.replace("leader_epoch=0", "leader_epoch=1")
    assert [row[1] for row in states(OLD, OLD, again)] == [1, 4, 4]


def test_a_number_that_no_broker_prints_ends_nothing() -> None:
    huge = "9" * 12
    assert [row[1] for row in states(OLD.replace("leader_epoch=3", f"leader_epoch={huge}"))] == [4]
    assert [row[1] for row in states(OLD.replace("isr=[2,1]", f"isr=[2,{huge}]"))] == [4]
    assert states(JSON.replace('"partitionIndex":0', f'"partitionIndex":{huge}')) == []


def test_skipped_lines_are_in_quarantine() -> None:
    every = [OLD, ANSWERED, BY_TOPIC, JSON, UNGROUPED]
    assert partly_read_leader_and_isr(lines_of(*every)).num_rows == 0
    damaged = [OLD.replace("isr=[2,1]", "isr=[2;1]"), BY_TOPIC.replace("leader=-1", "leader=x")]
    damaged += [JSON.replace('"replicas":', '"assigned":')]
    rows = partly_read_leader_and_isr(lines_of(*every, *damaged)).to_pylist()
    assert [(row["source_line"], row["detail"]) for row in rows] == [
        (6, "1 of 2 partitions"), (7, "1 of 2 partitions"), (8, "2 of 2 partitions")
    ]  # fmt: skip


def test_other_requests_are_none() -> None:
    named_so = 'Completed request:{"requestHeader":{"requestApiKey":3,"clientId":"\\"requestApiKey\\":4,"}}'
    text = "Completed request:RequestHeader(apiKey=METADATA, apiVersion=1, clientId=apiKey=LEADER_AND_ISR, x) -- {}"
    lines = [OLD, ANSWERED, BY_TOPIC, JSON, named_so, text, "Completed request:{api_key=40,api_version=1}"]
    assert are_leader_and_isr(pa.array(lines)).to_pylist() == [True] * 4 + [False] * 3
