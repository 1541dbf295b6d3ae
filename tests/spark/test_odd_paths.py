"""Paths with whatever a path may have, in Spark: the commands of a night, in one process with one start of Spark."""

import json
import shutil
from pathlib import Path

import pytest

from isr_batch.ingest.broker_logs import ingest_broker_logs
from isr_batch.lake.lake import Lake
from tests.log_nights import differences
from tests.spark.killed_runs import finished, here

ROOT = Path(__file__).parents[2]
ODD = "a#b*c?d%20e%\\f 'g\" h\n{i}[j]"
OF_LAKE = "a*b[c]{d} 'e\" ,;:&=+@!$(f)~^|`<>"
"""A lake with another sign in its path is refused by name (`tests/unit/lake/test_addresses.py`)."""
COUNT = "SELECT count(*) AS shrinks FROM isr_changes WHERE kind = 'shrink'"


def no_spark() -> None:
    raise AssertionError("Spark is asked for")


@pytest.mark.timeout(1800)
def test_spark_reads_and_writes_odd_paths(tmp_path: Path) -> None:
    lake, logs, plain = tmp_path / OF_LAKE / "lake", tmp_path / ODD / "logs", tmp_path / "plain"
    shutil.copytree(ROOT / "data/samples/mid-term/long-running", logs)
    in_spark = ["--lake", str(lake), "--engine", "spark"]
    finished(
        [
            ["ingest", "kafka-logs", str(logs), *in_spark, "--cluster", "c", "--quiet"],
            ["replay", "--rules", "kafka-3.7", *in_spark, "--quiet"],
            ["validate", *in_spark[:2], "--quiet"],
            ["maintain", *in_spark[:2], "--quiet"],
            ["sql", COUNT, *in_spark, "--json"],
        ],
        tmp_path / "scratch",
    )
    rows = [json.loads(line) for line in (tmp_path / "scratch/told").read_text().splitlines() if line.startswith("{")]
    ingest_broker_logs(Lake(no_spark, str(plain), "a run"), logs, "c")  # type: ignore[arg-type]
    assert differences(lake, plain) == {}
    here(["replay", "--rules", "kafka-3.7", "--lake", str(plain), "--quiet"])
    assert differences(lake, plain, ("isr_changes", "shrink_verdicts")) == {}
    assert rows[-1]["shrinks"] > 0
