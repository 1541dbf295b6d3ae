"""docs/study.md: every rule over recorded faults, stories and simulated clusters, and the tables behind that page.

``python -m docs.generate.study --seeds 20 --logs DIR`` does it all; ``--page`` writes the page again from the tables.
A rule that changed within its releases is studied as it was before and after the change (`LATER`).
"""

import argparse
import json
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
from docs.generate.study_figures import HOURS_OF_RUN, LATER, PARTITIONS, TABLES, run_of_rule
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake
from isr_batch.lake.memory_lake import MemoryLake
from isr_batch.lake.run_log import new_run_id
from isr_batch.scoring.broker_pairs import sums_of_broker_pairs
from isr_batch.simulation.experiments import Experiment, experiment_cells, load_experiment, run_experiment
from isr_batch.simulation.group_plans import plan_groups
from isr_batch.simulation.planted_faults import FLEETS
from udfs.rules import ALL_RULES, REGISTRY

Rows = list[dict[str, Any]]

STORIES: Final = Path("conf/experiments")
COUNTS: Final = (
    "shrinks", "spurious", "genuine", "unknown", "early", "misses", "metadata_writes", "isr_write_requests",
    "isr_write_requests_peak_per_second", "refused_appends", "never_acknowledged", "loss_records_max",
)  # fmt: skip
MEASURES: Final = (
    "precision_by_lag", "query_accuracy", "query_accuracy_by_blame", "detection_ms_p50", "detection_ms_p99",
    "under_min_isr_seconds", "leader_alone_seconds", "high_watermark_stalled_seconds", "refused_or_stalled_seconds",
    "acks_all_waits_1s_seconds", "acks_all_waits_30s_seconds", "acks_all_latency_ms_p99", "acks_all_wait_ms_p99",
    "acks_all_wait_ms_mean",
)  # fmt: skip


def experiments(seeds: int) -> Iterator[tuple[str, Experiment]]:
    """List every story, then, seed by seed, fleets with one kind of fault each and a mixed one."""
    for file in sorted(STORIES.glob("*.yaml")):
        yield "stories", load_experiment(file)
    for seed, name in product(range(1, seeds + 1), FLEETS):
        yield (
            "simulated",
            Experiment(
                scenario=name, rules=ALL_RULES, hours=HOURS_OF_RUN, partitions=PARTITIONS, seeds=[seed], outcome=""
            ),
        )  # fmt: skip


def simulated(experiment: Experiment) -> Rows:
    """Simulate all rules in this process; each row also has the number of planted faults."""
    planted = {
        cell.fleet.seed: sum(len(faults) for _, faults in plan_groups(cell.fleet))
        for cell in experiment_cells(experiment)
    }
    columns = ("scenario", "seed", "simulated_hours", *COUNTS, *MEASURES)
    later = [{"rules": [rule], "grid": {param: ["true"]}} for rule, (param, _, _) in LATER.items()]
    of_rules: list[dict[str, Any]] = [{"rules": ALL_RULES}, *later]
    return [
        {column: row[column] for column in columns} | {"rule": run_of_rule(row), "faults": planted[row["seed"]]}
        for rules in of_rules
        for row in run_experiment(MemoryLake({}), experiment.scenario, experiment.model_copy(update=rules))
    ]


def replay(root: Path, logs: Sequence[Path]) -> None:
    """Ingest and replay recorded clusters, by the commands that a user would run."""
    grid = root / "grid.yaml"
    root.mkdir(parents=True, exist_ok=True)
    grid.write_text(json.dumps({"grid": {param: ["false", "true"] for param, _, _ in LATER.values()}}))
    released = ",".join(rule for rule in ALL_RULES if REGISTRY[rule].kind == "released")
    for each in logs:  # `run` also finds the checks that were late, which the replay of the grid needs
        _isr_batch("run", "--logs", each, "--lake", root / "lake", "--rules", released)
    _isr_batch("replay", "--grid", grid, "--lake", root / "lake", "--timelines", "around-shrinks")


def _isr_batch(*words: str | Path) -> None:
    """Run a command."""
    subprocess.run((sys.executable, "-m", "pipelines.cli", *words), check=True)


def write_recorded(lake: Lake) -> None:
    """Write the tables of the recorded clusters."""
    pairs = sums_of_broker_pairs(lake)
    runs = [run_of_rule(row) for row in pairs.select(("rule", "params_json")).to_pylist()]
    pairs = pairs.drop_columns(("rule", "params_json")).append_column("rule", pa.array(runs))
    # Intervals depend on the order of rows.
    order = [(name, "ascending") for name in ("rule", "cluster_id", "event_date", "leader_id", "replica_id")]
    _write("recorded", pairs.sort_by(order))
    _write("clusters", clusters(lake))
    _write("constants", judged_again(lake))


def write_simulated(seeds: int) -> None:
    """Simulate, and write the tables after each simulation: the page can be made from complete seeds."""
    found: dict[str, Rows] = {"stories": [], "simulated": []}
    planned = list(experiments(seeds))
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
    parser.add_argument("--seeds", type=int, default=20, help="simulations of each kind of fault under each rule")
    parser.add_argument("--folder", type=Path, default=Path("build/study"), help="where to replay them")
    parser.add_argument("--page", action="store_true", help="write the page from the tables that are there")
    given = parser.parse_args()
    if not given.page:
        replay(given.folder, given.logs or [Path("data/samples")])
        write_recorded(Lake(_no_spark, str(given.folder / "lake"), new_run_id()))
        write_simulated(given.seeds)
    study_page.PAGE.write_text(study_page.page(), encoding="utf-8")
    study_page.write_pictures()
