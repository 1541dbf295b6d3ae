"""The rules' functions as the kernel calls them: one compiled function of each kind, by the rule's code."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from udfs.jit import dispatch_table
from udfs.rules.base import Rule


class RuleCalls(NamedTuple):
    """Each function of a rule as one compiled function that takes the rule's code first."""

    begin_term: Callable[..., Any]
    on_arrival: Callable[..., Any]
    on_read: Callable[..., Any]
    on_recorded: Callable[..., Any]
    on_completed: Callable[..., Any]
    on_append: Callable[..., Any]
    may_join: Callable[..., Any]
    out_of_sync: Callable[..., Any]
    spares: Callable[..., Any]
    at_shrink: Callable[..., Any]
    outvoted: Callable[..., Any]
    overdue_at_ms: Callable[..., Any]
    holds_high_watermark: Callable[..., Any]
    may_advance: Callable[..., Any]
    advances_on_commit: Callable[..., Any]
    gives_up_at_us: Callable[..., Any]
    acts_in_quiet: Callable[..., Any]


def rule_calls(rules: Sequence[Rule]) -> RuleCalls:
    """Tables of the rules' functions, by position in ``rules``."""
    return RuleCalls(*(dispatch_table([getattr(rule, name) for rule in rules]) for name in RuleCalls._fields))
