"""For each of the worst incidents, describe one of its shrinks in sentences and as a swim lane, and list its drops."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from isr_batch.incidents.own_shrinks import Key, OwnShrinks, Row, drops_of_incidents, incident_key
from isr_batch.incidents.rule_choices import LAG_TIME
from isr_batch.incidents.sentences import incidents_worst_first
from isr_batch.lake.lake_sql import LakeSql
from isr_batch.report.pictures import sql_of_picture
from isr_batch.report.shrink_sentences import shrink_sentences
from isr_batch.report.swim_lane_on_page import SwimLaneOnPage, swim_lane_on_page
from isr_batch.shown_times import time_text, zone_name

MOST: Final = 100
"""Maximum number of incidents, over all clusters, for which the page describes a shrink. Others only show a command."""
LISTED: Final = 24
"""Maximum number of drops that are listed for each incident."""
FURTHEST: Final = 3
"""A swim lane shows at most this many lag times before and after a shrink, with a margin of half a lag time."""


class ShrinkOnPage(NamedTuple):
    """The part of the page about an incident: one of its shrinks, in sentences and as a swim lane, and all its drops.

    ``drops`` has at most `LISTED` items, and ``more`` is the number of drops that are left out.
    """

    headline: str
    sentences: list[str]
    lane: SwimLaneOnPage
    drops: list[dict[str, object]]
    more: int


class ShrinkInQuery(NamedTuple):
    """A shrink to query for: a row of the parameter ``:shrinks`` in ``sql/facts.sql`` and ``sql/lanes.sql``.

    Times are microseconds since 1970. ``change_us`` is the time in the replay, ``observed_us`` the time that the
    brokers logged. The swim lane begins at ``from_us`` and ends at ``until_us``.
    """

    id: int
    cluster_id: str
    topic: str
    partition_id: int
    rule: str
    params_json: str
    change_us: int
    observed_us: int
    from_us: int
    until_us: int


def shrinks_on_page(sql: LakeSql, own: OwnShrinks, rules: dict[str, list[str]]) -> dict[Key, ShrinkOnPage]:
    """Collect the content of the page for each of the worst incidents.

    The keys of the result are those of `isr_batch.incidents.own_shrinks.incident_key`.

    Parameters
    ----------
    sql : LakeSql
    own : OwnShrinks
    rules : dict of str to list of str
        The rules that were replayed, by cluster.
    """
    drops = drops_of_incidents(own)
    worst, shown = choose_shrinks_on_page(own, drops)
    if not shown:
        return {}
    ran = [(rule,) for rule in sorted({one.rule for one in shown})]
    facts = _shrinks_by_id(sql(sql_of_picture("facts"), shrinks=shown))
    lanes = _shrinks_by_id(sql(sql_of_picture("lanes"), shrinks=shown, rules=ran))
    found = {}
    for one, incident in zip(shown, worst, strict=True):
        every = drops[incident_key(incident)]
        lane = swim_lane_on_page(
            lanes[one.id],
            (one.from_us, one.until_us),
            (one.rule, one.change_us),
            _lag_time_of_shrinks(one),
            rules[one.cluster_id],
        )
        headline, sentences = shrink_sentences(
            _judged_as_drops(facts[one.id], one, every),
            f"{one.topic}-{one.partition_id}",
            one.rule,
            _lag_time_of_shrinks(one),
            lane.stands,
        )
        found[incident_key(incident)] = ShrinkOnPage(
            headline, sentences, lane, [_drop_on_page(row) for row in every[:LISTED]], max(0, len(every) - LISTED)
        )
    return found


def _judged_as_drops(facts: Sequence[Row], one: ShrinkInQuery, drops: Sequence[Row]) -> list[Row]:
    """Replace verdicts and causes in ``facts`` by those in ``drops``, which also use what other brokers logged."""
    shrink = one.topic, one.partition_id, one.change_us
    judged = {
        row["replica_id"]: {"verdict": row["verdict"], "primary_cause": row["cause"]} for row in drops
        if (row["topic"], row["partition_id"], row["replayed_us"]) == shrink
    }  # fmt: skip
    return [row | judged.get(row["replica_id"], {}) for row in facts]


def choose_shrinks_on_page(own: OwnShrinks, drops: Mapping[Key, list[Row]]) -> tuple[list[Row], list[ShrinkInQuery]]:
    """Choose up to `MOST` incidents, the worst first, and one shrink of each.

    Returns
    -------
    list of dict
        The incidents.
    list of ShrinkInQuery
        For each of them, the shrink to show.
    """
    worst = [one for one in incidents_worst_first(own.incidents) if one["rule"]][:MOST]
    return worst, [_shown_shrinks(number, one, drops[incident_key(one)]) for number, one in enumerate(worst)]


def _shown_shrinks(number: int, incident: Row, drops: Sequence[Row]) -> ShrinkInQuery:
    """Return the query's row for the example shrink of an incident. ``number`` becomes its id."""
    place = (incident["topic"], incident["partition_id"], incident["example_us"], incident["rule"])
    same = [row for row in drops if (row["topic"], row["partition_id"], row["change_us"], row["rule"]) == place]
    first = same[0]
    change_us, lag_us = first["replayed_us"], 1000 * json.loads(first["params_json"])[LAG_TIME]
    since_us = min(change_us - 1000 * (row["lag_ms"] or 0) for row in same)
    back_us = max(row["restored_us"] or change_us + lag_us for row in same)
    return ShrinkInQuery(
        number, incident["cluster_id"], first["topic"], first["partition_id"], first["rule"], first["params_json"],
        change_us, first["change_us"],
        max(since_us, change_us - FURTHEST * lag_us) - lag_us // 2,
        min(back_us, change_us + FURTHEST * lag_us) + lag_us // 2,
    )  # fmt: skip


def _lag_time_of_shrinks(one: ShrinkInQuery) -> int:
    return int(json.loads(one.params_json)[LAG_TIME])


def _shrinks_by_id(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["id"]].append(row)
    return found


def _drop_on_page(row: Row) -> dict[str, Any]:
    """Return the cells of a drop in the list of an incident's drops, by heading."""
    back = None if row["restored_us"] is None else (row["restored_us"] - row["change_us"]) / 1e6
    return {
        zone_name(): f"{time_text(row['change_us'], '%H:%M:%S')}.{row['change_us'] // 1000 % 1000:03}",
        "partition": f"{row['topic']}-{row['partition_id']}", "leader": row["leader_id"], "dropped": row["replica_id"],
        "verdict": row["verdict"], "cause": row["cause"].replace("_", " "), "certainty": row["certainty"],
        "since caught up, s": None if row["lag_ms"] is None else f"{row['lag_ms'] / 1000:.3f}",
        "back after, s": "not in the log" if back is None else f"{back:.3f}",
    }  # fmt: skip
