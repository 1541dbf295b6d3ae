"""Print results on the terminal, and write them as a page."""

import os
import platform
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Contestant

VERSIONS = ("pyspark", "delta-spark", "numba", "numpy", "pyarrow", "pandas", "duckdb")


@dataclass
class Section:
    """A table, what it shows in ratios, and what one has to know to read it."""

    title: str
    note: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    ratios: Sequence[tuple[str, float]] = field(default_factory=list)


def rate(contestant: Contestant, rows: int) -> list[str]:
    """Millions of rows a second: best and median round."""
    return [f"{rows / seconds / 1e6:.2f}" for seconds in (contestant.best, contestant.median)]


def show(section: Section) -> None:
    """Print a section as soon as it is there."""
    console = Console(width=max(120, Console().width))
    table = Table(title=section.title, title_justify="left")
    for heading in section.headings:
        table.add_column(heading, justify="left" if heading == section.headings[0] else "right")
    for row in section.rows:
        table.add_row(*row)
    for what, ratio in section.ratios:
        console.print(f"[bold]{ratio:.2f}[/bold]  {what}")
    console.print(table)


def write(page: Path, sections: Sequence[Section], command: str, data: str, took_s: float) -> None:
    """Make the page, one of docs, which keeps its title."""
    lines = [
        page.read_text(encoding="utf-8").partition("\n")[0] if page.exists() else "# Benchmark",
        "",
        _wrapped(
            f"Made by `{command}` on {datetime.now(tz=UTC):%Y-%m-%d} in {took_s / 60:.0f} minutes; do not edit. {data}"
        ),
        "",
        _wrapped(
            f"""Machine: {machine()}. Versions: {", ".join(f"{name} {version(name)}" for name in VERSIONS)}, Python
            {platform.python_version()}."""
        ),
        "",
        _wrapped(
            """All rows of a table come from one execution of the benchmark. Most tables were measured in rounds: each
            row once, then each row again. Unless the text says otherwise, a time is only shown if the program made the
            same ISR changes under `kafka-3.7` as a loop written by hand in C++. The changes are compared by number and
            checksum. Absolute times depend on this machine; ratios should hold on others."""
        ),
    ]
    if ratios := [f"| {what} | {ratio:.2f} |" for section in sections for what, ratio in section.ratios]:
        lines += ["", "## Ratios", "", "| what is compared | ratio of the best rounds |", "| --- | ---: |", *ratios]
    for section in sections:
        lines += [
            "",
            f"## {section.title}",
            "",
            _wrapped(section.note),
            "",
            f"| {' | '.join(section.headings)} |",
            f"| --- {'| ---: ' * (len(section.headings) - 1)}|",
            *(f"| {' | '.join(row)} |" for row in section.rows),
        ]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 130, break_long_words=False, break_on_hyphens=False)


def machine() -> str:
    """Processor, cores that this process may use, memory, and how busy it was."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(":")[2].strip() if names else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[2]
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB (load average over 15 minutes: {load:.1f})"
