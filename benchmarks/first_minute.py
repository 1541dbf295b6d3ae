"""Costs of a command step by step: Spark jobs, Delta commits, CPU seconds and wall time.

``python -m benchmarks.first_minute run --logs data/samples --lake LAKE`` runs a command of `isr-batch` in this process,
and writes the costs of its steps to stderr as JSON at the end.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from benchmarks.measure import CpuOfTree
from benchmarks.page import Section
from pipelines.output import Output

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
HEADINGS = ("step", "Spark jobs", "Delta commits", "CPU s", "wall s")
STEPS = "costs of the steps: "

Cost = tuple[float, float, float, float]
"""Jobs, commits, CPU seconds, seconds."""


def of_the_samples(rounds: int) -> Section:
    """Run `run` on the samples in a new process with a new lake per round; the fastest is shown."""
    best: dict[str, Cost] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            costs = costs_of_run(folder)
        if not best or costs["all"][3] < best["all"][3]:
            best = costs
    return Section(
        "The first minute",
        """`isr-batch run --logs data/samples` by step, in a new process, with kernels that are compiled. CPU
        seconds are those of the driver, the JVM and the workers together.""",
        HEADINGS,
        [
            [re.sub(r"/\S*/", "", name), f"{jobs:.0f}", f"{commits:.0f}", f"{cpu_s:.1f}", f"{wall_s:.1f}"]
            for name, (jobs, commits, cpu_s, wall_s) in best.items()
        ],
    )


def costs_of_run(lake: str) -> dict[str, Cost]:
    """Costs of each step of `run` on the samples, in a separate process."""
    command = [sys.executable, "-m", "benchmarks.first_minute", "run", "--logs", str(SAMPLES), "--lake", lake]
    stderr = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return dict(json.loads(stderr.rpartition(STEPS)[2]))


class Costs:
    """Takes note of what each step of a command costs."""

    def __init__(self, lake: Path) -> None:
        self.steps: dict[str, Cost] = {}
        self._lake = lake
        self._processor = CpuOfTree()
        self._begun = time.perf_counter()

    def __enter__(self) -> Self:
        shown = Output.step

        @contextmanager
        def measured(out: Output, name: str) -> Iterator[dict[str, int]]:
            before = self._now()
            with shown(out, name) as facts:
                yield facts
            self._add(name, before)

        self._before, self._shown = self._now(), shown
        Output.step = measured  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        Output.step = self._shown  # type: ignore[method-assign]
        known = tuple(map(sum, zip(*self.steps.values(), strict=True))) or (0, 0, 0, 0)
        self._add("all", self._before)
        whole = self.steps.pop("all")
        self.steps["the rest"] = tuple(a - b for a, b in zip(whole, known, strict=True))  # type: ignore[assignment]
        self.steps["all"] = whole

    def _add(self, name: str, before: Cost) -> None:
        self.steps[name] = tuple(now - then for now, then in zip(self._now(), before, strict=True))  # type: ignore[assignment]

    def _now(self) -> Cost:
        commits = sum(1 for _ in self._lake.glob("*/_delta_log/*.json"))
        return spark_jobs(), commits, self._processor(), time.perf_counter() - self._begun


def spark_jobs() -> int:
    """Number of jobs of the running session until now; 0 without a session."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001 there is no public way to ask
    return context._jsc.sc().dagScheduler().numTotalJobs() if context else 0  # noqa: SLF001


if __name__ == "__main__":
    from pipelines.cli import main

    with Costs(Path(sys.argv[sys.argv.index("--lake") + 1])) as costs:
        try:
            main(sys.argv[1:])
        except SystemExit as done:
            code = done.code
    sys.stderr.write(f"{STEPS}{json.dumps(costs.steps)}\n")
    sys.exit(code)
