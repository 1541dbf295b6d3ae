"""Lines of brokers about themselves: from a folder to a sentence, with server.log alone."""

from pathlib import Path

import pyarrow as pa
import pytest

from isr_batch.evidence.answer import evidence_answer
from isr_batch.evidence.broker_troubles import pauses_in_words, troubles_of_absences
from isr_batch.evidence.evidence_table import read_evidence_table
from isr_batch.evidence.notes_of_brokers import notes_of_brokers
from isr_batch.ingest.broker_logs import ingest_broker_logs
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_sql import ArrowSql, without_zones
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.evidence import BROKER_TROUBLES
from tests.own_shrinks_log import at

_BEHIND = "(brokerId: {}, endOffset: 98, lastCaughtUpTimeMs: 1795278645100)"
DROPS = (
    "[2026-11-21 16:30:51,153] INFO [Partition busy-{} broker=1] Shrinking ISR from 1,2,3 to 1. Leader: "
    f"(highWatermark: 9, endOffset: 99). Out of sync replicas: {_BEHIND.format(2)} "
    f"{_BEHIND.format(3)}. (kafka.cluster.Partition)\n"
)
SERVER = "".join(DROPS.format(n) for n in (0, 1)) + (
    "[2026-11-21 16:30:51,158] ERROR [ReplicaManager broker=1] Error processing append operation on partition busy-0 "
    "(kafka.server.ReplicaManager)\n"
    "org.apache.kafka.common.errors.NotEnoughReplicasException: The size of the current ISR : 1 is insufficient to "
    "satisfy the min.isr requirement of 2 for partition busy-0, live replica(s) broker.id are : Set(1)\n"
    "[2026-11-21 16:30:51,215] ERROR [ReplicaManager broker=1] Error processing append operation on partition busy-1 "
    "(kafka.server.ReplicaManager)\n"
    "org.apache.kafka.common.errors.NotEnoughReplicasException: The size of the current ISR Set(1) is insufficient to "
    "satisfy the min.isr requirement of 2 for partition busy-1\n"
    "[2026-11-21 16:30:51,300] ERROR [ReplicaManager broker=1] Error processing append operation on partition busy-2 "
    "(kafka.server.ReplicaManager)\n"
    "org.apache.kafka.common.errors.NotEnoughReplicasException: Number of insync replicas for partition [busy,2] is "
    "[2], below required minimum [1]\n"
    "[2026-11-21 16:30:51,400] INFO [ZooKeeperClient Kafka server] Session expired. (kafka.zookeeper.ZooKeeperClient)\n"
    "[2026-11-21 16:30:51,500] ERROR Uncaught exception in thread 'x': (org.apache.kafka.common.utils.KafkaThread)\n"
    "java.lang.OutOfMemoryError: Java heap space\n"
)
FULL = "[2026-11-21T16:30:51.100+0000][info][gc] GC(7) Pause Full (G1 Compaction Pause) 1023M->800M(1024M) 5812.345ms\n"
FIRST, LAST = (
    f"[2026-11-21T{time}.000+0000][info][gc] GC(1) Pause Young (Normal) (G1 Evacuation Pause) 9M->8M(9M) 12.5ms\n"
    for time in ("16:30:00", "16:31:30")
)


def lake_of(folder: Path, server: str, gc: str) -> Lake:
    for name, text in (("server.log", server), ("gc.log", gc)):
        (folder / "logs" / "broker-1").mkdir(parents=True, exist_ok=True)
        (folder / "logs" / "broker-1" / name).write_text(text)
    lake = Lake(lambda: pytest.fail("Spark is not needed"), str(folder / "lake"), "a-run")
    ingest_broker_logs(lake, folder / "logs", "c")
    return lake


def notes(lake: Lake) -> list[str]:
    return notes_of_brokers(lake, "c", read_evidence_table(lake, "c"))


def test_a_pause_of_the_jvm_a_lost_session_and_refused_writes_stand_in_the_answer_with_their_lines(
    tmp_path: Path,
) -> None:
    lake = lake_of(tmp_path, SERVER, FIRST + FULL + LAST)
    said = notes(lake)
    assert said == [
        (
            "By the brokers' own logs: at 16:30:51.153, the JVM of broker 1 was the cause, paused for 5.81 s (Pause "
            "Full (G1 Compaction Pause), ends at 16:30:51), the ZooKeeper session of broker 1 expired at 16:30:51 and "
            "broker 1 ran out of memory at 16:30:51 [broker-1/gc.log:2, broker-1/server.log:9, broker-1/server.log:11]."
        ),
        (
            "Writes were refused, as too few replicas were in sync: busy-0: 1 of 2 (broker 1) at 16:30:51 "
            "[broker-1/server.log:4]; busy-1: 1 of 2 (broker 1) at 16:30:51 [broker-1/server.log:6]; busy-2: 1 of 2 at "
            "16:30:51 [broker-1/server.log:8]."
        ),
    ]
    evidence = read_evidence_table(lake, "c")
    assert evidence_answer(evidence, notes=said)[2:4] == said
    # The rows of a file that has grown replace those that it had.
    before = read_columns(lake, BROKER_TROUBLES.name, BROKER_TROUBLES.column_names).num_rows
    assert before == 8
    gc = tmp_path / "logs" / "broker-1" / "gc.log"
    gc.write_text(gc.read_text() + LAST.replace("16:31:30", "16:32:30"))
    ingest_broker_logs(lake, tmp_path / "logs", "c")
    assert read_columns(lake, BROKER_TROUBLES.name, BROKER_TROUBLES.column_names).num_rows == before + 1


@pytest.mark.parametrize(
    ("pauses", "covered", "said"),
    [
        ([(10, 15.8)], (0, 60), "the JVM of broker 1 was the cause, paused for 5.8 s (Full, ends at 00:00:15)"),
        ([(10, 15.8)], (12, 60), "the JVM of broker 1 was the cause, paused for 5.8 s (Full, ends at 00:00:15)"),
        ([(5, 11), (12, 13), (14, 20)], (0, 60),
         "the JVM of broker 1 was the cause, paused for 4 s in 3 pauses, the longest of 6 s (Full, ends at 00:00:11)"),
        ([(11, 12.5)], (0, 60),
         "the JVM of broker 1 was paused for a part of that: 1.5 s (Full, ends at 00:00:12)"),
        ([(11, 11.029)], (0, 60), "the JVM of broker 1 was not the cause (longest pause in gc.log: 29 ms)"),
        ([(1, 9)], (0, 60), "the JVM of broker 1 was not the cause (gc.log has no pause of 10 ms then)"),
        ([(11, 11.029)], (12, 60), ""),
        ([(11, 11.029)], (0, 15), ""),
        ([], None, ""),
    ],
)  # fmt: skip
def test_that_it_was_not_the_jvm_is_said_only_where_gc_log_covers_the_time(
    pauses: list[tuple[float, float]], covered: tuple[float, float] | None, said: str
) -> None:
    """Broker 1 was absent from 10 to 16 s; broker 2 had a pause."""
    absence = {"number": 1, "cluster_id": "c", "broker_id": 1, **dict.fromkeys(("until_us", "over_us"), us(16))}
    troubles = [trouble(1, *pause) for pause in pauses] + [trouble(2, 10, 16)]
    covers = [{"cluster_id": "c", "broker_id": 2, "log": "gc", "from_time": at(0), "until_time": at(60)}]
    if covered:
        times = {"from_time": at(covered[0]), "until_time": at(covered[1])}
        covers.append({"cluster_id": "c", "broker_id": 1, "log": "gc", **times})
    tables = ([absence | {"from_us": us(10), "absent_us": us(16) - us(10)}], troubles, covers)
    with ArrowSql() as sql:
        (found,) = troubles_of_absences(sql, *(without_zones(pa.Table.from_pylist(rows)) for rows in tables))
    assert pauses_in_words(found) == said


def trouble(broker: int, since: float, until: float) -> dict[str, object]:
    return {
        "cluster_id": "c", "broker_id": broker, "kind": "pause", "what": "Full", "from_time": at(since),
        "until_time": at(until), "source_file": "gc.log", "source_line": 7,
    }  # fmt: skip


def us(seconds: float) -> int:
    return int(at(seconds).timestamp() * 1_000_000)
