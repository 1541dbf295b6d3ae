"""The whole way on the shipped samples: real brokers' logs in, the brokers' own decisions as the measure."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from isr_batch.lake.duckdb_engine import InProcess
from isr_batch.lake.lake import Lake
from isr_batch.scoring.broker_check import summary
from isr_batch.scoring.score_sources import REFUSED_OR_STALLED_US
from udfs.rules import ALL_RULES

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "shrinks.csv"
GOLDEN_COLUMNS = ("cluster_id", "rule", "verdict", "primary_cause", "made_by", "shrinks")


def rows(lake: Lake, table: str, condition: str = "true") -> list[dict[str, Any]]:
    return [row.asDict() for row in lake.read(table).where(condition).collect()]


def test_no_line_is_refused(sample_lake: Lake) -> None:
    assert sample_lake.read("quarantine").where("NOT rows_kept").isEmpty()
    assert sample_lake.read("ingested_files").where("kind = 'request'").count() == 12


def test_every_logged_shrink_is_replayed_and_none_invented(sample_lake: Lake) -> None:
    counted = sample_lake.read("replay_check").where("kind = 'shrink'").groupBy("cluster_id", "status").count()
    counts = {(row["cluster_id"], row["status"]): row["count"] for row in counted.collect()}
    assert counts == {("leader-stop", "matched"): 86, ("follower-stop", "matched"): 58}
    # Leader 2 woke up at 16:32:43.021: its check came to busy-4 at .023, and so did the append that the followers lack.
    # Its Shrinking line names the log end with that append: it came first.
    same_moment = rows(
        sample_lake, "isr_changes",
        "rule = 'kafka-3.7' AND topic = 'busy' AND partition_id = 4 AND kind = 'shrink' AND "
        "change_time BETWEEN '2026-11-21 16:32:43.023' AND '2026-11-21 16:32:43.024'",
    )  # fmt: skip
    assert {row["certainty"] for row in same_moment} == {"certain"}
    assert len(same_moment) == 2


def test_offsets_and_times_behind_each_shrink_are_the_brokers_own(sample_lake: Lake) -> None:
    matched = rows(sample_lake, "replay_check", "kind = 'shrink' AND status = 'matched'")
    assert all(abs(row["last_caught_up_error_ms"]) <= 2 for row in matched)
    for name in ("follower_log_end_offset", "leader_log_end_offset", "high_watermark"):
        assert all(row[f"observed_{name}"] == row[f"replayed_{name}"] for row in matched), name


def test_statements_of_the_readme_about_the_samples(sample_lake: Lake, record_property: Any) -> None:
    counts: dict[str, Counter[str]] = {"shrink": Counter(), "expand": Counter()}
    for row in summary(sample_lake).rows:
        counts[row["kind"]].update({status: row[status] for status in ("matched", "missing", "extra")})
    assert counts["shrink"] == {"matched": 144, "missing": 0, "extra": 0}
    record_property("recorded", "data/samples")
    record_property("release", "4.1.0")
    record_property("rule", "kafka-3.7")
    record_property("counts", counts)


def test_expands_are_replayed_where_the_controller_recorded_them(sample_lake: Lake) -> None:
    checked = rows(sample_lake, "replay_check", "kind = 'expand'")
    close = [row for row in checked if row["status"] == "matched" and abs(row["time_error_ms"]) <= 100]
    assert len(close) >= 0.95 * len(checked)


def test_followers_dropped_by_a_leader_that_woke_up_are_spurious(sample_lake: Lake) -> None:
    woken = (
        sample_lake.read("broker_events")
        .where("kind = 'silent'")
        .select("cluster_id", F.col("broker_id").alias("leader_id"), "end_time")
    )
    dropped = (
        sample_lake.read("shrink_verdicts")
        .where("cluster_id = 'leader-stop' AND rule = 'kafka-3.7'")
        .join(woken, ["cluster_id", "leader_id"])
        .where("change_time BETWEEN end_time AND end_time + INTERVAL 100 MILLISECONDS")
        .collect()
    )
    assert dropped
    assert {row["verdict"] for row in dropped} == {"spurious"}
    # Some lack nothing, or what was appended when the leader woke up; these arguments come first.
    primary = Counter(row["primary_cause"] for row in dropped)
    assert primary == {"slow_leader": 15, "keeping_pace": 2, "caught_up": 1}


def test_a_follower_that_stopped_is_a_genuine_failure(sample_lake: Lake) -> None:
    dropped = rows(sample_lake, "shrink_verdicts", "cluster_id = 'follower-stop' AND rule = 'kafka-3.7'")
    assert {(row["verdict"], row["primary_cause"]) for row in dropped} == {("genuine", "follower_stopped")}


def test_removals_by_the_controller_are_not_mistakes(sample_lake: Lake) -> None:
    removed = rows(sample_lake, "shrink_verdicts", "cluster_id = 'restart' AND rule = 'kafka-3.7'")
    assert {(row["made_by"], row["verdict"]) for row in removed} == {("controller", "excluded")}


def test_shrinks_of_every_rule_are_those_of_the_golden_table(sample_lake: Lake) -> None:
    counted = (
        sample_lake.read("shrink_verdicts").groupBy(*GOLDEN_COLUMNS[:-1]).agg(F.count("*").alias("shrinks")).collect()
    )
    found = sorted(tuple(str(row[name]) for name in GOLDEN_COLUMNS) for row in counted)
    with GOLDEN.open(encoding="utf-8") as file:
        assert found == [tuple(row) for row in csv.reader(file)]


def test_costs_are_those_of_the_timelines(sample_lake: Lake) -> None:
    """Every integral again, in SQL: a state lasts until the next one, the last one until the term ends."""
    costs = (
        "exposure_us", "under_min_isr_us", "leader_alone_us", "under_replicated_us", "high_watermark_stalled_us",
        "refused_or_stalled_us",
    )  # fmt: skip
    with InProcess(sample_lake) as engine:
        names = ("partition_timeline", "leader_epochs", "partition_scores")
        tables = {name: engine.table(name) for name in names}
        again = """
        WITH spans AS (
          SELECT s.*, size(assigned) AS replicas, least(min_insync_replicas, size(assigned)) AS wanted,
            unix_micros(lead(time, 1, end_time) OVER (
              PARTITION BY s.cluster_id, s.topic, s.partition_id, s.leader_epoch, s.leader_id, rule, start_time
              ORDER BY time, leader_log_end_offset, high_watermark
            )) - unix_micros(time) AS us
          FROM {partition_timeline} s
          -- A leader that restarts may take up its former epoch again: two terms of one key.
          JOIN {leader_epochs} e ON s.cluster_id = e.cluster_id AND s.topic = e.topic
            AND s.partition_id = e.partition_id AND s.leader_epoch = e.leader_epoch AND s.leader_id = e.leader_id
            AND time BETWEEN start_time AND end_time
        )
        SELECT cluster_id, rule, sum(us) AS exposure_us, sum(us) FILTER (WHERE size(isr) < wanted) AS under_min_isr_us,
          sum(us) FILTER (WHERE size(isr) = 1) AS leader_alone_us,
          sum(us) FILTER (WHERE size(isr) < replicas) AS under_replicated_us,
          sum(us) FILTER (WHERE high_watermark < leader_log_end_offset) AS high_watermark_stalled_us,
          sum(us) FILTER (WHERE high_watermark < leader_log_end_offset OR size(isr) < wanted) AS refused_or_stalled_us
        FROM spans GROUP BY ALL
        """
        summed = ", ".join(f"sum({cost}) AS {cost}" for cost in costs)
        counted = f"""
            SELECT cluster_id, rule, {summed}
            FROM (SELECT *, {REFUSED_OR_STALLED_US} AS refused_or_stalled_us FROM {{partition_scores}}) GROUP BY ALL
        """
        by_text = [engine.listed(engine(text, **tables)) for text in (counted, again)]
    found, expected = ({(row["cluster_id"], row["rule"]): [row[name] or 0 for name in costs] for row in rows}
                       for rows in by_text)  # fmt: skip
    assert found == expected
    assert len(found) == 4 * len(ALL_RULES)
    assert sum(stalled for *_, stalled in found.values()) > 0


def test_scores_add_up_and_true_lag_is_always_right(sample_lake: Lake) -> None:
    totals = {
        (row["cluster_id"], row["rule"]): row
        for row in rows(sample_lake, "rule_scores", "event_date IS NULL AND topic IS NULL")
    }
    for judged in sample_lake.read("shrink_verdicts").groupBy("cluster_id", "rule", "verdict").count().collect():
        assert totals[judged["cluster_id"], judged["rule"]][judged["verdict"]] == judged["count"]
    assert len(totals) == 4 * len(ALL_RULES)
    for (cluster, rule), row in totals.items():
        best = totals[cluster, "true-lag"]
        assert best["query_accuracy"] == 1.0
        assert best["misses"] == 0
        assert row["query_accuracy"] <= 1.0, rule
        assert row["leader_outside_isr"] == row["isr_outside_assignment"] == row["high_watermark_decreases"] == 0
    shrinks = {key: row["shrinks"] for key, row in totals.items()}
    by_topic = sample_lake.read("rule_scores").where("event_date IS NULL AND topic IS NOT NULL")
    by_broker = sample_lake.read("rule_scores_by_broker").where("event_date IS NULL")
    by_follower = by_broker.where("replica_id IS NOT NULL")
    assert by_follower.where("under_replicated_seconds IS NOT NULL OR metadata_writes IS NOT NULL").isEmpty()
    for parts in by_topic, by_broker.where("leader_id IS NOT NULL"), by_follower:
        summed = parts.groupBy("cluster_id", "rule").agg(F.sum("shrinks").alias("n")).collect()
        assert {(row["cluster_id"], row["rule"]): row["n"] for row in summed} == shrinks


def test_timelines_keep_the_invariants_of_every_rule(sample_lake: Lake) -> None:
    partition = sample_lake.read("partition_timeline")
    assert partition.where("NOT array_contains(isr, leader_id)").isEmpty()
    assert partition.where("high_watermark > leader_log_end_offset").isEmpty()
