"""What the brokers decided against what the replay of their own rule decides.

Only timing is taken from the log: the phase of isr-expiration, and when a logged check ran
(``broker_events``). Who leaves, who joins, and every offset and time behind it is the replay's own.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from isr_batch.errors import NoInputError
from isr_batch.output_tables import REPLAY_CHECK
from isr_batch.store import Lake
from udfs.rules import rule_of_release

RACE_MS = 50
"""A fetch or an append so near to a check may have come before or after it: local work of a leader that
just woke up takes as long, and stamps do not order what happens inside it."""

_CHANGE = ("cluster_id", "topic", "partition_id", "leader_id", "replica_id", "kind")
_FIGURES = ("last_caught_up_time_ms", "follower_log_end_offset", "leader_log_end_offset", "high_watermark")


@dataclass(frozen=True)
class ValidationSummary:
    """A row a cluster, leader and kind of change: counts, and shares of the matched."""

    rows: list[Row]

    @property
    def matched(self) -> int:
        """Changes that log and replay agree on."""
        return sum(row["matched"] for row in self.rows)

    @property
    def matched_ratio(self) -> float:
        """Matched by all changes that either side has; 1 when there are none."""
        total = sum(row["matched"] + row["missing"] + row["extra"] for row in self.rows)
        return self.matched / total if total else 1.0


def validate(lake: Lake) -> ValidationSummary:
    """Match the leaders' own logged ISR changes with the replayed ones, and write ``replay_check``.

    Raises
    ------
    NoInputError
        When the lake has no replay of the rule that its brokers ran.
    """
    terms = lake.read("leader_epochs")
    replayed = _replayed(lake, terms)
    observed = lake.read("observed_isr_changes").where("made_by = 'leader'")
    if not observed.isEmpty() and lake.read("isr_changes").where(_ran(terms)).isEmpty():
        raise NoInputError(
            f"{lake.root} holds no replay of {', '.join(sorted(_rules_of(terms)))}, which its brokers ran",
            "run `isr-batch replay` with that rule and its default parameters first",
        )
    pairs = _matched(observed, replayed, terms)
    lake.replace(REPLAY_CHECK, _with_notes(pairs, lake), "true")
    return summary(lake)


def summary(lake: Lake) -> ValidationSummary:
    """Figures of ``replay_check``, by cluster, leader and kind."""
    matched = F.col("status") == "matched"

    def count(condition: Column) -> Column:
        return F.count_if(condition)

    def share(condition: Column) -> Column:
        return F.count_if(matched & condition) / F.count_if(matched)

    caught_up = F.abs("last_caught_up_error_ms")
    rows = (
        lake.read("replay_check")
        .groupBy("cluster_id", "leader_id", "kind")
        .agg(
            count(matched).alias("matched"),
            count(F.col("status") == "missing").alias("missing"),
            count(F.col("status") == "extra").alias("extra"),
            count((F.col("status") != "matched") & F.col("note").isNotNull()).alias("races"),
            share(F.abs("time_error_ms") <= 100).alias("within_100_ms"),
            F.percentile_approx(F.abs("time_error_ms"), 0.5).alias("time_error_ms_p50"),
            share(caught_up <= 1).alias("caught_up_within_1_ms"),
            share(caught_up <= 2).alias("caught_up_within_2_ms"),
            F.max(caught_up).alias("caught_up_error_ms_max"),
            *(share(F.col(f"observed_{name}") == F.col(f"replayed_{name}")).alias(f"{name}_equal") for name in _FIGURES[1:]),
        )
        .orderBy("cluster_id", "kind", "leader_id")
        .collect()
    )
    return ValidationSummary(rows)


def _rules_of(terms: DataFrame) -> set[str]:
    versions = [row["broker_version"] for row in terms.select("broker_version").distinct().collect()]
    return {rule_of_release(version) for version in versions if version}


def _ran(terms: DataFrame) -> Column:
    return F.col("rule").isin(sorted(_rules_of(terms)))


def _replayed(lake: Lake, terms: DataFrame) -> DataFrame:
    """Changes by the rule that each leader ran, with the lag time and min ISR that it ran with."""
    versions = [row["broker_version"] for row in terms.select("broker_version").distinct().collect()]
    ran = F.create_map(*[F.lit(part) for v in versions if v for part in (v, rule_of_release(v))]) if any(versions) else None
    own = terms.select(
        "cluster_id", "topic", "partition_id", "leader_epoch", "leader_id",
        (ran[F.col("broker_version")] if ran is not None else F.lit(None).cast("string")).alias("rule"),
        "replica_lag_time_max_ms", "min_insync_replicas",
    ).distinct()  # fmt: skip

    def param(name: str) -> Column:
        return F.get_json_object("params_json", f"$.{name}").cast("bigint")

    return (
        lake.read("isr_changes")
        .where("made_by = 'rule'")
        .join(F.broadcast(own), ["cluster_id", "topic", "partition_id", "leader_epoch", "leader_id", "rule"])
        .where((param("replica_lag_time_max_ms") == F.col("replica_lag_time_max_ms"))
               & (param("min_insync_replicas") == F.col("min_insync_replicas")))
    )  # fmt: skip


def _matched(observed: DataFrame, replayed: DataFrame, terms: DataFrame) -> DataFrame:
    """Pairs that are each other's nearest within one period of the check, and what is left on both sides."""
    figures = ("change_time", "leader_epoch", *_FIGURES)
    seen = observed.select(*_CHANGE, *(F.col(name).alias(f"observed_{name}") for name in figures)).withColumn(
        "observed_id", F.monotonically_increasing_id()
    )
    made = replayed.select(
        *_CHANGE, "rule", "params_json", *(F.col(name).alias(f"replayed_{name}") for name in figures)
    ).withColumn("replayed_id", F.monotonically_increasing_id())
    seen, made = seen.persist(), made.persist()
    reach = F.max("replica_lag_time_max_ms") / 2 + 1000
    reach_ms = terms.groupBy("cluster_id", "leader_id").agg(reach.alias("reach_ms"))
    error = (F.unix_micros("replayed_change_time") - F.unix_micros("observed_change_time")) / 1000
    near = (
        seen.join(made, list(_CHANGE))
        .join(F.broadcast(reach_ms), ["cluster_id", "leader_id"])
        .withColumn("time_error_ms", error)
        .where("abs(time_error_ms) <= reach_ms")
    )

    def rank(side: str) -> Column:
        return F.row_number().over(Over.partitionBy(side).orderBy(F.abs("time_error_ms")))

    pairs = (
        near.withColumns({"a": rank("observed_id"), "b": rank("replayed_id")}).where("a = 1 AND b = 1")
        .withColumn("status", F.lit("matched"))
        .drop("a", "b", "reach_ms")
    )  # fmt: skip
    missing = seen.join(pairs, "observed_id", "left_anti").withColumn("status", F.lit("missing"))
    extra = made.join(pairs, "replayed_id", "left_anti").withColumn("status", F.lit("extra"))
    return pairs.unionByName(missing, allowMissingColumns=True).unionByName(extra, allowMissingColumns=True)


def _with_notes(pairs: DataFrame, lake: Lake) -> DataFrame:
    """Columns of replay_check; a change without a twin is a race when the log cannot order what happened then."""
    change_time = F.coalesce("observed_change_time", "replayed_change_time")
    rows = pairs.withColumn("change_time", change_time).withColumn("row", F.monotonically_increasing_id()).persist()
    alone = F.broadcast(rows.where("status <> 'matched'").select("row", *_CHANGE, "change_time"))
    key = ["cluster_id", "topic", "partition_id", "leader_id"]

    def near(start: str, end: str) -> Column:
        slack = F.expr(f"INTERVAL {RACE_MS} MILLISECONDS")
        return (F.col("change_time") >= F.col(start) - slack) & (F.col("change_time") <= F.col(end) + slack)

    fetched = (
        lake.read("fetch_log").select(*key, "replica_id", "handled_time", "processed_time")
        .join(alone, [*key, "replica_id"]).where(near("handled_time", "processed_time"))
        .select("row", F.lit("a fetch of the replica").alias("what"))
    )  # fmt: skip
    appended = (
        lake.read("append_log").select(*key, "append_time").join(alone, key).where(near("append_time", "append_time"))
        .select("row", F.lit("an append").alias("what"))
    )  # fmt: skip
    races = fetched.unionAll(appended).groupBy("row").agg(F.array_sort(F.collect_set("what")).alias("what"))
    note = F.concat(F.lit("race: "), F.array_join("what", " and "), F.lit(f" within {RACE_MS} ms of the change"))
    error = F.col("replayed_last_caught_up_time_ms") - F.col("observed_last_caught_up_time_ms")
    return (
        rows.join(F.broadcast(races), "row", "left")
        .withColumns(
            {
                "note": note,
                "observed_time": F.col("observed_change_time"),
                "replayed_time": F.col("replayed_change_time"),
                "last_caught_up_error_ms": error,
                "leader_epoch": F.coalesce("observed_leader_epoch", "replayed_leader_epoch"),
                "rule": F.coalesce("rule", F.lit("")),
                "params_json": F.coalesce("params_json", F.lit("{}")),
                "event_date": F.col("change_time").cast("date"),
            }
        )
    )

