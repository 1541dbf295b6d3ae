"""What the brokers decided against what the replay of their own rule decides.

Only timing is taken from the log: the phase of isr-expiration, and when a logged check ran
(``broker_events``). Who leaves, who joins, and every offset and time behind it is the replay's own.
"""

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from isr_batch.errors import NoInputError, QualityGateError
from isr_batch.ingest.log_files.vendors import apache_release
from isr_batch.lake.fetch_log import single_fetches
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.lake.tables.leaders import COVERAGE
from isr_batch.lake.tables.outputs import DEPENDS_ON, REPLAY_CHECK
from isr_batch.replay.event_stream import terms_joined
from udfs.rules import REGISTRY, rule_of_release

RACE_MS = 5
"""A fetch or an append so near to a change may have come before or after it: stamps are cut to milliseconds
and written some time after the fact. Wider, and every miss on a busy partition would pass for a race."""

NEAR_MS = 1
"""Kafka cuts its clock to whole milliseconds, and so does the log its stamps."""
CLOSE_MS = 100
"""An expand is recorded by the controller, tens of milliseconds after the leader decided on it."""

UNKNOWN = "unknown"
AT_THE_END = "less than 600 ms before the leader's request log ends: requests in flight are not in it"
IN_FLIGHT = "INTERVAL 600 MILLISECONDS"
OUTSIDE = "outside the time that the leader's request log covers"
WARM_UP = "within a lag time and a check of where the leader's request log begins"

_CHANGE = ("cluster_id", "topic", "partition_id", "leader_id", "replica_id", "kind")
_FIGURES = ("last_caught_up_time_ms", "follower_log_end_offset", "leader_log_end_offset", "high_watermark")


@dataclass(frozen=True)
class ValidationSummary:
    """A row a cluster, leader and kind of change, all of them counts.

    ``races`` are changes without a twin whose order the log cannot tell; ``unknown`` are those for which the log cannot
    vouch; the last four columns count matched changes, and the last three of them are null where no figure was logged.
    """

    rows: list[dict[str, Any]]

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
    terms = terms_joined(lake)
    replayed = _replayed(lake, terms)
    known = _rule_of_leaders(terms)
    # Of a cluster whose release no log tells, such as a fleet under a proposal, there is nothing to compare.
    compared = F.broadcast(known.select("cluster_id").distinct())
    observed = lake.read("observed_isr_changes").where("made_by = 'leader'").join(compared, "cluster_id", "semi")
    ran = [row["ran"] for row in known.select("ran").distinct().collect()]
    if not ran:
        raise NoInputError(
            f"no log in {lake.root} says which release its brokers ran", "there is nothing to compare with"
        )
    if lake.read("partition_timeline").where(F.col("rule").isin(ran)).isEmpty():
        raise NoInputError(
            f"{lake.root} holds no replay of {', '.join(sorted(ran))}, which its brokers ran",
            "run `isr-batch replay` with that rule and its default parameters first",
        )
    pairs = _matched(observed, replayed, terms).join(F.broadcast(known), ["cluster_id", "leader_id"], "left")
    lake.replace(REPLAY_CHECK, _with_notes(_doubted(pairs, terms, lake), lake), "true")
    return summary(lake)


def summary(lake: Lake) -> ValidationSummary:
    """Count ``replay_check`` by cluster, leader and kind."""
    matched = F.col("status") == "matched"
    caught_up = F.abs("last_caught_up_error_ms")
    equal = F.lit(True)
    for name in ("follower_log_end_offset", "leader_log_end_offset", "high_watermark"):
        equal &= F.col(f"observed_{name}") == F.col(f"replayed_{name}")
    rows = (
        lake.read("replay_check")
        .groupBy("cluster_id", "leader_id", "kind")
        .agg(
            *(
                F.count_if(F.col("status") == status).alias(status)
                for status in ("matched", "missing", "extra", UNKNOWN)
            ),
            F.count_if(~matched & F.col("note").rlike("^(race|possible)")).alias("races"),
            F.count_if(matched & (F.abs("time_error_ms") <= CLOSE_MS)).alias("within_100_ms"),
            _of_logged(matched, caught_up <= NEAR_MS).alias("caught_up_within_1_ms"),
            _of_logged(matched, caught_up <= 2 * NEAR_MS).alias("caught_up_within_2_ms"),
            _of_logged(matched, equal).alias("offsets_equal"),
        )
        .orderBy("cluster_id", "kind", "leader_id")
        .collect()
    )
    return ValidationSummary([row.asDict() for row in rows])


def _of_logged(matched: Column, holds: Column) -> Column:
    told = F.when(matched, holds)
    return F.when(F.count(told) > 0, F.count_if(told))


def _rule_of_leaders(terms: DataFrame) -> DataFrame:
    """By cluster_id and leader_id: ``ran``, the rule of the leader's release, and its ``checks_per_lag_time``."""
    leaders = terms.groupBy("cluster_id", "leader_id").agg(F.max("broker_version").alias("version"))
    versions = [row["version"] for row in leaders.select("version").distinct().collect() if row["version"]]
    rules = terms.sparkSession.createDataFrame(
        [
            (v, rule, REGISTRY[rule].checks_per_lag_time)
            for v in versions
            for rule in [rule_of_release(apache_release(v))]
        ],
        "version STRING, ran STRING, checks_per_lag_time INT",
    )
    return leaders.join(F.broadcast(rules), "version").drop("version")


def _replayed(lake: Lake, terms: DataFrame) -> DataFrame:
    """Changes by the rule that each leader ran, with the lag time and min ISR that it ran with."""
    settings = ("replica_lag_time_max_ms", "min_insync_replicas")
    own = (
        terms.select(*SET_KEY, *settings).distinct()
        .join(F.broadcast(_rule_of_leaders(terms)), ["cluster_id", "leader_id"])
        .withColumnRenamed("ran", "rule")
    )  # fmt: skip

    def param(name: str) -> Column:
        return F.get_json_object("params_json", f"$.{name}").cast("bigint")

    return (
        lake.read("isr_changes")
        .where("made_by = 'rule'")
        .join(F.broadcast(own), [*SET_KEY, "rule"])
        .where(reduce(and_, (param(name) == F.col(name) for name in settings)))
    )


def _matched(observed: DataFrame, replayed: DataFrame, terms: DataFrame) -> DataFrame:
    """Pairs that are each other's nearest within one period of the check, and what is left on both sides."""
    figures = ("change_time", "leader_epoch", *_FIGURES)
    seen = observed.select(*_CHANGE, *(F.col(name).alias(f"observed_{name}") for name in figures)).withColumn(
        "observed_id", F.monotonically_increasing_id()
    )
    made = replayed.select(
        *_CHANGE, "rule", "params_json", "depends_on", *(F.col(name).alias(f"replayed_{name}") for name in figures)
    ).withColumn("replayed_id", F.monotonically_increasing_id())
    seen, made = seen.persist(), made.persist()
    reach = F.max(F.col("replica_lag_time_max_ms") / F.col("checks_per_lag_time")) + 1000
    checked = terms.join(F.broadcast(_rule_of_leaders(terms)), ["cluster_id", "leader_id"])
    reach_ms = checked.groupBy("cluster_id", "leader_id").agg(reach.alias("reach_ms"))
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


def _doubted(pairs: DataFrame, terms: DataFrame, lake: Lake) -> DataFrame:
    """Call a change without a twin unknown where the log does not reach, or began too short a time before.

    Then ``doubt`` says why.
    """
    at = F.coalesce("observed_change_time", "replayed_change_time")
    alone = pairs.where("status <> 'matched'").withColumn("row", F.monotonically_increasing_id()).withColumn("at", at)
    alone = alone.persist()
    key = ["cluster_id", "leader_id"]
    lake.ensure(COVERAGE)
    spans = lake.read("coverage").where("log = 'request'").select(
        "cluster_id", F.col("broker_id").alias("leader_id"), "until_time",
        F.when(F.col("begins_mid_term"), F.col("from_time")).alias("from_time"),
    )  # fmt: skip
    covered = alone.select("row", "at", *key).join(F.broadcast(spans), key)
    inside = (F.col("at") <= F.col("until_time")) & (F.col("from_time").isNull() | (F.col("at") >= F.col("from_time")))
    at_end = inside & (F.col("at") > F.col("until_time") - F.expr(IN_FLIGHT))
    reaches = covered.groupBy("row").agg(F.max(inside).alias("inside"), F.max(at_end).alias("at_end"))
    lag_ms = F.col("replica_lag_time_max_ms")
    warm_us = F.unix_micros("start_time") + (lag_ms + lag_ms / F.col("checks_per_lag_time") + 1) * 1000
    begun = terms.where("begins_mid_term").join(F.broadcast(_rule_of_leaders(terms)), ["cluster_id", "leader_id"])
    begun = begun.select("cluster_id", "topic", "partition_id", "leader_id", "start_time", warm_us.alias("warm_us"))
    warm = (
        alone.select("row", "at", *_CHANGE[:4]).join(F.broadcast(begun), list(_CHANGE[:4]))
        .where((F.col("at") >= F.col("start_time")) & (F.unix_micros("at") <= F.col("warm_us")))
        .select("row").distinct().withColumn("warm", F.lit(True))
    )  # fmt: skip
    # A cluster that has no coverage at all is not of broker logs, and its own tables vouch for themselves.
    logged = lake.read("coverage").select("cluster_id", F.lit(False).alias("vouched")).distinct()
    doubt = F.when(~F.coalesce("inside", "vouched", F.lit(True)), OUTSIDE).when(F.col("warm"), WARM_UP)
    doubt = doubt.when(F.col("at_end"), AT_THE_END)
    told = (
        alone.join(F.broadcast(reaches), "row", "left").join(F.broadcast(warm), "row", "left")
        .join(F.broadcast(logged), "cluster_id", "left")
        .withColumn("doubt", doubt)
        .withColumn("status", F.when(F.col("doubt").isNotNull(), UNKNOWN).otherwise(F.col("status")))
        .drop("row", "at", "inside", "at_end", "warm", "vouched")
    )  # fmt: skip
    matched = pairs.where("status = 'matched'").withColumn("doubt", F.lit(None).cast("string"))
    return matched.unionByName(told)


def _with_notes(pairs: DataFrame, lake: Lake) -> DataFrame:
    """Columns of replay_check; ``note`` says where a change without a twin hangs on what the log cannot order.

    A replayed one knows that itself. Of a logged shrink that is not replayed, a fetch of the follower or an append of
    the same moment says it. Every expand happens on a fetch, so that tells nothing of one.
    """
    change_time = F.coalesce("observed_change_time", "replayed_change_time")
    rows = pairs.withColumn("change_time", change_time).withColumn("row", F.monotonically_increasing_id()).persist()
    missed = rows.where("status <> 'matched' AND kind = 'shrink' AND replayed_change_time IS NULL")
    alone = F.broadcast(missed.select("row", *_CHANGE, "change_time"))
    key = ["cluster_id", "topic", "partition_id", "leader_id"]

    def near(start: str, end: str) -> Column:
        slack = F.expr(f"INTERVAL {RACE_MS} MILLISECONDS")
        return (F.col("change_time") >= F.col(start) - slack) & (F.col("change_time") <= F.col(end) + slack)

    fetched = (
        single_fetches(lake.read("fetch_log")).select(*key, "replica_id", "handled_time", "processed_time")
        .join(alone, [*key, "replica_id"]).where(near("handled_time", "processed_time"))
        .select("row", F.lit("a fetch of the replica").alias("what"))
    )  # fmt: skip
    appended = (
        lake.read("append_log").select(*key, "append_time").join(alone, key).where(near("append_time", "append_time"))
        .select("row", F.lit("an append").alias("what"))
    )  # fmt: skip
    races = fetched.unionAll(appended).groupBy("row").agg(F.array_sort(F.collect_set("what")).alias("what"))
    note = F.concat(F.lit("race: "), F.array_join("what", " and "), F.lit(f" within {RACE_MS} ms of the change"))
    words = F.create_map(*(F.lit(text) for pair in DEPENDS_ON.items() for text in pair))
    possible = F.concat(F.lit("possible: it depends on "), words[F.col("depends_on")])
    error = F.col("replayed_last_caught_up_time_ms") - F.col("observed_last_caught_up_time_ms")
    return rows.join(F.broadcast(races), "row", "left").withColumns(
        {
            "note": F.coalesce("doubt", F.when(F.col("status") == "extra", possible), note),
            "observed_time": F.col("observed_change_time"),
            "replayed_time": F.col("replayed_change_time"),
            "last_caught_up_error_ms": error,
            "leader_epoch": F.coalesce("observed_leader_epoch", "replayed_leader_epoch"),
            "rule": F.coalesce("rule", "ran", F.lit("unknown")),
            "params_json": F.coalesce("params_json", F.lit("{}")),
            "event_date": F.col("change_time").cast("date"),
        }
    )


def require_match(summary: ValidationSummary, min_matched_ratio: float) -> None:
    """Fail when too few ISR changes of brokers and replay are the same.

    Raises
    ------
    QualityGateError
        When the share of matches among all changes is below the limit.
    """
    if summary.matched_ratio < min_matched_ratio:
        raise QualityGateError(
            f"{summary.matched_ratio:.2%} of the ISR changes are the same in replay and brokers "
            f"({summary.matched} of them; the limit is {min_matched_ratio:.2%})",
            "table replay_check has each change; validation.min_matched_ratio is the limit",
        )
