"""Damaged events: every line is accounted for, and none ends in a traceback."""

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.errors import AccountError, NoInputError
from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.folder.folder_warnings import folder_warnings
from isr_batch.ingest.kafka_logs.line_account import READ, total_lines
from isr_batch.ingest.kafka_logs.read import KafkaLogs, read_kafka_logs, survey_logs
from isr_batch.lake.arrow_sql import ArrowSql
from tests.mutated_events import file_of_events

GOLDEN = Path(__file__).parents[2] / "golden" / "server-log-only"
LINE = re.compile(r"\[(\S+) (\S+),(\d{3})\] ([A-Z]+) (.*) \(([\w.$]+)\)$")
PER_FILE, AT_ONCE = 500, 20
NAMES = ["server.log", "events.json", "kafka-1.ndjson", "stdout.log"]
Files = dict[str, bytes]


def lines() -> list[tuple[str, ...]]:
    found = (LINE.fullmatch(line) for log in sorted(GOLDEN.rglob("*.log")) for line in log.read_text().splitlines())
    return [one.groups() for one in found if one]


def read(sql: ArrowSql, folder: Path, files: Files) -> int:
    """Read these files; returns their number of lines, 0 if all were refused. It fails if the account is unbalanced."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    try:
        found = survey_logs(Here(sql), folder)
    except NoInputError:
        return 0
    folder_warnings(found)
    return total_lines(read_kafka_logs(Here(sql), folder, "c", "run", found=found, sql=sql).account(), READ)


def fails(sql: ArrowSql, folder: Path, files: Files) -> Exception | None:
    try:
        read(sql, folder, files)
    except Exception as error:  # noqa: BLE001 any is a find
        return error
    return None


def fewest_failing(files: Files, failing: Callable[[Files], object]) -> Files:
    """Leave out files, then lines of each, as long as the rest still fails."""
    for name in list(files):
        if failing(rest := {other: text for other, text in files.items() if other != name}):
            files = rest
    for name in list(files):
        events = files[name].split(b"\n")
        step = len(events)
        while step := step // 2:
            at = 0
            while at < len(events):
                fewer = events[:at] + events[at + step :]
                if failing(files | {name: b"\n".join(fewer)}):
                    events = fewer
                else:
                    at += step
        files |= {name: b"\n".join(events)}
    return files


def accounted(folder: Path, files: int, seed: int) -> int:
    """Write that many files of events, read some at once, and return the lines; a failure shows the events at fault."""
    chosen, every = random.Random(seed), lines()
    assert every
    total = 0
    with log_sql() as sql:
        while files > 0:
            some = {
                f"kafka-{number}/{chosen.choice(NAMES)}": file_of_events(chosen, every, PER_FILE)
                for number in range(min(files, AT_ONCE))
            }
            files -= len(some)
            try:
                total += read(sql, folder, some)
            except Exception as error:
                fewest = fewest_failing(some, lambda fewer: fails(sql, folder, fewer))
                raise AssertionError(f"seed {seed}: {error!r}, by {fewest}") from error
    return total


def test_damaged_events(tmp_path: Path) -> None:
    assert accounted(tmp_path / "logs", 3, 1) > PER_FILE // 2  # others are refused as a whole


def test_a_lost_line_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(_: KafkaLogs) -> None:
        raise AccountError("a line was lost")

    monkeypatch.setattr(KafkaLogs, "account", lose)
    event = file_of_events(random.Random(1), lines(), 4)
    with log_sql() as sql:
        assert isinstance(fails(sql, tmp_path / "logs", {"kafka-1/server.log": event}), AccountError)


def test_the_events_at_fault_are_found() -> None:
    files = {"a": b"1\n2\n3", "b": b"4\nbad\n5\n6\nworse\n7"}
    assert fewest_failing(files, lambda few: b"bad" in few.get("b", b"") and b"worse" in few["b"]) == {
        "b": b"bad\nworse"
    }


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_damaged_events(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "7"))
    files = int(os.environ.get("EVENTS", "100000")) // PER_FILE
    assert accounted(tmp_path / "logs", files, seed) > files * PER_FILE // 4
