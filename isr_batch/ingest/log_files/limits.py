"""Limits on the unpacked size of compressed files, and the error that is raised when a file cannot be read further."""

from typing import Final

MAX_RATIO, RATIO_COUNTS_FROM = 200, 64 << 20
"""Maximum compression ratio, and the unpacked size in bytes from which on it applies.

Request logs shrink to a 20th or 40th of their size, those of idle brokers to a 100th. Small files with equal lines may
shrink even more."""

MAX_UNPACKED_BYTES: Final = 64 << 30
"""Maximum unpacked size of a file, in bytes. A single task reads a compressed file. At this size, it takes an hour or
two."""


UNREADABLE: Final = "unreadable file"
"""Reason in a `BadFileError` when the operating system cannot open or read a file."""


class BadFileError(Exception):
    """Raised when a file cannot be read further. The content that was read before is valid."""

    def __init__(self, reason: str, detail: str | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def most_unpacked(size_bytes: int) -> int:
    """Return the limit on the unpacked size, in bytes, of a compressed file or archive of a given size."""
    return min(max(size_bytes * MAX_RATIO, RATIO_COUNTS_FROM), MAX_UNPACKED_BYTES)
