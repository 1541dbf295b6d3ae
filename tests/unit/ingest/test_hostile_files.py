"""Files that are no logs, or more than a log should be; and the fingerprints of those that are."""

import gzip
import hashlib
import os
import socket
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from isr_batch.ingest.folder import lines
from isr_batch.ingest.folder.lines import WHOLE, FileRange, lines_of_file
from isr_batch.ingest.folder.log_folder import REQUEST, find_logs
from isr_batch.ingest.log_files import content as file_content
from isr_batch.ingest.log_files import limits
from isr_batch.ingest.log_files.content import fingerprint

MB = 1 << 20


def write(path: Path, data: bytes = b"x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def read(
    path: Path, part: FileRange = WHOLE, block_bytes: int = lines.BLOCK_BYTES
) -> list[tuple[int | None, str | None, str | None]]:
    return [
        (row["source_line"], row["value"], row["problem"])
        for batch in lines_of_file(str(path), path.name, 1, part, block_bytes=block_bytes)
        for row in batch.to_pylist()
    ]


def test_links_out_folders_pipes_and_sockets_are_reported_and_never_opened(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "secret")
    logs = tmp_path / "logs"
    write(logs / "b-1" / "request.log")
    write(logs / "b-1" / "server.properties", b"node.id=1\n")
    (logs / "b-1" / "request.log.1").symlink_to(tmp_path / "elsewhere" / "secret")
    (logs / "b-1" / "request.log.2").symlink_to(logs / "b-1" / "request.log")
    (logs / "b-1" / "request.log.3").mkdir()
    os.mkfifo(logs / "b-1" / "request.log.4")
    (logs / "b-1" / "request.log.5").symlink_to("request.log.5")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(logs / "b-1" / "server.log"))
    (logs / "b-2").symlink_to(write(tmp_path / "elsewhere" / "b-2" / "request.log").parent)
    os.mkfifo(logs / "metadata.txt")
    write(Path(os.fsdecode(os.fsencode(logs / "b-1") + b"/request.log.\xff")))
    found = find_logs(logs)
    assert [file.name for file in found.files if file.kind == REQUEST] == ["b-1/request.log", "b-1/request.log.2"]
    assert {(r.source_file, r.reason) for r in found.refused} == {
        ("b-1/request.log.1", "link out of the folder"),
        ("b-1/request.log.3", "not a file"),
        ("b-1/request.log.4", "not a file"),
        ("b-1/request.log.5", "broken link"),
        ("b-1/request.log.\ufffd", "file name is not text"),
        ("b-1/server.log", "not a file"),
        ("b-2", "link out of the folder"),
        ("metadata.txt", "not a file"),
    }


@pytest.mark.parametrize("number", ["2147483648", "9" * 5000, "²", "-1"])
def test_a_broker_id_that_is_no_number_of_a_broker(tmp_path: Path, number: str) -> None:
    write(tmp_path / "b-1" / "request.log")
    write(tmp_path / "b-2" / "request.log")
    write(tmp_path / "b-2" / "server.properties", f"node.id={number}\n".encode())
    found = find_logs(tmp_path)
    assert [file.broker_id for file in found.files] == [1]
    assert ("b-2", "no broker id") in [(r.source_file, r.reason) for r in found.refused]


@pytest.mark.parametrize("name", ["a", "a.gz", "a.zst"])
def test_line_ends_of_windows_a_byte_order_mark_and_zero_bytes(tmp_path: Path, name: str) -> None:
    data = b"\xef\xbb\xbffirst\r\nse\0cond\nth\xffird\r\n\r\n\xef\xbb\xbflast"
    packed = {"a": data, "a.gz": gzip.compress(data), "a.zst": zstd(data[:9]) + zstd(data[9:])}[name]
    assert read(write(tmp_path / name, packed)) == [
        (1, "first", None), (2, "se\0cond", None), (3, "th\ufffdird", None), (4, "", None), (5, "\ufefflast", None)
    ]  # fmt: skip


def test_a_damaged_zstd_file_gives_its_readable_part(tmp_path: Path) -> None:
    whole = b"".join(b"line %d %d\n" % (n, n * 7919 % 10007) for n in range(100_000))
    found = read(write(tmp_path / "a.zst", zstd(whole[:MB]) + zstd(whole[MB:])[:-2000]))
    assert found[-1] == (None, None, "truncated or corrupt zstd file")
    assert 60_000 < len(found) < 100_000
    assert read(write(tmp_path / "b.zst", b"plain")) == [(None, None, "truncated or corrupt zstd file")]
    assert read(write(tmp_path / "c.zst", b"")) == [(None, None, "empty file")]


def test_a_line_above_the_limit_is_passed_over_in_little_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "a", b"first\n" + b"x" * (100 * MB) + b"\nthird\n" + b"y" * (9 * MB))
    tracemalloc.start()
    found = read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(number, problem) for number, _, problem in found] == [
        (1, None), (2, "line too long"), (3, None), (4, "line too long")
    ]  # fmt: skip
    assert found[2][1] == "third"
    assert peak < 40 * MB
    assert fingerprint(str(path)).lines == 4


def test_the_longest_line_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 10)
    found = read(write(tmp_path / "a", b"0123456789\n01234567890\nshort\n"), block_bytes=1)
    assert found[0] == (1, "0123456789", None)
    monkeypatch.setattr(file_content, "CHUNK_BYTES", 4)
    found = read(tmp_path / "a", block_bytes=1)
    assert [problem for _, _, problem in found] == [None, "line too long", None]


@pytest.mark.parametrize("pack", [gzip.compress, zstd], ids=["gz", "zst"])
def test_a_bomb_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: object) -> None:
    monkeypatch.setattr(limits, "RATIO_COUNTS_FROM", 3 * MB)
    name = "a.gz" if pack is gzip.compress else "a.zst"
    found = read(write(tmp_path / name, pack(b"line\n" * (4 * MB))))  # type: ignore[operator]
    assert found[-1] == (None, None, "decompression limit")
    assert 400_000 < len(found) < 1_200_000  # of four million
    assert fingerprint(str(tmp_path / name)).lines == len(found) - 1


def test_ranges_of_a_plain_file_are_its_lines_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_content, "CHUNK_BYTES", 64)
    text = b"".join(b"[2 line %d %s\n" % (n, b"z" * (n * 37 % 211)) for n in range(400)) + b"no end"
    path = write(tmp_path / "a", text)
    for range_bytes in (1, 50, 1000, 10**6):
        held = fingerprint(str(path), range_bytes=range_bytes)
        ends = [offset for offset, _ in held.cuts[1:]] + [held.size_bytes]
        found = [
            row
            for (start, line), end in zip(held.cuts, ends, strict=True)
            for row in read(path, FileRange(start, end, line))
        ]
        assert found == read(path)
        assert held.lines == len(found) == 401
    assert len(fingerprint(str(path), range_bytes=1000).cuts) > 20


def test_a_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    text = b"".join(b"line %d\n" % n for n in range(1000))
    plain = fingerprint(str(write(tmp_path / "a", text)), [0, 8, 5000, len(text), len(text) + 1])
    assert plain.content_hash == hashlib.sha256(text).hexdigest()
    assert plain.beginnings == {hashlib.sha256(text[:n]).hexdigest() for n in (0, 8, 5000, len(text))}
    for name, packed in (("a.gz", gzip.compress(text)), ("a.zst", zstd(text))):
        other = fingerprint(str(write(tmp_path / name, packed)), [8])
        assert (other.content_hash, other.lines) == (plain.content_hash, 1000)
        assert other.beginnings == {hashlib.sha256(text[:8]).hexdigest()}
        assert other.first_hashes == plain.first_hashes
    assert len(plain.first_hashes) == sum(64 << n <= len(text) for n in range(40)) > 5
    for size in (63, 64, 4000, len(text)):
        shorter = fingerprint(str(write(tmp_path / "shorter", text[:size]))).first_hashes
        assert shorter == plain.first_hashes[: len(shorter)]
    other_end = fingerprint(str(write(tmp_path / "other", text[:4095] + b"?"))).first_hashes
    assert other_end[:-1] == plain.first_hashes[: len(other_end) - 1]
    assert other_end[-1] != plain.first_hashes[len(other_end) - 1]
    assert fingerprint(str(tmp_path / "gone")).lines == 0
    assert fingerprint(str(write(tmp_path / "e", b""))).lines == 0


def test_a_log_that_grows_while_it_is_read_ends_where_it_ended_first(tmp_path: Path) -> None:
    path = write(tmp_path / "a", b"one\ntwo\nthr")
    held = fingerprint(str(path))
    write(path, b"one\ntwo\nthree\nfour\n")
    assert [value for _, value, _ in read(path, FileRange(end=held.size_bytes))] == ["one", "two", "thr"]
