"""Lay out the timeline of a cluster, with a lane per broker that shows drops, silences, elections and restarts."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from isr_batch.incidents.own_shrinks import SLOTS, VERDICTS, OwnShrinks, Row
from isr_batch.incidents.sentences import CALLED
from isr_batch.incidents.uncovered_time import uncovered_time
from isr_batch.phrases import count_of, seconds_text
from isr_batch.shown_times import offset_us, time_text

LANE: Final = 58
"""Height of a broker's lane, in pixels."""
BAR: Final = 15
"""Height of the largest bar above or below the middle of a lane, in pixels. Signs and labels need the rest."""
MOST_LANES: Final = 12
"""Maximum number of brokers that have a lane each. All other brokers share one lane."""
LEAST: Final = 4
NARROWEST: Final = 0.42
EDGE: Final = 3
"""Ticks that are less than this many percent from an end of the axis are left out: there is no room for their labels.
"""
TICKS: Final = 9
NARROWEST_PAGE: Final = 650
"""Width in pixels of the timeline on the narrowest page, which is 800 pixels wide."""
LETTER: Final = 6.5
"""Average width of a letter, in pixels."""
STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Possible distances between ticks, in seconds. If none is large enough, ticks are several days apart."""
SIGNS: Final = {
    "started": ("▲", "starts"), "shutting_down": ("▼", "shuts down"), "stopping": ("▼", "shuts down"),
    "fenced": ("✕", "is fenced by the controller"),
    "election": ("◆", "becomes"),
}  # fmt: skip
"""Symbol and description of each kind of event."""


class ClusterTimeline(NamedTuple):
    """The timeline of a cluster, ready for the template.

    In the dicts, ``x`` and ``width`` are percent of the period, ``y`` and ``height`` pixels. ``says`` is the text that
    appears when the mouse is over a shape. ``meanings`` holds (symbol, description) of the ``signs`` that occur.
    """

    height: int
    lanes: list[dict[str, Any]]
    bars: list[dict[str, Any]]
    silences: list[dict[str, Any]]
    unlogged: list[dict[str, Any]]
    signs: list[dict[str, Any]]
    ticks: list[dict[str, Any]]
    verdicts: list[str]
    meanings: list[tuple[str, str]]


class TimelineTarget(NamedTuple):
    """The target of a click on a bar: the anchor ``place`` on the page.

    If ``place`` is empty, the bar is not a link, and its text shows ``command``, which explains the drops.
    """

    place: str
    command: str


def cluster_timeline(
    own: OwnShrinks, cluster: Row, targets: Mapping[tuple[int, int], TimelineTarget]
) -> ClusterTimeline:
    """Lay out the timeline of a cluster.

    Parameters
    ----------
    own : OwnShrinks
    cluster : dict
        One of ``own.clusters``.
    targets : mapping of (int, int) to TimelineTarget
        Where a click on an incident's bar leads, by (broker at fault, number of the incident).
    """

    def of(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["cluster_id"] == cluster["cluster_id"]]

    first, last = cluster["first_us"], max(cluster["last_us"], cluster["first_us"] + 1)
    drops, events, elections = of(own.lanes), of(own.events), of(own.elections)
    brokers, others = brokers_in_view({row["broker_id"] for row in (*drops, *events, *elections)}, of(own.pairs))
    lane_of = {broker: number for number, broker in enumerate(brokers)} | dict.fromkeys(others, len(brokers))
    middle = {broker: LANE * lane + LANE // 2 + 4 for broker, lane in lane_of.items()}

    def x(us: float) -> float:
        """Return the position of an instant in percent. An instant outside the timeline is moved to its nearest end."""
        return share_of_timeline(min(max(us, first), last), (first, last))

    shown = [row for row in events if row["broker_id"] in brokers]
    happened = [row | {"more": ""} for row in shown if row["kind"] != "silent" and first <= row["from_us"] <= last]
    happened += [
        {
            "broker_id": row["broker_id"], "kind": "election", "from_us": row["at_us"],
            "more": f" leader of {count_of(row['partitions'], 'partition')}",
        }
        for row in elections if row["broker_id"] in brokers
    ]  # fmt: skip
    signs = [
        {
            "x": x(row["from_us"]), "y": middle[row["broker_id"]] - LANE // 2 + 13, "sign": SIGNS[row["kind"]][0],
            "says": f"{time_text(row['from_us'], '%H:%M:%S')}: broker {row['broker_id']} "
            f"{SIGNS[row['kind']][1]}{row['more']}",
        }
        for row in happened
    ]  # fmt: skip
    silences = [
        {
            "x": x(row["from_us"]), "width": round(max(0.17, x(row["until_us"]) - x(row["from_us"])), 2),
            "y": middle[row["broker_id"]] - LANE // 2 + 3,
            "says": f"{time_text(row['from_us'], '%H:%M:%S')}: broker {row['broker_id']} was silent for {lasted}",
            "label": f"silent {lasted}",
        }
        for row in shown if row["kind"] == "silent"
        for lasted in [seconds_text([(row["until_us"] - row["from_us"]) // 1000])]
    ]  # fmt: skip
    coverage = of(own.tables["coverage"].to_pylist())
    no_log = [
        {"x": x(start), "width": round(x(end) - x(start), 2), "y": middle[broker] - LANE // 2 + 3,
         "says": f"broker {broker}: no request log from {time_text(start, '%H:%M:%S')} to {time_text(end, '%H:%M:%S')}",
         "label": "no request log"}
        for broker in brokers
        for start, end in uncovered_time(coverage, broker, (first, last)) if x(end) - x(start) >= NARROWEST
    ]  # fmt: skip
    lanes = [{"broker": broker, "name": f"broker {broker}", "y": middle[broker]} for broker in brokers]
    lanes += [{"broker": None, "name": f"{len(others)} others", "y": middle[broker]} for broker in others[:1]]
    marks = [{"x": x(us), "text": text} for us, text in timeline_ticks(first, last) if EDGE < x(us) < 100 - EDGE]
    there = {row["verdict"] for row in drops}
    return ClusterTimeline(
        LANE * len(lanes) + 26, lanes, _bars(drops, lane_of, lanes, (first, last), targets),
        _labels_with_room(silences), _labels_with_room(no_log), signs, marks,
        [verdict for verdict in VERDICTS if verdict in there],
        [SIGNS[kind] for kind in SIGNS if any(row["kind"] == kind for row in happened)],
    )  # fmt: skip


def _labels_with_room(shaded: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Clear the labels that would not fit on the narrowest page.

    A label may extend to the next shaded area in its lane, or else to the end of the lane.
    """
    ordered = sorted(shaded, key=lambda one: (one["y"], one["x"]))
    for number, one in enumerate(ordered):
        later = [other["x"] for other in ordered[number + 1 : number + 2] if other["y"] == one["y"]]
        until = later[0] if later else 100
        if 100 * LETTER * len(one["label"]) > (until - one["x"]) * NARROWEST_PAGE:
            one["label"] = ""
    return ordered


def share_of_timeline(us: float, within: tuple[int, int]) -> float:
    """Return how many percent of the period ``within`` (start, end) have passed at the instant ``us``."""
    return round(100 * (us - within[0]) / (within[1] - within[0]), 2)


def brokers_in_view(brokers: Collection[int], pairs: Sequence[Row]) -> tuple[list[int], list[int]]:
    """Divide brokers into those that a page shows one by one, and all others, which it shows together.

    If there are more than `MOST_LANES` brokers, those with the most drops of healthy followers are chosen. Of brokers
    with equally many, those with the most drops of any kind are chosen.

    Parameters
    ----------
    brokers : collection of int
        Brokers of a cluster.
    pairs : sequence of dict
        Result of ``sql/pairs.sql`` for the cluster.

    Returns
    -------
    in_view, others : list of int
    """
    drops: dict[int, Counter[str]] = defaultdict(Counter)
    for row in pairs:
        for side in ("leader_id", "replica_id"):
            drops[row[side]][row["verdict"]] += row["drops"]
    worst = sorted(brokers, key=lambda broker: (-drops[broker]["spurious"], -drops[broker].total(), broker))
    return sorted(worst[:MOST_LANES]), sorted(worst[MOST_LANES:])


def _bars(
    drops: list[Row],
    lane_of: Mapping[int, int],
    lanes: Sequence[Row],
    within: tuple[int, int],
    targets: Mapping[tuple[int, int], TimelineTarget],
) -> list[dict[str, Any]]:
    """Return the bars in the lanes: one per lane, time slot, side and verdict, stacked.

    ``within`` is the period that the lanes show, and ``targets`` are the incidents to which bars link.

    Bars above the middle of a lane count the drops that the broker made, those below it how often it was dropped.
    """
    slots: dict[tuple[int, str, int], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in drops:
        slots[lane_of[row["broker_id"]], row["side"], row["slot"]][row["verdict"]].append(row)
    most = max((sum(row["drops"] for rows in of.values() for row in rows) for of in slots.values()), default=1)
    wide = 100 / SLOTS
    bars = []
    for (lane, side, slot), of in slots.items():
        offset, up = 1.0, side == "drops"
        when = time_text(within[0] + int(slot * (within[1] - within[0]) / SLOTS), "%H:%M:%S")
        for verdict in (verdict for verdict in VERDICTS if verdict in of):
            number = sum(row["drops"] for row in of[verdict])
            height = round(max(LEAST, BAR * number / most), 1)
            y = lanes[lane]["y"] - offset - height if up else lanes[lane]["y"] + offset
            worst = max(of[verdict], key=itemgetter("drops"))
            target = targets.get((worst["fault_id"], worst["incident"]), TimelineTarget("", ""))
            did = ("drop others", "are dropped") if lanes[lane]["broker"] is None else ("drops others", "is dropped")
            says = f"{when}: {lanes[lane]['name']} {did[0] if up else did[1]}; {CALLED[verdict]}: "
            says += count_of(number, "drop")
            bars.append(
                {
                    "x": round(min(slot, SLOTS - 1) * wide, 2), "y": round(y, 1), "height": height,
                    "width": max(wide, NARROWEST), "verdict": verdict, "place": target.place,
                    "says": says if target.place or not target.command else f"{says}. {target.command}",
                }
            )  # fmt: skip
            offset += height
    return bars


def timeline_ticks(first: int, last: int) -> list[tuple[int, str]]:
    """Return (time, label) of each tick of a time axis from ``first`` to ``last``, in microseconds since 1970.

    The labels are in the time zone that the user chose.
    """
    span = (last - first) / 1e6
    step = next((step for step in STEPS if span / step <= TICKS), -(-span // (86400 * TICKS)) * 86400)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 43200 else "%d %b"  # noqa: PLR2004 (a minute, half a day)
    step_us = int(step * 1_000_000)
    ahead = offset_us(first)
    begin = -(-(first + ahead) // step_us) * step_us - ahead
    return [(us, time_text(us, form)) for us in range(begin, last + 1, step_us)]
