"""Exit codes, help and messages of the command line, without Spark."""

import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from isr_batch import errors
from isr_batch.doctor import examine_machine
from isr_batch.errors import IsrBatchError
from isr_batch.progress import counted, progress_now, uncounted
from isr_batch.settings import Settings
from pipelines import cli
from pipelines.cli import app
from pipelines.output import MOST_SHOWN, Output
from tests.unit.command_line import Run
from tests.unit.test_documented_commands import check

COMMANDS = [
    "run",
    "look",
    "anonymize",
    "ingest kafka-logs",
    "ingest table",
    "replay",
    "sweep",
    "generate",
    "experiment",
    "backfill",
    "status",
    "maintain",
    "timeline",
    "validate",
    "report",
    "sql",
    "views",
    "compare",
    "kip",
    "explain",
    "export prometheus",
    "export csv",
    "export incident",
    "rules list",
    "rules show",
    "config show",
    "doctor",
]


def test_no_command_is_left_out() -> None:
    def commands(group: Any, above: str = "") -> Iterator[str]:
        for name, command in group.commands.items():
            path = f"{above} {name}".strip()
            if hasattr(command, "commands"):
                yield from commands(command, path)
            else:
                yield path

    assert {*commands(typer.main.get_command(app))} == {*COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(isr_batch: Run, command: str) -> None:
    code, out, _ = isr_batch(*command.split(), "--help")
    assert code == 0
    assert "Usage: isr-batch" in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_that_is_one(isr_batch: Run, command: str) -> None:
    _, out, _ = isr_batch(*command.split(), "--help")
    told = " ".join(re.sub(r"[│╭╮╰╯]", " ", out).partition("Example: isr-batch ")[2].split())
    assert told.startswith(command)
    check(shlex.split(told))


def test_words_are_completed() -> None:
    asked = {"_ISR_BATCH_COMPLETE": "complete_bash", "COMP_WORDS": "isr-batch re", "COMP_CWORD": "1"}
    program = [sys.executable, "-m", "pipelines.cli"]
    answer = subprocess.run(program, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert answer.stdout.split() == ["replay", "report"]


def test_exit_codes_are_those_that_schedules_rely_on() -> None:
    codes = {
        kind.__name__: kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, IsrBatchError) and kind is not IsrBatchError
    }
    assert codes == {
        "UsageError": 2,
        "StorageError": 2,
        "NoInputError": 3,
        "NothingToReplayError": 3,
        "QualityGateError": 4,
        "SchemaError": 5,
        "AccountError": 70,
        "WriteConflictError": 6,
    }


def test_error_for_programs(isr_batch: Run) -> None:
    code, _, err = isr_batch("rules", "show", "kafka-3.8", "--json")
    told = json.loads(err)
    assert code == told["exit_code"] == 2
    assert told["level"] == "error"
    assert told["hint"] == "did you mean kafka-3.7?"


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (
            RuntimeError("called o1.\nCaused by: java.io.IOException: No space left on device\n\tat x"),
            2,
            "a disk is full",
        ),
        (
            OSError("Generic LocalFileSystem error: Unable to copy data: No space left on device (os error 28)"),
            2,
            "a disk is full",
        ),
        (
            RuntimeError("Job aborted: java.io.FileNotFoundException: /a (Permission denied)"),
            2,
            "/a (Permission denied)",
        ),
        *(
            (RuntimeError(f"An error occurred while calling o7.sql.\n: {said}\n\tat x"), 2, expected)
            for said, expected in (
                ('o.a.h.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3x"', "addresses: s3x"),
                ("ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "addresses: "),
                ("UnknownStoreException: `s3a://nope/lake': Bucket does not exist", "s3a://nope"),
                ("java.nio.file.AccessDeniedException: s3a://b/l: secret=hunter2 (403)", "denies access"),
                ("java.net.UnknownHostException: nope.example", "nope.example cannot be reached"),
                ("[SCHEMA_NOT_FOUND] The schema `a`.`isr` cannot be found.", "no schema a`.`isr"),
            )
        ),
        (MemoryError(), 2, "out of memory"),
        (RuntimeError("Out of Memory Error: Allocation failure"), 2, "give the machine or container more"),
        (RuntimeError("Caused by: java.lang.OutOfMemoryError: Java heap space"), 2, "raise spark.driver_memory"),
        (RuntimeError("Unknown error: Failed to launch worker thread: Resource unavailable"), 2, "out of memory"),
        (PermissionError(13, "Permission denied", "/a/report.html"), 2, "/a/report.html"),
        (NotADirectoryError(20, "Not a directory", "/a"), 2, "/a: Not a directory"),
        (
            RuntimeError(
                "x [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/a/b.parquet.  SQLSTATE"
            ),
            5,
            "file:/a/b.parquet cannot be read",
        ),
    ],
)
def test_faults_of_the_machine_are_no_bugs(
    isr_batch: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, told: str
) -> None:
    def broken(_env: str | None) -> Settings:
        raise error

    monkeypatch.setattr(cli, "settings_of_job", broken)
    found, _, err = isr_batch("doctor")
    assert found == code
    assert told in err
    assert "Traceback" not in err
    assert "hunter2" not in err


def test_bug_exits_with_70_and_a_traceback(isr_batch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_env: str | None) -> Settings:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "settings_of_job", broken)
    code, _, err = isr_batch("doctor")
    assert code == 70
    assert "ZeroDivisionError" in err
    assert "please report" in err


def test_rules(isr_batch: Run) -> None:
    code, out, _ = isr_batch("rules", "list", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    kinds = ["released", "proposed", "elsewhere", "reference"]
    assert rows == sorted(rows, key=lambda row: (kinds.index(row["kind"]), row["year"]))
    rules = [row["rule"] for row in rows]
    assert (rules[0], rules[-1]) == ("kafka-0.8", "true-lag")
    code, out, _ = isr_batch("rules", "show", "kafka-3.7")
    assert code == 0
    assert "replica_lag_time_max_ms" in out


def test_config_show_can_be_used_as_a_file(isr_batch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, shown, _ = isr_batch("config", "show", "--set", "kafka-3.7.replica_lag_time_max_ms=10000")
    assert code == 0
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "base.yaml").write_text(shown)
    monkeypatch.chdir(tmp_path)
    assert isr_batch("config", "show") == (0, shown, "")


def test_doctor_names_remedies(isr_batch: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code, out, err = isr_batch("doctor", "--json")
    checks = {row["check"]: row for row in map(json.loads, out.splitlines())}
    assert code == 2
    assert checks["python"]["ok"] == checks["numba"]["ok"] == "ok"
    assert "install Java 17" in checks["java"]["what_to_do"]
    assert "java" in json.loads(err)["event"]


def test_doctor_looks_at_the_zone_the_disk_and_sparks_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def what_to_do(name: str) -> str:
        return {check.check: check.what_to_do for check in examine_machine(Settings())}[name]

    monkeypatch.delenv("SPARK_HOME")
    assert what_to_do("spark") == what_to_do("time zone") == what_to_do("disk") == ""
    monkeypatch.setenv("TZ", "Nowhere/Land")
    assert what_to_do("time zone").startswith("set TZ=UTC")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "gone"))
    assert "SPARK_LOCAL_DIRS" in what_to_do("disk")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr("isr_batch.doctor.MIN_DISK_GB", 1e9)
    assert f"make room in {tmp_path}" in what_to_do("disk")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert "unset SPARK_HOME" in what_to_do("spark")


@pytest.mark.parametrize("colour", [False, True])
def test_a_terminal_sees_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch, colour: bool) -> None:
    monkeypatch.setattr("pipelines.output.POLLS", 0.01)
    (monkeypatch.delenv if colour else monkeypatch.setenv)("NO_COLOR", *([False] if colour else ["1"]))
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = io.StringIO()
    out = Output()
    out._stderr = Console(file=stream, force_terminal=True, width=100, highlight=False)
    asked = threading.Event()

    def running() -> tuple[tuple[int, ...], int, int]:
        asked.set()
        return (7,), 12, 64

    out.watched = running
    with out.step("replay 15 rules") as facts:
        assert asked.wait(10)
        time.sleep(0.3)
        facts["rows"] = 5
    shown = stream.getvalue()
    assert "12 of 64 tasks" in shown
    assert "5 rows" in shown
    assert bool(re.search(r"\x1b\[(38;5|3\d)", shown)) == colour


def test_a_terminal_shows_the_counts_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.output.POLLS", 0.01)
    out = Output()
    out._stderr = Console(file=(stream := io.StringIO()), force_terminal=True, width=120)
    with out.step("ingest"):
        for _ in counted(((part, 40) for part in range(3)), 120, "MB"):
            time.sleep(0.2)
        with uncounted("writes tables"):
            time.sleep(0.1)
    assert all(text in stream.getvalue() for text in ("80 of 120 MB", "writes tables"))
    assert progress_now() is None


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_library_logs_progress_or_warnings(capsys: pytest.CaptureFixture[str], quiet: bool, as_json: bool) -> None:
    Output(quiet=quiet, as_json=as_json).show_logged()
    logging.getLogger("isr_batch.any").info("compiling \x1b[31m")
    logging.getLogger("isr_batch.any").warning("a sign of life")
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 - quiet
    assert "\x1b" not in "".join(told)
    if as_json:
        assert [json.loads(line)["level"] for line in told] == ["info"] * (not quiet) + ["warning"]


def test_a_bar_ends_with_its_step_when_spark_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.output.POLLS", 0.01)
    out = Output()
    out._stderr = Console(file=io.StringIO(), force_terminal=True)
    asked = threading.Event()

    def broken() -> tuple[tuple[int, ...], int, int]:
        asked.set()
        raise RuntimeError

    out.watched = broken
    with out.step("report"):
        assert asked.wait(10)
    assert "progress" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("as_json", [False, True])
def test_elsewhere_a_line_a_minute_says_how_far_it_has_come(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setattr("pipelines.output.FIRST_LINES", (0.01, 0.02))
    monkeypatch.setattr("pipelines.output.LINES", 0.02)
    with Output(as_json=as_json).step("ingest"):
        for _ in counted(((part, 1000) for part in range(3)), 3000, "MB"):
            time.sleep(0.1)
    lines = capsys.readouterr().err.splitlines()
    assert any(re.search(r"ingest: 0:00, 2,000 of 3,000 MB, [\d.]+ a second, 0:00 left", line) for line in lines)
    with Output(quiet=True, as_json=as_json).step("ingest"):
        time.sleep(0.1)
    assert not capsys.readouterr().err


def test_elsewhere_there_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.watched = lambda: pytest.fail("nobody looks")
    with out.step("replay"):
        pass
    assert "\x1b" not in capsys.readouterr().err


def _imported_by(*arguments: str) -> set[str]:
    code = (
        "import sys\nfrom pipelines.cli import main\ntry:\n  main(sys.argv[1:])\nfinally:\n  print('|', *sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(answer.stdout.rpartition("|")[2].split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["replay", "--help"], ["sweep", "--help"], ["rules", "list"], ["config", "show"]]
)
def test_small_commands_do_not_wait_for_spark(arguments: list[str]) -> None:
    assert not {"pyspark", "pandas", "delta"} & _imported_by(*arguments)


@pytest.mark.parametrize("arguments", [["rules", "list"], ["rules", "show", "kafka-3.7"]])
def test_commands_about_rules_take_no_spark_and_no_kernels(arguments: list[str]) -> None:
    assert not {"pyspark", "numba", "delta"} & _imported_by(*arguments)


@pytest.mark.parametrize(
    "job", ["run", "ingest", "replay", "sweep", "validate", "report", "sql", "views", "compare", "explain"]
)
def test_job_file_is_the_same_command(job: str, tmp_path: Path) -> None:
    file = Path(cli.__file__).parent / f"{job}.py"
    answer = subprocess.run(
        [sys.executable, str(file), "--help"],
        cwd=tmp_path,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert f"Usage: isr-batch {job}" in answer.stdout


@pytest.mark.parametrize("as_json", [False, True])
def test_of_very_many_rows_people_see_the_first_and_programs_all(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    out = Output(as_json=as_json)
    for count in (MOST_SHOWN, MOST_SHOWN + 1):
        out.table("", [{"n": -n} for n in range(count)], ["n"])
        printed = capsys.readouterr().out
        assert (str(1 - count) in printed.replace("}", "").split()) == (as_json or count == MOST_SHOWN)
        assert ("1,000 of 1,001 rows" in printed) == (count > MOST_SHOWN and not as_json)
