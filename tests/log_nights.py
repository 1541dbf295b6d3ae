"""An operator's log folder as of each night: a recorded run, cut by time into rotated files.

Also the differences between a lake of many nights and one of a single ingest of all files.
"""

import gzip
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from isr_batch.lake.tables.inputs import FETCH_LOG, INPUT_TABLES
from isr_batch.lake.tables.inputs import SESSION_ENDS as ENDS
from tests.log_cuts import ALL_LOGS, REQUEST, SERVER, STATE_CHANGE, second
from tests.spark.killed_runs import OWN, fetches_of_run

Lines = list[tuple[float, bytes]]
Row = dict[str, Any]

OF_FILES = {*OWN, "source_file", "source_line", "evidence_lines", "trouble_line"}
"""Columns with names of files, which rotation changes."""


@dataclass(frozen=True)
class Rotation:
    """How a cluster's loggers rotate their files; times in seconds of the recorded run.

    Attributes
    ----------
    every : mapping of str to float
        Time that a file of a log has, by the log; each log has its own.
    numbered : bool
        Names by number (``request.log.1`` is the newest), and not by the time at which a file began.
    packed : bool
        Whether rotated files are compressed.
    closed : bool
        Whether a night's copy has rotated files alone, so that each log ends at another time.
    """

    every: Mapping[str, float] = field(default_factory=lambda: {REQUEST: 20.0, SERVER: 35.0, STATE_CHANGE: 50.0})
    numbered: bool = False
    packed: bool = False
    closed: bool = False


class RecordedRun:
    """All log lines of a recorded run with their times, to be written as of any instant.

    Parameters
    ----------
    run : Path
        Folder with a folder for each broker.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.logs = {
            (folder.name, log): list(_with_times(gzip.decompress((folder / f"{log}.log.gz").read_bytes())))
            for folder in sorted(run.glob("broker-*"))
            for log in ALL_LOGS
        }
        stamps = [at for (_, log), lines in self.logs.items() if log == REQUEST for at, _ in (lines[0], lines[-1])]
        self.first, self.last = min(stamps), max(stamps)

    def nights(self, count: int) -> list[float]:
        """Instants (s since 1970) at which a night's copy of the logs is made; the last copy has all lines."""
        step = (self.last - self.first) / count
        return [self.first + step * (n + 1) for n in range(count - 1)] + [float("inf")]

    def folder_at(self, at: float, target: Path, rotation: Rotation, since: float = 0) -> Path:
        """Write the log folder as of an instant: only files that got a line after ``since`` are in it."""
        for (broker, log), lines in self.logs.items():
            to = target / broker
            to.mkdir(exist_ok=True, parents=True)
            shutil.copyfile(self.run / broker / "server.properties", to / "server.properties")
            upto = lines[: bisect_right([each for each, _ in lines], at)]
            for name, text in _files(log, upto, (self.first, since, at), rotation):
                packed = rotation.packed and name != f"{log}.log"
                (to / f"{name}.gz" if packed else to / name).write_bytes(gzip.compress(text) if packed else text)
        return target


def _files(
    log: str, lines: Lines, times: tuple[float, float, float], rotation: Rotation
) -> Iterator[tuple[str, bytes]]:
    begin, since, until = times
    files: dict[int, Lines] = {}
    for at, line in lines:
        files.setdefault(int((at - begin) // rotation.every[log]), []).append((at, line))
    for age, number in enumerate(sorted(files, reverse=True)):
        ended = begin + rotation.every[log] * (number + 1)
        last = ended if rotation.closed else files[number][-1][0]
        if last > since and not (rotation.closed and until < last):
            rotated = f".{age}" if rotation.numbered else f".2026-11-21-{number + 1:02}"
            name = f"{log}.log{rotated if age or rotation.closed else ''}"
            yield name, b"".join(line for _, line in files[number])


def _with_times(text: bytes) -> Iterator[tuple[float, bytes]]:
    """Give each line the latest timestamp so far, as lines without one belong to the line before."""
    at = 0.0
    for line in text.splitlines(keepends=True):
        with suppress(AssertionError):
            at = max(at, second(line))
        yield at, line


def differences(nights: Path, whole: Path, tables: tuple[str, ...] = ()) -> dict[str, tuple[list[Row], list[Row]]]:
    """Rows that only one of two lakes has, by table (both lists); by default, of all tables an ingest writes."""
    names = tables or (*(table.name for table in INPUT_TABLES), ENDS.name, "shrink_evidence", "kept_lines")
    found: dict[str, tuple[list[Row], list[Row]]] = {}
    for name in names:
        one, other = (Counter(map(_cells, rows_of(lake, name))) for lake in (nights, whole))
        if one != other:
            found[name] = [dict(row) for row in one - other], [dict(row) for row in other - one]
    return found


def rows_of(lake: Path, name: str) -> Iterator[Row]:
    """Read all rows of a table of a lake; rows of fetch_log are taken apart into single fetches."""
    if (lake / name / "_delta_log").is_dir():
        for row in pa.table(deltalake.DeltaTable(str(lake / name)).to_pyarrow_table()).to_pylist():
            yield from (dict(fetch) for fetch in fetches_of_run(row)) if name == FETCH_LOG.name else [row]


def _cells(row: Row) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in row.items() if name not in OF_FILES)
