"""An ingest of a table that is killed, or two at once: in the end the lake is that of one ingest.

``KILLS`` in the environment is the number of kills.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from isr_batch.lake.lake import Lake
from tests.made_up_tables import MAPPING, MIDNIGHT_MS, made_up_table
from tests.unit.ingest.test_table_law import contents, no_spark

REPOSITORY = Path(__file__).parents[3]
KILLS = int(os.environ.get("KILLS", "6"))


def command(folder: Path, lake: str, *files: str) -> "subprocess.Popen[str]":
    env = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    args = [sys.executable, "-m", "pipelines.cli", "ingest", "table", *(str(folder / file) for file in files),
            "--mapping", str(folder / "mapping.yaml"), "--lake", str(folder / lake), "--json"]  # fmt: skip
    return subprocess.Popen(args, cwd=REPOSITORY, env=env, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, err = process.communicate(timeout=300)
    return process.returncode, err[-2000:]


def test_killed_at_any_moment_and_run_again(tmp_path: Path) -> None:
    table = made_up_table(1, begins_ms=MIDNIGHT_MS - 100_000)
    pq.write_table(table, tmp_path / "whole.parquet")
    pq.write_table(table.slice(0, 3000), tmp_path / "first.parquet")
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    begun = time.monotonic()
    assert ended(command(tmp_path, "whole", "whole.parquet"))[0] == 0
    takes_s = time.monotonic() - begun
    wanted = contents(Lake(no_spark, str(tmp_path / "whole")))
    assert ended(command(tmp_path, "first", "first.parquet"))[0] == 0
    kills = 0
    chance = np.random.default_rng(1)
    while kills < KILLS:
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
        running = command(tmp_path, "killed", "whole.parquet")
        time.sleep(chance.uniform(0.3, 1) * takes_s)
        running.kill()
        killed = ended(running)[0] != 0
        # Of what came to its end the time is known better now.
        takes_s, kills = (takes_s, kills + 1) if killed else (takes_s * 0.9, kills)
        code, err = ended(command(tmp_path, "killed", "whole.parquet"))
        assert code == 0, err
        assert contents(Lake(no_spark, str(tmp_path / "killed"))) == wanted, f"after kill {kills}"


def test_two_at_once(tmp_path: Path) -> None:
    table = made_up_table(2)
    pq.write_table(table, tmp_path / "whole.parquet")
    for number, name in enumerate(("a", "b")):
        pq.write_table(table.slice(number * 2000, table.num_rows - 2000), tmp_path / f"{name}.parquet")
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    both = [command(tmp_path, "both", f"{name}.parquet") for name in ("a", "b")]
    assert {ended(each)[0] for each in both} <= {0, 6}
    for name in ("a", "b"):
        code, err = ended(command(tmp_path, "both", f"{name}.parquet"))
        assert code == 0, err
    assert ended(command(tmp_path, "whole", "whole.parquet"))[0] == 0
    assert contents(Lake(no_spark, str(tmp_path / "both"))) == contents(Lake(no_spark, str(tmp_path / "whole")))
