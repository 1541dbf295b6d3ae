"""Read the uncompressed content of a log file, within limits, and compute the fingerprint that identifies it."""

import bz2
import gzip
import hashlib
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from isr_batch.ingest.log_files.archives import DAMAGED, file_on_disk, member_name, open_member
from isr_batch.ingest.log_files.converted_exports import ConvertedExports
from isr_batch.ingest.log_files.exports import BadExportError, is_export
from isr_batch.ingest.log_files.latest_first import unit_of_latest_first
from isr_batch.ingest.log_files.limits import MAX_RATIO, MAX_UNPACKED_BYTES, UNREADABLE, BadFileError, most_unpacked
from isr_batch.ingest.log_files.otlp import is_otlp, lines_of_otlp

CHUNK_BYTES = 1 << 20
ZSTD_CHUNK_BYTES = 1 << 16
"""Number of bytes of a zstd file that are unpacked at once. It is small because a chunk with damage is lost as a
whole."""

RANGE_BYTES = 96 << 20
"""Approximate size, in bytes, of the ranges into which an uncompressed file is divided, so that several tasks can read
it."""

_PACKED = {".gz", ".tgz", ".zst", ".xz", ".bz2", ".zip"}
USUAL_RATIO = 20
"""Compression ratio that is assumed to estimate the unpacked size of a log."""

HASHED_BYTES = tuple(64 << n for n in range(40))
"""Lengths in bytes: a fingerprint contains the hash of the first bytes of the file for each of them. A shorter copy of
a file is recognised by the longest of these hashes that it has, which covers at least half of it."""


def text_bytes(folder: Path) -> int:
    """Estimate the unpacked size of a file or folder from the sizes of the files on disk.

    Returns
    -------
    int
        Size in bytes.
    """
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else [folder]
    return sum(path.stat().st_size * (USUAL_RATIO if path.suffix in _PACKED else 1) for path in files)


@dataclass(frozen=True)
class Fingerprint:
    """Size, number of lines and hashes of a file's content at the time when it was read.

    Parameters
    ----------
    size_bytes, content_bytes : int
        Size on disk, and size of the content after decompression, up to any damage.
    content_hash : str
        SHA-256 of the unpacked bytes, in hex. It does not change when log rotation compresses the file.
    lines : int
        Number of lines, including a last line without a newline.
    cuts : tuple of (int, int)
        The ranges of an uncompressed file: for each, the byte offset and the number (from 1) of its first line.
    beginnings : frozenset of str
        SHA-256, in hex, of the prefixes whose lengths were given to `Fingerprinter`, if the file is long enough.
    first_hashes : tuple of int
        For each length in `HASHED_BYTES`, up to that of the file, the first eight bytes of the SHA-256 of the prefix.
    """

    size_bytes: int
    content_bytes: int
    content_hash: str
    lines: int
    cuts: tuple[tuple[int, int], ...]
    beginnings: frozenset[str]
    first_hashes: tuple[int, ...] = ()


PACKED = (".gz", ".zst", ".xz", ".bz2")
_NEWLINE = ord("\n")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16, the encoding in which some Windows shells write files."""


def is_packed(path: str) -> bool:
    """Return whether a path names a compressed file or a file in an archive."""
    return path.endswith(PACKED) or bool(member_name(path))


_DAMAGED = (*DAMAGED, zlib.error, lzma.LZMAError)


def content_chunks(path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the content of a file in chunks, after decompression.

    ``start`` and ``end`` limit it to a byte range, which is only possible for an uncompressed file.

    If the file was exported from a log viewer, it is first converted to lines (`isr_batch.ingest.log_files.exports`).

    Raises
    ------
    BadFileError
        If the file is damaged, after all readable chunks have been yielded.
    """
    chunks = _unpacked_chunks(path, start, end)
    try:
        yield from _lines_of_any(path, chunks) if start == 0 else chunks
    except BadExportError as error:
        raise BadFileError(error.reason, error.detail) from error


def _lines_of_any(path: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Convert an export or OTLP batches to lines, and reverse a text with the latest line first.

    ``chunks`` are the file's content. Other content is returned unchanged.
    """
    head = next(chunks, b"")
    chunks = chain([head] if head else [], chunks)
    if is_otlp(head):
        return lines_of_otlp(chunks)
    unit = None if is_export(path, head) else unit_of_latest_first(head)
    if unit is None and not is_export(path, head):
        return chunks
    stat = os.stat(file_on_disk(path))  # noqa: PTH116
    return _converted(os.getpid()).lines((path, stat.st_size, stat.st_mtime_ns), chunks, unit)


@cache
def _converted(_process: int) -> ConvertedExports:
    """Return the converter of exports that this process uses.

    A forked process must not use its parent's temporary file.
    """
    return ConvertedExports()


def is_export_file(path: str) -> bool:
    """Return whether a file is an export of a log viewer or OTLP batches, so that it must be converted to lines."""
    head = head_of(path)
    return is_otlp(head) or is_export(path, head)


def is_converted_file(path: str) -> bool:
    """Return whether a file's lines are converted or reversed, so that no range of the file can be read separately."""
    return is_export_file(path) or unit_of_latest_first(head_of(path)) is not None


def head_of(path: str) -> bytes:
    """Return the first chunk of a file after decompression; empty if the file cannot be read."""
    try:
        return next(_unpacked_chunks(path, 0, None), b"")
    except BadFileError:
        return b""


def _unpacked_chunks(path: str, start: int, end: int | None) -> Iterator[bytes]:
    """Yield the content of a file, decompressed. An uncompressed file is read from ``start`` to ``end`` only.

    Raise BadFileError if the file is binary, damaged, unreadable or too large.
    """
    try:
        unpacked = 0
        for chunk in _packed_content(path) if is_packed(path) else _plain_content(path, start, end):
            if start + unpacked == 0 and chunk.startswith(UTF_16):
                raise BadFileError("text in UTF-16", "write it in UTF-8: iconv -f UTF-16 -t UTF-8 FILE")
            if start + unpacked == 0 and b"\0" in chunk.partition(b"\n")[0]:
                raise BadFileError("binary file", "a zero byte in its first line")
            unpacked += len(chunk)
            yield chunk
    except _DAMAGED as error:
        raise BadFileError(f"truncated or corrupt {_kind_of_content(path)} file", str(error)) from error
    except OSError as error:
        if error.errno is None:  # Arrow's codecs, bz2
            raise BadFileError(f"truncated or corrupt {_kind_of_content(path)} file", str(error)) from error
        raise BadFileError(UNREADABLE, error.strerror) from error


def _kind_of_content(path: str) -> str:
    """Return the name of a file's compression format, for messages."""
    kinds = {".gz": "gzip", ".zst": "zstd", ".xz": "xz", ".bz2": "bzip2"}
    name = next((kind for suffix, kind in kinds.items() if path.endswith(suffix)), "archive")
    return "archive" if member_name(path) and not path.endswith(PACKED) else name


def _plain_content(path: str, start: int, end: int | None) -> Iterator[bytes]:
    """Yield the bytes of an uncompressed file from ``start`` to ``end``."""
    with Path(path).open("rb") as stream:
        at = stream.seek(start)
        while chunk := stream.read(CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - at)):
            at += len(chunk)
            yield chunk


def _packed_content(path: str) -> Iterator[bytes]:
    """Decompress a compressed file or a file in an archive. Raise BadFileError if it exceeds the limit on its size."""
    with ExitStack() as opened:
        if member := member_name(path):
            stream, most = open_member(path)
            chunks = _unpacked(member, opened.enter_context(stream))
        else:
            most = most_unpacked(os.stat(path).st_size)  # noqa: PTH116 (as the readers, it takes a path as text)
            chunks = _unpacked(path, path)
        for chunk in chunks:
            most -= len(chunk)
            if most < 0:
                detail = (
                    f"more than {MAX_RATIO} times its size or {MAX_UNPACKED_BYTES >> 30} GiB: the rest was left out"
                )
                raise BadFileError("decompression limit", detail)
            yield chunk


def _unpacked(name: str, file: str | IO[bytes]) -> Iterator[bytes]:
    """Decompress a file on disk or an open file in an archive. The file's name shows the format."""
    if name.endswith(".zst"):
        if isinstance(file, str) and not os.stat(file).st_size:  # noqa: PTH116
            return
        source = file if isinstance(file, str) else pa.PythonFile(file, "r")
        with pa.input_stream(source, compression="zstd") as packed:
            while chunk := packed.read(ZSTD_CHUNK_BYTES):
                yield chunk
        return
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    opener = next((open_ for suffix, open_ in openers.items() if name.endswith(suffix)), None)
    if opener is None:
        assert not isinstance(file, str)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
        return
    with opener(file) as stream:
        # Read in small steps: if the file is damaged, a single `read` would also lose the data before the damage.
        while chunk := stream.read1(CHUNK_BYTES):
            yield chunk


class Fingerprinter:
    """Computes the fingerprint of a file while the caller reads its content from `watch`.

    Parameters
    ----------
    path : str
    beginnings : sequence of int
        Lengths, in unpacked bytes, of prefixes of the file to hash, in addition to those in `HASHED_BYTES`.
    range_bytes : int
        Minimum size of a range, in bytes.
    """

    def __init__(self, path: str, beginnings: Sequence[int] = (), range_bytes: int = RANGE_BYTES) -> None:
        self.path = path
        self.range_bytes = range_bytes
        self.whole = hashlib.sha256()
        self.asked = set(beginnings)
        self.wanted = sorted({*beginnings, *HASHED_BYTES}, reverse=True)
        self.hashes: dict[int, bytes] = {}
        self.size = self.newlines = 0
        self.cuts = [(0, 1)]
        self.last = b"\n"
        self.may_cut = not is_packed(path) and not is_converted_file(path)
        try:
            self.size_bytes = os.stat(file_on_disk(path)).st_size  # noqa: PTH116
        except OSError:
            self.size_bytes = 0

    def watch(self) -> Iterator[bytes]:
        """Yield the content of the file in chunks, adding each to the fingerprint.

        An uncompressed file is read up to the size that it had when this object was made, because it may be growing.

        Raises
        ------
        BadFileError
            If the file is damaged, after all readable chunks have been yielded.
        """
        for chunk in content_chunks(self.path, end=self.size_bytes):
            self._take(chunk)
            yield chunk

    def _take(self, chunk: bytes) -> None:
        """Update the hashes, the ranges, the size and the number of lines with a chunk."""
        view = memoryview(chunk)
        at = 0
        while self.wanted and self.wanted[-1] <= self.size + len(chunk):
            upto = self.wanted.pop() - self.size
            self.whole.update(view[at:upto])
            at = upto
            self.hashes[self.size + upto] = self.whole.copy().digest()
        self.whole.update(view[at:])
        if self.may_cut:
            self._cut(chunk)
        self.size += len(chunk)
        self.newlines += int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == _NEWLINE))  # faster than bytes.count
        self.last = chunk[-1:]

    def _cut(self, chunk: bytes) -> None:
        """If the current range is long enough, begin a new range at the next line in ``chunk`` that has a timestamp."""
        next_cut = max(self.cuts[-1][0] + self.range_bytes - self.size, 0)
        # A range begins with a line that has a timestamp, because a line without one belongs to the line before it.
        line_end = chunk.find(b"\n[2", next_cut) if next_cut < len(chunk) else -1
        if line_end >= 0:
            self.cuts.append((self.size + line_end + 1, self.newlines + chunk.count(b"\n", 0, line_end + 1) + 1))

    def fingerprint(self) -> "Fingerprint":
        """Return the fingerprint of the bytes read so far."""
        return Fingerprint(
            self.size_bytes, self.size, self.whole.hexdigest(), self.newlines + (self.last != b"\n"),
            tuple(self.cuts), frozenset(self.hashes[size].hex() for size in self.asked & self.hashes.keys()),
            tuple(int.from_bytes(self.hashes[size][:8], signed=True) for size in HASHED_BYTES if size in self.hashes),
        )  # fmt: skip


def fingerprint(path: str, beginnings: Sequence[int] = (), range_bytes: int = RANGE_BYTES) -> Fingerprint:
    """Read a file up to any damage, and return its fingerprint. For the parameters, see `Fingerprinter`."""
    taken = Fingerprinter(path, beginnings, range_bytes)
    try:
        for _ in taken.watch():
            pass
    except BadFileError:
        pass  # damage is reported when the lines are read
    return taken.fingerprint()
