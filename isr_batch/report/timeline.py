"""Place a cluster's log on a picture: a lane for each broker, with drops, silences, elections and restarts."""

from collections import defaultdict
from typing import Any, Final, NamedTuple

from isr_batch.incidents.own_shrinks import SLOTS, VERDICTS, OwnShrinks, Row
from isr_batch.incidents.words import CALLED, at, count_of, seconds

WIDTH: Final = 1200
"""Of the drawing, in its own units; the page scales it."""
LEFT: Final = 76
RIGHT: Final = 12
LANE: Final = 58
BAR: Final = 20
"""Height of the largest bar on either side of a lane's middle."""
LEAST: Final = 4
NARROWEST: Final = 5
TICKS: Final = 9
STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between two ticks; of longer logs, days."""
SIGNS: Final = {
    "started": ("▲", "starts"), "shutting_down": ("▼", "shuts down"), "fenced": ("✕", "is fenced by the controller"),
    "election": ("◆", "becomes"),
}  # fmt: skip
"""Sign on the picture, and what the broker does."""


class Timeline(NamedTuple):
    """What the template draws; coordinates in the drawing's units."""

    height: int
    lanes: list[dict[str, Any]]
    bars: list[dict[str, Any]]
    silences: list[dict[str, Any]]
    signs: list[dict[str, Any]]
    ticks: list[dict[str, Any]]
    verdicts: list[str]


def timeline(own: OwnShrinks, cluster: Row) -> Timeline:
    """Lay out one cluster.

    Parameters
    ----------
    own : OwnShrinks
    cluster : dict
        One of ``own.clusters``.
    """

    def of(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["cluster_id"] == cluster["cluster_id"]]

    first, last = cluster["first_us"], max(cluster["last_us"], cluster["first_us"] + 1)
    drops, events, elections = of(own.lanes), of(own.events), of(own.elections)
    brokers = sorted({row["broker_id"] for row in (*drops, *events, *elections)})
    middle = {broker: LANE * number + LANE // 2 + 4 for number, broker in enumerate(brokers)}

    def x(us: float) -> float:
        share: float = min(max((us - first) / (last - first), 0.0), 1.0)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    happened = [row | {"more": ""} for row in events if row["kind"] != "silent" and first <= row["from_us"] <= last]
    happened += [
        {
            "broker_id": row["broker_id"], "kind": "election", "from_us": row["at_us"],
            "more": f" leader of {count_of(row['partitions'], 'partition')}",
        }
        for row in elections
    ]  # fmt: skip
    signs = [
        {
            "x": x(row["from_us"]), "y": middle[row["broker_id"]] - LANE // 2 + 13, "sign": SIGNS[row["kind"]][0],
            "says": f"{at(row['from_us'], '%H:%M:%S')}: broker {row['broker_id']} {SIGNS[row['kind']][1]}{row['more']}",
        }
        for row in happened
    ]  # fmt: skip
    silences = [
        {
            "x": x(row["from_us"]), "width": max(2, round(x(row["until_us"]) - x(row["from_us"]), 1)),
            "y": middle[row["broker_id"]] - LANE // 2 + 3,
            "says": f"{at(row['from_us'], '%H:%M:%S')}: broker {row['broker_id']} was silent for "
            f"{seconds([(row['until_us'] - row['from_us']) // 1000])}",
        }
        for row in events if row["kind"] == "silent"
    ]  # fmt: skip
    lanes = [{"broker": broker, "y": middle[broker], "top": middle[broker] - LANE // 2 + 3} for broker in brokers]
    ticks = [{"x": x(us), "text": text} for us, text in _ticks(first, last)]
    there = {row["verdict"] for row in drops}
    return Timeline(
        LANE * len(brokers) + 26, lanes, _bars(drops, middle, first, last), silences, signs, ticks,
        [verdict for verdict in VERDICTS if verdict in there],
    )  # fmt: skip


def _bars(drops: list[Row], middle: dict[int, int], first: int, last: int) -> list[dict[str, Any]]:
    """Stack the verdicts of a slot: upwards what the broker dropped, downwards where it was dropped."""
    slots: dict[tuple[int, str, int], dict[str, int]] = defaultdict(dict)
    for row in drops:
        slots[row["broker_id"], row["side"], row["slot"]][row["verdict"]] = row["drops"]
    most = max((sum(counts.values()) for counts in slots.values()), default=1)
    wide = (WIDTH - LEFT - RIGHT) / SLOTS
    bars = []
    for (broker, side, slot), counts in slots.items():
        offset, up = 1.0, side == "drops"
        when = at(first + int(slot * (last - first) / SLOTS), "%H:%M:%S")
        for verdict in VERDICTS:
            if verdict not in counts:
                continue
            height = round(max(LEAST, BAR * counts[verdict] / most), 1)
            y = middle[broker] - offset - height if up else middle[broker] + offset
            what = f"{CALLED[verdict]}: {count_of(counts[verdict], 'drop')}"
            bars.append(
                {
                    "x": round(LEFT + min(slot, SLOTS - 1) * wide, 1), "y": round(y, 1), "height": height,
                    "width": round(max(wide, NARROWEST), 1), "verdict": verdict,
                    "says": f"{when}: broker {broker} {'drops others' if up else 'is dropped'}; {what}",
                }
            )  # fmt: skip
            offset += height
    return bars


def _ticks(first: int, last: int) -> list[tuple[int, str]]:
    span = (last - first) / 1e6
    step = next((step for step in STEPS if span / step <= TICKS), -(-span // (86400 * TICKS)) * 86400)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 43200 else "%d %b"  # noqa: PLR2004 (a minute, half a day)
    step_us = int(step * 1_000_000)
    begin = -(-first // step_us) * step_us
    return [(us, at(us, form)) for us in range(begin, last + 1, step_us)]
