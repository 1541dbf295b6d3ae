"""Draw the time around a shrink as a swim lane: offsets, fetches, silences of the leader, and members of the ISR."""

from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import altair as alt
import vl_convert

from isr_batch.errors import UsageError
from isr_batch.explain.shrink_text import FetchInText, ShrinkStory, shrink_headline
from isr_batch.explain.swimlane_data import BROKERS, SwimlaneScene, fetch_phases_on_lane
from isr_batch.incidents.colours import FOLLOWER_LINES, INK, MEMBER_COLOURS, PHASE_COLOURS, SILENT
from isr_batch.shown_times import offset_us, zone_name

_LINES: Final = {"leader": INK, "high watermark": "#969696"}
_MARKS: Final = {"caught up": "#636363", "shrink": INK, "back": "#636363"}
_UNLOGGED: Final = "#d9d9d9"
OWN: Final = "this rule"
OTHERS: Final = "other rules"
_DARK: Final = (
    "@media (prefers-color-scheme: dark) { svg, body { background: #16181c !important } svg > rect { fill: #16181c } "
    f"text {{ fill: #e4e4e4 }} [fill='{INK}'] {{ fill: #e4e4e4 }} [stroke='{INK}'] {{ stroke: #e4e4e4 }} "
    "[stroke='#dddddd'] { stroke: #3a3d43 } [stroke='#636363'] { stroke: #b5b5b5 } "
    f"[fill='{PHASE_COLOURS['overdue or sent']}'] {{ stroke: #b5b5b5 }} "
    f"[fill='{MEMBER_COLOURS[1]}'] {{ fill: {MEMBER_COLOURS[2]} }} [fill='{MEMBER_COLOURS[2]}'] {{ fill: #5a5d63 }} }}"
)
"""CSS that gives the picture dark colours if the reader's system is in dark mode."""
_FITTING: Final = "svg { max-width: 100%; height: auto }"
"""CSS that scales the picture down if the page is narrow."""
_WIDTH: Final = 900
_ROW: Final = 18
PICTURES: Final = (".svg", ".png", ".html")

Rows = list[dict[str, Any]]


def require_swimlane_file(file: Path) -> None:
    """Check that the suffix of a file name is that of a picture format (`PICTURES`).

    Raises
    ------
    UsageError
        If the suffix is another one. The message lists the formats.
    """
    if file.suffix not in PICTURES:
        raise UsageError(f"--out {file}: not a picture format", f"use one of {', '.join(PICTURES)}")


def draw_swimlane(scene: SwimlaneScene, story: ShrinkStory, file: Path) -> None:
    """Draw a shrink and write the picture to a file, in the format that the file's suffix names.

    An HTML page contains all its scripts, so that it needs no network.
    """
    chart = swimlane(scene, story)
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".png":
        file.write_bytes(vl_convert.vegalite_to_png(chart, vl_version=version, scale=2))
    elif file.suffix == ".svg":
        svg = vl_convert.vegalite_to_svg(chart, vl_version=version)
        file.write_text(svg.replace(">", f"><style>{_DARK}</style>", 1), encoding="utf-8")
    else:
        html = vl_convert.vegalite_to_html(chart, vl_version=version, bundle=True)
        # A script in the page contains "</head>" too. The last occurrence is the one that closes the page's head.
        file.write_text(f"<style>{_FITTING} {_DARK}</style></head>".join(html.rsplit("</head>", 1)), encoding="utf-8")


def swimlane(scene: SwimlaneScene, story: ShrinkStory) -> dict[str, Any]:
    """Return the picture of a shrink as a Vega-Lite specification. All lanes share one time axis."""
    lanes = [
        _lane_of_offsets(scene, story),
        _bars_in_leader(scene, story),
        *(_memberships(scene, story, follower.replica_id) for follower in story.dropped),
    ]
    title = alt.Title(
        shrink_headline(story),
        subtitle=[
            f"broker {follower.replica_id}: {follower.verdict}, {', '.join(follower.causes)}"
            for follower in story.dropped
        ],
        anchor="start",
    )
    chart = alt.vconcat(*lanes, spacing=12).resolve_scale(x="shared", color="independent").properties(title=title)
    # DejaVu and Verdana have the same widths, so text that is measured with one font fits if drawn with the other.
    chart = chart.configure(font="DejaVu Sans, Verdana, sans-serif", padding=12, background="white")
    return dict(chart.configure_view(stroke="#dddddd").configure_axis(grid=False).to_dict())


def _x_of_lanes(scene: SwimlaneScene, field: str, *, last: bool = False) -> alt.X:
    """Return the time axis that all lanes share, for values of ``field``. Only the last lane shows its labels."""
    axis = (
        alt.Axis(
            labelExpr=f"utcFormat(toNumber(datum.value) + {offset_us(scene.from_us) // 1000}, '%H:%M:%S.%L')",
            title=zone_name(),
            labelOverlap=True,
            tickCount=8,
        )
        if last
        else alt.Axis(labels=False, ticks=False)
    )
    domain = [scene.from_us / 1000, scene.until_us / 1000]
    return alt.X(f"{field}:T", scale=alt.Scale(type="utc", domain=domain, nice=False), axis=axis).title(
        zone_name() if last else None
    )


def _instants(scene: SwimlaneScene, story: ShrinkStory, *, last: bool = False, named: bool = False) -> alt.LayerChart:
    """Return vertical lines at events (last caught up, shrink, back in the ISR), and grey areas where no log exists.

    If ``named``, the lines have labels.
    """
    unlogged = [{"from": start / 1000, "until": end / 1000} for start, end in scene.unlogged]
    grey = alt.Chart({"values": unlogged}).mark_rect(color=_UNLOGGED, opacity=0.7)
    band = grey.encode(x=_x_of_lanes(scene, "from", last=last), x2="until:T")
    marks = [("caught up", 1000 * follower.last_caught_up_time_ms) for follower in story.dropped]
    marks += [("shrink", story.change_us)]
    marks += [("back", follower.restored_us) for follower in story.dropped if follower.restored_us]
    inside = sorted({(what, at_us) for what, at_us in marks if scene.from_us <= at_us <= scene.until_us})
    labelled = dict(inside)
    rows = [{"at": at_us / 1000, "what": what, "label": at_us == labelled[what]} for what, at_us in inside]
    base = alt.Chart({"values": rows}).encode(
        x=_x_of_lanes(scene, "at", last=last),
        color=alt.Color("what:N", scale=alt.Scale(domain=list(_MARKS), range=list(_MARKS.values())), legend=None),
    )
    lines = base.mark_rule(strokeDash=[4, 3]).encode(tooltip=["what:N"])
    labels = base.transform_filter("datum.label").encode(text="what:N")
    # The follower is often back within milliseconds. The labels are on different sides, so that they do not overlap.
    right = labels.transform_filter("datum.what == 'back'").mark_text(align="left", dx=4, y=8)
    left = labels.transform_filter("datum.what != 'back'").mark_text(align="right", dx=-4, y=8)
    return alt.LayerChart(layer=[band, lines, left, right] if named else [band, lines])


def _lane_of_offsets(scene: SwimlaneScene, story: ShrinkStory) -> alt.LayerChart:
    """Return the lane with the leader's log end offset, the high watermark, and the followers' log end offsets."""
    lines: dict[str, list[tuple[int, int]]] = {"leader": [], "high watermark": []} | {
        f"broker {replica}": _log_ends_of_follower(fetches) for replica, fetches in scene.fetches.items()
    }
    for at_us, log_end, high_watermark in scene.leader:
        lines["leader"].append((at_us, log_end))
        lines["high watermark"].append((at_us, high_watermark))
    rows: Rows = [row for name, points in lines.items() for row in _steps_on_lane(name, points, scene)]
    colours = [*_LINES.values(), *islice(cycle(FOLLOWER_LINES), len(scene.fetches))]
    dashes = [[1, 0], [5, 3], *([1, 0] for _ in scene.fetches)]
    steps = (
        alt.Chart({"values": rows})
        .mark_line(interpolate="step-after", clip=True)
        .encode(
            x=_x_of_lanes(scene, "at"),
            y=alt.Y("offset:Q", title="offset", scale=alt.Scale(zero=False), axis=alt.Axis(tickMinStep=1)),
            color=alt.Color(
                "line:N", scale=alt.Scale(domain=list(lines), range=colours), legend=alt.Legend(title=None)
            ),
            strokeDash=alt.StrokeDash("line:N", scale=alt.Scale(domain=list(lines), range=dashes), legend=None),
            strokeWidth=alt.condition(alt.datum.line == "leader", alt.value(3), alt.value(1.5)),
        )
    )
    marks = _instants(scene, story, named=True)
    lane: alt.LayerChart = (
        alt.layer(steps, marks).resolve_scale(color="independent").properties(width=_WIDTH, height=150)
    )
    return lane


def _log_ends_of_follower(fetches: tuple[FetchInText, ...]) -> list[tuple[int, int]]:
    """Return (time, log end offset) at the arrival of each successful fetch of a follower."""
    return [(fetch.arrival_us, fetch.fetch_offset) for fetch in fetches if fetch.error_code == 0]


def _steps_on_lane(name: str, points: list[tuple[int, int]], scene: SwimlaneScene) -> Rows:
    """Return the chart rows of a stepped line through points, which are pairs of time (microseconds) and offset.

    The line is extended to the end of the picture.
    """
    inside = [(max(at_us, scene.from_us), offset) for at_us, offset in points]
    ends = [(scene.until_us, inside[-1][1])] if inside else []
    return [{"line": name, "at": at_us / 1000, "offset": offset} for at_us, offset in [*inside, *ends]]


def _bars_in_leader(scene: SwimlaneScene, story: ShrinkStory) -> alt.LayerChart:
    """Return the lane that shows in which phase each fetch was in the leader, and when the leader was silent."""
    least_us = (scene.until_us - scene.from_us) / (2 * _WIDTH)
    rows = [
        {"row": f"fetches of {replica}", "what": what, "from": max(start, scene.from_us) / 1000, "until": end / 1000}
        for replica, fetches in scene.fetches.items()
        for fetch in fetches
        for what, start, end in fetch_phases_on_lane(fetch)
        # Bars thinner than half a pixel are left out, because thousands of them would make the file large.
        if end - start >= least_us and end > scene.from_us
    ]
    leader = f"leader {story.leader_id}"
    rows += [
        {
            "row": leader,
            "what": what,
            "from": max(start, scene.from_us) / 1000,
            "until": min(end, scene.until_us) / 1000,
        }
        for what, spans in (("silent", scene.silences), ("no log", scene.unlogged))
        for start, end in spans
    ]
    names = [leader, *(f"fetches of {replica}" for replica in scene.fetches)]
    scale = alt.Scale(domain=["silent", "no log", *PHASE_COLOURS], range=[SILENT, _UNLOGGED, *PHASE_COLOURS.values()])
    bars = (
        alt.Chart({"values": rows})
        .mark_bar(clip=True, height=_ROW - 4)
        .encode(
            x=_x_of_lanes(scene, "from"),
            x2="until:T",
            y=alt.Y("row:N", title=None, sort=names, scale=alt.Scale(domain=names)),
            color=alt.Color("what:N", scale=scale, legend=alt.Legend(title=None)),
            tooltip=["row:N", "what:N"],
        )
    )
    lane: alt.LayerChart = (
        alt.layer(bars, _instants(scene, story))
        .resolve_scale(color="independent")
        .properties(width=_WIDTH, height=(_ROW + 2) * len(names))
    )
    return lane


def _memberships(scene: SwimlaneScene, story: ShrinkStory, replica: int) -> alt.LayerChart:
    """Return the lane that shows when ``replica`` was in the ISR, with rows for the brokers and for the rule runs.

    Rule runs under which the follower was in the ISR at the same times share a row.
    """
    alike: dict[object, list[str]] = {}
    for (who, name), members in scene.members.items():
        if who == replica:
            alike.setdefault(name if name == BROKERS else members, []).append(name)
    groups = [sorted(names, key=lambda name: _whose_lane(name, story) != OWN) for names in alike.values()]
    rows = [
        {
            "runs": _label_of_lane(names), "all": ", ".join(names), "from": start / 1000, "until": end / 1000,
            "whose": _whose_lane(names[0], story),
        }
        for names in groups
        for start, end in scene.members[replica, names[0]]
    ]  # fmt: skip
    last = replica == story.dropped[-1].replica_id
    labels = [_label_of_lane(names) for names in groups]
    scale = alt.Scale(domain=[BROKERS, OWN, OTHERS], range=[*MEMBER_COLOURS])
    bars = (
        alt.Chart({"values": rows})
        .mark_bar(clip=True, height=_ROW - 8)
        .encode(
            x=_x_of_lanes(scene, "from", last=last),
            x2="until:T",
            y=alt.Y(
                "runs:N", title=None, sort=labels, scale=alt.Scale(domain=labels),
                axis=alt.Axis(labelLimit=300, maxExtent=330),
            ),
            color=alt.Color("whose:N", scale=scale, legend=alt.Legend(title=None) if last else None),
            tooltip=["all:N"],
        )
    )  # fmt: skip
    lane: alt.LayerChart = (
        alt.layer(bars, _instants(scene, story, last=last))
        .resolve_scale(color="independent")
        .properties(
            width=_WIDTH, height=_ROW * len(labels),
            title=alt.Title(f"broker {replica} in the ISR", anchor="start", fontSize=11),
        )
    )  # fmt: skip
    return lane


def _label_of_lane(names: list[str]) -> str:
    """Join the names of the rule runs that share a row. Only the first two are named if there are more."""
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")  # noqa: PLR2004


def _whose_lane(run: str, story: ShrinkStory) -> str:
    """Return whose ISR a row shows: `BROKERS`, `OWN` (the rule run of the shrink) or `OTHERS`."""
    if run == BROKERS:
        return BROKERS
    return OWN if run in {story.rule, f"{story.rule} {story.params_json}"} else OTHERS
