"""Lines of interest of server.log and state-change.log, read without Spark."""

from pathlib import Path

from isr_batch.evidence.forms import LINES, find
from isr_batch.evidence.table import evidence_of
from isr_batch.ingest.kafka_logs.evidence_lines import evidence_lines
from isr_batch.ingest.kafka_logs.log_folder import find_logs
from tests.log_lines import SERVER_LOG_ONLY, of_folder

SHRINK = "[2026-11-21 16:30:51,034] INFO [Partition t-0 broker=1] Shrinking ISR from 1,2 to 1 (kafka.cluster.Partition)"


def test_they_give_the_evidence_that_all_lines_give() -> None:
    lines = evidence_lines(find_logs(SERVER_LOG_ONLY).files)
    assert lines.schema == LINES
    assert evidence_of(lines, "c").equals(evidence_of(of_folder(SERVER_LOG_ONLY), "c"))


def test_of_other_lines_the_first_and_last_time_are_kept(tmp_path: Path) -> None:
    logs = {
        "server.log": ["java.lang.Exception", "[2026-11-21 16:00:00,001] INFO a", "[2026-11-21 16:00:01,000] INFO b",
                       SHRINK, "\tmin.insync.replicas = 2", "[2026-11-21 17:00:00,999] INFO c", "\tat x"],
        "request.log": ["[2026-11-21 18:00:00,000] DEBUG Shrinking ISR "],
    }  # fmt: skip
    (tmp_path / "broker-1").mkdir()
    for name, text in logs.items():
        (tmp_path / "broker-1" / name).write_text("\n".join(text) + "\n")
    lines = evidence_lines(find_logs(tmp_path).files)
    assert lines["source_line"].to_pylist() == [2, 4, 5, 6]
    assert lines["stamp_us"].to_pylist() == [1795276800001000, 1795278651034000, None, 1795280400999000]
    assert find(lines).span_us == {1: (1795276800001000, 1795280400999000)}


def test_a_line_of_two_copies_counts_once(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    for name in ("server.log", "server.log.1"):
        (tmp_path / "broker-1" / name).write_text(f"{SHRINK}\n")
    assert evidence_of(evidence_lines(find_logs(tmp_path).files), "c").num_rows == 1
