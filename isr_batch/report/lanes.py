"""Draw one partition over time: offsets, lag, known faults, and who was out of the ISR under each rule."""

import warnings
from collections.abc import Sequence
from typing import Final

import altair as alt

from isr_batch.report.charts import INK, Rows, Spec, cause_scale, in_order

# One zoom for all lanes is what is meant. Not for a while only: they are drawn in threads, which share what is ignored.
warnings.filterwarnings("ignore", message="Automatically deduplicated selection parameter")

_FOLLOWERS: Final = ("#4393c3", "#1b9e77", "#9970ab", "#c51b7d")
_TROUBLE: Final = alt.Scale(domain=["silent", "planted", "no log"], range=["#b2182b", "#8c6bb1", "#bdbdbd"])
_WIDTH: Final = 640
_ROW: Final = 15


def lanes(rows: Rows, rules: Sequence[str], lag_time_ms: int, change_ms: float) -> Spec:
    """Build the lanes, one below the other over one time axis with zoom (wheel) and pan (drag).

    Parameters
    ----------
    rows : sequence of dict
        Result of ``sql/lanes.sql``.
    rules : sequence of str
        All replayed rules: one without a bar keeps the follower in the ISR.
    lag_time_ms : int
        Drawn as a limit in the lag lane.
    change_ms : float
        Time of the shrink.
    """
    of = {name: [row for row in rows if row["lane"] == name] for name in ("offset", "lag", "trouble", "away")}
    away = cause_scale(of["away"])
    titled = [("offset", of["offset"]), ("lag, s", of["lag"]), ("trouble", of["trouble"])]
    titled += [
        (f"broker {follower} out", [row for row in of["away"] if row["follower"] == follower])
        for follower in sorted({row["follower"] for row in of["away"]})
    ]
    there = [(title, lane) for title, lane in titled if lane]
    drawn = []
    for title, lane in there:
        last = lane is there[-1][1]
        if title in {"offset", "lag, s"}:
            layers = [_lines(lane, title, last=last)]
        else:
            names = in_order(row["line"] for row in lane) if title == "trouble" else [*rules, "the brokers"]
            layers = [_bars(lane, title, names, _TROUBLE if title == "trouble" else away, last=last)]
        if title == "lag, s":
            limit = alt.Chart({"values": [{"s": lag_time_ms / 1000}]})
            layers.append(limit.mark_rule(color="#d73027", strokeDash=[5, 3]).encode(y="s:Q"))
        at = alt.Chart({"values": [{"at_ms": change_ms}]}).mark_rule(
            color=INK, strokeDash=[2, 3], opacity=0.7, clip=True
        )
        layers.append(at.encode(x=_x("at_ms", last=last)))
        height = {"offset": 130, "lag, s": 80, "trouble": _ROW * max(len({row["line"] for row in lane}), 3)}
        drawn.append(alt.layer(*layers).properties(width=_WIDTH, height=height.get(title, _ROW * (len(rules) + 1))))
    zoom = alt.selection_interval(bind="scales", encodings=["x"])
    chart = (
        alt.vconcat(*drawn, spacing=6)
        .add_params(zoom)
        .resolve_scale(x="shared", color="independent", stroke="independent")
    )
    return dict(chart.to_dict())


def _x(field: str, *, last: bool) -> alt.X:
    axis = alt.Axis(format="%H:%M:%S.%L", labelOverlap=True, tickCount=7, labels=last, ticks=last)
    return alt.X(f"{field}:T", scale=alt.Scale(type="utc", nice=False), axis=axis, title="UTC" if last else None)


def _lines(rows: Rows, title: str, *, last: bool) -> alt.Chart:
    followers = sorted({row["line"] for row in rows} - {"leader", "high watermark"})
    colours = {"leader": INK, "high watermark": "#969696"}
    colours |= {name: _FOLLOWERS[i % len(_FOLLOWERS)] for i, name in enumerate(followers)}
    there = [name for name in colours if any(row["line"] == name for row in rows)]
    scale = alt.Scale(domain=there, range=[colours[name] for name in there])
    steps = title == "offset"
    lines: alt.Chart = (
        alt.Chart({"values": [{name: row[name] for name in ("line", "from_ms", "value")} for row in rows]})
        .mark_line(interpolate="step-after" if steps else "linear", clip=True, strokeWidth=1.5)
        .encode(
            x=_x("from_ms", last=last),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=not steps), axis=alt.Axis(tickCount=5)),
            color=alt.Color("line:N", scale=scale, legend=alt.Legend(title=None)),
            tooltip=["line:N", "value:Q"],
        )
    )
    return lines


def _bars(rows: Rows, title: str, names: Sequence[str], scale: alt.Scale, *, last: bool) -> alt.Chart:
    legend = None if title == "trouble" else alt.Legend(title="primary cause")
    bars: alt.Chart = (
        alt.Chart({"values": [{name: row[name] for name in ("line", "cause", "from_ms", "until_ms")} for row in rows]})
        .mark_bar(clip=True, height=_ROW - 6)
        .encode(
            x=_x("from_ms", last=last),
            x2="until_ms:T",
            y=alt.Y("line:N", title=title, sort=None, scale=alt.Scale(domain=list(names))),
            color=alt.Color("cause:N", scale=scale, legend=legend),
            stroke=alt.Stroke("cause:N", scale=scale, legend=legend),
            tooltip=["line:N", "cause:N"],
        )
    )
    return bars
