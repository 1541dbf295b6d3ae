"""Limits on the unpacked size of compressed files, and the errors that stop reading a file."""

from typing import Final

MAX_RATIO, RATIO_COUNTS_FROM = 200, 64 << 20
"""Request logs shrink to a 20th or 40th, quiet ones to a 100th. A small file of equal lines may do better."""

MAX_UNPACKED_BYTES: Final = 64 << 30
"""A compressed file is one task; at this size it takes an hour or two, and logs are rotated earlier."""


class BadFileError(Exception):
    """Raised when a file cannot be read any further; what was read before is good."""

    def __init__(self, reason: str, detail: str | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def most_unpacked(size_bytes: int) -> int:
    """Give the bytes that a file of this size on disk may unpack to, with all that is in it."""
    return min(max(size_bytes * MAX_RATIO, RATIO_COUNTS_FROM), MAX_UNPACKED_BYTES)
