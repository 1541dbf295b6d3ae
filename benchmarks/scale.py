"""Group g: very many rows in one go, without timelines, and where the time goes.

``python -m benchmarks.scale LAKE RULES`` replays a lake in a new session, and prints JSON.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import isr_batch.replay.replay as of_replay
from benchmarks.arrow_log import few_rows_of_each
from benchmarks.log import CLUSTER, Plan, append_rates, replicas_of, rows_of
from benchmarks.measure import CpuOfTree, PeakMemory
from benchmarks.page import Section
from benchmarks.ways import runs_of
from isr_batch.lake import sizes
from isr_batch.lake.arrow_sql import ArrowSql
from isr_batch.lake.delta_files.stores import Store
from isr_batch.lake.delta_files.write import with_files_written
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.inputs import FETCH_SEGMENTS
from isr_batch.replay.kernel_cache import keep_packing_compiled
from isr_batch.session import start_session
from isr_batch.settings import SparkSettings
from isr_batch.simulation.generate_scenario import write_generated_input
from udfs.batches.event_chunks import Events
from udfs.batches.results import SET_COLUMNS
from udfs.batches.segments import segments_of_events
from udfs.records import Rows
from udfs.rules import ALL_RULES, REGISTRY
from udfs.rules.base import always_acts

PROCESSES = 2
ROWS_AT_A_TIME = 1 << 20
INSTANTS = {"first_time": "first_us", "last_time": "last_us"}
CASES = {
    "kafka-3.7": ["kafka-3.7"],
    "rules that can skip quiet stretches": [
        rule for rule in ALL_RULES if REGISTRY[rule].acts_in_quiet is not always_acts
    ],
    "all rules": ["all"],
}


def measure(plan: Plan, folder: Path) -> Section:
    """Replay the log, packed already, under one rule, those that may pass over quiet stretches, and all."""
    rows = write_packed_lake(plan, folder)
    found = {name: _in_a_process(folder, rules) for name, rules in CASES.items()}
    return Section(
        f"{rows:,} rows in one go",
        """`isr-batch replay --timelines none` replayed the log by Spark on two cores, from packed segments, in a new
        session. CPU seconds are those of Spark's Python workers (which read segments, replay them and write results),
        of the JVM (which sorts segment locations) and of the driver. Peak memory is the resident memory of one
        worker, and of the JVM. ISR changes were not compared in this measurement.""",
        (
            "rules",
            "wall time (s)",
            "M rows/s",
            "M rows/s per core",
            "workers (CPU s)",
            "JVM (CPU s)",
            "driver (CPU s)",
            "worker's peak memory (MiB)",
            "JVM's peak memory (MiB)",
        ),
        [_row(name, rows, told) for name, told in found.items()],
    )


def _row(name: str, rows: int, told: Mapping[str, Any]) -> list[str]:
    cpu = told["cpu"]
    rates = (rows / told["seconds"] / 1e6, rows / sum(cpu.values()) / 1e6)
    parts = [f"{cpu[part]:.0f}" for part in ("workers", "jvm", "driver")]
    memory = [f"{told[which]:.0f}" for which in ("worker", "jvm")]
    return [name, f"{told['seconds']:.0f}", *(f"{rate:.2f}" for rate in rates), *parts, *memory]


def _in_a_process(lake: Path, rules: Sequence[str]) -> Mapping[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scale", str(lake), ",".join(rules)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]


def main(lake: str, rules: str) -> dict[str, Any]:
    """Replay, and print the time and memory."""
    sizes.REPLAYED_EVENTS = -1
    vars(of_replay)["pack_stale_days"] = lambda _: 0  # the lake has nothing to pack
    spark = start_session(SparkSettings(master="local[2]"))
    runs = runs_of(*rules.split(","))
    with PeakMemory() as peak:
        tree, begun = CpuOfTree(), time.perf_counter()
        before = tree.by_kind()
        of_replay.replay(Lake(spark, lake), runs, timelines="none")
        seconds, after = time.perf_counter() - begun, tree.by_kind()
    spark.stop()
    cpu = {part: after[part] - before[part] for part in after}
    return {"seconds": seconds, "cpu": cpu, "worker": peak.worker, "jvm": peak.jvm}


def write_packed_lake(plan: Plan, folder: Path) -> int:
    """Write the terms of the log and its segments, and of fetches and appends only a few; returns the rows packed."""
    shutil.rmtree(folder, ignore_errors=True)
    write_generated_input(Lake(no_spark, str(folder)), CLUSTER, few_rows_of_each(plan))
    table = folder / FETCH_SEGMENTS.name
    with get_context("spawn").Pool(PROCESSES) as pool:
        counts = pool.starmap(_write_segments, [(plan, share, table) for share in range(PROCESSES)])
    day = deltalake.schema.PrimitiveType("date")
    deltalake.convert_to_deltalake(
        str(table), partition_by=deltalake.Schema([deltalake.Field("event_date", day)]), partition_strategy="hive"
    )
    return sum(counts)


def no_spark() -> SparkSession:
    """Stand for Spark where a lake needs none."""
    raise NotImplementedError


def _write_segments(plan: Plan, share: int, table: Path) -> int:
    keep_packing_compiled()
    rates = append_rates(plan)
    counts = []

    def batches() -> Iterator[pa.RecordBatch]:
        for partition in range(share, plan.partitions, PROCESSES):
            rows = rows_of(plan, partition, rates[partition])
            counts.append(len(rows.time_us))
            yield from map(_of_contract, segments_of_partition(partition, rows))

    list(with_files_written(FETCH_SEGMENTS, Store(str(table)), "true", ArrowSql, batches()))
    return sum(counts)


def _of_contract(segments: pa.RecordBatch) -> pa.RecordBatch:
    columns = {
        "event_date": segments.column("day").cast(pa.date32()),
        "packed_from": pa.repeat("benchmark", segments.num_rows),
        **{name: segments.column(us).cast(pa.timestamp("us", "UTC")) for name, us in INSTANTS.items()},
    }
    names = [column.name for column in FETCH_SEGMENTS.columns]
    return pa.RecordBatch.from_pydict(
        {name: columns[name] if name in columns else segments.column(name) for name in names}
    )


def segments_of_partition(partition: int, rows: Rows) -> Iterator[pa.RecordBatch]:
    """Pack the rows of a partition into segments."""
    key = (CLUSTER, f"topic-{partition // 50}", partition, replicas_of(partition)[0])
    sets = pa.RecordBatch.from_arrays([pa.array([value]) for value in key], list(SET_COLUMNS))
    zeros = np.zeros(len(rows.time_us), np.int64)
    events = Events(sets, {"set": zeros, "leader_epoch": zeros, **rows._asdict()})
    for first in range(0, len(events), ROWS_AT_A_TIME):
        yield segments_of_events(events.part(first, min(first + ROWS_AT_A_TIME, len(events))))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])) + "\n")
