"""Frames over Spark Connect: the same rows, without a call that needs the JVM."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_same_rows_over_connect(tmp_path: Path) -> None:
    """In another process, since a process has sessions of one kind."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):  # of this process's session
        env.pop(name, None)
    command = [sys.executable, "-m", "tests.spark.api.over_connect", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["engines"][0] == "spark: the frames are Spark's"
    assert told["engines"][1].startswith("spark: ")
    assert "followers that kafka-3.7, replayed, dropped" in told["answer"]
    assert told["refused"].startswith("Spark Connect cannot say whether there is a table at abfss://")
