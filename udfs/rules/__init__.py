"""Every rule, found by itself: a module in this folder that has a ``RULE``."""

import importlib
import pkgutil
import re

from udfs.rules.base import COMMON_PARAMS, CONTINUOUS, KINDS, Param, Rule


def _find() -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for module in pkgutil.iter_modules(__path__):
        rule = getattr(importlib.import_module(f"{__name__}.{module.name}"), "RULE", None)
        if rule is None:
            continue
        if rule.id in found:
            message = f"two modules in udfs/rules define the rule {rule.id!r}"
            raise ValueError(message)
        found[rule.id] = rule
    return dict(sorted(found.items(), key=lambda item: _place(item[1])))


def _place(rule: Rule) -> tuple[int, int, list[int], str]:
    """By kind, then by time; releases of one year by number."""
    return KINDS.index(rule.kind), rule.year, release_numbers(rule), rule.id


def release_numbers(rule: Rule) -> list[int]:
    """Of the first release of Kafka that had it; empty if none had."""
    return [int(part) for part in re.findall(r"\d+", rule.id)] if rule.kind == "released" else []


REGISTRY = _find()
"""Rules by id: by kind (``udfs.rules.base.KINDS``), then by time."""

RELEASED_RULES = [(release_numbers(rule), rule) for rule in REGISTRY.values() if rule.kind == "released"]
"""The rules that Kafka had, each with the numbers of its first release, oldest first."""

BASELINE = "kafka-3.7"
"""What runs today, and what other rules are compared with."""


def rule_of_release(version: str) -> str:
    """Id of the rule that a Kafka release runs: the newest one that is not newer than the release.

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
