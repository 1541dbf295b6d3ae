"""`spark-submit` as the docs write it, as a process in an empty environment, on a Python that knows nothing of us."""

import json
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from docs.generate.cookbook import queries
from isr_batch.ingest.own_table.derived_tables import derive_tables
from isr_batch.ingest.own_table.ingest import ingest_own_table
from isr_batch.ingest.own_table.mapping import load_mapping
from isr_batch.lake.lake import Lake
from isr_batch.lake.view_statements import view_statements
from isr_batch.spark_home import make_spark_home

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "data/samples/tables"
QUERIES = queries()


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """Commands of an environment that `make setup` made, with what this one has."""
    venv.create(tmp_path / "env", with_pip=False)
    bin_, (packages,) = tmp_path / "env/bin", (tmp_path / "env/lib").glob("python*/site-packages")
    (packages / "ours.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    for script in [*Path(sys.executable).parent.glob("*spark*")]:
        if script.is_file():
            shutil.copy(script, bin_)
    make_spark_home(bin_, bin_ / "python")
    return bin_


def test_replay_as_the_docs_write_it(spark_session: SparkSession, scripts: Path, tmp_path: Path) -> None:
    lake = Lake(spark_session, str(tmp_path / "lake"), "test")
    ingest_own_table(lake, [str(SAMPLE / "fetches.parquet")], load_mapping(SAMPLE / "shortest.yaml"))
    derive_tables(lake)
    told = (ROOT / "docs/engines-and-sizes.md").read_text(encoding="utf-8")
    (line,) = [line for line in told.splitlines() if line.startswith(".venv/bin/spark-submit pipelines/replay.py")]
    command = line.replace(".venv/bin", str(scripts)).replace("LAKE", lake.root).split()
    env = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(
        [*command, "--json", "--timelines", "none"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "engine spark: this runs under spark-submit" in done.stdout + done.stderr
    rows = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    assert {row["rule"]: row["shrinks"] for row in rows if "precision" in row} == {"kafka-2.1": 52, "kafka-3.7": 52}


def test_plain_sql_as_the_docs_write_it(sample_lake: Lake, scripts: Path, tmp_path: Path) -> None:
    """All statements of `isr-batch views`, then three questions, in Spark's own shell; it leaves nothing behind."""
    told = (ROOT / "docs/sql-cookbook.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"`\.venv/bin/(spark-sql -i views\.sql) -e", told)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "views.sql").write_text(";\n".join([*view_statements(sample_lake, "spark"), ""]), encoding="utf-8")
    chosen = [QUERIES[number - 1] for number in (3, 22, 24)]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(
        [*f"{scripts}/{line}".split(), "-e", ";".join(query for query, _ in chosen)],
        cwd=empty, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [row for _, given in chosen for row in (given or "").splitlines()[1:]]
    rows = [row.split() for row in answers if row != "(none)"]
    assert [row.split("\t") for row in done.stdout.splitlines()] == rows
    assert [path.name for path in empty.iterdir()] == ["views.sql"]
