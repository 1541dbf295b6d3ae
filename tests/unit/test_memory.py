"""Too little memory: reported in advance if a limit is set, and in one sentence if it runs out."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from isr_batch import memory


def test_a_container_has_the_memory_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    of_machine = memory.memory_bytes.__wrapped__()
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.memory_bytes.__wrapped__() == of_machine
    (tmp_path / "memory.max").write_text(f"{1 << 20}\n")
    assert memory.memory_bytes.__wrapped__() == 1 << 20


@pytest.mark.parametrize("megabytes", [600, 2000])
def test_a_process_without_room_for_libraries_reports_it(tmp_path: Path, megabytes: int) -> None:
    """Libraries that get no memory end a process by SIGSEGV or SIGABRT."""
    (tmp_path / "lake" / "run_log" / "_delta_log").mkdir(parents=True)
    answer = subprocess.run(
        [sys.executable, "-m", "pipelines.cli", "status", "--lake", str(tmp_path / "lake")],
        env={"PATH": os.defpath, "PYTHONPATH": str(Path(__file__).parents[2])},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 2
    assert f"address space of this process is limited to {megabytes} MB" in answer.stderr
    assert "Traceback" not in answer.stderr
