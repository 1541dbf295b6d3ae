"""The evidence rests on the lines that an ingest reads, and on no others."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from isr_batch.evidence.evidence_table import evidence_rows
from isr_batch.evidence.lines import FoundLines
from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.kafka_logs.evidence_lines import find_evidence
from isr_batch.ingest.kafka_logs.lines_of_interest import read_lines_of_interest
from isr_batch.ingest.kafka_logs.read import KafkaLogs, read_kafka_logs, survey_logs
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.tables.inputs import OBSERVED_ISR_CHANGES, QUARANTINE
from tests.log_lines import SERVER_LOG_ONLY, evidence_table, of_folder

SHRINK = "[2026-11-21 16:30:51,034] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1 (kafka.cluster.Partition)"
SETTINGS = "\tmin.insync.replicas = 2"


def found_in(sql: ArrowSql, folder: Path) -> FoundLines:
    return find_evidence(sql, read_lines_of_interest(Here(sql), sql, survey_logs(Here(sql), folder)))


def write(folder: Path, **logs: list[str]) -> None:
    (folder / "broker-1").mkdir()
    for name, text in logs.items():
        (folder / "broker-1" / f"{name}.log").write_text("".join(f"{line}\n" for line in text))


def test_they_give_the_evidence_that_all_lines_give(sql: ArrowSql) -> None:
    found = found_in(sql, SERVER_LOG_ONLY)
    assert found.server_us is not None
    assert found.server_us.keys() == {1, 2}
    found.server_us = None  # as if the logs of broker 3 were there, and had no drop
    assert evidence_rows(found, "c").equals(evidence_table(of_folder(SERVER_LOG_ONLY), "c"))


def test_the_time_of_the_logs_is_that_of_all_lines(sql: ArrowSql, tmp_path: Path) -> None:
    write(
        tmp_path,
        server=["java.lang.Exception", "[2026-11-21 16:00:00,001] INFO a", "[2026-11-21 16:00:01,000] INFO b",
                SHRINK, SETTINGS, "[2026-11-21 17:00:00,999] INFO c", "\tat x"],
        request=["[2026-11-21 18:00:00,000] DEBUG Shrinking ISR "],
    )  # fmt: skip
    found = found_in(sql, tmp_path)
    assert found.span_us == {1: (1795276800001000, 1795280400999000)}
    assert [(one.place.source_line, one.at_us) for one in found.attempts] == [(4, 1795278651034000)]
    assert found.settings == {(1, "min.insync.replicas"): 2}


def test_a_line_of_two_copies_counts_once(sql: ArrowSql, tmp_path: Path) -> None:
    write(tmp_path, server=[SHRINK], **{"server-2": [SHRINK, "[2026-11-21 17:00:00,999] INFO c"]})
    assert evidence_rows(found_in(sql, tmp_path), "c").num_rows == 1


HEAD = "[2026-11-21 16:30:51,034] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1"
LEADER = ". Leader: (highWatermark: 5, endOffset: 7)"
DROPPED = f"{LEADER}. Out of sync replicas: (brokerId: 2, endOffset: "
TAIL = " (kafka.cluster.Partition)"
TERM = (
    "[2026-11-21 16:00:00,000] INFO [Broker id=1] Leader t-0 with topic id Some(AAAAAAAAAAAAAAAAAAAAAA) starts at "
    "leader epoch 3 from offset 0 with partition epoch 4, high watermark 0, ISR [1,2], adding replicas [] and "
    "removing replicas [] . Previous leader None and previous leader epoch was -1. (state.change.logger)"
)


ENDS = {
    TAIL: True,
    f"{DROPPED}5).{TAIL}": True,
    f"{DROPPED}unknown, lastCaughtUpTimeMs: unknown).{TAIL}": True,
    f"{DROPPED}5, lastCaughtUpTimeMs: 1795278645000).{TAIL}": True,
    LEADER[:-4]: False,
    f"{DROPPED}?).{TAIL}": False,
}
"""Ends of shrink lines, and whether each can be read; every line is about another partition."""


@pytest.fixture(scope="module")
def ingested(sql: ArrowSql, tmp_path_factory: pytest.TempPathFactory) -> KafkaLogs:
    folder = tmp_path_factory.mktemp("ends")
    shrinks = [HEAD.replace("t-0", f"t-{partition}") + end for partition, end in enumerate(ENDS)]
    terms = [TERM.replace("t-0", f"t-{partition}") for partition in range(len(ENDS))]
    write(folder, server=shrinks, **{"state-change": terms})
    return read_kafka_logs(Here(sql), folder, "c", "run", sql=sql)


@pytest.mark.parametrize("partition", range(len(ENDS)), ids=list(ENDS))
def test_a_shrink_is_evidence_if_it_is_an_observed_change(sql: ArrowSql, ingested: KafkaLogs, partition: int) -> None:
    evidence = evidence_rows(find_evidence(sql, ingested.lines), "c")
    observed, refused = (ingested.tables[table.name] for table in (OBSERVED_ISR_CHANGES, QUARANTINE))
    assert isinstance(observed, pa.Table)
    assert isinstance(refused, pa.Table)
    changes, rows = (
        [row for row in table.to_pylist() if row["partition_id"] == partition]
        for table in (
            observed.filter(pc.field("kind") == "shrink"),
            evidence,
        )
    )
    printed = "follower_log_end_offset", "last_caught_up_time_ms", "high_watermark", "isr_after"
    assert [[row[name] for name in printed] for row in rows] == [[row[name] for name in printed] for row in changes]
    is_read = list(ENDS.values())[partition]
    assert len(rows) == is_read
    assert any(row["source_line"] == partition + 1 for row in refused.to_pylist()) != is_read


def test_each_of_these_shrinks_is_of_one_of_these_partitions(sql: ArrowSql, ingested: KafkaLogs) -> None:
    assert evidence_rows(find_evidence(sql, ingested.lines), "c").num_rows == sum(ENDS.values())
