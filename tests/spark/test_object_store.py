"""A lake on S3 has what one in a folder has: S3A and delta-rs against a server on loopback.

It needs moto's server, in an environment of its own, as its boto3 wants an older dateutil than the tests have:
``pip install "moto[s3,server]"``, and ``MOTO_SERVER=PATH/bin/moto_server pytest -m nightly`` with this file.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shutil import which

import pytest

MOTO = which(os.environ.get("MOTO_SERVER", "moto_server"))
PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0", "software.amazon.awssdk:bundle:2.35.4",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.0",
)  # fmt: skip
SECRET = "do-not-show-this"
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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (tmp_path / "moto.log").open("w") as log:
        server = subprocess.Popen([str(MOTO), "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
        try:
            for _ in range(120):
                time.sleep(0.5)
                with suppress(OSError):
                    urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT"))
                    break
            yield url
        finally:
            server.terminate()
            server.wait()


def answers(endpoint: str, *commands: list[str]) -> tuple[list[dict[str, object]], str]:
    """Results of commands as programs get them, and what they say beside."""
    settings = {
        "endpoint": endpoint, "endpoint.region": "us-east-1", "path.style.access": "true", "access.key": "key",
        "secret.key": SECRET, "connection.ssl.enabled": "false", "attempts.maximum": "2", "retry.limit": "2",
    }  # fmt: skip
    options = [f"--conf spark.hadoop.fs.s3a.{name}={value}" for name, value in settings.items()]
    excluded = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
    given = f"--packages {','.join(PACKAGES)} --exclude-packages {excluded} {' '.join(options)} pyspark-shell"
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps([[*command, "--json"] for command in commands])],
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": given}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stdout + done.stderr


def test_s3_has_what_a_folder_has(endpoint: str, tmp_path: Path) -> None:
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
        assert [row["exit"] for row in rows if "exit" in row] == [0] * len(QUERIES)
        found.append(rows)
    assert len(found[0]) > 50
    assert found[0] == found[1]


def test_what_is_wrong_is_said(endpoint: str) -> None:
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
