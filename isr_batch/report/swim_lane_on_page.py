"""Lay out the swim lane of a partition around a shrink.

It shows offsets, lag, silences and other troubles, and under which rules a follower was out of the ISR.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from isr_batch.incidents.own_shrinks import Row
from isr_batch.phrases import three_digits
from isr_batch.report.cluster_timeline import EDGE, share_of_timeline, timeline_ticks
from isr_batch.rule_names import rule_names_by_release

HEIGHTS: Final = {"offset": 96, "lag": 56}
"""Heights of the graphs, in pixels. All graphs are `WIDE` units wide, and the page stretches them."""
WIDE: Final = 1000
TOP: Final = 3
BROKERS: Final = "the brokers"
COLOURS: Final = 6
"""Number of followers whose lines look different: three colours, each solid and dashed."""

Span = tuple[int, int]


class CurvesOfSwimLane(NamedTuple):
    """A graph of a swim lane, with a line per follower.

    Attributes
    ----------
    title : str
        ``offset`` or ``lag``.
    height : int
        In pixels.
    least, most : str
        Values at the lower and the upper edge.
    lines : list of dict
        ``name``, ``css`` (class) and ``path`` (SVG path in a box of `WIDE` by ``height``).
    limit : float or None
        Vertical position of a dashed line at the lag time; None without such a line.
    """

    title: str
    height: int
    least: str
    most: str
    lines: list[dict[str, str]]
    limit: float | None


class SwimLaneOnPage(NamedTuple):
    """A swim lane, ready for the template. Horizontal positions and widths are percent of its period.

    Attributes
    ----------
    at : float
        Position of the shrink.
    curves : list of CurvesOfSwimLane
    rows : list of dict
        Rows of bars for troubles, phases of fetches, and the times in which a follower was out of the ISR of the
        brokers or of their rule. Keys: ``name``, ``follower`` (or None), and ``bars`` (``x``, ``width``, ``css`` class
        and ``says``, the text for the mouse).
    others : list of dict
        Like ``rows``, for all other rules.
    ticks : list of dict
        ``x`` and ``text``.
    stands : dict of str to list of str
        All rules by what they decided at the shrink: made, kept, out, or apart if that differs between its followers.
    phases : bool
        Whether some row shows the phases of fetches.
    """

    at: float
    curves: list[CurvesOfSwimLane]
    rows: list[dict[str, Any]]
    others: list[dict[str, Any]]
    ticks: list[dict[str, Any]]
    stands: dict[str, list[str]]
    phases: bool


def swim_lane_on_page(
    rows: Sequence[Row], within: Span, shrink: tuple[str, int], lag_time_ms: int, rules: Iterable[str]
) -> SwimLaneOnPage:
    """Lay out the swim lane around a shrink.

    Parameters
    ----------
    rows : sequence of dict
        Result of ``sql/lanes.sql`` for the shrink.
    within : (int, int)
        Period of the swim lane, in microseconds since 1970.
    shrink : (str, int)
        The rule that made the shrink, and the time of the shrink in microseconds since 1970.
    lag_time_ms : int
    rules : iterable of str
        All replayed rules. A rule that has no rows kept the follower in the ISR.
    """
    own, change_us = shrink
    of: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        of[row["lane"]].append(row)
    names = sorted({row["line"] for row in (*of["offset"], *of["lag"])} - {"leader", "high watermark"})
    css = {name: f"f{number % COLOURS}" for number, name in enumerate(names)}
    css |= {"leader": "leader", "high watermark": "hw"}
    some_offset = any(row["value"] is not None for row in of["offset"])
    curves = [_curves_on_swim_lane("offset", of["offset"], within, css, None)] if some_offset else []
    if of["lag"]:
        curves.append(_curves_on_swim_lane("lag", of["lag"], within, css, lag_time_ms / 1000))
    bars: list[dict[str, Any]] = [
        {
            "name": line,
            "follower": None,
            "bars": [_bar_on_swim_lane(row, within) for row in of[lane] if row["line"] == line],
        }
        for lane in ("trouble", "fetch")
        for line in dict.fromkeys(row["line"] for row in of[lane])
    ]
    known = rule_names_by_release(rules)
    others: list[dict[str, Any]] = []
    for follower in sorted({row["follower"] for row in of["away"]}):
        for one in _memberships(follower, [row for row in of["away"] if row["follower"] == follower], within, known):
            (bars if {own, BROKERS} & {*one.pop("names")} else others).append(one)
    axis = [(share_of_timeline(us, within), text) for us, text in timeline_ticks(*within)]
    return SwimLaneOnPage(
        share_of_timeline(change_us, within), curves, bars, others,
        [{"x": x, "text": text} for x, text in axis if EDGE < x < 100 - EDGE],
        _stands(of["away"], change_us, 1000 * lag_time_ms, known), bool(of["fetch"]),
    )  # fmt: skip


def _bar_on_swim_lane(row: Row, within: Span) -> dict[str, Any]:
    """Convert a row of ``sql/lanes.sql`` to a bar: position and width in percent, CSS class, and text for the mouse."""
    x = share_of_timeline(row["from_us"], within)
    lasts = f"{three_digits((row['until_us'] - row['from_us']) / 1e6)} s"
    what = row["verdict"] if row["cause"] is None else f"{row['verdict']}: {row['cause'].replace('_', ' ')}"
    return {
        "x": x, "width": round(max(share_of_timeline(row["until_us"], within) - x, 0.15), 2),
        "css": row["verdict"].replace(" ", "-"), "says": f"{what}, {lasts}",
    }  # fmt: skip


def _memberships(follower: int, away: Sequence[Row], within: Span, rules: Sequence[str]) -> list[dict[str, Any]]:
    """Group the rules under which a follower was out of the ISR at the same times. Return one row per group.

    The brokers have a separate row, which comes last.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    bars = {}
    for rule in (*rules, BROKERS):
        of = [_bar_on_swim_lane(row, within) for row in away if row["line"] == rule]
        bars[repr(of) if rule != BROKERS else rule] = of
        groups[repr(of) if rule != BROKERS else rule].append(rule)
    return [
        {"name": ", ".join(names), "names": names, "follower": follower, "bars": bars[key]}
        for key, names in groups.items()
    ]


def _stands(away: Sequence[Row], change_us: int, lag_us: int, rules: Sequence[str]) -> dict[str, list[str]]:
    """Return the rules by what they decided at a shrink: made, kept, out, or apart if the dropped followers differ.

    ``away`` are the times at which followers were out of the ISR, by rule (``line``).
    """
    left = {row["follower"] for row in away if row["from_us"] == change_us and row["line"] in rules}
    spans: dict[tuple[str, int], list[Span]] = defaultdict(list)
    for row in away:
        spans[row["line"], row["follower"]].append((row["from_us"], row["until_us"]))
    found: dict[str, list[str]] = defaultdict(list)
    for rule in rules:
        of = {_stand_on_swim_lane(spans[rule, follower], change_us, lag_us) for follower in left}
        if of:
            found[of.pop() if len(of) == 1 else "apart"].append(rule)
    return found


def _stand_on_swim_lane(away: Sequence[Span], change_us: int, lag_us: int) -> str:
    """Return what a rule decided at a shrink, given the times ``away`` in which a follower was out of its ISR.

    made: the follower left at most a lag time before or after the shrink. out: it had left before. kept: otherwise.
    """
    if any(abs(out_us - change_us) <= lag_us for out_us, _ in away):
        return "made"
    return "out" if any(out_us < change_us < back_us for out_us, back_us in away) else "kept"


def _curves_on_swim_lane(
    title: str, rows: Sequence[Row], within: Span, css: dict[str, str], limit: float | None
) -> CurvesOfSwimLane:
    """Lay out the graph ``title`` (offset or lag) with a line per follower. ``limit`` is the lag time in seconds."""
    height, lag = HEIGHTS[title], title == "lag"
    values = [row["value"] for row in rows if row["value"] is not None]
    least = 0.0 if lag else min(values)
    most = max(*values, least + 1, limit or least)

    def y(value: float | None) -> float | None:
        if value is None:
            return None
        from_top: float = height - TOP - (height - 2 * TOP) * (value - least) / (most - least)
        return round(from_top, 1)

    def x(us: float) -> float:
        return round(share_of_timeline(us, within) * WIDE / 100, 1)

    lines = []
    for name in sorted({row["line"] for row in rows}, key=lambda name: (not css[name].startswith(("l", "h")), name)):
        points = [(row["from_us"], row["value"]) for row in rows if row["line"] == name]
        path = _path_on_swim_lane(
            [(x(us), y(value)) for us, value in (_with_start_of_lag(points, within[0]) if lag else points)],
            steps=not lag,
        )
        if path:
            lines.append({"name": name, "css": css[name], "path": path})
    edges = (f"{least:g} s", f"{most:.4g} s") if lag else (f"{least:,.0f}", f"{most:,.0f}")
    return CurvesOfSwimLane(title, height, *edges, lines, None if limit is None else y(limit))


def _with_start_of_lag(points: Sequence[tuple[int, float]], from_us: int) -> list[tuple[float, float]]:
    """Before each (time, lag in s), insert the point from which the lag grew: when it was 0, or at ``from_us``."""
    grown: list[tuple[float, float]] = []
    for us, lag in points:
        begin_us = max(us - 1e6 * lag, from_us)
        if begin_us < us and (not grown or begin_us > grown[-1][0]):
            grown.append((begin_us, lag - (us - begin_us) / 1e6))
        grown.append((us, lag))
    return grown


def _path_on_swim_lane(points: Sequence[tuple[float, float | None]], *, steps: bool) -> str:
    """Return an SVG path through points, as steps or straight lines. None as a y value makes a gap.

    Steps between equal values are left out.
    """
    parts: list[str] = []
    last: float | None = None
    for x, y in points:
        if y is None:
            parts += [f"H{x:g}"] if last is not None else []
        elif last is None:
            parts.append(f"M{x:g} {y:g}")
        elif not steps:
            parts.append(f"L{x:g} {y:g}")
        elif y != last:
            parts.append(f"H{x:g}V{y:g}")
        last = y
    return "".join(parts) + (f"H{WIDE}" if steps and last is not None else "")
