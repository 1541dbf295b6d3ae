"""Each rule is whole in its own file; functions that releases and proposals share are held equal here."""

import ast
from pathlib import Path

import pytest

import udfs.rules

FOLDER = Path(udfs.rules.__file__).parent
FILES = {file.stem: file for file in FOLDER.glob("*.py") if file.stem not in ("__init__", "base")}

SHRINKS_AS_3_7 = "kafka_19996_expand no_shrink_under_min_isr peer_outlier transfer_at_min_isr"
SINCE_3_3 = f"kafka_3_3 kafka_3_7 kafka_10853_hw shulou_braked {SHRINKS_AS_3_7}"
PENDING = "kip_501_pending kip_501_relinquish"
OTHER_SILENCE = "leader_health phi_accrual"
AS_3_7 = f"kafka_3_7 kafka_10853_hw kafka_10853_acked shulou_braked {PENDING} {OTHER_SILENCE} {SHRINKS_AS_3_7}"
JOINS_AS_3_7 = AS_3_7.replace("kafka_19996_expand ", "")

EQUAL = [
    ("begin_term", "kafka_2_7 kafka_4485_design"),
    ("begin_term", f"{SINCE_3_3} {PENDING}"),
    ("begin_term", "majority true_lag"),
    ("record_caught_up", f"kafka_0_10_2 kafka_2_1 kafka_2_7 kafka_4485_design {SINCE_3_3} {OTHER_SILENCE}"),
    ("on_recorded", f"{SINCE_3_3} leader_health"),
    ("out_of_sync", "kafka_0_9 kafka_0_10_2 kip_16_catch_up_time"),
    ("out_of_sync", f"kafka_2_1 kafka_2_7 kafka_3_3 kafka_3_7 {SHRINKS_AS_3_7}"),
    ("out_of_sync", "kafka_4485_design true_lag"),
    ("may_join", "kafka_0_8 kafka_0_9 kip_16_catch_up_time"),
    ("may_join", "kafka_2_1 kafka_2_7"),
    ("may_join", f"kafka_3_3 {JOINS_AS_3_7}"),
    ("caught_up", f"{SINCE_3_3} {PENDING} {OTHER_SILENCE}"),
    ("eligible", f"kafka_3_3 {AS_3_7}"),
    ("holds_high_watermark", "kafka_0_8 kafka_0_9 kip_16_catch_up_time true_lag"),
    ("holds_high_watermark", "kafka_0_10_2 kafka_2_1 kafka_2_7"),
    ("holds_high_watermark", AS_3_7),
    ("may_advance", AS_3_7),
    *(
        (name, PENDING)
        for name in ("begin_pending", "on_arrival", "on_read", "on_recorded", "on_completed", "out_of_sync")
    ),
]
"""A function and the rules in which it is the same, oldest release first."""


def functions(rule: str) -> dict[str, str]:
    """Each function of a rule's file without its docstring, by name."""
    found = {}
    for node in ast.parse(FILES[rule].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            assert ast.get_docstring(node), f"{rule}.{node.name} has no docstring"
            node.body = node.body[1:]
            found[node.name] = ast.dump(node)
    return found


@pytest.mark.parametrize(("name", "rules"), EQUAL)
def test_rules_that_share_a_function_have_equal_copies(name: str, rules: str) -> None:
    first, *others = rules.split()
    wanted = functions(first)[name]
    assert [rule for rule in others if functions(rule)[name] != wanted] == []


def test_the_table_names_all_equal_copies() -> None:
    copies: dict[tuple[str, str], set[str]] = {}
    for rule in FILES:
        for name, text in functions(rule).items():
            copies.setdefault((name, text), set()).add(rule)
    found = sorted((name, sorted(rules)) for (name, _), rules in copies.items() if len(rules) > 1)
    assert found == sorted((name, sorted(rules.split())) for name, rules in EQUAL)


@pytest.mark.parametrize("rule", FILES)
def test_no_rule_imports_from_another(rule: str) -> None:
    for node in ast.walk(ast.parse(FILES[rule].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("udfs."):
            assert node.module in ("udfs.jit", "udfs.records", "udfs.rules.base")
