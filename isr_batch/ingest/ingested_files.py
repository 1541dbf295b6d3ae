"""Plan an ingest of a cluster's logs: which rows of earlier ingests it replaces, and which it must keep.

If any file of a folder is new, all files of the folder are read. Fetch sessions, log end offsets and terms continue
from one file to the next, so the rows of a file depend on its neighbours. Reading all files again yields the same rows
as ingesting them together for the first time, and takes no longer. Files are recognised by their content
(`INGESTED_FILES`). The cases are:

- All files unchanged: nothing is read, nothing is written.
- A file that has grown, or was rotated or compressed: its old rows are replaced, because its lines are still there.
- A file that has left the folder, or whose name is now used by another file: its rows stay, even where the files that
  are read cover time before and after it. If its name is reused, the new file is called ``name (2)`` in the lake.
- A shorter copy of a file that has left the folder: it is not read, because the lake already has its rows.
- A file that has left the folder and a file that is read cover more than a second of the same time: the two files are
  copies, and the one that is read takes precedence.

A fetch or an append comes from one file. A term, an ISR change or a broker event is derived from several files, so it
belongs to a period of its broker. Each period is covered either by request logs that are read now, or by request logs
that are no longer in the folder.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

from isr_batch import __version__
from isr_batch.ingest.folder.log_folder import METADATA, PROPERTIES, REQUEST, LogFile, LogFolder
from isr_batch.lake.ddl import sql_literal

OVERLAP = timedelta(seconds=1)
"""Two files that overlap by no more than this are not considered copies. A broker's threads write lines some
milliseconds out of order, so consecutive files of a rotated log can overlap a little."""

GOES_ON = timedelta(seconds=2)
"""A term or a covered period is considered to continue in a file if it ends within this time before the file begins, or
begins within this time after the file ends."""

Span = tuple[datetime, datetime]


@dataclass(frozen=True)
class IngestedFile:
    """A file that was ingested: a row of table ingested_files without cluster_id. Times are in UTC."""

    source_file: str
    kind: str
    broker_id: int | None
    size_bytes: int
    content_bytes: int
    content_hash: str
    lines: int
    first_time: datetime | None
    last_time: datetime | None
    days: dict[date, datetime]
    first_hashes: list[int]
    code_version: str
    ingest_run: str

    @property
    def span(self) -> Span | None:
        """First and last timestamp in the file; None if no line has a timestamp."""
        return (self.first_time, self.last_time) if self.first_time and self.last_time else None


def beginnings_of_file(known: Iterable[IngestedFile], file: LogFile) -> list[int]:
    """Return the sizes that ``file`` may have had when an earlier ingest read it, in unpacked bytes.

    These are the sizes of all files in ``known`` of the same broker and kind of log.
    """
    return [record.content_bytes for record in known if (record.kind, record.broker_id) == (file.kind, file.broker_id)]


def _file_began_as(file: LogFile, record: IngestedFile) -> bool:
    """Return whether a file is the ingested file ``record``, perhaps with lines added since."""
    assert file.held is not None
    same = (record.kind, record.broker_id) == (file.kind, file.broker_id)
    return same and record.content_hash in {file.held.content_hash, *file.held.beginnings}


def _is_shorter(file: LogFile, record: IngestedFile) -> bool:
    """Return whether a file is a shorter copy of an ingested file.

    It is one if its longest hashed prefix, at least half of the file, has the same hash in the ingested file.
    """
    assert file.held is not None
    hashes = file.held.first_hashes
    same = (record.kind, record.broker_id) == (file.kind, file.broker_id)
    return bool(same and hashes and file.held.content_bytes < record.content_bytes
                and hashes[-1:] == tuple(record.first_hashes[len(hashes) - 1 : len(hashes)]))  # fmt: skip


@dataclass(frozen=True)
class PlanOfFiles:
    """The plan of an ingest: which files of the folder are read, and which earlier files they replace.

    Parameters
    ----------
    found : LogFolder
        The folder. Its ``files`` are those to read, with the names that they will have in the lake.
    superseded : list of IngestedFile
        Ingested files all of whose lines are in the files to read.
    gone : list of IngestedFile
        Ingested files that are no longer in the folder.
    shorter : list of LogFile
        Files of the folder that are not read, because longer copies of them have been ingested.
    nothing_new : bool
        Whether all files have been ingested already with the same content.
    """

    found: LogFolder
    superseded: list[IngestedFile]
    gone: list[IngestedFile]
    shorter: list[LogFile]
    nothing_new: bool


def plan_files_to_ingest(found: LogFolder, known: list[IngestedFile]) -> PlanOfFiles:
    """Plan an ingest by comparing a folder's files with the files of the same cluster that earlier ingests read."""
    longer = [record for record in known if not any(_file_began_as(file, record) for file in found.files)]
    shorter = [file for file in found.files if any(_is_shorter(file, record) for record in longer)]
    read = [file for file in found.files if file not in shorter]
    superseded = [record for record in known if any(_file_began_as(file, record) for file in read)]
    gone = [record for record in known if record not in superseded and record.kind != PROPERTIES]
    taken = {record.source_file for record in gone}
    named: dict[tuple[str, str | None], str] = {}  # a file with several logs is listed several times
    files = []
    for file in read:
        if (file.path, file.source) in named:
            files.append(replace(file, name=named[file.path, file.source]))
            continue
        before = {
            r.source_file
            for r in superseded
            if _file_began_as(file, r) and re.sub(r" \(\d+\)$", "", r.source_file) == file.name
        }
        name, number = (min(before) if before else file.name), 1
        while name in taken:
            number += 1
            name = f"{file.name} ({number})"
        taken.add(name)
        named[file.path, file.source] = name
        files.append(replace(file, name=name))
    ingested = {(record.source_file, record.size_bytes, record.content_hash) for record in known
            if record.code_version == __version__}  # fmt: skip
    there = {(file.name, file.held.size_bytes, file.held.content_hash) for file in files if file.held}
    return PlanOfFiles(replace(found, files=files), superseded, gone, shorter, there <= ingested)


@dataclass(frozen=True)
class ReadFiles:
    """The files that an ingest has read, and SQL conditions for the rows in the lake that they replace.

    Parameters
    ----------
    work : PlanOfFiles
        The plan by which the files were read.
    times : dict
        Maps file names to ``first_time``, ``last_time`` and ``days``, a list of dates.
    """

    work: PlanOfFiles
    times: dict[str, dict[str, Any]]

    @cached_property
    def _requests(self) -> list[tuple[LogFile, Span]]:
        """The request logs that were read, each with its first and last timestamp."""
        return [
            (file, (self.times[file.name]["first_time"], self.times[file.name]["last_time"]))
            for file in self.work.found.of_kind(REQUEST)
            if file.name in self.times
        ]

    def records(self, run_id: str, now: datetime) -> list[IngestedFile]:
        """Return the new rows of table ingested_files: the files that were read, and earlier files whose rows stay.

        ``days`` of a row maps each day in the file to the time of the ingest that last found new lines of that day.
        """
        rows = []
        for file in self.work.found.files:
            assert file.held is not None
            time = self.times.get(file.name, {"first_time": None, "last_time": None, "days": []})
            before = [record for record in self.work.superseded if _file_began_as(file, record)]
            days = dict.fromkeys(time["days"], now)
            for record in sorted(before, key=lambda record: record.content_bytes):
                same = record.content_hash == file.held.content_hash and record.code_version == __version__
                for day, changed in record.days.items():
                    if day in days and (same or (record.last_time and day < record.last_time.date())):
                        days[day] = changed
            rows.append(IngestedFile(
                file.name, file.kind, file.broker_id, file.held.size_bytes, file.held.content_bytes,
                file.held.content_hash, file.held.lines, time["first_time"], time["last_time"], days,
                list(file.held.first_hashes), __version__, run_id,
            ))  # fmt: skip
        return rows + self.remaining

    @property
    def remaining(self) -> list[IngestedFile]:
        """Ingested files that are no longer in the folder and whose rows stay.

        These are the files whose period is not completely covered by a request log of the same broker that was read.
        """
        return [
            record for record in self.work.gone if not any(_file_swallows(*read, record) for read in self._requests)
        ]

    @property
    def overlaps(self) -> list[tuple[str, Span]]:
        """Copies: ingested request logs, no longer in the folder, that cover the same time as a log that was read.

        Each item is the SQL condition for the rows of the ingested log, and the period of the log that was read.
        """
        return [
            (f"leader_id = {file.broker_id} AND source_file = {sql_literal(record.source_file)}", span)
            for file, span in self._requests
            for record in self.work.gone
            if record.kind == REQUEST and record.broker_id == file.broker_id and _files_overlap(record.span, span)
        ]

    @property
    def days(self) -> set[date]:
        """Days of the lines in the files, both now and when earlier ingests read these files."""
        before = {day for record in self.work.superseded for day in record.days}
        return before | {day for of_file in self.times.values() for day in of_file["days"]}

    @property
    def _day_bounds(self) -> tuple[date, date] | None:
        """First and last event_date that rows of these files can have; None if the files have no days.

        One day is added on each side, because a line can belong to the day before or after its timestamp.
        """
        days = self.days
        return (min(days) - timedelta(days=1), max(days) + timedelta(days=1)) if days else None

    def rows(self, done_at: Sequence[str]) -> str:
        """Return the SQL condition that selects the fetches or appends in the lake that the new rows replace.

        Parameters
        ----------
        done_at : sequence of str
            Columns with the time at which the request was completed. The first one that is not null is used.
        """
        names = {record.source_file for record in self.work.superseded} | {file.name for file in self.work.found.files}
        condition = f"source_file IN ({', '.join(map(sql_literal, sorted(names)))})"
        overlapping = [f"({rows} AND {_files_done(done_at, span)})" for rows, span in self.overlaps]
        if days := self._day_bounds:  # redundant, but lets Delta skip the files of all other days
            condition = f"({condition}) AND event_date BETWEEN DATE'{days[0]}' AND DATE'{days[1]}'"
        return " OR ".join([condition, *overlapping])

    @property
    def days_of_rows(self) -> tuple[str, str] | None:
        """First and last event_date of the rows that `rows` selects, as text; None if they can have any date."""
        days = self._day_bounds
        return (str(days[0]), str(days[1])) if days and not self.overlaps else None

    def small_logs_since(self, begins: Mapping[int, datetime]) -> dict[int, datetime]:
        """Return, for each broker, the time from which this ingest derives its events and ISR changes again.

        It is the latest of three times, because rows before any of them cannot be derived again:

        - the first timestamp that was read in the broker's logs, except request logs, or in the metadata log;
        - the time in ``begins``, if other logs of the broker have left the folder;
        - the end of any ingested metadata log that has left the folder.

        Parameters
        ----------
        begins : mapping of int to datetime
            By broker, the time from which on the lake stores all lines of earlier logs.
        """
        recorded = [record.span[1] for record in self.work.gone if record.kind == METADATA and record.span]
        # A broker without files that have left the folder: all its lines are in the files that are read.
        logged = {record.broker_id for record in self.work.gone if record.kind not in {REQUEST, METADATA}}
        new = {file.broker_id for file in self.work.found.files if file.broker_id is not None} - logged
        since: dict[int, datetime] = {}
        for broker_id in {*begins, *new}:
            begin = begins.get(broker_id, datetime.min.replace(tzinfo=UTC))
            read = [
                self.times[file.name]["first_time"] for file in self.work.found.files
                if file.kind != REQUEST and file.broker_id in {broker_id, None} and file.name in self.times
            ]  # fmt: skip
            if read:
                since[broker_id] = max([min(read), begin, *recorded])
        return since

    @property
    def later_request_logs(self) -> list[str]:
        """Names of request logs that have left the folder but begin after one of the same broker that was read."""
        return sorted(
            record.source_file for record in self.work.gone
            if record.kind == REQUEST and record.span
            and any(file.broker_id == record.broker_id and span[1] < record.span[0] for file, span in self._requests)
        )  # fmt: skip

    def time_of_gone_files(self, broker: str, time: str, until: str | None = None) -> str:
        """Return the SQL condition that selects rows in periods of request logs that are no longer in the folder.

        `time_covered_by_files` divides the time between these logs and the request logs that were read.

        Parameters
        ----------
        broker, time : str
            Columns with the broker and the time of a row.
        until : str, optional
            Column with the end of a row. A row then belongs to a period if the time from ``time`` to ``until`` overlaps
            the period, or is at most `GOES_ON` away from it.
        """
        requests = [r for r in self.work.gone if r.kind == REQUEST and r.span and r.broker_id is not None]
        kept = []
        for broker_id in sorted({r.broker_id for r in requests if r.broker_id is not None}):
            gone = sorted(r.span for r in requests if r.broker_id == broker_id and r.span)
            read = sorted(span for file, span in self._requests if file.broker_id == broker_id)
            read_times = [_file_meets(time, until, *bounds) for bounds in time_covered_by_files(read, gone)]
            kept.append(f"({broker} = {broker_id}" + (f" AND NOT ({' OR '.join(read_times)}))" if read_times else ")"))
        return " OR ".join(kept) or "false"


def _file_swallows(file: LogFile, span: Span, record: IngestedFile) -> bool:
    """Return whether a request log that was read covers the whole period of an ingested one of the same broker."""
    same = record.kind == REQUEST and record.broker_id == file.broker_id and _files_overlap(record.span, span)
    return bool(same and record.span and span[0] <= record.span[0] and record.span[1] <= span[1])


def time_covered_by_files(read: list[Span], gone: list[Span]) -> list[tuple[datetime | None, datetime | None]]:
    """Assign each instant to a request log of the broker, and return the periods of the logs that are read.

    Time that several logs cover belongs to those that are read. Time between two logs belongs to the later one, because
    a term begins before its first request. Time before or after all logs belongs to the first or last one.

    Parameters
    ----------
    read : list of (datetime, datetime)
        First and last instant of each request log that is read.
    gone : list of (datetime, datetime)
        First and last instant of each ingested request log that has left the folder.

    Returns
    -------
    list of (datetime or None, datetime or None)
        The periods in chronological order, each from an excluded to an included instant. None means unbounded.
    """
    apart = [g for g in gone if not any(r[0] <= g[0] and g[1] <= r[1] for r in read)]
    runs: list[tuple[datetime, datetime, bool]] = []
    for first, last, is_read in sorted([*((*span, True) for span in read), *((*span, False) for span in apart)]):
        if runs and runs[-1][2] == is_read:
            runs[-1] = (runs[-1][0], max(runs[-1][1], last), is_read)
        else:
            runs.append((first, last, is_read))
    end = max((last for _, last, _ in runs), default=None)
    return [
        (
            min(runs[n - 1][1], first - timedelta(microseconds=1)) if n else None,
            None if n == len(runs) - 1 and last == end else last,
        )
        for n, (first, last, is_read) in enumerate(runs)
        if is_read
    ]


def _files_overlap(one: Span | None, other: Span) -> bool:
    """Return whether two periods overlap by more than OVERLAP."""
    return one is not None and min(one[1], other[1]) - max(one[0], other[0]) > OVERLAP


def _file_between(time: str, span: Span) -> str:
    """Return a SQL condition: whether the time in a column is in a period, including both ends."""
    return f"{time} BETWEEN {sql_instant(span[0])} AND {sql_instant(span[1])}"


def _files_done(columns: Sequence[str], span: Span) -> str:
    """Return a SQL condition: whether the first of the columns that is not null is in a period."""
    # Without coalesce: an overwrite by Delta 4.4 whose condition has coalesce in it silently deletes nothing.
    first, *others = columns
    return (
        f"({_file_between(first, span)}{''.join(f' OR {first} IS NULL AND {_file_between(o, span)}' for o in others)})"
    )


def _file_within(time: str, after: datetime | None, upto: datetime | None) -> str:
    """Return the SQL condition ``after < time <= upto``. A bound that is None is omitted."""
    bounds = [f"{time} > {sql_instant(after)}"] if after else []
    bounds += [f"{time} <= {sql_instant(upto)}"] if upto else []
    return " AND ".join(bounds) or "true"


def _file_meets(time: str, until: str | None, after: datetime | None, upto: datetime | None) -> str:
    """Return a SQL condition: whether a row from ``time`` to ``until`` overlaps the period from ``after`` to ``upto``.

    If ``until`` is None, a row lasts no time; otherwise the period is extended by `GOES_ON` on both sides.
    """
    if until is None:
        return _file_within(time, after, upto)
    bounds = [f"{until} > {sql_instant(after - GOES_ON)}"] if after else []
    bounds += [f"{time} <= {sql_instant(upto + GOES_ON)}"] if upto else []
    return " AND ".join(bounds) or "true"


def sql_instant(instant: datetime) -> str:
    """Return a time as a SQL timestamp literal in UTC."""
    return f"TIMESTAMP'{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}'"
