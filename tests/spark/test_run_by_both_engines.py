"""`run` by Spark and by one process leaves the same tables, all of them."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final, NoReturn

import pytest

from isr_batch.lake.arrow_read import contract_of
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.lake.tables.timelines import VIEWS
from tests.same_rows import rows_in

ROOT: Final = Path(__file__).parents[2]
OF_THE_RUN: Final = {"run_log", "run_lease", "replayed_days"}
"""Tables with times and process ids of the run itself."""
NAMES_OF_RUNS: Final = {"ingest_run", "run_set", "packed_from", "days", "state", "replayed_time"}
"""Columns with names and times of the run, or of the files that it wrote."""


def no_spark() -> NoReturn:
    raise AssertionError("a lake in a folder is read without Spark")


def tables_of_run(engine: str, folder: Path) -> dict[str, Counter[str]]:
    command = [
        sys.executable,
        "-m",
        "pipelines.cli",
        "run",
        "--logs",
        "data/samples/leader-stop",
        "--lake",
        str(folder),
    ]
    done = subprocess.run([*command, "--engine", engine], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"engine {engine}: " in done.stderr
    lake = Lake(no_spark, str(folder))
    found = {}
    for name in sorted({*TABLES, *VIEWS} - OF_THE_RUN):
        if lake.has(name):
            columns = [column for column in contract_of(name).column_names if column not in NAMES_OF_RUNS]
            found[name] = Counter(rows_in(lake, name, columns))
    return found


@pytest.mark.nightly
def test_tables_of_run(tmp_path: Path) -> None:
    local, spark = (tables_of_run(engine, tmp_path / engine) for engine in ("local", "spark"))
    assert local.keys() == spark.keys()
    assert [name for name in local if local[name] != spark[name]] == []
    assert sum(rows.total() > 0 for rows in local.values()) > 25
