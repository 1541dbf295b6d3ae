"""Where two rules part, in words and on a worked log."""

import json
from itertools import combinations
from typing import Any

import pytest

from isr_batch.simulation.parting_logs import WORKED_LOGS
from isr_batch.simulation.rule_difference import DECISIONS, WORDS, first_rule_difference, rule_difference_in_words
from tests.strategies import Log, Setting
from tests.unit.command_line import Run
from tests.unit.kernel.test_invariants_naive import replay
from tests.unit.kernel.test_worked_examples import term, us
from udfs.rules import REGISTRY

NO_MORE = "nothing from here on"


def decided(rule: str, number: int) -> tuple[Any, ...]:
    """What the naive model makes of a worked log: changes, and moves of the high watermark."""
    example = WORKED_LOGS[number]()
    flags = tuple((name, param.default or 0) for name, param in REGISTRY[rule].params.items())
    setting = Setting(rule, example.lag_time_max_ms, example.min_insync_replicas, 0, flags)
    results = replay(Log((term(example),)), setting)
    marks = [(row.time_us, row.high_watermark) for row in results.partition]
    moves = [mark for n, mark in enumerate(marks) if n == 0 or mark[1] != marks[n - 1][1]]
    return [(change.time_us, change.kind, change.replica_id) for change in results.changes], moves


@pytest.mark.parametrize(
    ("a", "b", "asked"),
    [
        ("kafka-3.7", "kafka-19996-expand", ["may_join"]),
        ("kafka-3.7", "peer-outlier", ["spares"]),
        ("kafka-3.7", "kip-501-relinquish", [
            "on_recorded", "out_of_sync", "on_arrival", "on_read", "on_completed", "gives_up_at_us", "params",
        ]),
        ("no-shrink-under-min-isr", "transfer-at-min-isr", ["at_shrink", "params"]),
        ("kafka-3.7", "kafka-3.7", []),
    ],
)  # fmt: skip
def test_words_are_of_the_functions_that_differ(a: str, b: str, asked: list[str]) -> None:
    rows = rule_difference_in_words(REGISTRY[a], REGISTRY[b])
    assert [row["asked"] for row in rows] == asked
    assert all(row.keys() == set(WORDS) and row["a"] != row["b"] for row in rows)


@pytest.mark.parametrize(
    ("a", "b", "at_ms", "what"),
    [
        ("kafka-3.7", "kip-501-pending", 15_000, {("kafka-3.7", "shrink"), ("kip-501-pending", NO_MORE)}),
        ("kafka-3.7", "kafka-19996-expand", 1000, {("kafka-3.7", "expand")}),
        ("kafka-3.7", "leader-health", 15_000, {("kafka-3.7", "shrink"), ("leader-health", NO_MORE)}),
        ("no-shrink-under-min-isr", "transfer-at-min-isr", 15_000, {
            ("no-shrink-under-min-isr", NO_MORE), ("transfer-at-min-isr", "relinquish"),
        }),
    ],
)  # fmt: skip
def test_where_they_part(a: str, b: str, at_ms: int, what: set[tuple[str, str]]) -> None:
    found = first_rule_difference(REGISTRY[a], REGISTRY[b])
    assert found is not None
    assert found.at_s == at_ms / 1000
    assert {(row["rule"], row["what"]) for row in found.decisions if row["at_s"] == found.at_s} == what
    assert all(row.keys() == set(DECISIONS) for row in found.decisions)


def test_rules_diff_tells_it(isr_batch: Run) -> None:
    code, out, _ = isr_batch("rules", "diff", "kafka-3.7", "kip-501-pending", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["asked"] for row in rows if "asked" in row][-1] == "params"
    assert {"worked_log": WORKED_LOGS[0]().says, "parts_after_s": 15.0} in rows
    assert [row["replica"] for row in rows if row.get("what") == "shrink"] == [1002, 1003]
    code, out, _ = isr_batch("rules", "diff", "kafka-2.1", "kafka-3.3")
    assert code == 0
    assert "no log shows a difference" in out


def test_a_rule_does_not_part_from_itself() -> None:
    assert first_rule_difference(REGISTRY["kafka-3.7"], REGISTRY["kafka-3.7"]) is None


def test_all_but_two_part_on_some_log() -> None:
    """2.1 and 3.3 differ by epochs, eligibility and the time that an ISR write takes: nothing that a worked log has."""
    numbers = [n for n, made in enumerate(WORKED_LOGS) if made().end_ms <= 100_000]
    found = {rule: [decided(rule, n) for n in numbers] for rule in REGISTRY}
    assert [pair for pair in combinations(REGISTRY, 2) if found[pair[0]] == found[pair[1]]] == [
        ("kafka-2.1", "kafka-3.3")
    ]


def test_the_naive_model_parts_where_the_kernel_does() -> None:
    a, b = "kafka-3.7", "kafka-19996-expand"
    found = first_rule_difference(REGISTRY[a], REGISTRY[b])
    assert found is not None
    (number,) = [n for n, made in enumerate(WORKED_LOGS) if made() == found.example]
    assert all(decided(a, n)[0] == decided(b, n)[0] for n in range(number) if WORKED_LOGS[n]().end_ms <= 100_000)
    ours, theirs = decided(a, number)[0], decided(b, number)[0]
    told = [(us(round(1000 * row["at_s"])), row["what"], row["replica"]) for row in found.decisions]
    assert told == sorted([*ours[:5], *theirs[:5]], key=lambda row: row[0])
