"""Read grid files, which define sweeps: rules, values of their parameters, topic classes, and budgets."""

import math
import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from isr_batch.errors import UsageError
from isr_batch.phrases import did_you_mean
from isr_batch.rule_names import rule_names_between_commas
from isr_batch.shipped_files import examples
from isr_batch.yaml_files import load_yaml
from udfs.batches.rule_runs import RuleRun
from udfs.rules import ALL_RULES, COMMON_PARAMS, CONTINUOUS, REGISTRY, Param

LAG_TIME: Final = "replica_lag_time_max_ms"
MOST_RUNS: Final = 200
"""Maximum number of rule runs in a sweep. Each needs about 0.8 MB for results in a task, and time for every event."""
EVERYTHING: Final = "all"
"""Class of all topics if the grid defines no classes."""
OTHERS: Final = "other"
"""Class of the topics that match no class of the grid."""


class SweepBudgets(BaseModel):
    """Upper limits for mistakes and detection time. docs/sweep.md explains the defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mistakes_per_follower_day: float = Field(0.01, gt=0)
    detection_ms_p99: float = Field(45_000, gt=0)


class SweepGrid(BaseModel):
    """The content of a grid file: rules, values of parameters, topic classes and budgets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rules: Annotated[list[str], BeforeValidator(rule_names_between_commas)] = Field(
        ["all"], min_length=1, validate_default=True
    )
    grid: dict[str, list[int | str]]
    """The values of each parameter to replay. A parameter has Kafka's name (with dots) or ours (with underscores)."""
    topic_classes: dict[str, str] = {}
    """Regular expression by class. A topic belongs to the first class whose expression is found in the topic's name."""
    budgets: SweepBudgets = SweepBudgets()

    @field_validator("rules")
    @classmethod
    def _rules_known(cls, rules: list[str]) -> list[str]:
        """Replace ``all`` with all rules, and raise a ValueError for unknown rules."""
        if rules == ["all"]:
            return ALL_RULES
        _refuse_grid([f"no rule {rule}; {did_you_mean(rule, REGISTRY)}" for rule in rules if rule not in REGISTRY])
        return list(dict.fromkeys(rules))

    @field_validator("grid")
    @classmethod
    def _params_known(cls, grid: dict[str, list[int | str]], info: ValidationInfo) -> dict[str, list[int]]:
        """Convert a grid's parameter names to ours, and values to numbers. Raise a ValueError listing all mistakes."""
        known = {name: param for rule in info.data.get("rules", REGISTRY) for name, param in _params(rule).items()}
        wrong: list[str] = []
        read: dict[str, list[int]] = {}
        for given, values in grid.items():
            name = given.replace(".", "_").replace("-", "_")  # Kafka's spelling, with dots, is accepted too
            if name not in known:
                wrong.append(f"none of the rules has a parameter {given}; {did_you_mean(name, known)}")
                continue
            if name in read:
                wrong.append(f"{given} is given twice")
            if not values:
                wrong.append(f"{given}: no values")
            read[name] = []
            for value in values:
                try:
                    read[name].append(known[name].value(value))
                except ValueError as error:
                    wrong.append(f"{given}: {error}")
        _refuse_grid(wrong)
        return read

    @field_validator("topic_classes")
    @classmethod
    def _expressions(cls, classes: dict[str, str]) -> dict[str, str]:
        """Raise a ValueError if the regular expression of a topic class is invalid."""
        wrong = []
        for name, expression in classes.items():
            try:
                re.compile(expression)
            except re.error as error:
                wrong.append(f"{name}: {expression!r} is not a regular expression: {error}")
        _refuse_grid(wrong)
        return classes

    def class_of(self, topic: str) -> str:
        """Return the class of a topic: the first that matches, else `OTHERS`, or `EVERYTHING` without classes."""
        if not self.topic_classes:
            return EVERYTHING
        return next((name for name, part in self.topic_classes.items() if re.search(part, topic)), OTHERS)


@dataclass(frozen=True)
class NamedGrid:
    """A grid, with the name of its file (without ending) and its rule runs."""

    name: str
    grid: SweepGrid
    runs: tuple[RuleRun, ...]


def load_grid(file: Path) -> NamedGrid:
    """Read a grid file, and expand it to its rule runs.

    Raises
    ------
    UsageError
        If the file cannot be read, if it contains mistakes (the message lists them all), or if it has more than
        `MOST_RUNS` rule runs.
    """
    hint = f"{examples('conf/grids')} has an example"
    if not re.fullmatch(r"[\w.-]+", file.stem):
        raise UsageError(f"{file.stem!r} cannot name a grid", "use letters, digits, dots and hyphens")
    try:
        grid = SweepGrid.model_validate(load_yaml(file))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint) from error
    except yaml.YAMLError as error:
        raise UsageError(f"{file} is not YAML: {' '.join(str(error).split())}", hint) from error
    except ValidationError as error:
        raise UsageError(
            f"{file}:" + "".join(f"\n  {_mistake_in_grid(dict(e))}" for e in error.errors()), hint
        ) from error
    count = sum(math.prod(map(len, _own_values(grid, rule).values())) for rule in grid.rules)
    if count > MOST_RUNS:
        raise UsageError(
            f"{file} has {count:,} rule runs; one pass takes at most {MOST_RUNS}",
            "use fewer rules or values, or several grids",
        )
    return NamedGrid(file.stem, grid, tuple(_grid_runs(grid)))


def require_lag_times_in_grid(file: Path, named: NamedGrid) -> NamedGrid:
    """Return the grid unchanged, after checking that it lists lag times, without which a sweep cannot recommend one.

    Raises
    ------
    UsageError
        If the grid lists no lag times.
    """
    if LAG_TIME not in named.grid.grid:
        raise UsageError(
            f"{file}: section grid has no values of {LAG_TIME}",
            "a sweep searches for the smallest lag time: list the values to try under grid",
        )
    return named


def _grid_runs(grid: SweepGrid) -> list[RuleRun]:
    """Return the rule runs of a grid: each rule with every combination of its parameters, without duplicates."""
    found = []
    for rule in grid.rules:
        own = _own_values(grid, rule)
        found += [RuleRun(rule, dict(zip(own, values, strict=True))) for values in product(*own.values())]
    return found


def _own_values(grid: SweepGrid, rule: str) -> dict[str, dict[int, None]]:
    """Return the grid's distinct values (as keys) for each parameter that the rule has."""
    return {name: dict.fromkeys(map(int, values)) for name, values in grid.grid.items() if name in _params(rule)}


def _params(rule: str) -> dict[str, Param]:
    """Return a rule's parameters by name, without those of the periodic check if the rule has no such check."""
    continuous = REGISTRY[rule].checks_per_lag_time == CONTINUOUS
    common = {n: p for n, p in COMMON_PARAMS.items() if not (continuous and n in {"check_period_ms", "check_phase_ms"})}
    return common | REGISTRY[rule].params


def _refuse_grid(wrong: list[str]) -> None:
    """Raise a ValueError that lists the mistakes, if there are any."""
    if wrong:
        raise ValueError("; ".join(wrong))


def _mistake_in_grid(error: dict[str, Any]) -> str:
    """Describe an error of pydantic in one sentence, which begins with the key in the file."""
    where = ".".join(map(str, error["loc"])) or "the file"
    if error["type"] == "extra_forbidden":
        model = SweepBudgets if len(error["loc"]) > 1 else SweepGrid
        return f"{where}: no such key; {did_you_mean(str(error['loc'][-1]), model.model_fields)}"
    message = error["msg"].removeprefix("Value error, ")
    return f"{where}: {message[0].lower()}{message[1:]}"
