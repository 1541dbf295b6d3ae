"""A cluster whose executors have Python and no packages gives the tables that one machine gives."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.killed_runs import commands, content, finished

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "deploy" / "standalone" / "cluster.sh"
BARE = ROOT / "build" / "bare" / "bin" / "python"
LOGS = ROOT / "data" / "samples" / "follower-stop"

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture
def master() -> Iterator[str]:
    subprocess.run(["make", "-s", "archive"], cwd=ROOT, check=True)
    try:
        yield subprocess.run([CLUSTER, "start"], check=True, capture_output=True, text=True).stdout.strip()
    finally:
        subprocess.run([CLUSTER, "stop"], check=True)


def submit(master: str, command: list[str], scratch: Path) -> None:
    """As docs/engines-and-sizes.md says, with executors that fit next to the tests."""
    small = {
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g", "spark.executor.memory": "800m",
        "spark.sql.shuffle.partitions": "4", "spark.databricks.delta.snapshotPartitions": "2",
        "spark.executorEnv.PYTHONPATH": "packages",
    }  # fmt: skip
    script, *options = command
    subprocess.run(
        [
            ROOT / ".venv/bin/spark-submit", "--master", master,
            "--properties-file", ROOT / "conf/spark-defaults.conf",
            "--archives", f"{ROOT / 'build/packages.tar.gz'}#packages",
            *(word for name, value in small.items() for word in ("--conf", f"{name}={value}")),
            ROOT / "pipelines" / f"{script}.py", *options,
        ],
        env=os.environ | {
            "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": str(BARE), "SPARK_LOCAL_DIRS": str(scratch),
            "ISR_BATCH__VALIDATION__MIN_MATCHED_RATIO": "0", "ISR_BATCH__INGEST__MAX_QUARANTINE_RATIO": "1",
        },
        check=True,
    )  # fmt: skip


def test_a_cluster_writes_the_tables_that_one_machine_writes(master: str, tmp_path: Path) -> None:
    assert subprocess.run([BARE, "-c", "import numpy"], capture_output=True, check=False).returncode == 1
    for command in commands(tmp_path / "cluster", LOGS):
        submit(master, command, tmp_path / "scratch")
    finished(commands(tmp_path / "one", LOGS), tmp_path / "one-scratch")
    tables, of_one = content(tmp_path / "cluster"), content(tmp_path / "one")
    assert tables["isr_changes"]
    assert tables.keys() == of_one.keys()
    for name, rows in of_one.items():
        assert tables[name] == rows, name
