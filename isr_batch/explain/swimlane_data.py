"""Collect what happened on a partition around a shrink, for `isr_batch.explain.swimlane` to draw."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql import functions as F

from isr_batch.explain.shrink_facts import fetches_of, released, silences, term_of, where_equal
from isr_batch.explain.shrink_text import Fetch, Story
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.scoring.disagreements import replayed_runs
from udfs.batches.results import SET_COLUMNS

BROKERS: Final = "the brokers"
FETCHES: Final = 2_000
"""Most fetches of one follower that are drawn; the nearest to the shrink are taken."""
FURTHEST: Final = 5
"""Most lag times that are drawn on either side of the shrink."""

Span = tuple[int, int]


@dataclass(frozen=True)
class Scene:
    """A time range and what happened in it; times are microseconds since the epoch.

    Attributes
    ----------
    leader : tuple of (at_us, leader log end offset, high watermark)
        States under the story's rule; the first is from before the stretch, where there is one.
    fetches : dict
        By follower, in order of arrival.
    silences : tuple of Span
        Of the leader.
    unlogged : tuple of Span
        Before and after the leader's request log, where the term went on.
    members : dict
        By follower and run, and for `BROKERS`: when it was in the ISR.
    """

    from_us: int
    until_us: int
    leader: tuple[tuple[int, int, int], ...]
    fetches: dict[int, tuple[Fetch, ...]]
    silences: tuple[Span, ...]
    unlogged: tuple[Span, ...]
    members: dict[tuple[int, str], tuple[Span, ...]]


def scene(lake: Lake, story: Story) -> Scene:
    """Collect the data to draw for an explanation."""
    within = stretch(story)
    term = term_of(lake, asdict(story))
    followers = [follower.replica_id for follower in story.dropped]
    return Scene(
        *within,
        leader=_leader(lake, story, within),
        fetches={replica: _fetches(lake, term, replica, story.change_us, within) for replica in followers},
        silences=silences(lake, term, *within),
        unlogged=unlogged(term, within),
        members=_members(lake, term, followers, within),
    )


def unlogged(term: Mapping[str, Any] | Row, within: Span) -> tuple[Span, ...]:
    """Find the parts of a time range that lie outside a term which begins, or ends, in the middle of what happened."""
    before = (within[0], min(within[1], term["start_us"])) if term["begins_mid_term"] else (0, 0)
    after = (max(within[0], term["end_us"]), within[1]) if term["ends_mid_term"] else (0, 0)
    return tuple((start, end) for start, end in (before, after) if start < end)


def stretch(story: Story) -> Span:
    """Choose the time range: from before the followers were caught up until they are back, within some lag times."""
    lag_us = 1000 * story.lag_time_ms
    begun = [
        min([1000 * follower.last_caught_up_time_ms, *(fetch.arrival_us for fetch in follower.fetches[-2:])])
        for follower in story.dropped
    ]
    ended = [follower.restored_us or story.change_us + lag_us for follower in story.dropped]
    from_us = max(min(begun), story.change_us - FURTHEST * lag_us, story.term_start_us)
    until_us = min(max(ended), story.change_us + FURTHEST * lag_us, story.term_end_us)
    margin_us = max(until_us - from_us, lag_us) // 10
    return from_us - margin_us, until_us + margin_us


def spans(*, member: bool, changes: Sequence[tuple[int, str]], within: Span) -> tuple[Span, ...]:
    """Compute when a follower was in the ISR, from its initial membership and its shrinks and expands in order."""
    found = []
    since, until_us = min([within[0], *(at_us for at_us, _ in changes)]), within[1]
    for at_us, kind in changes:
        if member and kind == "shrink":
            found.append((since, at_us))
        if not member:
            since = at_us
        member = kind == "expand"
    if member:
        found.append((since, until_us))
    return tuple((max(start, within[0]), end) for start, end in found if end > within[0])


def _leader(lake: Lake, story: Story, within: Span) -> tuple[tuple[int, int, int], ...]:
    at_us = F.unix_micros("time").alias("at_us")
    run = (*SET_KEY, "rule", "params_json")
    states = where_equal(lake.read("partition_timeline"), asdict(story), run).select(
        at_us, "leader_log_end_offset", "high_watermark"
    )
    before = states.where(F.col("at_us") < within[0]).orderBy(F.desc("at_us")).limit(1)
    after = states.where(F.col("at_us").between(*within))
    return tuple(
        (row[0], row[1], row[2]) for row in before.unionAll(after).orderBy("at_us", "high_watermark").collect()
    )


def _fetches(lake: Lake, term: Row, replica_id: int, change_us: int, within: Span) -> tuple[Fetch, ...]:
    inside = (F.col("arrival_us") < within[1]) & (F.col("completed_us") > within[0])
    nearest = F.abs(F.col("arrival_us") - change_us)
    rows = fetches_of(lake, term, replica_id).where(inside).orderBy(nearest).limit(FETCHES).collect()
    return tuple(sorted((Fetch(**row.asDict()) for row in rows), key=lambda fetch: fetch.arrival_us))


def _members(lake: Lake, term: Row, followers: Sequence[int], within: Span) -> dict[tuple[int, str], tuple[Span, ...]]:
    """Compute ISR membership by follower and rule run; the brokers first, then rules by release."""
    replayed = (where_equal(lake.read(name), term, SET_KEY) for name in ("partition_scores", "leader_epochs"))
    runs = replayed_runs(*replayed).select("run", "rule", "params_json", "isr").distinct()
    first = {row["run"]: list(row["isr"]) for row in runs.collect()}
    made = where_equal(lake.read("isr_changes"), term, SET_KEY).join(F.broadcast(runs), ["rule", "params_json"])
    logged = where_equal(lake.read("observed_isr_changes"), term, SET_COLUMNS).withColumn("run", F.lit(BROKERS))
    columns = ("run", "replica_id", F.unix_micros("change_time").alias("at_us"), "kind")
    rows = (
        made.select(*columns)
        .unionAll(logged.select(*columns))
        .where(F.col("replica_id").isin(*followers) & F.col("kind").isin("shrink", "expand"))
        .where(F.col("at_us").between(term["start_us"], within[1]))
        .orderBy("at_us")
        .collect()
    )
    changes: dict[tuple[int, str], list[tuple[int, str]]] = {}
    for row in rows:
        changes.setdefault((row["replica_id"], row["run"]), []).append((row["at_us"], row["kind"]))
    names = {BROKERS: list(term["isr_at_start"])} | {run: first[run] for run in sorted(first, key=released)}
    return {
        (replica, name): spans(member=replica in isr, changes=changes.get((replica, name), []), within=within)
        for replica in followers
        for name, isr in names.items()
    }
