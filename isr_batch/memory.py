"""Memory limit of this process, and detection of out-of-memory errors."""

import os
import resource
from functools import lru_cache
from pathlib import Path
from typing import Final

from isr_batch.errors import StorageError

CGROUP: Final = Path("/sys/fs/cgroup")
_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")
LEAST_ADDRESSES: Final = 4 << 30
"""Bytes of address space that a command on a lake takes, mostly without using them: libraries, stacks, buffers."""


@lru_cache
def memory_bytes() -> int:
    """Memory of this machine or container."""
    own = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([own, *filter(None, map(_limit_in, (CGROUP / name for name in _LIMITS)))])


def _limit_in(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):  # not there, or "max"
        return None


def require_address_space() -> None:
    """Look at ``ulimit -v``: where it is too low, libraries end the process without a word of ours.

    Raises
    ------
    StorageError
        When it is lower than what a command takes at the least.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESSES:
        raise StorageError(
            f"the address space of this process is limited to {limit >> 20} MB, which is too little",
            f"raise `ulimit -v` to {LEAST_ADDRESSES >> 10} at least; to limit memory itself, use a container",
        )
