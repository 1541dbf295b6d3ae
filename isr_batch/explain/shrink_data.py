"""Query the lake for the data about one shrink that `isr_batch.explain.shrink_text` describes."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from typing import Any, Final

import pyarrow as pa

from isr_batch.errors import NoInputError
from isr_batch.explain.shrink_text import NOT_NAMED, DroppedFollower, FetchInText, OtherRuleInText, ShrinkStory
from isr_batch.lake.engines import engine_for_a_partition
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine, Rows
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.phrases import did_you_mean
from isr_batch.replay.terms import JOINED
from isr_batch.rule_names import require_rule_names, rule_names_sort_key
from isr_batch.scoring.disagreements import (
    FOLLOWER,
    KEPT,
    MADE,
    OUT,
    RUN,
    disagreements_at_events,
    require_rules_to_disagree,
    runs_that_may_disagree,
    shrink_events,
)
from isr_batch.window import AskedTime
from udfs.batches.results import SET_COLUMNS

LAST_FETCHES: Final = 8
"""Maximum number of fetches that an explanation lists."""
HINTS: Final = 8
"""Maximum number of partitions with shrinks that an error message suggests."""
NEAR_US: Final = 3_600_000_000
"""Fetches are first searched this many microseconds before and after a shrink, and in the whole term only if that is
not enough. A term may last for months."""
FETCH: Final = (
    "arrival_us, handled_us, processed_us, released_us, completed_us, "
    f"coalesce(fetch_offset, {NOT_NAMED}) AS fetch_offset, leader_log_end_offset, error_code"
)
"""SQL select list that turns rows of `fetches_to_explain` into the fields of `shrink_text.FetchInText`."""

Row = Mapping[str, Any]


def explain_shrink(lake: Lake, topic: str, partition: int, at: AskedTime, rule: str) -> ShrinkStory:
    """Find the shrink of a partition that is nearest to a time, and collect what explains it.

    Parameters
    ----------
    lake : Lake
        A lake with a replay of the rule.
    topic, partition : str, int
        If several clusters in the lake have this partition, the shrink that is nearest to ``at`` is used.
    at : AskedTime
        The time that the user asked for.
    rule : str
        Name of the rule that made the shrink.

    Raises
    ------
    UsageError
        If the rule does not exist.
    NoInputError
        If the lake has no such topic or partition, no replay of the rule, or no shrink by it.
    """
    require_rule_names(rule)
    with engine_for_a_partition(lake) as engine:
        asked = {"rule": rule, "topic": topic, "partition_id": partition}
        shrinks = _nearest(engine, lake, asked, at)
        one = shrinks[0]
        term = term_of_shrink(engine, one)
        dropped = tuple(_dropped_in_shrink(engine, term, shrink) for shrink in shrinks)
        blamed_us = (_blamed_from_us(one, term, dropped), one["change_us"])
        return ShrinkStory(
            rule=rule, params_json=one["params_json"], lag_time_ms=_lag_time_of_shrink_ms(one),
            **{name: one[name] for name in SET_KEY},
            term_start_us=term["start_us"], term_end_us=term["end_us"],
            min_insync_replicas=_param_of_shrink(one, "min_insync_replicas"), broker_version=term["broker_version"],
            change_us=one["change_us"], from_asked_us=at.after_us(one["change_us"]),
            isr_before=tuple(one["isr_before"]), isr_after=tuple(one["isr_after"]),
            high_watermark=one["high_watermark"], leader_log_end_offset=one["leader_log_end_offset"],
            silences=tuple(
                (broker, *span) for broker in (one["leader_id"], *(follower.replica_id for follower in dropped))
                for span in leader_pauses_to_explain(engine, one | {"leader_id": broker}, *blamed_us)
            ), dropped=dropped,
            quiets=leader_pauses_to_explain(engine, one, *blamed_us, kind="quiet"),
        )  # fmt: skip


def leader_pauses_to_explain(
    engine: LakeEngine, key: Row, from_us: int, until_us: int, kind: str = "silent"
) -> tuple[tuple[int, int], ...]:
    """Return start and end of each silence (time in which a broker handled no request) that overlaps a time range.

    The broker is ``key["leader_id"]`` in the cluster ``key["cluster_id"]``. For the kind ``quiet``, the times in which
    no follower fetched from the broker are returned instead. All times are microseconds since 1970.
    """
    text = f"""
        SELECT DISTINCT unix_micros(event_time) AS event_us, unix_micros(end_time) AS end_us FROM {{broker_events}}
        WHERE cluster_id = {engine.literal(key["cluster_id"])} AND broker_id = {key["leader_id"]} AND kind = '{kind}'
          AND unix_micros(event_time) < {until_us} AND unix_micros(end_time) > {from_us}
        ORDER BY event_us
    """
    rows = engine.listed(engine(text, broker_events=engine.table("broker_events")))
    return tuple((row["event_us"], row["end_us"]) for row in rows)


def fetches_to_explain(engine: LakeEngine, term: Row, replica_id: int, from_us: int, until_us: int) -> Rows:
    """Return the fetches of a follower that were in progress between two instants and arrived within a term.

    ``term`` is the result of `term_of_shrink`: the time of one leader epoch of a partition.
    """
    span = {"replica_id": replica_id, "from_us": max(from_us, term["start_us"]),
            "until_us": min(until_us, term["end_us"])}  # fmt: skip
    types = {"cluster_id": pa.string(), "topic": pa.string(), "from_us": pa.int64(), "until_us": pa.int64()}
    key = {name: term[name] for name in ("cluster_id", "topic", "partition_id", "leader_id")}
    spans = {name: pa.array([value], types.get(name, pa.int32())) for name, value in {**key, **span}.items()}
    # A fetch belongs to the day on which it was handled, which may be the day after its arrival.
    days = (_day_of_shrink(span["from_us"]) - timedelta(days=1), _day_of_shrink(span["until_us"]) + timedelta(days=1))
    found = engine.fetches(engine.rows(pa.table(spans)), days)
    in_term = f"arrival_us BETWEEN {term['start_us']} AND {term['end_us']}"
    return engine(f"SELECT * FROM {{found}} WHERE {in_term}", found=found)


def _nearest(engine: LakeEngine, lake: Lake, asked: Row, at: AskedTime) -> list[dict[str, Any]]:
    """Return the shrink that is nearest to a time, as its rows of ``shrink_verdicts``, one per dropped follower."""
    here = rows_to_explain(engine, "shrink_verdicts", asked)
    times = "unix_micros(change_time) AS change_us, unix_micros(restored_time) AS restored_us"
    found = engine.listed(engine(f"SELECT *, {times} FROM {{here}}", here=here))
    if not found:
        _say_what_there_is(engine, lake, **asked)
    order = ("change_us", "cluster_id", "params_json", "made_by", "leader_epoch")
    one = min(found, key=lambda row: (abs(at.after_us(row["change_us"])), *(row[name] for name in order)))
    same = (*SET_KEY, "params_json", "change_us", "made_by")
    shrinks = [row for row in found if all(row[name] == one[name] for name in same)]
    return sorted(shrinks, key=lambda row: int(row["replica_id"]))


def _say_what_there_is(engine: LakeEngine, lake: Lake, rule: str, topic: str, partition_id: int) -> None:
    """Raise a NoInputError that says why no shrink was found, and names topics, partitions or rules to try."""
    text = "SELECT DISTINCT topic, partition_id FROM {terms} ORDER BY topic, partition_id"
    terms = engine.listed(engine(text, terms=engine.table("leader_epochs")))
    topics = list(dict.fromkeys(row["topic"] for row in terms))
    if topic not in topics:
        raise NoInputError(f"{lake.root} has no topic {topic}", did_you_mean(topic, topics))
    partitions = [row["partition_id"] for row in terms if row["topic"] == topic]
    if partition_id not in partitions:
        raise NoInputError(
            f"topic {topic} has no partition {partition_id}", f"it has {', '.join(map(str, partitions))}"
        )
    require_rules_to_disagree(lake, rule)
    rows = engine.listed(engine(
        f"""
        SELECT topic, partition_id, count(*) AS shrinks FROM {{verdicts}} WHERE rule = {engine.literal(rule)}
        GROUP BY topic, partition_id
        ORDER BY topic <> {engine.literal(topic)}, shrinks DESC, topic, partition_id LIMIT {HINTS}
        """,
        verdicts=engine.table("shrink_verdicts"),
    ))  # fmt: skip
    there = ", ".join(f"{row['topic']}-{row['partition_id']} ({row['shrinks']})" for row in rows)
    raise NoInputError(
        f"{rule} drops no follower from {topic}-{partition_id}",
        f"it drops followers from {there}" if there else f"{rule} makes no shrink in this lake; try another rule",
    )


def _dropped_in_shrink(engine: LakeEngine, term: Row, shrink: Row) -> DroppedFollower:
    """Collect the data about one dropped follower, using its row of ``shrink_verdicts``."""
    change_us = shrink["change_us"]
    near = _fetches_around_shrink(engine, term, shrink, change_us - NEAR_US, change_us + NEAR_US)
    whole = near.from_us <= term["start_us"] and near.until_us >= term["end_us"]
    if not whole and not near.is_enough:
        near = _fetches_around_shrink(engine, term, shrink, term["start_us"], term["end_us"])
    nothing_to_hold = term["start_offset"] == 0 and not term["begins_mid_term"]
    held = near.counted[0]["fetch_offset"] if near.counted else (0 if nothing_to_hold else None)
    if held is None or held == NOT_NAMED:
        known = shrink["follower_log_end_offset"]
        held = known if known is not None and known >= 0 else None
    observed = _observed_shrink(engine, shrink)
    return DroppedFollower(
        **{name: shrink[name] for name in _FROM_VERDICT},
        causes=tuple(shrink["causes"]), restored_us=shrink["restored_us"], true_log_end_offset=held,
        **_appends_to_explain(engine, term, shrink, held),
        fetches=_with_leader_ends(engine, term, tuple(FetchInText(**row) for row in reversed(near.last))),
        next_arrival_us=near.next_us,
        observed_us=observed["change_us"] if observed else None,
        observed_by=observed["made_by"] if observed else None,
        stands=_decisions_of_other_runs(engine, shrink),
    )  # fmt: skip


_FROM_VERDICT = (
    "replica_id", "made_by", "follower_log_end_offset", "last_caught_up_time_ms", "lag_ms", "true_lag_ms",
    "leader_held_ms", "leader_silent_ms", "verdict", "time_error_ms", "depends_on",
)  # fmt: skip


class _Around:
    """The fetches of a follower before and after a shrink.

    Attributes
    ----------
    last : list of dict
        Up to `LAST_FETCHES` fetches that arrived before the shrink, the latest first.
    counted : list of dict
        The last successful one of them, as the only item; empty if none was successful.
    next_us : int or None
        When the first fetch after the shrink arrived.
    """

    def __init__(self, engine: LakeEngine, fetches: Rows, change_us: int, span: tuple[int, int]) -> None:
        self.from_us, self.until_us = span

        def last(most: int, condition: str = "true") -> list[dict[str, Any]]:
            return engine.listed(engine(
                f"SELECT {FETCH} FROM {{fetches}} WHERE arrival_us < {change_us} AND {condition} "
                f"ORDER BY arrival_us DESC LIMIT {most}",
                fetches=fetches,
            ))  # fmt: skip

        # The last successful fetch shows the follower's log end offset. It may be older than the fetches listed.
        self.last, self.counted = last(LAST_FETCHES), last(1, "error_code = 0")
        since = f"SELECT min(arrival_us) AS next_us FROM {{fetches}} WHERE arrival_us >= {change_us}"
        self.next_us: int | None = engine.listed(engine(since, fetches=fetches))[0]["next_us"]

    @property
    def is_enough(self) -> bool:
        """Whether the fetches that were read suffice for the explanation, so that none before or after are needed."""
        return len(self.last) == LAST_FETCHES and bool(self.counted) and self.next_us is not None


def _fetches_around_shrink(engine: LakeEngine, term: Row, shrink: Row, from_us: int, until_us: int) -> _Around:
    """Read the fetches of the dropped follower between two instants."""
    fetches = engine.keep(fetches_to_explain(engine, term, shrink["replica_id"], from_us, until_us))
    return _Around(engine, fetches, shrink["change_us"], (from_us, until_us))


def _appends_to_explain(engine: LakeEngine, term: Row, shrink: Row, held: int | None) -> dict[str, Any]:
    """Count the appends of the term that matter to an explanation, as the fields of `DroppedFollower`.

    appends and records: since the follower was last caught up. lacked_appends: those that end after ``held``, the
    offset up to which the follower had all records. acknowledged_offset: the largest log end offset after an append
    with acks 0 or 1.
    """
    since = f"unix_micros(append_time) >= 1000 * {shrink['last_caught_up_time_ms']}"
    (row,) = engine.listed(engine(
        f"""
        SELECT
          count(CASE WHEN {since} THEN 1 END) AS appends,
          coalesce(sum(CASE WHEN {since} THEN log_end_offset - base_offset END), 0) AS records,
          count(CASE WHEN log_end_offset > {held or 0} THEN 1 END) AS lacked_appends,
          max(CASE WHEN acks <> -1 THEN log_end_offset END) AS acknowledged_offset
        FROM {{append_log}}
        WHERE log_end_offset IS NOT NULL AND {_in_term(engine, term)}
          AND unix_micros(append_time) < {shrink["change_us"]}
        """,
        append_log=engine.table("append_log"),
    ))  # fmt: skip
    return row


def _with_leader_ends(engine: LakeEngine, term: Row, fetches: tuple[FetchInText, ...]) -> tuple[FetchInText, ...]:
    """Where a fetch has no log end offset of the leader, derive it from the appends before the fetch."""
    if not fetches:
        return ()
    ends = ", ".join(
        f"max(CASE WHEN unix_micros(append_time) <= {fetch.handled_us} THEN log_end_offset END) AS end_{i}"
        for i, fetch in enumerate(fetches)
    )
    text = f"SELECT {ends} FROM {{append_log}} WHERE {_in_term(engine, term)}"
    (row,) = engine.listed(engine(text, append_log=engine.table("append_log")))
    return tuple(
        replace(fetch, leader_log_end_offset=max(row[f"end_{i}"] or 0, term["start_offset"] or 0, fetch.fetch_offset))
        if fetch.leader_log_end_offset is None
        else fetch
        for i, fetch in enumerate(fetches)
    )


def _observed_shrink(engine: LakeEngine, shrink: Row) -> Row | None:
    """Return the nearest shrink of the follower in the brokers' logs; None if none is at most a lag time away."""
    of_follower = rows_to_explain(
        engine, "observed_isr_changes", {name: shrink[name] for name in (*SET_COLUMNS, "replica_id")}
    )
    text = "SELECT unix_micros(change_time) AS change_us, made_by FROM {of_follower} WHERE kind = 'shrink'"
    lag_us = 1000 * _lag_time_of_shrink_ms(shrink)
    near = [
        (abs(row["change_us"] - shrink["change_us"]), row)
        for row in engine.listed(engine(text, of_follower=of_follower))
    ]
    return min((apart for apart in near if apart[0] <= lag_us), key=lambda apart: apart[0], default=(0, None))[1]


def _decisions_of_other_runs(engine: LakeEngine, shrink: Row) -> tuple[OtherRuleInText, ...]:
    """Return what each other rule run decided: it made the shrink too, kept the follower, or had it out before.

    Empty if the controller made the shrink, because no rule decided then.
    """
    if shrink["made_by"] != "rule":
        return ()
    of_follower = {name: shrink[name] for name in FOLLOWER}
    of_set = {name: shrink[name] for name in SET_KEY}
    events = shrink_events(engine, rows_to_explain(engine, "shrink_verdicts", of_follower))
    is_own = " AND ".join(f"{name} = {engine.literal(shrink[name])}" for name in RUN)
    is_own += f" AND at_us = {shrink['change_us']}"
    event = engine(
        f"SELECT * FROM {{events}} WHERE event_us IN (SELECT event_us FROM {{events}} WHERE {is_own})", events=events
    )
    replayed = runs_that_may_disagree(
        engine, rows_to_explain(engine, "partition_scores", of_set), rows_to_explain(engine, "leader_epochs", of_set)
    )
    decided = disagreements_at_events(engine, event, replayed, rows_to_explain(engine, "isr_changes", of_follower))
    text = f"SELECT run, stand, at_us, primary_cause FROM {{decided}} WHERE NOT coalesce({is_own}, false)"
    rows = engine.listed(engine(text, decided=decided))
    order = [MADE, KEPT, OUT]
    rows.sort(key=lambda row: (order.index(row["stand"]), row["at_us"] or 0, rule_names_sort_key(row["run"])))
    return tuple(OtherRuleInText(**row) for row in rows)


def _blamed_from_us(one: Row, term: Row, dropped: tuple[DroppedFollower, ...]) -> int:
    """Return the earliest time at which a silence of the leader can have contributed to the shrink.

    That is when a dropped follower was last caught up or, if earlier, when its last fetch arrived. It is never before
    the start of the term.
    """
    signs = [1000 * follower.last_caught_up_time_ms for follower in dropped]
    signs += [follower.fetches[-1].arrival_us for follower in dropped if follower.fetches]
    return int(max(term["start_us"], min([one["change_us"], *signs])))


def term_of_shrink(engine: LakeEngine, key: Row) -> dict[str, Any]:
    """Return the row of table leader_epochs for the term (time of one leader epoch) in which a shrink happened.

    ``key`` is a row of shrink_verdicts. The returned dict has the columns of leader_epochs, and the term's start and
    end as ``start_us`` and ``end_us``. Gaps in the log divide a term into several rows. Of these, the last one that
    starts before the shrink is returned.
    """
    joined = engine(
        JOINED, leader_epochs=rows_to_explain(engine, "leader_epochs", {name: key[name] for name in SET_KEY})
    )
    times = "unix_micros(start_time) AS start_us, unix_micros(end_time) AS end_us"
    terms = engine.listed(engine(f"SELECT {times}, * FROM {{joined}}", joined=joined))
    return min(terms, key=lambda term: (term["start_us"] > key["change_us"], -term["start_us"]))


def rows_to_explain(engine: LakeEngine, name: str, key: Row) -> Rows:
    """Return the rows of the table ``name`` that have the values in ``key``, a dict from column name to value."""
    same = " AND ".join(f"{column} = {engine.literal(value)}" for column, value in key.items())
    return engine(f"SELECT * FROM {{{name}}} WHERE {same}", **{name: engine.table(name)})


def _in_term(engine: LakeEngine, term: Row) -> str:
    """Return the SQL condition that selects the rows of ``append_log`` that belong to a term."""
    days = f"event_date BETWEEN DATE '{_day_of_shrink(term['start_us'])}' AND DATE '{_day_of_shrink(term['end_us'])}'"
    same = (f"{name} = {engine.literal(term[name])}" for name in SET_COLUMNS)
    # The condition on event_date lets the engine skip the files of other days.
    return " AND ".join([days, f"unix_micros(append_time) BETWEEN {term['start_us']} AND {term['end_us']}", *same])


def _day_of_shrink(at_us: int) -> date:
    return date(1970, 1, 1) + timedelta(microseconds=at_us)


def _param_of_shrink(shrink: Row, name: str) -> int:
    return int(json.loads(shrink["params_json"])[name])


def _lag_time_of_shrink_ms(shrink: Row) -> int:
    return _param_of_shrink(shrink, "replica_lag_time_max_ms")
