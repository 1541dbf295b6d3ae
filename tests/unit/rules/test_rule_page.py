"""``rules show`` prints a whole rule: every function and constant that it uses, and the origin of each."""

import ast
import builtins
import symtable

import pytest

from isr_batch.rule_page import COMMON, RuleFunction, functions_of_rule
from udfs.rules import REGISTRY, module_of


def names_used(function: RuleFunction) -> set[str]:
    """Global names of a function, as its code is printed."""
    (scope,) = symtable.symtable(function.code, function.name, "exec").get_children()
    return {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()} - set(dir(builtins))


@pytest.mark.parametrize("rule", REGISTRY)
def test_a_page_has_all_that_its_functions_use(rule: str) -> None:
    shown = functions_of_rule(REGISTRY[rule])
    names = {"np"} | {each.name for each in shown}
    names |= {f"{module_of(each.origin)}_{each.name}" for each in shown}
    names |= {name for each in shown for name in each.constants}
    assert {each.name: left for each in shown if (left := names_used(each) - names)} == {}
    assert all(each.what and ast.parse(each.code) for each in shown)


def test_a_proposal_shows_its_own_functions_and_those_of_its_bases() -> None:
    origins = {each.name: each.origin for each in functions_of_rule(REGISTRY["kip-501-relinquish"])}
    assert origins["gives_up_at_us"] == "kip-501-relinquish"
    assert (origins["on_arrival"], origins["begin_pending"]) == ("kip-501-pending", "kip-501-pending")
    assert (origins["may_join"], origins["eligible"], origins["advances_on_commit"]) == (
        "kafka-3.7",
        "kafka-3.7",
        COMMON,
    )


def test_a_rule_that_calls_the_function_of_its_base_shows_both() -> None:
    shown = functions_of_rule(REGISTRY["leader-health"])
    assert [each.origin for each in shown if each.name == "begin_term"] == ["kafka-3.7", "leader-health"]


def test_a_released_rule_is_whole_in_its_own_file() -> None:
    released = [rule for rule in REGISTRY.values() if rule.kind == "released"]
    assert [r.id for r in released if {each.origin for each in functions_of_rule(r)} - {r.id, COMMON}] == []
