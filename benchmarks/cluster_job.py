"""Replays of some lakes in one session, for what `benchmarks.cluster` measures.

``python -m benchmarks.cluster_job MASTER ROOT REPLAYS`` prints, as JSON, what each of the replays (a JSON list of the
lake's address and which timelines) took; CPU seconds are of the process ROOT and all below it, by `part_of`.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import SparkSession

import isr_batch.replay.replay as of_replay
from benchmarks.measure import CpuOfTree
from benchmarks.standalone import Executor, executor_options, executors_of
from benchmarks.ways import runs_of
from isr_batch.lake import sizes
from isr_batch.lake.lake import Lake
from isr_batch.replay.kernel_cache import compile_replay
from isr_batch.session import start_session
from isr_batch.settings import SparkSettings

RULES = "all"
PARTS = ("workers", "executors", "driver_jvm", "driver", "server", "daemons")
LOOK_S = 5
LOAD_S = 10


def part_of(_: int, command: str) -> str:
    """Role of a process of the benchmark: one of PARTS."""
    if "moto_server" in command or "MiniHdfs" in command:
        return "server"
    if command.partition("\0")[0].endswith("java"):
        if "CoarseGrainedExecutorBackend" in command:
            return "executors"
        return "daemons" if ".deploy.worker." in command or ".deploy.master." in command else "driver_jvm"
    return "workers" if "pyspark" in command and "daemon" in command else "driver"


class Processor:
    """CPU seconds by part, from entry to exit; workers that end meanwhile are counted up to five seconds before."""

    def __init__(self, root: int) -> None:
        self._tree = CpuOfTree(root, part_of)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._before = self._tree.by_kind()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        after = self._tree.by_kind()
        self.seconds = {part: after[part] - self._before[part] for part in PARTS}

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            self._tree.by_kind()


def main(master: str, root: str, replays: str) -> list[dict[str, Any]]:
    """Replay each lake, and say what it took."""
    sizes.REPLAYED_EVENTS = -1
    vars(of_replay)["pack_stale_days"] = lambda _: 0  # the lakes have nothing to pack
    spark = start_session(SparkSettings(master=master), tasks=None, **executor_options())
    runs = runs_of(RULES)
    _load_kernels(spark)
    found = []
    for lake, timelines in json.loads(replays):
        before = executors_of(spark)
        with Processor(int(root)) as processor:
            begun = time.perf_counter()
            done = of_replay.replay(Lake(spark, lake), runs, timelines=timelines)
            seconds = time.perf_counter() - begun
        nothing = Executor(0, 0)
        after = executors_of(spark).items()
        tasks = [each.tasks - before.get(number, nothing).tasks for number, each in after]
        task_ms = [each.task_ms - before.get(number, nothing).task_ms for number, each in after]
        of_executors = {"tasks": tasks, "task_ms": task_ms}
        found.append({"seconds": seconds, "cpu": processor.seconds, "rows": done.rows_out, **of_executors})
        sys.stderr.write(f"{lake}, timelines {timelines}: {seconds:.1f} s\n")
    spark.stop()
    return found


def _load_kernels(spark: SparkSession) -> None:
    """Have the Python of each executor load its machine code: a small log is one task, of one executor."""
    cores = 2

    def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compile_replay()
        time.sleep(LOAD_S)  # else the first one takes the tasks of the others
        yield from batches

    spark.range(0, cores, 1, cores).mapInArrow(loaded, "id bigint").count()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])) + "\n")
