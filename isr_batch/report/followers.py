"""Build the charts about followers and single mistakes, as Vega-Lite."""

from collections import defaultdict
from typing import Final

import altair as alt

from isr_batch.report.charts import INK, NAMES, WHOLE, Rows, Spec, cause_colour, in_order, tips, utc

AGES: Final = {0.0: "#5aae61", 0.1: "#d9ef8b", 0.5: "#fee08b", 1.0: "#d73027", 2.0: "#7f0000"}
"""Colours of the time since caught up, by lower limit in lag times; from 1 on it is red."""


def heat(rows: Rows) -> Spec:
    """Heat map: time since each follower was caught up."""
    limits = list(AGES)[1:]
    colour = alt.Color(
        "lag_times:Q",
        scale=alt.Scale(type="threshold", domain=limits, range=list(AGES.values())),
        legend=alt.Legend(title="lag times", format="~g"),
    )
    chart = (
        alt.Chart({"values": list(rows)})
        .mark_rect()
        .encode(
            x=utc("from_ms"),
            x2="until_ms:T",
            y=alt.Y("follower:N", title=None, sort=None),
            color=colour,
            tooltip=[*tips("follower:N", "age_s:Q", "lag_times:Q"), alt.Tooltip("from_ms:T", format="%d %b %H:%M:%S")],
        )
        .properties(width=WHOLE, height=16 * len({row["follower"] for row in rows}))
    )
    return dict(chart.to_dict(validate=False))


def durations(rows: Rows) -> Spec:
    """Box plot: quartiles, median, minimum and maximum of durations."""
    rules = in_order(row["rule"] for row in rows)
    scale = alt.Scale(type="symlog", constant=0.001)
    axis = alt.Axis(format=".6~g", values=[0, 0.01, 0.1, 1, 10, 100, 1000, 10000, 100000], labelOverlap=True)
    base = alt.Chart().encode(
        y=alt.Y("rule:N", sort=rules, title=None, axis=NAMES),
        tooltip=tips("rule:N", "mistakes:Q", "least:Q", "quarter:Q", "median:Q", "three_quarters:Q", "most:Q"),
    )
    layers = (
        base.mark_rule(color=INK, opacity=0.5).encode(
            x=alt.X("least:Q", scale=scale, axis=axis, title="s"), x2="most:Q"
        ),
        base.mark_bar(color="#e08214", size=9).encode(x=alt.X("quarter:Q", scale=scale), x2="three_quarters:Q"),
        base.mark_tick(color=INK, thickness=2, size=15).encode(x=alt.X("median:Q", scale=scale)),
    )
    chart = (
        alt.layer(*layers, data={"values": list(rows)})
        .properties(width=300, height=alt.Step(18))
        .facet(column=alt.Column("what:N", title=None))
        .resolve_scale(x="independent")
    )
    return dict(chart.to_dict(validate=False))


def matrix(rows: Rows) -> Spec:
    """Matrix: number of shrinks that the rule of a row makes and the rule of a column does not."""
    names = _alike(rows)
    cells = {(names[row["makes"]], names[row["makes_not"]]): row["shrinks"] for row in rows}
    values = [{"makes": makes, "makes_not": other, "shrinks": shrinks} for (makes, other), shrinks in cells.items()]
    rules = in_order(names.values())
    base = alt.Chart({"values": values}).encode(
        x=alt.X(
            "makes_not:N", sort=rules, title="and this one does not",
            axis=alt.Axis(orient="top", labelAngle=-45, labelLimit=320),
        ),
        y=alt.Y("makes:N", sort=rules, title="this rule makes it", axis=NAMES),
        tooltip=tips("makes:N", "makes_not:N", "shrinks:Q"),
    )  # fmt: skip
    most = max(cells.values())
    squares = base.mark_rect().encode(
        color=alt.Color("shrinks:Q", scale=alt.Scale(scheme="oranges", domain=[0, most]), legend=None)
    )
    dark = alt.condition(alt.datum.shrinks > most / 2, alt.value("#ffffff"), alt.value("#1a1a1a"))
    numbers = base.mark_text(fontSize=10).encode(text="shrinks:Q", color=dark)
    return dict((squares + numbers).properties(width=alt.Step(38), height=alt.Step(20)).to_dict(validate=False))


def _alike(rows: Rows) -> dict[str, str]:
    """Name each rule with all that make the same shrinks: no number tells them apart."""
    of: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for row in rows:
        for side, other in (("makes", "makes_not"), ("makes_not", "makes")):
            of[row[side]][side, row[other]] = row["shrinks"]
    groups: dict[str, list[str]] = defaultdict(list)
    for rule in in_order(of):
        groups[repr(sorted(of[rule].items()))].append(rule)
    return {rule: ", ".join(rules) for rules in groups.values() for rule in rules}


def held(rows: Rows) -> Spec:
    """Scatter plot: time since a follower was caught up, and how much of it the leader caused."""
    longest = max(row[name] for row in rows for name in ("lag_s", "lag_time_s"))
    edges = [
        {"lag_s": at, "held_s": at - limit, "edge": name}
        for limit, name in [(0, "all"), *((limit, f"all but {limit:g} s") for limit in {r["lag_time_s"] for r in rows})]
        for at in (limit, longest)
    ]
    marks = (
        alt.Chart({"values": list(rows)})
        .mark_circle(opacity=0.8)
        .encode(
            x=alt.X("lag_s:Q", title="time since it was caught up, s"),
            y=alt.Y("held_s:Q", title="of that, caused by the leader, s"),
            size=alt.Size(
                "shrinks:Q", legend=alt.Legend(title="shrinks", tickCount=3), scale=alt.Scale(range=[40, 600])
            ),
            color=cause_colour(rows),
            tooltip=tips("cause:N", "lag_s:Q", "held_s:Q", "shrinks:Q"),
        )
    )
    base = alt.Chart({"values": edges}).encode(x="lag_s:Q", y="held_s:Q", detail="edge:N")
    lines = base.mark_line(color=INK, strokeDash=[4, 3], strokeWidth=1)
    ends = base.transform_filter(alt.datum.lag_s == longest)
    names = ends.mark_text(color=INK, align="right", dx=-6, dy=14, fontSize=10).encode(text="edge:N")
    return dict((lines + names + marks).properties(width=WHOLE, height=280).to_dict(validate=False))
