"""Query the lake for the data of a swim lane, which shows a partition in the time around a shrink.

`isr_batch.explain.swimlane` draws it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

from isr_batch.explain.shrink_data import (
    FETCH,
    Row,
    fetches_to_explain,
    leader_pauses_to_explain,
    rows_to_explain,
    term_of_shrink,
)
from isr_batch.explain.shrink_text import FetchInText, ShrinkStory
from isr_batch.incidents.colours import PHASE_COLOURS
from isr_batch.incidents.uncovered_time import uncovered_time
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.engines import engine_for_a_partition
from isr_batch.lake.lake import Lake
from isr_batch.lake.lake_engine import LakeEngine
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.rule_names import rule_names_sort_key
from isr_batch.scoring.disagreements import runs_that_may_disagree
from udfs.batches.results import SET_COLUMNS

BROKERS: Final = "the brokers"
FETCHES: Final = 2_000
"""Maximum number of fetches drawn per follower. If there are more, those nearest to the shrink are drawn."""
FURTHEST: Final = 5
"""The picture shows at most this many lag times before and after the shrink."""

Span = tuple[int, int]


@dataclass(frozen=True)
class SwimlaneScene:
    """The data of one picture, which shows what happened between ``from_us`` and ``until_us``.

    All times are microseconds since 1970.

    Attributes
    ----------
    leader : tuple of (at_us, leader log end offset, high watermark)
        States of the partition under the rule run that made the shrink, each with the time at which it began. The first
        one may have begun before ``from_us``.
    fetches : dict
        For each follower, its fetches in the order of arrival.
    silences : tuple of Span
        Silences of the leader.
    unlogged : tuple of Span
        Times that the leader's request log does not cover.
    members : dict
        For each follower and rule run (or `BROKERS`), the times in which the follower was in the ISR.
    """

    from_us: int
    until_us: int
    leader: tuple[tuple[int, int, int], ...]
    fetches: dict[int, tuple[FetchInText, ...]]
    silences: tuple[Span, ...]
    unlogged: tuple[Span, ...]
    members: dict[tuple[int, str], tuple[Span, ...]]


def swimlane_scene(lake: Lake, story: ShrinkStory) -> SwimlaneScene:
    """Query the lake for the data to draw ``story``, the result of `isr_batch.explain.shrink_data.explain_shrink`."""
    within = swimlane_span(story)
    followers = [follower.replica_id for follower in story.dropped]
    names = ("broker_id", "log", "from_time", "until_time", "begins_mid_term")
    coverage = read_columns(lake, "coverage", names, {"cluster_id": story.cluster_id}).to_pylist()
    with engine_for_a_partition(lake) as engine:
        term = term_of_shrink(engine, asdict(story))
        return SwimlaneScene(
            *within,
            leader=_leader_on_lane(engine, story, within),
            fetches={
                replica: _fetches_on_lane(engine, term, replica, story.change_us, within) for replica in followers
            },
            silences=leader_pauses_to_explain(engine, term, *within),
            unlogged=uncovered_time(coverage, term["leader_id"], within),
            members=_members_on_lane(engine, term, followers, within),
        )


def swimlane_span(story: ShrinkStory) -> Span:
    """Return start and end of the period around a shrink that its picture shows.

    The period begins when the dropped followers were last caught up and ends when they are back in the ISR, but is
    limited to `FURTHEST` lag times on both sides of the shrink and to the term. On both sides, a margin of a tenth is
    added.
    """
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


def isr_spans_on_lane(*, member: bool, changes: Sequence[tuple[int, str]], within: Span) -> tuple[Span, ...]:
    """Return the times within a period in which a follower was in the ISR.

    Parameters
    ----------
    member : bool
        Whether the follower is in the ISR before the first change.
    changes : sequence of (int, str)
        Times and kinds (shrink or expand) of the follower's ISR changes, in chronological order. They may begin before
        the period.
    within : Span
        The period.
    """
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


def fetch_phases_on_lane(fetch: FetchInText) -> list[tuple[str, int, int]]:
    """Return (name, start, end) of each phase of a fetch in the leader, such as its time in the request queue."""
    instants = (fetch.arrival_us, fetch.handled_us, fetch.processed_us, fetch.released_us, fetch.completed_us)
    return [(what, *stay) for what, stay in zip(PHASE_COLOURS, pairwise(instants), strict=True)]


def _leader_on_lane(engine: LakeEngine, story: ShrinkStory, within: Span) -> tuple[tuple[int, int, int], ...]:
    """Return the states of the partition in the period, as `SwimlaneScene.leader` describes them."""
    key = {name: getattr(story, name) for name in (*SET_KEY, "rule", "params_json")}
    rows = engine.listed(engine(
        f"""
        WITH states AS (
          SELECT unix_micros(time) AS at_us, leader_log_end_offset, high_watermark FROM {{states}}
        ), before AS (
          SELECT max(at_us) AS at_us FROM states WHERE at_us < {within[0]}
        )
        SELECT * FROM states
        WHERE at_us BETWEEN {within[0]} AND {within[1]} OR at_us IN (SELECT at_us FROM before)
        ORDER BY at_us, high_watermark
        """,
        states=rows_to_explain(engine, "partition_timeline", key),
    ))  # fmt: skip
    states = [(row["at_us"], row["leader_log_end_offset"], row["high_watermark"]) for row in rows]
    # Several states may have the same time, the last one before the period. Only the last of them is kept.
    earlier = sum(1 for at_us, _, _ in states if at_us < within[0])
    return tuple(states[max(0, earlier - 1) :])


def _fetches_on_lane(
    engine: LakeEngine, term: Row, replica_id: int, change_us: int, within: Span
) -> tuple[FetchInText, ...]:
    """Read up to `FETCHES` fetches of a follower in the period, those nearest to the shrink, in order of arrival."""
    fetches = fetches_to_explain(engine, term, replica_id, *within)
    text = f"""
        SELECT {FETCH} FROM {{fetches}} WHERE arrival_us < {within[1]} AND completed_us > {within[0]}
        ORDER BY abs(arrival_us - {change_us}) LIMIT {FETCHES}
    """
    rows = engine.listed(engine(text, fetches=fetches))
    return tuple(sorted((FetchInText(**row) for row in rows), key=lambda fetch: fetch.arrival_us))


def _members_on_lane(
    engine: LakeEngine, term: Row, followers: Sequence[int], within: Span
) -> dict[tuple[int, str], tuple[Span, ...]]:
    """Return when each follower was in the ISR, according to the brokers' logs (`BROKERS`) and under each rule run."""
    of_set = {name: term[name] for name in SET_KEY}
    replayed = runs_that_may_disagree(
        engine, *(rows_to_explain(engine, name, of_set) for name in ("partition_scores", "leader_epochs"))
    )
    rows = engine.listed(engine("SELECT DISTINCT run, rule, params_json, isr FROM {replayed}", replayed=replayed))
    first = {row["run"]: list(row["isr"]) for row in rows}
    named = {(row["rule"], row["params_json"]): row["run"] for row in rows}
    of_partition = {name: term[name] for name in SET_COLUMNS}
    changes: dict[tuple[int, str], list[tuple[int, str]]] = {}
    for table, key, run in (
        ("isr_changes", of_set, "rule, params_json"),
        ("observed_isr_changes", of_partition, "NULL AS rule, NULL AS params_json"),
    ):
        text = f"""
            SELECT {run}, replica_id, unix_micros(change_time) AS at_us, kind FROM {{made}}
            WHERE replica_id IN ({", ".join(map(str, followers))}) AND kind IN ('shrink', 'expand')
              AND unix_micros(change_time) BETWEEN {term["start_us"]} AND {within[1]}
            ORDER BY at_us
        """
        for row in engine.listed(engine(text, made=rows_to_explain(engine, table, key))):
            name = named.get((row["rule"], row["params_json"])) if row["rule"] else BROKERS
            if name:
                changes.setdefault((row["replica_id"], name), []).append((row["at_us"], row["kind"]))
    names = {BROKERS: list(term["isr_at_start"])} | {run: first[run] for run in sorted(first, key=rule_names_sort_key)}
    return {
        (replica, name): isr_spans_on_lane(
            member=replica in isr, changes=changes.get((replica, name), []), within=within
        )
        for replica in followers
        for name, isr in names.items()
    }
