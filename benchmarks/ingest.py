"""A broker's log from lines to tables: in the driver and in Spark, plain and compressed; and the scanner alone.

``python -m benchmarks.ingest PLACE FOLDER FOLDER ...`` ingests folders one after the other, in the ``driver`` or in
``spark``, and writes the CPU seconds of each to stdout as JSON. ``json`` and ``floor`` are what they are compared with.
"""

import gzip
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.long_log import BROKER, SAMPLE, write_long_log
from benchmarks.measure import Contestant, CpuOfTree, PeakMemory, interleaved
from benchmarks.page import Section, Wait, ratio
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
NAMES = {
    ("driver", ""): "in the driver, plain",
    ("driver", ".zst"): "in the driver, .zst",
    ("driver", ".gz"): "in the driver, .gz",
    ("spark", ""): "in Spark, plain",
    ("json", ""): "json.loads of each line, which does nothing with it",
    ("floor", ""): "Spark that passes lines to Python and back, and does nothing with them",
}
"""Names of the measurements, by place and compression."""
PACKED = {".gz": "gzip", ".zst": "zstd"}


def of_a_long_log(few: int, many: int, folder: Path, rounds: int) -> Section:
    """Compare places and kinds of compression; each is a process, which ingests both logs in turn."""
    shutil.rmtree(folder, ignore_errors=True)
    plain = [folder / "few", folder / "many"]
    lines = [write_long_log(logs, count) for logs, count in zip(plain, (few, many), strict=True)]
    size = sum(path.stat().st_size for path in plain[-1].rglob("request.log*")) / lines[-1]
    more_lines = lines[1] - lines[0]
    rows: list[list[str]] = []
    further: dict[tuple[str, str], float] = {}
    for (place, suffix), name in NAMES.items():
        given = [_packed(logs, suffix) if suffix else logs for logs in plain]
        with PeakMemory() as peak:
            told = _in_a_process(place, [given[0], given[0], *given * rounds])[2:]
        best = [{part: min(one[part] for one in told[which::2]) for part in ("ingest", "packing")} for which in (0, 1)]
        ingest_us, packing_us = ((best[1][part] - best[0][part]) / more_lines * 1e6 for part in ("ingest", "packing"))
        packs = place in PLACES
        further[place, suffix] = ingest_us + packing_us * packs
        hour_min = ingest_us * HOUR_BYTES / size / 60 / 1e6
        figures = [f"{one['ingest']:.1f}" for one in best] + [f"{ingest_us:.1f}", f"{packing_us:.1f}" if packs else ""]
        rows.append([name, *figures, f"{hour_min:.1f}", f"{peak.worker:.0f}", f"{peak.jvm:.0f}"])
    shutil.rmtree(folder)
    return Section(
        "Ingest of a broker's request log",
        f"""Warm ingests of {lines[0]:,} and {lines[1]:,} JSON lines of {size / 1000:.1f} kB, as one broker of three
        writes them, {rounds} times in turn in one process; the best of each are shown. CPU time is that of all
        processes. *A further line* is computed from the difference between both logs, and *10 GB of log text* from that
        time; a busy broker writes as much in an hour. By default, the driver ingests up to two gigabytes of text
        without Spark. *Packing* makes the segments that a replay reads; its figure comes from the difference as
        well.""",
        (
            "how the log is ingested",
            f"{lines[0]:,} lines (CPU s)",
            f"{lines[1]:,} lines (CPU s)",
            "time per further line (CPU µs)",
            "packing, per further line (CPU µs)",
            "10 GB of log text (CPU min)",
            "worker's peak memory (MiB)",
            "peak memory of the JVM or driver (MiB)",
        ),
        rows,
        waits=[
            Wait(
                f"a further request log line {where}, from file to segments",
                f"{further[place, '']:.1f} CPU µs",
                NAMES[peer, ""],
                f"{further[peer, '']:.1f} CPU µs",
                ratio(further[place, ""], further[peer, ""]),
                target,
            )
            for where, place, peer, target in (
                ("in the driver", "driver", "json", "12 CPU µs"),
                ("in Spark", "spark", "floor", "18 CPU µs"),
            )
        ],
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
    work = {"json": _json_of_lines, "floor": _spark_floor}.get(place) or _ingest(place, Path(folders[0]).parent)
    cpu = CpuOfTree()
    for folder in map(Path, folders):
        for path in folder.rglob("*"):
            path.touch()  # what a look at a file found is remembered as long as the file is the same
        begun = cpu()
        pack = work(folder)
        ingested = cpu()
        pack()
        sys.stdout.write(json.dumps({"ingest": ingested - begun, "packing": cpu() - ingested}) + "\n")


def _ingest(place: str, where: Path) -> Callable[[Path], Callable[[], object]]:
    """Return a function that ingests a folder into a new lake, and returns one that packs the lake's days."""
    sizes.LOG_BYTES = PLACES[place]
    spark = start_session(SparkSettings())
    lake = where / f"lake-{place}"

    def work(folder: Path) -> Callable[[], object]:
        shutil.rmtree(lake, ignore_errors=True)
        into = Lake(spark, str(lake), "bench")
        broker_logs.ingest_broker_logs(into, folder, "c")
        return lambda: pack_stale_days(into)

    return work


def _json_of_lines(folder: Path) -> Callable[[], object]:
    for path in (folder / BROKER).glob("request.log*"):
        with path.open() as log:
            for line in log:
                json.loads(line[line.index("{") : line.rindex("}") + 1])
    return lambda: None


def _spark_floor(folder: Path) -> Callable[[], object]:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    lines = start_session(SparkSettings()).read.text(str(folder / BROKER / "request.log*"))
    lines.mapInArrow(same, lines.schema).write.format("noop").mode("overwrite").save()
    return lambda: None


if __name__ == "__main__":
    _main(*sys.argv[1:])
