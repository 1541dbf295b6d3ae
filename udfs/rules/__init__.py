"""The registry of all rules: the ``RULE`` of each module in this folder, and that of the user's file (`RULE_FILE`)."""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
from dataclasses import replace
from types import ModuleType

from udfs.rules.base import COMMON_PARAMS, CONTINUOUS, KINDS, Param, Rule

RULE_FILE = "ISR_BATCH_RULE_FILE"
"""Environment variable with the path of a file that defines one more rule. Worker processes inherit the variable."""


def _find_rules() -> dict[str, Rule]:
    """Import all modules of this folder and the user's rule file, and return REGISTRY."""
    found: dict[str, Rule] = {}
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    if file := os.environ.get(RULE_FILE):
        modules.append(_import_rule_file(file, names))
    for module in modules:
        rule = getattr(module, "RULE", None)
        if rule is None:
            continue
        name = module.__name__.rpartition(".")[2]
        if name != module_of(rule.id):
            message = f"the rule {rule.id!r} belongs in a file {module_of(rule.id)}.py, not {name}.py"
            raise ValueError(message)
        if rule.kind not in KINDS:
            kinds = "releases, such as 4.5, or proposed, rejected, elsewhere, reference"
            message = f"in_force of {rule.id} is {rule.in_force!r}: it takes {kinds}"
            raise ValueError(message)
        found[rule.id] = replace(rule, doc=inspect.getdoc(module) or "")
    return dict(sorted(found.items(), key=lambda item: _order_of_rule(item[1])))


def _import_rule_file(file: str, taken: list[str]) -> ModuleType:
    """Import the user's rule file as a module of this package, and return the module.

    So the file can later be moved into this folder unchanged.
    """
    name = file.rpartition(os.sep)[2]
    stem = name.removesuffix(".py")
    if stem in taken:
        message = f"a rule of the name {stem} exists: give the file and its rule another one"
        raise ValueError(message)
    spec = importlib.util.spec_from_file_location(f"{__name__}.{stem}", file)
    if spec is None or spec.loader is None:
        message = f"{name} does not end with .py"
        raise ValueError(message)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "RULE"):
        message = f"{name} has no RULE"
        raise ValueError(message)
    return module


def module_of(rule: str) -> str:
    """Return the name of a rule's module: the rule's id, with underscores for hyphens and dots."""
    return re.sub(r"\W", "_", rule)


def _order_of_rule(rule: Rule) -> tuple[int, int, list[int], str]:
    """Return the sort key of a rule: its kind, year, version numbers and id."""
    return KINDS.index(rule.kind), rule.year, release_numbers(rule), rule.id


def release_numbers(rule: Rule) -> list[int]:
    """Return the first Kafka release with this rule as numbers, such as [3, 7]; [] if no release has the rule."""
    return [int(part) for part in re.findall(r"\d+", rule.id)] if rule.kind == "released" else []


REGISTRY = _find_rules()
"""All rules by id, sorted by kind (in the order of ``udfs.rules.base.KINDS``), then from oldest to newest."""

ALL_RULES = [rule.id for rule in REGISTRY.values() if not rule.on_request]
"""Ids of the rules that users select with ``all``."""

RELEASED_RULES = [(release_numbers(rule), rule) for rule in REGISTRY.values() if rule.kind == "released"]
"""Pairs of version numbers and rule: each rule of Kafka's releases with the first release that has it, oldest first."""

BASELINE = "kafka-3.7"
"""Id of the rule of Kafka's newest releases, with which other rules are compared."""


def rule_of_release(version: str) -> str:
    """Return the id of the rule that Kafka release ``version`` uses: the latest one introduced up to this release.

    Raises
    ------
    ValueError
        If the release is older than the first rule.
    """
    release = [int(part) for part in re.findall(r"\d+", version)]
    older = [rule.id for since, rule in RELEASED_RULES if since <= release]
    if not older:
        message = f"no rule of a release as old as {version}"
        raise ValueError(message)
    return older[-1]


__all__ = [
    "ALL_RULES", "BASELINE", "COMMON_PARAMS", "CONTINUOUS", "KINDS", "REGISTRY", "RELEASED_RULES", "RULE_FILE", "Param",
    "Rule", "rule_of_release",
]  # fmt: skip
