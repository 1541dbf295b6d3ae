"""docs/study.md: every rule over recorded faults, stories and simulated clusters, and the tables behind that page.

``python -m docs.generate.study --hours 200 --logs DIR`` does it all; ``--page`` writes the page again from the tables.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from docs.generate import study_page
from docs.generate.study_constants import judged_again
from docs.generate.study_figures import HOURS_OF_RUN, KINDS, PARTITIONS, TABLES
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.memory_lake import MemoryLake
from isr_batch.lake.run_log import new_run_id
from isr_batch.scoring.broker_pairs import sums_of_broker_pairs
from isr_batch.simulation.experiments import Experiment, experiment_cells, load_experiment, run_experiment
from isr_batch.simulation.group_plans import plan_groups
from isr_batch.simulation.planted_faults import FLEETS
from udfs.rules import REGISTRY

Rows = list[dict[str, Any]]

STORIES: Final = Path("conf/experiments")
COUNTS: Final = (
    "shrinks", "spurious", "genuine", "unknown", "early", "misses", "metadata_writes", "isr_write_requests",
    "isr_write_requests_peak_per_second", "refused_appends", "never_acknowledged", "loss_records_max",
)  # fmt: skip
MEASURES: Final = (
    "precision_by_lag", "query_accuracy", "query_accuracy_by_blame", "detection_ms_p50", "detection_ms_p99",
    "under_min_isr_seconds", "leader_alone_seconds", "high_watermark_stalled_seconds", "acks_all_latency_ms_p99",
)  # fmt: skip


def experiments(hours: int) -> Iterator[tuple[str, Experiment]]:
    """List every story, then fleets with one kind of fault each, ``hours`` in all under each rule, and mixed ones."""
    rules = list(REGISTRY)
    for file in sorted(STORIES.glob("*.yaml")):
        yield "stories", load_experiment(file).model_copy(update={"rules": rules})
    for seed, name in product(range(1, max(hours // len(KINDS), 2) + 1), FLEETS):
        yield (
            "simulated",
            Experiment(
                scenario=name, rules=rules, hours=HOURS_OF_RUN, partitions=PARTITIONS, seeds=[seed], outcome=""
            ),
        )  # fmt: skip


def simulated(experiment: Experiment) -> Rows:
    """Simulate in this process; each row also has the number of planted faults."""
    planted = {
        cell.fleet.seed: sum(len(faults) for _, faults in plan_groups(cell.fleet))
        for cell in experiment_cells(experiment)
    }
    columns = ("scenario", "rule", "seed", "simulated_hours", *COUNTS, *MEASURES)
    rows = run_experiment(MemoryLake({}), experiment.scenario, experiment)
    return [{column: row[column] for column in columns} | {"faults": planted[row["seed"]]} for row in rows]


def replay(root: Path, logs: Sequence[Path]) -> None:
    """Ingest and replay recorded clusters, by the command that a user would run."""
    for each in logs:
        command = (sys.executable, "-m", "pipelines.cli", "run", "--logs", each, "--lake", root, "--rules", "all")
        subprocess.run(command, check=True)


def write_tables(lake: Lake, hours: int) -> None:
    """Write the tables behind the page."""
    _write("recorded", sums_of_broker_pairs(lake))
    _write("clusters", clusters(lake))
    _write("constants", judged_again(lake))
    found: dict[str, Rows] = {"stories": [], "simulated": []}
    planned = list(experiments(hours))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as processes:
        results = processes.map(simulated, (experiment for _, experiment in planned))
        for number, ((table, experiment), rows) in enumerate(zip(planned, results, strict=True), 1):
            print(f"{number} of {len(planned)}: {experiment.scenario}", flush=True)  # noqa: T201
            found[table] += rows
            _write(table, pa.Table.from_pylist(found[table]))


def _write(name: str, table: pa.Table) -> None:
    pq.write_table(table, TABLES / f"{name}.parquet", compression="zstd")


def clusters(lake: Lake) -> pa.Table:
    """List the recorded clusters with their releases and lag times."""
    columns = ("cluster_id", "broker_version", "replica_lag_time_max_ms")
    return read_columns(lake, "leader_epochs", columns).group_by(list(columns)).aggregate([]).sort_by("cluster_id")


def _no_spark() -> NoReturn:
    raise AssertionError("these lakes are small")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, action="append", help="recorded clusters; by default data/samples")
    parser.add_argument("--hours", type=int, default=24, help="simulated hours under each rule")
    parser.add_argument("--lake", type=Path, default=Path("build/study"), help="where to replay them")
    parser.add_argument("--page", action="store_true", help="write the page from the tables that are there")
    given = parser.parse_args()
    if not given.page:
        replay(given.lake, given.logs or [Path("data/samples")])
        write_tables(Lake(_no_spark, str(given.lake), new_run_id()), given.hours)
    study_page.PAGE.write_text(study_page.page(), encoding="utf-8")
    study_page.write_pictures()
