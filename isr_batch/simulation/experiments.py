"""Run experiments, which simulate a scenario under each combination (cell) of rules, parameters and seeds.

In the simulation, the rule decides on the ISR, and its decisions affect what happens next. Each cell is simulated
separately. It is scored like a replay, because the simulation keeps the same counters. A few cells are simulated in
this process, and many by Spark's workers.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pyspark.sql.pandas.types import from_arrow_schema

from isr_batch.errors import UsageError
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.scores import EXPERIMENT_RESULTS
from isr_batch.phrases import did_you_mean
from isr_batch.replay.kernel_cache import keep_compiled
from isr_batch.scoring.scores import results_in, score_inputs, scores
from isr_batch.shipped_files import examples
from isr_batch.simulation.group_plans import FleetOfGroups, plan_groups
from isr_batch.simulation.planted_faults import FLEETS
from isr_batch.simulation.proposal_examples import START_MS
from isr_batch.simulation.proposal_scenarios import LOOPED
from isr_batch.yaml_files import load_yaml
from udfs.batches.results import RESULT_SCHEMA
from udfs.rules import REGISTRY
from udfs.simulation.groups import score_group

SIMULATED: Final = (*LOOPED, *FLEETS)
FEW_HOURS: Final = 100
"""Up to this many simulated hours in all cells (for fleets, partition-hours), this process does the simulation, which
takes no longer than starting Spark."""


class Experiment(BaseModel):
    """The content of an experiment file, a YAML file that says what to simulate."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scenario: str
    rules: list[str] = Field(min_length=1)
    hours: float = Field(0.5, gt=0)
    partitions: int = Field(100, ge=1)
    """Number of partitions in a fleet."""
    seeds: list[int] = Field([1], min_length=1)
    grid: dict[str, list[int | str]] = {}
    """The values of each parameter, by Kafka's name or ours. Each combination of values is simulated."""
    outcome: str
    """Template for a line that describes a cell's result. It contains columns of ``experiment_results`` in braces."""

    @model_validator(mode="after")
    def _known(self) -> "Experiment":
        """Raise a ValueError for an unknown scenario, rule or parameter, or a value that a parameter cannot have."""
        wrong = [(self.scenario, SIMULATED)] if self.scenario not in SIMULATED else []
        wrong += [(rule, tuple(REGISTRY)) for rule in self.rules if rule not in REGISTRY]
        for rule, (name, values) in product([r for r in self.rules if r in REGISTRY], self.grid.items()):
            param = REGISTRY[rule].param(_own_param_name(name))
            if param is None:
                raise ValueError(f"{rule} has no parameter {name}")
            for value in values:
                param.value(value)
        if wrong:
            raise ValueError("; ".join(f"no {name}: {did_you_mean(name, known)}" for name, known in wrong))
        return self


def _own_param_name(name: str) -> str:
    """Convert a parameter's name from Kafka's spelling, with dots, to ours, with underscores."""
    return name.replace(".", "_").replace("-", "_")


@dataclass(frozen=True)
class ExperimentCell:
    """One simulation of an experiment: one rule with one set of parameters and one seed."""

    number: int
    fleet: FleetOfGroups


def load_experiment(file: Path) -> Experiment:
    """Read and check an experiment file.

    Raises
    ------
    UsageError
        If the file cannot be read, or contains mistakes. The message lists all mistakes.
    """
    hint = f"{examples('conf/experiments')} has examples"
    if not re.fullmatch(r"[\w.-]+", file.stem):
        raise UsageError(f"{file.stem!r} cannot name an experiment", "use letters, digits, dots and hyphens")
    try:
        return Experiment.model_validate(load_yaml(file))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint) from error
    except yaml.YAMLError as error:
        raise UsageError(f"{file} is not YAML: {' '.join(str(error).split())}", hint) from error
    except ValidationError as error:
        mistakes = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in error.errors())
        raise UsageError(f"{file}: {mistakes}", hint) from error


def experiment_cells(experiment: Experiment) -> list[ExperimentCell]:
    """Return the cells of an experiment: all combinations of a rule, a seed, and values of the parameters."""
    names = list(experiment.grid)
    found: list[ExperimentCell] = []
    for rule, seed in product(experiment.rules, experiment.seeds):
        for values in product(*experiment.grid.values()):
            given = {_own_param_name(name): value for name, value in zip(names, values, strict=True)}
            known = {name: REGISTRY[rule].param(name) for name in given}
            params = {name: param.value(given[name]) for name, param in known.items() if param is not None}
            fleet = FleetOfGroups(
                experiment.scenario, experiment.partitions, experiment.hours, seed, rule, params=params
            )
            found.append(ExperimentCell(len(found), fleet))
    return found


def engine_of_experiment(lake: Lake, grid: Sequence[ExperimentCell]) -> LakeEngine:
    """Return the engine that simulates ``grid``: this process for at most `FEW_HOURS` simulated hours, else Spark."""
    hours = sum(of.hours * (of.partitions if of.scenario in FLEETS else 1) for of in (cell.fleet for cell in grid))
    return InProcess(lake) if hours <= FEW_HOURS else BySpark(lake)


def run_experiment(lake: Lake, name: str, experiment: Experiment) -> list[dict[str, Any]]:
    """Simulate and score every cell, and replace the rows of the experiment ``name`` in table experiment_results.

    Returns
    -------
    list of dict
        The rows of the experiment, sorted by rule (in the experiment's order), seed and parameters.
    """
    grid = experiment_cells(experiment)
    cells = pa.table({
        "cluster_id": [str(cell.number) for cell in grid],
        "scenario": [cell.fleet.scenario for cell in grid],
        "seed": [cell.fleet.seed for cell in grid],
        "simulated_hours": pa.array([cell.fleet.hours for cell in grid], pa.float64()),
    })  # fmt: skip
    with engine_of_experiment(lake, grid) as engine:
        results = results_in(engine, _cells_simulated(engine, lake, grid))
        scored = scores(engine, score_inputs(engine, results), [("cluster_id",)])
        of_score = ", ".join(f"scored.{name}" for name in engine.columns(scored) if name != "cluster_id")
        text = f"""
            SELECT {engine.literal(name)} AS experiment, scenario, seed, simulated_hours, last_change_seconds,
              shrink_interval_ms_p50, {of_score},
              under_replicated_seconds / (simulated_hours * 3600) AS under_replicated_partitions
            FROM {{scored}} AS scored JOIN {{cells}} AS cells ON scored.cluster_id = cells.cluster_id
            LEFT JOIN {{course}} AS course ON scored.cluster_id = course.cluster_id
        """
        course = engine(_COURSE, isr_changes=results.isr_changes)
        rows = engine.keep(engine(text, scored=scored, cells=engine.rows(cells), course=course))
        engine.replace(EXPERIMENT_RESULTS, rows, f"experiment = {sql_literal(name)}")
        written = engine.listed(rows)
    order = {rule: position for position, rule in enumerate(experiment.rules)}
    return sorted(written, key=lambda row: (order[row["rule"]], row["seed"], row["params_json"]))


def experiment_outcome(experiment: Experiment, row: dict[str, Any]) -> str:
    """Format a row of ``experiment_results`` with the experiment's template ``outcome``. Null is shown as 0."""
    return experiment.outcome.format(**{name: 0 if value is None else value for name, value in row.items()})


def _cells_simulated(engine: LakeEngine, lake: Lake, grid: list[ExperimentCell]) -> Rows:
    """Simulate all cells, and return rows of ``results.RESULT_SCHEMA``. In Spark, each cell is a task."""

    def simulate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Simulate the cells whose numbers are in column ``id``."""
        keep_compiled()
        for number in [number for batch in batches for number in batch.column("id").to_pylist()]:
            for plan, _ in plan_groups(grid[number].fleet):
                yield from score_group(plan, str(number))

    if engine.in_process:
        numbers = pa.record_batch({"id": range(len(grid))})
        return pa.Table.from_batches(simulate(iter([numbers])), RESULT_SCHEMA)
    simulated = lake.spark.range(0, len(grid), 1, len(grid)).mapInArrow(simulate, from_arrow_schema(RESULT_SCHEMA))
    kept = engine.keep(simulated)
    kept.count()  # compute it now: in a later broadcast, Spark's timeout of 300 s would apply
    return kept


_COURSE: Final = f"""
    SELECT cluster_id, (max(change_us) - {START_MS * 1000}) / 1e6 AS last_change_seconds,
      percentile(interval_ms, 0.5) AS shrink_interval_ms_p50
    FROM (
      SELECT cluster_id, change_us, (shrink_us - max(shrink_us) OVER (
        PARTITION BY cluster_id, topic, partition_id, replica_id ORDER BY change_us
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      )) / 1e3 AS interval_ms
      FROM (
        SELECT *, unix_micros(change_time) AS change_us,
          CASE WHEN kind = 'shrink' THEN unix_micros(change_time) END AS shrink_us
        FROM {{isr_changes}}
      ) AS changes
    ) AS shrinks
    GROUP BY cluster_id
"""
"""SQL for each cell: the simulated time of the last ISR change, and the median time between shrinks of a follower."""
