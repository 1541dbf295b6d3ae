"""What machine code is kept under: the sources that it may be made of."""

from pathlib import Path

from isr_batch.numba_cache import ROOMS, _sources_in, digest_of


def test_a_room_that_no_replay_uses_has_a_key_of_its_own(tmp_path: Path) -> None:
    for name in ("jit.py", "kernel/loop.py", "kernel/notes.txt", *(f"{room}/scan.py" for room in ROOMS)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    def sources(room: str) -> list[str]:
        return [source.read_bytes().decode() for source in _sources_in(tmp_path, room)]

    assert sources("") == ["jit.py", "kernel/loop.py"]
    assert [sources(room) for room in ROOMS] == [["jit.py", f"{room}/scan.py"] for room in ROOMS]
    assert len({digest_of(room) for room in ("", *ROOMS)}) == 1 + len(ROOMS)
