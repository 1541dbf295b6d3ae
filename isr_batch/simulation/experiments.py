"""Run experiments: simulate a scenario under a grid of rules and parameters, with the rule in the loop.

Each cell of the grid is simulated by one task, and scored like a replay: the simulation has the same counters.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from isr_batch.errors import UsageError
from isr_batch.lake.ddl import sql_literal
from isr_batch.lake.engines import BySpark
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.scores import EXPERIMENT_RESULTS
from isr_batch.phrases import did_you_mean
from isr_batch.replay.kernel_cache import keep_compiled
from isr_batch.scoring.scores import results_in, score_inputs, scores
from isr_batch.simulation.group_plans import FleetOfGroups, plan_groups
from isr_batch.simulation.planted_faults import FLEETS
from isr_batch.simulation.proposal_examples import START_MS
from isr_batch.simulation.proposal_scenarios import LOOPED
from udfs.batches.results import RESULT_SCHEMA
from udfs.rules import REGISTRY
from udfs.simulation.groups import score_group

SIMULATED: Final = (*LOOPED, *FLEETS)


class Experiment(BaseModel):
    """An experiment, as defined in its YAML file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    scenario: str
    rules: list[str] = Field(min_length=1)
    hours: float = Field(0.5, gt=0)
    partitions: int = Field(100, ge=1)
    """Number of partitions in a fleet."""
    seeds: list[int] = Field([1], min_length=1)
    grid: dict[str, list[int | str]] = {}
    """Values of parameters, by Kafka's or our names; every combination is a cell."""
    outcome: str
    """Summary of a cell in one line, with columns of ``experiment_results`` in braces."""

    @model_validator(mode="after")
    def _known(self) -> "Experiment":
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
    """Convert a parameter name, ours or Kafka's, to ours."""
    return name.replace(".", "_").replace("-", "_")


@dataclass(frozen=True)
class ExperimentCell:
    """One simulation in an experiment."""

    number: int
    fleet: FleetOfGroups


def load_experiment(file: Path) -> Experiment:
    """Read an experiment file.

    Raises
    ------
    UsageError
        With all mistakes in the file.
    """
    if not re.fullmatch(r"[\w.-]+", file.stem):
        raise UsageError(f"{file.stem!r} cannot name an experiment", "use letters, digits, dots and hyphens")
    try:
        return Experiment.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", "conf/experiments has examples") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{file} is not YAML: {error}", "conf/experiments has examples") from error
    except ValidationError as error:
        mistakes = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in error.errors())
        raise UsageError(f"{file}: {mistakes}", "conf/experiments has examples") from error


def experiment_cells(experiment: Experiment) -> list[ExperimentCell]:
    """List the cells: every rule with every combination of parameters and every seed."""
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


def run_experiment(lake: Lake, name: str, experiment: Experiment) -> list[dict[str, Any]]:
    """Simulate every cell, and replace the experiment's rows in ``experiment_results``.

    Returns
    -------
    list of dict
        Its rows, in the order of the cells.
    """
    grid = experiment_cells(experiment)
    simulated = _simulated(lake, grid).persist(StorageLevel.DISK_ONLY)
    try:
        simulated.count()  # begun by the broadcast side of a join, it would end at Spark's 300 s for that
        spark = BySpark(lake)
        results = results_in(spark, simulated)
        scored = scores(spark, score_inputs(spark, results), [("cluster_id",)])
        scored = scored.join(_course(results.isr_changes), "cluster_id", "left")
        of_cells = lake.spark.createDataFrame(
            [(str(cell.number), cell.fleet.scenario, cell.fleet.seed, cell.fleet.hours) for cell in grid],
            "cluster_id STRING, scenario STRING, seed BIGINT, simulated_hours DOUBLE",
        )
        partitions = F.col("under_replicated_seconds") / (F.col("simulated_hours") * 3600)
        rows = scored.join(of_cells, "cluster_id").withColumns(
            {"experiment": F.lit(name), "under_replicated_partitions": partitions}
        )
        lake.replace(EXPERIMENT_RESULTS, rows, f"experiment = {sql_literal(name)}")
    finally:
        simulated.unpersist()
    written = lake.read(EXPERIMENT_RESULTS.name).where(F.col("experiment") == name).collect()
    order = {rule: position for position, rule in enumerate(experiment.rules)}
    return sorted(
        (row.asDict() for row in written), key=lambda row: (order[row["rule"]], row["seed"], row["params_json"])
    )


def experiment_outcome(experiment: Experiment, row: dict[str, Any]) -> str:
    """Format the result of a cell with the experiment's ``outcome`` template."""
    return experiment.outcome.format(**{name: 0 if value is None else value for name, value in row.items()})


def _simulated(lake: Lake, grid: list[ExperimentCell]) -> DataFrame:
    """Simulate the cells, one task each, to rows of ``udfs.batches.results.RESULT_SCHEMA``; a cluster per cell."""

    def simulate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keep_compiled()
        for number in [number for batch in batches for number in batch.column("id").to_pylist()]:
            for plan, _ in plan_groups(grid[number].fleet):
                yield from score_group(plan, str(number))

    numbers = lake.spark.range(0, len(grid), 1, len(grid))
    return numbers.mapInArrow(simulate, from_arrow_schema(RESULT_SCHEMA))


def _course(changes: DataFrame) -> DataFrame:
    """Compute the time of the last change, and the time between shrinks."""
    follower = Over.partitionBy("cluster_id", "topic", "partition_id", "replica_id").orderBy("change_time")
    shrink_us = F.when(F.col("kind") == "shrink", F.unix_micros("change_time"))
    before_us = F.last(shrink_us, ignorenulls=True).over(follower.rowsBetween(Over.unboundedPreceding, -1))
    return (
        changes.withColumn("interval_ms", (shrink_us - before_us) / 1e3)
        .groupBy("cluster_id")
        .agg(
            ((F.unix_micros(F.max("change_time")) - START_MS * 1000) / 1e6).alias("last_change_seconds"),
            F.percentile("interval_ms", 0.5).alias("shrink_interval_ms_p50"),
        )
    )
