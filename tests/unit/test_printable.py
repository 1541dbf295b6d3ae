"""Names of others never control what shows them."""

import io
import subprocess
import time
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from isr_batch.errors import UsageError
from isr_batch.explain.shrink_text import shrink_headline, shrink_lines
from isr_batch.explain.swimlane import PICTURES, draw_swimlane
from isr_batch.explain.swimlane_data import BROKERS, SwimlaneScene
from isr_batch.printable import printable, printable_lines, shell_word
from isr_batch.report import page
from pipelines.output import Output
from tests.unit.explain.test_shrink_text import NOW, SECOND, STORY

NAME = "a\x1b[31m\x07\r\nb\x00\x9b\u202e\u2066:warning:[red]\ud800\x7f"
SHOWN = r"a\x1b[31m\x07\x0d\x0ab\x00\x9b\u202e\u2066:warning:[red]\ud800\x7f"


def controls(text: str) -> set[str]:
    return {each for each in text if unicodedata.category(each) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}} - {"\n"}


@given(st.text() | st.text(st.sampled_from("ab\\'\n\x1b\u202e \xa0")))
def test_nothing_that_is_not_visible_is_left(text: str) -> None:
    assert not controls(printable(text))
    assert "\n" not in printable(text)
    assert (printable(text) == text) == (not controls(text) and "\n" not in text)
    assert printable_lines(text).count("\n") == text.count("\n")
    assert not controls(shell_word(text))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://AKIA:a/b+c@d@bucket/lake", "s3://***@bucket/lake"),
        ("there is no https:/token@host/x, or a", "there is no https:/***@host/x, or a"),
        ("jdbc:postgresql://me:pw@host:5432/db", "jdbc:postgresql://***@host:5432/db"),
        ("'s3://k:s@b/x' and \"gs://k:s@b/y\"", "'s3://***@b/x' and \"gs://***@b/y\""),
        ("https://a.blob.example/b?sv=1&sig=abc", "https://a.blob.example/b?***"),
        *(
            (same, same)
            for same in (
                "abfss://logs@account.dfs.core.windows.net/a", "hdfs://namenode:9000/a@b:c", "s3://bucket/a:b/c@d",
                "https://host/docs?q=1", "mail a:b@c", "C:/a", "at 10:00:/x",
            )
        ),
    ],
)  # fmt: skip
def test_credentials_in_addresses_are_hidden(capsys: pytest.CaptureFixture[str], text: str, shown: str) -> None:
    assert printable(text) == shown
    assert UsageError(text, text).message == UsageError("", text).hint == str(UsageError(text)) == shown
    for as_json in (False, True):
        out = Output(as_json=as_json)
        out.warn(text)
        out.progress(text)
        out.error(f"Traceback\n{text}", "", 70)
    written = "".join(capsys.readouterr())
    assert shown == text or text not in written


def test_a_line_end_in_the_name_of_a_path_begins_no_line_of_a_message() -> None:
    assert UsageError("there is no a\nwarning: b").message == r"there is no a\x0awarning: b"
    assert UsageError("2 mistakes:\n  a\n  b").message == "2 mistakes:\n  a\n  b"


@given(st.text(max_size=30), st.text(st.sampled_from("ab1+/=%@"), min_size=1), st.sampled_from(["s3", "s3a"]))
def test_no_secret_is_shown(around: str, secret: str, scheme: str) -> None:
    shown = printable(f"{around} {scheme}://key:{secret}@bucket/x")
    assert shown == printable(f"{around} {scheme}://***@bucket/x")


def test_hostile_text_takes_no_time() -> None:
    began = time.process_time()
    for text in (
        "a" * 300_000,
        "a:/" * 100_000,
        "a://b:" * 50_000,
        "s3://" + "a:@" * 100_000,
        "s3://?" + "ke" * 100_000,
    ):
        printable(text)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("text", ["a b", "it's", "a\nb", "\x1b[0m'\\", "\u202eab", "\x85", "$(id)", "\\n", ""])
def test_a_shell_reads_the_word_back(text: str) -> None:
    program = ["bash", "-c", f"printf %s {shell_word(text)}"]
    env = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    assert subprocess.run(program, capture_output=True, check=True, env=env).stdout.decode() == text


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("terminal", [False, True])
def test_whatever_a_command_writes(capsys: pytest.CaptureFixture[str], as_json: bool, terminal: bool) -> None:
    out = Output(as_json=as_json)
    shown = io.StringIO()
    out._stdout = Console(file=shown, force_terminal=terminal, no_color=True, markup=False, emoji=False)
    out._stderr = Console(file=shown, force_terminal=terminal, no_color=True, markup=False, emoji=False)
    out.text([NAME, f"of {NAME}"])
    out.say(name=NAME)
    out.table(NAME, [{NAME: NAME, "list": [NAME]}], [NAME, "list"])
    out.error(NAME, NAME, 2)
    out.progress(NAME)
    with out.step(NAME):
        pass
    written = "".join([*capsys.readouterr(), shown.getvalue()])
    assert "31m" in written
    assert "\N{WARNING SIGN}" not in written
    assert controls(written) <= ({"\x1b", "\r"} if terminal else set())  # of the bar, and of bold headings
    assert "\x1b[31m" not in written


@pytest.mark.parametrize("suffix", PICTURES)
def test_a_picture_of_such_a_topic(tmp_path: Path, suffix: str) -> None:
    story = replace(STORY, topic=NAME, cluster_id=NAME, broker_version=NAME)
    assert SHOWN in shrink_headline(story)
    assert all(not controls(printable(line)) for line in shrink_lines(story))
    fetches = {3: STORY.dropped[0].fetches}
    scene = SwimlaneScene(NOW - 9 * SECOND, NOW + SECOND, (), fetches, (), (), {(3, BROKERS): ()})
    draw_swimlane(scene, story, tmp_path / f"story{suffix}")
    if suffix != ".png":
        written = (tmp_path / f"story{suffix}").read_text()
        assert "31m" in written
        assert not {"\x1b", "\x00", "\u202e", "\u2066"} & {*written}


def test_a_report() -> None:
    shown = page._shown_on_page({"titles": [NAME], "row": ({"topic": NAME},), "number": 1})
    assert shown == {
        "titles": [SHOWN.replace(r"\x0a", "\n")],
        "row": [{"topic": SHOWN.replace(r"\x0a", "\n")}],
        "number": 1,
    }
