"""A rule in a separate file: known to one process, by the page's example; wrong files are refused."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import typer

from isr_batch import errors
from pipelines.cli import app
from udfs import rules

ROOT = Path(__file__).parents[3]
EXAMPLE = re.findall(r"```python\n(.+?)```", (ROOT / "docs/add-a-rule.md").read_text(encoding="utf-8"), re.DOTALL)[0]


def shown(file: Path, rule: str = "patient") -> subprocess.CompletedProcess[str]:
    """Result of `rules show` in a new process."""
    command = [sys.executable, "-m", "pipelines.cli", "rules", "show", rule, "--rule-file", str(file)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(file.parent), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=file.parent)


def test_the_page_s_example_is_a_rule(tmp_path: Path) -> None:
    file = tmp_path / "patient.py"
    file.write_text(EXAMPLE, encoding="utf-8")
    result = shown(file)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("patient: the rule of Kafka 3.7, but")
    assert "patience_percent" in result.stdout
    assert re.search(r"out_of_sync +patient +It is out of sync by the rule of Kafka 3.7", result.stdout)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("patient.py", None, "there is no such file"),
        ("other.py", EXAMPLE, "the rule 'patient' belongs in a file patient.py, not other.py"),
        ("kafka_3_7.py", EXAMPLE, "a rule of the name kafka_3_7 exists"),
        ("patient.py", "RULES = []", "patient.py has no RULE"),
        (
            "patient.py",
            EXAMPLE.replace('"proposed"', '"perhaps"'),
            "in_force of patient is 'perhaps'",
        ),
        ("patient.py", "RULE =", "SyntaxError: invalid syntax"),
        ("patient.py", "from udfs.rules.kafka_3_8 import RULE", "No module named 'udfs.rules.kafka_3_8'"),
    ],
)
def test_a_file_that_has_no_rule_is_refused(name: str, text: str | None, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = shown(tmp_path / name)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_machine_code_with_the_file_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """So the next replay without it compiles nothing."""
    (tmp_path / "patient.py").write_text(EXAMPLE, encoding="utf-8")
    asked = (
        "from isr_batch import numba_cache; from udfs.kernel.replay import advance_replay; "
        "print(numba_cache.SourcesLocator.from_function(advance_replay.py_func, '').folder.name)"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT),
                   "NUMBA_CACHE_DIR": str(tmp_path)}  # fmt: skip
    names = [
        subprocess.run(
            [sys.executable, "-c", asked], capture_output=True, text=True, check=True, env=environment | more
        ).stdout
        for more in ({}, {"ISR_BATCH_RULE_FILE": str(tmp_path / "patient.py")}, {})
    ]
    assert names[0] == names[2]
    assert names[0].startswith("isr-batch-replay-")
    assert names[1].startswith("isr-batch-trial-")
    assert all((tmp_path / name.strip()).is_dir() for name in names)


def test_a_field_that_no_follower_has_is_the_file_s_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = np.zeros(1, np.dtype([("fetches", np.int64)]))

    @numba.njit  # type: ignore[untyped-decorator]
    def out_of_sync(followers: Any) -> Any:
        return followers[0].late_checks

    monkeypatch.setenv(errors.RULE_FILE, "patient.py")
    for error in (KeyError("a bug"), ValueError("another")):
        assert errors.explained_error(error) is None
    with pytest.raises(Exception, match="late_checks") as raised:
        out_of_sync(follower)
    explained = errors.explained_error(raised.value)
    assert explained is not None
    assert explained.exit_code == 2
    assert explained.message.startswith("patient.py cannot be compiled")
    assert "late_checks" in explained.message


def test_the_variable_has_one_name() -> None:
    assert errors.RULE_FILE == rules.RULE_FILE


def test_every_command_that_takes_rules_takes_a_rule_file() -> None:
    def without(group: Any, above: str = "") -> Iterator[str]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from without(command, f"{above}{name} ")
                continue
            taken = {parameter.name for parameter in command.params}
            if taken & {"rules", "rule", "grid", "first", "old"} and "rule_file" not in taken:
                yield above + name

    assert [*without(typer.main.get_command(app))] == []
