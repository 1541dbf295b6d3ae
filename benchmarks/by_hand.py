"""The loop in single_rule.cpp, compiled once a source and machine, and called on rows as our kernel gets them."""

import ctypes
import hashlib
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.log import Log, replicas_of, term_of
from benchmarks.measure import checksum_of_changes
from udfs.records import Int64Array

SOURCE = Path(__file__).with_name("single_rule.cpp")
COMMAND = ("g++", "-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")
CHANGE_COLUMNS = 12
"""Of ``udfs.records.CHANGE_COLUMNS``: those that need no verdict."""
RING = 1 << 15
MOST_CHANGES = 1 << 20
COLUMNS = ("time_us", "kind", "replica_id", "offset", "code", "leader_log_end_offset", "handled_us", "processed_us")


@dataclass
class Found:
    """Output of the loop: the last rows of the timelines in the ring, and all changes with their followers."""

    replica: Int64Array
    partition: Int64Array
    change: Int64Array
    change_of: Int64Array  # partition of each change
    filled: Int64Array  # rows of each kind, whatever the ring holds


@lru_cache(maxsize=1)
def library() -> Any:
    """The compiled loop.

    Raises
    ------
    OSError, subprocess.CalledProcessError
        Without g++, or when it refuses the source.
    """
    target = Path("build", "benchmarks", hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16] + ".so").resolve()
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*COMMAND, str(SOURCE), "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


def replay(log: Log, ring: int = RING) -> Found:
    """Replay every partition of the log; ``ring`` (a power of two) rows of each timeline are kept."""
    call = library().replay
    replica, partition = np.empty((ring, 8), np.int64), np.empty((ring, 5), np.int64)
    change = np.empty((MOST_CHANGES, CHANGE_COLUMNS), np.int64)
    filled, change_ends = np.zeros(3, np.int64), []
    columns = [np.ascontiguousarray(getattr(log.rows, name)) for name in COLUMNS]
    for number, first, end in zip(log.partitions, log.starts, log.starts[1:], strict=False):
        term = term_of(log.plan, int(number))
        lag_us = term["replica_lag_time_max_ms"] * 1000
        numbers = np.array(
            [
                term["check_origin_ms"] * 1000,
                term["end_us"],
                term["high_watermark"],
                term["high_watermark"],
                term["replica_lag_time_max_ms"],
                term["min_insync_replicas"],
                lag_us // 2,
                term["check_origin_ms"] * 1000,
                term["isr_write_ms"] * 1000,
            ],
            np.int64,
        )
        call(
            (ctypes.c_void_p * len(columns))(*(column.ctypes.data + 8 * int(first) for column in columns)),
            ctypes.c_int64(int(end - first)),
            _pointer(np.array(replicas_of(int(number))[1:], np.int64)),
            _pointer(numbers),
            _pointer(replica),
            _pointer(partition),
            ctypes.c_int64(ring),
            _pointer(change),
            ctypes.c_int64(MOST_CHANGES),
            _pointer(filled),
        )
        change_ends.append(int(filled[2]))
    assert filled[2] <= MOST_CHANGES
    change_of = np.repeat(log.partitions, np.diff(change_ends, prepend=0))
    return Found(replica[: filled[0]], partition[: filled[1]], change[: filled[2]], change_of, filled)


def checksum(found: Found) -> tuple[int, int]:
    """Of all changes."""
    return checksum_of_changes(found.change_of, found.change)


def _pointer(array: Int64Array) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)
