"""Read the content of a log file: decompressed, within limits, and its fingerprint to recognise it by."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

CHUNK_BYTES = 1 << 20
ZSTD_CHUNK_BYTES = 1 << 16
"""Small, because a damaged zstd file loses the whole chunk with the damage; the gzip reader returns what it has."""

RANGE_BYTES = 96 << 20
"""Size of the ranges in which an uncompressed file is read, one task each."""

MAX_RATIO, RATIO_COUNTS_FROM = 200, 64 << 20
"""Request logs shrink to a 20th or 40th, quiet ones to a 100th. A small file of equal lines may do better."""

MAX_UNPACKED_BYTES = 64 << 30
"""A compressed file is one task; at this size it takes an hour or two, and nobody rotates so late."""


class BadFileError(Exception):
    """Raised when a file cannot be read any further; what was read before is good."""

    def __init__(self, reason: str, detail: str | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Fingerprint:
    """Size, line count and hashes of a file's content at the time it was read.

    Parameters
    ----------
    size_bytes, content_bytes : int
        On disk, and unpacked (as far as it is readable).
    content_hash : str
        SHA-256 of the unpacked bytes, in hex: the same before and after a rotation that compresses.
    lines : int
        Lines, the last one with or without an end.
    cuts : tuple of (int, int)
        Where the ranges of a plain file begin: offset of a line in bytes, its number from 1.
    beginnings : frozenset of str
        Hashes of the beginnings that were asked for and are there.
    """

    size_bytes: int
    content_bytes: int
    content_hash: str
    lines: int
    cuts: tuple[tuple[int, int], ...]
    beginnings: frozenset[str]


def is_packed(path: str) -> bool:
    """Whether a file is compressed, by its name."""
    return path.endswith((".gz", ".zst"))


def chunks(path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file; of an uncompressed file, those from ``start`` to before ``end``.

    Raises
    ------
    BadFileError
        After the last good chunk.
    """
    try:
        unpacked = 0
        limit = os.stat(path).st_size * MAX_RATIO  # noqa: PTH116 (os.stat, like the readers, follows links)
        for chunk in _packed(path) if is_packed(path) else _plain(path, start, end):
            if start + unpacked == 0 and b"\0" in chunk.partition(b"\n")[0]:
                raise BadFileError("binary file", "a zero byte in its first line")
            unpacked += len(chunk)
            if is_packed(path) and (unpacked > max(limit, RATIO_COUNTS_FROM) or unpacked > MAX_UNPACKED_BYTES):
                raise BadFileError(
                    "decompression limit",
                    f"more than {MAX_RATIO} times its size or {MAX_UNPACKED_BYTES >> 30} GiB: the rest was left out",
                )
            yield chunk
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadFileError("truncated or corrupt gzip file", str(error)) from error
    except OSError as error:
        if error.errno is None:  # Arrow's codecs
            raise BadFileError("truncated or corrupt zstd file", str(error)) from error
        raise BadFileError("unreadable file", error.strerror) from error


def _plain(path: str, start: int, end: int | None) -> Iterator[bytes]:
    with Path(path).open("rb") as stream:
        at = stream.seek(start)
        while chunk := stream.read(CHUNK_BYTES if end is None else min(CHUNK_BYTES, end - at)):
            at += len(chunk)
            yield chunk


def _packed(path: str) -> Iterator[bytes]:
    stream: BinaryIO
    if path.endswith(".gz"):
        with gzip.open(path) as stream:  # type: ignore[assignment] # has read1, as BinaryIO has not
            # read would lose what a damaged file still gave before it raises.
            while chunk := stream.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
                yield chunk
    elif os.stat(path).st_size:  # noqa: PTH116
        with pa.input_stream(path, compression="zstd") as stream:
            while chunk := stream.read(ZSTD_CHUNK_BYTES):
                yield chunk


def fingerprint(path: str, beginnings: Sequence[int] = (), range_bytes: int = RANGE_BYTES) -> Fingerprint:
    """Compute the fingerprint of a file in one pass, as far as the file is readable.

    Parameters
    ----------
    path : str
        The file.
    beginnings : sequence of int
        Prefix lengths, in decompressed bytes, whose hashes are wanted too.
    range_bytes : int
        Minimum size of a range.
    """
    whole = hashlib.sha256()
    wanted = sorted(set(beginnings), reverse=True)
    hashes: set[str] = set()
    size = newlines = 0
    cuts = [(0, 1)]
    last = b"\n"
    try:
        size_bytes = os.stat(path).st_size  # noqa: PTH116
    except OSError:
        size_bytes = 0
    try:
        # A log that is being written must not be longer for the second reader than it was for the first.
        for chunk in chunks(path, end=size_bytes):
            view = memoryview(chunk)
            at = 0
            while wanted and wanted[-1] <= size + len(chunk):
                upto = wanted.pop() - size
                whole.update(view[at:upto])
                at = upto
                hashes.add(whole.copy().hexdigest())
            whole.update(view[at:])
            if not is_packed(path):
                next_cut = cuts[-1][0] + range_bytes - size
                line_end = chunk.find(b"\n", max(next_cut, 0)) if next_cut < len(chunk) else -1
                if line_end >= 0:
                    cuts.append((size + line_end + 1, newlines + chunk.count(b"\n", 0, line_end + 1) + 1))
            size += len(chunk)
            newlines += chunk.count(b"\n")
            last = chunk[-1:]
    except BadFileError:
        pass  # reported when the lines are read
    if cuts[-1][0] == size and size:
        cuts.pop()
    return Fingerprint(
        size_bytes, size, whole.hexdigest(), newlines + (last != b"\n"), tuple(cuts), frozenset(hashes)
    )  # fmt: skip
