"""Around the analysis: ingest into a lake, the run log, exit codes, the tables at the end of a run."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from isr_batch.errors import NoInputError, QualityGateError, UsageError
from isr_batch.ingest import broker_logs
from isr_batch.ingest.folder.clusters import find_clusters
from isr_batch.ingest.folder.log_folder import LogFolder
from isr_batch.ingest.folder.log_options import LogOptions
from isr_batch.ingest.kafka_logs.line_account import Tally
from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.run_log import RunCounts, write_run_log
from isr_batch.lake.tables.contract import Table
from isr_batch.lake.tables.inputs import APPEND_LOG, QUARANTINE
from isr_batch.lake.tables.outputs import ISR_CHANGES, REPLAY_CHECK, SHRINK_VERDICTS
from isr_batch.lake.tables.scores import PARTITION_SCORES, REPLICA_SCORES
from isr_batch.replay.days import DaysOfReplay, InputFingerprints
from isr_batch.replay.replay import ReplaySummary
from isr_batch.scoring.broker_check import BrokerCheckSummary, require_match, summary
from isr_batch.scoring.scores import rules_side_by_side
from isr_batch.window import Window
from pipelines import cli, run_cli
from pipelines.ingest_cli import LogsOfCommand
from udfs.batches.rule_runs import RuleRun

PARAMS = '{"replica_lag_time_max_ms": 10000}'
DAY, NOON = date(2026, 1, 1), datetime(2026, 1, 1, 12, tzinfo=UTC)
SET = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_epoch": 1, "leader_id": 1}


def given(table: Table, *rows: dict[str, Any]) -> pa.Table:
    """Rows of a contract; times may be text."""
    parsed = {"TIMESTAMP": lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC), "DATE": date.fromisoformat}
    times = {column.name: parsed[column.type] for column in table.columns if column.type in parsed}
    full = [
        dict.fromkeys(table.column_names) | SET | row
        | {name: parse(row[name]) for name, parse in times.items() if isinstance(row.get(name), str)}
        for row in rows
    ]  # fmt: skip
    return pa.Table.from_pylist(full, arrow_schema(table))


def put(lake: Lake, table: Table, *rows: dict[str, Any]) -> None:
    """Let these be all rows of a table; without Spark, which takes half a second for each."""
    lake.ensure(table)
    with InProcess(lake) as engine:
        engine.replace(table, engine.rows(given(table, *rows)))


def frame(spark: SparkSession, table: Table, *rows: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame(given(table, *rows))


def test_too_much_in_quarantine_fails_with_the_reason_and_its_first_line(lake: Lake) -> None:
    refused = {"source_file": "a.log", "source_line": 7, "reason": "odd", "raw": "x y", "rows_kept": False,
               "ingest_run": "r"}  # fmt: skip
    put(lake, QUARANTINE, refused)
    broker_logs.require_clean_broker_logs(lake, "c", RunCounts(100, 0, 1), 0.01)
    with pytest.raises(QualityGateError, match=r"2 of 100 .*2.00%, .*\): odd \(1 line\), first a.log:7 \(x y\)"):
        broker_logs.require_clean_broker_logs(lake, "c", RunCounts(100, 0, 2), 0.01)


def test_failed_run_is_recorded_where_there_is_a_lake(lake: Lake) -> None:
    def fail() -> None:
        with write_run_log(lake, "replay", "2026-01-01..", "hash"):
            raise NoInputError("nothing there")

    with pytest.raises(NoInputError):
        fail()
    assert not Path(lake.root).exists()
    lake.ensure(APPEND_LOG)
    with pytest.raises(NoInputError):
        fail()
    run = lake.read("run_log").collect()[0]
    assert (run["status"], run["exit_code"], run["message"]) == ("failed", 3, "nothing there")
    assert run["input_table_versions"] == {"append_log": 0}


def verdict(rule: str, verdict: str, cause: str) -> dict[str, Any]:
    return {
        "rule": rule,
        "params_json": PARAMS,
        "change_time": NOON,
        "kind": "shrink",
        "replica_id": 2,
        "isr_before": [1, 2],
        "isr_after": [1],
        "made_by": "rule",
        "verdict": verdict,
        "primary_cause": cause,
        "causes": [cause],
        "event_date": DAY,
    }


def check(status: str, error_ms: float, observed_hw: int = 5) -> dict[str, Any]:
    pair = dict.fromkeys(("follower_log_end_offset", "leader_log_end_offset", "high_watermark"), 5)
    return {
        "rule": "kafka-3.7",
        "params_json": "{}",
        "replica_id": 2,
        "kind": "shrink",
        "status": status,
        "observed_time": None if status == "extra" else NOON,
        "replayed_time": None if status == "missing" else NOON,
        "time_error_ms": error_ms,
        "event_date": DAY,
        **{f"observed_{name}": value for name, value in pair.items()},
        **{f"replayed_{name}": value for name, value in pair.items()},
        "observed_high_watermark": observed_hw,
    }


def write_results(lake: Lake) -> None:
    nothing = {column.name: 0 for column in PARTITION_SCORES.columns if column.type == "BIGINT"}
    cost = nothing | {"params_json": PARAMS, "exposure_us": 1, "event_date": DAY}
    rows: dict[str, list[dict[str, Any]]] = {
        ISR_CHANGES.name: [],
        REPLICA_SCORES.name: [],
        PARTITION_SCORES.name: [cost | {"rule": rule} for rule in ("true-lag", "kafka-3.7", "kafka-0.9")],
        SHRINK_VERDICTS.name: [
            verdict("kafka-3.7", "spurious", "slow_leader"),
            verdict("kafka-3.7", "genuine", "follower_slow"),
            verdict("kafka-0.9", "unknown", "unknown"),
        ],
        REPLAY_CHECK.name: [check("matched", 1.5), check("matched", -3.0, observed_hw=4), check("missing", 0.0)],
    }
    for table in (ISR_CHANGES, REPLICA_SCORES, PARTITION_SCORES, SHRINK_VERDICTS, REPLAY_CHECK):
        put(lake, table, *rows[table.name])


def replayed_days(lake: Lake, known: InputFingerprints) -> DaysOfReplay:
    return DaysOfReplay(lake, Window(), [RuleRun("kafka-3.7")], known, Window(), None)


def test_summaries(lake: Lake) -> None:
    write_results(lake)
    rows = rules_side_by_side(lake)
    assert [row["rule"] for row in rows] == ["kafka-0.9", "kafka-3.7", "true-lag"]
    assert [(row["shrinks"], row["spurious"], row["genuine"], row["slow_leader"]) for row in rows] == [
        (1, 0, 0, 0),
        (2, 1, 1, 1),
        (0, 0, 0, 0),
    ]
    match = summary(lake)
    (counted,) = match.rows
    names = ("matched", "missing", "extra", "within_100_ms", "offsets_equal")
    assert [counted[name] for name in names] == [2, 1, 0, 2, 1]
    assert counted["caught_up_within_2_ms"] is None
    assert (match.matched, round(match.matched_ratio, 2)) == (2, 0.67)
    require_match(match, 0.6)
    with pytest.raises(QualityGateError, match=r"66\.67%"):
        require_match(match, 0.7)
    require_match(BrokerCheckSummary([]), 1.0)


def test_clusters_are_found_and_named(tmp_path: Path) -> None:
    for cluster in ("a", "b"):
        broker = tmp_path / cluster / "broker-1"
        broker.mkdir(parents=True)
        (broker / "server.log").touch()
    (tmp_path / "notes").mkdir()

    def folders(folder: Path, name: str | None = None) -> dict[str, Path]:
        return {name: folder for name, (folder, _) in find_clusters(folder, name).items()}

    assert folders(tmp_path) == {"a": tmp_path / "a", "b": tmp_path / "b"}
    assert folders(tmp_path / "a") == {"a": tmp_path / "a"}
    assert folders(tmp_path / "a", "x") == {"x": tmp_path / "a"}
    with pytest.raises(UsageError, match="a, b, which cannot all be x"):
        find_clusters(tmp_path, "x")
    for folder in ("notes", "nowhere"):
        with pytest.raises(NoInputError):
            find_clusters(tmp_path / folder)


def test_run_ends_with_tables_report_and_exit_code(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parts are stand-ins here: this is about how they are put together."""
    monkeypatch.setattr("isr_batch.report.write_report", lambda _lake, file, *_: file.write_text("page"))
    monkeypatch.setattr("isr_batch.scoring.broker_check.validate", summary)
    found = LogsOfCommand({"c": (tmp_path, LogFolder())}, None, LogOptions())
    monkeypatch.setattr(run_cli, "find_logs_of_command", lambda *_, **__: found)
    monkeypatch.setattr(run_cli, "say_nothing_to_replay", lambda *_: None)
    monkeypatch.setattr(
        broker_logs,
        "ingest_broker_logs",
        lambda *_, **__: broker_logs.IngestOfBrokerLogs(RunCounts(100, 50, 0), [Tally("server", "read", "", 100)]),
    )

    replays = []

    def replay(lake: Lake, *_: object, **__: object) -> ReplaySummary:
        replays.append(lake.run_id)
        write_results(lake)
        return ReplaySummary(50, {"shrink_verdicts": 3}, replayed_days(lake, InputFingerprints({})))

    monkeypatch.setattr("isr_batch.nightly.replay", replay)
    monkeypatch.setattr("isr_batch.nightly.write_disagreements", lambda *_: 1)
    monkeypatch.setattr("isr_batch.nightly.write_eligible_leaders", lambda *_: 1)
    late_checks = iter((0, 12, 0))
    monkeypatch.setattr("isr_batch.scoring.late_checks.find_late_checks", lambda _: next(late_checks))
    run = ["run", "--logs", str(tmp_path), "--lake", lake.root, "--rules", "kafka-3.7", "--engine", "local"]
    told = {}
    for options in ((), ("--all",), ("--json",)):
        with pytest.raises(SystemExit) as exited:
            cli.main([*run, *options])
        captured = capsys.readouterr()
        assert exited.value.code == 4  # one logged change in three is missing
        assert "validation.min_matched_ratio" in captured.err
        told[options] = captured.out
    assert [replays.count(run_id) for run_id in dict.fromkeys(replays)] == [1, 2, 1], "once more with late checks"
    assert told[()].startswith("This lake has no terms of leaders")
    assert "Shrinks by rule" not in told[()]
    assert "Lines of c" not in told[()]
    assert len(told[()].splitlines()) <= 13
    assert "Shrinks by rule" in told["--all",]
    assert "Lines of c" in told["--all",]
    assert "kafka-3.7" in told["--all",]
    assert "params" not in told["--all",]
    assert '"table": "Shrinks by rule, and the causes of the spurious ones"' in told["--json",]
    assert f"tables: {lake.root}" in told[()]
    assert (Path(lake.root) / "report.html").read_text() == "page"


def test_sql_answers_and_reports_errors(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(lake)
    replayed_days(lake, InputFingerprints({date(2026, 1, 1): "line"})).mark()
    for query, code, told in (
        ("SELECT rule FROM spurious_shrinks", 0, '"rule": "kafka-3.7"'),
        ("SELECT rule FROM spurious_shrink", 2, "spurious_shrinks"),
        ("SELEC rule", 2, "PARSE_SYNTAX_ERROR"),
    ):
        with pytest.raises(SystemExit) as exited:
            cli.main(["sql", "--json", "--quiet", "--lake", lake.root, query])
        captured = capsys.readouterr()
        assert (exited.value.code or 0) == code
        assert told in captured.out + captured.err
        assert "Traceback" not in captured.err
