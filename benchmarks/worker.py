"""A worker of a replay in Spark: from packed segments to results and files of timelines, in this process."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import by_hand
from benchmarks.arrow_log import TERM
from benchmarks.kernel import changes_of, read_only
from benchmarks.log import START_OFFSET, START_US, Log, Plan, log_of, term_of
from benchmarks.measure import Contestant, checksum_of_table, interleaved
from benchmarks.page import Section, Wait
from benchmarks.scale import no_spark, segments_of_partition
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.timelines import TIMELINES
from isr_batch.replay.kernel_cache import keep_compiled
from isr_batch.replay.timeline_files import timelines_kept
from isr_batch.replay.timeline_tables import stores_of_timelines
from udfs.batches.replay import replay_batches
from udfs.batches.results import SCORED, SET_COLUMNS
from udfs.batches.rule_runs import RuleRun
from udfs.batches.segments import SEGMENT
from udfs.records import FETCH, TERM_STARTS, Rows
from udfs.rules import ALL_RULES, BASELINE

MOST_ROWS = 4_000_000


def measure(plan: Plan, rounds: int) -> Section:
    """Replay segments with and without timelines; the loop by hand has the rows unpacked and writes nothing."""
    rows = min(plan.rows, MOST_ROWS)
    log = read_only(log_of(Plan(rows, max(2, plan.partitions * rows // plan.rows), stalls_a_day=plan.stalls_a_day)))
    keep_compiled()
    expected, stream, number = by_hand.checksum(by_hand.replay(log)), list(_stream(log)), len(log.rows.time_us)
    lake = Path(tempfile.mkdtemp())
    sizes: dict[str, int] = {}

    def worked(name: str, runs: Sequence[RuleRun], *, timelines: bool) -> Contestant:
        def run() -> pa.Table:
            stores = stores_of_timelines(Lake(no_spark, str(lake))) if timelines else {}
            results = replay_batches(iter(stream), runs, SCORED, shared=list(stores))
            found = [changes_of(batch) for batch in timelines_kept(results, stores, START_US, "benchmark")]
            return pa.concat_tables(changes for changes in found if changes is not None)

        def check(changes: pa.Table) -> tuple[int, int]:
            files = [file for table in TIMELINES.values() for file in (lake / table.name).rglob("*.parquet")]
            sizes[name] = sum(file.stat().st_size for file in files)
            return checksum_of_table(changes)

        return Contestant(name, run, check, expected, tidy=lambda: shutil.rmtree(lake, ignore_errors=True))

    every, baseline = [RuleRun(rule) for rule in ALL_RULES], [RuleRun(BASELINE)]
    contestants = [
        Contestant("loop by hand in C++, kafka-3.7", lambda: by_hand.replay(log), by_hand.checksum, expected),
        worked("kafka-3.7, all timelines", baseline, timelines=True),
        worked(f"{len(every)} rules, no timelines", every, timelines=False),
        worked(f"{len(every)} rules, all timelines", every, timelines=True),
    ]
    for contestant in contestants[2:]:  # to warm up
        contestant.run()
    interleaved(contestants, rounds, time.process_time)
    hand, *_, timelines = contestants
    packed_bytes = sum(batch.nbytes for batch in stream) / number
    return Section(
        "A worker of a replay in Spark",
        f"""{number:,} rows of {len(log.partitions):,} partitions, as packed segments in memory, are unpacked and
        replayed in one process as a task of Spark does it; timelines go to files in a local folder. CPU time. The C++
        loop has the rows unpacked, replays one rule, and writes no files.""",
        ["replayed by", "time per row, best round (ns)", "timelines, bytes per row"],
        [
            [each.name, f"{1e9 * each.best / number:.0f}", f"{sizes.get(each.name, 0) / number:.1f}"]
            for each in contestants
        ],
        waits=[
            Wait(
                f"a worker, {len(every)} rules, all timelines, per event",
                f"{1e9 * timelines.best / number:.0f} ns",
                f"the C++ loop, run {len(every)} times, which reads no segments and writes no files",
                f"{1e9 * hand.best / number * len(every):.0f} ns",
                timelines.best / hand.best / len(every),
                "600 ns",
            ),
            Wait(
                f"files of all timelines of {len(every)} rules, per event",
                f"{sizes[timelines.name] / number:.1f} bytes",
                "the packed segments that a replay reads",
                f"{packed_bytes:.1f} bytes",
                sizes[timelines.name] / number / packed_bytes,
                "6 bytes (15 rules)",
            ),
        ],
    )


def _stream(log: Log) -> Iterator[pa.RecordBatch]:
    """Yield a batch per partition: its term, then its segments."""
    for partition, first, end in zip(log.partitions.tolist(), log.starts, log.starts[1:], strict=False):
        packed = segments_of_partition(partition, Rows(*(column[first:end] for column in log.rows)))
        segments = pa.Table.from_batches(list(packed)).combine_chunks().to_batches()[0]
        number = segments.num_rows
        columns: dict[str, Any] = {name: np.full(1 + number, -1) for name in Rows._fields}
        columns["time_us"] = np.append(START_US, np.asarray(segments["first_us"]))
        columns["kind"] = np.append(TERM_STARTS, np.full(number, FETCH))
        columns["offset"][0] = START_OFFSET
        of_set = {name: pa.repeat(segments[name][0], 1 + number) for name in SET_COLUMNS}
        term = pa.array([term_of(log.plan, partition)] + [None] * number, TERM)
        held = pa.StructArray.from_arrays([segments[field.name] for field in SEGMENT], fields=list(SEGMENT))
        packed_rows = {"term": term, "segment": pa.concat_arrays([pa.nulls(1, SEGMENT), held])}
        yield pa.RecordBatch.from_pydict({**of_set, **columns, **packed_rows})
