"""List and read the files in an archive, in one pass over the archive and within limits on size and number."""

import io
import os
import struct
import tarfile
import threading
import zipfile
from functools import lru_cache
from typing import IO, Final

from isr_batch.ingest.log_files.limits import UNREADABLE, BadFileError, most_unpacked

SUFFIXES: Final = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MAX_MEMBERS: Final = 10_000
DIRECTORY_BYTES: Final = 512
"""Limit on the size of a ZIP file's directory, in bytes per member. Python reads the directory into memory at once."""
HEADER_BYTES: Final = 1 << 20
"""Maximum size, in bytes, of a tar header with a long name. Python reads it into memory at once."""
HELD_BYTES: Final = 1 << 25
"""A member of a compressed tar archive with at most this number of bytes stays in memory after it was read. Without
this, examining it first and reading it later would take two passes over the archive."""
DAMAGED: Final = (
    EOFError, zipfile.BadZipFile, tarfile.TarError, RuntimeError, ValueError, LookupError, ArithmeticError, struct.error
)  # fmt: skip

_MEMBER: Final = "!//"
"""Separator between the path of an archive and the name of a member. The path of a file never contains ``//``."""


def file_on_disk(path: str) -> str:
    """Return the path of a file on disk; for a file in an archive, the path of the archive."""
    return path.partition(_MEMBER)[0]


def member_name(path: str) -> str:
    """Return a file's name within its archive; empty if the file is not in an archive."""
    return path.partition(_MEMBER)[2]


def is_archive(path: str) -> bool:
    """Return whether a file's name ends like that of an archive."""
    return path.endswith(SUFFIXES)


def archive_members(path: str) -> list[str]:
    """Return the files in an archive, in stored order, as paths that `open_member` accepts.

    Raises
    ------
    BadFileError
        If the archive is damaged, or exceeds a limit.
    """
    try:
        return [f"{path}{_MEMBER}{name}" for name in _opened_archive(path).members]
    except DAMAGED as error:
        raise BadFileError("truncated or corrupt archive", str(error)) from error
    except OSError as error:
        reason = "truncated or corrupt archive" if error.errno is None else UNREADABLE
        raise BadFileError(reason, error.strerror or str(error)) from error


def open_member(path: str) -> tuple[IO[bytes], int]:
    """Open a file in an archive.

    If the files of an archive are opened in stored order, the archive is read only once.

    Returns
    -------
    IO
        The file's unpacked bytes.
    int
        If the file itself is compressed: the limit on the number of bytes to unpack from it.

    Raises
    ------
    BadFileError
        If the archive exceeds a limit. For other problems, one of `DAMAGED` or OSError is raised.
    """
    archive = _opened_archive(file_on_disk(path))
    name = member_name(path)
    return archive.open(name), archive.share(name)


def _opened_archive(path: str) -> "_Archive":
    """Return an open archive, from the cache if this thread has opened it before and the file has not changed."""
    stat = os.stat(path)  # noqa: PTH116 (as the readers of files, it takes a path as text)
    return _open_archive(path, stat.st_size, stat.st_mtime_ns, threading.get_ident())


@lru_cache(maxsize=2)
def _open_archive(path: str, size: int, _changed: int, _thread: int) -> "_Archive":
    """Open an archive. The cache key includes its size, its time of change and the thread."""
    return _Zip(path, size) if path.endswith(".zip") else _Tar(path, size)


class _Archive:
    """An open archive. ``members`` maps the names of its files to their sizes in bytes, in stored order."""

    def __init__(self, size: int) -> None:
        self.members: dict[str, int] = {}
        self.most_bytes = most_unpacked(size)
        self.seen = self.total = 0

    def add(self, name: str, size: int, *, is_file: bool) -> None:
        """Add an entry of ``size`` bytes to ``members`` if it is a file. Raise BadFileError if a limit is exceeded."""
        self.seen += 1
        self.total += size
        if self.seen > MAX_MEMBERS:
            raise BadFileError("too many files in an archive", f"more than {MAX_MEMBERS}")
        if size < 0 or self.total > self.most_bytes:
            detail = f"its files have more than {self.most_bytes >> 20} MiB: split it"
            raise BadFileError("decompression limit", detail)
        if is_file:
            self.members.pop(name, None)  # a later member replaces an earlier one with the same name
            self.members[name] = size

    def share(self, name: str) -> int:
        """Return the limit on bytes to unpack from a compressed file: its share, by size, of the archive's limit."""
        return self.most_bytes * self.members[name] // max(1, self.total)

    def open(self, name: str) -> IO[bytes]:
        """Open a file in the archive as a stream of its unpacked bytes."""
        raise NotImplementedError


class _Zip(_Archive):
    """An open zip archive."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(size)
        with open(path, "rb") as file:  # noqa: PTH123
            end = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # noqa: SLF001 (what ZipFile looks at first)
        if end and end[zipfile._ECD_SIZE] > MAX_MEMBERS * DIRECTORY_BYTES:  # type: ignore[attr-defined]  # noqa: SLF001
            raise BadFileError("too many files in an archive", f"more than {MAX_MEMBERS}, or with very long names")
        self._zip = zipfile.ZipFile(path)
        for info in self._zip.infolist():
            self.add(info.filename, info.file_size, is_file=not info.is_dir())

    def open(self, name: str) -> IO[bytes]:
        return self._zip.open(name)

    def __del__(self) -> None:
        if hasattr(self, "_zip"):
            self._zip.close()


class _Header(tarfile.TarInfo):
    """A tar header whose size is checked before tarfile reads it into memory at once."""

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg() and not 0 <= self.size <= HEADER_BYTES:
            raise tarfile.ReadError("a tar header is larger than any real one")
        return super()._proc_member(tar)  # type: ignore[misc, no-any-return]


class _Tar(_Archive):
    """An open tar archive, compressed or not."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(size)
        self._tar = tarfile.open(path, tarinfo=_Header)  # noqa: SIM115 (closed with this object)
        self._infos: dict[str, tarfile.TarInfo] = {}
        self._held: tuple[str, bytes] = "", b""
        for info in self._tar:
            self.add(info.name, info.size, is_file=info.isreg())
            if info.isreg():
                self._infos[info.name] = info
        file = self._tar.fileobj
        assert file is not None
        file.seek(self._tar.offset)
        if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError(
                "a damaged header ends the archive"
            )  # tarfile would end the list here without an error
        self._packed = not path.endswith(".tar")

    def open(self, name: str) -> IO[bytes]:
        if self._held[0] != name or not name:
            stream = self._tar.extractfile(self._infos[name])
            assert stream is not None
            if not self._packed or self.members[name] > HELD_BYTES:
                return stream
            self._held = name, stream.read()
        return io.BytesIO(self._held[1])

    def __del__(self) -> None:
        if hasattr(self, "_tar"):
            self._tar.close()
