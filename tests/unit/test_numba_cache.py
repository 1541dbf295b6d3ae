"""Machine code on disk: the sources from which it may be made, and the folders from which it is taken."""

import gc
import logging
import os
import pkgutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from numba import config, njit
from numba.core.errors import TypingError

import udfs
from isr_batch import numba_cache
from isr_batch.ingest.engine.kernels import load_kernels
from isr_batch.kernel_sources import ROOMS, _sources_in, digest_of
from isr_batch.numba_cache import SourcesLocator, is_ours_alone, keep_compiled_by_numba
from isr_batch.replay.kernel_cache import keep_compiled
from isr_batch.session import _local_options
from udfs.jit import Entry


def test_a_room_that_no_replay_uses_has_a_key_of_its_own(tmp_path: Path) -> None:
    for name in ("jit.py", "kernel/loop.py", "kernel/notes.txt", *(f"{room}/scan.py" for room in ROOMS)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    def sources(room: str) -> list[str]:
        return [source.read_bytes().decode() for source in _sources_in(tmp_path, room)]

    assert sources("") == ["jit.py", "kernel/loop.py"]
    assert [sources(room) for room in ROOMS] == [["jit.py", f"{room}/scan.py"] for room in ROOMS]
    assert len({digest_of(room) for room in ("", *ROOMS)}) == 1 + len(ROOMS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where machine code goes in these tests."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    found = SourcesLocator.from_function(kernel_of("udfs.kernel.replay").py_func, "")
    assert found is not None
    return Path(found.get_cache_path())


def kernel_of(module: str) -> Any:
    """A compiled function that says that it is of a module; each call gives a new one, as a new process has."""

    def kernel(x: int) -> int:
        return x + 1

    kernel.__module__ = module
    return njit(kernel)


def kept(module: str = "udfs.kernel.replay") -> bool:
    """Whether a call finds machine code."""
    kernel = kernel_of(module)
    keep_compiled_by_numba([kernel])
    assert kernel(1) == 2
    return bool(kernel.stats.cache_hits)


def test_code_is_found_by_the_next_process_and_not_after_a_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [kept(), kept()] == [False, True]
    monkeypatch.setattr(numba_cache, "digest_of", lambda _room: "of other sources")
    assert [kept(), kept()] == [False, True]
    assert not folder.exists(), "code of other sources stays for ever"


@pytest.mark.usefixtures("folder")
def test_code_of_another_room_does_not_go_with_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    kept("udfs.request_log.cut")
    monkeypatch.setattr(numba_cache, "digest_of", lambda room: room and digest_of(room))
    assert not kept()
    assert kept("udfs.request_log.cut")


@pytest.mark.usefixtures("folder")
def test_other_functions_of_this_process_are_kept_as_numba_would() -> None:
    assert kept() is False
    assert not config.CACHE_LOCATOR_CLASSES


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o755])
def test_a_folder_that_others_can_use_is_not_taken(folder: Path, mode: int) -> None:
    assert is_ours_alone(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(mode)
    assert not is_ours_alone(folder)
    found = SourcesLocator.from_function(kernel_of("udfs.kernel.replay").py_func, "")
    assert found is None or found.folder != folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_is_not_used(folder: Path) -> None:
    os.chown(folder, 65534, -1)
    assert not is_ours_alone(folder)


def test_without_a_folder_a_function_is_compiled_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(numba_cache, "is_ours_alone", lambda _folder: False)
    assert not kept()
    assert "compiled kernels cannot be cached" in caplog.text


def test_a_session_has_no_folder_that_others_know_before() -> None:
    folders = [Path(_local_options()["spark.sql.warehouse.dir"]) for _ in range(2)]
    assert folders[0] != folders[1]
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


@pytest.mark.usefixtures("folder")
def test_each_first_compilation_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    numba_cache._say_compiling.cache_clear()
    with caplog.at_level(logging.INFO):
        assert njit(lambda x: x)(1) == 1
        assert "compiling" not in caplog.text
        assert [kept(), kept("udfs.kernel.isr"), kept()] == [False, False, True]
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "compiling all rules, once after an install or an upgrade: half a minute or more, before the first row",
        "compiling kernels, once after an install or an upgrade: some seconds",
    ]


SPREAD = """
import sys
from pathlib import Path
import numpy as np
from isr_batch import numba_cache
from udfs.batches.segments import spread_steps

numba_cache.SHIPPED = Path(sys.argv[1])
if "nowhere to write" in sys.argv:
    numba_cache.is_ours_alone = lambda _folder: False
numba_cache.keep_compiled_by_numba([spread_steps])
spread_steps(np.empty((4, 0), np.int64), np.empty((6, 0), np.int64), np.empty((10, 0), np.int64))
print(sum(spread_steps.compiled.stats.cache_hits.values()), "numba.np.npyfuncs" in sys.modules)
"""


def spread(shipped: Path, *how: str, **environment: str) -> bool:
    """Whether another process finds machine code. Only one that compiles loads what numba needs for that."""
    command = [sys.executable, "-c", SPREAD, str(shipped), *how]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    hits, prepared = done.stdout.split()
    assert (prepared == "True") == (hits == "0")
    return hits != "0"


def test_code_for_any_processor_comes_with_the_package(tmp_path: Path) -> None:
    shipped, own = tmp_path / "shipped", {"NUMBA_CACHE_DIR": str(tmp_path / "own")}
    generic = dict(zip(("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"), numba_cache.ANY_PROCESSOR, strict=True))
    assert not spread(tmp_path / "nothing", NUMBA_CACHE_DIR=str(shipped), **generic)
    assert spread(shipped, **own)
    assert spread(shipped, "nowhere to write", **own)
    assert not any((tmp_path / "own").rglob("*.nbc")), "what came with the package is copied"
    for folder in shipped.iterdir():
        folder.rename(folder.with_name(f"{folder.name}-of-other-sources"))
    assert not spread(shipped, **own)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_collected_after_a_compilation_if_it_was_before(
    monkeypatch: pytest.MonkeyPatch, *, collects: bool
) -> None:
    seen = []
    monkeypatch.setattr(numba_cache, "_say_compiling", lambda _what: seen.append(gc.isenabled()))
    try:
        (gc.enable if collects else gc.disable)()
        assert not kept()
        assert gc.isenabled() == collects
        with pytest.raises(TypingError):
            kernel_of("udfs.kernel.replay")("no number")
        assert gc.isenabled() == collects
    finally:
        gc.enable()
    assert seen


INGEST = """
from isr_batch.ingest.compile_ingest import compile_ingest
from isr_batch.ingest.engine.kernels import ENTRIES

compile_ingest()
print(*(entry.__name__ for entry in ENTRIES if not entry.compiled.stats.cache_hits))
"""


def test_an_ingest_compiles_nothing_after_setup() -> None:
    """`make setup` and `make wheel` run `compile_ingest`: a function that it leaves out would be compiled by users."""
    for _ in range(2):
        compiled = subprocess.run([sys.executable, "-c", INGEST], check=True, capture_output=True, text=True).stdout
    assert compiled.split() == []


def test_the_machine_code_of_each_function_that_python_calls_is_kept() -> None:
    keep_compiled()
    load_kernels()
    modules = [import_module(module.name) for module in pkgutil.walk_packages(udfs.__path__, "udfs.")]
    entries = {one for module in modules for one in vars(module).values() if isinstance(one, Entry)}
    assert len(entries) > 10
    forgotten = [one for one in entries if not isinstance(one.compiled._cache, numba_cache._MachineCode)]
    assert [one.py_func.__name__ for one in forgotten] == []
