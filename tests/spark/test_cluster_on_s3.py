"""A standalone cluster of two workers writes to S3 what one machine writes to a folder.

It needs moto's server (`benchmarks.s3_server`): ``MOTO_SERVER=PATH/bin/moto_server pytest -m nightly`` with this file.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.s3_server import MOTO, SECRET, s3_server, submit_arguments
from benchmarks.standalone import executor_options, standalone_cluster

WORKERS = 2
RULES = "kafka-0.9,kafka-3.7,kip-501-pending"
COMPARED = (
    "replica_timeline", "partition_timeline", "isr_changes", "shrink_verdicts", "partition_scores", "rule_scores"
)  # fmt: skip
# By Spark however few the events are, and what it was asked, by which executors.
_SCRIPT = """
import json, os, sys
from benchmarks.standalone import executors_of
from isr_batch.lake import sizes
from pipelines.cli import main
from pyspark.sql import SparkSession
sizes.REPLAYED_EVENTS = -1
for command in json.loads(sys.argv[1]):
    try:
        main([*command, "--json"])
    except SystemExit as ended:
        print(json.dumps({"exit": ended.code or 0}), flush=True)
done = executors_of(SparkSession.getActiveSession())
print(json.dumps({"tasks": {number: each.tasks for number, each in done.items()}}), flush=True)
"""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not MOTO, reason="there is no moto_server"),
]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    with s3_server(tmp_path / "moto.log") as url:
        yield url


def answers(lake: str, master: str, arguments: str) -> tuple[list[dict[str, object]], dict[str, int]]:
    """Rows of the tables that a replay wrote, and how many tasks each executor had."""
    of_lake = ["--lake", lake]
    work = [
        ["generate", "kip-501-example", *of_lake],
        ["replay", "--rules", RULES, "--timelines", "all", *of_lake],
    ]
    queries = [["sql", f"SELECT * FROM {name} ORDER BY ALL", *of_lake] for name in COMPARED]
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(work + queries)],
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": arguments, "ISR_BATCH__SPARK__MASTER": master},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert SECRET not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr[-2000:]
    *rows, last = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["exit"] for row in rows if "exit" in row] == [0] * (len(work) + len(queries)), done.stderr[-2000:]
    asked = [row for row in rows if "exit" not in row]
    return [row for row in asked if "rule" in row], last["tasks"]


def test_two_workers_on_s3_write_the_tables_of_one_machine_in_a_folder(endpoint: str, tmp_path: Path) -> None:
    here, tasks = answers(str(tmp_path / "lake"), "local[2]", "pyspark-shell")
    assert not tasks
    with standalone_cluster(tmp_path / "cluster", WORKERS) as cluster:
        arguments = submit_arguments(endpoint, **executor_options())
        there, tasks = answers("s3a://bucket/a/lake", cluster.master, arguments)
    assert len(tasks) == WORKERS
    assert all(tasks.values()), tasks
    assert len(here) > 50
    assert there == here
