"""Print a command's progress and errors to stderr, and its results to stdout."""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from isr_batch.printable import printable, printable_lines
from isr_batch.progress import WorkDone, progress_now

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

# If stdout is a file or a pipe, it has no width unless COLUMNS is set: tables are not wrapped there.
PLAIN_WIDTH = 200
GAP = 2
"""Number of blanks between two columns of a printed table."""
LEAST_TEXT, LEAST_HEADING = 12, 6
"""Minimum widths of a text column and of a heading, in characters, if a table is too wide for the terminal."""
MANY_LINES = 4
"""If a table's rows would take this many lines on average, each row is printed as lines of name and value instead."""
MOST_SHOWN = 1000
"""Maximum number of rows of a table that are printed: a hundred thousand would take minutes, and be useless on a
terminal."""
POLLS = 0.5
"""Seconds between two looks at the progress."""
FIRST_LINES, LINES = (5.0, 5.0, 10.0, 20.0), 60.0
"""Seconds between the first lines of progress, and between all later ones, if stderr is not a terminal."""


class Output:
    """Prints the output of a command for a terminal, a file, or a program.

    Parameters
    ----------
    quiet : bool
        Whether progress is omitted.
    as_json : bool
        Whether results and progress are printed as JSON lines.
    brief : bool
        Whether tables of details are omitted; JSON output always has them.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False, brief: bool = False) -> None:
        self.quiet = quiet
        self.brief = brief and not as_json
        self.as_json = as_json
        self.watched: Callable[[], tuple[tuple[int, ...], int, int]] | None = None
        """Function that returns Spark's running stages, and their completed and total tasks; polled while a step
        runs."""
        self._stdout = Console(
            width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH,
            markup=False, highlight=False, emoji=False,
        )  # fmt: skip
        self._stderr = Console(stderr=True, markup=False, highlight=False, emoji=False)

    @cached_property
    def _log(self) -> "FilteringBoundLogger":
        """Logger that prints to stderr, as JSON or as text."""
        import structlog  # takes 0.05 s to import; many commands do not log

        processors = structlog.processors
        log: FilteringBoundLogger = structlog.wrap_logger(
            structlog.PrintLogger(sys.stderr),
            processors=[
                _printable_event,
                processors.TimeStamper("iso", utc=True),
                processors.add_log_level,
                processors.JSONRenderer() if self.as_json else structlog.dev.ConsoleRenderer(colors=False),
            ],
        )
        return log

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, int]]:
        """Show the progress of a long step, then its duration.

        Yields
        ------
        dict of str to int
            The block may fill it with numbers to print at the end, by name.
        """
        facts: dict[str, int] = {}
        name = printable(name)
        started = time.monotonic()
        terminal = self._stderr.is_terminal and not self.as_json
        if self.quiet:
            yield facts
        elif terminal:
            with self._bar(name):
                yield facts
            counts = "".join(f", {value} {key.replace('_', ' ')}" for key, value in facts.items())
            self._stderr.print(f"{name}: {time.monotonic() - started:.1f} s{counts}")
        else:
            self._log.info(name)
            with self._lines(name):
                yield facts
            self._log.info(f"{name}: done", seconds=round(time.monotonic() - started, 1), **facts)

    @contextmanager
    def _bar(self, name: str) -> Iterator[None]:
        """Show a progress bar while a step runs, with work done, total, rate, and time left.

        When other work begins, the bar restarts.
        """
        columns = (
            SpinnerColumn(), TextColumn("{task.description}", markup=False), TextColumn("{task.fields[took]}"),
            BarColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
        )  # fmt: skip
        started = time.monotonic()
        with Progress(*columns, console=self._stderr, transient=True) as progress:
            task = progress.add_task(name, total=None, took="", rate="")
            running: object = None

            def show(found: WorkDone | None) -> None:
                """Update the bar."""
                nonlocal running
                progress.update(task, took=_clock_text(time.monotonic() - started))
                key, amount, total, _ = found or WorkDone(None, 0, 0, "")
                if key != running:
                    progress.reset(task, total=total or None, completed=int(amount))
                    running = key
                progress.update(task, completed=amount, total=total or None)
                progress.update(task, rate=_progress_text(found, progress.tasks[0].speed) if found else "")

            with self._watching(repeat(POLLS), show):
                yield

    @contextmanager
    def _lines(self, name: str) -> Iterator[None]:
        """Print lines of progress while a step runs, in the end one a minute; the rate is that since the work began."""
        started = time.monotonic()
        begun: dict[object, tuple[float, float]] = {}

        def show(found: WorkDone | None) -> None:
            """Print one line of progress."""
            now = time.monotonic()
            text = f"{name}: {_clock_text(now - started)}"
            if found:
                since, first = begun.setdefault(found.key, (now, found.done))
                speed = (found.done - first) / (now - since) if now > since else 0
                left = f", {_clock_text((found.total - found.done) / speed)} left" if speed else ""
                text += f", {_progress_text(found, speed)}{left}"
            self._log.info(text)

        with self._watching(chain(FIRST_LINES, repeat(LINES)), show):
            yield

    @contextmanager
    def _watching(self, waits: Iterator[float], show: Callable[[WorkDone | None], None]) -> Iterator[None]:
        """Call ``show`` with the current progress after each of these waits (seconds), in a thread."""
        done = threading.Event()

        def poll() -> None:
            """Call ``show`` again and again, until the block ends."""
            while not done.wait(next(waits)):
                try:
                    found = progress_now()
                    found = found if found and found.total else self._of_spark() or found
                except Exception:  # noqa: BLE001 (Spark may just be ending; that must not fail a run)
                    return
                show(found)

        thread = threading.Thread(target=poll, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(timeout=5)

    def _of_spark(self) -> WorkDone | None:
        """Return the progress of Spark's running tasks; None if Spark is idle."""
        stages, done, total = self.watched() if self.watched else ((), 0, 0)
        return WorkDone(stages, done, total, "tasks") if stages else None

    def show_logged(self) -> None:
        """Print the library's log, warnings always and other messages as progress."""
        log = logging.getLogger("isr_batch")
        log.setLevel(logging.INFO)
        log.handlers = [_Logged(self)]

    def warn(self, text: str) -> None:
        """Print a warning; the command continues."""
        if self.as_json or not self._stderr.is_terminal:
            self._log.warning(text)
        else:
            self._stderr.print(printable(f"warning: {text}"), soft_wrap=True)

    def progress(self, text: str) -> None:
        """Print a line of progress, unless the output is quiet."""
        if self.quiet:
            return
        if self._stderr.is_terminal and not self.as_json:
            self._stderr.print(printable(text))
        else:
            self._log.info(text)

    def say(self, **facts: object) -> None:
        """Print results with their names."""
        if self.as_json:
            self._write_json(facts)
        else:
            for name, value in facts.items():
                self._stdout.print(printable_lines(f"{name.replace('_', ' ')}: {value}"), soft_wrap=True)

    def table(self, title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print up to MOST_SHOWN rows of a table; with ``--json``, print all rows as JSON lines."""
        if self.as_json:
            for row in rows:
                self._write_json({"table": title, **{name: row[name] for name in columns}})
            return
        given, rows = len(rows), rows[:MOST_SHOWN]
        cells = [[_table_cell(row[name]) for name in columns] for row in rows]
        numeric = [bool(rows) and all(isinstance(row[name], int | float | None) for row in rows) for name in columns]
        kept = [number or name == columns[0] for number, name in zip(numeric, columns, strict=True)]
        titles = [printable(name.replace("_", " ")) for name in columns]
        widths = _widths(titles, cells, kept, self._stdout.width)
        if cells and _is_cramped(cells, widths, self._stdout.width):
            self._records(title, titles, cells)
            self._note_cut(given, len(rows))
            return
        table = Table(title=printable(title) or None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for heading, width, number in zip(titles, widths, numeric, strict=True):
            table.add_column(heading, width=width, justify="right" if number else "left", overflow="fold")
        for row_cells in cells:
            table.add_row(*row_cells)
        table.width = sum(widths) + GAP * len(widths) + 1
        self._stdout.print(table, crop=False)
        self._note_cut(given, len(rows))

    def _note_cut(self, given: int, shown: int) -> None:
        """Print how many rows of a table are shown, if some are not."""
        if given > shown:
            self._stdout.print(f"{shown:,} of {given:,} rows are shown: --json prints all\n", soft_wrap=True)

    def _records(self, title: str, titles: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        """Print each row of a wide table as lines of name and value, without empty values."""
        longest = max(map(len, titles))
        lines = [printable(title)] if title else []
        for row in cells:
            lines += ["", *(f"{name:{longest}}  {cell}" for name, cell in zip(titles, row, strict=True) if cell)]
        self._stdout.print("\n".join([*lines, ""]), soft_wrap=True)

    def details(self, title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print a table of details, unless the output is brief."""
        if not self.brief:
            self.table(title, rows, columns)

    def text(self, lines: Iterable[str]) -> None:
        """Print lines, with newlines inside them escaped."""
        self._stdout.print("\n".join(map(printable, lines)), soft_wrap=True)

    def error(self, message: str, hint: str, exit_code: int) -> None:
        """Print an error and how to remedy it."""
        if self.as_json:
            self._log.error(message, hint=hint, exit_code=exit_code)
            return
        self._stderr.print(printable_lines(f"error: {message}"), soft_wrap=True)
        if hint:
            self._stderr.print(printable_lines(f"  what to do: {hint}"), soft_wrap=True)

    def _write_json(self, document: Mapping[str, object]) -> None:
        """Write a JSON object as one line to stdout."""
        sys.stdout.write(json.dumps(document, default=str) + "\n")


class _Logged(logging.Handler):
    """Log handler that passes the library's messages to `Output`."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self.out = out

    def emit(self, record: logging.LogRecord) -> None:
        show = self.out.warn if record.levelno >= logging.WARNING else self.out.progress
        try:
            show(record.getMessage())
        except (ValueError, OSError):  # stderr is closed: the command continues
            self.handleError(record)


def _printable_event(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape unprintable characters in the texts of a log event."""
    return {name: printable_lines(value) if isinstance(value, str) else value for name, value in event.items()}


def _widths(titles: Sequence[str], cells: Sequence[Sequence[str]], kept: Sequence[bool], room: int) -> list[int]:
    """Return the widths of a table's columns, in characters.

    If the table is too wide, headings shrink first, then texts. Columns that are kept do not shrink.

    Parameters
    ----------
    titles : sequence of str
    cells : sequence of sequences of str
        Rows of the table.
    kept : sequence of bool
        For each column, whether its values keep their full width.
    room : int
        Width of the terminal.
    """
    longest = [max((len(row[i]) for row in cells), default=0) for i in range(len(titles))]
    words = [max(map(len, title.split()), default=0) for title in titles]
    room -= GAP * len(titles) + 1
    for heads in ([len(title) for title in titles], words):
        widths = [max(*both) for both in zip(longest, heads, strict=True)]
        if sum(widths) <= room:
            return widths
    texts = max(1, kept.count(False))
    for heads in (words, [min(word, LEAST_HEADING) for word in words]):
        fixed = [max(most, head) for most, head, keep in zip(longest, heads, kept, strict=True) if keep]
        share = (room - sum(fixed)) // texts
        if share >= LEAST_TEXT:
            break
    share = max(share, LEAST_TEXT)
    of_all = zip(longest, heads, kept, strict=True)
    return [max(head, most if keep else min(most, share)) for most, head, keep in of_all]


def _is_cramped(cells: Sequence[Sequence[str]], widths: Sequence[int], room: int) -> bool:
    """Whether a table is too wide, because its columns do not fit, or because its rows would take many lines."""
    if sum(widths) + GAP * len(widths) + 1 > room:
        return True
    lines = [max(-(-len(cell) // width) for cell, width in zip(row, widths, strict=True) if width) for row in cells]
    return sum(lines) > MANY_LINES * len(lines)


def _clock_text(seconds: float) -> str:
    """Format a duration as minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _progress_text(work: WorkDone, speed: float | None) -> str:
    """Format the work done and the rate."""
    if not work.total:
        return work.unit
    rate = f", {speed:.1f} a second" if speed else ""
    return f"{work.done:,.0f} of {work.total:,.0f} {work.unit}{rate}"


def _table_cell(value: object) -> str:
    """Format a value for a table cell."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 (no exponents)
    return printable(str(value))
