"""The wheel and the source archive: what a bare environment gets is enough."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from isr_batch.kernel_sources import digest_of
from udfs.rules import REGISTRY

ROOT = Path(__file__).parents[2]
OURS = ("isr_batch", "udfs", "pipelines")


def files_of_ours(folder: Path) -> set[str]:
    """Sources, and what is read at run time; nothing that was made from them, nor the samples that a wheel carries."""
    files = (path for name in OURS for path in (folder / name).rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)) for path in files if not {"__pycache__", "shipped", "kernels"} & {*path.parts}
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


def test_both_have_every_file_of_the_packages(built: Path, tmp_path: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "sdist", filter="data")
    (unpacked,) = (tmp_path / "sdist").iterdir()
    assert files_of_ours(tmp_path / "wheel") == files_of_ours(unpacked) == files_of_ours(ROOT)


def test_an_executor_gets_all_that_the_functions_sent_to_it_import(tmp_path: Path) -> None:
    """Packages read their own metadata when imported, and modules import others: packing a list by hand missed both."""
    site = Path(np.__file__).parents[1]
    packed = subprocess.run([sys.executable, ROOT / ".ci/executor_files"], check=True, capture_output=True, text=True)
    names = {line.partition("/")[0] for line in packed.stdout.splitlines()}
    assert any(name.startswith("duckdb-") for name in names)
    for name in names | {"pyspark", "py4j"}:  # Spark is where the executor is
        (tmp_path / name).symlink_to(site / name)
    for name in ("isr_batch", "udfs"):
        (tmp_path / name).symlink_to(ROOT / name)
    sending = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "isr_batch").rglob("*.py") if "InArrow(" in path.read_text(encoding="utf-8")
    ]  # fmt: skip
    assert "isr_batch.replay.packing" in sending
    imports = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {', '.join(sending)}"
    subprocess.run([sys.executable, "-I", "-S", "-c", imports], check=True)


def test_the_command_runs_from_the_wheel_alone(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    bare = tmp_path / "bare"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(bare)]
    subprocess.run([*pip, str(wheel)], check=True)
    told = subprocess.run(
        [sys.executable, bare / "bin" / "isr-batch", "rules", "list", "--json"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(bare)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert len(told.stdout.splitlines()) == len(REGISTRY)
    where = subprocess.run(
        [sys.executable, "-c", "import pipelines, udfs, isr_batch as i; print(i.__file__, udfs.__file__)"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(bare)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert all(path.startswith(str(bare)) for path in where.stdout.split())


def test_executors_can_take_the_wheel_as_a_zip(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    asked = (
        "import udfs; from isr_batch.kernel_sources import digest_of; from isr_batch.replay.kernel_cache import *; "
        "keep_compiled(); print(udfs.__file__, digest_of())"
    )
    answer = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(wheel)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    where, digest = answer.stdout.split()
    assert where.startswith(str(wheel))
    assert digest == digest_of()
