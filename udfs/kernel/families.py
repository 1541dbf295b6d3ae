"""Find families of rules: under all rules of a family, a fetch or an append changes a follower's state in the same way.

Two rules are of one family if their functions have the same code, or if one declares it (``Rule.knows_as``).
"""

from collections.abc import Callable, Sequence
from dis import get_instructions
from typing import Any

from udfs.jit import compiled_text
from udfs.rules import REGISTRY
from udfs.rules.base import Rule

OTHER_INSTANTS = ("on_arrival", "on_read", "on_completed", "on_append", "outvoted")
INSTANTS = ("on_recorded", *OTHER_INSTANTS)
"""Names of the rule functions that change a follower's state at an instant of a fetch or an append."""


def families(rules: Sequence[Rule]) -> tuple[int, ...]:
    """Return the family of each rule: the index in ``rules`` of the family's first rule.

    Raises
    ------
    ValueError
        If a rule declares that it knows the same as another rule, but acts at other instants of a fetch.
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
    """Return the names of the parameters that the functions in INSTANTS read, of any rule."""
    names = {name for rule in rules for name in rule.params}
    read = set().union(*(_attributes_read(getattr(rule, name)) for rule in rules for name in INSTANTS))
    return tuple(sorted(names & read))


def _texts_of_rule(rule: Rule, names: Sequence[str]) -> tuple[object, ...]:
    """Return the code of a rule's functions ``names``, to compare it with that of another rule."""
    return tuple(compiled_text(getattr(rule, name)) for name in names)


def _attributes_read(function: Callable[..., Any]) -> set[str]:
    """Return the names of the record fields that a rule's function reads, directly or in functions that it calls."""
    python = getattr(function, "py_func", None)
    if python is None:
        return set()
    steps = list(get_instructions(python.__code__))
    called = [python.__globals__.get(step.argval) for step in steps if step.opname == "LOAD_GLOBAL"]
    return set().union({step.argval for step in steps if step.opname == "LOAD_ATTR"}, *map(_attributes_read, called))


FAMILIES = families(tuple(REGISTRY.values()))
