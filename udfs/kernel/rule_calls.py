"""Call a function of a rule, such as ``may_join``, from compiled code, where a rule is known by its index in RULES."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from udfs.jit import dispatch_table
from udfs.rules import REGISTRY
from udfs.rules.base import at_high_watermark, never_gives_up, nothing

RULES = tuple(REGISTRY.values())
"""All rules. A rule's code, by which compiled functions refer to it, is its index here."""


def rule_call(name: str) -> Callable[..., Any]:
    """Return a compiled function ``(code, *arguments)`` that calls the function ``name`` of rule ``RULES[code]``."""
    return dispatch_table([getattr(rule, name) for rule in RULES])


def rule_bits(answers: Iterable[bool]) -> np.int64:
    """Return a set of rules as bits: bit i stands for ``RULES[i]`` and is set if the i-th answer is true."""
    return np.int64(sum(1 << code for code, answer in enumerate(answers) if answer))


begin_rule_term = rule_call("begin_term")
on_arrival, on_read, on_recorded = rule_call("on_arrival"), rule_call("on_read"), rule_call("on_recorded")
on_completed, on_append = rule_call("on_completed"), rule_call("on_append")
may_join, out_of_sync, spares = rule_call("may_join"), rule_call("out_of_sync"), rule_call("spares")
at_shrink, outvoted, overdue_at_ms = rule_call("at_shrink"), rule_call("outvoted"), rule_call("overdue_at_ms")
holds_high_watermark, may_advance = rule_call("holds_high_watermark"), rule_call("may_advance")
advances_on_commit, gives_up_at_us = rule_call("advances_on_commit"), rule_call("gives_up_at_us")
acts_in_quiet, acknowledged_end = rule_call("acts_in_quiet"), rule_call("acknowledged_end")

GIVE_UP = rule_bits(rule.gives_up_at_us is not never_gives_up for rule in RULES)
ACKNOWLEDGE_EARLY = rule_bits(rule.acknowledged_end is not at_high_watermark for rule in RULES)
HEED_APPENDS = rule_bits(rule.on_append is not nothing for rule in RULES)
