"""Terms from lines and records: when they begin and end, and what holds in them."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from isr_batch.ingest.folder.settings_files import Broker
from isr_batch.ingest.requests.leader_and_isr import ACCEPTED
from isr_batch.ingest.terms import leader_epochs, mid_term_rows
from isr_batch.ingest.terms.broker_settings import broker_settings
from isr_batch.ingest.terms.mid_term import Begun
from isr_batch.ingest.terms.parsed_logs import ParsedLogs
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_tables import SECOND, TOPIC_ID, lines, record, record_lines, sources

PROCESSES = pa.schema([
    ("broker_id", pa.int32()), ("process", pa.int32()), ("last_led_us", pa.int64()), ("broker_version", pa.string()),
    ("check_origin_ms", pa.int64()), ("check_origin_source", pa.string()),
])  # fmt: skip
DELETED = "Log for partition t-x-1 is renamed to /d/t-x-1.37ef-delete and is scheduled for deletion"
STARTED = "Registered `kafka:type=kafka.Log4jController` MBean"


def leads(seconds: float, epoch: int, offset: int = 0, isr: str = "1, 2", previous: str = "None") -> tuple[float, str]:
    return seconds, (
        f"[Broker id=1] Leader t-x-1 with topic id Some({TOPIC_ID}) starts at leader epoch {epoch} from offset "
        f"{offset} with partition epoch {epoch}, high watermark {offset}, ISR [{isr}], adding replicas [] and removing "
        f"replicas [] . Previous leader {previous} and previous leader epoch was -1."
    )


def follows(seconds: float, epoch: int) -> tuple[float, str]:
    return seconds, f"[Broker id=1] Follower t-x-1 starts at leader epoch {epoch} from offset 9"


def processes(*last_led: float | None) -> pa.Table:
    rows = [
        {"broker_id": 1, "process": number, "last_led_us": last and round(last * SECOND),
         "broker_version": f"3.{number}", "check_origin_ms": 7, "check_origin_source": "startup"}
        for number, last in enumerate(last_led)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, PROCESSES)


def terms(
    known: ParsedLogs,
    of: pa.Table,
    begun: list[Begun] | None = None,
    seen: list[dict[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    starts = leader_epochs.term_starts(known)
    table = leader_epochs.leader_epochs(
        known, starts, mid_term_rows.as_begun(begun or []), mid_term_rows.as_followers(seen or []), of
    )
    assert table.schema == leader_epochs.TERMS
    rows: list[dict[str, Any]] = table.sort_by("start_us").to_pylist()
    return rows


def test_terms_end_with_the_next_or_with_the_process(sql: ArrowSql) -> None:
    server = lines((0, STARTED), (40, STARTED))
    states = lines(leads(5, 4), leads(15, 5, 3, isr="1"), follows(20, 6), leads(30, 7, 5), leads(45, 7, 5))
    rows = terms(sources(sql, server, states), processes(None, 35.003, 50))
    spans = [(r["start_us"] / SECOND, r["end_us"] / SECOND, r["leader_epoch"], r["assigned"]) for r in rows]
    assert spans == [(5, 15, 4, [1, 2]), (15, 20, 5, [1]), (30, 35.003, 7, [1, 2]), (45, 50, 7, [1, 2])]
    assert [row["next_us"] for row in rows] == [15 * SECOND, 20 * SECOND, 45 * SECOND, None]
    assert [row["broker_version"] for row in rows] == ["3.1"] * 3 + ["3.2"]
    # A term may have begun some time before its line, but not before the end of the one before.
    assert [row["in_force_us"] / SECOND for row in rows] == [4.9, 15, 29.9, 44.9]


def test_a_term_ends_where_the_broker_deletes_its_log(sql: ArrowSql) -> None:
    """Its topic was deleted, and made again; then the partition was moved away."""
    folder = "/var/lib/kafka/t-x-1.37ef1d0b6d254e6c8bd7c6d54fea0d31-delete"
    deleted = f"Log for partition t-x-1 is renamed to {folder} and is scheduled for deletion"
    server = lines((0, STARTED), (12, deleted), (25, deleted))
    rows = terms(sources(sql, server, lines(leads(5, 0), leads(20, 0))), processes(None, 50))
    assert [(row["start_us"] / SECOND, row["end_us"] / SECOND) for row in rows] == [(5, 12), (20, 25)]
    assert [row["previous_leader_id"] for row in rows] == [None, None]
    assert [row["made_again"] for row in rows] == [0, 1]


def test_so_it_does_where_only_the_metadata_log_has_the_deletion(sql: ArrowSql) -> None:
    whole = {"partitionId": 1, "leader": 1, "leaderEpoch": 0, "replicas": [1, 2], "isr": [1, 2]}
    records = record_lines(
        record(4, 1, "PARTITION_RECORD", topicId=TOPIC_ID, **whole),
        record(12, 2, "REMOVE_TOPIC_RECORD", topicId=TOPIC_ID),
    )
    states = lines(leads(5, 0), leads(20, 0))
    for server in (lines((0, STARTED)), lines((0, STARTED), (12.2, DELETED))):
        rows = terms(sources(sql, server, states, records), processes(None, 50))
        end = 12 if server.num_rows == 1 else 12.2
        assert [(row["start_us"] / SECOND, row["end_us"] / SECOND) for row in rows] == [(5, end), (20, 50)]
        assert [row["made_again"] for row in rows] == [0, 1]


def test_a_topic_made_again_has_the_replicas_that_it_was_made_with(sql: ArrowSql) -> None:
    """Its epochs are those of the topic before it."""
    other = "X_8NR7hHQCm-qPWlwcEcKw"
    whole = {"partitionId": 1, "leader": 1, "leaderEpoch": 0}
    records = record_lines(
        record(0, 1, "TOPIC_RECORD", name="t-x", topicId=TOPIC_ID),
        record(4, 2, "PARTITION_RECORD", topicId=TOPIC_ID, replicas=[1, 2, 3], isr=[1, 2], **whole),
        record(19, 3, "TOPIC_RECORD", name="t-x", topicId=other),
        record(19, 4, "PARTITION_RECORD", topicId=other, replicas=[1, 2], isr=[1, 2], **whole),
    )
    known = sources(sql, lines((0, STARTED), (12, DELETED)), lines(leads(5, 0), leads(20, 0)), records)
    known = replace(known, topics=pa.table({"topic_id": [TOPIC_ID, other], "topic": ["t-x", "t-x"]}))
    rows = terms(known, processes(None, 50))
    assert [row["assigned"] for row in rows] == [[1, 2, 3], [1, 2]]


def test_the_leader_before_is_the_lines_or_the_last_one_in_the_process(sql: ArrowSql) -> None:
    untold = leads(9, 6)[1].split(" . Previous")[0]
    states = lines(leads(5, 4, previous="Some(3)"), leads(7, 5), (9, untold), follows(11, 7), (13, untold))
    rows = terms(sources(sql, lines((0, STARTED)), states), processes(None, 20))
    assert [row["previous_leader_id"] for row in rows] == [3, None, 1, -1]


def test_assigned_replicas_and_delay_of_the_controller(sql: ArrowSql) -> None:
    partition = {"topicId": TOPIC_ID, "partitionId": 1}
    records = record_lines(
        record(4.9, 1, "PARTITION_RECORD", **partition, replicas=[3, 1, 2], isr=[1, 2], leader=1, leaderEpoch=4),
        record(8, 2, "PARTITION_CHANGE_RECORD", **partition, isr=[1]),
    )
    stayed = (
        f"[Broker id=1] Skipped the become-leader state change for t-x-1 with topic id Some({TOPIC_ID}) and partition "
        "state LeaderAndIsrPartitionState(topicName='t-x', partitionIndex=1, controllerEpoch=-1, leader=1, "
        "leaderEpoch=4, isr=[1], partitionEpoch=5, replicas=[3, 1, 2], addingReplicas=[]) since it is the leader"
    )
    from isr_batch.broker_lines.metadata_log import parse_metadata

    known = sources(sql, lines((0, STARTED)), lines(leads(5, 4), (8.04, stayed)), parse_metadata(sql, records))
    (row,) = terms(known, processes(None, 20))
    assert (row["assigned"], row["metadata_delay_ms"], row["isr_at_start"]) == ([3, 1, 2], 40, [1, 2])


def test_followers_that_fetched_are_assigned(sql: ArrowSql) -> None:
    key = {"broker_id": 1, "topic": "t-x", "partition_id": 1, "leader_epoch": 4}
    known = sources(sql, lines((0, STARTED)), lines(leads(5, 4)))
    (row,) = terms(known, processes(None, 20), seen=[{**key, "replica_id": 9}, {**key, "replica_id": 2}])
    assert row["assigned"] == [1, 2, 9]


def test_a_term_that_goes_on(sql: ArrowSql) -> None:
    known = sources(sql, lines((0, STARTED)), lines(leads(15, 5)))
    first, second = terms(known, processes(None, 20), [Begun(1, "t-x", 1, 4, 3 * SECOND, "inferred")])
    assert (first["begins_mid_term"], first["term_source"], first["end_us"]) == (True, "inferred", 15 * SECOND)
    assert (first["isr_at_start"], first["assigned"], first["start_offset"]) == ([], [1], None)
    assert (second["begins_mid_term"], second["term_source"]) == (False, "logged")


def test_a_later_epoch_of_any_leader_ends_an_inferred_term(sql: ArrowSql) -> None:
    from dataclasses import replace

    known = sources(sql, lines((0, STARTED)))
    brokers = [Broker(1, 4000, 2), Broker(2, 4000, 2)]
    known = replace(known, settings=broker_settings(sql, known.server, brokers))
    begun = [Begun(1, "t-x", 1, 4, 3 * SECOND, "inferred"), Begun(2, "t-x", 1, 5, 9 * SECOND, "inferred"),
             Begun(2, "t-x", 7, 5, 4 * SECOND, "inferred")]  # fmt: skip
    rows = {(row["leader_id"], row["partition_id"]): row for row in terms(known, processes(None, 20), begun)}
    assert (rows[1, 1]["end_us"], rows[1, 1]["next_us"]) == (9 * SECOND, 9 * SECOND)
    assert rows[2, 1]["next_us"] is rows[2, 7]["next_us"] is None


def test_the_least_isr_is_that_of_the_topic_the_brokers_or_the_log(sql: ArrowSql) -> None:
    from dataclasses import replace

    created = "Created log for partition t-x-1 in /d/t-x-1 with properties {min.insync.replicas=5}"
    known = sources(sql, lines((0, STARTED), created), lines(leads(5, 4)))

    def least(*settings: tuple[str | None, str | None, int]) -> int:
        names = ("topic", "resource_broker", "min_insync_replicas")
        table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in settings], known.min_isr.schema)
        (row,) = terms(replace(known, min_isr=table), processes(None, 20))
        number: int = row["min_insync_replicas"]
        return number

    assert least() == 5
    assert least((None, "", 4)) == 4
    assert least((None, "", 4), (None, "1", 3), (None, "2", 9)) == 3
    assert least((None, "", 4), (None, "1", 3), ("t-x", None, 1), ("t-y", None, 9)) == 1


RECEIVED = (
    "[Broker id=1] Received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=1, leaderEpoch=4, isr=1,2, "
    "zkVersion=8, replicas=1,2,3, isNew=true) correlation id 3 from controller 2 epoch 1 for partition t-x-1"
)
STOPPED = (
    "[Broker id=1] Stopped fetchers as part of become-leader request from controller 2 epoch 1 with correlation id 3 "
    "for partition t-x-1 (last update controller epoch 1)"
)


def test_a_request_of_the_controller_begins_a_term_at_its_line_in_the_server_log(sql: ArrowSql) -> None:
    start = "[Partition t-x-1 broker=1] t-x-1 starts at Leader Epoch {} from offset {}. Previous Leader Epoch was: 3"
    server = lines((0, STARTED), (5.2, start.format(4, 9)), (6.5, start.format(4, 99)), (5.1, start.format(3, 7)))
    (row,) = leader_epochs.term_starts(sources(sql, server, lines((5, RECEIVED), (5.1, STOPPED)))).to_pylist()
    assert (row["stamp_us"], row["start_offset"], row["isr"], row["leader_epoch"]) == (5_200_000, 9, [1, 2], 4)
    assert (row["leads"], row["new_leader_id"], row["partition_epoch"]) == (True, 1, None)
    (row,) = leader_epochs.term_starts(sources(sql, None, lines((5, RECEIVED), (5.1, STOPPED)))).to_pylist()
    assert (row["stamp_us"], row["start_offset"]) == (5_100_000, None)
    # Its own line says more.
    both = leader_epochs.term_starts(
        sources(sql, None, lines((5, RECEIVED), (5.1, STOPPED), leads(5.15, 4)))
    ).to_pylist()
    assert [row["partition_epoch"] for row in both] == [4]


def request(seconds: float, epoch: int, leader: int = 1) -> dict[str, Any]:
    return {
        "broker_id": 1, "source_file": "broker-1/request.log", "source_line": 7, "stamp_us": round(seconds * SECOND),
        "topic": "t-x", "partition_id": 1, "leads": leader == 1, "leader_id": leader, "leader_epoch": epoch,
        "isr": [1, 2], "partition_epoch": 3, "replicas": [1, 2, 3],
    }  # fmt: skip


def test_a_request_in_the_request_log_adds_to_state_change_log(sql: ArrowSql) -> None:
    server = lines(
        (2, "[Partition t-x-1 broker=1] t-x-1 starts at Leader Epoch 5 from offset 7. Previous Leader Epoch was: 4"),
        (50, "[Partition t-x-1 broker=1] t-x-1 starts at Leader Epoch 7 from offset 9. Previous Leader Epoch was: 5"),
    )
    received = (
        "Broker 1 received LeaderAndIsr request PartitionState(controllerEpoch=1, leader=1, leaderEpoch=8, isr=1,2, "
        "zkVersion=4, replicas=1,2,3) correlation id 9 from controller 2 epoch 1 for partition t-x-1"
    )
    acted = (
        "Broker 1 stopped fetchers as part of become-leader request from controller 2 epoch 1 with correlation id 9 "
        "for partition t-x-1"
    )
    states = lines((70, received), (70.5, acted), level="TRACE")
    requests = [request(2.2, 5), request(30, 6, leader=2), request(50.1, 7), request(60, 7), request(71, 8)]
    known = sources(sql, server, states, from_controller=pa.Table.from_pylist(requests, ACCEPTED))
    rows = known.accepted.sort_by("stamp_us").to_pylist()
    # At the line of the term; where a follower has none, or only an old one, at the end of the request.
    assert [(row["stamp_us"] / SECOND, row["leader_epoch"], row["leads"]) for row in rows] == [
        (2, 5, True), (30, 6, False), (50, 7, True), (60, 7, True), (70.5, 8, True)
    ]  # fmt: skip
    assert rows[4]["source_file"] == "broker-1/a.log", "state-change.log says it itself"


def test_min_isr_is_that_of_the_start_of_a_term(sql: ArrowSql) -> None:
    """A broker prints a topic's settings soon after it began to lead a new one, and at each change."""
    configured = "[DynamicConfigPublisher broker id=1] Updating topic t-x with new configuration : "
    server = lines(
        (0, STARTED), (5.5, configured + "min.insync.replicas -> 1"), (9, configured + "min.insync.replicas -> 3"),
        (40, configured + "retention.ms -> 9,min.insync.replicas -> 1"), (60, configured),
    )  # fmt: skip
    states = lines(leads(5, 4), leads(15, 5), leads(45, 6), leads(65, 7))
    known = sources(sql, server, states)
    assert [row["min_insync_replicas"] for row in terms(known, processes(None, 80))] == [1, 3, 1, 2]
    changed = known.min_isr_settings.filter(known.min_isr_settings["changed"]).sort_by("at_us").to_pylist()
    assert [(row["at_us"] / SECOND, row["min_insync_replicas"]) for row in changed] == [
        (5.5, 1),
        (9, 3),
        (40, 1),
        (60, 2),
    ]
