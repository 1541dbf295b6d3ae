"""Each release is whole in its own file, with equal copies; a proposal states only the functions that differ."""

import ast
from dataclasses import fields
from pathlib import Path

import pytest

import udfs.rules
from udfs.jit import Kernel, compiled_text
from udfs.rules import BASELINE, REGISTRY, Rule, module_of

FOLDER = Path(udfs.rules.__file__).parent
MODULES = {
    module_of(rule.id): ast.parse((FOLDER / f"{module_of(rule.id)}.py").read_text()) for rule in REGISTRY.values()
}
HOOKS = [field.name for field in fields(Rule) if isinstance(getattr(REGISTRY[BASELINE], field.name), Kernel)]
RELEASED = [module_of(rule.id) for rule in REGISTRY.values() if rule.kind == "released"]

EQUAL = [
    ("begin_term", "kafka_3_3 kafka_3_7"),
    ("begin_term", "majority true_lag"),
    ("record_caught_up", "kafka_0_10_2 kafka_2_1 kafka_2_7 kafka_3_3 kafka_3_7"),
    ("on_recorded", "kafka_3_3 kafka_3_7"),
    ("out_of_sync", "kafka_0_9 kafka_0_10_2"),
    ("out_of_sync", "kafka_2_1 kafka_2_7 kafka_3_3 kafka_3_7"),
    ("out_of_sync", "kafka_4485_design true_lag"),
    ("may_join", "kafka_0_8 kafka_0_9"),
    ("may_join", "kafka_2_1 kafka_2_7"),
    ("may_join", "kafka_3_3 kafka_3_7"),
    ("caught_up", "kafka_3_3 kafka_3_7"),
    ("eligible", "kafka_3_3 kafka_3_7"),
    ("holds_high_watermark", "kafka_0_8 kafka_0_9 true_lag"),
    ("holds_high_watermark", "kafka_0_10_2 kafka_2_1 kafka_2_7"),
    ("holds_high_watermark", "kafka_3_7 kafka_10853_acked"),  # each with its own caught_up
]
"""A function and the rules in which it is the same, oldest release first."""


def functions(rule: str) -> dict[str, str]:
    """Each function of a rule's file without its docstring, by name."""
    found = {}
    for node in MODULES[rule].body:
        if isinstance(node, ast.FunctionDef):
            assert ast.get_docstring(node), f"{rule}.{node.name} has no docstring"
            found[node.name] = "".join(map(ast.dump, (node.args, *node.body[1:])))
    return found


def test_the_table_names_all_equal_copies() -> None:
    copies: dict[tuple[str, str], set[str]] = {}
    for rule in MODULES:
        for name, text in functions(rule).items():
            copies.setdefault((name, text), set()).add(rule)
    found = sorted((name, sorted(rules)) for (name, _), rules in copies.items() if len(rules) > 1)
    assert found == sorted((name, sorted(rules.split())) for name, rules in EQUAL)


@pytest.mark.parametrize("rule", MODULES)
def test_a_release_imports_from_no_rule_and_another_rule_from_one(rule: str) -> None:
    imported = {node.module for node in ast.walk(MODULES[rule]) if isinstance(node, ast.ImportFrom)}
    rules = {module for module in imported if module and module.removeprefix("udfs.rules.") in MODULES}
    assert len(rules) <= (rule not in RELEASED)
    assert {module for module in imported - rules if module and module.startswith("udfs.")} <= {
        "udfs.jit", "udfs.records", "udfs.rules.base",
    }  # fmt: skip


@pytest.mark.parametrize("hook", HOOKS)
def test_a_function_that_rules_share_is_compiled_once(hook: str) -> None:
    """An inherited function is the one of the base, so equal texts beyond the base's file are copies of releases."""
    texts: dict[object, set[str]] = {}
    for rule in REGISTRY.values():
        function = getattr(rule, hook)
        texts.setdefault(compiled_text(function), set()).add(function.__module__)
    by_hand = {f"udfs.rules.{rule}" for name, rules in EQUAL if name == hook for rule in rules.split()}
    assert [modules for modules in texts.values() if len(modules) > 1 and not modules <= by_hand] == []
