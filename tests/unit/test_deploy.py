"""The files of deploy/, each read by its own tool; they are installed elsewhere: Airflow brings 100 packages."""

import ast
import os
import re
import runpy
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

import pipelines.cli

DEPLOY = Path(__file__).parents[2] / "deploy"
TOOLS = ("apache-airflow==3.3.2", "apache-airflow-providers-standard==1.21.0", "databricks-bundles==1.22.1",
         "kubernetes-validate==1.37.0")  # fmt: skip
READS = {
    "airflow": """
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(DEPLOY + "/airflow")
assert not bag.import_errors, bag.import_errors
assert {*bag.dags} == {"isr_batch_logs", "isr_batch_table"}
for dag in bag.dags.values():
    assert dag.task_ids == ["ingest", "backfill", "validate", "status", "maintain"]
    assert all(task.retries == 3 for task in dag.tasks)
import logging, sys
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
logging.disable()
command = type(dag.get_task("ingest"))
for code in (0, 2, 3, 4, 5, 6, 70, 137):
    try:
        command(task_id=f"ends_with_{code}", bash_command=f"exit {code}").execute({})
        assert code == 0
    except AirflowException as error:
        assert (type(error) is AirflowFailException) == (2 <= code <= 5), (code, error)
""",
    "databricks": """
import os
from databricks.bundles.jobs import Job
jobs = yaml.safe_load(open(DEPLOY + "/databricks/databricks.yml"))["resources"]["jobs"]
for job in jobs.values():
    tasks = Job.from_dict(job).tasks
    assert all(os.path.isfile(f"{DEPLOY}/databricks/{task.spark_python_task.python_file}") for task in tasks)
    assert all(task.max_retries == 0 and task.disable_auto_optimization for task in tasks)  # nightly.py retries
try:
    Job.from_dict(job | {"max_concurent_runs": 1})
except ValueError as error:
    assert "max_concurent_runs" in str(error)
else:
    raise AssertionError("a field that does not exist is found")
""",
    "kubernetes": """
import kubernetes_validate as tool
job = yaml.safe_load(open(DEPLOY + "/kubernetes/nightly.yaml"))
tool.validate(job, tool.latest_version(), strict=True)
try:
    tool.validate(job | {"spec": job["spec"] | {"concurencyPolicy": "Forbid"}}, tool.latest_version(), strict=True)
except tool.ValidationError as error:
    assert "concurencyPolicy" in str(error)
else:
    raise AssertionError("a field that does not exist is found")
""",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tools")
    venv.create(made, with_pip=True)
    found = made / "bin/python"
    pip = [str(found), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet", *TOOLS]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if "connection broken" in done.stderr:  # anything else, as a pin that is gone, is a failure
        pytest.skip(f"the index of packages is out of reach: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-3000:]
    return found


@pytest.mark.nightly
@pytest.mark.timeout(3600)  # Airflow alone is some 100 packages
@pytest.mark.parametrize("tool", READS)
def test_its_own_tool_reads_it(tool: str, python: Path, tmp_path: Path) -> None:
    code = f"import yaml\nDEPLOY = {str(DEPLOY)!r}\n{READS[tool]}"
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "AIRFLOW_HOME": str(tmp_path),
           "AIRFLOW__CORE__UNIT_TEST_MODE": "True"}  # fmt: skip
    done = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def steps_of_image() -> str:
    """Return the step of the Dockerfile that installs packages, as one line of a shell."""
    joined = (DEPLOY / "docker/Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    (step,) = (line.removeprefix("RUN ") for line in joined.splitlines() if "pip install" in line)
    return step


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_steps_of_the_image_give_a_command_that_runs_the_samples(tmp_path: Path) -> None:
    """In a bare environment instead of a container, which this machine may not have."""
    venv.create(tmp_path / "bare", with_pip=True)
    root, empty = DEPLOY.parent, tmp_path / "empty"
    empty.mkdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=root, check=True
    )
    shutil.copy(root / "requirements/run.lock", tmp_path)
    here = {"PATH": f"{tmp_path / 'bare/bin'}:{os.environ['PATH']}"}
    # pip is configured as here; Spark and Python are not, as tests set them.
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PY"))} | here
    subprocess.run(["/bin/sh", "-ec", steps_of_image()], cwd=tmp_path, env=bare, check=True)
    done = subprocess.run(
        ["isr-batch", "run", "--samples", "--quiet"], cwd=empty, check=True, stdout=subprocess.PIPE, text=True,
        env=here | {"HOME": str(empty), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert "Of 86 followers that your brokers dropped, 18 were healthy" in done.stdout
    assert (empty / "isr-batch-samples/report.html").is_file()


def test_retries_are_those_of_the_docs() -> None:
    """Airflow and Kubernetes list the codes for which an operator has to act; Databricks those to try again."""
    page = (DEPLOY.parent / "docs/killed-and-concurrent.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| ([\d, ]+) \|.*\| (alert|retry) \|$", page, re.MULTILINE)
    codes = {does: {int(code) for given, do in listed if do == does for code in given.split(",")} for _, does in listed}
    assert codes == {"alert": {2, 3, 4, 5}, "retry": {6, 70, 130, 143, 137}}
    job = yaml.safe_load((DEPLOY / "kubernetes/nightly.yaml").read_text(encoding="utf-8"))
    (rule,) = job["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert {*rule["onExitCodes"]["values"]} == codes["alert"]
    dag = ast.parse((DEPLOY / "airflow/isr_batch_nightly.py").read_text(encoding="utf-8"))
    given = {ast.unparse(line.targets[0]): line.value for line in dag.body if isinstance(line, ast.Assign)}
    assert ast.literal_eval(given["NOT_RETRIED"]) == codes["alert"]
    of_process = {130, 143, 137}  # it has ended then
    assert runpy.run_path(str(DEPLOY / "databricks/nightly.py"))["RETRIED"] == codes["retry"] - of_process


@pytest.mark.parametrize(
    ("ends", "code", "calls"),
    [([0], None, 1), ([2], 2, 1), ([4], 4, 1), ([6, 0], None, 2), ([70, 6, 5], 5, 3), ([6, 6, 6, 6], 6, 4)],
)
def test_a_task_of_databricks(ends: list[int], code: int | None, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, left = [], iter(ends)

    def main(args: list[str]) -> None:
        asked.append(args)
        raise SystemExit(next(left))

    monkeypatch.setattr(pipelines.cli, "main", main)
    run = runpy.run_path(str(DEPLOY / "databricks/nightly.py"))["run"]
    if code is None:
        run(["backfill"], waits_s=(0, 0, 0))
    else:
        with pytest.raises(SystemExit) as ended:
            run(["backfill"], waits_s=(0, 0, 0))
        assert ended.value.code == code
    assert asked == [["backfill"]] * calls


def test_lines_of_cron_are_understood_by_a_shell() -> None:
    """A line of cron has five fields, and a command in which a per cent sign is written with a backslash."""
    lines = (DEPLOY / "cron/isr-batch.crontab").read_text(encoding="utf-8").splitlines()
    jobs = [line.lstrip("#") for line in lines if line.lstrip("#")[:1].isdigit()]
    assert len(jobs) == 3  # every night, of logs or of a table, and every week
    for job in jobs:
        command = job.split(maxsplit=5)[5]
        assert command.count("%") == command.count(r"\%")
        subprocess.run(["/bin/sh", "-n", "-c", command.replace(r"\%", "%")], check=True)
