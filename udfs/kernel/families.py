"""Find families of rules. Under all rules of a family, fetches and appends change a follower's state in the same way.

Two rules are of one family if their functions have the same code, or if one rule declares it (``Rule.knows_as``).
"""

from collections.abc import Callable, Sequence
from dis import get_instructions
from typing import Any

from udfs.jit import compiled_text
from udfs.rules import REGISTRY
from udfs.rules.base import Rule

OTHER_INSTANTS = ("on_arrival", "on_read", "on_completed", "on_append", "outvoted")
INSTANTS = ("on_recorded", *OTHER_INSTANTS)
"""Names of the rule functions that may change a follower's state at an instant of a fetch or at an append."""


def families(rules: Sequence[Rule]) -> tuple[int, ...]:
    """Return the family of each rule, as the index in ``rules`` of the family's first rule.

    Raises
    ------
    ValueError
        If a rule names another rule in ``knows_as``, but acts at other instants of a fetch than that rule.
    """
    by_id = {rule.id: rule for rule in rules}
    same = {}
    for rule in rules:
        model = by_id.get(rule.knows_as, rule)
        if _texts_of_rule(rule, OTHER_INSTANTS) != _texts_of_rule(model, OTHER_INSTANTS):
            message = f"{rule.id} cannot know the same as {model.id}, which looks at other instants"
            raise ValueError(message)
        if model is not rule:
            same[_texts_of_rule(rule, INSTANTS)] = _texts_of_rule(model, INSTANTS)
    found = [same.get(texts, texts) for texts in (_texts_of_rule(rule, INSTANTS) for rule in rules)]
    return tuple(found.index(texts) for texts in found)


def params_of_knowing(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Return the names of the rules' parameters that affect a follower's state: those that functions in INSTANTS read.

    Only parameters that a rule declares (``Rule.params``) are included.
    """
    names = {name for rule in rules for name in rule.params}
    read = set().union(*(_attributes_read(getattr(rule, name)) for rule in rules for name in INSTANTS))
    return tuple(sorted(names & read))


def _texts_of_rule(rule: Rule, names: Sequence[str]) -> tuple[object, ...]:
    """Return a comparable form of the code of a rule's functions ``names``."""
    return tuple(compiled_text(getattr(rule, name)) for name in names)


def _attributes_read(function: Callable[..., Any]) -> set[str]:
    """Return the names of record fields that a rule's function reads, directly or in functions that it calls."""
    python = getattr(function, "py_func", None)
    if python is None:
        return set()
    steps = list(get_instructions(python.__code__))
    called = [python.__globals__.get(step.argval) for step in steps if step.opname == "LOAD_GLOBAL"]
    return set().union({step.argval for step in steps if step.opname == "LOAD_ATTR"}, *map(_attributes_read, called))


FAMILIES = families(tuple(REGISTRY.values()))
