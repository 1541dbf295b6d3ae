"""All rules: each module of this folder that has a ``RULE`` is registered."""

import importlib
import inspect
import pkgutil
import re
from dataclasses import replace

from udfs.rules.base import COMMON_PARAMS, CONTINUOUS, KINDS, Param, Rule


def _find() -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for name in (module.name for module in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        rule = getattr(module, "RULE", None)
        if rule is None:
            continue
        if name != module_of(rule.id):
            message = f"the rule {rule.id!r} belongs in udfs/rules/{module_of(rule.id)}.py, not {name}.py"
            raise ValueError(message)
        found[rule.id] = replace(rule, doc=inspect.getdoc(module) or "")
    return dict(sorted(found.items(), key=lambda item: _place(item[1])))


def module_of(rule: str) -> str:
    """Name of a rule's module: its id with underscores."""
    return re.sub(r"\W", "_", rule)


def _place(rule: Rule) -> tuple[int, int, list[int], str]:
    """Sort by kind, then by time; releases of one year by number."""
    return KINDS.index(rule.kind), rule.year, release_numbers(rule), rule.id


def release_numbers(rule: Rule) -> list[int]:
    """Numbers of the first release of Kafka that had the rule; empty if it was never released."""
    return [int(part) for part in re.findall(r"\d+", rule.id)] if rule.kind == "released" else []


REGISTRY = _find()
"""Rules by id: by kind (``udfs.rules.base.KINDS``), then by time."""

RELEASED_RULES = [(release_numbers(rule), rule) for rule in REGISTRY.values() if rule.kind == "released"]
"""The rules that Kafka had, each with the numbers of its first release, oldest first."""

BASELINE = "kafka-3.7"
"""The rule of today's releases, with which other rules are compared."""


def rule_of_release(version: str) -> str:
    """Id of the rule of a Kafka release: the newest one that is not newer than the release.

    Raises
    ------
    ValueError
        For a release before the first rule.
    """
    release = [int(part) for part in re.findall(r"\d+", version)]
    older = [rule.id for since, rule in RELEASED_RULES if since <= release]
    if not older:
        message = f"no rule of a release as old as {version}"
        raise ValueError(message)
    return older[-1]


__all__ = [
    "BASELINE", "COMMON_PARAMS", "CONTINUOUS", "KINDS", "REGISTRY", "RELEASED_RULES", "Param", "Rule",
    "rule_of_release",
]  # fmt: skip
