"""The report's pictures: what each shows, how it is read, the SQL that it is made of, and what draws it."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, Final

from isr_batch.lake.ddl import literal
from isr_batch.lake.lake import Lake
from isr_batch.lake.tables.outputs import TABLES
from isr_batch.report import charts, followers
from isr_batch.report.charts import Rows, Spec, in_order
from isr_batch.report.lanes import lanes
from udfs.rules import BASELINE

MOST: Final = 2_500
"""Rows of a picture at most; more would not be told apart, and the page would not open quickly."""
AT_ONCE: Final = 4
"""Queries that Spark is given at the same time."""
FURTHEST: Final = 3
"""Lag times on either side of a shrink that a swim lane shows at most."""


@dataclass(frozen=True)
class Picture:
    """A picture of the report.

    Attributes
    ----------
    place : str
        Id of its element on the page.
    how : str
        How it is read.
    sql : str
        What it is made of, as it is run and shown.
    draw : callable
        Rows to Vega-Lite.
    nothing : str
        Told in its place when there are no rows.
    """

    place: str
    title: str
    how: str
    sql: str
    draw: Callable[[Rows], Spec]
    nothing: str


@dataclass(frozen=True)
class Drawn:
    """A picture with its rows; without any, ``chart`` is None."""

    picture: Picture
    rows: Rows
    cut: bool
    chart: Spec | None


def draw_all(lake: Lake) -> list[Drawn]:
    """Ask the lake for each picture, and draw it.

    Tables that the lake lacks count as empty.
    """
    with _all_tables(lake):
        rules = in_order(row["rule"] for row in _ask(lake, "SELECT DISTINCT rule FROM partition_scores"))
        rule = focus(lake, rules)
        # Planning a query takes longer than a small lake's answer.
        with ThreadPoolExecutor(AT_ONCE) as asked:
            return list(asked.map(partial(_draw, lake), (*pictures(rule), *swim_lanes(lake, rule, rules))))


def focus(lake: Lake, rules: Sequence[str]) -> str:
    """Of those replayed, the rule that pictures of one are about: what the brokers ran, else what runs today."""
    ran = _ask(lake, "SELECT rule FROM replay_check GROUP BY rule ORDER BY count(*) DESC, rule")
    return next((rule for rule in (*(row["rule"] for row in ran), BASELINE, *rules) if rule in rules), BASELINE)


def pictures(rule: str) -> list[Picture]:
    """All but the swim lanes.

    Parameters
    ----------
    rule : str
        Whom those are about that show one rule.
    """

    def made(place: str, title: str, how: str, draw: Callable[[Rows], Spec], nothing: str) -> Picture:
        return Picture(place, title, how, sql_of(place, rule=literal(rule)), draw, nothing)

    return [
        made(
            "causes", "Shrinks and their causes",
            "A bar is a rule, its parts are the primary causes: browns are mistakes, blues are followers that had "
            "really stopped or fallen behind, greys are the controller's or cannot be judged.",
            charts.shrinks_by_cause, "No rule makes a shrink.",
        ),
        made(
            "tradeoff", "Mistakes against detection",
            "The nearer to the lower left corner, the better: to the left failures are detected sooner, further down "
            "there are fewer mistakes. The number beside a mark is its lag time in seconds, a bar the 95 % interval; "
            "rules that come to the same share a mark. A hollow mark made no mistake, and stands at the upper end of "
            "its interval. Rules that detected no failure have no place.",
            charts.tradeoff, "No rule has detected a genuine failure, so there is nothing to weigh mistakes against.",
        ),
        made(
            "sweeps", "The same along the lag time",
            "A curve is a rule, a mark one of its lag times, with its seconds beside it; otherwise as above. "
            "Where a curve is flat, a longer lag time buys nothing.",
            charts.sweeps, "There is no sweep in this lake: `isr-batch sweep` makes one.",
        ),
        made(
            "in_time", "When",
            "A mark is one or more followers dropped at that time, in the colour of the cause; the last row of a "
            "cluster is what its brokers logged. Marks below each other are the same event seen by several rules.",
            charts.shrinks_in_time, "No rule makes a shrink, and the brokers logged none.",
        ),
        made(
            "heat", "Time since caught up",
            f"A cell is the longest time since lastCaughtUpTimeMs that a follower came to under {rule} on any "
            f"partition, in lag times: red is beyond the limit, where the rule drops it. Where all followers of one "
            f"leader turn red together look at the leader, where one follower does with all leaders look at the "
            f"follower. Nothing is drawn where no term has the follower.",
            followers.heat, f"There is no timeline of {rule}.",
        ),
        made(
            "durations", "How long mistakes last, and how long until the next",
            "A line goes from the shortest to the longest, its bar from a quarter of the mistakes to three, and the "
            "tick is the median. A mistake that is over in milliseconds "
            "only costs two ISR writes; one of seconds pages somebody.",
            followers.durations, "No rule makes a mistake that was undone in the log.",
        ),
        made(
            "disagreements", "Who disagrees with whom",
            "A number counts the shrinks that the rule of its row makes, and that of its column does not though it had "
            "the follower in the ISR. An empty column is a rule that drops whoever the others drop.",
            followers.matrix, "No two rules disagree about a shrink.",
        ),
        made(
            "held", "How much of the delay was the leader's",
            f"A circle is a group of shrinks by {rule}. Upwards: of the time since the follower was caught up, what "
            f"its fetches spent inside the leader or what the leader was silent. On the upper dashed line all of it "
            f"was the leader's; above the lower one less than a lag time is left for the follower to answer for.",
            followers.held, f"{rule} drops nobody whose delay is known.",
        ),
        made(
            "costs", "What a rule costs beside its mistakes",
            "To the left there are fewer mistakes, further down it costs less: time in which acks=all producers are "
            "refused, time in which the high watermark stands below the log end, and acknowledged records that a clean "
            "election could lose. A rule that another one undercuts in every sheet has nothing for it. Rules that "
            "come to the same share a mark.",
            charts.costs, "There are no scores.",
        ),
    ]  # fmt: skip


def swim_lanes(lake: Lake, rule: str, rules: Sequence[str]) -> list[Picture]:
    """The partition of each leader where a rule made most mistakes, around the longest one."""
    worst = _ask(lake, sql_of("worst", rule=literal(rule)))
    return [_swim_lane(place, rule, rules, row) for place, row in enumerate(worst)]


def _swim_lane(place: int, rule: str, rules: Sequence[str], row: dict[str, Any]) -> Picture:
    lag_us, change_us = 1000 * row["lag_time_ms"], row["change_us"]
    begun = max(row["caught_up_us"], change_us - FURTHEST * lag_us)
    ended = min(row["restored_us"] or change_us + lag_us, change_us + FURTHEST * lag_us)
    from_us, until_us = begun - lag_us // 2, ended + lag_us // 2
    cluster, topic, partition = literal(row["cluster_id"]), literal(row["topic"]), row["partition_id"]
    whose = f"(cluster_id, topic, partition_id) = ({cluster}, {topic}, {partition})"
    sql = sql_of(
        "lanes",
        whose=whose,
        here=f"{whose} AND event_date BETWEEN date(timestamp_micros({from_us})) - 1 "
        f"AND date(timestamp_micros({until_us}))",
        run=f"rule = {literal(rule)} AND params_json = {literal(row['params_json'])}",
        cluster=cluster,
        topic=topic,
        from_us=str(from_us),
        until_us=str(until_us),
    )
    command = (
        f"explain --topic {row['topic']} --partition {partition} --at {change_us // 1000} --rule {rule} --lake LAKE"
    )
    return Picture(
        f"lanes-{place}",
        f"{row['topic']}-{partition} of {row['cluster_id']}, led by broker {row['leader_id']}",
        f"{rule} drops followers from it {row['shrinks']} times, {row['spurious']} of them without reason. The "
        f"dotted line is where the longest begins: {row['primary_cause'].replace('_', ' ')}. Offsets that drift "
        f"apart are a follower that lacks something; the red dashed line is the lag time. A bar is a rule that has "
        f"the follower out of the ISR, in the colour of its cause; a rule without a bar keeps the follower, and the "
        f"brokers' own decisions come last. The wheel zooms, a drag moves, two clicks bring it back. `isr-batch "
        f"{command}` tells the whole story.",
        sql,
        partial(lanes, rules=rules, lag_time_ms=row["lag_time_ms"], change_ms=change_us / 1000),
        "Nothing is known of it.",
    )


def sql_of(name: str, **values: str) -> str:
    """The text of a query, with values in place of ``:name``."""
    text = (files("isr_batch.report") / "sql" / f"{name}.sql").read_text(encoding="utf-8").strip()
    # At once: a value may look like a name.
    return re.sub(r":(\w+)", lambda found: values.get(found[1], found[0]), text)


def _draw(lake: Lake, picture: Picture) -> Drawn:
    rows = _ask(lake, picture.sql)
    return Drawn(picture, rows[:MOST], len(rows) > MOST, picture.draw(rows[:MOST]) if rows else None)


def _ask(lake: Lake, sql: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in lake.spark.sql(sql).limit(MOST + 1).collect()]


@contextmanager
def _all_tables(lake: Lake) -> Iterator[None]:
    """SQL may name any table for a while."""
    there = lake.register_views()
    lacking = [name for name in TABLES if name not in there]
    for name in lacking:
        lake.spark.createDataFrame([], TABLES[name].schema_ddl).createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name in lacking:
            lake.spark.catalog.dropTempView(name)
