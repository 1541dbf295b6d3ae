"""What machine code is kept under: the sources that it may be made of."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from isr_batch.numba_cache import ROOMS, _Index, _sources_in, digest_of


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
