"""Commands in the documents and the schedules exist, and so do their options."""

import re
import shlex
from collections.abc import Sequence
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


def test_commands_of_the_schedules() -> None:
    dag = (ROOT / "deploy/airflow/isr_batch_nightly.py").read_text(encoding="utf-8")
    lake = "--lake x --json"
    found = re.findall(r"isr-batch ([^\"]*{LAKE})", dag)
    told = [text.replace("{LAKE}", lake).replace("{until}", "--to 2026-01-01") for text in found]
    assert len(told) == 4
    for text in told:
        check(shlex.split(re.sub(r"{{.*?}}+", "2026-01-01", text)))
    bundle = yaml.safe_load((ROOT / "deploy/databricks/databricks.yml").read_text(encoding="utf-8"))
    assert {*bundle["resources"]["jobs"]} == {"logs", "table"}
    for scheduled in bundle["resources"]["jobs"].values():
        assert [task["task_key"] for task in scheduled["tasks"]] == ["ingest", "backfill"]
        for task in scheduled["tasks"]:
            check(task["spark_python_task"]["parameters"])
    job = yaml.safe_load((ROOT / "deploy/kubernetes/nightly.yaml").read_text(encoding="utf-8"))
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    lines = [line for line in container["args"][0].splitlines() if "isr-batch " in line]
    assert len(lines) == 3
    crontab = (ROOT / "deploy/cron/isr-batch.crontab").read_text(encoding="utf-8").replace(r"\%F", "%F")
    lines += re.findall(r"\bisr-batch .+?(?= &&|$)", crontab, re.MULTILINE)
    assert len(lines) == 3 + 5
    for line in lines:
        check(shlex.split(line.partition("isr-batch ")[2].replace('"$(date -u +%F)"', "2026-01-01")))


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
        assert [args[0] for args in commands] == ["ingest", "backfill", "status", "maintain"]
        assert commands[1] == ["backfill", "--to", "2026-01-01", "--lake", "LAKE", "--json"]
        for args in commands:
            check(args)


def test_every_command_is_a_job_as_well() -> None:
    jobs = {path.stem for path in (ROOT / "pipelines").glob("*.py") if "for spark-submit" in path.read_text()}
    assert {"ingest", "replay", "backfill", "status", "maintain", "validate", "report", "sweep", "sql"} <= jobs
