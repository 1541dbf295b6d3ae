"""A foreign package with the name of one of ours is reported, instead of failing somewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["udfs", "pipelines"])
def test_another_package_of_our_name_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()

    def imported(*path: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "import isr_batch"], capture_output=True, text=True, check=False,
            cwd=tmp_path.parent, env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        )  # fmt: skip

    hidden = imported(tmp_path, ROOT)
    assert hidden.returncode != 0
    assert f"{tmp_path / name} is another package named {name}" in hidden.stderr
    assert imported(ROOT, tmp_path).returncode == 0
