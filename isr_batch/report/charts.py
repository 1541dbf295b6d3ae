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
