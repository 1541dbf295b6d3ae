"""Suggestions, completions and last sentences in a terminal, without Spark."""

import io
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.console import Console

from isr_batch.phrases import NAMES, brokers_text, did_you_mean, seconds_text
from isr_batch.scoring.broker_check import BrokerCheckSummary
from pipelines import cli
from pipelines.output import Output
from pipelines.run_cli import match_sentence
from tests.unit.command_line import Run


def test_of_many_names_the_first_are_listed() -> None:
    many = [f"name-{number}" for number in range(NAMES + 9)]
    assert did_you_mean("name-2", many) == "did you mean name-2?"
    assert did_you_mean("zzz", many).endswith(", name-11 and 9 more")
    assert did_you_mean("zzz", ["a", "b"]) == "there are a, b"
    assert did_you_mean("zzz", []) == "none is known"


@pytest.mark.parametrize(
    ("line", "word", "found"),
    [
        (
            "isr-batch replay --rules kafka-3.7,kip-501",
            3,
            ["kafka-3.7,kip-501-pending", "kafka-3.7,kip-501-relinquish"],
        ),
        ("isr-batch rules show true", 3, ["true-lag"]),
        ("isr-batch explain --lake nowhere --topic b", 5, []),
    ],
)
def test_a_shell_completes_rules_and_nothing_of_a_lake_that_is_not_there(
    line: str, word: int, found: list[str]
) -> None:
    asked = {"_ISR_BATCH_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(word)}
    program = Path(sys.executable).with_name("isr-batch")
    answer = subprocess.run([program], env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert answer.stdout.split() == found
    assert not answer.stderr


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"isr-batch {version('isr-batch')}\n"


def test_timelines_are_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["timeline", "--topic", "t", "--partition", "0", "--lake", "x", "--out", "picture.html"])
    assert "written as Parquet files, into a folder" in capsys.readouterr().err


@pytest.mark.parametrize(("matched", "missing", "of_observers", "said"), [
    (3, 0, 0, "on 3 of 3 ISR changes: the verdicts can be trusted."),
    (3, 1, 5, "on only 3 of 4 ISR changes, and the limit is 90%: do not trust the verdicts."),
    (0, 0, 0, "logged no ISR change, and the replay makes none: there is nothing to compare."),
    (0, 0, 5, "logged no other ISR change, and the replay makes none: there is nothing to compare."),
])  # fmt: skip
def test_validate_ends_with_a_sentence(matched: int, missing: int, of_observers: int, said: str) -> None:
    summary = BrokerCheckSummary([{"matched": matched, "missing": missing, "extra": 0, "of_observers": of_observers}])
    assert match_sentence(summary, 0.9).endswith(said)


def test_figures_have_no_exponents_and_long_lists_an_end() -> None:
    assert seconds_text([999, 1_190_000]) == "0.999 to 1,190 s"
    assert seconds_text([999_600]) == "1,000 s"
    assert brokers_text([3]) == "broker 3"
    assert brokers_text(range(60)) == "brokers 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 49 others"


@pytest.mark.parametrize(("command", "shown"), [
    ("run", "--release             X.Y.Z "), ("generate", "--idle-share            SHARE [0<=x<=1] "),
    ("explain", "PARTITION [x>=0] "), ("views", " spark|duckdb "), ("look", " DIR "),
])  # fmt: skip
def test_help_names_what_a_value_stands_for(isr_batch: Run, command: str, shown: str) -> None:
    _, out, _ = isr_batch(command, "--help")
    assert shown in out
    assert not re.search(r"<(str|int|bool|float|path|file|dir)", out)


@pytest.mark.parametrize("width", [40, 80, 100, 120, 200])
def test_no_terminal_is_too_narrow_for_a_number_or_a_rule(width: int) -> None:
    out = Output()
    out._stdout = Console(file=io.StringIO(), width=width)
    rows = [
        {"rule": rule, "shrinks": 12_345, "what": "to say " * 20, "high_watermark_stalled_seconds": 123_456.7}
        for rule in ("kafka-3.7", "kip-501-relinquish")
    ]
    out.table("", rows, list(rows[0]))
    assert isinstance(out._stdout.file, io.StringIO)
    lines = out._stdout.file.getvalue().splitlines()
    as_table = width >= 80  # else each cell has its line, and nothing is cut into pieces
    for rule in ("kafka-3.7", "kip-501-relinquish"):
        (line,) = (line for line in lines if rule in line)
        assert line.split() == [rule, "12345", *line.split()[2:-1], "123,457"] if as_table else ["rule", rule]
    assert sum(line.split()[-1:] == ["123,457"] for line in lines) == 2
    assert max(map(len, lines)) <= width or not as_table
    assert "".join(lines).count("say") == 40
