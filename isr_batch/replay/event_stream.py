"""The input tables as one stream of rows for the kernel: what happened, in the leader's own order.

Every row belongs to a set: one partition on one leader. Facts about a broker as a whole (silences,
checks seen, who may join) become rows of each set that they concern. Fetches and appends, nearly all of
the log, come as packed segments.
"""

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.lake.tables.outputs import LATE_CHECKS
from isr_batch.replay.terms import terms_joined
from isr_batch.window import Window
from udfs.batches.replay import KEPT_FIELDS
from udfs.batches.results import SET_COLUMNS
from udfs.batches.segments import SEGMENT
from udfs.records import (
    ABSENT_LINE,
    CHECK,
    ELIGIBLE,
    FETCH,
    GOES_ON,
    ISR_WRITE,
    OTHERS_LINE,
    REMOVED,
    SILENCE,
    TERM_STARTS,
    UNKNOWN,
    Rows,
)

LATE_MS = 10
"""A check that printed its first line so much later than it was due ran late."""

CHECK_LEAD_US = 1_000
"""A check seen in the log is announced so long before it was due, so that its schedule can still be moved."""


def event_stream(
    lake: Lake,
    told: DataFrame,
    window: Window = Window(),  # noqa: B008 frozen
    kept: DataFrame | None = None,
) -> DataFrame:
    """All rows of all sets whose time is in the window, in no order yet.

    Parameters
    ----------
    lake : Lake
        With the input tables.
    told : DataFrame
        Its ``facts``.
    window : Window
        UTC days.
    kept : DataFrame, optional
        Rows of ``replay_state`` that the replay goes on from.

    Returns
    -------
    DataFrame
        SET_COLUMNS, the columns of ``udfs.records.Rows`` (BIGINT), ``term``, ``kept``, ``segment``.
    """
    parts = [told.where(window.within("time_us")), _segments(lake.read("fetch_segments"), window)]
    if kept is not None:
        parts.append(_kept(kept, terms_joined(lake), window))
    stream = parts[0]
    for part in parts[1:]:
        stream = stream.unionByName(part, allowMissingColumns=True)
    return stream


def facts(lake: Lake, *, pinned: bool = True, late: DataFrame | None = None) -> DataFrame:
    """Rows of the stream that are neither fetches nor appends: few, and not packed.

    Unless ``pinned``, without those that the lines of shrinks give, or their absence: when a check ran, the log end
    that it saw, how long the ISR write took. ``late`` are rows of ``late_checks``, by default those of the lake.
    """
    terms, broker_events = terms_joined(lake), lake.read("broker_events")
    changes = lake.read("observed_isr_changes")
    parts = [_removals(terms, changes), _silences(terms, broker_events), _eligibility(terms, broker_events)]
    if pinned:
        parts += [_checks(terms, changes, broker_events), _isr_writes(changes)]
        lake.ensure(LATE_CHECKS)
        if late is None and lake.files(LATE_CHECKS.name):
            late = lake.read(LATE_CHECKS.name)
        if late is not None:
            parts.append(_late_checks(late))
    rows = terms_of(terms)
    for part in parts:
        rows = rows.unionByName(part, allowMissingColumns=True)
    return rows


def _rows(frame: DataFrame, kind: Column | np.int64, *more: Column | str, **columns: Column) -> DataFrame:
    """Rows of one kind; columns that mean nothing for it are UNKNOWN."""
    given = {"kind": kind if isinstance(kind, Column) else F.lit(int(kind)), **columns}
    values = [given.get(name, F.lit(int(UNKNOWN))).cast("bigint").alias(name) for name in Rows._fields]
    return frame.select(*SET_COLUMNS, *values, *more)


def _us(name: str) -> Column:
    return F.unix_micros(name)


def terms_of(terms: DataFrame) -> DataFrame:
    """Rows that begin terms, with what else is known of them."""
    term = F.struct(
        "leader_epoch",
        _us("end_time").alias("end_us"),
        F.coalesce("start_high_watermark", F.lit(0)).alias("high_watermark"),
        "assigned",
        "isr_at_start",
        (F.coalesce("previous_leader_id", F.lit(-1)) != F.col("leader_id")).alias("leader_is_new"),
        F.col("previous_leader_id").isNull().alias("process_is_new"),
        "replica_lag_time_max_ms",
        F.col("min_insync_replicas").cast("bigint").alias("min_insync_replicas"),
        "check_origin_ms",
        F.coalesce("isr_write_ms", F.lit(0)).alias("isr_write_ms"),
        F.coalesce("begins_mid_term", F.lit(False)).alias("begins_mid_term"),
        F.coalesce("ends_mid_term", F.lit(False)).alias("ends_mid_term"),
        F.col("start_offset").isNotNull().alias("offsets_known"),
        (F.col("check_origin_source") != "unknown").alias("phase_known"),
        (F.coalesce("isr_source", F.lit("logged")) != "inferred").alias("isr_known"),
        "held_at_start",
    )
    offset = F.coalesce("start_offset", F.lit(0))
    return _rows(terms, TERM_STARTS, term.alias("term"), time_us=_us("start_time"), offset=offset)


def _segments(segments: DataFrame, window: Window) -> DataFrame:
    segment = F.struct(*(field.name for field in SEGMENT)).alias("segment")
    # Behind all rows of its first instant; what is in it is put in order with them when it is unpacked.
    rows = _rows(segments.where(window.handled_in), FETCH, segment, time_us=_us("first_time"))
    return rows.where(window.within("time_us"))


def _kept(kept: DataFrame, terms: DataFrame, window: Window) -> DataFrame:
    """States at the beginning of the window; where a term ends may have been learned since.

    A leader that starts again begins a term of the same epoch: the state is of the last one before the window.
    """
    begun = terms.where(_us("start_time") < F.lit(window.start_us))
    ends = begun.groupBy(*SET_KEY).agg(
        F.max_by(_us("end_time"), "start_time").alias("end_us"),
        F.max_by(F.coalesce("ends_mid_term", F.lit(False)), "start_time").alias("ends_mid_term"),
    )
    row = F.struct(*(name for name, _ in KEPT_FIELDS)).alias("kept")
    return _rows(kept.join(F.broadcast(ends), list(SET_KEY)), GOES_ON, row, time_us=F.lit(window.start_us))


def _removals(terms: DataFrame, changes: DataFrame) -> DataFrame:
    """Removals by the controller, when the leader came to know of them.

    A record that begins a new term (up to 3.6 every removal does) reaches its leader some time later. Until then the
    old term goes on, and a removal in it would be undone by the follower's next fetch.
    """
    removed = changes.where("kind = 'shrink' AND made_by = 'controller'")
    # Terms are few: one task groups them, so that nothing is exchanged.
    begins = terms.coalesce(1).groupBy(*SET_KEY).agg(F.min(_us("start_time")).alias("start_us"))
    at_us = F.greatest(_us("change_time"), F.coalesce(F.col("start_us") - 1, _us("change_time")))
    return _rows(
        removed.join(F.broadcast(begins), list(SET_KEY), "left"),
        REMOVED,
        time_us=at_us,
        replica_id=F.col("replica_id"),
    )


def _silences(terms: DataFrame, broker_events: DataFrame) -> DataFrame:
    """A leader's silences, for every term that they fall into."""
    silent = broker_events.where("kind = 'silent'").withColumnRenamed("broker_id", "leader_id").drop("event_date")
    spans = terms.select(*SET_COLUMNS, "start_time", F.col("end_time").alias("term_end_time"))
    within = spans.join(F.broadcast(silent), ["cluster_id", "leader_id"]).where(
        "event_time > start_time AND event_time < term_end_time"
    )
    return _rows(within, SILENCE, time_us=_us("event_time"), until_us=_us("end_time"))


def _checks(terms: DataFrame, changes: DataFrame, broker_events: DataFrame) -> DataFrame:
    """When isr-expiration came to a partition, where the leader printed it.

    It visits one partition after the other, and a leader that just woke up takes tens of milliseconds
    for that. A line about two replicas is told twice, to the same effect. A partition without a line of its own is
    checked when the check was due, or, if that printed its first line late, at that line.
    """
    checks = broker_events.where("kind = 'check'").withColumnRenamed("broker_id", "leader_id").drop("event_date")
    lines = changes.where("kind = 'shrink' AND made_by = 'leader'").select(
        *SET_COLUMNS, "change_time", "leader_log_end_offset", "replica_id"
    )
    visited = lines.join(F.broadcast(checks), ["cluster_id", "leader_id"]).where(
        "change_time >= end_time AND change_time < end_time + INTERVAL 1 SECOND"
    )
    late = checks.where(f"end_time > event_time + INTERVAL {LATE_MS} MILLISECONDS")
    led = terms.select(*SET_COLUMNS, "start_time", F.col("end_time").alias("term_end_time"))
    others = led.join(F.broadcast(late), ["cluster_id", "leader_id"]).where(
        "event_time >= start_time AND end_time < term_end_time"
    )
    due_us = _us("event_time") - CHECK_LEAD_US
    shown = {
        "offset": F.coalesce("leader_log_end_offset", F.lit(int(UNKNOWN))),
        "replica_id": F.col("replica_id"),
    }
    return _rows(visited, CHECK, time_us=due_us, until_us=_us("change_time"), **shown).unionByName(
        _rows(others, CHECK, time_us=due_us, until_us=_us("end_time"), code=F.lit(int(OTHERS_LINE)))
    )


def _late_checks(known: DataFrame) -> DataFrame:
    """Checks that ran later than they were due, as an absent line tells."""
    due_us, ran_us = _us("due_time") - CHECK_LEAD_US, _us("ran_time")
    return _rows(known, CHECK, time_us=due_us, until_us=ran_us, code=F.lit(int(ABSENT_LINE)))


def _isr_writes(changes: DataFrame) -> DataFrame:
    """ISR writes of leaders, from the Shrinking line to its answer; before the check that prints the line."""
    written = changes.where("kind = 'shrink' AND made_by = 'leader' AND answered_time IS NOT NULL")
    return _rows(written, ISR_WRITE, time_us=_us("change_time") - 1, until_us=_us("answered_time"))


def _eligibility(terms: DataFrame, broker_events: DataFrame) -> DataFrame:
    """When each follower of a term may not join the ISR, and when it may again.

    A broker that is fenced or shuts down may not join. What was told before the term began holds from
    its beginning; ``handled_us`` keeps the order in which it was told. The leader hears of it some
    time after the controller wrote it down. Only the good news is delayed here: removals from the ISR
    are taken at the controller's time, and a follower must not come back in between.
    """
    states = broker_events.where("kind IN ('fenced', 'unfenced', 'shutting_down')").select(
        "cluster_id", F.col("broker_id").alias("replica_id"), "event_time", "kind"
    )
    followers = (
        terms.select(
            *SET_COLUMNS, "start_time", "end_time", "metadata_delay_ms", F.explode("assigned").alias("replica_id")
        )
        .where("replica_id <> leader_id")
        .join(F.broadcast(states), ["cluster_id", "replica_id"])
        .where("event_time < end_time")
    )
    may_join = F.col("kind") == "unfenced"
    delay_us = F.when(may_join, F.coalesce("metadata_delay_ms", F.lit(0)) * 1000).otherwise(0)
    return _rows(
        followers,
        ELIGIBLE,
        time_us=F.greatest(_us("event_time") + delay_us, _us("start_time")),
        handled_us=_us("event_time"),
        replica_id=F.col("replica_id"),
        code=may_join,
    )
