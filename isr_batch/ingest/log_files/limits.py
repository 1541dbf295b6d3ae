"""Limits on the unpacked size of compressed files, and the error that ends the reading of a file."""

from typing import Final

MAX_RATIO, RATIO_COUNTS_FROM = 200, 64 << 20
"""Largest compression ratio, and the unpacked size in bytes from which it applies.

Request logs are compressed to a 20th or 40th, quiet ones to a 100th; a small file with equal lines may have a higher
ratio."""

MAX_UNPACKED_BYTES: Final = 64 << 30
"""Maximum unpacked size of a file, in bytes. A compressed file is read by a single task, which takes an hour or two at
this size."""


UNREADABLE: Final = "unreadable file"
"""Reason of a `BadFileError` if the operating system refuses to open or read a file."""


class BadFileError(Exception):
    """Raised when a file cannot be read further. The content read before is valid."""

    def __init__(self, reason: str, detail: str | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def most_unpacked(size_bytes: int) -> int:
    """Return how many bytes a compressed file or archive of this size may unpack to."""
    return min(max(size_bytes * MAX_RATIO, RATIO_COUNTS_FROM), MAX_UNPACKED_BYTES)
