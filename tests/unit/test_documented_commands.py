"""Commands in the documents and the schedules exist, and so do their options."""

import re
import runpy
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml

from pipelines.cli import app, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SCHEDULES = [path for path in sorted((ROOT / "deploy").rglob("*")) if path.suffix in {".py", ".yaml", ".yml"}]
INSTEAD = {"DIR": ".", "T": "topic", "P": "0", "D": "2026-01-01"}
"""Of names in capitals, where an option takes no text."""


ELSEWHERE = {
    "run": "`make sample` runs it",
    "anonymize": "tests/unit/ingest/test_anonymize.py runs what it does",
    "validate": "`make sample` does what it does; no broker ran a story",
    "ingest": "tests/spark/ingest/test_own_table.py and tests/spark/killed_runs.py run it",
}
IN_ORDER = (
    "generate", "experiment", "replay", "sweep", "sql", "views", "compare", "kip", "explain", "timeline", "export",
    "status", "backfill", "maintain",
)  # fmt: skip
"""Commands that tests/spark/test_documented_commands.py runs on the lake of a story."""


def commands_in(text: str) -> list[list[str]]:
    """Arguments of each `isr-batch` in a block of code, or between backticks with something after its command."""
    blocks = re.sub(r"<\([^)]*\)", "FILE", "\n".join(text.split("```")[1::2]))
    lines = re.findall(r"^(?:\.venv/bin/)?isr-batch (.+?)(?: +> .*)?(?: +# .*)?$", blocks, re.MULTILINE)
    spans = [span for span in re.findall(r"`isr-batch ([^`]+)`", text) if " " in span and "COMMAND" not in span]
    return [[INSTEAD.get(part, part) for part in shlex.split(told)] for told in (*lines, *spans)]


def check(args: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    context = command.make_context("isr-batch", list(args))
    while hasattr(command, "resolve_command"):
        name, command, args = command.resolve_command(context, list(args))
        context = command.make_context(name, list(args))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_of_the_documents(page: Path) -> None:
    for args in commands_in(page.read_text(encoding="utf-8")):
        check(args)


def in_process(args: Sequence[str]) -> bool:
    """Whether a command needs no lake."""
    return args[0] in {"rules", "config", "doctor", "look"}


def test_commands_that_need_no_lake_are_run() -> None:
    told = {tuple(args) for page in PAGES for args in commands_in(page.read_text(encoding="utf-8"))}
    small = [args for args in told if in_process(args)]
    assert len(small) > 3
    for args in small:
        with pytest.raises(SystemExit) as ended:
            main([{"ID": "kafka-3.7", ".": str(ROOT / "data/samples/quiet")}.get(part, part) for part in args])
        assert not ended.value.code, args


def test_the_others_are_run_elsewhere() -> None:
    """Every night, or as they say; a new command has to be given its place there."""
    told = {args[0] for page in PAGES for args in commands_in(page.read_text(encoding="utf-8")) if not in_process(args)}
    assert told <= {*ELSEWHERE, *IN_ORDER}


def test_commands_are_found() -> None:
    told = commands_in(
        "isr-batch reads\n```\n.venv/bin/isr-batch replay --lake LAKE  # now\n```\n`isr-batch rules show ID`"
    )
    assert told == [["replay", "--lake", "LAKE"], ["rules", "show", "ID"]]
    with pytest.raises(Exception, match="lakes"):
        check(["replay", "--lakes", "LAKE"])


def of_airflow(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands of both DAGs in the order of their tasks, with a stand-in for Airflow."""
    found: list[str] = []

    class Task(SimpleNamespace):
        def __rshift__(self, after: Any) -> Any:
            found.extend([self.bash_command] if self.task_id == "ingest" else [])
            found.append(after.bash_command)
            return after

    sdk = {"DAG": lambda *_, **__: nullcontext(), "Context": dict, "BashOperator": Task}
    errors = dict.fromkeys(("AirflowException", "AirflowFailException"), RuntimeError)
    for name in ("sdk", "providers.common.compat.sdk", "providers.standard.operators.bash"):
        monkeypatch.setitem(sys.modules, f"airflow.{name}", SimpleNamespace(**sdk, **errors))
    runpy.run_path(str(ROOT / "deploy/airflow/isr_batch_nightly.py"))
    return found


def of_databricks() -> list[str]:
    """Commands of all jobs; each task waits for the one before."""
    jobs = yaml.safe_load((ROOT / "deploy/databricks/databricks.yml").read_text(encoding="utf-8"))["resources"]["jobs"]
    for job in jobs.values():
        keys = [task["task_key"] for task in job["tasks"]]
        waits = [[before["task_key"] for before in task.get("depends_on", ())] for task in job["tasks"]]
        assert waits == [[], *([key] for key in keys[:-1])]
    parameters = [task["spark_python_task"]["parameters"] for job in jobs.values() for task in job["tasks"]]
    return ["isr-batch " + shlex.join(args) for args in parameters]


def of_kubernetes() -> list[str]:
    job = yaml.safe_load((ROOT / "deploy/kubernetes/nightly.yaml").read_text(encoding="utf-8"))
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return list(container["args"][0].splitlines())


def of_cron() -> list[str]:
    crontab = (ROOT / "deploy/cron/isr-batch.crontab").read_text(encoding="utf-8").replace(r"\%F", "%F")
    return re.findall(r"\bisr-batch .+?(?= &&|$)", crontab, re.MULTILINE)


def shape(args: list[str]) -> tuple[str, ...]:
    """Return a command and its options, without their values; the lake may be in a catalog, output may be JSON."""
    name = args[: 2 if args[0] == "ingest" else 1]
    options = {"--lake" if arg == "--catalog" else arg for arg in args if arg.startswith("--")}
    return (*name, *sorted(options - {"--json", "--quiet"}))


@pytest.mark.parametrize("schedule", ["airflow", "cron", "databricks", "kubernetes"])
def test_a_schedule_has_the_commands_of_the_page(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of docs/every-night.md; for a table, one command is another, and the weekly one may be shared."""
    lines = {
        "airflow": lambda: of_airflow(monkeypatch), "cron": of_cron, "databricks": of_databricks,
        "kubernetes": of_kubernetes,
    }[schedule]()  # fmt: skip
    found = []
    for line in lines:
        text = line.partition("isr-batch ")[2]
        if not text:
            continue
        args = shlex.split(re.sub(r"{{.*?}}+|\$\(date -u \+%F\)", "2026-01-01", text))
        check(args)
        found.append(shape(args))
    told = commands_in((ROOT / "docs/every-night.md").read_text(encoding="utf-8"))
    nightly = [shape(args) for args in told[:4]]
    weekly = shape(told[4])
    of_table = ("ingest", "table", "--lake", "--mapping")
    assert [each[0] for each in (*nightly, weekly)] == ["ingest", "backfill", "validate", "status", "maintain"]
    each_source = {
        "airflow": [*nightly, weekly, of_table, *nightly[1:], weekly],
        "kubernetes": [nightly[0], of_table, *nightly[1:], weekly],
    }
    assert found == each_source.get(schedule, [*nightly, of_table, *nightly[1:], weekly])


def test_the_dag_is_python() -> None:
    (dag,) = (path for path in SCHEDULES if path.parent.name == "airflow")
    compile(dag.read_text(encoding="utf-8"), str(dag), "exec")


def test_the_dag_in_airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    dagbag = pytest.importorskip("airflow.dag_processing.dagbag", reason="Airflow is not among the test's packages")
    found = dagbag.DagBag(ROOT / "deploy" / "airflow")
    assert not found.import_errors
    assert {*found.dags} == {"isr_batch_logs", "isr_batch_table"}
    of_dags = {"isr_batch_logs": ".", "isr_batch_table": ".", "isr_batch_mapping": "m.yaml", "isr_batch_lake": "LAKE"}
    known = {"ds": "2026-01-01", "var": SimpleNamespace(value=SimpleNamespace(**of_dags))}
    for dag in found.dags.values():
        tasks = dag.topological_sort()
        rendered = [task.render_template(task.bash_command, known, dag.get_template_env()) for task in tasks]
        commands = [shlex.split(text.partition("isr-batch ")[2]) for text in rendered]
        assert [args[0] for args in commands] == ["ingest", "backfill", "validate", "status", "maintain"]
        assert commands[1] == ["backfill", "--to", "2026-01-01", "--lake", "LAKE", "--json"]
        for args in commands:
            check(args)


def test_every_command_is_a_job_as_well() -> None:
    jobs = {path.stem for path in (ROOT / "pipelines").glob("*.py") if "for spark-submit" in path.read_text()}
    assert {"ingest", "replay", "backfill", "status", "maintain", "validate", "report", "sweep", "sql"} <= jobs
