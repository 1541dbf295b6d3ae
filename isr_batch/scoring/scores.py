"""The scores of rules: the ledger of the replay and the verdicts, summed up over whatever is asked for.

What is known of a rule run comes from a few sources. Each is summed up by itself, in all groupings at once, and what
comes of that is put side by side. Sixty aggregates over the rows of all sources in one frame took two to three times
as long. docs/verdicts.md has the definitions.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.scores import RULE_SCORES, RULE_SCORES_BY_BROKER
from isr_batch.replay.result_tables import replace_together, scored_of
from udfs.kernel.notifications import notified_at_us
from udfs.rules import REGISTRY

Rows = list[dict[str, Any]]

RUN: Final = ("rule", "params_json")
DIMENSIONS: Final = ("cluster_id", *RUN, "event_date", "topic", "leader_id", "replica_id")
FOLLOWER: Final = ("cluster_id", "topic", "partition_id", "replica_id", *RUN)
LAG_TIME_MS: Final = "CAST(get_json_object(params_json, '$.replica_lag_time_max_ms') AS BIGINT)"

REPLICATES: Final = 200
"""Of the bootstrap: enough for a 95 % interval that is told with two digits."""
RULE_OF_THREE: Final = 3.0
"""Upper end of a 95 % interval for the number of events, when none was seen."""


def _seconds(name: str) -> str:
    return f"sum({name}) / 1e6"


AGGREGATES: Final = {
    "costs": {
        "exposure_partition_hours": "sum(exposure_us) / 3.6e9",
        "metadata_writes": "sum(isr_writes)",
        "refused_appends": "sum(refused_appends)",
        "never_acknowledged": "sum(never_acknowledged)",
        "under_min_isr_seconds": _seconds("under_min_isr_us"),
        "at_min_isr_seconds": _seconds("at_min_isr_us"),
        "leader_alone_seconds": _seconds("leader_alone_us"),
        "under_replicated_seconds": _seconds("under_replicated_us"),
        "high_watermark_stalled_seconds": _seconds("high_watermark_stalled_us"),
        "acks_all_latency_ms_max": "max(acks_all_latency_max_us) FILTER (WHERE acknowledged_appends > 0) / 1e3",
        "loss_exposed_seconds": _seconds("loss_exposed_us"),
        "loss_records_max": "max(loss_records_max)",
        "high_watermark_decreases": "sum(high_watermark_decreases)",
        "isr_members_below_high_watermark": "sum(members_below_high_watermark)",
        "lag_guarantee_violations": "sum(passed_within_lag_time)",
        "leader_outside_isr": "sum(leader_outside_isr)",
        "isr_outside_assignment": "sum(isr_outside_assignment)",
        "first_violation": "min_by(violation, if(violation IS NULL, NULL, struct(first_violation_time, violation)))",
    },
    "followers": {
        "exposure_follower_hours": "sum(judged_us) / 3.6e9",
        "misses": "sum(misses)",
        "query_accuracy": "sum(agreed_us) / nullif(sum(judged_us), 0)",
    },
    "verdicts": {
        "shrinks": "count(verdict)",
        **{name: f"count_if(verdict = '{name}')" for name in ("spurious", "genuine", "excluded", "unknown")},
        "possible": "count_if(certainty = 'possible')",
        **{
            cause: f"count_if(primary_cause = '{cause}')"
            for cause in (
                "caught_up", "keeping_pace", "slow_leader", "unacked_only", "follower_stopped", "follower_slow",
            )
        },
        "timely": f"count_if(verdict = 'genuine' AND true_lag_ms <= 1.5 * {LAG_TIME_MS})",
        "mistake_interval_ms_p50": "percentile(mistake_interval_ms, 0.5)",
        "mistake_duration_ms_p50": "percentile(restored_ms, 0.5) FILTER (WHERE verdict = 'spurious')",
        "mistake_duration_ms_p99": "percentile(restored_ms, 0.99) FILTER (WHERE verdict = 'spurious')",
        "mistake_duration_ms_max": "max(restored_ms) FILTER (WHERE verdict = 'spurious')",
        "detection_ms_p50": "percentile(true_lag_ms, 0.5) FILTER (WHERE verdict = 'genuine')",
        "detection_ms_p99": "percentile(true_lag_ms, 0.99) FILTER (WHERE verdict = 'genuine')",
        "detection_ms_max": "max(true_lag_ms) FILTER (WHERE verdict = 'genuine')",
        "flaps": f"count_if(restored_ms <= {LAG_TIME_MS})",
    },
    "changes": {
        "expands": "count_if(kind = 'expand')",
        "relinquishes": "count_if(kind = 'relinquish')",
        "isr_changes": "count(kind)",
    },
    "notifications": {"notifications": "count(DISTINCT notification)"},
    "latencies": {
        "acks_all_latency_ms_p50": "percentile(latency_ms, 0.5, appends)",
        "acks_all_latency_ms_p99": "percentile(latency_ms, 0.99, appends)",
    },
}  # fmt: skip
"""Columns of a score, each as SQL over the facts of one source."""
DERIVED: Final = {
    "exposure_follower_hours": "coalesce(exposure_follower_hours, 0)",
    "exposure_partition_hours": "coalesce(exposure_partition_hours, exposure_follower_hours)",
    "misses": "coalesce(misses, 0)",
    "mistakes_per_partition_day": "spurious / nullif(exposure_partition_hours / 24, 0)",
    "precision": "genuine / nullif(genuine + spurious, 0)",
    "recall": "timely / nullif(timely + misses, 0)",
    "mistakes_per_partition_day_low": "coalesce(low, 0) / (exposure_partition_hours / 24)",
    "mistakes_per_partition_day_high": f"coalesce(high, {RULE_OF_THREE}) / (exposure_partition_hours / 24)",
}
"""Columns of a score out of others of it; one may use those before it."""


@dataclass(frozen=True)
class Results:
    """What a replay, or an experiment, found: frames with the columns of the tables of these names."""

    isr_changes: DataFrame
    shrink_verdicts: DataFrame
    partition_scores: DataFrame
    replica_scores: DataFrame


def results_of(lake: Lake) -> Results:
    """All that the lake has."""
    return Results(*(lake.read(field.name) for field in fields(Results)))


def results_in(replayed: DataFrame) -> Results:
    """All that is among rows of ``udfs.batches.results.RESULT_SCHEMA`` of the kinds SCORED."""
    tables = {table.name: rows for table, rows in scored_of(replayed).items()}
    return Results(*(tables[field.name] for field in fields(Results)))


Facts = Mapping[str, DataFrame]
"""By source: DIMENSIONS (without a follower, where it tells of whole partitions), and what its AGGREGATES name."""


def facts(results: Results) -> Facts:
    """All that scores are made of."""
    changes = results.isr_changes
    return {
        "costs": _costs(results.partition_scores),
        "latencies": _latencies(results.partition_scores),
        "notifications": _notifications(changes.where("made_by = 'rule'")),
        "followers": results.replica_scores.select(*DIMENSIONS, "judged_us", "agreed_us", "misses"),
        "changes": changes.select(*DIMENSIONS, "kind"),
        "verdicts": _judged(results.shrink_verdicts),
    }


def _costs(scores: DataFrame) -> DataFrame:
    violation = F.format_string(
        "%s at %s in %s-%d, leader epoch %d",
        "first_violation", F.col("first_violation_time").cast("string"), "topic", "partition_id", "leader_epoch",
    )  # fmt: skip
    return scores.withColumn("violation", F.when(F.col("first_violation").isNotNull(), violation)).drop(
        "partition_id", "leader_epoch", "first_violation", "acks_all_latencies"
    )


def _latencies(scores: DataFrame) -> DataFrame:
    # Summed up over partitions first: what follows looks at each row once for each column of a score.
    each = scores.select(*DIMENSIONS[:-1], F.inline("acks_all_latencies"))
    return each.groupBy(*DIMENSIONS[:-1], "latency_ms").agg(F.sum("appends").alias("appends"))


def _judged(verdicts: DataFrame) -> DataFrame:
    """Shrinks, with how long each lasted, and of mistakes the time since the one before."""
    spurious = F.when(F.col("verdict") == "spurious", F.unix_micros("change_time"))
    before = F.last(spurious, ignorenulls=True).over(
        Over.partitionBy(*FOLLOWER).orderBy("change_time").rowsBetween(Over.unboundedPreceding, -1)
    )
    hour = F.date_trunc("hour", "change_time")
    return verdicts.select(
        *DIMENSIONS, "verdict", "certainty", "primary_cause", "true_lag_ms", hour.alias("hour"),
        ((F.unix_micros("restored_time") - F.unix_micros("change_time")) / 1e3).alias("restored_ms"),
        ((spurious - before) / 1e3).alias("mistake_interval_ms"),
    )  # fmt: skip


def _notifications(changes: DataFrame) -> DataFrame:
    """A row a change: the notification that tells of it. A broker's changes under one rule are told together."""
    told = ("event_date", "topic")

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches).sort_by("change_us")
        at = pa.array(notified_at_us(table.column("change_us").to_numpy()))
        yield from table.drop_columns("change_us").append_column("told_us", at).to_batches()

    columns = ("cluster_id", *RUN, "leader_id", *told)
    schema = "cluster_id STRING, rule STRING, params_json STRING, leader_id INT, event_date DATE, topic STRING"
    rows = (
        changes.select(*columns, F.unix_micros("change_time").alias("change_us"))
        .groupBy("cluster_id", *RUN, "leader_id")
        .applyInArrow(tell, schema + ", told_us BIGINT")
    )
    return rows.select(*columns, F.struct("leader_id", "told_us").alias("notification"))


def scores(facts: Facts, groups: Sequence[Sequence[str]]) -> DataFrame:
    """Score every rule run, in each of several groupings.

    Parameters
    ----------
    facts : Facts
        Of `facts`.
    groups : sequence of sequences of str
        Of DIMENSIONS without the run itself; what a grouping leaves out is null in its rows.

    Returns
    -------
    DataFrame
        RUN, the dimensions of all groupings, and the columns of a score.
    """
    keys = [*RUN, *(name for name in DIMENSIONS if any(name in group for group in groups))]

    def keys_of(rows: DataFrame) -> list[str]:
        return [name for name in keys if name in rows.columns]

    def grouped(rows: DataFrame, *more: str) -> GroupedData:
        known = keys_of(rows)
        sets = [[F.col(name) for name in (*RUN, *group, *more)] for group in groups if {*group} <= {*known}]
        return rows.groupingSets(sets, *known, *more)

    def summed_up(source: str, rows: DataFrame) -> DataFrame:
        # Percentiles are dear: of latencies, as few rows as there are buckets in a group.
        of_group = (
            grouped(rows, "latency_ms").agg(F.sum("appends").alias("appends")).groupBy(*keys_of(rows))
            if source == "latencies"
            else grouped(rows)
        )  # fmt: skip
        return of_group.agg(*(F.expr(text).alias(name) for name, text in AGGREGATES[source].items()))

    block = F.xxhash64("cluster_id", "leader_id", "replica_id", "hour")
    mistakes = facts["verdicts"].where("verdict = 'spurious'").withColumn("block", block)
    blocks = grouped(mistakes, "block").agg(F.count("*").alias("mistakes"))
    summaries = [_intervals(blocks, keys), *(summed_up(source, rows) for source, rows in facts.items())]
    sources = reduce(lambda all_, more: all_.unionByName(more, allowMissingColumns=True), summaries)
    counts = {name for of_source in AGGREGATES.values() for name, text in of_source.items() if text.startswith("count")}
    # Each column has a value in the rows of one source.
    side_by_side = sources.groupBy(*keys).agg(
        *(
            (F.coalesce(F.max(name), F.lit(0)) if name in counts else F.max(name)).alias(name)
            for name in sources.columns
            if name not in keys
        )
    )
    whole = reduce(lambda rows, more: rows.withColumn(more[0], F.expr(more[1])), DERIVED.items(), side_by_side)
    return whole.drop("low", "high").where("exposure_partition_hours > 0")


def _intervals(blocks: DataFrame, keys: Sequence[str]) -> DataFrame:
    """95 % interval of the number of mistakes in each group, by a bootstrap over broker pair x hour.

    Shrinks come in bursts, so blocks are drawn, not shrinks: each block is taken as often as a Poisson variable
    with mean 1 says, whose value is a hash of the block and the replicate, hence the same in every run.
    """
    drawn = blocks.withColumn("replicate", F.explode(F.sequence(F.lit(1), F.lit(REPLICATES))))
    times = _poisson(F.xxhash64("block", "replicate"))
    sums = drawn.groupBy(*keys, "replicate").agg(F.sum(F.col("mistakes") * times).alias("mistakes"))
    return sums.groupBy(*keys).agg(
        F.percentile("mistakes", 0.025).alias("low"), F.percentile("mistakes", 0.975).alias("high")
    )


def _poisson(random: Column) -> Column:
    """A Poisson variable with mean 1 from 64 random bits, by its distribution function."""
    uniform = random.cast("double") / 2.0**64 + 0.5
    steps = (0.36787944, 0.73575888, 0.91969860, 0.98101184, 0.99634015, 0.99940582, 0.99991676)
    return sum((F.when(uniform > step, 1).otherwise(0) for step in steps), F.lit(0))


def write_scores(lake: Lake) -> int:
    """Make ``rule_scores`` and ``rule_scores_by_broker`` anew, of all runs and days that the lake has.

    Returns
    -------
    int
        Rows written.
    """
    by_topic = [("event_date", "topic"), ("event_date",), ("topic",), ()]
    by_broker = [(*day, broker) for day in (("event_date",), ()) for broker in ("leader_id", "replica_id")]
    found = scores(facts(results_of(lake)), [("cluster_id", *more) for more in (*by_topic, *by_broker)])
    # Both tables are of one pass, as planning it takes longer than its rows do.
    scored = found.localCheckpoint()
    of_brokers = "leader_id IS NOT NULL OR replica_id IS NOT NULL"
    return sum(
        replace_together(
            lake,
            {
                RULE_SCORES: scored.where(f"NOT ({of_brokers})").drop("leader_id", "replica_id"),
                RULE_SCORES_BY_BROKER: scored.where(of_brokers).drop("topic"),
            },
            "true",
        ).values()
    )


def rules_side_by_side(lake: Lake) -> Rows:
    """Score each rule with its parameters over the whole lake; ``T`` is its lag time in ms.

    Rules are in the order of their releases; a rule that never shrinks has a row as well.
    """
    rows = [row.asDict() for row in scores(facts(results_of(lake)), [()]).collect()]
    for row in rows:
        row["T"] = json.loads(row["params_json"])["replica_lag_time_max_ms"]
    order = {rule: position for position, rule in enumerate(REGISTRY)}
    return sorted(rows, key=lambda row: (order.get(row["rule"], len(order)), row["rule"], row["T"], row["params_json"]))
