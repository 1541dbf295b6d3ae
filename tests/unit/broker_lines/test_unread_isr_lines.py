"""A leader's line about an ISR in the words of a release to come is noticed, and makes the controller doubtful."""

from pathlib import Path

import pytest

from isr_batch.broker_lines.unread import unread_isr_lines, unreadable_lines
from isr_batch.ingest.folder.folder_warnings import unread_lines_seen
from isr_batch.ingest.folder.log_folder import LogFolder, find_logs
from isr_batch.ingest.kafka_logs.anonymize import find_names, write_copy
from isr_batch.ingest.log_files.made_up_names import MadeUpNames
from isr_batch.lake.arrow_sql import ArrowSql
from tests.log_lines import as_table, evidence_table, of_brokers, time_of
from tests.log_tables import lines
from tests.unit.broker_lines.test_server_log import IDENT, OLD_IDENT, SHRINKS

STARTED = "[Broker id=1] Leader t-0 starts at leader epoch {} from offset 0 with high watermark 0 ISR [{}]"
NEW_WORDS = "[Partition {} broker=1] Removing 3 from the ISR, which becomes 1,2"
KNOWN = [
    *SHRINKS.values(),
    IDENT + "Expanding ISR from 1,2 to 1,2,3",
    OLD_IDENT + "Expanding ISR for partition [t-x,1] from 1,2 to 1,2,3",
    IDENT + "ISR updated to 1,2 and version updated to [7]",
    IDENT + "Failed to update ISR to PendingShrinkIsr(isr=Set(1, 2, 3)) due to unexpected X. Retrying.",
    OLD_IDENT + "Cached zkVersion [3] not equal to that in zookeeper, skip updating ISR",
]


def logged(text: str, at: float = 0) -> str:
    return f"[{time_of(at)}] INFO {text} (kafka.cluster.Partition)"


def test_known_lines_are_read(sql: ArrowSql) -> None:
    of_all = as_table((1, "b1/server.log", number, logged(text)) for number, text in enumerate(KNOWN, 1))
    assert unread_isr_lines(sql, of_all).num_rows == 0
    assert unreadable_lines(sql, of_all, lines()).num_rows == 0


@pytest.mark.parametrize(
    ("near", "maker"),
    [
        ([], "controller"),
        ([(99, NEW_WORDS.format("t-0"))], "unknown"),
        ([(99, "[Partition t-0 broker=1] Shrinking ISR in a new way")], "unknown"),
        ([(99, "Removing 3 from an ISR, which becomes 1,2")], "unknown"),
        ([(99, NEW_WORDS.format("other-0"))], "controller"),
        ([(300, NEW_WORDS.format("t-0"))], "controller"),
    ],
)
def test_who_removed_a_replica_is_unknown_where_a_line_is_not_read(near: list[tuple[float, str]], maker: str) -> None:
    found = of_brokers(b1=[(0, STARTED.format(0, "1,2,3")), *near, (100, STARTED.format(1, "1,2"))])
    (row,) = evidence_table(found, "c").to_pylist()
    assert (row["made_by"], row["replica_id"]) == (maker, 3)


def folder_with(tmp_path: Path, before: int) -> LogFolder:
    log = tmp_path / "logs" / "broker-1" / "server.log"
    log.parent.mkdir(parents=True)
    texts = [logged("[KafkaServer id=1] started")] * before
    log.write_text("".join(f"{line}\n" for line in [*texts, logged(NEW_WORDS.format("acme-0")), logged(KNOWN[-2])]))
    return find_logs(log.parent.parent)


@pytest.mark.parametrize(("before", "where"), [(6, "broker-1/server.log:7"), (30_000, "server.log, near its end")])
def test_look_names_the_file_and_the_line(tmp_path: Path, before: int, where: str) -> None:
    (said,) = unread_lines_seen(folder_with(tmp_path, before))
    assert said.startswith("A line about an ISR in a form that is not known")
    assert where in said
    assert said.endswith(logged(NEW_WORDS.format("acme-0")))


def test_a_copy_with_other_names_has_the_line(tmp_path: Path) -> None:
    found, names = folder_with(tmp_path, 1), MadeUpNames()
    find_names(found, names)
    write_copy(found, names, tmp_path / "copy")
    assert "acme" not in (tmp_path / "copy" / "broker-1" / "server.log").read_text()
    (said,) = unread_lines_seen(find_logs(tmp_path / "copy"))
    assert "broker-1/server.log:2" in said
