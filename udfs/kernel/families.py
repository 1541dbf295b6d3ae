"""Find families of rules. Under all rules of a family, fetches and appends change a follower's state in the same way.

Two rules are of one family if the functions in INSTANTS have the same code in both, or if one rule declares that it
keeps the same state as the other (``Rule.knows_as``).
"""

from collections.abc import Callable, Sequence
from dis import get_instructions
from typing import Any

from udfs.jit import compiled_text
from udfs.rules import REGISTRY
from udfs.rules.base import Rule

OTHER_INSTANTS = ("on_arrival", "on_read", "on_completed", "on_append", "outvoted")
INSTANTS = ("on_recorded", *OTHER_INSTANTS)
"""Names of the functions of a `Rule` that may change a follower's state when it fetches or when the log grows."""


def families(rules: Sequence[Rule]) -> tuple[int, ...]:
    """Return for each rule the index in ``rules`` of the first rule of its family.

    Rules of one family change the state of followers in the same way (see the module).

    Raises
    ------
    ValueError
        If a rule names another one in ``knows_as``, but their functions differ for an instant other than on_recorded.
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
    """Return the names of the parameters on which a follower's state depends under any of these rules.

    A parameter is returned if a rule declares it (``Rule.params``) and a rule's function for a fetch or an append reads
    it.
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
