"""Observed ISR changes from lines of leaders, requests of controllers and records."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from isr_batch.broker_lines.metadata_log import parse_metadata
from isr_batch.ingest.requests.coverage import Stretch
from isr_batch.ingest.terms import isr_changes, leader_epochs
from isr_batch.ingest.terms.parsed_logs import ParsedLogs
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import SECOND, TOPIC_ID, lines, record, record_lines, sources

IDENT = "[Partition t-x-1 broker=1] "
SHRINK = IDENT + "Shrinking ISR from 1,2,3 to 1,2"
CHANGE = "PARTITION_CHANGE_RECORD"
PARTITION = {"topicId": TOPIC_ID, "partitionId": 1}


def term(epoch: int, start: float, isr: list[int] | None = None) -> dict[str, Any]:
    return {"leader_id": 1, "topic": "t-x", "partition_id": 1, "leader_epoch": epoch, "start_us": start * SECOND,
            "in_force_us": start * SECOND, "isr_at_start": isr}  # fmt: skip


def observed(
    known: ParsedLogs, terms: list[dict[str, Any]], begun: list[dict[str, Any]] | None = None, *,
    controller: bool = False, server_log: Sequence[float] = (0, 100),
) -> list[tuple[Any, ...]]:  # fmt: skip
    table = pa.Table.from_pylist(terms, leader_epochs.TERMS)
    shrinks = isr_changes.isr_shrinks_by_term(known, table)
    first_us, last_us = (int(at * SECOND) for at in server_log)
    files = pa.table({"kind": ["server"], "broker_id": [1], "first_us": [first_us], "last_us": [last_us],
                      "informs": [True]})  # fmt: skip
    changes = isr_changes.observed_isr_changes(
        known, shrinks, table, pa.Table.from_pylist(begun or [], leader_epochs.TERMS), files,
        controller_known=controller,
    )  # fmt: skip
    names = ("kind", "replica_id", "made_by", "leader_id", "leader_epoch", "isr_before", "isr_after")
    return sorted((row["at_us"] / SECOND, *(row[name] for name in names)) for row in changes.to_pylist())


def test_an_expand_that_completes_a_reassignment_is_the_former_leaders(sql: ArrowSql) -> None:
    """The controller answers the leader's write with a record that takes the leader away."""
    records = record_lines(
        record(4, 1, "TOPIC_RECORD", name="t-x", topicId=TOPIC_ID),
        record(4, 2, "PARTITION_RECORD", replicas=[1, 2], isr=[1, 2], leader=1, leaderEpoch=0, **PARTITION),
        record(9, 3, CHANGE, replicas=[2, 3, 1], **PARTITION),
        record(12, 4, CHANGE, replicas=[2, 3], isr=[2, 3], leader=2, **PARTITION),
    )
    assert observed(sources(sql, records=records), [term(0, 4)], controller=True) == [
        (12, "expand", 3, "leader", 1, 0, [1, 2], [2, 3]),
        (12, "shrink", 1, "controller", 2, 1, [1, 2], [2, 3]),
    ]


def test_a_topic_made_again_is_no_change_of_the_one_before(sql: ArrowSql) -> None:
    other = "X_8NR7hHQCm-qPWlwcEcKw"
    whole = {"partitionId": 1, "leader": 1, "leaderEpoch": 0}
    records = record_lines(
        record(4, 1, "PARTITION_RECORD", topicId=TOPIC_ID, replicas=[1, 2, 3], isr=[1, 2], **whole),
        record(19, 2, "PARTITION_RECORD", topicId=other, replicas=[1, 3], isr=[1, 3], **whole),
    )
    known = replace(
        sources(sql, records=records), topics=pa.table({"topic_id": [TOPIC_ID, other], "topic": ["t-x", "t-x"]})
    )
    assert not observed(known, [term(0, 4)], controller=True)


def test_without_a_metadata_log_a_topic_made_again_begins_with_its_lines(sql: ArrowSql) -> None:
    leads = (
        f"[Broker id=1] Leader t-x-1 with topic id Some({TOPIC_ID}) starts at leader epoch 0 from offset 0 with "
        "partition epoch 0, high watermark 0, ISR [{}], adding replicas [] and removing replicas [] . Previous "
        "leader None and previous leader epoch was -1."
    )
    deleted = "Log for partition t-x-1 is renamed to /d/t-x-1.37ef-delete and is scheduled for deletion"
    updated = IDENT + "ISR updated to {} and version updated to {}"
    server = lines((8, updated.format("1,2", 1)), (12, deleted), (28, updated.format("1,3", 1)))
    states = lines((5, leads.format("1, 2, 3")), (20, leads.format("1, 2, 3")))
    rows = observed(sources(sql, server, states), [term(0, 5), {**term(0, 20), "made_again": 1}])
    assert [(row[0], *row[1:3]) for row in rows] == [(8, "shrink", 3), (28, "shrink", 2)]


def test_shrinks_are_in_the_term_of_their_time(sql: ArrowSql) -> None:
    server = lines((3, SHRINK), (15, SHRINK), (25, SHRINK))
    terms = pa.Table.from_pylist([term(4, 10), term(6, 20)], leader_epochs.TERMS)
    stretches = [Stretch(1, 0, 12 * SECOND, True), Stretch(1, 15 * SECOND, 30 * SECOND, False)]
    rows = isr_changes.isr_shrinks_by_term(sources(sql, server), terms, stretches).sort_by("at_us").to_pylist()
    assert [(row["leader_epoch"], row["log_stretch"]) for row in rows] == [(-1, 0), (4, 1), (6, 1)]


def test_a_leader_without_a_metadata_log_shows_changes_by_the_versions_that_it_logs(sql: ArrowSql) -> None:
    leads = (
        f"[Broker id=1] Leader t-x-1 with topic id Some({TOPIC_ID}) starts at leader epoch 4 from offset 0 with "
        "partition epoch 4, high watermark 0, ISR [1, 2, 3], adding replicas [] and removing replicas [] . Previous "
        "leader None and previous leader epoch was -1."
    )
    updated = IDENT + "ISR updated to {} and version updated to {}"
    server = lines((31, SHRINK), (31.2, updated.format("1,2", 5)), (40, updated.format("2,1,3", 6)))
    rows = observed(sources(sql, server, lines((5, leads))), [term(4, 5)])
    assert rows == [
        (31, "shrink", 3, "leader", 1, 4, [1, 2, 3], [1, 2]), (40, "expand", 3, "leader", 1, 4, [1, 2], [2, 1, 3])
    ]  # fmt: skip


def test_an_update_is_relative_to_a_term_whose_line_has_no_partition_epoch(sql: ArrowSql) -> None:
    leads = (
        "[Broker id=1] Leader t-x-1 starts at leader epoch {} from offset 0 with high watermark 0 ISR {} adding"
        "Replicas [] removingReplicas []. Previous leader epoch was -1."
    )
    updated = IDENT + "ISR updated to {} and version updated to [{}]"
    server = lines((10, updated.format("1,2,3", 1)), (31, SHRINK), (31.2, updated.format("1,2", 2)),
                   (60, updated.format("1,2", 4)))  # fmt: skip
    terms = lines((5, leads.format(4, "[1,2]")), (50, leads.format(5, "[1]")))
    rows = observed(sources(sql, server, terms), [term(4, 5), term(5, 50)])
    assert rows == [
        (10, "expand", 3, "leader", 1, 4, [1, 2], [1, 2, 3]),
        (31, "shrink", 3, "leader", 1, 4, [1, 2, 3], [1, 2]),
        (60, "expand", 2, "leader", 1, 5, [1], [1, 2]),
    ]


def test_the_first_change_is_relative_to_the_isr_at_the_beginning(sql: ArrowSql) -> None:
    updated = IDENT + "ISR updated to 1,2,3 and version updated to 9"
    begun = term(4, 5, isr=[1, 2])
    rows = observed(sources(sql, lines((40, updated))), [begun], [begun])
    assert rows == [(40, "expand", 3, "leader", 1, 4, [1, 2], [1, 2, 3])]


def test_changes_by_the_controller(sql: ArrowSql) -> None:
    records = parse_metadata(sql, record_lines(
        record(5, 1, "PARTITION_RECORD", **PARTITION, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leaderEpoch=4),
        record(31.1, 2, CHANGE, **PARTITION, isr=[1, 2]),
        record(50, 3, CHANGE, **PARTITION, isr=[2], leader=2),
        record(60, 4, CHANGE, **PARTITION, isr=[2, 1]),
    ))  # fmt: skip
    server = lines((31, SHRINK), (70, SHRINK))
    rows = observed(sources(sql, server, records=records), [term(4, 5)], controller=True)
    assert rows == [
        (31, "shrink", 3, "leader", 1, 4, [1, 2, 3], [1, 2]),
        (50, "shrink", 1, "controller", 2, 5, [1, 2], [2]),
        (60, "expand", 1, "leader", 2, 5, [2], [2, 1]),
        (70, "shrink", 3, "leader", 1, 4, [1, 2, 3], [1, 2]),
    ]


def test_where_server_log_does_not_reach_a_fenced_broker_was_taken_out_by_the_controller(sql: ArrowSql) -> None:
    fenced = record(40, 3, "BROKER_REGISTRATION_CHANGE_RECORD", brokerId=3, fenced="1")
    records = parse_metadata(sql, record_lines(
        record(5, 1, "PARTITION_RECORD", **PARTITION, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leaderEpoch=4),
        record(31, 2, CHANGE, **PARTITION, isr=[1, 3]), fenced, record(40, 4, CHANGE, **PARTITION, isr=[1]),
        record(50, 5, CHANGE, **PARTITION, isr=[2], leader=2),
    ))  # fmt: skip
    silent = sources(sql, records=records)
    printed = sources(sql, lines((70, SHRINK)), records=records)

    def made_by(*server_log: float, known: ParsedLogs = printed) -> list[tuple[float, str]]:
        rows = observed(known, [term(4, 5)], controller=True, server_log=server_log)
        rows = [row for row in rows if row[0] < 70]
        # A replica that is elected from outside the ISR joins it.
        assert [(row[0], row[3]) for row in rows if row[1] == "expand"] == [(50, "controller")]
        return [(row[0], row[3]) for row in rows if row[1] == "shrink"]

    # The leader of 31 s is still the same; that of 50 s was elected.
    assert made_by(60, 100) == [(31, "leader"), (40, "controller"), (50, "controller")]
    assert made_by(0, 100) == [(31, "controller"), (40, "controller"), (50, "controller")]
    # A log without any line of the ISR may be a filtered one.
    assert made_by(0, 100, known=silent) == [(31, "unknown"), (40, "controller"), (50, "controller")]


@pytest.mark.parametrize("printed", [[], [(45, IDENT + "Shrinking ISR from 1,2 to 1")]])
def test_who_removed_a_replica_is_unknown_where_shrinking_lines_were_filtered_out(
    sql: ArrowSql, printed: list[tuple[float, str]]
) -> None:
    """The leader says that it wrote the smaller ISR, and not that it would."""
    updated = IDENT + "ISR updated to {} and version updated to {}"
    server = lines(
        (10, updated.format("1,2,3", 1)), (31, updated.format("1,2", 2)), (40, updated.format("1,2,3", 3)), *printed
    )
    rows = observed(sources(sql, server), [term(4, 5)])
    assert [row[:4] for row in rows if row[0] < 45] == [(31, "shrink", 3, "unknown"), (40, "expand", 3, "leader")]


def test_when_an_isr_write_was_answered(sql: ArrowSql) -> None:
    def answered(
        server: pa.Table, *records: dict[str, Any], states: pa.Table | None = None
    ) -> list[float | None]:  # fmt: skip
        known = sources(sql, server, states, records=parse_metadata(sql, record_lines(*records)))
        shrinks = isr_changes.isr_shrinks_by_term(known, pa.Table.from_pylist([term(4, 5)], leader_epochs.TERMS))
        rows = sorted(shrinks.to_pylist(), key=lambda row: row["at_us"])
        return [row["answered_us"] and row["answered_us"] / SECOND for row in rows]

    updated = IDENT + "ISR updated to {} and version updated to 5"
    assert answered(lines((31, SHRINK))) == [None]
    assert answered(lines((31, SHRINK), (34.5, updated.format("2,1")))) == [34.5]
    # The answer was another: the write failed.
    assert answered(lines((31, SHRINK), (34, updated.format("1,2,3")))) == [None]
    assert answered(lines((31, SHRINK), (45, SHRINK), (45.1, updated.format("1,2")))) == [None, 45.1]
    # In KRaft up to 3.6 a shrink begins a term. Before 2.7, where no answers are logged, a later term is not taken as
    # an answer.
    starts = (
        "[Broker id=1] Leader t-x-1 starts at leader epoch 5 from offset 0 with high watermark 0 ISR [1,2] "
        "addingReplicas [] removingReplicas []. Previous leader epoch was 4."
    )
    begins = lines((31.3, starts))
    assert answered(lines((20, updated.format("1,2,3")), (31, SHRINK)), states=begins) == [31.3]
    assert answered(lines((31, SHRINK)), states=begins) == [None]
    whole = record(5, 1, "PARTITION_RECORD", **PARTITION, replicas=[1, 2, 3], isr=[1, 2, 3], leader=1, leaderEpoch=4)
    assert answered(lines((31, SHRINK)), whole, record(31.2, 2, CHANGE, **PARTITION, isr=[1, 2])) == [None]
    assert answered(lines((31, SHRINK)), whole, record(38, 2, CHANGE, **PARTITION, isr=[1, 2])) == [38]


def test_a_removal_that_a_line_shows_late_has_an_earliest_time(sql: ArrowSql) -> None:
    """Broker 2 led with broker 3 in its ISR and stood still; broker 1 then leads alone, two changes later."""
    leads = (
        f"[Broker id={{}}] Leader t-x-1 with topic id Some({TOPIC_ID}) starts at leader epoch {{}} from offset 0 with "
        "partition epoch {}, high watermark 0, ISR [{}], adding replicas [] and removing replicas [] . Previous "
        "leader None and previous leader epoch was -1."
    )
    for version, earliest_us in ((1, None), (2, 4 * SECOND)):
        before = lines((4, leads.format(2, 0, 0, "2,1,3")), broker=2)
        states = pa.concat_tables([before, lines((65, leads.format(1, 1, version, "1")))])
        known = sources(sql, state_changes=states)
        table = pa.Table.from_pylist([term(1, 65)], leader_epochs.TERMS)
        shrinks = isr_changes.isr_shrinks_by_term(known, table)
        files = pa.table({"kind": ["server"], "broker_id": [1], "first_us": [0], "last_us": [10**9], "informs": [True]})
        changes = isr_changes.observed_isr_changes(
            known, shrinks, table, leader_epochs.TERMS.empty_table(), files, controller_known=False
        )
        found = {row["replica_id"]: (row["at_us"], row["earliest_us"]) for row in changes.to_pylist()}
        assert found == {2: (65 * SECOND, None), 3: (65 * SECOND, earliest_us)}


def test_a_replica_missing_from_the_isr_was_removed_before(sql: ArrowSql) -> None:
    server = lines((20, SHRINK.replace("3 to 1,2", "3 to 1,2,3")), (30, IDENT + "Expanding ISR from 1,3 to 1,3,2"))
    rows = observed(sources(sql, server), [term(4, 5)])
    assert [row[1:4] for row in rows] == [("shrink", 2, "controller"), ("expand", 2, "leader")]
    assert 29.9 < rows[0][0] < rows[1][0] == 30


def test_requests_of_a_controller_before_2_8(sql: ArrowSql) -> None:
    received = (
        "[Broker id=1] Received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=1, leaderEpoch={}, "
        "isr={}, zkVersion=8, replicas=1,2,3, isNew=true) correlation id {} from controller 2 epoch 1 for partition "
        "t-x-1"
    )
    stopped = (
        "[Broker id=1] Stopped fetchers as part of become-leader request from controller 2 epoch 1 with correlation id "
        "{} for partition t-x-1 (last update controller epoch 1)"
    )
    states = lines(
        (5, received.format(4, "1,2,3", 1)), (5.1, stopped.format(1)), (20, received.format(5, "1,3", 2)),
        (20.1, stopped.format(2)),
    )  # fmt: skip
    expand = IDENT + "Expanding ISR from 1,3 to 1,3,2"
    failed = IDENT + "Cached zkVersion 4 not equal to that in zookeeper, skip updating ISR"
    server = lines((30, expand), (30.1, failed), (31, expand), (31.1, failed), (40, expand))
    rows = observed(sources(sql, server, states), [term(4, 5), term(5, 20)])
    # An attempt that failed is a row once.
    assert rows == [
        (20.1, "shrink", 2, "controller", 1, 5, [1, 2, 3], [1, 3]),
        (30, "expand", 2, "leader", 1, 5, [1, 3], [1, 3, 2]),
    ]


def test_how_long_a_dump_of_the_metadata_log_is_complete(sql: ArrowSql) -> None:
    updated = IDENT + "ISR updated to 1,2 and version updated to 5"

    def until(server: pa.Table, *records: dict[str, Any], log_ends: int = 30) -> float | None:
        known = sources(sql, server, records=parse_metadata(sql, record_lines(*records)))
        us = isr_changes.isr_changes_recorded_until(known, log_ends * SECOND)
        return None if us is None else us / SECOND

    change = record(10, 1, CHANGE, **PARTITION, isr=[1])
    assert until(lines()) is None
    assert until(lines(), change) == 30
    assert until(lines((14, updated)), change) == 30
    assert until(lines((20, updated)), change) == 10
    ticks = record(11, 2, "NO_OP_RECORD")
    assert until(lines(), change, ticks) == 30
    assert until(lines(), change, ticks, log_ends=80) == 11
