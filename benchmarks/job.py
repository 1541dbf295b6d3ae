"""Replays in a separate process, to measure another master, and memory from the start.

``python -m benchmarks.job MASTER ROUNDS WARM_LAKE LAKE`` starts a session, replays the small lake once and the other
ROUNDS times, under all rules, and prints JSON: the seconds of each, and peaks of memory in MiB.
"""

import json
import sys
import time
from pathlib import Path

from benchmarks import ways
from benchmarks.lakes import copy_of, remove_copies
from benchmarks.measure import PeakMemory
from isr_batch.session import start_session
from isr_batch.settings import SparkSettings


def main(master: str, rounds: str, warm: str, lake: str) -> dict[str, object]:
    """Replay, and say what it took."""
    spark = start_session(SparkSettings(master=master))
    runs = ways.runs_of("all")
    seconds = []
    with PeakMemory() as peak:
        for each in (warm, *[lake] * int(rounds)):
            copy = copy_of(Path(each))
            begun = time.perf_counter()
            ways.ours(spark, copy, runs)
            seconds.append(time.perf_counter() - begun)
            remove_copies(copy)
    spark.stop()
    return {"seconds": seconds[1:], "worker": peak.worker, "jvm": peak.jvm}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])) + "\n")
