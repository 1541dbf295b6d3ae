"""Pictures of the report, as Vega-Lite."""

from collections.abc import Sequence
from typing import Any

import altair as alt

CAUSE_COLOURS = {
    "caught_up": "#7f3b08",
    "keeping_pace": "#b35806",
    "slow_leader": "#e08214",
    "unacked_only": "#fdb863",
    "controller": "#bdbdbd",
    "follower_stopped": "#2166ac",
    "follower_slow": "#67a9cf",
    "unknown": "#737373",
}
"""Spurious causes in browns, genuine ones in blues, the rest in greys."""

STRONG_COLOURS = 10
"""That are told apart well; of twenty, half are pale."""

_COLOUR = alt.Color(
    "cause:N",
    scale=alt.Scale(domain=list(CAUSE_COLOURS), range=list(CAUSE_COLOURS.values())),
    legend=alt.Legend(title="primary cause"),
)


def shrinks_by_cause(rows: Sequence[dict[str, Any]], rules: Sequence[str]) -> dict[str, Any]:
    """Bars: shrinks of each rule by primary cause.

    Parameters
    ----------
    rows : sequence of dict
        ``rule``, ``cause``, ``shrinks``.
    rules : sequence of str
        In the order in which they are drawn.
    """
    chart = (
        alt.Chart({"values": list(rows)})
        .mark_bar()
        .encode(
            x=alt.X("shrinks:Q", title="shrinks"),
            y=alt.Y("rule:N", sort=list(rules), title=None),
            color=_COLOUR,
            tooltip=["rule:N", "cause:N", "shrinks:Q"],
        )
        .properties(width=640, height=26 * max(len(rules), 1))
    )
    return dict(chart.to_dict())


def shrinks_in_time(rows: Sequence[dict[str, Any]], rules: Sequence[str]) -> dict[str, Any]:
    """Ticks: when each rule dropped somebody, and why; with what the brokers themselves did.

    Parameters
    ----------
    rows : sequence of dict
        ``cluster``, ``rule``, ``cause``, ``time`` (ISO 8601), ``follower``.
    rules : sequence of str
        In the order in which they are drawn.
    """
    ticks = (
        alt.Chart()
        .mark_tick(thickness=2, size=18)
        .encode(
            x=alt.X("time:T", title="UTC", scale=alt.Scale(type="utc")),
            y=alt.Y("rule:N", sort=list(rules), title=None),
            color=_COLOUR,
            tooltip=["follower:N", "rule:N", "cause:N", "time:N"],
        )
        .properties(width=640, height=22 * max(len(rules), 1))
    )
    chart = (
        alt.layer(ticks, data={"values": list(rows)})
        .facet(row=alt.Row("cluster:N", title=None))
        .resolve_scale(x="independent")
    )
    return dict(chart.to_dict())


def frontier(rows: Sequence[dict[str, Any]], mistakes: float, detection_ms: float) -> dict[str, Any]:
    """Curves: mistakes against detection time, the lag time along each.

    Parameters
    ----------
    rows : sequence of dict
        ``place`` (a curve sheet for each), ``rule``, ``lag_time_s``, ``detection_s``, ``mistakes`` (with ``low`` and
        ``high``, a follower-day; above 0) and ``seen`` (False: no mistake, and ``mistakes`` is ``high``).
    mistakes, detection_ms : float
        The budgets.
    """
    x = alt.X("detection_s:Q", title="99 % of genuine failures detected within, s", scale=alt.Scale(zero=False))
    scale = alt.Scale(type="log")
    y = alt.Y("mistakes:Q", title="mistakes a follower-day", scale=scale)
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    colours = alt.Scale(scheme="category20" if len(rules) > STRONG_COLOURS else "category10")
    colour = alt.Color("rule:N", sort=rules, scale=colours, legend=alt.Legend(title="rule"))
    base = alt.Chart().encode(x=x, color=colour)
    told = ["place:N", "rule:N", "lag_time_s:Q", "detection_s:Q", "mistakes:Q", "low:Q", "high:Q", "seen:N"]
    hollow = alt.condition("datum.seen", alt.value(1), alt.value(0))
    layers = (
        base.mark_rule(opacity=0.35).encode(y=alt.Y("low:Q", scale=scale), y2="high:Q"),
        base.mark_line(opacity=0.7).encode(y=y, order="lag_time_s:Q"),
        base.mark_point(filled=False, size=60).encode(y=y, tooltip=told),
        base.mark_point(filled=True, size=60).encode(y=y, opacity=hollow, tooltip=told),
        base.mark_text(align="left", dx=6, dy=-6, fontSize=10).encode(y=y, text=alt.Text("lag_time_s:Q")),
        alt.Chart().mark_rule(strokeDash=[5, 4], color="#252525").encode(x=alt.datum(detection_ms / 1000)),
        alt.Chart().mark_rule(strokeDash=[5, 4], color="#252525").encode(y=alt.datum(mistakes)),
    )
    chart = (
        alt.layer(*layers, data={"values": list(rows)})
        .properties(width=560, height=320)
        .facet(row=alt.Row("place:N", title=None))
        .resolve_scale(x="independent", y="independent")
    )
    return dict(chart.to_dict())
