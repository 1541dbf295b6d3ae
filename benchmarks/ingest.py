"""A broker's log from lines to tables, in a process of its own."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.long_log import write_long_log
from benchmarks.measure import PeakMemory
from benchmarks.page import Section

HEADINGS = ("lines", "GB", "s", "lines a second", "worker, MiB", "JVM, MiB")


def of_a_long_log(lines: int, folder: Path) -> Section:
    """Once: what it takes is told in minutes."""
    shutil.rmtree(folder, ignore_errors=True)
    logs, lake = folder / "logs", folder / "lake"
    written = write_long_log(logs, lines)
    size = sum(path.stat().st_size for path in logs.rglob("request.log*"))
    command = [sys.executable, "-m", "pipelines.cli", "ingest", "kafka-logs", str(logs), "--lake", str(lake), "--quiet"]
    begun = time.perf_counter()
    with PeakMemory() as peak:
        subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - begun
    shutil.rmtree(folder)
    figures = [f"{written:,}", f"{size / 1e9:.1f}", f"{seconds:.0f}", f"{written / seconds:,.0f}"]
    return Section(
        "Ingest of a broker's request log",
        """`isr-batch ingest kafka-logs DIR --lake LAKE` on JSON lines of 1.6 kB as a broker writes them, one broker of
        three, plain files; from the start of the process until rows and packed segments are written.""",
        HEADINGS,
        [[*figures, f"{peak.worker:.0f}", f"{peak.jvm:.0f}"]],
    )
