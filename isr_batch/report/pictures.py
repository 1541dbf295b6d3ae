"""Define the charts of the report (title, explanation, SQL query, drawing function), and draw them for each cluster."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from isr_batch.lake.lake_sql import LakeSql, lake_sql_for_spark
from isr_batch.report import charts
from isr_batch.report.charts import Rows, Spec
from isr_batch.rule_names import rule_names_by_release

MOST: Final = 2_500
"""Maximum number of rows that a chart draws. With more, marks would overlap, and the page would open slowly."""
OF_OWN_RULE: Final = ("heat", "held")
"""Names of the charts that only show the rule that the brokers ran. All other charts compare rules."""


@dataclass(frozen=True)
class Picture:
    """The definition of a chart of the report.

    Attributes
    ----------
    name : str
        Name of the chart's query in the folder ``sql``.
    title : str
    how : str
        Explanation of how to read the chart.
    sql : str
        The query for all clusters, which the page shows so that users can run it with `isr-batch sql`.
    draw : callable
        Converts the query's rows for one cluster to a Vega-Lite specification.
    """

    name: str
    title: str
    how: str
    sql: str
    draw: Callable[[Rows], Spec]


@dataclass(frozen=True)
class DrawnPicture:
    """A chart of one cluster.

    ``place`` is the id of its HTML element. ``chart`` is None if the query has no rows for the cluster. ``cut`` is true
    if rows were left out.
    """

    picture: Picture
    place: str
    chart: Spec | None
    cut: bool


def draw_pictures(sql: LakeSql, ran: Mapping[str, str]) -> dict[str, list[DrawnPicture]]:
    """Run the queries of all charts, and draw the charts of each cluster.

    Parameters
    ----------
    sql : LakeSql
    ran : mapping of str to str
        For each cluster to draw, the rule that its brokers ran. The charts in `OF_OWN_RULE` show this rule only.

    Returns
    -------
    dict of str to list of DrawnPicture
        The charts of each cluster.
    """
    drawn: dict[str, list[DrawnPicture]] = {name: [] for name in ran}
    if not ran:
        return drawn
    values = _values_of_picture(ran)
    for picture in pictures(ran):
        of: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in sql(sql_of_picture(picture.name), **values):
            of[row.pop("cluster_id")].append(row)
        for number, name in enumerate(ran):
            rows = of[name]
            chart = picture.draw(rows[:MOST]) if rows else None
            drawn[name].append(DrawnPicture(picture, f"{picture.name}-{number}", chart, len(rows) > MOST))
    return drawn


def _values_of_picture(ran: Mapping[str, str]) -> dict[str, Sequence[tuple[str, ...]]]:
    """Return what to substitute for ``:own`` and ``:rules`` in the queries, given ``ran``, the rule of each cluster.

    The values are the rows (cluster, rule), and one row per distinct rule.
    """
    return {"own": [*ran.items()], "rules": [(rule,) for rule in sorted(set(ran.values()))]}


def sql_of_picture(name: str) -> str:
    """Read the query ``name`` in the package's folder ``sql``."""
    return (files("isr_batch.report") / "sql" / f"{name}.sql").read_text(encoding="utf-8").strip()


def alike_rules_in_picture(draw: Callable[[Rows], Spec]) -> Callable[[Rows], Spec]:
    """Wrap a drawing function so that rules with equal rows are drawn once, under all their names."""

    def drawn(rows: Rows) -> Spec:
        """Merge rules with equal rows into one, and draw the result."""
        of: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            of[row["rule"]].append({name: value for name, value in row.items() if name != "rule"})
        groups: dict[str, list[str]] = defaultdict(list)
        for rule in rule_names_by_release(of):
            groups[repr(of[rule])].append(rule)
        return draw([row | {"rule": ", ".join(rules)} for rules in groups.values() for row in of[rules[0]]])

    return drawn


def pictures(ran: Mapping[str, str]) -> list[Picture]:
    """Return the definitions of all charts of the report.

    Parameters
    ----------
    ran : mapping of str to str
        For each cluster, the rule that its brokers ran.
    """
    own = "the rule that the brokers ran"

    def made(name: str, title: str, how: str, draw: Callable[[Rows], Spec]) -> Picture:
        """Define a chart. Its query is the file ``name`` with the values for ``ran``, and ``how`` explains it."""
        return Picture(name, title, how, lake_sql_for_spark(sql_of_picture(name), **_values_of_picture(ran)), draw)

    return [
        made(
            "causes", "Shrinks and their causes",
            "Each bar is a rule, its segments are the primary causes: orange and brown for spurious shrinks, blue for "
            "followers that had really stopped or fallen behind, grey for shrinks by the controller or that cannot be "
            "judged.",
            alike_rules_in_picture(charts.shrinks_by_cause_chart),
        ),
        made(
            "tradeoff", "Mistakes against detection",
            "The nearer to the lower left corner, the better: failures are detected sooner to the left, and there are "
            "fewer mistakes further down. The number next to a mark is the lag time in seconds, a bar the 95 % "
            "interval; rules with equal results share a mark. A hollow mark is a rule without mistakes, drawn at the "
            "upper end of its interval. Rules that detected no failure are not shown.",
            alike_rules_in_picture(charts.tradeoff_chart),
        ),
        made(
            "sweeps", "The same along the lag time",
            "Each curve is a rule, each mark one of its lag times, in seconds; otherwise as above. "
            "Where a curve is flat, a longer lag time has no benefit.",
            charts.sweeps_chart,
        ),
        made(
            "in_time", "When",
            "Each mark is one or more followers dropped at that time, in the colour of the cause; the last row "
            "shows what the brokers logged. Marks in one column are the same event under several rules.",
            alike_rules_in_picture(charts.shrinks_in_time_chart),
        ),
        made(
            "heat", "Time since caught up",
            f"Each cell is the longest time since lastCaughtUpTimeMs of a follower under {own} on any partition, in "
            f"lag times: dark is beyond the limit, where the rule drops it. Up to 2.0 the time grows between any two "
            f"fetches, also while the follower lacks nothing; since 2.1 it is 0 then. If all followers of one leader "
            f"turn dark together, the leader is the likely cause; if one follower turns dark with all leaders, the "
            f"follower is. Nothing is drawn where no term has the follower.",
            charts.heat_map,
        ),
        made(
            "durations", "How long mistakes last, and how long until the next",
            "The line goes from the shortest to the longest mistake, the box from the first to the third quartile, and "
            "the tick is the median. A mistake that is over in milliseconds "
            "only costs two ISR writes; one of several seconds alerts the operators.",
            alike_rules_in_picture(charts.durations_chart),
        ),
        made(
            "disagreements", "Rules that disagree",
            "Each number counts the shrinks that the rule of the row makes, and that the rule of the column does not "
            "make although it had the follower in the ISR. A rule with an empty column drops every follower that "
            "others drop.",
            charts.disagreement_chart,
        ),
        made(
            "held", "How much of the delay the leader caused",
            f"Each circle is a group of shrinks by {own}. The vertical axis is the part of the time since the "
            f"follower was caught up in which its fetches were in the leader or the leader was silent. On the upper "
            f"dashed line the leader caused all of it; above the lower one, the follower itself caused "
            f"less than a lag time.",
            charts.held_by_leader_chart,
        ),
        made(
            "costs", "Costs of a rule other than its mistakes",
            "There are fewer mistakes to the left and lower costs further down: time in which acks=all producers are "
            "refused, time in which the high watermark is stalled below the log end offset, and committed records that "
            "a member of the ISR lacked. A rule that another one beats in every panel has no advantage. Rules "
            "with equal results share a mark.",
            alike_rules_in_picture(charts.costs_chart),
        ),
    ]  # fmt: skip
