"""Commands import no pandas, and explain no Altair."""

import subprocess
import sys
from pathlib import Path

import pytest

from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import RUN_LOG

CODE = "import sys\nfrom pipelines.cli import main\ntry:\n  main(sys.argv[1:])\nfinally:\n  print('|', *sys.modules)"


def test_a_command_that_reads_a_lake_imports_no_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME")  # which would be asked where the lake is
    Lake(lambda: pytest.fail("no Spark"), str(tmp_path)).ensure(RUN_LOG)
    command = [sys.executable, "-c", CODE, "sql", "--lake", str(tmp_path), "SELECT count(*) FROM run_log"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"pandas", "numba"} & set(answer.stdout.rpartition("|")[2].split())


def test_a_command_that_reads_logs_imports_no_pandas() -> None:
    """Although it looks at them before it opens a lake."""
    command = [sys.executable, "-c", CODE, "look", "data/samples/mid-term"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pandas" not in answer.stdout.rpartition("|")[2].split()


def test_explain_imports_altair_only_for_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME")
    Lake(lambda: pytest.fail("no Spark"), str(tmp_path)).ensure(RUN_LOG)
    asked = ["--topic", "busy", "--partition", "0", "--at", "12:00:00", "--lake", str(tmp_path)]
    answer = subprocess.run(
        [sys.executable, "-c", CODE, "explain", *asked], capture_output=True, text=True, check=False
    )
    imported = set(answer.stdout.rpartition("|")[2].split())
    assert "isr_batch.explain.shrink_text" in imported
    assert not {"altair", "pandas", "numba"} & imported


def test_frames_are_made_all_the_same() -> None:
    code = "from isr_batch.arrow_alone import use_arrow_alone\nuse_arrow_alone()\nimport pyarrow as pa\n"
    frames = "assert pa.Table.from_pandas(pa.table({'a': [1]}).to_pandas()).num_rows == 1\n"
    subprocess.run([sys.executable, "-c", code + frames], check=True)


def test_where_pandas_is_imported_arrow_knows_its_nulls() -> None:
    code = "import pandas as pd\nfrom isr_batch.arrow_alone import use_arrow_alone\nuse_arrow_alone()\n"
    nulls = "import pyarrow as pa\nassert pa.array(pd.Series([pd.NaT, pd.NA], dtype=object)).null_count == 2"
    subprocess.run([sys.executable, "-c", code + nulls], check=True)
