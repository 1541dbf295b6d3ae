"""Shrinks from server.log alone: every form of line, what was behind, when the replica was back, what was written."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.broker_lines.unread import MUST_BE_READ, unread_lines
from isr_batch.evidence.evidence_table import SCHEMA, evidence_rows
from tests.log_lines import SERVER_LOG_ONLY, epoch_ms, evidence_table, found_in, of_brokers, of_folder

NOT_LOGGED = (None, None)


def rows(lines: pa.Table) -> list[dict[str, Any]]:
    table = evidence_table(lines, "c")
    assert table.schema == SCHEMA
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_server_log_of_two_brokers_gives_each_shrink_with_lag_records_and_return() -> None:
    found = rows(of_folder(SERVER_LOG_ONLY))
    assert [
        (f"{row['change_time']:%H:%M:%S.%f}"[:-3], f"{row['topic']}-{row['partition_id']}", row["leader_id"],
         row["replica_id"], row["lag_ms"], row["records_behind"], row["returned_ms"], row["returned_source"])
        for row in sorted(found, key=lambda row: (row["leader_id"], row["source_line"], row["replica_id"]))
    ] == [
        ("16:30:51.034", "busy-0", 1, 2, 5103, 1, 215, "exact"),
        ("16:30:51.034", "busy-0", 1, 3, 5102, 1, 15326, "at_most"),
        ("16:31:06.360", "busy-0", 1, 2, 4378, 1, 3738, "exact"),
        ("16:31:06.361", "bursty-3", 1, 2, 4379, 249, None, None),
        ("16:31:06.361", "sparse-3", 1, 2, 4379, 1, 3737, "exact"),
        ("16:31:06.361", "busy-3", 1, 2, 4379, 1, 3737, "exact"),
        ("16:31:06.361", "bursty-0", 1, 2, 4379, 249, 3737, "exact"),
        ("16:31:08.360", "sparse-0", 1, 2, 6378, 1, 1738, "exact"),
        ("16:30:50.618", "sparse-4", 2, 1, 4687, 1, 462, "exact"),
        ("16:30:50.666", "busy-4", 2, 1, 4735, 1, None, None),
        ("16:30:50.666", "busy-1", 2, 1, 4735, 1, None, None),
    ]  # fmt: skip
    assert found == sorted(found, key=lambda row: row["change_time"])


def test_without_shrinking_lines_nothing_is_attributed_to_the_controller() -> None:
    lines = of_folder(SERVER_LOG_ONLY)
    filtered = lines.filter(pc.invert(pc.match_substring(lines["message"], "Shrinking ISR")))
    assert filtered.num_rows < lines.num_rows
    found = rows(filtered)
    assert found
    assert {row["made_by"] for row in found} == {"unknown"}


def test_server_log_of_two_brokers_gives_the_drops_of_each_check() -> None:
    found = rows(of_folder(SERVER_LOG_ONLY))
    checks = {
        (row["leader_id"], row["check_replicas"], row["check_partitions"], row["check_followers"], row["storm_time"])
        for row in found
    }
    first = datetime.fromisoformat("2026-11-21 16:30:50.618+00:00")
    second = datetime.fromisoformat("2026-11-21 16:31:06.360+00:00")
    assert checks == {(2, 3, 3, 1, first), (1, 2, 1, 2, first), (1, 5, 5, 1, second), (1, 1, 1, 1, second)}
    under = [(row["under_min_isr"], row["under_min_isr_ms"]) for row in found if row["isr_after"] == [1]]
    assert under == [(True, 215), (True, 215)]
    assert {row["replica_lag_time_max_ms"] for row in found} == {4000}


@pytest.mark.parametrize(
    ("line", "offsets"),
    [
        ("Partition [my-topic,3] on broker 1: Shrinking ISR for partition [my-topic,3] from 1,2,3 to 1", NOT_LOGGED),
        ("Partition [my-topic,3] on broker 1: Shrinking ISR for partition my-topic-3 from 1,2,3 to 1", NOT_LOGGED),
        ("[Partition my-topic-3 broker=1] Shrinking ISR for partition [my-topic,3] from 1,2,3 to 1", NOT_LOGGED),
        ("[Partition my-topic-3 broker=1] Shrinking ISR from 1,2,3 to 1", NOT_LOGGED),
        (
            ("[Partition my-topic-3 broker=1] Shrinking ISR from 1,2,3 to 1. Leader: (highWatermark: 7, endOffset: 9). "
            "Out of sync replicas: (brokerId: 2, endOffset: 7) (brokerId: 3, endOffset: -1)."), (2, None),
        ),
        (
            ("[Partition my-topic-3 broker=1] Shrinking ISR from 1,2,3 to 1. Leader: (highWatermark: 7, endOffset: 9). "
            "Out of sync replicas: (brokerId: 2, endOffset: unknown) (brokerId: 3, endOffset: 9)."), (None, 0),
        ),
        (
            ("[Partition my-topic-3 broker=1] Shrinking ISR from 1,2,3 to 1. Leader: (highWatermark: 7, endOffset: 9). "
            "Out of sync replicas: (brokerId: 2, endOffset: 8, lastCaughtUpTimeMs: 1795276795000) "
            "(brokerId: 3, endOffset: unknown, lastCaughtUpTimeMs: unknown)."), (1, None),
        ),
    ],
)  # fmt: skip
def test_every_release_prints_a_shrink_that_is_read(line: str, offsets: tuple[int | None, int | None]) -> None:
    two, three = rows(of_brokers(b1=[(0, line)]))
    assert [two["replica_id"], three["replica_id"]] == [2, 3]
    for row in (two, three):
        assert (row["topic"], row["partition_id"], row["leader_id"]) == ("my-topic", 3, 1)
        assert (row["isr_before"], row["isr_after"], row["made_by"]) == ([1, 2, 3], [1], "leader")
        assert row["evidence_lines"] == ["b1/server.log:1"]
    assert (two["records_behind"], three["records_behind"]) == offsets
    assert two["lag_ms"] == (5000 if "lastCaughtUp" in line else None)
    assert three["lag_ms"] is None


def test_a_shrinking_line_of_an_unknown_form_is_listed() -> None:
    lines = of_brokers(b1=[(0, "[Partition t-0 broker=1] Shrinking ISR to 1")])
    with log_sql() as sql:
        assert unread_lines(sql, lines, MUST_BE_READ[0])["source_line"].to_pylist() == [1]
    assert rows(lines) == []


NAMES = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
FORMS = (
    "Partition [{topic},{p}] on broker {leader}: Shrinking ISR for partition [{topic},{p}] from {before} to {after}",
    "[Partition {topic}-{p} broker={leader}] Shrinking ISR from {before} to {after}",
    (
        "[Partition {topic}-{p} broker={leader}] Shrinking ISR from {before} to {after}. Leader: (highWatermark: 1, "
        "endOffset: 2). Out of sync replicas: {out}."
    ),
)


@settings(max_examples=15, deadline=None)  # many lines at once: the queries of a log of one line take 0.2 s
@given(
    st.lists(st.tuples(
        NAMES, st.integers(0, 999), st.sets(st.integers(0, 20), min_size=2, max_size=6), st.sampled_from(FORMS),
        st.integers(0, 100_000), st.data(),
    ), max_size=40)
)  # fmt: skip
def test_a_shrinking_line_gives_exactly_the_replicas_that_it_drops(
    given_lines: list[tuple[str, int, set[int], str, int, st.DataObject]],
) -> None:
    lines, expected = [], []
    for topic, partition, isr, form, at_s, data in given_lines:
        leader = min(isr)
        dropped = data.draw(st.sets(st.sampled_from(sorted(isr - {leader})), min_size=1))
        after = isr - dropped
        out = " ".join(f"(brokerId: {replica}, endOffset: 1)" for replica in sorted(dropped))
        text = form.format(
            topic=topic, p=partition, leader=leader, before=",".join(map(str, isr)), after=",".join(map(str, after)),
            out=out,
        )  # fmt: skip
        lines.append((at_s, text))
        expected += [(len(lines), topic, partition, leader, replica) for replica in dropped]
    found = [row for row in rows(of_brokers(b1=lines)) if row["made_by"] == "leader"]
    assert sorted(
        (row["source_line"], row["topic"], row["partition_id"], row["leader_id"], row["replica_id"]) for row in found
    ) == sorted(expected)


def shrink(*after: int, before: tuple[int, ...] = (1, 2, 3)) -> str:
    return f"[Partition t-0 broker=1] Shrinking ISR from {','.join(map(str, before))} to {','.join(map(str, after))}"


def updated(*isr: int, epoch: int, end: str = " ") -> str:
    return f"[Partition t-0 broker=1] ISR updated to {','.join(map(str, isr))}{end} and version updated to {epoch}"


def returned(*lines: tuple[float, str]) -> list[tuple[int | None, str | None]]:
    return [(row["returned_ms"], row["returned_source"]) for row in rows(of_brokers(b1=list(lines)))]


def test_the_first_line_with_the_replica_in_the_isr_shows_its_return() -> None:
    one = (0, shrink(1, 2))
    assert returned(one) == [(None, None)]
    assert returned(one, (3, "[Partition t-0 broker=1] Expanding ISR from 1,2 to 1,2,3")) == [(3000, "exact")]
    assert returned(one, (1, updated(1, 2, epoch=5)), (3, updated(1, 2, 3, epoch=6))) == [(3000, "exact")]
    assert returned(one, (90, shrink(1, 3))) == [(90_000, "at_most"), (None, None)]
    assert returned(one, (3, "[Partition t-1 broker=1] Expanding ISR from 1,2 to 1,2,3")) == [(None, None)]


def test_a_state_that_the_leader_hears_of_late_is_no_return() -> None:
    stayed = (
        "[Broker id=1] Skipped the become-leader state change for t-0 with topic id Some(x) and partition state "
        "LeaderAndIsrPartitionState(topicName='t', partitionIndex=0, controllerEpoch=-1, leader=1, leaderEpoch=0, "
        "isr=[1, 2, 3], partitionEpoch={}, replicas=[1, 2, 3])"
    )
    known = (0, updated(1, 2, 3, epoch=5))
    assert returned(known, (1, shrink(1, 2)), (2, stayed.format(5))) == [(None, None)]
    assert returned(known, (1, shrink(1, 2)), (2, stayed.format(7))) == [(1000, "exact")]


def test_a_line_of_a_later_leader_is_an_upper_bound_of_a_return_in_its_term() -> None:
    """Broker 3 was back and led when broker 1 returned: only that last change is in a line."""
    created = (0, "Created log for partition t-0 in /d/t-0 with properties {min.insync.replicas=2}")
    dropped = [created, (9, shrink(2, 1)), (9.1, updated(2, 1, epoch=1))]
    other = updated(3, 2, 1, epoch=4).replace("broker=1", "broker=3")
    assert returned(*dropped, (50, other)) == [(41_000, "at_most")]
    assert returned(*dropped, (50, updated(3, 2, 1, epoch=2))) == [(41_000, "exact")]
    assert returned(*dropped, (50, updated(3, 2, 1, epoch=4))) == [(41_000, "at_most")]
    began = updated(1, 2, epoch=3).replace("broker=1", "broker=2")
    assert returned(*dropped, (20, began), (50, other.replace("broker=3", "broker=2"))) == [(41_000, "exact")]
    expand = "[Partition t-0 broker=2] Expanding ISR from {} to 1,2,3"
    assert returned(*dropped, (50, expand.format("1,2"))) == [(41_000, "exact")]
    assert returned(*dropped, (50, expand.format("2,3"))) == [(41_000, "at_most")]
    row, _ = rows(of_brokers(b1=[created, (9, shrink(1)), (50, other)]))
    assert (row["under_min_isr_ms"], row["under_min_isr_source"]) == (41_000, "at_most")


def test_time_under_min_isr() -> None:
    created = (
        0,
        "Created log for partition t-0 in /d/t-0 with properties {cleanup.policy=delete, min.insync.replicas=2}",
    )
    expand = "[Partition t-0 broker=1] Expanding ISR from {} to {}"
    two, three = rows(of_brokers(b1=[
        created, (9, shrink(1)), (10, expand.format("1", "1,3")), (12, expand.format("1,3", "1,3,2")),
    ]))  # fmt: skip
    assert (two["returned_ms"], three["returned_ms"]) == (3000, 1000)
    for row in (two, three):
        assert (row["min_insync_replicas"], row["under_min_isr"], row["under_min_isr_ms"]) == (2, True, 1000)
        assert row["under_min_isr_source"] == "exact"
    (one,) = rows(of_brokers(b1=[created, (9, shrink(1, 2))]))
    assert (one["under_min_isr"], one["under_min_isr_ms"]) == (False, None)
    (unknown,) = rows(of_brokers(b1=[(9, shrink(1, 2))]))
    assert (unknown["min_insync_replicas"], unknown["under_min_isr"]) == (None, None)


def test_a_failed_write_and_its_retries() -> None:
    failed = "[Partition t-0 broker=1] Cached zkVersion [4] not equal to that in zookeeper, skip updating ISR"
    found = rows(of_brokers(b1=[(at, line) for start in (0, 5, 10) for at, line in (
        (start, shrink(1)), (start + 0.01, failed)
    )]))  # fmt: skip
    assert [(row["source_line"], row["replica_id"], row["retry"]) for row in found] == [
        (1, 2, False), (1, 3, False), (3, 2, True), (3, 3, True), (5, 2, True), (5, 3, True)
    ]  # fmt: skip
    assert {row["write_outcome"] for row in found} == {"failed"}
    assert [row["failing_ms"] for row in found] == [10_010, 10_010, None, None, None, None]
    assert {row["returned_ms"] for row in found} == {None}
    assert [(row["suspect"], row["strength"]) for row in found[:2]] == [("leader", "strong")] * 2


def test_an_expand_that_the_controller_refuses_is_no_failed_shrink() -> None:
    refused = "[Partition t-0 broker=1] Failed to alter partition to Pending{}Isr(x) since the controller rejected it"
    (kept,) = rows(of_brokers(b1=[(0, shrink(1, 2)), (1, refused.format("Expand")), (2, updated(1, 2, 3, epoch=3))]))
    assert (kept["write_outcome"], kept["returned_ms"]) == (None, 2000)
    (failed,) = rows(of_brokers(b1=[(0, shrink(1, 2)), (1, refused.format("Shrink"))]))
    assert (failed["write_outcome"], failed["failing_ms"]) == ("failed", None)


def test_an_equal_shrink_soon_after_is_a_retry_and_a_later_one_shows_that_the_replica_was_back() -> None:
    version = (0, "Kafka version: 2.1.1")
    soon, again = rows(of_brokers(b1=[version, (100, shrink(1, 2)), (105, shrink(1, 2))]))
    assert (soon["retry"], again["retry"], soon["returned_ms"]) == (False, True, None)
    first, later = rows(of_brokers(b1=[version, (100, shrink(1, 2)), (125, shrink(1, 2))]))
    assert (first["retry"], later["retry"]) == (False, False)
    assert (first["returned_ms"], first["returned_source"]) == (25_000, "at_most")


def test_the_controller_removes_without_a_shrinking_line() -> None:
    started = "[Broker id=1] Leader t-0 starts at leader epoch {} from offset 0 with high watermark 0 ISR [{}]"
    (row,) = rows(of_brokers(b1=[
        (0, started.format(0, "1,2,3")), (100, started.format(1, "1,2")),
    ]))  # fmt: skip
    assert (row["made_by"], row["replica_id"], row["suspect"], row["check_replicas"]) == (
        "controller",
        3,
        "controller",
        None,
    )
    by_leader = rows(of_brokers(b1=[(0, updated(1, 2, 3, epoch=1)), (9, shrink(1, 2)), (10, updated(1, 2, epoch=2))]))
    assert [row["made_by"] for row in by_leader] == ["leader"]


def test_without_server_log_only_an_election_shows_the_controllers_hand() -> None:
    """Up to 3.6 a leader's own change of the ISR begins a term, too."""
    started = "[Broker id={}] Leader t-0 starts at leader epoch {} from offset 0 with high watermark 0 ISR [{}]"
    first = (0, started.format(1, 0, "1,2,3"))
    for lines, made_by in (
        ({"b1": [first, (9, started.format(1, 1, "1,2"))]}, "unknown"),
        ({"b1": [first], "b2": [(9, started.format(2, 1, "1,2"))]}, "controller"),
    ):
        found = found_in(of_brokers(**lines))
        found.server_us = {}
        assert [row["made_by"] for row in evidence_rows(found, "c").to_pylist()] == [made_by]


def test_a_line_names_its_broker() -> None:
    """The folder's number may be no broker id."""
    started = "[Broker id=1] Leader t-0 starts at leader epoch {} from offset 0 with high watermark 0 ISR [{}]"
    trouble = "[ReplicaFetcher replicaId=3, leaderId=1, fetcherId=0] Error in response for fetch request"
    row = rows(of_brokers(b0=[(0, started.format(0, "1,2,3")), (9, shrink(1, 2))], b7=[(5, trouble)]))[-1]
    assert (row["leader_id"], row["trouble"], row["made_by"]) == (1, "fetch_failed", "leader")
    (gone,) = rows(of_brokers(b0=[(0, started.format(0, "1,2,3")), (9, started.format(1, "1,2"))]))
    assert (gone["leader_id"], gone["made_by"]) == (1, "controller")


def test_a_leader_and_isr_request_shows_the_controllers_removals() -> None:
    """TRACE of releases before 2.5."""
    new = (
        "[Broker id=1] Received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=1, leaderEpoch={e}, "
        "isr={isr}, zkVersion={e}, replicas=1,2,3) correlation id 3 from controller 1 epoch 1 for partition t-0"
    )
    old = (
        "Broker 1 received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=1, leaderEpoch={e}, "
        "isr=[{isr}], zkVersion={e}, replicas=[1, 2, 3]) correlation id 3 from controller 1 epoch 1 for partition [t,0]"
    )
    for form in (new, old):
        (row,) = rows(of_brokers(b1=[(0, form.format(e=1, isr="1,2,3")), (9, form.format(e=2, isr="1,2"))]))
        assert (row["replica_id"], row["made_by"], row["topic"], row["leader_id"]) == (3, "controller", "t", 1)


def test_events_shortly_before() -> None:
    setting = [(0, "Kafka version: 3.9.1")]
    created = "Created log for partition t-0 in /d/t-0 with properties {}"
    leads = "[Broker id=1] Leader t-0 starts at leader epoch 3 from offset 0 with high watermark 0 ISR [1,2,3]"
    starting = "[KafkaServer id=2] starting"

    def after(*lines: tuple[float, str], **others: Sequence[tuple[float, str]]) -> tuple[str | None, int | None]:
        row = rows(of_brokers(b1=[*setting, *lines, (200, shrink(1, 2))], **others))[-1]
        return row["after_event"], row["after_event_ms"]

    assert after() == (None, None)
    assert after((170, created)) == ("topic_created", 30_000)
    assert after((139, created)) == (None, None)
    assert after((190, leads)) == ("election", 10_000)
    assert after((100, leads), (190, leads)) == (None, None)
    assert after(b3=[(180, "Registered kafka:type=kafka.Log4jController MBean")]) == ("restart", 20_000)
    assert after(b2=[(180, starting)]) == (None, None)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("[ReplicaFetcher replicaId=3, leaderId=1, fetcherId=0] Error in response for fetch request (type=FetchRequest",
         "fetch_failed"),
        ("[ReplicaFetcherThread-0-1]: Error in fetch kafka.server.ReplicaFetcherThread$FetchRequest@1", "fetch_failed"),
        (("[ReplicaFetcher replicaId=3, leaderId=1, fetcherId=0] Connection to node 1 (/1.2.3.4:9) could not be "
         "established. Node may not be available."), "not_connected"),
        (("[ReplicaFetcherThread-0-1], Replication is failing due to a message that is greater than "
         "replica.fetch.max.bytes for partition t-0. This generally occurs"), "record_too_large"),
        ("Stopping serving logs in dir /data/d2", "log_dir_failed"),
        ("[ReplicaFetcher replicaId=3, leaderId=2, fetcherId=0] Error in response for fetch request", None),
        ("[ReplicaFetcher replicaId=3, leaderId=1, fetcherId=0] Partition other-0 has an older epoch (3)", None),
        ("[LogDirFailureHandler]: Starting", None),
    ],
)  # fmt: skip
def test_why_a_follower_could_not_fetch_is_in_its_own_log(line: str, kind: str | None) -> None:
    (row,) = rows(of_brokers(b1=[(100, shrink(1, 2))], b3=[(60, line)]))
    assert row["trouble"] == kind
    assert row["trouble_line"] == (None if kind is None else "b3/server.log:1")
    (late,) = rows(of_brokers(b1=[(121, shrink(1, 2))], b3=[(60, line)]))
    assert late["trouble"] is None


def test_lag_is_the_time_since_the_replica_was_last_caught_up() -> None:
    line = (
        f"{shrink(1, 2)}. Leader: (highWatermark: 7, endOffset: 9). Out of sync replicas: (brokerId: 3, endOffset: 7, "
        f"lastCaughtUpTimeMs: {epoch_ms(68.5)})."
    )
    (row,) = rows(of_brokers(b1=[(0, "Kafka version: 4.1.0"), (100, line)]))
    assert (row["lag_ms"], row["replica_lag_time_max_ms"]) == (31_500, None)  # a default proves nothing
