"""Determine how much memory this process may use, and check that it is enough."""

import os
import resource
from functools import lru_cache
from pathlib import Path
from typing import Final

from isr_batch.errors import StorageError

CGROUP: Final = Path("/sys/fs/cgroup")
_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")
LEAST_ADDRESSES: Final = 4 << 30
"""Minimum address space, in bytes, for a command on a lake. Libraries, stacks and buffers reserve it, although they use
little of it."""


@lru_cache
def memory_bytes() -> int:
    """Return the memory of this machine in bytes, or the limit of its container if that is lower."""
    own = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([own, *filter(None, map(_memory_limit_in, (CGROUP / name for name in _LIMITS)))])


def _memory_limit_in(file: Path) -> int | None:
    """Return the memory limit, in bytes, in a cgroup's file; None if the file does not exist or sets no limit."""
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no cgroup file, or no limit in it ("max")
        return None


def require_address_space() -> None:
    """Raise if ``ulimit -v`` is too low. Otherwise a library might later end the process without a message.

    Raises
    ------
    StorageError
        If the limit is below `LEAST_ADDRESSES`.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESSES:
        raise StorageError(
            f"the address space of this process is limited to {limit >> 20} MB, which is too little",
            f"raise `ulimit -v` to {LEAST_ADDRESSES >> 10} at least; to limit memory itself, use a container",
        )
