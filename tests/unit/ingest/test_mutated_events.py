"""Damaged events: every line is accounted for, and none ends in a traceback."""

import os
import random
import re
from pathlib import Path

import pytest

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.errors import IsrBatchError
from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.folder.folder_warnings import folder_warnings
from isr_batch.ingest.kafka_logs.line_account import READ, total_lines
from isr_batch.ingest.kafka_logs.read import read_kafka_logs, survey_logs
from isr_batch.lake.arrow_sql import ArrowSql
from tests.mutated_events import file_of_events

GOLDEN = Path(__file__).parents[2] / "golden" / "server-log-only"
LINE = re.compile(r"\[(\S+) (\S+),(\d{3})\] ([A-Z]+) (.*) \(([\w.$]+)\)$")
PER_FILE = 500


def lines() -> list[tuple[str, ...]]:
    found = (LINE.fullmatch(line) for log in sorted(GOLDEN.rglob("*.log")) for line in log.read_text().splitlines())
    return [one.groups() for one in found if one]


def read(sql: ArrowSql, folder: Path) -> int:
    """Read a folder; returns its number of lines, 0 if it was refused."""
    try:
        found = survey_logs(Here(sql), folder)
        folder_warnings(found)
        account = read_kafka_logs(Here(sql), folder, "c", "run", found=found, sql=sql).account()  # fails if unbalanced
    except IsrBatchError:
        return 0
    return total_lines(account, READ)


def accounted(folder: Path, files: int, seed: int) -> int:
    chosen, every = random.Random(seed), lines()
    assert every
    folder.mkdir(exist_ok=True)
    total = 0
    with log_sql() as sql:
        for _ in range(files):
            log = folder / chosen.choice(["server.log", "events.json", "kafka-1.ndjson", "stdout.log"])
            log.write_bytes(file_of_events(chosen, every, PER_FILE))
            total += read(sql, folder)
            log.unlink()
    return total


def test_damaged_events(tmp_path: Path) -> None:
    assert accounted(tmp_path / "kafka-1", 3, 1) > PER_FILE // 2  # others are refused as a whole


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_damaged_events(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "7"))
    files = int(os.environ.get("EVENTS", "100000")) // PER_FILE
    assert accounted(tmp_path / "kafka-1", files, seed) > files * PER_FILE // 4
