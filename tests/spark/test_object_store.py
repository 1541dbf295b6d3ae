"""A lake on S3 has the content of one in a folder: S3A and delta-rs against a server on loopback.

It needs moto's server (`benchmarks.s3_server`): ``MOTO_SERVER=PATH/bin/moto_server pytest -m nightly`` with this file.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem, S3FileSystem, copy_files

from benchmarks.s3_server import BUCKET, MOTO, SECRET, s3_server, store_on, submit_arguments

LOGS = Path(__file__).parents[2] / "data" / "samples" / "quiet"
RULES = "kafka-0.9,kafka-3.7,kip-501-pending"
QUERIES = (
    "SELECT * FROM replica_timeline ORDER BY ALL", "SELECT * FROM partition_timeline ORDER BY ALL",
    "SELECT * EXCEPT (run_set) FROM rule_runs ORDER BY ALL", "SELECT * FROM shrink_verdicts ORDER BY ALL",
)  # fmt: skip
_SCRIPT = """
import json, sys
from pipelines.cli import main
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as ended:
        print(json.dumps({"exit": ended.code or 0}), flush=True)
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


def started(endpoint: str, script: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": submit_arguments(endpoint)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def running(endpoint: str, *commands: list[str]) -> "subprocess.Popen[str]":
    return started(endpoint, _SCRIPT, json.dumps([[*command, "--json"] for command in commands]))


Answers = tuple[list[dict[str, object]], str]


def ended(process: "subprocess.Popen[str]") -> Answers:
    """Results of commands in JSON, and their messages."""
    out, err = process.communicate()
    assert process.returncode == 0, err[-2000:]
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], out + err


def answers(endpoint: str, *commands: list[str]) -> Answers:
    return ended(running(endpoint, *commands))


def exits(found: Answers) -> list[object]:
    return [row["exit"] for row in found[0] if "exit" in row]


def test_logs_on_s3_are_those_of_a_folder(endpoint: str, tmp_path: Path) -> None:
    """With the credentials of the environment, and objects that stand for folders, as consoles write them."""
    written = S3FileSystem(access_key="key", secret_key=SECRET, endpoint_override=endpoint, region="us-east-1")
    copy_files(str(LOGS), f"{BUCKET}/logs", source_filesystem=LocalFileSystem(), destination_filesystem=written)
    environment = os.environ | {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }  # fmt: skip
    found: list[list[dict[str, object]]] = []
    for place in (f"s3://{BUCKET}/logs", str(LOGS)):
        lake = str(tmp_path / f"lake-{len(found)}")
        commands = [["look", place], ["run", "--logs", place, "--lake", lake, "--cluster", "c", "--engine", "local"]]
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, json.dumps([[*command, "--json"] for command in commands])],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert SECRET not in done.stdout + done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert not [row["exit"] for row in rows if row.get("exit")], done.stderr
        found.append([row for row in rows if "answer" in row or row.get("became")])
    assert found[0] == found[1]
    assert {row["became"] for row in found[0] if "became" in row} >= {"read", "used"}
    refused = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps([["look", "s3://no-such-bucket/logs"]])],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert '"exit": 3' in refused.stdout
    assert "NoSuchBucket" in refused.stderr


def test_s3_has_the_same_rows_as_a_folder(endpoint: str, tmp_path: Path) -> None:
    found = []
    for lake in ("s3a://bucket/a/lake", str(tmp_path / "lake")):
        of_lake = ["--lake", lake]
        _, said = answers(
            endpoint,
            ["generate", "kip-501-example", *of_lake],
            ["replay", "--rules", RULES, "--timelines", "all", *of_lake],
            ["replay", "--rules", "kafka-3.7", *of_lake],
        )
        assert SECRET not in said
        assert '"timelines": "all"' in said
        rows, _ = answers(endpoint, *(["sql", query, *of_lake] for query in QUERIES))
        assert exits((rows, "")) == [0] * len(QUERIES)
        found.append(rows)
    assert len(found[0]) > 50
    assert found[0] == found[1]
    # A table with a change feed is Spark's where some rows of a file are replaced, in a folder as well.
    for table in ("fetch_log", "fetch_segments", "partition_scores", "replica_states", "rule_scores", "run_log"):
        commits = store_on(endpoint, f"s3://bucket/a/lake/{table}").table().history()
        assert not [commit for commit in commits if "Spark" in commit["engineInfo"]], table


def test_errors_are_reported(endpoint: str) -> None:
    rows, said = answers(
        endpoint,
        ["generate", "kip-501-example", "--lake", "s3a://other/lake"],
        ["sql", "SELECT 1", "--lake", "s3x://bucket/lake"],
        ["generate", "kip-501-example", "--catalog", "spark_catalog.nope"],
        ["sql", "SELECT 1", "--catalog", "nope.isr"],
    )
    assert [row["exit"] for row in rows] == [2] * 4
    for sentence in ("no such bucket or container: s3a://other", "addresses: s3x", "no schema spark_catalog.nope"):
        assert sentence in said
    assert "Traceback" not in said
    assert SECRET not in said


_HOLD = """
import sys, time
from pathlib import Path
from isr_batch.lake.lake import Lake
from isr_batch.lake.lease import sole_writer
from isr_batch.session import start_session
from isr_batch.settings import load_settings
root, holds, enough = sys.argv[1:]
with sole_writer(Lake(start_session(load_settings(None).spark), root, "the-first")):
    Path(holds).touch()
    while not Path(enough).exists():
        time.sleep(0.1)
"""


def test_a_second_writer_is_refused_and_changes_nothing(endpoint: str, tmp_path: Path) -> None:
    root, holds, enough = "s3a://bucket/held/lake", tmp_path / "holds", tmp_path / "enough"
    of_lake = ["--lake", root]
    replay = ["replay", "--rules", RULES, *of_lake]
    count = ["sql", "SELECT count(*) AS n FROM fetch_log", *of_lake]
    assert exits(answers(endpoint, ["generate", "kip-501-example", *of_lake])) == [0]
    first = started(endpoint, _HOLD, root, str(holds), str(enough))
    while not holds.exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.5)
    refused = answers(
        endpoint, count, ["generate", "kip-501-example", *of_lake], replay, ["maintain", *of_lake], count,
        ["sql", "SELECT command, exit_code FROM run_log ORDER BY started_time", *of_lake],
    )  # fmt: skip
    enough.touch()
    ended(first)
    assert exits(refused) == [0, 6, 6, 6, 0, 0]
    assert f"run the-first (process {first.pid} on {socket.gethostname()}) is writing to {root}" in refused[1]
    counts = [row["n"] for row in refused[0] if "n" in row]
    assert len(counts) == 2
    assert counts[0] == counts[1]
    logged = [(row["command"], row["exit_code"]) for row in refused[0] if "exit_code" in row]
    assert logged == [("generate", 0), ("generate", 6), ("replay", 6), ("maintain", 6)]
    assert exits(answers(endpoint, replay)) == [0]


_AT_ONCE = """
import json, sys, threading
from isr_batch.errors import WriteConflictError
from isr_batch.lake import lease
from isr_batch.lake.lake import Lake
from isr_batch.session import start_session
from isr_batch.settings import load_settings
spark, write, many = start_session(load_settings(None).spark), lease._write_turn_of_lease, 4
everybody_looked, everybody_wrote = threading.Barrier(many), threading.Barrier(many)
def together(lake, number, *, given_back):
    if not given_back:
        everybody_looked.wait()
    write(lake, number, given_back=given_back)
lease._write_turn_of_lease = together
def one(name):
    try:
        with lease.leased(Lake(spark, sys.argv[1], name)):
            found.append("has it")
            everybody_wrote.wait()
    except WriteConflictError:
        found.append("refused")
        everybody_wrote.wait()
for _ in range(3):
    found = []
    threads = [threading.Thread(target=one, args=(f"run-{n}",)) for n in range(many)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(json.dumps({"found": sorted(found)}), flush=True)
"""


def test_of_those_that_look_at_the_same_instant_one_has_the_turn(endpoint: str) -> None:
    rows, said = ended(started(endpoint, _AT_ONCE, "s3a://bucket/turns/lake"))
    assert [row["found"] for row in rows] == [["has it", *["refused"] * 3]] * 3, said[-2000:]
