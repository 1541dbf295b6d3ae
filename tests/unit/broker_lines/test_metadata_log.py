"""Records of the metadata log: states of partitions and brokers, snapshots, and settings."""

import pytest

from isr_batch.broker_lines import metadata_log
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import SECOND, TOPIC_ID, record, record_lines, sources

PARTITION = {"topicId": TOPIC_ID, "partitionId": 1}
WHOLE, CHANGE = "PARTITION_RECORD", "PARTITION_CHANGE_RECORD"


def test_a_record_with_a_leader_begins_a_leader_epoch(sql: ArrowSql) -> None:
    records = metadata_log.parse_metadata(sql, record_lines(
        record(1, 10, WHOLE, **PARTITION, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leaderEpoch=4),
        record(2, 11, CHANGE, **PARTITION, isr=[1, 3]),
        record(3, 12, CHANGE, **PARTITION, isr=[3], leader=3),
        record(3, 12, CHANGE, **PARTITION, isr=[3], leader=3),  # the same, from another copy
        record(4, 13, CHANGE, **PARTITION, replicas=[3, 4]),
        record(5, 14, WHOLE, **PARTITION, replicas=[3, 4], isr=[4], leader=4, leaderEpoch=9),
    ))  # fmt: skip
    history = metadata_log.metadata_partitions(sql, records, sources(sql).topics).sort_by("position").to_pylist()
    names = ("topic", "leader_id", "leader_epoch", "replicas", "isr", "at_us", "source_line")
    assert [tuple(row[name] for name in names) for row in history] == [
        ("t-x", 1, 4, [1, 2, 3], [1, 2, 3], SECOND, 1),
        ("t-x", 1, 4, [1, 2, 3], [1, 3], 2 * SECOND, 2),
        ("t-x", 3, 5, [1, 2, 3], [3], 3 * SECOND, 3),
        ("t-x", 3, 5, [3, 4], [3], 4 * SECOND, 5),
        ("t-x", 4, 9, [3, 4], [4], 5 * SECOND, 6),
    ]


def test_before_the_first_whole_record_leader_and_epoch_are_unknown(sql: ArrowSql) -> None:
    records = metadata_log.parse_metadata(sql, record_lines(
        record(1, 10, CHANGE, **PARTITION, isr=[1]), record(2, 11, CHANGE, **PARTITION, leader=2)
    ))  # fmt: skip
    history = metadata_log.metadata_partitions(sql, records, sources(sql).topics).sort_by("position").to_pylist()
    assert [(row["leader_id"], row["leader_epoch"], row["isr"]) for row in history] == [(-1, -1, [1]), (2, -1, [1])]


def test_records_of_a_snapshot_get_its_offset_and_time(sql: ArrowSql) -> None:
    headers = [
        {"message": "Snapshot end offset: 900, epoch: 1"},
        {"message": '| offset: 0 SnapshotHeader {"version":0,"lastContainedLogTimestamp":7000}'},
    ]
    rows = metadata_log.parse_metadata(sql, record_lines(*headers, record(1, 3, "NO_OP_RECORD"))).to_pylist()
    assert [(row["record_offset"], row["at_us"], row["type"]) for row in rows] == [(899, 7 * SECOND, "NO_OP_RECORD")]


def test_a_record_that_cannot_be_parsed_is_kept_as_text(sql: ArrowSql) -> None:
    bad = {"message": "| offset: 1 payload: {" + "x" * 600, "malformed": True}
    whole_file = {"source_line": None, "problem": "binary file"}
    rows = metadata_log.parse_metadata(sql, record_lines(bad, whole_file, {"message": "a header"})).to_pylist()
    assert sorted((row["malformed"], row["problem"], len(row["raw"] or "")) for row in rows) == [
        (False, "binary file", 0), (True, None, 500)
    ]  # fmt: skip


def test_the_last_setting_of_a_topic_and_of_brokers_counts(sql: ArrowSql) -> None:
    config = {"name": "min.insync.replicas"}
    records = metadata_log.parse_metadata(sql, record_lines(
        record(1, 1, "CONFIG_RECORD", **config, resourceType=2, resourceName="t-x", value="3"),
        record(1, 2, "CONFIG_RECORD", **config, resourceType=2, resourceName="t-x", value="1"),
        record(1, 3, "CONFIG_RECORD", **config, resourceType=4, resourceName="", value="2"),
        record(1, 4, "CONFIG_RECORD", **config, resourceType=4, resourceName="7", value="many"),
        record(1, 5, "CONFIG_RECORD", name="other", resourceType=2, resourceName="t-x", value="9"),
        record(1, 6, "CONFIG_RECORD", **config, resourceType=2, resourceName="gone", value="2"),
        record(1, 7, "CONFIG_RECORD", **config, resourceType=2, resourceName="gone", value=None),
    ))  # fmt: skip
    found = metadata_log.metadata_min_isr(sql, records).to_pylist()
    assert {tuple(row.values()) for row in found} == {("t-x", None, 1), (None, "", 2)}


@pytest.mark.parametrize(
    ("kind", "data", "found"),
    [
        ("REGISTER_BROKER_RECORD", {"brokerId": 7}, ["fenced"]),
        ("REGISTER_BROKER_RECORD", {"brokerId": 7, "fenced": "false"}, []),
        ("FENCE_BROKER_RECORD", {"id": 7}, ["fenced"]),
        ("UNFENCE_BROKER_RECORD", {"id": 7}, ["unfenced"]),
        ("BROKER_REGISTRATION_CHANGE_RECORD", {"brokerId": 7, "fenced": "1"}, ["fenced"]),
        ("BROKER_REGISTRATION_CHANGE_RECORD", {"brokerId": 7, "fenced": "-1"}, ["unfenced"]),
        ("BROKER_REGISTRATION_CHANGE_RECORD", {"brokerId": 7, "inControlledShutdown": "1", "fenced": "1"},
         ["fenced", "shutting_down"]),
        ("NO_OP_RECORD", {}, []),
    ],
)  # fmt: skip
def test_states_of_brokers(sql: ArrowSql, kind: str, data: dict[str, object], found: list[str]) -> None:
    records = metadata_log.parse_metadata(sql, record_lines(record(2, 1, kind, **data)))
    rows = metadata_log.metadata_brokers(sql, records).to_pylist()
    assert [(row["broker_id"], row["at_us"]) for row in rows] == [(7, 2 * SECOND)] * len(found)
    assert sorted(row["kind"] for row in rows) == found
