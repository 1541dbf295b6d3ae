"""docs/images/rules: each rule in one of `docs.generate.rule_stories`, as replayed; made with docs/rules.md.

A picture ends with a digest of its input, which shows whether it is up to date.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import altair as alt
import vl_convert

from docs.generate.rule_stories import LAG_MS, STORIES, Story, seen, us
from isr_batch.report.charts import cause_scale
from isr_batch.simulation.proposal_examples import START_MS
from tests.naive_rows import Change, PartitionRow
from tests.unit.kernel.test_kernel_against_naive import Result, begin, columns, new_replay, replay
from udfs.kernel.causes import CAUSES
from udfs.kernel.replay import advance_replay, replay_room_for_a_row
from udfs.records import new_kernel_output
from udfs.rules import CONTINUOUS, REGISTRY

Rows = list[dict[str, Any]]
Spec = dict[str, Any]
Point = tuple[float, float | None]

CLAIRVOYANT: Final = "true-lag"
ALL: Final = "all"
"""The name of the picture of all rules."""
WIDTH: Final = 760
SAMPLE_MS: Final = 100
STEP_MS: Final = 500
"""A line is drawn through the highest points of such stretches."""
_ROW: Final = 17
_COLOURS: Final = ("#2166ac", "#d95f02", "#7b8a3b")
_INK: Final = "#252525"
_CLAIRVOYANT: Final = "#bdbdbd"
_LIMIT: Final = "#b2182b"


class Sample(NamedTuple):
    """State of the first follower under a rule at an instant."""

    ms: int
    records_behind: int | None
    """None: a leader that has just begun knows of no fetch."""
    lag_s: float


@cache
def _told(name: str) -> tuple[Story, dict[str, Result]]:
    """A story, and what every rule makes of it."""
    story = STORIES[name]()
    results = replay(story.log(), [story.setting(rule) for rule in REGISTRY])
    return story, dict(zip(REGISTRY, results, strict=True))


def sampled(story: Story, rule: str) -> list[Sample]:
    """Watch the first follower through the replay; timelines leave out when one that lacks nothing fetches."""
    log = story.log()
    (term,) = log.terms
    state = new_replay([story.setting(rule)], story.replicas)
    out = new_kernel_output(replay_room_for_a_row(1, len(story.replicas)) + 10_000)
    begin(state, term, out)
    samples = []
    for ms in range(0, story.end_ms + 1, SAMPLE_MS):
        rows = tuple(row for row in term.rows if us(ms - SAMPLE_MS) < row.time_us <= us(ms))
        state.term["row"] = 0
        assert advance_replay(state, columns(rows), us(ms), out)
        leader, follower = state.leaders[0], state.followers[0, 1]
        known = follower["log_end_offset"] >= 0
        behind = int(leader["log_end_offset"] - follower["log_end_offset"]) if known else None
        # To the clairvoyant it is caught up until it lacks something.
        ago_ms = START_MS + ms - int(follower["last_caught_up_time_ms"]) if behind or rule != CLAIRVOYANT else 0
        samples.append(Sample(ms, behind, ago_ms / 1000))
    return samples


def pictures() -> dict[str, Spec]:
    """All pictures by name, as Vega-Lite: one for each rule, and one of all."""
    return {ALL: overview()} | {
        rule: (_troubles if seen(rule).story == "troubles" else _high_watermark)(rule) for rule in REGISTRY
    }


def svg(spec: Spec) -> str:
    """Draw a picture, and note what it was drawn from."""
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    drawn: str = vl_convert.vegalite_to_svg(spec, vl_version=version)
    return f"{drawn}\n{_mark(spec)}\n"


def is_old(spec: Spec, file: Path) -> bool:
    """Whether a picture is missing or was drawn from something else."""
    return not file.exists() or not file.read_text(encoding="utf-8").endswith(f"\n{_mark(spec)}\n")


def _mark(spec: Spec) -> str:
    drawn = {name: value for name, value in spec.items() if name != "$schema"}
    return f"<!-- drawn from {hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()[:16]} -->"


def overview() -> Spec:
    """Bars: when each rule has the follower of the troubles out of the ISR, and why."""
    story, results = _told("troubles")
    rules = list(REGISTRY)
    rows = [row for rule in rules for row in _out(rule, results[rule]["changes"], 2, story)]
    marks = _given_up([(rule, results[rule]["changes"]) for rule in rules])
    return _finished([_bars(story, rows, rules, None, marks)], story)


def _troubles(rule: str) -> Spec:
    """Lanes: what the follower lacks, how long since it was caught up, and when it is out."""
    story, results = _told("troubles")
    rules = [name for name in REGISTRY if name in {*seen(rule).beside, rule, CLAIRVOYANT}]
    views = {name: sampled(story, name) for name in dict.fromkeys([CLAIRVOYANT, rule])}
    behind = [row for name, samples in views.items() for row in _line(name, samples, "records_behind")]
    since = [row for name, samples in views.items() for row in _line(name, samples, "lag_s")]
    records = alt.Y(
        "value:Q",
        title="records behind",
        scale=alt.Scale(type="symlog", constant=1),
        axis=alt.Axis(values=[0, 10, 100, 1000, 10_000], labelOverlap=False),
    )
    seconds = alt.Y("value:Q", title="lag, s", axis=alt.Axis(values=[0, 10, 20, 30]))
    names = list(views)
    out = [row for name in rules for row in _out(name, results[name]["changes"], 2, story)]
    marks = _given_up([(name, results[name]["changes"]) for name in rules])
    most = dict(story.setting(rule).flags).get("replica_lag_max_messages")
    return _finished(
        [
            _lines(story, behind, records, names, limit=most),
            _lines(story, since, seconds, names, limit=LAG_MS / 1000, checks=_checks(rule, story), legend=False),
            _bars(story, out, rules, None, marks),
        ],
        story,
    )


def _high_watermark(rule: str) -> Spec:
    """Lanes: records that consumers may not see yet, under some rules, and when followers are out."""
    story, results = _told("high-watermark")
    rules = [rule, *seen(rule).beside]
    rows = [row for name in rules for row in _hidden(name, results[name]["partition"], story)]
    hidden = alt.Y("value:Q", title="records above the high watermark", axis=alt.Axis(tickCount=5))
    bars = [
        _bars(
            story,
            [row for name in [*rules, CLAIRVOYANT] for row in _out(name, results[name]["changes"], who, story)],
            [*rules, CLAIRVOYANT],
            f"broker {who} out",
            _given_up([(name, results[name]["changes"]) for name in rules]) if who == 2 else [],
            last=who == 2,
        )
        for who in (3, 2)
    ]
    return _finished([_lines(story, rows, hidden, rules, height=170), *bars], story)


def _hidden(rule: str, states: Sequence[PartitionRow], story: Story) -> Rows:
    """Looked at once a second, when followers that fetch have the latest append."""
    found: list[Point] = []
    for ms in range(0, story.end_ms, 1000):
        state = next(state for state in reversed(states) if state.time_us <= us(ms + 900) or state is states[0])
        found.append((ms / 1000, state.log_end_offset - state.high_watermark))
    return _bent(rule, found)


def _line(rule: str, samples: Sequence[Sample], what: str) -> Rows:
    """The highest value of each stretch of time."""
    highest: dict[int, float | None] = {}
    for sample in samples:
        number, value = sample.ms // STEP_MS, getattr(sample, what)
        highest[number] = None if value is None else max(highest.get(number) or 0, value)
    return _bent(rule, [(number * STEP_MS / 1000, value) for number, value in highest.items()])


def _bent(name: str, line: list[Point]) -> Rows:
    """A line's points, without those on a straight line between their neighbours."""
    bends = [
        point
        for before, point, after in zip(line, line[1:], line[2:], strict=False)
        if before[1] is None or point[1] is None or after[1] is None or abs(2 * point[1] - before[1] - after[1]) > 1e-6
    ]
    return [{"line": name, "at": at, "value": value} for at, value in (line[0], *bends, line[-1])]


def _s(at_us: int) -> float:
    return round(at_us / 1e6 - START_MS / 1e3, 3)


def _checks(rule: str, story: Story) -> list[float]:
    """When the rule looks, by its schedule."""
    checks = REGISTRY[rule].checks_per_lag_time
    if checks == CONTINUOUS:
        return []
    return [ms / 1000 for ms in range(LAG_MS // checks, story.end_ms, LAG_MS // checks)]


def _out(name: str, changes: Sequence[Change], who: int, story: Story) -> Rows:
    """When a follower is out of the ISR, with the primary cause."""
    rows: Rows = []
    for change in changes:
        if change.replica_id != who:
            continue
        if change.kind == "shrink":
            cause = next(cause for cause in CAUSES if cause in change.causes)
            rows.append({"line": name, "cause": cause, "from": _s(change.time_us), "until": story.end_ms / 1000})
        elif change.kind == "expand":
            rows[-1]["until"] = _s(change.time_us)
    return rows


def _given_up(of: Sequence[tuple[str, Sequence[Change]]]) -> Rows:
    """When leadership is given up."""
    return [
        {"line": name, "from": _s(change.time_us)}
        for name, changes in of
        for change in changes
        if change.kind == "relinquish"
    ]


def _x(story: Story, field: str = "at", *, last: bool = False) -> alt.X:
    axis = alt.Axis(labels=last, ticks=last, title="s" if last else None)
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=[0, story.end_ms / 1000], nice=False), axis=axis)


def _acts(story: Story, *, last: bool = False) -> alt.Chart:
    """Grey where something is wrong."""
    rows = [{"at": act.from_ms / 1000, "until": act.until_ms / 1000} for act in story.acts]
    drawn: alt.Chart = (
        alt.Chart({"values": rows}).mark_rect(color="#eeeeee").encode(x=_x(story, last=last), x2="until:Q")
    )
    return drawn


def _heads(story: Story) -> alt.Chart:
    """Descriptions of the faults, above the lanes."""
    rows = [
        {"at": (act.from_ms + act.until_ms) / 2000, "told": "|".join([str(number), *act.says])}
        for number, act in enumerate(story.acts, 1)
    ]
    texts = alt.Chart({"values": rows}, width=WIDTH, height=38, view=alt.ViewConfig(stroke=None))
    texts = texts.mark_text(baseline="top", lineBreak="|", fontSize=10, lineHeight=12)
    drawn: alt.Chart = texts.encode(x=_x(story).axis(None), text="told:N", y=alt.value(0))
    return drawn


def _lines(
    story: Story, rows: Rows, y: alt.Y, names: Sequence[str], *, limit: float | None = None,
    checks: Sequence[float] = (), legend: bool = True, height: int = 95,
) -> alt.LayerChart:  # fmt: skip
    colours = iter(_COLOURS)
    scale = alt.Scale(
        domain=list(names),
        range=[_CLAIRVOYANT if name == CLAIRVOYANT and len(names) > 1 else next(colours) for name in names],
    )
    colour = alt.Color("line:N", scale=scale, legend=alt.Legend(title=None) if legend else None)
    widths = alt.StrokeWidth("line:N", scale=alt.Scale(domain=list(names), range=_widths(names)), legend=None)
    lines = alt.Chart({"values": rows}).mark_line(clip=True)
    layers = [_acts(story), lines.encode(x=_x(story), y=y, color=colour, strokeWidth=widths)]
    if limit is not None:
        ruled = alt.Chart({"values": [{"value": limit}]})
        layers.append(ruled.mark_rule(color=_LIMIT, strokeDash=[5, 3]).encode(y="value:Q"))
        looks = alt.Chart({"values": [{"at": at, "value": limit} for at in checks]})
        ticks = looks.mark_tick(color=_LIMIT, thickness=1, size=7, orient="vertical", opacity=1)
        layers.append(ticks.encode(x=_x(story), y="value:Q"))
    return alt.LayerChart(layer=layers, width=WIDTH, height=height)


def _widths(names: Sequence[str]) -> list[float]:
    """The first line is broad, to be visible behind the others."""
    return [4 if number == 0 and len(names) > 1 else 1.5 for number in range(len(names))]


def _bars(
    story: Story, rows: Rows, names: Sequence[str], title: str | None, given_up: Rows, *, last: bool = True
) -> alt.LayerChart:
    y = alt.Y("line:N", title=title, sort=None, scale=alt.Scale(domain=list(names)))
    colour = alt.Color("cause:N", scale=cause_scale(rows), legend=alt.Legend(title="out of the ISR"))
    base = alt.Chart({"values": rows}).encode(x=_x(story, "from", last=last), y=y, color=colour)
    layers = [
        _acts(story, last=last),
        base.mark_bar(height=_ROW - 8).encode(x2="until:Q"),
        # Some are back after milliseconds.
        base.mark_tick(thickness=3, size=_ROW - 4, opacity=1),
    ]
    if given_up:
        marks = alt.Chart({"values": given_up}).mark_point(shape="triangle-down", color=_INK, filled=True, size=50)
        layers.append(marks.encode(x=_x(story, "from", last=last), y=y))
    return alt.LayerChart(layer=layers, width=WIDTH, height=_ROW * len(names))


def _finished(lanes: Sequence[alt.LayerChart], story: Story) -> Spec:
    """Put the lanes below each other, over one axis of seconds."""
    chart = (
        alt.vconcat(_heads(story), *lanes, spacing=8)
        .resolve_scale(x="shared", color="independent")
        .configure(aria=False, background="white", view={"stroke": "#cccccc"}, axis={"grid": False})
    )
    return dict(chart.to_dict())


def write(folder: Path) -> None:
    """Draw what is old, and remove pictures of rules that are gone."""
    folder.mkdir(exist_ok=True)
    for name, spec in pictures().items():
        if is_old(spec, folder / f"{name}.svg"):
            (folder / f"{name}.svg").write_text(svg(spec), encoding="utf-8")
    for file in _strangers(folder):
        file.unlink()


def old(folder: Path) -> list[str]:
    """Pictures that are not as they would be drawn now, and files that are no picture of any rule."""
    renewed = [name for name, spec in pictures().items() if is_old(spec, folder / f"{name}.svg")]
    return [*renewed, *(file.name for file in _strangers(folder))]


def _strangers(folder: Path) -> list[Path]:
    named = {f"{name}.svg" for name in (ALL, *REGISTRY)}
    return sorted(file for file in folder.iterdir() if file.name not in named)
