"""Collect the data about one shrink from the lake, for `isr_batch.explain.shrink_text`."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from isr_batch.errors import NoInputError
from isr_batch.explain.shrink_text import NOT_NAMED, Dropped, Fetch, Stand, Story
from isr_batch.lake.fetch_log import single_fetches
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.replay.terms import terms_joined
from isr_batch.scoring.disagreements import (
    FOLLOWER,
    KEPT,
    MADE,
    OUT,
    RUN,
    replayed_runs,
    require_replayed,
    require_rules,
    shrink_events,
    stands,
)
from isr_batch.settings import did_you_mean
from udfs.batches.results import SET_COLUMNS
from udfs.rules import REGISTRY

LAST_FETCHES: Final = 8
"""Number of fetches that an explanation shows."""
HINTS: Final = 8
"""Number of partitions that an error message names."""
_INSTANTS = ("arrival_time", "handled_time", "processed_time", "released_time", "completed_time")


def explain(lake: Lake, topic: str, partition: int, at_us: int, rule: str) -> Story:
    """Find the shrink of a partition nearest to a time, and collect everything that decides it.

    Parameters
    ----------
    lake : Lake
        A lake with a replay of the rule.
    topic, partition : str, int
        In any cluster of the lake; the time decides.
    at_us : int
        Microseconds since the epoch.
    rule : str
        The rule that made the shrink.

    Raises
    ------
    UsageError
        If there is no such rule.
    NoInputError
        If the lake has no such topic or partition, no replay of the rule, or no shrink by it.
    """
    require_rules(rule)
    shrinks = _nearest(lake, topic, partition, at_us, rule)
    one = shrinks[0]
    term = term_of(lake, one)
    dropped = tuple(_dropped(lake, term, shrink) for shrink in shrinks)
    return Story(
        rule=rule, params_json=one["params_json"], lag_time_ms=_lag_time_ms(one),
        **{name: one[name] for name in SET_KEY},
        term_start_us=term["start_us"], term_end_us=term["end_us"],
        min_insync_replicas=_param(one, "min_insync_replicas"), broker_version=term["broker_version"],
        change_us=one["change_us"], isr_before=tuple(one["isr_before"]), isr_after=tuple(one["isr_after"]),
        high_watermark=one["high_watermark"], leader_log_end_offset=one["leader_log_end_offset"],
        silences=silences(lake, one, _blamed_from_us(one, term, dropped), one["change_us"]),
        dropped=dropped,
    )  # fmt: skip


def silences(lake: Lake, key: Row, from_us: int, until_us: int) -> tuple[tuple[int, int], ...]:
    """List the silences of the leader that overlap a time range."""
    rows = (
        lake.read("broker_events")
        .where((F.col("cluster_id") == key["cluster_id"]) & (F.col("broker_id") == key["leader_id"]))
        .where("kind = 'silent'")
        .where((F.unix_micros("event_time") < until_us) & (F.unix_micros("end_time") > from_us))
        .select(*_us("event_time", "end_time"))
        .distinct()
        .orderBy("event_us")
        .collect()
    )
    return tuple((row["event_us"], row["end_us"]) for row in rows)


def fetches_of(lake: Lake, term: Row, replica_id: int) -> DataFrame:
    """Select a follower's fetches in a term; a fetch belongs to a term by its time, as in the replay."""
    of_replica = lake.read("fetch_log").where(F.col("replica_id") == replica_id)
    return (
        single_fetches(of_replica)
        .where(_in_term(term, "arrival_time"))
        .select(
            *_us(*_INSTANTS),
            F.coalesce("fetch_offset", F.lit(NOT_NAMED)).alias("fetch_offset"),
            "leader_log_end_offset",
            "error_code",
        )
    )


def released(run: str) -> tuple[int, str]:
    """Sort key for names of rule runs: by release, then rules that only other versions of this program have."""
    rule = run.partition(" ")[0]
    return list(REGISTRY).index(rule) if rule in REGISTRY else len(REGISTRY), run


def _nearest(lake: Lake, topic: str, partition: int, at_us: int, rule: str) -> list[Row]:
    """Select the rows of ``shrink_verdicts`` of the nearest shrink, one per follower, with ``change_us``."""
    verdicts = lake.read("shrink_verdicts").where(F.col("rule") == rule)
    here = verdicts.where((F.col("topic") == topic) & (F.col("partition_id") == partition)).select(
        *_us("change_time", "restored_time"), "*"
    )
    distance = F.abs(F.col("change_us") - at_us)
    found = (
        here.orderBy(distance, "change_us", "cluster_id", "params_json", "made_by", "leader_epoch").limit(1).collect()
    )
    if not found:
        _say_what_there_is(lake, topic, partition, rule)
    (one,) = found
    same = (*SET_KEY, "params_json", "change_us", "made_by")
    return where_equal(here, one, same).orderBy("replica_id").collect()


def _say_what_there_is(lake: Lake, topic: str, partition: int, rule: str) -> None:
    terms = lake.read("leader_epochs").select("topic", "partition_id").distinct()
    topics = sorted(row["topic"] for row in terms.select("topic").distinct().collect())
    if topic not in topics:
        raise NoInputError(f"{lake.root} has no topic {topic}", did_you_mean(topic, topics))
    partitions = sorted(row["partition_id"] for row in terms.where(F.col("topic") == topic).collect())
    if partition not in partitions:
        raise NoInputError(f"topic {topic} has no partition {partition}", f"it has {', '.join(map(str, partitions))}")
    require_replayed(lake, rule)
    rows = (
        lake.read("shrink_verdicts").where(F.col("rule") == rule).groupBy("topic", "partition_id").count()
        .orderBy(F.desc(F.col("topic") == topic), F.desc("count"), "topic", "partition_id").limit(HINTS).collect()
    )  # fmt: skip
    there = ", ".join(f"{row['topic']}-{row['partition_id']} ({row['count']})" for row in rows)
    raise NoInputError(
        f"{rule} drops nobody from {topic}-{partition}",
        f"it drops followers from {there}" if there else f"{rule} makes no shrink in this lake; try another rule",
    )


def _dropped(lake: Lake, term: Row, shrink: Row) -> Dropped:
    before = F.col("arrival_us") < shrink["change_us"]
    fetches = fetches_of(lake, term, shrink["replica_id"])
    last = fetches.where(before).orderBy(F.desc("arrival_us"))
    # Its log end offset is that of its last successful fetch, which may be older than the fetches shown.
    counted = last.where("error_code = 0").limit(1).collect()
    nothing_to_hold = term["start_offset"] == 0 and not term["begins_mid_term"]
    held = counted[0]["fetch_offset"] if counted else (0 if nothing_to_hold else None)
    if held is None or held == NOT_NAMED:
        known = shrink["follower_log_end_offset"]
        held = known if known is not None and known >= 0 else None
    observed = _observed(lake, shrink)
    shown = tuple(Fetch(**row.asDict()) for row in reversed(last.limit(LAST_FETCHES).collect()))
    return Dropped(
        **{name: shrink[name] for name in _FROM_VERDICT},
        causes=tuple(shrink["causes"]), restored_us=shrink["restored_us"], true_log_end_offset=held,
        **_appends(lake, term, shrink, held),
        fetches=_with_leader_ends(lake, term, shown),
        next_arrival_us=fetches.where(~before).agg(F.min("arrival_us")).collect()[0][0],
        observed_us=observed["change_us"] if observed else None,
        observed_by=observed["made_by"] if observed else None,
        stands=_stands(lake, shrink),
    )  # fmt: skip


_FROM_VERDICT = (
    "replica_id", "made_by", "follower_log_end_offset", "last_caught_up_time_ms", "lag_ms", "true_lag_ms",
    "leader_held_ms", "leader_silent_ms", "verdict", "depends_on",
)  # fmt: skip


def _appends(lake: Lake, term: Row, shrink: Row, held: int | None) -> dict[str, Any]:
    since = F.unix_millis("append_time") >= shrink["last_caught_up_time_ms"]
    size = F.col("log_end_offset") - F.col("base_offset")
    (row,) = (
        lake.read("append_log")
        .where("log_end_offset IS NOT NULL")
        .where(_in_term(term, "append_time") & (F.unix_micros("append_time") < shrink["change_us"]))
        .agg(
            F.count_if(since).alias("appends"),
            F.coalesce(F.sum(F.when(since, size)), F.lit(0)).alias("records"),
            F.count_if(F.col("log_end_offset") > F.lit(held or 0)).alias("lacked_appends"),
            F.max(F.when(F.col("acks") != -1, F.col("log_end_offset"))).alias("acknowledged_offset"),
        )
        .collect()
    )
    return dict(row.asDict())


def _with_leader_ends(lake: Lake, term: Row, fetches: tuple[Fetch, ...]) -> tuple[Fetch, ...]:
    """Fill in the leader's log end offset at each fetch from the appends, where the log does not have it."""
    ends = [
        F.max(F.when(F.unix_micros("append_time") <= fetch.handled_us, F.col("log_end_offset"))) for fetch in fetches
    ]
    if not ends:
        return ()
    appends = lake.read("append_log").where(_in_term(term, "append_time"))
    (row,) = appends.agg(*(end.alias(f"end_{i}") for i, end in enumerate(ends))).collect()
    return tuple(
        replace(fetch, leader_log_end_offset=max(end or 0, term["start_offset"] or 0, fetch.fetch_offset))
        if fetch.leader_log_end_offset is None
        else fetch
        for fetch, end in zip(fetches, row, strict=True)
    )


def _observed(lake: Lake, shrink: Row) -> Row | None:
    apart = F.abs(F.unix_micros("change_time") - shrink["change_us"])
    rows = (
        where_equal(lake.read("observed_isr_changes"), shrink, (*SET_COLUMNS, "replica_id"))
        .where((F.col("kind") == "shrink") & (apart <= 1000 * _lag_time_ms(shrink)))
        .orderBy(apart)
        .select(*_us("change_time"), "made_by")
        .limit(1)
        .collect()
    )
    return rows[0] if rows else None


def _stands(lake: Lake, shrink: Row) -> tuple[Stand, ...]:
    """Find what the other replayed rule runs did about a shrink."""
    if shrink["made_by"] != "rule":
        return ()

    def is_own(made: Column) -> Column:
        same: Column = made["at_us"] == shrink["change_us"]
        for name in RUN:
            same &= made[name] == shrink[name]
        return same

    events = shrink_events(where_equal(lake.read("shrink_verdicts"), shrink, FOLLOWER)).where(F.exists("made", is_own))
    scores = where_equal(lake.read("partition_scores"), shrink, SET_KEY)
    replayed = replayed_runs(scores, where_equal(lake.read("leader_epochs"), shrink, SET_KEY))
    rows = (
        stands(events, replayed, where_equal(lake.read("isr_changes"), shrink, FOLLOWER))
        .where(~F.coalesce(is_own(F.col("own")), F.lit(False)))
        .select("run", "stand", "own.at_us", "own.primary_cause")
        .collect()
    )
    order = [MADE, KEPT, OUT]
    rows.sort(key=lambda row: (order.index(row["stand"]), row["at_us"] or 0, released(row["run"])))
    return tuple(Stand(**row.asDict()) for row in rows)


def _blamed_from_us(one: Row, term: Row, dropped: tuple[Dropped, ...]) -> int:
    """Time from which a silence of the leader may have contributed to the shrink."""
    signs = [1000 * follower.last_caught_up_time_ms for follower in dropped]
    signs += [follower.fetches[-1].arrival_us for follower in dropped if follower.fetches]
    return int(max(term["start_us"], min([one["change_us"], *signs])))


def term_of(lake: Lake, key: Row | dict[str, Any]) -> Row:
    """Find the row of ``leader_epochs`` at the time of the change, with ``start_us`` and ``end_us``.

    A term of which the log has several stretches has several rows.
    """
    terms = where_equal(terms_joined(lake), key, SET_KEY).select(*_us("start_time", "end_time"), "*")
    return terms.orderBy(F.col("start_us") > key["change_us"], F.desc("start_us")).collect()[0]


def where_equal(rows: DataFrame, key: Row | dict[str, Any], names: Sequence[str]) -> DataFrame:
    """Select the rows with the key's values in these columns."""
    for name in names:
        rows = rows.where(F.col(name) == F.lit(key[name]))
    return rows


def _in_term(term: Row, time: str) -> Column:
    at_us = F.unix_micros(time)
    # The day is there for Delta, which then opens no other files.
    day = F.col("event_date").between(_day(term["start_us"]), _day(term["end_us"]))
    inside: Column = day & at_us.between(term["start_us"], term["end_us"])
    for name in SET_COLUMNS:
        inside &= F.col(name) == term[name]
    return inside


def _day(at_us: int) -> Column:
    return F.timestamp_micros(F.lit(at_us)).cast("date")


def _us(*names: str) -> list[Column]:
    """Convert times to microseconds: Python datetimes would be in the local time zone."""
    return [F.unix_micros(name).alias(name.replace("_time", "_us")) for name in names]


def _param(shrink: Row, name: str) -> int:
    return int(json.loads(shrink["params_json"])[name])


def _lag_time_ms(shrink: Row) -> int:
    return _param(shrink, "replica_lag_time_max_ms")
