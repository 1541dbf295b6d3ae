"""Let only one run at a time write results to a lake. Otherwise tables could mix the rows of two runs.

Each lease is a numbered row of a Delta table that accepts each number only once. The run that succeeds in appending the
row with the next number holds the lease. While it works, it appends a heartbeat every `BEAT`. The lease ends when the
run releases it, when the run's process has ended, or when there was no heartbeat for `EXPIRY`. A process on another
machine or in another container cannot be looked up by its id, so for its run only heartbeats count.

A run that was suspended for longer than `EXPIRY` may have lost the lease without noticing. Therefore `Turn.require`
checks the lease before the run commits its results.
"""

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from isr_batch.errors import WriteConflictError
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.stores import S3, log_store
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.tables.outputs import RUN_LEASE

BEAT: Final = timedelta(minutes=2)
EXPIRY: Final = timedelta(minutes=10)
_OLD_EXPIRY: Final = timedelta(hours=6)
"""Time after which a lease ends if an earlier version of isr-batch holds it, because that version sends no
heartbeats."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Turn:
    """The lease on a lake's results, while this run holds it."""

    lake: Lake
    number: int

    def require(self) -> None:
        """Raise if this run no longer holds the lease. A run has to call this before it commits its results.

        Raises
        ------
        WriteConflictError
            If another run has taken the lease.
        """
        last = _last_turn_of_lease(self.lake)
        if last is None or last["turn"] != self.number:
            raise WriteConflictError(
                f"this run gave no heartbeat for more than {EXPIRY}, and {_holder_of_lease(last)} has taken the lock",
                "its results are not marked as done: repeat the command when the other run has finished",
            )


@contextmanager
def leased(lake: Lake) -> Iterator[Turn]:
    """Hold the exclusive lease on a lake's results while the block runs. A run that already holds it may enter again.

    Raises
    ------
    WriteConflictError
        If another run holds it.
    """
    lake.ensure(RUN_LEASE)
    last = _last_turn_of_lease(lake)
    if last and last["run_id"] == lake.run_id and not last["given_back"]:
        yield Turn(lake, last["turn"])
        return
    if last and not _is_lease_turn_over(last):
        _refuse_lease(lake, last)
    number = last["turn"] + 1 if last else 1
    ended = threading.Event()
    beats = threading.Thread(target=_beat_of_lease, args=(lake, number, ended), name="lease", daemon=True)
    try:
        _write_turn_of_lease(lake, number, "begins")
        holder = _last_turn_of_lease(lake)
        if holder is None or holder["run_id"] != lake.run_id:
            _refuse_lease(lake, holder)
        beats.start()
        yield Turn(lake, number)
    finally:
        ended.set()
        if beats.ident:
            beats.join()
        holder = _last_turn_of_lease(lake)
        if holder and (holder["turn"], holder["run_id"]) == (number, lake.run_id):
            _write_turn_of_lease(lake, number, "ends", given_back=True)


@contextmanager
def sole_writer(lake: Lake) -> Iterator[None]:
    """Hold the lease while the block writes input tables to a lake on S3, where Spark can lose concurrent commits.

    On S3, Spark first checks that a version of the table does not exist, and then writes it, so two writers can write
    the same version. Elsewhere, or with a multi-writer log store (``spark.delta.logStore.s3a.impl``), two writers
    cannot write the same version, so no lease is taken.

    Raises
    ------
    WriteConflictError
        If another run is writing to the lake.
    """
    scheme = _scheme_of_lake(lake)
    if scheme in S3 and not log_store(lake.spark, scheme):
        with leased(lake):
            yield
    else:
        yield


def _scheme_of_lake(lake: Lake) -> str:
    """Return the scheme of the lake's address; empty for a folder."""
    place = lake.spark.catalog.getDatabase(lake.root).locationUri if lake.catalog else lake.root
    return urlsplit(place or "").scheme


def _last_turn_of_lease(lake: Lake) -> dict[str, Any] | None:
    """Return the last row of the lease table; None if no run has ever held the lease."""
    lake.was_written(RUN_LEASE.name)  # another process may have written
    turns = read_columns(lake, RUN_LEASE.name, RUN_LEASE.column_names).to_pylist()
    return max(turns, key=lambda row: (row["turn"], row["given_back"], row["taken_time"]), default=None)


def _write_turn_of_lease(lake: Lake, number: int, what: str, *, given_back: bool = False) -> None:
    """Append a row to the lease table, unless one with the same number and event (``what``) exists.

    ``given_back`` is true when the lease is released.
    """
    row = {
        "turn": number, "run_id": lake.run_id, "host": str(_this_process_of_lease()), "pid": os.getpid(),
        "taken_time": datetime.now(UTC), "given_back": given_back,
    }  # fmt: skip
    with ArrowSql() as sql:
        SmallTables(lake, sql).append_once(RUN_LEASE, row, f"turn {number} {what}")


def _beat_of_lease(lake: Lake, number: int, ended: threading.Event) -> None:
    """Append a heartbeat for turn ``number`` to the lease table every `BEAT`, until ``ended`` is set, in a thread."""
    beats = 0
    while not ended.wait(BEAT.total_seconds()):
        beats += 1
        try:
            _write_turn_of_lease(lake, number, f"lives {beats}")
        except Exception as error:  # noqa: BLE001 the next beat may get through; if none does, the turn is lost
            logger.warning("run_lease: the heartbeat could not be written: %s", str(error).partition("\n")[0])


@dataclass(frozen=True)
class _LeaseProcess:
    """Identifies a process together with its process id, because process ids are reused.

    Attributes
    ----------
    host, boot, namespace : str
        Name of the machine, its boot id, and the PID namespace; empty on systems without them.
    started : str
        Start time, in ticks since the machine's boot.
    """

    host: str
    boot: str
    namespace: str
    started: str

    @classmethod
    def parse(cls, text: str) -> "_LeaseProcess":
        """Parse the text that ``str`` returned, which is stored in the column ``host`` of the lease table."""
        return cls(*(*text.split("|"), "", "", "")[:4])

    def __str__(self) -> str:
        return f"{self.host}|{self.boot}|{self.namespace}|{self.started}"

    def is_gone(self, pid: int) -> bool:
        """Whether the process with the id ``pid`` is known to have ended. False if it may be on another machine."""
        own = _this_process_of_lease()
        if (self.host, self.boot, self.namespace) == (own.host, own.boot, own.namespace) and self.boot:
            return _started(pid) != self.started
        if self.host == own.host and not self.boot:  # written by an earlier version, or not on Linux
            return not _is_process_of_lease_there(pid)
        return False


@cache
def _this_process_of_lease() -> _LeaseProcess:
    """Return the identity of this process."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return _LeaseProcess(socket.gethostname(), "", "", "")
    return _LeaseProcess(
        socket.gethostname(), boot.read_text().strip(), str(Path("/proc/self/ns/pid").readlink()),
        _started(os.getpid()),
    )  # fmt: skip


def _started(pid: int) -> str:
    """Return the start time of a process, in ticks since boot; empty if no such process is running."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else fields[18]


def _is_process_of_lease_there(pid: int) -> bool:
    """Whether a process with this id runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _is_lease_turn_over(row: dict[str, Any]) -> bool:
    """Whether a lease has ended, given its last row: it was released, its process ended, or its heartbeats stopped."""
    process = _LeaseProcess.parse(row["host"])
    expiry = EXPIRY if process.boot else _OLD_EXPIRY
    return bool(row["given_back"] or process.is_gone(row["pid"]) or datetime.now(UTC) - row["taken_time"] > expiry)


def _holder_of_lease(holder: dict[str, Any] | None) -> str:
    """Describe the run that holds the lease, for a message."""
    if holder is None:
        return "another run"
    return f"run {holder['run_id']} (process {holder['pid']} on {_LeaseProcess.parse(holder['host']).host})"


def _refuse_lease(lake: Lake, holder: dict[str, Any] | None) -> None:
    """Raise the error that another run holds the lease. ``holder`` is the last row of the lease table."""
    raise WriteConflictError(
        f"{_holder_of_lease(holder)} is writing to {lake.root}",
        "nothing was changed: repeat the command when it has finished. On the same machine a killed run blocks "
        f"nothing; in another container, or on another machine, it is dead after {EXPIRY} without a heartbeat",
    )
