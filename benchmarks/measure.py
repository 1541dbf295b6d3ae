"""Rounds of several contestants in turn, with their answers checked; processes of a tree, and what memory they take."""

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks.log import places_of
from udfs.records import CHANGE_KINDS, Int64Array

LONG_S = 10
"""Slower ones are reported at once: users wait for the table."""


class WrongAnswerError(Exception):
    """A contestant's answer is not the expected one: its time means nothing."""


@dataclass
class Contestant:
    """One way to do the work.

    Attributes
    ----------
    name : str
    run : callable
        The work; its result goes to ``check``.
    check : callable, optional
        Returns what is to be equal to ``expected``.
    expected : object
    prepare, tidy : callable, optional
        Done before each run and after its check, not timed.
    """

    name: str
    run: Callable[[], Any]
    check: Callable[[Any], Any] = lambda _: None
    expected: Any = None
    prepare: Callable[[], None] = lambda: None
    tidy: Callable[[], None] = lambda: None
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        """Of all rounds, in seconds."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """Of all rounds, in seconds."""
        return float(np.median(self.seconds))


def interleaved(
    contestants: Sequence[Contestant],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = lambda: 0.0,
) -> None:
    """Let all run in turn, so that a noisy minute does not fall on one of them.

    Raises
    ------
    WrongAnswerError
        When a contestant answers otherwise than expected.
    """
    for _ in range(rounds):
        for contestant in contestants:
            contestant.prepare()
            begun, cpu_begun = clock(), cpu()
            result = contestant.run()
            contestant.seconds.append(clock() - begun)
            contestant.cpu_seconds.append(cpu() - cpu_begun)
            answer = contestant.check(result)
            if answer != contestant.expected:
                raise WrongAnswerError(f"{contestant.name}: {answer}, not {contestant.expected}")
            contestant.tidy()
            if contestant.seconds[-1] > LONG_S:
                sys.stderr.write(f"{contestant.name}: {contestant.seconds[-1]:.1f} s\n")


def checksum(*columns: Int64Array) -> tuple[int, int]:
    """Number of rows, and a sum over them that does not depend on their order."""
    total = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = (total ^ np.asarray(column).astype(np.int64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        total ^= total >> np.uint64(29)
    return len(total), int(np.bitwise_xor.reduce(total, initial=0)) ^ int(total.sum(dtype=np.uint64))


def checksum_of_changes(partition: Int64Array, changes: Int64Array) -> tuple[int, int]:
    """Of rows as the kernel writes them: which, what, when, whom, and the offsets then."""
    return checksum(partition, *(changes[:, column] for column in (1, 2, 3, 6, 7, 8)))


def checksum_of_table(changes: Any) -> tuple[int, int]:
    """The same of an Arrow table: the columns of ``isr_changes``, and ``time_us``."""
    partition = np.asarray(changes["partition_id"]).astype(np.int64)
    return checksum(
        partition,
        np.asarray(changes["time_us"]),
        np.array([CHANGE_KINDS.index(kind) for kind in changes["kind"].to_pylist()], np.int64),
        places_of(partition, np.asarray(changes["replica_id"])),
        *(np.asarray(changes[name]) for name in ("high_watermark", "leader_log_end_offset", "follower_log_end_offset")),
    )


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
            found.setdefault(parent, []).append(int(entry.name))
    return found


def processes_below(root: int) -> list[int]:
    """Every process of the tree, itself first."""
    children, found = _children(), [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def kind_of_process(pid: int, command: str) -> str:
    """Classify a process as driver, JVM or one of Spark's Python workers, which are all others."""
    if pid == os.getpid():
        return "driver"
    return "jvm" if command.partition("\0")[0].endswith("java") else "workers"


class CpuOfTree:
    """CPU seconds of a process and its descendants; for ended ones, the last value seen.

    Their parents' sums lack some: Spark's Python workers end after an idle minute, and no parent waits for them.

    Parameters
    ----------
    root : int, optional
        The process; by default this one.
    kind_of : callable, optional
        Returns the kind of a process, given its number and its command line.
    """

    def __init__(self, root: int | None = None, kind_of: Callable[[int, str], str] = kind_of_process) -> None:
        self._root, self._kind_of = root or os.getpid(), kind_of
        self._ticks: dict[tuple[int, str], int] = {}
        self._kinds: dict[tuple[int, str], str] = {}

    def __call__(self) -> float:
        """Look at each process."""
        return sum(self.by_kind().values())

    def by_kind(self) -> dict[str, float]:
        """The same of each kind of process."""
        for pid in processes_below(self._root):
            try:
                text = Path(f"/proc/{pid}/stat").read_text()
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:  # it has ended
                continue
            told = text.rpartition(")")[2].split()
            process = pid, told[19]  # a number is given again, but not at one time
            self._ticks[process] = int(told[11]) + int(told[12])
            if command:  # one that has ended and is not waited for has none
                self._kinds[process] = self._kind_of(pid, command)
        found: defaultdict[str, float] = defaultdict(float)
        for process, ticks in self._ticks.items():
            found[self._kinds.get(process, "workers")] += ticks / os.sysconf("SC_CLK_TCK")
        return found


class PeakMemory:
    """Highest resident memory, in MiB, of a process of each kind below this one: Spark's Python workers, and the JVM.

    The system keeps each process's own peak, so that to look now and then is enough.
    """

    def __init__(self) -> None:
        self.worker = 0.0
        self.jvm = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for pid in processes_below(os.getpid())[1:]:
                try:
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                peaks = [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")]
                size = max(peaks, default=0.0)
                if b"pyspark" in command and b"daemon" in command and b"java" not in command.partition(b"\0")[0]:
                    self.worker = max(self.worker, size)
                elif command.partition(b"\0")[0].endswith(b"java"):
                    self.jvm = max(self.jvm, size)
