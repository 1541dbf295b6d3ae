"""Every rule, found by itself: a module in this folder that has a ``RULE``."""

import importlib
import pkgutil
import re

from udfs.rules.base import COMMON_PARAMS, CONTINUOUS, Param, Rule


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
    return dict(sorted(found.items(), key=lambda item: _release_order(item[0])))


def _release_order(rule_id: str) -> tuple[int, list[int], str]:
    """Releases of Kafka by number, then proposals by name, the clairvoyant last."""
    version = rule_id.removeprefix("kafka-")
    if "." in version:
        return 0, [int(part) for part in version.split(".")], ""
    return (2 if rule_id == "true-lag" else 1), [], rule_id


REGISTRY = _find()
"""Rules by id, in the order of their releases."""

RELEASED_RULES = [
    (numbers, rule) for rule_id, rule in REGISTRY.items() for kind, numbers, _ in [_release_order(rule_id)] if kind == 0
]
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


__all__ = ["BASELINE", "COMMON_PARAMS", "CONTINUOUS", "REGISTRY", "RELEASED_RULES", "Param", "Rule", "rule_of_release"]
