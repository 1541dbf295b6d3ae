"""References between rules, and the required parts of every rule file."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.naive_truth import APPEND, FETCH, Row, Term
from tests.strategies import Log, Setting, cases
from tests.unit.kernel.test_kernel_against_naive import START_US, append, fetch, replay, term
from udfs.rules import REGISTRY, rule_of_release

ACKED = "kafka-10853-acked"


def all_appends_with_acks_1(log: Log) -> Log:
    """The same log, where every record is acknowledged as soon as it is there, and known by its append."""
    return log._replace(terms=tuple(_with_acks_1(term) for term in log.terms))


def _with_acks_1(term: Term) -> Term:
    rows, end = [], term.start_offset
    for row in term.rows:
        if row.kind == APPEND:
            end = max(end, row.offset)
            rows.append(row._replace(code=1))
        elif row.kind == FETCH:
            rows.append(row._replace(offset=min(row.offset, end), leader_log_end_offset=-1))
        else:
            rows.append(row)
    return term._replace(rows=tuple(rows), start_high_watermark=term.start_offset, leader_is_new=True)


@settings(max_examples=500, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases(0))
def test_with_acks_1_kafka_10853_decides_as_3_7(case: tuple[Log, Setting]) -> None:
    log, setting = all_appends_with_acks_1(case[0]), case[1]._replace(flags=())
    acked, today = replay(log, [setting._replace(rule=ACKED), setting._replace(rule="kafka-3.7")])
    assert acked == today


def shrinks(rows: tuple[Row, ...], rule: str) -> list[tuple[int, int]]:
    """``(ms since the start, replica)``."""
    (result,) = replay(Log((term(*rows, end_us=START_US + 10_000_000),)), [Setting(rule, 1000)])
    return [
        ((change.time_us - START_US) // 1000, change.replica_id)
        for change in result["changes"]
        if change.kind == "shrink"
    ]


def test_kip_16_keeps_a_follower_that_reads_a_burst_in_time(record_property: Any) -> None:
    """It is 3000 behind and moves 5000 in 500 ms: 300 ms more. 0.9 has not seen it at the log end at all."""
    rows: list[Row] = []
    for n in range(20):
        rows += append(n * 500_000, 5000 * (n + 1) + 3000), fetch(n * 500_000 + 1000, 2, 5000 * (n + 1))
        rows.append(fetch(n * 500_000 + 2000, 3, 5000 * (n + 1) + 3000))
    assert shrinks(tuple(rows), "kip-16-catch-up-time") == []
    assert shrinks(tuple(rows), "kafka-0.9")[0] == (2000, 2)
    record_property("rule", "kip-16-catch-up-time")
    record_property("witness", "example")


def test_kip_16_drops_a_follower_whose_pace_will_not_do(record_property: Any) -> None:
    """It moves 1000 in 500 ms and is 2500 behind: 1250 ms, from its second fetch on."""
    rows: list[Row] = [append(0, 100_000, acks=1)]
    for n in range(20):
        rows += append(n * 500_000 + 1, 100_000 + 1000 * n + 2500), fetch(n * 500_000 + 1000, 2, 100_000 + 1000 * n)
        rows.append(fetch(n * 500_000 + 2000, 3, 100_000 + 1000 * n + 2500))
    assert shrinks(tuple(rows), "kip-16-catch-up-time") == [(1000, 2)]
    record_property("rule", "kip-16-catch-up-time")
    record_property("witness", "example")


def test_shulou_gives_a_replica_that_has_joined_a_minute(record_property: Any) -> None:
    """It joins at 1 s and lacks a record from 2 s on; 3.7 drops it at 2.5 s, the brakes hold until 61 s."""
    rows = fetch(1_000_000, 2, 0), append(1_400_000, 1)
    log = Log((term(*rows, isr=(1, 3), end_us=START_US + 100_000_000),))
    brakes = (("isr_change_brake_ms", 5000), ("isr_write_brake_ms", 60_000))
    braked, today = replay(log, [Setting("shulou-braked", 1000, flags=brakes), Setting("kafka-3.7", 1000)])
    left = [
        [(c.time_us - START_US) // 1000 for c in result["changes"] if c.kind == "shrink" and c.replica_id == 2]
        for result in (braked, today)
    ]
    assert left == [[61_500], [2_500]]
    record_property("rule", "shulou-braked")
    record_property("witness", "example")


@pytest.mark.parametrize("rule", REGISTRY.values(), ids=list(REGISTRY))
def test_a_rule_has_its_story(rule: Any) -> None:
    assert rule.doc.startswith(f"{rule.id}: ")
    assert rule.summary.endswith(".")
    assert "Source: " in rule.doc
    assert all(param.default is not None for param in rule.params.values())


@pytest.mark.parametrize(
    ("release", "rule"),
    [
        ("0.8.2.2", "kafka-0.8"), ("0.10.1.1", "kafka-0.9"), ("0.10.2.0", "kafka-0.10.2"), ("2.0.1", "kafka-0.10.2"),
        ("2.6.3", "kafka-2.1"), ("3.2.3", "kafka-2.7"), ("3.6.2", "kafka-3.3"), ("4.1.0", "kafka-3.7"),
    ],
)  # fmt: skip
def test_a_release_runs_the_newest_rule_that_is_not_newer(release: str, rule: str) -> None:
    assert rule_of_release(release) == rule
