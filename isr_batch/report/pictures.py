"""Define the report's charts: title, explanation, SQL query and drawing function of each."""

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
from isr_batch.report.charts import Rows, Spec
from isr_batch.report.lanes import lanes

MOST: Final = 2_500
"""Most rows in a chart; more could not be distinguished and would make the page slow to open."""
AT_ONCE: Final = 4
"""Number of Spark queries at the same time."""
FURTHEST: Final = 3
"""Most lag times that a swim lane shows on either side of a shrink."""


@dataclass(frozen=True)
class Picture:
    """A chart of the report.

    Attributes
    ----------
    place : str
        Id of its HTML element.
    how : str
        Explanation of how to read it.
    sql : str
        Its query, as it is run and shown.
    draw : callable
        Turns rows into Vega-Lite.
    nothing : str
        Shown instead if there are no rows.
    """

    place: str
    title: str
    how: str
    sql: str
    draw: Callable[[Rows], Spec]
    nothing: str


@dataclass(frozen=True)
class Drawn:
    """A chart with its rows; without rows, ``chart`` is None."""

    picture: Picture
    rows: Rows
    cut: bool
    chart: Spec | None


def draw_all(lake: Lake, rule: str, rules: Sequence[str]) -> list[Drawn]:
    """Query the lake for each chart, and draw it.

    Tables that the lake lacks count as empty.

    Parameters
    ----------
    lake : Lake
    rule : str
        Rule of the charts about a single rule.
    rules : sequence of str
        All replayed rules.
    """
    # Planning a query takes longer than a small lake's answer.
    with _all_tables(lake), ThreadPoolExecutor(AT_ONCE) as asked:
        return list(asked.map(partial(_draw, lake), (*pictures(rule), *swim_lanes(lake, rule, rules))))


def pictures(rule: str) -> list[Picture]:
    """List all charts except the swim lanes.

    Parameters
    ----------
    rule : str
        Rule of the charts about a single rule.
    """

    def made(place: str, title: str, how: str, draw: Callable[[Rows], Spec], nothing: str) -> Picture:
        return Picture(place, title, how, sql_of(place, rule=literal(rule)), draw, nothing)

    return [
        made(
            "causes", "Shrinks and their causes",
            "Each bar is a rule, its segments are the primary causes: orange and brown for spurious shrinks, blue for "
            "followers that had really stopped or fallen behind, grey for shrinks by the controller or that cannot be "
            "judged.",
            charts.shrinks_by_cause, "No rule makes a shrink.",
        ),
        made(
            "tradeoff", "Mistakes against detection",
            "The nearer to the lower left corner, the better: failures are detected sooner to the left, and there are "
            "fewer mistakes further down. The number beside a mark is the lag time in seconds, a bar the 95 % "
            "interval; rules with equal results share a mark. A hollow mark is a rule without mistakes, drawn at the "
            "upper end of its interval. Rules that detected no failure are not shown.",
            charts.tradeoff, "No rule has detected a genuine failure, so there is no detection time to show.",
        ),
        made(
            "sweeps", "The same along the lag time",
            "Each curve is a rule, each mark one of its lag times, in seconds; otherwise as above. "
            "Where a curve is flat, a longer lag time has no benefit.",
            charts.sweeps, "There is no sweep in this lake: `isr-batch sweep` makes one.",
        ),
        made(
            "in_time", "When",
            "Each mark is one or more followers dropped at that time, in the colour of the cause; the last row of a "
            "cluster shows what its brokers logged. Marks in one column are the same event under several rules.",
            charts.shrinks_in_time, "No rule makes a shrink, and the brokers logged none.",
        ),
        made(
            "heat", "Time since caught up",
            f"Each cell is the longest time since lastCaughtUpTimeMs of a follower under {rule} on any partition, in "
            f"lag times: red is beyond the limit, where the rule drops it. If all followers of one leader turn red "
            f"together, the leader is the likely cause; if one follower turns red with all leaders, the follower is. "
            f"Nothing is drawn where no term has the follower.",
            followers.heat, f"There is no timeline of {rule}.",
        ),
        made(
            "durations", "How long mistakes last, and how long until the next",
            "The line goes from the shortest to the longest mistake, the box from the first to the third quartile, and "
            "the tick is the median. A mistake that is over in milliseconds "
            "only costs two ISR writes; one of several seconds alerts the operators.",
            followers.durations, "No rule makes a mistake that was undone in the log.",
        ),
        made(
            "disagreements", "Who disagrees with whom",
            "Each number counts the shrinks that the rule of the row makes, and that the rule of the column does not "
            "make although it had the follower in the ISR. A rule with an empty column drops every follower that "
            "others drop.",
            followers.matrix, "No two rules disagree about a shrink.",
        ),
        made(
            "held", "How much of the delay was the leader's",
            f"Each circle is a group of shrinks by {rule}. The vertical axis is the part of the time since the "
            f"follower was caught up in which its fetches were in the leader or the leader was silent. On the upper "
            f"dashed line the leader caused all of it; above the lower one less than a lag time is left for the "
            f"follower to answer for.",
            followers.held, f"{rule} drops nobody whose delay is known.",
        ),
        made(
            "costs", "What a rule costs beside its mistakes",
            "There are fewer mistakes to the left and lower costs further down: time in which acks=all producers are "
            "refused, time in which the high watermark is stalled below the log end offset, and acknowledged records "
            "that a clean election could lose. A rule that another one beats in every panel has no advantage. Rules "
            "with equal results share a mark.",
            charts.costs, "There are no scores.",
        ),
    ]  # fmt: skip


def swim_lanes(lake: Lake, rule: str, rules: Sequence[str]) -> list[Picture]:
    """List the swim lanes: for each leader the partition with most mistakes, around the longest mistake."""
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
        f"{rule} drops followers of this partition {row['shrinks']} times, {row['spurious']} of them spuriously. The "
        f"dotted line is the start of the longest: {row['primary_cause'].replace('_', ' ')}. If offsets drift apart, a "
        f"follower lacks records; the red dashed line is the lag time. A bar means that a rule has the follower out of "
        f"the ISR, in the colour of the cause; a rule without a bar keeps the follower, and the brokers' own decisions "
        f"come last. Zoom with the wheel, pan by dragging, reset with a double click. `isr-batch {command}` "
        f"explains the shrink in full.",
        sql,
        partial(lanes, rules=rules, lag_time_ms=row["lag_time_ms"], change_ms=change_us / 1000),
        "There is no data for this partition.",
    )


def sql_of(name: str, **values: str) -> str:
    """Read a query, and replace ``:name`` by values."""
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
    """Register every table as a view for the duration of the context; missing tables are empty."""
    there = lake.register_views()
    lacking = [name for name in TABLES if name not in there]
    for name in lacking:
        lake.spark.createDataFrame([], TABLES[name].schema_ddl).createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name in lacking:
            lake.spark.catalog.dropTempView(name)
