"""Keys of stored machine code: the sources from which it may be made."""

import logging
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from numba import njit

from isr_batch.numba_cache import ROOMS, _Index, _say_compiling, _sources_in, digest_of, keep_compiled
from isr_batch.own_files import is_only_ours, keep_to_ourselves
from isr_batch.session import _local_options


def test_a_room_that_no_replay_uses_has_a_key_of_its_own(tmp_path: Path) -> None:
    for name in ("jit.py", "kernel/loop.py", "kernel/notes.txt", *(f"{room}/scan.py" for room in ROOMS)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    def sources(room: str) -> list[str]:
        return [source.read_bytes().decode() for source in _sources_in(tmp_path, room)]

    assert sources("") == ["jit.py", "kernel/loop.py"]
    assert [sources(room) for room in ROOMS] == [["jit.py", f"{room}/scan.py"] for room in ROOMS]
    assert len({digest_of(room) for room in ("", *ROOMS)}) == 1 + len(ROOMS)


def test_an_index_that_names_a_class_that_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade in which a named tuple of a kernel's arguments has another name."""
    renamed = ModuleType("renamed")
    Cut = type("Cut", (), {"__module__": "renamed"})  # noqa: N806
    renamed.Cut = Cut  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "renamed", renamed)
    index = _Index(str(tmp_path), "cut_lines", "sources")
    index._save_index({Cut: "cut_lines.1.nbc"})
    assert index._load_index() == {Cut: "cut_lines.1.nbc"}
    del renamed.Cut
    assert index._load_index() == {}


def test_machine_code_that_others_may_have_written_is_not_run(tmp_path: Path) -> None:
    index = _Index(str(tmp_path), "cut_lines", "sources")
    index.save("key", "code")
    assert index.load("key") == "code"
    for name in ("cut_lines.1.nbc", "cut_lines.nbi"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o644
        (tmp_path / name).chmod(0o666)
        assert index.load("key") is None
        (tmp_path / name).chmod(0o644)
    os.chown(tmp_path / "cut_lines.nbi", 65534, -1) if os.geteuid() == 0 else None
    assert index.load("key") == (None if os.geteuid() == 0 else "code")


def test_a_folder_of_machine_code_is_kept_from_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    keep_to_ourselves(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    assert is_only_ours(tmp_path)


def test_a_session_has_no_folder_that_others_know_before() -> None:
    folders = [Path(_local_options()["spark.sql.warehouse.dir"]) for _ in range(2)]
    assert folders[0] != folders[1]
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


def test_what_is_compiled_for_the_first_time_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    said = []
    for _ in range(2):
        _say_compiling.cache_clear()
        caplog.clear()
        add = njit(lambda x: x + 1)
        take = njit(lambda x: x - 1)
        with caplog.at_level(logging.INFO):
            keep_compiled([add, take], "sources")
            assert (add(1), take(1)) == (2, 0)
        said.append([record.getMessage() for record in caplog.records])
    assert said == [["compiling kernels, once after an install or an upgrade: a minute or two"], []]
