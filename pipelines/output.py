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

# A file or a pipe has no width. Unless COLUMNS is set, stdout is given this one, so that tables are not wrapped.
PLAIN_WIDTH = 200
GAP = 2
"""Number of blanks between two columns of a printed table."""
LEAST_TEXT, LEAST_HEADING = 12, 6
"""Minimum width in characters of a column with text, and of a heading, if a table is too wide for the terminal.
"""
MANY_LINES = 4
"""If the rows of a table would take more than this many lines on average, each row is printed as a list of names and
values instead."""
MOST_SHOWN = 1000
"""Maximum number of rows of a table that are printed. Printing a hundred thousand would take minutes, and be useless on
a terminal."""
POLLS = 0.5
"""Interval in seconds at which a progress bar is updated."""
FIRST_LINES, LINES = (5.0, 5.0, 10.0, 20.0), 60.0
"""Intervals in seconds between the first lines of progress, and between all later ones, if stderr is not a terminal."""


class Output:
    """Prints a command's results to stdout, and its progress and errors to stderr.

    Parameters
    ----------
    quiet : bool
        Whether to omit progress.
    as_json : bool
        Whether to print everything as JSON lines, for programs.
    brief : bool
        Whether to omit the tables that `details` prints. Has no effect with ``as_json``.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False, brief: bool = False) -> None:
        self.quiet = quiet
        self.brief = brief and not as_json
        self.as_json = as_json
        self.watched: Callable[[], tuple[tuple[int, ...], int, int]] | None = None
        """Function that returns Spark's running stages, their number of completed tasks, and of all tasks. It is called
        repeatedly while a step runs."""
        self._stdout = Console(
            width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH,
            markup=False, highlight=False, emoji=False,
        )  # fmt: skip
        self._stderr = Console(stderr=True, markup=False, highlight=False, emoji=False)

    @cached_property
    def _log(self) -> "FilteringBoundLogger":
        """Logger that prints to stderr, as JSON lines or as text."""
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
        """Show progress while the block runs, and its duration at the end. Nothing is shown if the output is quiet.

        Yields
        ------
        dict of str to int
            Empty at first. Numbers that the block stores here are printed at the end, with their names.
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
        """Show a progress bar while the block runs, with the work done, the total, the rate, and the time left.

        The bar restarts when the step begins a new piece of work, such as another Spark stage.
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
                """Update the bar with the work done so far."""
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
        """Print lines of progress while the block runs, at the intervals `FIRST_LINES` and `LINES`.

        The rate is an average since the current piece of work began.
        """
        started = time.monotonic()
        begun: dict[object, tuple[float, float]] = {}

        def show(found: WorkDone | None) -> None:
            """Print a line with the elapsed time, the work done so far, the rate, and the time left."""
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
        """While the block runs, call ``show`` with the current progress in a thread, at the intervals ``waits`` (s)."""
        done = threading.Event()

        def poll() -> None:
            """Call ``show`` repeatedly until the block ends."""
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
        """Return how many tasks of Spark's running stages are completed; None if no stage runs."""
        stages, done, total = self.watched() if self.watched else ((), 0, 0)
        return WorkDone(stages, done, total, "tasks") if stages else None

    def show_logged(self) -> None:
        """From now on, print what `isr_batch` logs: warnings as warnings, all other messages as progress."""
        log = logging.getLogger("isr_batch")
        log.setLevel(logging.INFO)
        log.handlers = [_Logged(self)]

    def warn(self, text: str) -> None:
        """Print a warning to stderr, even if the output is quiet."""
        if self.as_json or not self._stderr.is_terminal:
            self._log.warning(text)
        else:
            self._stderr.print(printable(f"warning: {text}"), soft_wrap=True)

    def progress(self, text: str) -> None:
        """Print a line of progress to stderr, unless the output is quiet."""
        if self.quiet:
            return
        if self._stderr.is_terminal and not self.as_json:
            self._stderr.print(printable(text))
        else:
            self._log.info(text)

    def say(self, **facts: object) -> None:
        """Print results as lines "name: value" or, with JSON output, as one JSON object."""
        if self.as_json:
            self._write_json(facts)
        else:
            for name, value in facts.items():
                self._stdout.print(printable_lines(f"{name.replace('_', ' ')}: {value}"), soft_wrap=True)

    def table(self, title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print up to `MOST_SHOWN` rows of a table or, with JSON output, all rows as JSON lines.

        Parameters
        ----------
        title : str
            Printed above the table; may be empty.
        rows : sequence of dict
        columns : sequence of str
            Keys of the rows to print, in this order.
        """
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
        """Print a note if only ``shown`` of the ``given`` rows of a table are printed."""
        if given > shown:
            self._stdout.print(f"{shown:,} of {given:,} rows are shown: --json prints all\n", soft_wrap=True)

    def _records(self, title: str, titles: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
        """Print each row of a table (``cells``) as lines of title and value. Empty values are left out."""
        longest = max(map(len, titles))
        lines = [printable(title)] if title else []
        for row in cells:
            lines += ["", *(f"{name:{longest}}  {cell}" for name, cell in zip(titles, row, strict=True) if cell)]
        self._stdout.print("\n".join([*lines, ""]), soft_wrap=True)

    def details(self, title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print a table as `table` does, unless this is an ``Output(brief=True)``."""
        if not self.brief:
            self.table(title, rows, columns)

    def text(self, lines: Iterable[str]) -> None:
        """Print lines to stdout. Newlines and unprintable characters inside a line are escaped."""
        self._stdout.print("\n".join(map(printable, lines)), soft_wrap=True)

    def error(self, message: str, hint: str, exit_code: int) -> None:
        """Print an error to stderr, and a hint that says what to do. The command does not end here.

        ``exit_code`` is the code with which the command will end, for the JSON log.
        """
        if self.as_json:
            self._log.error(message, hint=hint, exit_code=exit_code)
            return
        self._stderr.print(printable_lines(f"error: {message}"), soft_wrap=True)
        if hint:
            self._stderr.print(printable_lines(f"  what to do: {hint}"), soft_wrap=True)

    def _write_json(self, document: Mapping[str, object]) -> None:
        sys.stdout.write(json.dumps(document, default=str) + "\n")


class _Logged(logging.Handler):
    """Log handler that prints messages with an `Output`, see `Output.show_logged`."""

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
    """Escape unprintable characters in all strings of a log event, as a processor of structlog."""
    return {name: printable_lines(value) if isinstance(value, str) else value for name, value in event.items()}


def _widths(titles: Sequence[str], cells: Sequence[Sequence[str]], kept: Sequence[bool], room: int) -> list[int]:
    """Choose the widths of a table's columns, in characters.

    If the table is wider than the terminal, headings are wrapped first, then texts.

    Parameters
    ----------
    titles : sequence of str
        Headings of the columns.
    cells : sequence of sequences of str
        Rows of the table.
    kept : sequence of bool
        For each column, whether its values must not be wrapped.
    room : int
        Width of the terminal, in characters.
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
    """Whether a table is wider than the terminal (``room``), or its rows take over `MANY_LINES` lines on average."""
    if sum(widths) + GAP * len(widths) + 1 > room:
        return True
    lines = [max(-(-len(cell) // width) for cell, width in zip(row, widths, strict=True) if width) for row in cells]
    return sum(lines) > MANY_LINES * len(lines)


def _clock_text(seconds: float) -> str:
    """Format a duration as minutes and seconds, such as "2:05"."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _progress_text(work: WorkDone, speed: float | None) -> str:
    """Format the work done, the total and the rate (``speed``), such as "5 of 20 tasks, 1.2 a second"."""
    if not work.total:
        return work.unit
    rate = f", {speed:.1f} a second" if speed else ""
    return f"{work.done:,.0f} of {work.total:,.0f} {work.unit}{rate}"


def _table_cell(value: object) -> str:
    """Format a value for a table cell. None is empty, and a float has four significant digits but no exponent."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"  # noqa: PLR2004 (no exponents)
    return printable(str(value))
