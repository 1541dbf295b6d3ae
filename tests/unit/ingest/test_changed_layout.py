"""A file whose layout changes in its middle, as after an upgrade: its lines are read, or refused with their number."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from isr_batch.ingest.engine.engine import Here
from isr_batch.ingest.kafka_logs.line_account import SKIPPED, USED, Tally, line_account, require_balance
from isr_batch.ingest.kafka_logs.lines_of_interest import OTHER_LAYOUT, read_lines_of_interest
from isr_batch.ingest.kafka_logs.quarantine import refused_lines
from isr_batch.ingest.kafka_logs.read import read_kafka_logs, survey_logs
from isr_batch.ingest.log_files.look import LAYOUT_LINES
from isr_batch.ingest.requests.request_log import REFUSED
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.tables.inputs import QUARANTINE
from tests.log_lines import SERVER_LOG_ONLY

ENTRY = re.compile(r"^\[(\S+) (\S+),(\d+)\] (\w+) (.*) \(([\w.$]+)\)$")
LINES = list(filter(ENTRY.match, (SERVER_LOG_ONLY / "broker-1" / "server.log").read_text().splitlines()))
QUIET = f"{LINES[0][:25]} INFO nothing (kafka.server.Quiet)"


def without_brackets(line: str) -> str:
    return ENTRY.sub(r"\1 \2,\3 \4 \5 (\6)", line)


def with_t(line: str) -> str:
    return ENTRY.sub(r"[\1T\2,\3] \4 \5 (\6)", line)


def logger_first(line: str) -> str:
    return ENTRY.sub(r"\1 \2,\3 \4 \6: \5", line)


def as_event(line: str) -> str:
    found = ENTRY.match(line)
    assert found
    day, time, millis, level, message, logger = found.groups()
    return json.dumps({"@timestamp": f"{day}T{time}.{millis}Z", "level": level, "message": message, "logger": logger})


def by_kubectl(line: str) -> str:
    return ENTRY.sub(r"\1T\2.\g<3>000000Z \g<0>", line)


def own(line: str) -> str:
    return line


def write(folder: Path, lines: list[str]) -> None:
    (folder / "broker-1").mkdir()
    (folder / "broker-1" / "server.log").write_text("".join(f"{line}\n" for line in lines))


def read(sql: ArrowSql, folder: Path) -> tuple[list[Tally], pa.Table]:
    """Account for the lines, and give those that are refused, without the tables that an ingest makes of the others."""
    found = survey_logs(Here(sql), folder)
    lines = read_lines_of_interest(Here(sql), sql, found)
    refused = refused_lines(sql, lines)
    account = line_account(found, pa.table({}), lines, refused)
    require_balance(account)
    return account, refused


def rows_of_other_layout(refused: pa.Table) -> list[dict[str, Any]]:
    rows = [row for row in refused.to_pylist() if row["reason"] == OTHER_LAYOUT]
    assert {row["source_file"] for row in rows} <= {"broker-1/server.log"}
    return rows


@pytest.mark.parametrize("after", [without_brackets, with_t, logger_first, as_event, by_kubectl, own])
@pytest.mark.parametrize("before", [own, without_brackets, with_t, logger_first, as_event, by_kubectl])
def test_no_line_is_lost_without_a_word(
    sql: ArrowSql, tmp_path: Path, before: Callable[[str], str], after: Callable[[str], str]
) -> None:
    write(tmp_path, [*[before(QUIET)] * LAYOUT_LINES, *map(after, LINES)])
    account, lines = read(sql, tmp_path)
    server = {(tally.became, tally.what): tally.lines for tally in account if tally.log == "server"}
    used, refused = server[USED, "of interest"], server.get((REFUSED, OTHER_LAYOUT), 0)
    assert used + refused == len(LINES)
    assert server[SKIPPED, "of no interest"] == LAYOUT_LINES
    if before is after:
        assert not refused
    rows = rows_of_other_layout(lines)
    assert len(rows) == refused
    for row in rows:
        assert row["detail"]
        assert row["detail"] in after(LINES[row["source_line"] - LAYOUT_LINES - 1])


def test_an_ingest_refuses_these_lines(sql: ArrowSql, tmp_path: Path) -> None:
    write(tmp_path, [*[QUIET] * LAYOUT_LINES, *map(as_event, LINES)])
    account, lines = read(sql, tmp_path)
    logs = read_kafka_logs(Here(sql), tmp_path, "c", "run", sql=sql)
    assert logs.account() == account
    table = logs.tables[QUARANTINE.name]
    assert isinstance(table, pa.Table)
    rows = rows_of_other_layout(table)
    assert [row["source_line"] for row in rows] == list(range(LAYOUT_LINES + 1, LAYOUT_LINES + 1 + len(LINES)))
    assert len(rows) == len(rows_of_other_layout(lines))
    for row, line in zip(rows, map(as_event, LINES), strict=True):
        assert row["detail"]
        assert row["detail"] in line


def test_stack_traces_are_not_refused(sql: ArrowSql, tmp_path: Path) -> None:
    trace = ["java.lang.IllegalStateException: no", "\tat kafka.utils.Log4jController.get(Log4jController.scala:9)"]
    write(tmp_path, [*LINES, *trace])
    account, _ = read(sql, tmp_path)
    assert not [tally for tally in account if tally.became == REFUSED]
