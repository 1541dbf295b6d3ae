"""Print results on the terminal, and write them as a page."""

import math
import os
import platform
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Contestant

VERSIONS = ("pyspark", "delta-spark", "numba", "numpy", "pyarrow", "pandas", "duckdb")


class Wait(NamedTuple):
    """Work that a user waits for, what it is compared with in the same run, and the target, if there is one."""

    work: str
    figure: str
    peer: str
    of_peer: str
    ratio: float
    target: str = ""


@dataclass
class Section:
    """A table, what it shows in ratios and of what users wait for, and what one has to know to read it."""

    title: str
    note: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    ratios: Sequence[tuple[str, float]] = field(default_factory=list)
    waits: Sequence[Wait] = field(default_factory=list)


def rate(contestant: Contestant, rows: int) -> list[str]:
    """Millions of rows a second: best and median round."""
    return [f"{rows / seconds / 1e6:.2f}" for seconds in (contestant.best, contestant.median)]


def ratio(figure: float, peer: float) -> float:
    """Quotient of two differences of times. If the logs are too small, they have no difference: not a number."""
    return figure / peer if peer else math.nan


def show(section: Section) -> None:
    """Print a section as soon as it is there."""
    console = Console(width=max(120, Console().width))
    table = Table(title=section.title, title_justify="left")
    for heading in section.headings:
        table.add_column(heading, justify="left" if heading == section.headings[0] else "right")
    for row in section.rows:
        table.add_row(*row)
    for wait in section.waits:
        console.print(f"[bold]{wait.figure}[/bold]  {wait.work}; {wait.peer}: {wait.of_peer}; target: {wait.target}")
    for what, figure in section.ratios:
        console.print(f"[bold]{figure:.2f}[/bold]  {what}")
    console.print(table)


def write(page: Path, sections: Sequence[Section], command: str, data: str, load: float, took_s: float) -> None:
    """Make the page of these sections. ``load`` is the load average when the measurements began."""
    made = f"on {datetime.now(tz=UTC):%Y-%m-%d} in {took_s / 60:.0f} minutes, at commit {_commit()}"
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    lines = [
        "# Benchmarks",
        "",
        _wrapped(f"Made by `{command}` {made}; do not edit."),
        "",
        _wrapped(
            f"""Machine: {machine()}; the load average over 15 minutes was {load:.1f} when the run began. Versions:
            {versions}, Python {platform.python_version()}."""
        ),
        "",
        _wrapped(data),
        "",
        _wrapped(
            """The rows of a table were measured in rounds: each row once, then each row again. Unless the text says
            otherwise, a time of a replay is only shown if the program made the same ISR changes under `kafka-3.7` as a
            loop written by hand in C++. The changes are compared by number and checksum. Absolute times depend on this
            machine; ratios should hold on others."""
        ),
    ]
    waits = [wait for section in sections for wait in section.waits]
    if waits:
        lines += [
            "",
            "## What users wait for",
            "",
            _wrapped(
                """CPU time is that of all processes (driver, JVM and workers). *Ratio* is the figure divided by that
                of what it is compared with. Targets without a unit are for the ratio."""
            ),
            "",
            *_table(
                ("work", "figure", "compared with", "figure of that", "ratio", "target"),
                [[each.work, each.figure, each.peer, each.of_peer, f"{each.ratio:.2f}", each.target] for each in waits],
            ),
        ]
    for section in sections:
        lines += ["", f"## {section.title}", "", _wrapped(section.note), "", *_table(section.headings, section.rows)]
        if section.ratios:
            ratios = [[what, f"{figure:.2f}"] for what, figure in section.ratios]
            lines += ["", *_table(("what is compared", "ratio of the best rounds"), ratios)]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(headings)} |",
        f"| --- {'| ---: ' * (len(headings) - 1)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _commit() -> str:
    """Short hash of the checked-out commit; "-dirty" is added if files were changed."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 130, break_long_words=False, break_on_hyphens=False)


def machine() -> str:
    """Processor, cores that this process may use, and memory."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(":")[2].strip() if names else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB"
