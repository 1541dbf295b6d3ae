"""Which shrinks some rules make and others do not.

Rules drop the same follower for the same reason some time apart: one looks twice a lag time, another once, a
third at the very instant. So shrinks of one follower by different runs of rules are one event when each comes
at most its own lag time after the event's first. A run's second shrink begins another event.

A run is named by its rule; where a term was replayed with several parameter sets of a rule, by rule and parameters.
"""

from datetime import date, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from isr_batch.errors import NoInputError, UsageError
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.lake.tables.leaders import LEADER_EPOCHS
from isr_batch.lake.tables.outputs import RULE_DISAGREEMENTS
from isr_batch.lake.tables.scores import PARTITION_SCORES
from isr_batch.scoring.scores import Rows
from isr_batch.settings import did_you_mean
from isr_batch.window import Window
from udfs.kernel.causes import CAUSES
from udfs.rules import REGISTRY

FOLLOWER = (*SET_KEY, "replica_id")
RUN = ("rule", "params_json")

MADE, KEPT, OUT = "made", "kept", "out"
"""What a run did about an event: the shrink, nothing though the follower was in its ISR, or it had none to make."""


def write_disagreements(lake: Lake, window: Window) -> int:
    """Write ``rule_disagreements`` for the days of a window, over all rules in the lake.

    Returns
    -------
    int
        Rows written.
    """
    # An event across midnight belongs to the day of its first shrink, which new shrinks on the other side may move.
    around = Window(_moved(window.start, -1), _moved(window.end, 1))
    for table in (PARTITION_SCORES, LEADER_EPOCHS):
        lake.ensure(table)
    return lake.replace(RULE_DISAGREEMENTS, disagreements(lake, around), around.condition)


def disagreements(lake: Lake, window: Window = Window()) -> DataFrame:  # noqa: B008 frozen
    """Rows of ``rule_disagreements`` for events that begin in the window."""
    events = shrink_events(lake.read("shrink_verdicts")).where(window.condition)
    scores = lake.read("partition_scores").where(window.condition)
    decided = stands(events, replayed_runs(scores, lake.read("leader_epochs")), lake.read("isr_changes"))

    def runs(stand: str) -> Column:
        return F.array_sort(F.collect_list(F.when(F.col("stand") == stand, F.col("run"))))

    def by_run(name: str) -> Column:
        entries = F.collect_list(F.when(F.col("stand") == MADE, F.struct("run", F.col("own")[name])))
        return F.map_from_entries(F.array_sort(entries))

    return (
        decided.groupBy(*FOLLOWER, "change_time", "event_date")
        .agg(
            runs(MADE).alias("rules_for"), runs(KEPT).alias("rules_against"),
            by_run("primary_cause").alias("causes"), by_run("verdict").alias("verdicts"),
        )
        .where("size(rules_for) > 0 AND size(rules_against) > 0")
    )  # fmt: skip


def replayed_runs(scores: DataFrame, terms: DataFrame) -> DataFrame:
    """Runs that terms were replayed with, and on which days.

    Parameters
    ----------
    scores : DataFrame
        Rows of ``partition_scores``: there is one for each day that a run was replayed for, however quiet.
    terms : DataFrame
        Rows of ``leader_epochs``.

    Returns
    -------
    DataFrame
        SET_KEY, RUN, event_date, ``run`` (its name), and ``isr``, with which all runs begin the term.
    """
    several: Column = F.size(F.collect_set("params_json").over(Over.partitionBy(*SET_KEY, "rule"))) > 1
    name = F.when(several, F.concat_ws(" ", *RUN)).otherwise(F.col("rule"))
    # A leader that is started again without a new epoch has two rows of its term, and two scores on that day.
    isr = F.min_by(F.array_intersect("assigned", "isr_at_start"), "start_time").alias("isr")
    begun = terms.groupBy(*SET_KEY).agg(isr)
    named = scores.select(*SET_KEY, *RUN, "event_date", name.alias("run")).distinct()
    return named.join(F.broadcast(begun), list(SET_KEY))


def shrink_events(verdicts: DataFrame) -> DataFrame:
    """Put the shrinks that belong together into one row.

    Parameters
    ----------
    verdicts : DataFrame
        Rows of ``shrink_verdicts``; what the controller did is left out.

    Returns
    -------
    DataFrame
        FOLLOWER, change_time and event_date of the first shrink, and ``made``: the shrinks in order of time.
    """
    at_us = F.unix_micros("change_time")
    lag_us = 1000 * F.get_json_object("params_json", "$.replica_lag_time_max_ms").cast("bigint")
    in_order = Over.partitionBy(*FOLLOWER).orderBy("at_us", *RUN)
    previous: Column = F.lag(F.struct("at_us", *RUN)).over(in_order)
    # Whoever is too late for the shrink before it is too late for the first of the event. Cut there, what has to be
    # gone through one by one stays short.
    apart = previous.isNull() | (F.col("at_us") - previous["at_us"] > F.col("lag_us")) | _same_run(previous)
    islands = (
        verdicts.where("made_by = 'rule'")
        .withColumns({"at_us": at_us, "lag_us": lag_us})
        .withColumn("apart", apart.cast("int"))
        .withColumn("island", F.sum("apart").over(in_order.rowsBetween(Over.unboundedPreceding, Over.currentRow)))
    )
    shrink = F.struct("at_us", *RUN, "lag_us", "primary_cause", "verdict")
    return (
        islands.groupBy(*FOLLOWER, "island")
        .agg(F.array_sort(F.collect_list(shrink)).alias("shrinks"))
        .select(*FOLLOWER, F.explode(_greedy(F.col("shrinks"))).alias("made"))
        .withColumn("change_time", F.timestamp_micros(F.col("made")[0]["at_us"]))
        .withColumn("event_date", F.col("change_time").cast("date"))
    )


def stands(events: DataFrame, replayed: DataFrame, changes: DataFrame) -> DataFrame:
    """What each run that was replayed for an event's day did about it.

    Parameters
    ----------
    events : DataFrame
        Of `shrink_events`.
    replayed : DataFrame
        Of `replayed_runs`.
    changes : DataFrame
        Rows of ``isr_changes``.

    Returns
    -------
    DataFrame
        A row an event and run: columns of the event, ``run`` (its name), ``stand`` (MADE, KEPT or OUT) and
        ``own`` (its shrink).
    """
    asked = events.join(replayed, [*SET_KEY, "event_date"]).withColumn(
        "own", F.get(F.filter("made", _same_run), F.lit(0))
    )
    stand = F.when(F.col("own").isNotNull(), MADE).when(_was_member(), KEPT).otherwise(OUT)
    return _beside_changes(asked, changes).withColumn("stand", stand).drop("isr", "before", "after", *RUN)


def compare(lake: Lake, first: str, second: str) -> Rows:
    """Count the shrinks that one rule makes, that the other makes, and that both make, by primary cause.

    Only days that both were replayed for count. A rule that does not make a shrink may have dropped the follower
    before.

    Returns
    -------
    list of dict
        ``cause``, ``only_a``, ``only_b``, and shrinks of both by either's cause: ``both_by_a``, ``both_by_b``; in
        the order in which causes are looked for, with the total at the end.

    Raises
    ------
    UsageError
        When a name is no rule's, or both are the same.
    NoInputError
        When the lake has no replay of a rule.
    """
    require_rules(first, second)
    if first == second:
        raise UsageError(f"{first} makes the same shrinks as itself", "name two rules")
    require_replayed(lake, first, second)
    of_both = F.col("rule").isin(first, second)
    days = lake.read("partition_scores").where(of_both).select("cluster_id", "rule", "event_date").distinct()
    shared = days.groupBy("cluster_id", "event_date").count().where("count = 2")
    verdicts = lake.read("shrink_verdicts").where(of_both)
    both = F.size(F.array_distinct(F.transform("made", lambda shrink: shrink["rule"]))) > 1
    counts = (
        shrink_events(verdicts.join(F.broadcast(shared), ["cluster_id", "event_date"], "semi"))
        .select(both.alias("both"), F.explode("made").alias("made"))
        .groupBy("both", "made.rule", "made.primary_cause")
        .agg(F.count("*").alias("shrinks"))
        .collect()
    )
    by_cause = {cause: {"cause": cause} | dict.fromkeys(COMPARED, 0) for cause in (*CAUSES, "total")}
    for row in counts:
        side = "a" if row["rule"] == first else "b"
        for cause in (row["primary_cause"], "total"):
            by_cause[cause][f"both_by_{side}" if row["both"] else f"only_{side}"] += row["shrinks"]
    return [row for cause, row in by_cause.items() if cause == "total" or any(row[name] for name in COMPARED)]


COMPARED = ("only_a", "only_b", "both_by_a", "both_by_b")


def require_rules(*rules: str) -> None:
    """Refuse names of no rule.

    Raises
    ------
    UsageError
        With what was probably meant.
    """
    for rule in rules:
        if rule not in REGISTRY:
            raise UsageError(f"no rule {rule}", did_you_mean(rule, REGISTRY))


def require_replayed(lake: Lake, *rules: str) -> None:
    """Refuse rules that the lake has no replay of.

    Raises
    ------
    NoInputError
        Saying how to replay them.
    """
    scores = lake.read("partition_scores").where(F.col("rule").isin(*rules))
    replayed = {row["rule"] for row in scores.select("rule").distinct().collect()}
    missing = [rule for rule in rules if rule not in replayed]
    if missing:
        raise NoInputError(
            f"{lake.root} holds no replay of {' and '.join(missing)}",
            f"run `isr-batch replay --lake LAKE --rules {','.join(missing)}` first; other rules' results stay",
        )


def _same_run(shrink: Column) -> Column:
    return (shrink["rule"] == F.col("rule")) & (shrink["params_json"] == F.col("params_json"))


def _greedy(shrinks: Column) -> Column:
    """Events of an island, each an array of shrinks."""

    def take(events: Column, shrink: Column) -> Column:
        latest = F.element_at(events, -1)
        there = F.exists(
            latest, lambda made: (made["rule"] == shrink["rule"]) & (made["params_json"] == shrink["params_json"])
        )
        belongs = (shrink["at_us"] - latest[0]["at_us"] <= shrink["lag_us"]) & ~there
        grown = F.array(F.concat(latest, F.array(shrink)))
        return F.when(belongs, F.concat(F.slice(events, 1, F.size(events) - 1), grown)).otherwise(
            F.concat(events, F.array(F.array(shrink)))
        )

    return F.aggregate(F.slice(shrinks, 2, F.size(shrinks)), F.array(F.array(shrinks[0])), take)


def _beside_changes(asked: DataFrame, changes: DataFrame) -> DataFrame:
    """Add ``before`` and ``after``: kinds of the run's nearest changes of the follower, the event's own not before."""
    key = (*FOLLOWER, *RUN)
    moves = changes.where("kind IN ('shrink', 'expand')").select(*key, "change_time", "kind")
    rows = asked.withColumn("asked", F.lit(True)).unionByName(moves, allowMissingColumns=True)
    up = Over.partitionBy(*key).orderBy("change_time", F.col("asked").asc_nulls_last())
    down = Over.partitionBy(*key).orderBy(F.desc("change_time"), F.col("asked").asc_nulls_first())

    def nearest(order: object) -> Column:
        window = order.rowsBetween(Over.unboundedPreceding, Over.currentRow)  # type: ignore[attr-defined]
        return F.last("kind", ignorenulls=True).over(window)

    return (
        rows.withColumn("before", nearest(up)).withColumn("after", nearest(down)).where("asked").drop("asked", "kind")
    )


def _was_member() -> Column:
    """Whether the run had the follower in its ISR; the log of changes tells, else how the term began."""
    return F.coalesce(
        F.col("before") == "expand", F.col("after") == "shrink", F.expr("array_contains(isr, replica_id)")
    )


def _moved(day: str | None, days: int) -> str | None:
    return str(date.fromisoformat(day) + timedelta(days=days)) if day else None
