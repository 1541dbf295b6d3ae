"""What `look` warns of is in the answer of `run` and in its report, in the same words."""

import html
import json
import re
from pathlib import Path

import pytest

from pipelines import cli
from tests.unit.ingest.test_look_and_run import FOLDERS, write


@pytest.mark.parametrize("name", ["only WARN", "an unknown release and two names"])
def test_warnings_of_look_are_in_the_answer_and_the_report(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows(*args: str) -> list[dict[str, list[str]]]:
        with pytest.raises(SystemExit) as exited:
            cli.main([*args, "--json"])
        assert not exited.value.code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    logs = write(tmp_path / "logs", FOLDERS[name])
    (warnings,) = [row["warnings"] for row in rows("look", str(logs)) if "warnings" in row]
    assert warnings
    done = rows("run", "--logs", str(logs), "--lake", str(tmp_path / "lake"))
    (answer,) = [row["answer"] for row in done if "answer" in row]
    page = html.unescape((tmp_path / "lake" / "report.html").read_text(encoding="utf-8"))
    for said in warnings:
        assert said in answer
        assert said in re.sub("</?(code|b)>", "", page)
