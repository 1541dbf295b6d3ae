"""Folders of operators, each with the right answer next to it: ``expected.md`` of ../shared/cases."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from isr_batch.broker_lines.kinds import KINDS, LogKindFinder
from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.broker_lines.vendors import apache_release
from isr_batch.evidence.answer import answer_table
from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.kafka_logs.line_account import READ, SKIPPED
from isr_batch.ingest.kafka_logs.read import KafkaLogs, read_kafka_logs
from isr_batch.lake.tables.inputs import APPEND_LOG, BROKER_EVENTS, FETCH_LOG, OBSERVED_ISR_CHANGES
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from tests.log_lines import evidence_table, of_folder
from tests.unit.command_line import Run
from udfs.rules import rule_of_release

CASES = Path(__file__).parents[4] / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the operators' folders are not here: ../shared/cases")
STREAM = "H1-one-stream-docker"
# Where a row comes from differs between the layouts; so does where its settings were found.
_PLACE = {"source_file", "source_line", "lag_time_source", "broker_version", "later_by"}
_COMPARED = (FETCH_LOG, APPEND_LOG, OBSERVED_ISR_CHANGES, BROKER_EVENTS, LEADER_EPOCHS)


@cache
def read(folder: Path) -> KafkaLogs:
    """Of several tests each looks at something else of the same ingest."""
    with log_sql() as sql:
        return read_kafka_logs(Here(sql), folder, "c", "run", sql=sql)


def rows(logs: KafkaLogs, name: str) -> list[dict[str, Any]]:
    table = logs.tables[name]
    assert isinstance(table, pa.Table)
    return list(table.to_pylist())


def rows_without_place(logs: KafkaLogs, name: str) -> Counter[str]:
    return Counter(str({key: value for key, value in row.items() if key not in _PLACE}) for row in rows(logs, name))


def split_by_log(stream: Path, folder: Path) -> None:
    """Write the lines of one stream into a file for each log, as Kafka's own configuration does."""
    kinds = LogKindFinder("server")
    for file in sorted(stream.glob("*/server.log")):
        lines = file.read_text().splitlines()
        (folder / file.parent.name).mkdir()
        parts: dict[str, list[str]] = {}
        for line, code in zip(lines, kinds.codes(pa.array(lines)).tolist(), strict=True):
            parts.setdefault(KINDS[code], []).append(line)
        assert len(parts) == 3
        for kind, of_kind in parts.items():
            (folder / file.parent.name / f"{kind}.log").write_text("".join(f"{line}\n" for line in of_kind))


@pytest.fixture(scope="module")
def in_three_files(tmp_path_factory: pytest.TempPathFactory) -> KafkaLogs:
    folder = tmp_path_factory.mktemp("three-files")
    split_by_log(CASES / STREAM / "input", folder)
    return read(folder)


@pytest.mark.parametrize(
    "case",
    [STREAM, "H2-console-iso-thread", "H3-stamp-with-T", "H5-folder-number-is-no-id", "H6-logrotate-dateext",
     "H8-vendor-numbers"],
)  # fmt: skip
def test_the_same_lines_in_another_layout_give_the_tables_of_three_files(case: str, in_three_files: KafkaLogs) -> None:
    logs = read(CASES / case / "input")
    for table in _COMPARED:
        assert rows_without_place(logs, table.name) == rows_without_place(in_three_files, table.name), table.name
    account = logs.account()
    assert {tally.log: tally.lines for tally in account if tally.became == READ} == {
        "request": 10, "server": 46, "state-change": 24,
    }  # fmt: skip
    assert not [tally for tally in account if tally.log != "server" and tally.became == SKIPPED and tally.lines]
    shrunk = [row for row in rows(logs, OBSERVED_ISR_CHANGES.name) if row["kind"] == "shrink"]
    assert [row["leader_id"] for row in shrunk] == [1] * 8
    terms = rows(logs, LEADER_EPOCHS.name)
    assert {(row["leader_id"], row["replica_lag_time_max_ms"], row["min_insync_replicas"]) for row in terms} == {
        (1, 4000, 2)
    }


@pytest.mark.parametrize("case", ["N2-json-after-start-script", "N4-otlp-file"])
def test_the_drops_of_a_shippers_events_are_those_of_plain_lines(case: str) -> None:
    """Both were made from the same recording as the plain logs of N1."""
    shrinks = [row for row in rows(read(CASES / case / "input"), OBSERVED_ISR_CHANGES.name) if row["kind"] == "shrink"]
    plain = rows(read(CASES / "N1-request-log-after-incident" / "input"), OBSERVED_ISR_CHANGES.name)
    dropped = {(row["change_time"], row["topic"], row["partition_id"]) for row in plain if row["kind"] == "shrink"}
    assert len(shrinks) == 32
    assert {(row["change_time"], row["topic"], row["partition_id"]) for row in shrinks} == dropped


@pytest.mark.parametrize("case", [STREAM, "H2-console-iso-thread", "H5-folder-number-is-no-id"])
def test_settings_that_a_broker_prints_are_taken_where_there_are_no_properties(case: str) -> None:
    terms = rows(read(CASES / case / "input"), LEADER_EPOCHS.name)
    assert {(row["lag_time_source"], row["broker_version"]) for row in terms} == {("logged", "4.1.0")}


@pytest.mark.parametrize("command", [["look"], ["run", "--logs"]])
def test_local_time_is_refused_with_its_size(isr_batch: Run, tmp_path: Path, command: list[str]) -> None:
    lake = ["--lake", str(tmp_path / "lake")] if command != ["look"] else []
    code, _, error = isr_batch(*command, str(CASES / "H4-local-time" / "input"), *lake)
    error = " ".join(error.split())
    assert code == 2
    assert "2 h ahead" in error
    assert "all 8 dropped replicas" in error
    assert "UTC+02:00" in error
    assert "--time-zone" in error


def test_a_folder_that_contradicts_its_lines_is_reported() -> None:
    remarks = read(CASES / "H5-folder-number-is-no-id" / "input").found.refused
    assert {each.detail for each in remarks if each.reason == "a name with another number"} == {
        "the lines are of broker 1, the name says 17", "the lines are of broker 2, the name says 18",
    }  # fmt: skip


def test_dated_names_are_parts_of_the_same_log() -> None:
    found = read(CASES / "H6-logrotate-dateext" / "input").found
    read_files = {file.name for file in found.files}
    there = {str(path.relative_to(CASES / "H6-logrotate-dateext" / "input"))
             for path in (CASES / "H6-logrotate-dateext" / "input").rglob("*.*") if path.is_file()}  # fmt: skip
    assert read_files == there
    assert not found.left_out


def expected_table(text: str) -> list[tuple[str, ...]]:
    lines = [line for line in text.splitlines() if line.startswith("| 16:")]
    return sorted(tuple(cell.strip() for cell in line.strip("| ").split("|")) for line in lines)


def test_server_log_only_gives_the_expected_table() -> None:
    case = CASES / "H7-server-log-only"
    shown = answer_table(evidence_table(of_folder(case / "input"), "c"))
    found = sorted(
        (row["at"].split(" ")[1], row["partition"], *(str(row[name]) for name in
         ("leader", "lost", "lag_ms", "records_behind", "back_after_ms")))
        for row in shown
    )  # fmt: skip
    wanted = expected_table((case / "expected.md").read_text())
    assert len(wanted) == 11
    assert found == wanted
    suspects = {(row["at"].split(" ")[1], row["leader"]): row["suspect"] for row in shown}
    assert suspects["16:30:51.034", 1] == "leader"
    assert suspects["16:31:06.361", 1] == "link or follower"


def test_a_vendors_number_is_the_apache_release() -> None:
    terms = rows(read(CASES / "H8-vendor-numbers" / "input"), LEADER_EPOCHS.name)
    assert {row["broker_version"] for row in terms} == {"7.6.1-ccs (Kafka 3.6)"}
    assert {rule_of_release(apache_release(row["broker_version"])) for row in terms} == {"kafka-3.3"}


def test_the_default_lag_time_is_that_of_the_oldest_release_that_fits() -> None:
    logs = read(CASES / "H9-lag-time-not-set" / "input")
    terms = rows(logs, LEADER_EPOCHS.name)
    assert {(row["replica_lag_time_max_ms"], row["lag_time_source"]) for row in terms} == {(10_000, "default")}
    assert any(note.about == "replica.lag.time.max.ms" and "10000, the default" in note.found for note in logs.notes)
