"""A lease on a lake's results: two runs that write at once would leave tables with rows of either.

A table of turns, to which Delta lets a key be appended once: who gets the row of the next turn has it. A turn ends
when it is given back, when its process is gone, or, on another machine, after LEASE.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from isr_batch.errors import WriteConflictError
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.lake import Lake
from isr_batch.lake.small_tables import SmallTables
from isr_batch.lake.stores import S3, log_store
from isr_batch.lake.tables.outputs import RUN_LEASE

LEASE = timedelta(hours=6)


@contextmanager
def leased(lake: Lake) -> Iterator[None]:
    """Take the lease on a lake's results, to have them to oneself.

    Raises
    ------
    WriteConflictError
        When another run is at work on them.
    """
    lake.ensure(RUN_LEASE)
    last = _last(lake)
    if last and last["run_id"] == lake.run_id and not last["given_back"]:
        yield
        return
    if last and not _is_over(last):
        _refuse(lake, last)
    number = last["turn"] + 1 if last else 1
    _write(lake, number, given_back=False)
    holder = _last(lake)
    if holder is None or holder["run_id"] != lake.run_id:
        _refuse(lake, holder)
    try:
        yield
    finally:
        _write(lake, number, given_back=True)


@contextmanager
def sole_writer(lake: Lake) -> Iterator[None]:
    """Take a lease on the whole lake, input tables as well, where Delta's Spark loses commits of two at once: on S3.

    There it looks whether a version is taken, and then writes it. A log store for several writers, as
    ``spark.delta.logStore.s3a.impl`` names one, is trusted.

    Raises
    ------
    WriteConflictError
        When another run writes to the lake.
    """
    scheme = _scheme(lake)
    if scheme in S3 and not log_store(lake.spark, scheme):
        with leased(lake):
            yield
    else:
        yield


def _scheme(lake: Lake) -> str:
    place = lake.spark.catalog.getDatabase(lake.root).locationUri if lake.catalog else lake.root
    return urlsplit(place or "").scheme


def _last(lake: Lake) -> dict[str, Any] | None:
    lake.was_written(RUN_LEASE.name)  # perhaps by others
    turns = read_columns(lake, RUN_LEASE.name, RUN_LEASE.column_names).to_pylist()
    return max(turns, key=lambda row: (row["turn"], row["given_back"]), default=None)


def _write(lake: Lake, number: int, *, given_back: bool) -> None:
    row = {
        "turn": number, "run_id": lake.run_id, "host": socket.gethostname(), "pid": os.getpid(),
        "taken_time": datetime.now(UTC), "given_back": given_back,
    }  # fmt: skip
    with ArrowSql() as sql:
        SmallTables(lake, sql).append_once(RUN_LEASE, row, f"turn {number} {'ends' if given_back else 'begins'}")


def _is_over(row: dict[str, Any]) -> bool:
    if row["given_back"]:
        return True
    if row["host"] == socket.gethostname():
        return not _is_alive(row["pid"])
    return bool(datetime.now(UTC) - row["taken_time"] > LEASE)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _refuse(lake: Lake, holder: dict[str, Any] | None) -> None:
    who = f"run {holder['run_id']} (process {holder['pid']} on {holder['host']})" if holder else "another run"
    raise WriteConflictError(
        f"{who} is writing to {lake.root}",
        "nothing was changed: repeat the command when it has finished. On the same machine a killed run blocks "
        f"nothing; on another its lease expires {LEASE} after it began",
    )
