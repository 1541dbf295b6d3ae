"""Build the charts of the report as Vega-Lite specifications, using the rows of the queries in ``report/sql``."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, Literal

import altair as alt

from isr_batch.incidents.colours import AGE_COLOURS, CAUSE_COLOURS
from isr_batch.incidents.rule_choices import LAG_TIME
from isr_batch.rule_names import rule_names_by_release
from isr_batch.shown_times import offset_us, zone_name

AS_LOGGED = "as logged"
"""Name in the legend for the shrinks that the brokers logged. They have no cause."""
NAMES = alt.Axis(labelLimit=320)
"""Axis with names of rules. It leaves room for long labels, because rules with equal results share a row."""
WHOLE = "container"
"""Value for the width of a chart that makes it as wide as its HTML element."""
INK = "currentColor"
"""Colour of lines and text: the page's text colour, which differs between light and dark mode."""

COSTS = {
    "under_min_isr_s": "seconds under min ISR",
    "high_watermark_stalled_s": "seconds of a stalled high watermark",
    "records_at_risk": "committed records at risk",
}

STRONG = [
    "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#bcbd22", "#17becf", "#3953a4",
    "#b8860b", "#00876c", "#a0145a", "#6a51e0", "#c2673a",
]  # fmt: skip
"""Colours of rules in charts with curves. None is pale, and none is the colour of a verdict. If there are more rules,
colours are reused."""
TIME_FORMAT = {
    "milliseconds": "%H:%M:%S.%L", "seconds": "%H:%M:%S", "minutes": "%H:%M", "hours": "%H:%M",
    "day": "%d %b", "date": "%d %b", "week": "%d %b", "month": "%b %Y", "quarter": "%b %Y", "year": "%Y",
}  # fmt: skip

Rows = Sequence[dict[str, Any]]
Spec = dict[str, Any]


def cause_scale(rows: Rows) -> alt.Scale:
    """Return a colour scale for those causes that occur in the rows."""
    there = {row["cause"] for row in rows}
    colours = {cause: colour for cause, colour in {**CAUSE_COLOURS, AS_LOGGED: INK}.items() if cause in there}
    return alt.Scale(domain=list(colours), range=list(colours.values()))


def _cause_colour(rows: Rows) -> alt.Color:
    return alt.Color("cause:N", scale=cause_scale(rows), legend=alt.Legend(title="primary cause"))


def chart_tooltips(*fields: str) -> list[alt.Tooltip]:
    """Convert field names to tooltip fields. Altair would validate plain strings against its whole schema, slowly."""
    return [alt.Tooltip(field) for field in fields]


def shrinks_by_cause_chart(rows: Rows) -> Spec:
    """Return a bar chart with a bar per rule, divided by primary cause. Rows: rule, cause, shrinks (number)."""
    rules = rule_names_by_release(row["rule"] for row in rows)
    chart = (
        alt.Chart({"values": list(rows)})
        .mark_bar()
        .encode(
            x=alt.X("shrinks:Q", title="shrinks"),
            y=alt.Y("rule:N", sort=rules, title=None, axis=NAMES),
            color=_cause_colour(rows),
            tooltip=chart_tooltips("rule:N", "cause:N", "shrinks:Q"),
        )
        .properties(width=WHOLE, height=24 * len(rules))
    )
    return dict(chart.to_dict(validate=False))


def shrinks_in_time_chart(rows: Rows) -> Spec:
    """Return a chart with a line per rule, on which ticks in the colour of the cause mark when shrinks happened.

    The rows have rule (or the brokers), cause, at_ms (milliseconds since 1970) and shrinks (number at this time).
    """
    rules = rule_names_by_release(row["rule"] for row in rows)
    chart = (
        alt.Chart({"values": as_shown(rows)})
        .mark_tick(thickness=2, size=16, opacity=1)
        .encode(
            x=time_axis("at_ms"),
            y=alt.Y("rule:N", sort=rules, title=None, axis=NAMES),
            color=_cause_colour(rows),
            tooltip=[
                *chart_tooltips("rule:N", "cause:N", "shrinks:Q"),
                alt.Tooltip("at_ms:T", format="%d %b %H:%M:%S", title=zone_name()),
            ],
        )
        .properties(width=WHOLE, height=18 * len(rules))
    )
    return dict(chart.to_dict(validate=False))


def as_shown(rows: Rows) -> list[dict[str, Any]]:
    """Shift the columns at_ms, from_ms and until_ms to the time zone that the user chose, because Vega shows UTC."""
    names = ("at_ms", "from_ms", "until_ms")
    return [
        row | {name: row[name] + offset_us(int(1000 * row[name])) // 1000 for name in names if name in row}
        for row in rows
    ]


def time_axis(field: str) -> alt.X:
    """Return the time axis for a field that `as_shown` shifted."""
    return alt.X(
        f"{field}:T",
        title=zone_name(),
        scale=alt.Scale(type="utc"),
        axis=alt.Axis(format=TIME_FORMAT, labelOverlap=True),
    )


def tradeoff_chart(rows: Rows) -> Spec:
    """Return a scatter plot of rules: mistakes per partition-day against the time to detect failures."""
    return frontier_chart([_rated(row) | {"place": ""} for row in rows], "partition")


def sweeps_chart(rows: Rows) -> Spec:
    """Return curves as `frontier_chart` does, one per rule and set of parameters other than the lag time."""
    return frontier_chart(
        [_rated(row) | {"rule": " ".join([row["rule"], *_chart_settings(row)])} for row in rows], "follower"
    )


def _chart_settings(row: dict[str, Any]) -> list[str]:
    """Format the parameters of a rule run, without lag time and min.insync.replicas, as a list of "name=value"."""
    others = json.loads(row["params_json"]).items()
    return [f"{name}={value}" for name, value in sorted(others) if name not in {LAG_TIME, "min_insync_replicas"}]


def _rated(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with ``seen`` (whether there was a mistake), and with zeros replaced, for a logarithmic axis."""
    seen = row["spurious"] > 0
    rate = row["mistakes"] if seen else row["high"]
    return {**row, "params_json": None, "seen": seen, "mistakes": rate, "low": row["low"] or rate / 10}


_SIDES: Final[Sequence[tuple[Literal["left", "right"], int, int]]] = (
    ("left", 6, -6), ("left", 6, 11), ("right", -6, -6), ("right", -6, 11),
)  # fmt: skip
"""Possible positions of a label next to its mark: alignment, and offsets to the right and downwards in pixels."""
NARROWEST: Final = 560
"""Width of a chart on the narrowest page, in pixels. At this width, labels must not overlap."""


def frontier_chart(
    rows: Rows, whose: str = "follower", mistakes: float | None = None, detection_ms: float | None = None
) -> Spec:
    """Return curves of mistakes against detection time, with a point per lag time.

    Parameters
    ----------
    rows : sequence of dict
        Keys ``rule``, ``lag_time_s``, ``detection_s``, ``mistakes`` (rate above 0), ``low`` and ``high`` (95 % interval
        of the rate), ``seen``, and ``place`` (title of the panel in which the row is drawn). If ``seen`` is false,
        there was no mistake, and ``mistakes`` is the upper end of the interval.
    whose : str
        ``follower`` if the rates are mistakes per follower-day, ``partition`` if they are per partition-day.
    mistakes, detection_ms : float, optional
        Largest acceptable rate and detection time. Each is drawn as a dashed line.
    """
    x = alt.X(
        "detection_s:Q", title="99 % of genuine failures detected within, s", scale=alt.Scale(zero=False, padding=25)
    )
    scale = alt.Scale(type="log")
    y = alt.Y("mistakes:Q", title=f"mistakes per {whose}-day", scale=scale, axis=alt.Axis(tickCount=5))
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    colour = _rule_colour("rule", rules)
    base = alt.Chart().encode(x=x, color=colour)
    tooltip = chart_tooltips(
        "place:N", "rule:N", "lag_time_s:Q", "detection_s:Q", "mistakes:Q", "low:Q", "high:Q", "seen:N"
    )
    hollow = alt.condition("datum.seen", alt.value(1), alt.value(0))
    height = 320 if mistakes is not None else 240
    labelled = _with_sides_of_labels(rows, detection_ms and detection_ms / 1000, mistakes, height)
    budgets = [alt.Chart().mark_rule(strokeDash=[5, 4], color=INK) for _ in range(2)]
    layers = [
        base.mark_rule(opacity=0.35).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q"),
        base.mark_line(opacity=0.7).encode(y=y, order="lag_time_s:Q"),
        base.mark_point(filled=False, size=60).encode(y=y, tooltip=tooltip),
        base.mark_point(filled=True, size=60).encode(y=y, opacity=hollow, tooltip=tooltip),
    ]
    for side in sorted({row["side"] for row in labelled} - {None}):
        align, dx, dy = _SIDES[side]
        labels = base.transform_filter(f"datum.side === {side}").mark_text(align=align, dx=dx, dy=dy, fontSize=10)
        layers.append(labels.encode(y=y, color=alt.value(INK), text=alt.Text("lag_time_s:Q")))
    if detection_ms is not None:
        layers.append(budgets[0].encode(x=alt.datum(detection_ms / 1000)))
    if mistakes is not None:
        layers.append(budgets[1].encode(y=alt.datum(mistakes)))
    several = len({row["place"] for row in rows}) > 1
    width = NARROWEST if several else WHOLE
    chart = alt.layer(*layers, data={"values": labelled}).properties(width=width, height=height)
    if several:
        chart = chart.facet(row=alt.Row("place:N", title=None)).resolve_scale(x="independent", y="independent")
    return dict(chart.to_dict(validate=False))


def _with_sides_of_labels(
    rows: Rows, detection_s: float | None, mistakes: float | None, height: int
) -> list[dict[str, Any]]:
    """Add to each row a ``side``: the index in `_SIDES` of a position where its label overlaps nothing, or None."""
    marked: list[dict[str, Any]] = []
    for place in dict.fromkeys(row["place"] for row in rows):
        of = [row for row in rows if row["place"] == place and row["detection_s"] is not None and row["mistakes"]]
        across = [*(row["detection_s"] for row in of), detection_s or 0]
        along = [math.log10(one) for row in of for one in (row["low"], row["high"], mistakes or row["mistakes"])]
        wide, high = max(across) - min(across) or 1, max(along, default=0) - min(along, default=0) or 1
        at = [(NARROWEST * row["detection_s"] / wide, -height * math.log10(row["mistakes"]) / high) for row in of]
        taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in at]
        for row, (x, y) in zip(of, at, strict=True):
            long = 6 * len(f"{row['lag_time_s']:g}")
            free = [
                (side, box)
                for side, (align, dx, dy) in enumerate(_SIDES)
                for left in [x + dx - (long if align == "right" else 0)]
                for box in [(left, y + dy - 6, left + long, y + dy + 6)]
                if not any(box[0] < one[2] and one[0] < box[2] and box[1] < one[3] and one[1] < box[3] for one in taken)
            ]
            taken += [box for _, box in free[:1]]
            marked.append({**row, "side": free[0][0] if free else None})
    return marked


def _rule_colour(field: str, rules: Sequence[str]) -> alt.Color:
    scale = alt.Scale(domain=list(rules), range=STRONG)
    return alt.Color(
        f"{field}:N",
        scale=scale,
        legend=alt.Legend(title="rule", orient="bottom", columns=2, labelLimit=340, symbolOpacity=1),
    )


def costs_chart(rows: Rows) -> Spec:
    """Return a scatter plot of rules for each of `COSTS`: the cost against the number of spurious shrinks."""
    groups = list(dict.fromkeys(row["rule"] for row in rows))
    base = (
        alt.Chart({"values": list(rows)})
        .mark_point(filled=True, size=80, opacity=0.85)
        .encode(
            x=alt.X(
                "mistakes:Q",
                title="spurious shrinks",
                axis=alt.Axis(tickCount=5),
            ),
            color=_rule_colour("rule", groups),
            shape=alt.Shape("rule:N", sort=groups, legend=None),
            tooltip=chart_tooltips("rule:N", "mistakes:Q", *(f"{name}:Q" for name in COSTS)),
        )
        .properties(width=225, height=220)
    )
    sheets = [
        base.encode(
            y=alt.Y(
                f"{name}:Q",
                title=title,
                scale=alt.Scale(zero=name != "high_watermark_stalled_s"),
                axis=alt.Axis(tickCount=5),
            )
        )
        for name, title in COSTS.items()
    ]
    return dict(alt.hconcat(*sheets, spacing=16).to_dict(validate=False))


def heat_map(rows: Rows) -> Spec:
    """Return a heat map with a line per follower, coloured by the time since it was caught up.

    The rows have follower, from_ms and until_ms (milliseconds since 1970), and the time since the follower was caught
    up: age_s in seconds, lag_times as a multiple of the lag time.
    """
    limits = list(AGE_COLOURS)[1:]
    colour = alt.Color(
        "lag_times:Q",
        scale=alt.Scale(type="threshold", domain=limits, range=list(AGE_COLOURS.values())),
        legend=alt.Legend(title="lag times", format="~g"),
    )
    chart = (
        alt.Chart({"values": as_shown(rows)})
        .mark_rect()
        .encode(
            x=time_axis("from_ms"),
            x2="until_ms:T",
            y=alt.Y("follower:N", title=None, sort=None),
            color=colour,
            tooltip=[
                *chart_tooltips("follower:N", "age_s:Q", "lag_times:Q"),
                alt.Tooltip("from_ms:T", format="%d %b %H:%M:%S"),
            ],
        )
        .properties(width=WHOLE, height=16 * len({row["follower"] for row in rows}))
    )
    return dict(chart.to_dict(validate=False))


def durations_chart(rows: Rows) -> Spec:
    """Return box plots of durations with a line per rule, and a panel per kind of duration (``what`` in the rows).

    The rows also have mistakes (number) and, in seconds, least, quarter, median, three_quarters and most.
    """
    rules = rule_names_by_release(row["rule"] for row in rows)
    scale = alt.Scale(type="symlog", constant=0.001)
    axis = alt.Axis(format=".6~g", values=[0, 0.01, 0.1, 1, 10, 100, 1000, 10000, 100000], labelOverlap=True)
    base = alt.Chart().encode(
        y=alt.Y("rule:N", sort=rules, title=None, axis=NAMES),
        tooltip=chart_tooltips(
            "rule:N", "mistakes:Q", "least:Q", "quarter:Q", "median:Q", "three_quarters:Q", "most:Q"
        ),
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


def disagreement_chart(rows: Rows) -> Spec:
    """Return a matrix of rules. A cell counts the shrinks that the row's rule makes and the column's rule does not.

    The dicts in ``rows`` have makes, makes_not (rules) and shrinks (number). Rules with equal numbers share a row.
    """
    names = _alike(rows)
    cells = {(names[row["makes"]], names[row["makes_not"]]): row["shrinks"] for row in rows}
    values = [{"makes": makes, "makes_not": other, "shrinks": shrinks} for (makes, other), shrinks in cells.items()]
    rules = rule_names_by_release(names.values())
    base = alt.Chart({"values": values}).encode(
        x=alt.X(
            "makes_not:N", sort=rules, title="and this one does not",
            axis=alt.Axis(orient="top", labelAngle=-45, labelLimit=320),
        ),
        y=alt.Y("makes:N", sort=rules, title="this rule makes it", axis=NAMES),
        tooltip=chart_tooltips("makes:N", "makes_not:N", "shrinks:Q"),
    )  # fmt: skip
    most = max(cells.values())
    squares = base.mark_rect().encode(
        color=alt.Color("shrinks:Q", scale=alt.Scale(scheme="oranges", domain=[0, most]), legend=None)
    )
    dark = alt.condition(alt.datum.shrinks > most / 2, alt.value("#ffffff"), alt.value("#1a1a1a"))
    numbers = base.mark_text(fontSize=10).encode(text="shrinks:Q", color=dark)
    return dict((squares + numbers).properties(width=alt.Step(38), height=alt.Step(20)).to_dict(validate=False))


def _alike(rows: Rows) -> dict[str, str]:
    """Return for each rule the name of its group, which joins the names of the rules with equal numbers."""
    of: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for row in rows:
        for side, other in (("makes", "makes_not"), ("makes_not", "makes")):
            of[row[side]][side, row[other]] = row["shrinks"]
    groups: dict[str, list[str]] = defaultdict(list)
    for rule in rule_names_by_release(of):
        groups[repr(sorted(of[rule].items()))].append(rule)
    return {rule: ", ".join(rules) for rules in groups.values() for rule in rules}


def held_by_leader_chart(rows: Rows) -> Spec:
    """Return a scatter plot of shrinks: for how much of a follower's lag its leader was to blame.

    The rows have lag_s (the lag), held_s (its part that the leader caused), lag_time_s, cause, shrinks (size of mark).
    """
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
            color=_cause_colour(rows),
            tooltip=chart_tooltips("cause:N", "lag_s:Q", "held_s:Q", "shrinks:Q"),
        )
    )
    base = alt.Chart({"values": edges}).encode(x="lag_s:Q", y="held_s:Q", detail="edge:N")
    lines = base.mark_line(color=INK, strokeDash=[4, 3], strokeWidth=1)
    ends = base.transform_filter(alt.datum.lag_s == longest)
    names = ends.mark_text(color=INK, align="right", dx=-6, dy=14, fontSize=10).encode(text="edge:N")
    return dict((lines + names + marks).properties(width=WHOLE, height=280).to_dict(validate=False))
