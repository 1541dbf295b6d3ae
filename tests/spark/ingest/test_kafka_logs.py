"""Broker logs into tables: generated leaders, a separate case each, and recorded logs if available.

An ingest takes as long for twenty brokers as for one, so all cases share one, and each looks at its own broker.
"""

import gzip
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from isr_batch.broker_lines.log_sql import log_sql
from isr_batch.ingest.engine.engine import Engine, Here
from isr_batch.ingest.engine.in_spark import InSpark, Spread, spark_frame_of_spread
from isr_batch.ingest.kafka_logs.line_account import refused_as_bad
from isr_batch.ingest.kafka_logs.read import KafkaLogs, read_kafka_logs
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.tables.inputs import INPUT_TABLES
from tests.spark.broker_logs import (
    ACCOUNT,
    APPENDS,
    BAD_FILES,
    BROUGHT,
    CHECKS,
    GAPS,
    HANDED_OVER,
    ISR,
    LATE,
    NO_SESSION,
    OPEN_END,
    QUIET,
    SESSION,
    SILENCE,
    START,
    TERMS,
    TRACES,
    UNTOLD,
    Rows,
    epoch_ms,
    rows_of,
    traces,
    write_cases,
    write_controlled,
)

Tables = dict[str, list[dict[str, Any]]]
INSTANTS = ("arrival_time", "handled_time", "processed_time", "released_time", "completed_time")


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Of this process; and of Spark's workers, which get the same rows a packet at a time."""
    if request.param == "spark":
        yield InSpark(request.getfixturevalue("spark_session"))
        return
    with log_sql() as sql:
        yield Here(sql)


def ingested(engine: Engine, folder: Path) -> tuple[KafkaLogs, Tables]:
    logs = read_kafka_logs(engine, folder, "c", "run-1")
    tables = {name: rows_of(table) for name, table in logs.tables.items()}
    return logs, tables | {"fetches": [*singly(tables["fetch_log"])]}


def singly(runs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of fetch_log, with a row for each fetch of a run."""
    for run in runs:
        later = [0] * 6 + (run["later_by"] or [])
        for n in range(run["run_length"]):
            *more_us, lines = later[6 * n : 6 * n + 6]
            for name, us in zip(INSTANTS, more_us, strict=True):
                run[name] += timedelta(microseconds=us)
            run["source_line"] += lines
            yield dict(run)


@pytest.fixture(scope="module")
def cases(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[KafkaLogs, Tables]:
    folder = tmp_path_factory.mktemp("cases")
    write_cases(folder)
    return ingested(engine, folder)


@pytest.fixture(scope="module")
def controlled(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[KafkaLogs, Tables]:
    folder = tmp_path_factory.mktemp("controlled")
    write_controlled(folder)
    return ingested(engine, folder)


def chosen(tables: dict[str, list[dict[str, Any]]], broker: int, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Sorted rows of one broker; times as seconds since the start."""

    def of_broker(row: dict[str, Any]) -> bool:
        named = row.get("leader_id", row.get("broker_id"))
        return bool(named == broker if named is not None else row["source_file"].startswith(f"broker-{broker}/"))

    def plain(value: Any) -> Any:
        return round((value.replace(tzinfo=None) - START).total_seconds(), 6) if isinstance(value, datetime) else value

    rows = [tuple(plain(row[name]) for name in columns) for row in tables[table] if of_broker(row)]
    return sorted(rows, key=lambda row: [(value is None, value) for value in row])


@pytest.fixture
def rows(cases: tuple[KafkaLogs, dict[str, Any]]) -> Rows:
    return lambda *what: chosen(cases[1], *what)


def test_tables_have_the_contracted_columns(cases: tuple[KafkaLogs, Any]) -> None:
    for table in INPUT_TABLES:
        made = cases[0].tables[table.name]
        if isinstance(made, Spread):
            made = spark_frame_of_spread(made)
            assert made.columns == table.column_names
            assert [kind.upper() for _, kind in made.dtypes] == [column.type for column in table.columns]
        else:
            assert made.schema == arrow_schema(table)


def test_fetches_of_a_session_with_their_instants(rows: Rows) -> None:
    columns = ("topic", "partition_id", "leader_epoch", "replica_id", "fetch_offset", "event_date")
    day = date(2026, 11, 21)
    assert rows(SESSION, "fetches", *columns) == [(f"my-t.{SESSION}", 0, 4, 99, 5, day)] * 2
    assert rows(SESSION, "fetches", *INSTANTS) == [
        (10.0, 10.002, 10.005, 10.505, 10.71), (11.0, 11.001, 11.002, 11.002, 11.003)
    ]  # fmt: skip


def test_a_stamp_written_late_is_taken_back_to_the_next_request(rows: Rows) -> None:
    times = rows(LATE, "fetches", "fetch_offset", "arrival_time", "completed_time")
    assert times == [(5, 10.097, 10.1), (6, 10.1, 10.103)]


def test_an_unknown_topic_keeps_its_id(rows: Rows) -> None:
    assert rows(LATE, "fetches", "topic")[0] == (f"QOGIGkfUTjeQvN1wX98d{LATE:02}",)


def test_every_line_is_accounted_for(cases: tuple[KafkaLogs, Any], rows: Rows) -> None:
    account = cases[0].account()  # fails when it does not add up
    refused = [row for row in cases[1]["quarantine"] if row["raw"] and "request.log" in row["source_file"]]
    skipped = {(tally.log, tally.what): tally.lines for tally in account if tally.became == "skipped"}
    assert skipped == {
        ("request", "blank"): 1, ("request", "other"): 1, ("request", "other fetch"): 2,
        ("server", "of no interest"): 0, ("state-change", "of no interest"): 0,
    }  # fmt: skip
    assert refused_as_bad(account) == len(refused) + 5  # three Shrinking lines, and two of terms
    assert rows(ACCOUNT, "quarantine", "source_line", "reason", "ingest_run") == [
        (6, "truncated line", "run-1"),
        (7, "text request of an unknown form", "run-1"),
        (8, "not a line of the request log", "run-1"),
        (9, "values out of range", "run-1"),
        (10, "offset or partition out of range", "run-1"),
        (11, "no readable time stamp", "run-1"),
        (12, "request without api key or durations", "run-1"),
        (13, "two requests in one line", "run-1"),
    ]
    assert rows(ACCOUNT, "quarantine", "raw")[-1] == ("no log line",)


def test_bad_files_are_reported_and_the_rest_is_read(rows: Rows) -> None:
    whole_files = [
        row for row in rows(BAD_FILES, "quarantine", "source_file", "source_line", "reason") if row[1] is None
    ]
    folder = f"broker-{BAD_FILES}"
    assert whole_files == [
        (f"{folder}/request.log.1.gz", None, "truncated or corrupt gzip file"),
        (f"{folder}/request.log.2", None, "binary file"),
        (f"{folder}/server.log", None, "empty file"),
        (f"{folder}/server.properties", None, "no server.properties"),
    ]
    read = rows(BAD_FILES, "fetches", "source_file")
    assert 100 < len(read) < 401
    assert (f"{folder}/request.log",) in read


def test_gaps_in_sessions_are_reported(rows: Rows) -> None:
    assert rows(GAPS, "quarantine", "source_line", "reason", "rows_kept") == [
        (3, "gap in fetch session", True), (4, "fetch session began before the log", True)
    ]  # fmt: skip
    assert len(rows(GAPS, "fetches", "source_line")) == 4


def test_fetches_without_a_session_stand_alone(rows: Rows) -> None:
    assert rows(NO_SESSION, "fetches", "fetch_offset", "arrival_time") == [(5, 10.0), (6, 10.001)]
    assert rows(NO_SESSION, "quarantine", "reason") == []


def test_appends_end_where_the_next_begins_or_at_the_nearest_evidence(rows: Rows) -> None:
    ends = rows(APPENDS, "append_log", "leader_epoch", "base_offset", "log_end_offset", "log_end_source")
    assert ends == [
        (4, 0, 3, "inferred"), (4, 3, 5, "appends"), (4, 5, 9, "fetches"), (4, 9, 10, "inferred"),
        (4, None, None, None), (6, 12, 13, "inferred"),
    ]  # fmt: skip
    told = rows(APPENDS, "append_log", "append_time", "acknowledged_time", "error_code", "acks")
    assert told == [
        (10.001, 10.036, 0, -1), (10.005, None, 0, None), (11.001, None, 7, -1), (13.002, None, 19, -1),
        (14.002, None, 0, None), (31.001, 31.003, 0, 1),
    ]  # fmt: skip
    assert rows(APPENDS, "quarantine", "source_line", "reason") == [(3, "produce request sent again")]


def test_a_later_term_or_a_shrinking_line_ends_the_last_append(rows: Rows) -> None:
    ends = rows(OPEN_END, "append_log", "leader_epoch", "base_offset", "log_end_offset", "log_end_source")
    assert ends == [(4, 0, 5, "inferred"), (4, 5, 8, "terms"), (6, 8, 9, "shrinks")]


def test_an_append_is_dated_by_the_answer_that_first_brought_it_to_a_follower(rows: Rows) -> None:
    # The response took half a millisecond to write. No fetch asked for offset 4.
    assert rows(BROUGHT, "append_log", "base_offset", "append_time") == [(0, 10.0015), (3, 10.0125), (4, 11.001)]


def test_requests_without_an_answer_share_the_growth_by_their_sizes(rows: Rows) -> None:
    ends = rows(UNTOLD, "append_log", "append_time", "base_offset", "log_end_offset", "log_end_source", "log_end_error")
    assert ends == [
        (10.002, 0, 3, "inferred", 2),
        (10.102, 3, 4, "fetches", 0),
        (11.002, None, None, None, None),  # a follower that came later still found the log to end at 4
        (11.7025, 4, 6, "inferred", 0),  # by no producer: the answer to the second wait brought it
        (12.001, 6, 8, "fetches", 0),
    ]
    assert rows(UNTOLD, "append_log", "error_code", "acks") == [(-1, 0), (0, -1), (0, 0), (0, 0), (0, None)]


def test_an_append_whose_end_only_a_later_term_shows_is_of_the_file_with_that_term(rows: Rows) -> None:
    columns = ("base_offset", "log_end_offset", "source_file")
    assert rows(HANDED_OVER, "append_log", *columns) == [(0, 4, f"broker-{HANDED_OVER}/request.log")]


def test_terms_end_with_the_next_or_with_the_process(rows: Rows) -> None:
    columns = ("start_time", "end_time", "leader_epoch", "assigned", "min_insync_replicas")
    assert rows(TERMS, "leader_epochs", *columns) == [
        (5.0, 15.0, 4, [TERMS, 99], 2),
        (15.0, 20.0, 5, [TERMS], 2),
        (30.0, 35.003, 7, [TERMS, 99], 2),
        (45.0, 50.003, 7, [TERMS, 99], 2),
    ]
    assert rows(TERMS, "broker_events", "event_time", "kind") == [(0.0, "started"), (40.0, "started")]
    facts = rows(TERMS, "leader_epochs", "replica_lag_time_max_ms", "broker_version", "check_origin_source")
    assert facts[0] == (4000, "4.1.0", "unknown")


def test_silence_is_a_stretch_without_any_work_while_a_request_waits(rows: Rows) -> None:
    assert rows(SILENCE, "broker_events", "kind", "event_time", "end_time") == [("silent", 10.602, 14.6025)]


def test_followers_that_all_wait_for_data_are_no_silence(rows: Rows) -> None:
    assert rows(QUIET, "broker_events", "kind") == []


def test_checks_fall_on_the_grid_of_their_process_and_in_silences(rows: Rows) -> None:
    assert rows(CHECKS, "broker_events", "kind", "event_time", "end_time") == [
        ("check", 20.1, 20.1), ("check", 26.1, 26.13), ("check", 28.1, 30.7),
        ("silent", 27.7, 30.695), ("started", 0.0, 0.0),
    ]  # fmt: skip
    origin = rows(CHECKS, "leader_epochs", "check_origin_ms", "check_origin_source")
    assert origin == [(epoch_ms(20.1), "shrinks")]


def test_isr_changes_without_a_metadata_log(rows: Rows) -> None:
    columns = ("change_time", "kind", "replica_id", "made_by", "last_caught_up_time_ms", "follower_log_end_offset")
    assert rows(ISR, "observed_isr_changes", *columns) == [
        (31.0, "shrink", 99, "leader", epoch_ms(26), 5),
        (40.0, "expand", 99, "leader", None, None),
    ]
    assert rows(ISR, "leader_epochs", "assigned", "isr_write_ms") == [([ISR, 98, 99], 200)]
    # Numbers that no Kafka prints, and a follower that the term does not assign.
    assert rows(ISR, "quarantine", "source_line", "reason", "rows_kept") == [
        (2, "leader or follower line of an unknown form", False),
        (2, "replica not assigned", True),
        (3, "leader or follower line of an unknown form", False),
        (3, "offset goes back without a truncation", True),
        *((number, "Shrinking ISR line of an unknown form", False) for number in (5, 6, 7)),
    ]
    assert rows(ISR, "quarantine", "detail")[:2] == [
        (f"replica 97 of my-t.{ISR}-0 in epoch 4, 2 times",), (f"replica 97 of my-t.{ISR}-0 in epoch 4, from 5 to 3",)
    ]  # fmt: skip


def test_isr_changes_and_brokers_by_the_controller(controlled: tuple[KafkaLogs, dict[str, Any]]) -> None:
    tables = controlled[1]
    columns = ("change_time", "kind", "replica_id", "leader_epoch", "isr_after", "made_by")
    assert chosen(tables, 1, "observed_isr_changes", *columns) == [
        (8.0, "shrink", 98, 4, [1, 99], "controller"),
        (31.0, "shrink", 99, 4, [1], "leader"),
        (32.0, "expand", 99, 4, [1, 99], "leader"),
        (61.0, "shrink", 99, 4, [1], "leader"),
    ]
    assert chosen(tables, 99, "observed_isr_changes", *columns) == [(33.0, "shrink", 1, 5, [99], "controller")]
    assert chosen(tables, 1, "leader_epochs", "assigned", "min_insync_replicas") == [([1, 98, 99], 3)]
    told = chosen(tables, 1, "broker_events", "kind", "event_time")
    assert [row for row in told if row[0] not in {"check", "started"}] == [
        ("fenced", 34.0), ("fenced", 36.0), ("shutting_down", 35.0), ("unfenced", 37.0)
    ]  # fmt: skip
    assert [row["reason"] for row in tables["quarantine"]] == ["malformed metadata record"] * 3


@traces
@pytest.mark.traces
@pytest.mark.long
def test_recorded_stuck_cluster(engine: Engine) -> None:
    logs, tables = ingested(engine, TRACES / "r12-stuck-min-isr")
    account = {tally.what: tally.lines for tally in logs.account() if tally.log == "request"}
    assert account == {"": 2729, "follower fetch": 1159, "produce": 1443, "other": 127}
    assert len(tables["fetches"]) == 9236
    made = Counter((row["kind"], row["made_by"]) for row in tables["observed_isr_changes"])
    assert made == {("shrink", "leader"): 10, ("shrink", "controller"): 38}
    assert all(row["source_file"] for row in tables["append_log"])


@traces
@pytest.mark.traces
@pytest.mark.long
def test_fetches_are_those_that_the_broker_recorded(engine: Engine) -> None:
    run = TRACES / "r4-leader-stop"
    derived: dict[Any, list[int]] = {}
    for row in sorted(ingested(engine, run)[1]["fetches"], key=itemgetter("handled_time")):
        if row["error_code"] == 0:
            key = (row["leader_id"], row["topic"], row["partition_id"], row["replica_id"])
            derived.setdefault(key, []).append(row["fetch_offset"])
    recorded: dict[Any, list[int]] = {}
    update = re.compile(
        r"\[Partition (\S+)-(\d+) broker=(\d+)\] Recorded replica (\d+) log end offset \(LEO\) position (\d+)"
    )
    for path in run.glob("broker-*/partition-debug.log.gz"):
        for match in update.finditer(gzip.decompress(path.read_bytes()).decode()):
            topic, partition, leader, replica, offset = match.groups()
            recorded.setdefault((int(leader), topic, int(partition), int(replica)), []).append(int(offset))
    assert recorded.keys() == derived.keys()
    # All but the fetch that was in flight when the brokers were killed at the end.
    assert all(recorded[partition][:-1] == derived[partition] for partition in recorded)
