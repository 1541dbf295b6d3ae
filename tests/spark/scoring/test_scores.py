"""Scores of a few rows, worked out by hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.lake.spark_engine import BySpark
from isr_batch.lake.tables.heirs import ELIGIBLE_LEADERS
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.lake.tables.outputs import ISR_CHANGES, SHRINK_VERDICTS
from isr_batch.lake.tables.scores import PARTITION_SCORES, REPLICA_SCORES, RULE_SCORES
from isr_batch.scoring.notified_changes import notified_at_us
from isr_batch.scoring.scores import AGGREGATES, DERIVED, _sums, scored_by
from tests.spark.test_jobs import put, verdict

DAY = "2026-01-01"
HOUR_US = 3_600_000_000
PARAMS = '{"replica_lag_time_max_ms": 10000}'
RUN = {"rule": "kafka-3.7", "params_json": PARAMS, "event_date": DAY}
OTHER = RUN | {"rule": "kafka-0.9"}


def shrink(second: int, verdict_: str, cause: str, **more: Any) -> dict[str, Any]:
    return verdict("kafka-3.7", verdict_, cause) | RUN | {"change_time": at(second)} | more


def at(second: int) -> str:
    return f"{DAY} 12:{second // 60:02}:{second % 60:02}"


SHRINKS = (
    shrink(1, "spurious", "slow_leader", restored_time=at(5), true_lag_ms=11_000),
    shrink(31, "spurious", "keeping_pace", causes=["keeping_pace", "slow_leader"], restored_time=at(51), true_lag_ms=5),
    shrink(60, "genuine", "follower_stopped", true_lag_ms=12_000, restored_time=at(600)),
    shrink(90, "genuine", "follower_slow", true_lag_ms=16_000),
    shrink(100, "unknown", "unknown", true_lag_ms=0),
    shrink(110, "excluded", "controller", true_lag_ms=0, made_by="controller"),
)


HIDDEN = {
    "lost_by_first_active_max": 7, "lost_by_longest_log_max": 5, "frozen_us": 2_000_000,
    "visibility_age_max_us": 3_000_000, "visibility_age_area": 4.0, "hidden_record_us": 9_000_000,
}  # fmt: skip
"""While there is no clean heir: the oldest hidden record is 1 s old when that begins, and 3 s two seconds later."""


@pytest.fixture(scope="module")
def filled(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    nothing = {c.name: 0 for c in PARTITION_SCORES.columns if c.type == "BIGINT"}
    costs = (
        RUN | nothing | {
            "exposure_us": 24 * HOUR_US, "under_min_isr_us": 5_000_000, "high_watermark_stalled_us": 7_000_000,
            "stalled_under_min_isr_us": 3_000_000,
            "refused_appends": 3, "acknowledged_appends": 100, "never_acknowledged": 1, "isr_writes": 4,
            "acks_all_latency_max_us": 2_050_000,
            "acks_all_waits_1s_us": 1_500_000,
            "acks_all_waits_30s_us": 500_000,
            "acks_all_waits_1s_silent_us": 250_000,
            "acks_all_wait_unknown_us": 600_000_000,
            "acks_all_latencies": [{"latency_ms": 10.0, "appends": 98}, {"latency_ms": 2000.0, "appends": 2}],
            "acks_all_wait_max_us": 10_300_000,
            "acks_all_waits": [
                {"wait_ms": 0.0, "time_us": 90}, {"wait_ms": 2000.0, "time_us": 8}, {"wait_ms": 10_000.0, "time_us": 2},
            ],
            # At the same instant as another, whose name comes first whatever the order of rows.
            "first_violation": "passed_within_lag_time", "first_violation_time": at(7),
        },
        RUN | nothing | {
            "topic": "u", "exposure_us": 12 * HOUR_US, "high_watermark_stalled_us": 1_000_000,
            "loss_exposed_us": 2_000_000, "loss_records_max": 5, "members_below_high_watermark": 1,
            "first_violation": "members_below_high_watermark", "first_violation_time": at(7),
        },
        OTHER | nothing | {"exposure_us": 24 * HOUR_US},
    )  # fmt: skip
    answers = (
        RUN | {"replica_id": 2, "judged_us": 100, "agreed_us": 90, "agreed_by_blame_us": 80, "misses": 1, "early": 1,
               "late_in_isr_us": 3_000_000},
        RUN | dict.fromkeys(("judged_us", "agreed_us", "agreed_by_blame_us"), 100) | {
            "topic": "u", "replica_id": 2, "misses": 0, "early": 0, "late_in_isr_us": 0,
        },
    )  # fmt: skip
    expands = [
        {**s, "kind": "expand", "change_time": s["restored_time"], "isr_before": [1], "isr_after": [1, 2]}
        for s in SHRINKS
        if "restored_time" in s
    ]
    heirs = [
        {**RUN, "topic": topic, "from_time": at(start), "until_time": at(end), "isr": isr, "heir_id": heir,
               "offline_if_leader_dies": offline, "lost_records_max": lost, "elr_source": "recorded", "active": [3],
               **(HIDDEN if topic == "t" and start == 4 else {})}
        for topic, start, end, isr, heir, offline, lost in (
            ("t", 0, 4, [1], 2, False, 8), ("t", 4, 7, [1], None, True, None), ("t", 7, 8, [1, 3], 3, False, 2),
            ("u", 0, 9, [1], None, None, None),
        )
    ]  # fmt: skip
    terms = [
        {**RUN, "topic": topic, "leader_epoch": epoch, "start_time": at(start), "end_time": at(end),
         "begins_mid_term": epoch == 0, "ends_mid_term": epoch == 1, "assigned": [1, 2], "isr_at_start": [1, 2],
         "replica_lag_time_max_ms": 10_000, "min_insync_replicas": 1, "check_origin_ms": 0,
         "check_origin_source": "given"}
        for topic, epoch, start, end in (("t", 0, 0, 10), ("t", 1, 14, 600), ("u", 1, 10, 600))
    ]  # fmt: skip
    lake = Lake(spark_session, str(tmp_path_factory.mktemp("scores")), "test")
    for table, of_table in (
        (LEADER_EPOCHS, terms),
        (ELIGIBLE_LEADERS, heirs),
        (ISR_CHANGES, (*SHRINKS, *expands)),
        (SHRINK_VERDICTS, SHRINKS),
        (PARTITION_SCORES, costs),
        (REPLICA_SCORES, answers),
    ):
        put(lake, table, *of_table)
    return lake


@pytest.fixture(scope="module", params=[InProcess, BySpark])
def rows(filled: Lake, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Scores by topic and in total, by each engine."""
    with request.param(filled) as engine:
        return list(engine.listed(scored_by(engine, [("cluster_id", "event_date", "topic"), ("cluster_id",)])))


def score(rows: list[dict[str, Any]], rule: str = "kafka-3.7", topic: str | None = None) -> dict[str, Any]:
    (found,) = (row for row in rows if row["rule"] == rule and row["topic"] == topic)
    return found


def test_every_column_of_the_table_is_scored() -> None:
    keys = {"cluster_id", "rule", "params_json", "event_date", "topic"}
    of_sources = {name for aggregates in AGGREGATES.values() for name in aggregates}
    assert of_sources | set(DERIVED) == set(RULE_SCORES.column_names) - keys


def test_a_total_of_two_topics(rows: list[dict[str, Any]]) -> None:
    changes = sorted([1, 5, 31, 51, 60, 600, 90, 100])  # not that of the controller
    told = notified_at_us([second * 1_000_000 for second in changes])
    expected = {
        "exposure_partition_hours": 36.0,
        "shrinks": 6,
        "spurious": 2,
        "genuine": 2,
        "excluded": 1,
        "unknown": 1,
        "slow_leader": 2,
        "keeping_pace": 1,
        "follower_stopped": 1,
        "follower_slow": 1,
        "expands": 3,
        "isr_changes": 9,
        "metadata_writes": 4,
        "notifications": len(set(told)),
        "mistakes_per_partition_day": 2 / 1.5,
        "mistake_interval_ms_p50": 30_000.0,
        "mistake_duration_ms_p50": 12_000.0,  # of 4 and 20 s
        "mistake_duration_ms_max": 20_000.0,
        "flaps": 1,  # 4 s; 20 s is longer than the lag time
        "detection_ms_p50": 14_000.0,
        "detection_ms_max": 16_000,
        "precision": 0.5,
        "precision_by_lag": 0.75,  # the slow leader's follower was behind as well
        "query_accuracy_by_blame": 0.9,
        "early": 1,
        "late_in_isr_seconds": 3.0,
        "misses": 1,
        "recall": 0.5,  # 12 s were within 1.5 lag times, 16 s were not and had been missed before
        "query_accuracy": 0.95,
        "under_min_isr_seconds": 5.0,
        "high_watermark_stalled_seconds": 8.0,
        "refused_or_stalled_seconds": 10.0,
        "refused_appends": 3,
        "never_acknowledged": 1,
        "acks_all_latency_ms_p50": 10.0,
        "acks_all_latency_ms_p99": 2000.0,
        "acks_all_latency_ms_max": 2050.0,
        "acks_all_waits_1s_seconds": 1.5,
        "acks_all_waits_30s_seconds": 0.5,
        "acks_all_waits_1s_silent_seconds": 0.25,
        "acks_all_wait_unknown_seconds": 600.0,
        "no_leader_seconds": 4.0,
        "unavailable_1s_share": (5 + 1.5 + 4) / (36 * 3600 + 4 - 600),
        "unavailable_30s_share": (5 + 0.5 + 4) / (36 * 3600 + 4 - 600),
        "acks_all_wait_ms_p50": 0.0,  # up to 1 s
        "acks_all_wait_ms_p99": 10_000.0,
        "acks_all_wait_ms_mean": 360.0,
        "acks_all_wait_ms_max": 10_300.0,
        "loss_records_max": 5,
        "loss_exposed_seconds": 2.0,
        "isr_members_below_high_watermark": 1,
    }
    found = score(rows)
    assert found["first_violation"] == "members_below_high_watermark at 2026-01-01 12:00:07 in u-0, leader epoch 1"
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_a_topic_of_a_day(rows: list[dict[str, Any]]) -> None:
    found = score(rows, topic="u")
    assert (str(found["event_date"]), found["shrinks"], found["precision"]) == (DAY, 0, None)
    assert (found["high_watermark_stalled_seconds"], found["query_accuracy"]) == (1.0, 1.0)
    assert found["acks_all_latency_ms_p99"] is None


def test_cost_of_a_leaders_death(rows: list[dict[str, Any]]) -> None:
    names = ("leader_alone_with_heir_seconds", "offline_if_leader_dies_seconds", "lost_if_leader_dies_records_max")
    of = {topic: tuple(score(rows, topic=topic)[name] for name in names) for topic in ("t", "u", None)}
    assert of == {"t": (4.0, 3.0, 8), "u": (0.0, None, None), None: (4.0, None, 8)}  # u is unknown
    assert tuple(score(rows, rule="kafka-0.9")[name] for name in names) == (0.0, 0.0, None)


def test_cost_of_an_unclean_election_and_of_a_frozen_high_watermark(rows: list[dict[str, Any]]) -> None:
    names = (
        "unclean_needed_seconds", "lost_by_first_active_records_max", "lost_by_longest_log_records_max",
        "high_watermark_frozen_seconds", "visibility_age_ms_max", "visibility_age_ms_mean", "hidden_record_seconds",
    )  # fmt: skip
    of = {topic: tuple(score(rows, topic=topic)[name] for name in names) for topic in ("t", "u", None)}
    frozen = (7, 5, 2.0, 3000.0, 2000.0, 9.0)
    assert of == {"t": (3.0, *frozen), "u": (None,) * 7, None: (None, *frozen)}  # u is unknown


def test_mistakes_of_one_block_come_and_go_together(rows: list[dict[str, Any]]) -> None:
    """Twice a Poisson variable with mean 1: 0 is 37 % of the draws, more than 3 is 2 %, more than 5 none of 200."""
    found = score(rows)
    assert found["mistakes_per_partition_day_low"] == 0
    assert found["mistakes_per_partition_day_high"] * 1.5 in {6.0, 8.0, 10.0}


def test_no_mistake_is_not_none_ever(rows: list[dict[str, Any]]) -> None:
    found = score(rows, rule="kafka-0.9")
    assert (found["shrinks"], found["mistakes_per_partition_day"]) == (0, 0)
    assert (found["mistakes_per_partition_day_low"], found["mistakes_per_partition_day_high"]) == (0, 3)


def test_sums_of_many_blocks_spread_as_poisson_variables_do(lake: Lake) -> None:
    """Of 2,500 blocks with a mistake each: 2,500 on average, and a standard deviation of 50."""
    block = {"cluster_id": "c", **RUN, "leader_id": 1, "replica_id": 2, "verdict": "spurious"}
    shrinks = [{**block, "change_time": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n)} for n in range(2500)]
    with InProcess(lake) as engine:
        verdicts = engine.rows(pa.Table.from_pylist(shrinks))
        rows = engine.listed(_sums(engine, verdicts, ["rule"], "GROUP BY rule, block"))
    sums = np.array([row["mistakes"] for row in rows])
    assert len(sums) == 200
    assert abs(sums.mean() - 2500) < 4 * 50 / 200**0.5
    assert 0.8 < sums.std() / 50 < 1.2
