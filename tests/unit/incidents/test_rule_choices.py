"""Decisions of other rules, and their price; all numbers by hand."""

from typing import Any

import pyarrow as pa
import pytest

from isr_batch.incidents.better_rule import better_rule
from isr_batch.incidents.rule_choices import order_scores_for_choices, rule_choices
from tests.own_shrinks_log import Log, Row, leader_was_silent


@pytest.fixture
def log() -> Log:
    return Log()


def score(rule: str, spurious: int, misses: int, detection: float | None, lag_time_ms: int = 4000, **more: Any) -> Row:
    return {
        "cluster_id": "c", "rule": rule, "params_json": f'{{"replica_lag_time_max_ms": {lag_time_ms}}}',
        "shrinks": spurious + 3, "spurious": spurious, "genuine": 3, "excluded": 0, "unknown": 0, "misses": misses,
        "detection_ms_p99": detection, "under_min_isr_seconds": 1.0, "high_watermark_stalled_seconds": 2.0,
        "offline_if_leader_dies_seconds": 1.0, "lost_if_leader_dies_records_max": None, "loss_records_max": 0,
        "relinquishes": 0, **more,
    }  # fmt: skip


def test_remedies_begin_with_the_brokers_own_rule(log: Log) -> None:
    leader_was_silent(log)
    rows = [
        score("kafka-3.7", 4, 0, 5000),
        score("kafka-2.1", 4, 0, 5000, under_min_isr_seconds=0.96),  # decides like kafka-3.7, and costs as much
        score("kafka-0.9", 4, 0, 5000, lost_if_leader_dies_records_max=8),  # decides like kafka-3.7, and costs more
        score("kip-501-pending", 0, 0, 5000),
        score("kafka-10853-acked", 2, 5, 3000),  # sooner, and misses some
        score("kafka-4485-design", 40, 0, 2000),  # sooner still, and no way to avoid what the brokers did
        score("kip-16-catch-up-time", 9, 0, 6000),  # beaten by 3.7
        score("kafka-10853-hw", 0, 7, None),  # beaten by pending; the reference beats no rule that a broker can run
        score("true-lag", 0, 0, 4000),
    ]
    choices = rule_choices(log.found(), order_scores_for_choices(pa.Table.from_pylist(rows)), "c")
    assert [(one.runs, one.yours) for one in choices] == [
        (["kafka-2.1", "kafka-3.7"], ["kafka-3.7"]),
        (["kip-501-pending"], []),
        (["kafka-10853-acked"], []),
        (["true-lag"], []),
    ]
    assert choices[0].under_min_isr_s == (0.96, 1.0)
    assert [one.reference for one in choices] == [False, False, False, True]


def said_of(log: Log, *rows: Row) -> list[str]:
    return better_rule(
        log.found(), order_scores_for_choices(pa.Table.from_pylist([score("kafka-3.7", 4, 0, 5000), *rows])), "c"
    )


def test_the_cheapest_of_the_rules_that_keep_the_healthy_followers(log: Log) -> None:
    leader_was_silent(log)
    free: Row = {"under_min_isr_seconds": 0.0, "offline_if_leader_dies_seconds": 0.0}
    hands_over = score("transfer-at-min-isr", 0, 0, 5000, **free, relinquishes=2)
    (said,) = said_of(log, hands_over, score("kafka-10853-hw", 0, 9, None, **free))
    assert said == (
        "transfer-at-min-isr (in no release of Kafka) would have kept all 4 healthy followers: same "
        "detection time; under min ISR: 0 s instead of 1 s; offline if leaders had died: 0 s instead of 1 s; "
        "leadership given up twice."
    )
    alike = [score(rule, 0, 0, 5000, **free) for rule in ("kip-501-pending", "kafka-0.9", "kafka-3.3", "peer-outlier")]
    (said,) = said_of(log, hands_over, alike[0], alike[-1])
    assert said.startswith(
        "kip-501-pending or peer-outlier (in no release of Kafka) would have kept all 4 healthy followers: "
    )
    (said,) = said_of(log, hands_over, *alike)
    assert said.startswith("kafka-0.9, kafka-3.3 or 2 others would have kept all 4 healthy followers: ")
    dear: Row = {"lost_if_leader_dies_records_max": 9, "offline_if_leader_dies_seconds": None}
    (said,) = said_of(log, score("phi-accrual", 1, 2, 7000, **dear))
    assert said == (
        "phi-accrual (in no release of Kafka) would have kept 3 of 4 healthy followers: failures detected 2 s later; "
        "failures missed: 2 instead of 0; under min ISR: 1 s; offline if leaders had died: not known instead of 1 s; "
        "acknowledged records lost then: up to 9 instead of none."
    )


def test_a_rule_that_gives_up_leadership_more_often_than_it_keeps_a_follower_is_not_offered(log: Log) -> None:
    leader_was_silent(log)
    often = score("transfer-at-min-isr", 1, 0, 5000, relinquishes=4)
    assert said_of(log, often) == ["Rules that would have kept more of them give up leadership more often than that."]
    (said,) = said_of(log, often, score("kip-501-pending", 2, 0, 5000))
    assert said.startswith("kip-501-pending (in no release of Kafka) would have kept 2 of 4 healthy followers: ")


def test_topics_with_other_min_isr_count_as_well(log: Log) -> None:
    """The scores have them apart, as a rule takes min.insync.replicas for a parameter."""
    leader_was_silent(log)
    rows = []
    for min_isr, own, other, misses in ((1, 3, 0, 0), (2, 1, 1, 3)):
        rows += [score("kafka-3.7", own, 0, 5000), score("kip-501-pending", other, misses, 5000 + min_isr)]
        for row in rows[-2:]:
            row["params_json"] = f'{{"min_insync_replicas": {min_isr}, "replica_lag_time_max_ms": 4000}}'
    for row in log.rows["replay_check"]:
        row["params_json"] = '{"min_insync_replicas": 1, "replica_lag_time_max_ms": 4000}'
    (said,) = better_rule(log.found(), order_scores_for_choices(pa.Table.from_pylist(rows)), "c")
    assert said.startswith(
        "kip-501-pending (in no release of Kafka) drops 1 healthy follower in the replay, in which your rule, "
        "kafka-3.7, drops 4: same detection time; failures missed: 3 instead of 0; under min ISR: 2 s;"
    )


def test_the_rule_of_the_brokers_is_never_offered(log: Log) -> None:
    leader_was_silent(log)
    rows = [score("kafka-3.7", 4, 0, 5000), score("kafka-3.7", 0, 0, 5000), score("kafka-3.7", 1, 0, 5000, 9000)]
    for number, row in enumerate(rows[:2]):
        row["params_json"] = f'{{"min_insync_replicas": {number + 1}, "replica_lag_time_max_ms": 4000}}'
    (said,) = better_rule(log.found(), order_scores_for_choices(pa.Table.from_pylist(rows)), "c")
    assert said.startswith("kafka-3.7 with replica.lag.time.max.ms 9000 would have kept 3 of 4 healthy followers: ")
    # Nothing is known of others.
    assert better_rule(log.found(), order_scores_for_choices(pa.Table.from_pylist(rows[:2])), "c") == []


def test_rules_that_keep_no_more_are_not_offered(log: Log) -> None:
    leader_was_silent(log)
    nothing = ["No rule that a broker could run would have kept more of them."]
    assert said_of(log, score("kafka-19996-expand", 4, 0, 5000, under_min_isr_seconds=0.0)) == nothing
    assert said_of(log, score("true-lag", 0, 0, 4000)) == nothing
    rows = [score("kafka-3.7", 0, 0, 5000), score("kip-501-pending", 0, 0, 5000)]
    assert better_rule(log.found(), order_scores_for_choices(pa.Table.from_pylist(rows)), "c") == []


def test_records_that_an_heir_lacks_are_unknown_under_min_isr_without_offsets() -> None:
    unknown, nobody, never = order_scores_for_choices(pa.Table.from_pylist([
        score("kafka-3.7", 4, 0, 5000, offline_if_leader_dies_seconds=0.5),
        score("kafka-3.7", 4, 0, 5000, 5000),
        score("kafka-3.7", 4, 0, 5000, 6000, under_min_isr_seconds=0.0, loss_records_max=3),
    ]))  # fmt: skip
    assert [row["lost_records"] for row in (unknown, nobody, never)] == [None, 0, 3]


def test_at_most_five_choices(log: Log) -> None:
    leader_was_silent(log)
    rows = [score("kafka-3.7", 50, 0, 99_000)]
    rows += [score("kip-501-pending", number, 0, 10_000 - number, 1000 * number) for number in range(1, 9)]
    choices = rule_choices(log.found(), order_scores_for_choices(pa.Table.from_pylist(rows)), "c")
    assert [one.spurious for one in choices] == [50, 1, 2, 3, 4]
