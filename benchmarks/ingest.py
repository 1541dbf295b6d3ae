"""A broker's log from lines to tables: in the driver and in Spark, plain and compressed; and the scanner alone.

``python -m benchmarks.ingest PLACE FOLDER FOLDER ...`` ingests folders one after the other, in the ``driver`` or in
``spark``, and writes lines and CPU seconds of each to stdout as JSON.
"""

import gzip
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.long_log import BROKER, SAMPLE, write_long_log
from benchmarks.measure import Contestant, CpuOfTree, PeakMemory, interleaved
from benchmarks.page import Section
from isr_batch.ingest import broker_logs
from isr_batch.ingest.engine.kernels import load_kernels
from isr_batch.ingest.folder import lines
from isr_batch.ingest.requests import request_log
from isr_batch.lake import sizes
from isr_batch.lake.lake import Lake
from isr_batch.replay.packing import pack_stale_days
from isr_batch.session import start_session
from isr_batch.settings import SparkSettings
from udfs.request_log import cut, json_line
from udfs.request_log import requests as scan

HOUR_BYTES = 10_000_000_000
PLACES = {"driver": 1 << 62, "spark": -1}
"""Log text in bytes up to which the driver does the work."""
PACKED = {".gz": "gzip", ".zst": "zstd"}


def of_a_long_log(count: int, folder: Path) -> Section:
    """Compare places and kinds of compression, once each: one takes minutes."""
    shutil.rmtree(folder, ignore_errors=True)
    plain = [folder / "warm", folder / "half", folder / "whole"]
    for logs, part in zip(plain, (20, 2, 1), strict=True):
        write_long_log(logs, count // part)
    size = sum(path.stat().st_size for path in plain[-1].rglob("request.log*"))
    rows: list[list[str]] = []
    further: dict[str, float] = {}
    for place, suffix in (("driver", ""), ("driver", ".zst"), ("driver", ".gz"), ("spark", "")):
        given = [_packed(logs, suffix) if suffix else logs for logs in plain]
        with PeakMemory() as peak:
            _, half, whole = _in_a_process(place, [given[0], given[1], *given[1:]])[-3:]
        name = f"{'in the driver' if place == 'driver' else 'in Spark'}, {suffix or 'plain'}"
        more_lines = whole["lines"] - half["lines"]
        further[name] = (whole["cpu_s"] - half["cpu_s"]) / more_lines
        packing_us = (whole["packing_s"] - half["packing_s"]) / more_lines * 1e6
        hour_min = further[name] * HOUR_BYTES / (size / whole["lines"]) / 60
        figures = [f"{whole['lines']:,}", f"{half['cpu_s']:.1f}", f"{whole['cpu_s']:.1f}"]
        more = [f"{further[name] * 1e6:.1f}", f"{packing_us:.1f}", f"{hour_min:.1f}"]
        rows.append([name, *figures, *more, f"{peak.worker:.0f}", f"{peak.jvm:.0f}"])
    shutil.rmtree(folder)
    base = further["in the driver, plain"]
    return Section(
        "Ingest of a broker's request log",
        f"""A warm ingest of JSON lines of {size / whole["lines"] / 1000:.1f} kB, as one broker of three writes them.
        CPU time is that of all processes. *A further line* is computed from the difference between half of the lines
        and all. *10 GB of log text* is computed from the time of a further line; a busy broker writes as much in an
        hour. The driver ingests up to two gigabytes of text without Spark; in this table, the driver and Spark each
        ingest both sizes. *Packing* makes the
        segments that a replay reads; its figure comes from the difference as well.""",
        (
            "how the log is ingested",
            "lines",
            "half of the lines (CPU s)",
            "all lines (CPU s)",
            "time per further line (CPU µs)",
            "packing, per further line (CPU µs)",
            "10 GB of log text (CPU min)",
            "worker's peak memory (MiB)",
            "peak memory of the JVM or driver (MiB)",
        ),
        rows,
        [
            (f"ingest of a further line {name}, relative to plain text in the driver", each / base)
            for name, each in further.items()
        ][1:],
    )


def of_the_scanner(rounds: int) -> Section:
    """Lines in memory, one thread."""
    with gzip.open(SAMPLE / BROKER / "request.log.gz", "rb") as log:
        text = log.read()
    (block,) = list(lines.lines_of_file(str(SAMPLE / BROKER / "request.log.gz"), "", 1, block_bytes=len(text)))
    count = block.num_rows
    load_kernels()
    contestants = [
        Contestant("it is cut from the text and scanned for the fields that an ingest needs", _scanned(block)),
        Contestant("it is cut, scanned and made into Arrow rows", lambda: request_log.parse_requests(block)),
    ]
    if importlib.util.find_spec("simdjson"):
        contestants.append(Contestant("pysimdjson, parsed and no value taken", _parsed(text)))
    interleaved(contestants, max(rounds, 3), clock=time.thread_time)
    bare = contestants[-1].best if contestants[-1].name.startswith("pysimdjson") else None
    return Section(
        "Lines of a request log, in memory",
        f"""{count:,} lines of {len(text) / count / 1000:.1f} kB, one thread, its CPU time. pysimdjson is measured where
        it is installed; the product does not use it.""",
        ("what is done with a line", "time per line, best round (CPU µs)", "time per line, median round (CPU µs)"),
        [[c.name, *(f"{seconds / count * 1e6:.2f}" for seconds in (c.best, c.median))] for c in contestants],
        [(f"{c.name}, by pysimdjson's bare parse", c.best / bare) for c in contestants[:-1]] if bare else [],
    )


def _scanned(block: pa.RecordBatch) -> Callable[[], object]:
    values = block.column("value")
    text = np.frombuffer(values.buffers()[2], np.uint8)
    edges = np.frombuffer(values.buffers()[1], np.int32)[: len(values) + 1]

    def run() -> object:
        found = cut.room_for_cut_lines(len(values))
        cut.cut_lines(text, edges, found)
        begins = np.where(found.line_class == cut.JSON, found.begin, -1)
        ends = edges[1:].astype(np.int64)
        read = scan.room_for_requests(len(values), len(text))
        room = json_line.room_for_json_line(int((ends - begins).max()))
        is_text = np.zeros(len(values), np.bool_)
        scan.read_requests_into_columns(text, begins, ends, is_text, found.stamp_us, room, read)
        return read

    return run


def _parsed(text: bytes) -> Callable[[], object]:
    parser: Any = importlib.import_module("simdjson").Parser()
    bodies = [line[line.index(b"{") : line.rindex(b"}") + 1] for line in text.splitlines()]

    def run() -> None:
        for body in bodies:
            parser.parse(body)

    return run


def _packed(logs: Path, suffix: str) -> Path:
    """Copy a folder with its request logs compressed."""
    to = logs.with_name(f"{logs.name}{suffix}")
    shutil.copytree(logs, to, ignore=shutil.ignore_patterns("request.log*"))
    for path in (logs / BROKER).glob("request.log*"):
        out = str(to / BROKER / f"{path.name}{suffix}")
        with path.open("rb") as text, pa.output_stream(out, compression=PACKED[suffix]) as packed:
            shutil.copyfileobj(text, packed, 1 << 20)
    return to


def _in_a_process(place: str, folders: list[Path]) -> list[dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.ingest", place, *map(str, folders)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def _main(place: str, *folders: str) -> None:
    sizes.LOG_BYTES = PLACES[place]
    spark = start_session(SparkSettings())
    cpu = CpuOfTree()
    lake = Path(folders[0]).parent / f"lake-{place}"
    for folder in folders:
        shutil.rmtree(lake, ignore_errors=True)
        for path in Path(folder).rglob("*"):
            path.touch()  # what a look at a file found is remembered as long as the file is the same
        begun = cpu()
        into = Lake(spark, str(lake), "bench")
        done = broker_logs.ingest_broker_logs(into, Path(folder), "c")
        ingested = cpu()
        pack_stale_days(into)
        told = {"lines": done.counts.rows_in, "cpu_s": ingested - begun, "packing_s": cpu() - ingested}
        sys.stdout.write(json.dumps(told) + "\n")
    shutil.rmtree(lake)
    spark.stop()


if __name__ == "__main__":
    _main(*sys.argv[1:])
