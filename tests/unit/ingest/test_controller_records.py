"""The metadata log's records about leadership: eligible leader replicas, elections, settings, unclean restarts."""

from typing import Any

import pyarrow as pa

from isr_batch.broker_lines import metadata_log
from isr_batch.ingest.folder.partition_listing import Listed
from isr_batch.ingest.terms.controller_records import controller_records
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import SECOND, TOPIC_ID, lines, record, record_lines, sources

PARTITION = {"topicId": TOPIC_ID, "partitionId": 1}
WHOLE, CHANGE = "PARTITION_RECORD", "PARTITION_CHANGE_RECORD"
BEGINS = record(1, 10, WHOLE, **PARTITION, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leaderEpoch=4)


def of_records(sql: ArrowSql, *records: dict[str, Any], state_changes: pa.Table | None = None) -> list[dict[str, Any]]:
    parsed = metadata_log.parse_metadata(sql, record_lines(*records))
    found = controller_records(sources(sql, state_changes=state_changes, records=parsed))
    return found.sort_by([("record_us", "ascending"), ("record_offset", "ascending")]).to_pylist()  # type: ignore[no-any-return]


def shown(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_a_record_names_only_its_changes(sql: ArrowSql) -> None:
    rows = of_records(
        sql, BEGINS,
        record(2, 11, CHANGE, **PARTITION, isr=[1], eligibleLeaderReplicas=[2, 3]),
        record(3, 12, CHANGE, **PARTITION, leader=1),
        record(3, 12, CHANGE, **PARTITION, leader=1),  # the same, from another copy
        record(4, 13, CHANGE, **PARTITION, isr=[1, 2], eligibleLeaderReplicas=[]),
    )  # fmt: skip
    assert shown(rows, "kind", "leader_id", "leader_epoch", "isr", "elr", "election") == [
        ("partition", 1, 4, [1, 2, 3], [], None),
        ("partition", 1, 4, [1], [2, 3], None),
        ("partition", 1, 5, [1], [2, 3], None),
        ("partition", 1, 5, [1, 2], [], None),
    ]


def test_kinds_of_elections(sql: ArrowSql) -> None:
    rows = of_records(
        sql, BEGINS,
        record(2, 11, CHANGE, **PARTITION, isr=[2, 3], leader=2),
        record(3, 12, CHANGE, **PARTITION, isr=[], eligibleLeaderReplicas=[2, 3], leader=-1, lastKnownElr=[2]),
        record(4, 13, CHANGE, **PARTITION, isr=[3], eligibleLeaderReplicas=[2], leader=3, lastKnownElr=[]),
        record(5, 14, CHANGE, **PARTITION, isr=[], eligibleLeaderReplicas=[], leader=-1, lastKnownElr=[3]),
        record(6, 15, CHANGE, **PARTITION, isr=[3], leader=3, lastKnownElr=[], leaderRecoveryState=1),
        record(7, 16, CHANGE, **PARTITION, leaderRecoveryState=0),
        record(8, 17, CHANGE, **PARTITION, isr=[1], leader=1, leaderRecoveryState=1),
    )  # fmt: skip
    assert shown(rows[1:], "election", "leader_epoch", "last_known_elr", "leader_recovery_state") == [
        ("in_sync", 5, [], 0), ("nobody", 6, [2], 0), ("eligible", 7, [], 0), ("nobody", 8, [3], 0),
        ("last_known_leader", 9, [], 1), (None, 9, [], 0), ("unclean", 10, [], 1),
    ]  # fmt: skip


def test_a_clear_empties_the_elr_of_a_topic_or_of_all(sql: ArrowSql) -> None:
    shrinks = record(2, 11, CHANGE, **PARTITION, isr=[1], eligibleLeaderReplicas=[2])
    for topic, after in (("t-x", []), ("", []), ("other", [2])):
        rows = of_records(
            sql, BEGINS, shrinks, record(3, 12, "CLEAR_ELR_RECORD", topicName=topic),
            record(4, 13, CHANGE, **PARTITION, leader=1),
        )  # fmt: skip
        assert rows[-1]["elr"] == after
        assert [row["kind"] for row in rows] == ["partition", "partition", *["cleared"] * (not after), "partition"]


def test_features_and_min_isr_as_they_are_set(sql: ArrowSql) -> None:
    config = {"name": "min.insync.replicas"}
    rows = of_records(
        sql,
        record(1, 1, "FEATURE_LEVEL_RECORD", name="metadata.version", featureLevel=27),
        record(1, 2, "FEATURE_LEVEL_RECORD", name="eligible.leader.replicas.version", featureLevel=1),
        record(1, 3, "FEATURE_LEVEL_RECORD", name="group.version", featureLevel=1),
        record(2, 4, "CONFIG_RECORD", **config, resourceType=4, resourceName="", value="2"),
        record(2, 5, "CONFIG_RECORD", **config, resourceType=4, resourceName="7", value="3"),
        record(3, 6, "CONFIG_RECORD", **config, resourceType=2, resourceName="t-x", value="3"),
        record(4, 7, "CONFIG_RECORD", **config, resourceType=2, resourceName="t-x", value=None),
    )
    assert shown(rows, "kind", "topic", "value") == [
        ("metadata_version", None, 27), ("elr_version", None, 1), ("min_isr", None, 2), ("min_isr", "t-x", 3),
        ("min_isr_in_force", "t-x", 3), ("min_isr", "t-x", None), ("min_isr_in_force", "t-x", 2),
    ]  # fmt: skip


def test_a_broker_that_registers_again_without_a_controlled_shutdown_may_have_lost_records(sql: ArrowSql) -> None:
    register, change = "REGISTER_BROKER_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD"
    rows = of_records(
        sql,
        record(1, 1, register, brokerId=7, incarnationId="a"),
        record(2, 2, register, brokerId=7, incarnationId="a"),  # in a snapshot
        record(3, 3, change, brokerId=7, inControlledShutdown="1"),
        record(4, 4, register, brokerId=7, incarnationId="b"),
        record(5, 5, change, brokerId=7, fenced="1"),
        record(6, 6, register, brokerId=7, incarnationId="c"),
    )
    assert shown(rows, "kind", "broker_id", "record_us") == [("unclean_restart", 7, 6 * SECOND)]


def test_records_from_a_leaders_line(sql: ArrowSql) -> None:
    line = (
        "[Broker id=1] Skipped the become-leader state change for t-x-1 with topic id Some(QOGIGkfUTjeQvN1wX98d01), "
        "partition registration PartitionRegistration(replicas=[1, 2, 3], directories=[AA, AA, AA], isr=[1], "
        "removingReplicas=[], addingReplicas=[], elr=[2, 3], lastKnownElr=[], leader=1, "
        "leaderRecoveryState=RECOVERED, leaderEpoch=4, partitionEpoch=9) and isNew=false since it is already the "
        "leader with leader epoch 4. Current high watermark 5, start offset 0, current leader epoch start 0, "
        "partition epoch 8"
    )
    (row,) = of_records(sql, state_changes=lines((3, line)))
    names = ("kind", "topic", "partition_id", "broker_id", "leader_id", "leader_epoch", "assigned", "isr", "elr")
    assert shown([row], *names) == [("noted", "t-x", 1, 1, 1, 4, [1, 2, 3], [1], [2, 3])]


def test_a_listing_is_in_effect_from_the_first_term(sql: ArrowSql) -> None:
    listed = [Listed("t-x", 1, -1, (1, 2, 3), (), (2, 3), (1,)), Listed("t-x", 2, 1, (1, 2), (1,))]
    (row,) = controller_records(sources(sql), listed, 5 * SECOND).to_pylist()
    names = ("kind", "record_us", "topic", "partition_id", "leader_id", "assigned", "isr", "elr", "last_known_elr")
    assert shown([row], *names) == [("listed", 5 * SECOND, "t-x", 1, -1, [1, 2, 3], [], [2, 3], [1])]
