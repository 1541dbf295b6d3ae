"""Where a swim lane puts what happened; all numbers by hand."""

from typing import Any

from isr_batch.report.charts import disagreement_chart, frontier_chart, shrinks_by_cause_chart
from isr_batch.report.pictures import alike_rules_in_picture
from isr_batch.report.swim_lane_on_page import swim_lane_on_page

S = 1_000_000
"""Microseconds of a second."""
SHRINK = ("kafka-3.7", 6 * S)
RULES = ["kafka-3.7", "kafka-3.3", "true-lag", "kafka-0.9"]


def row(lane: str, line: str, from_s: float, until_s: float | None = None, **more: Any) -> dict[str, Any]:
    until_us = None if until_s is None else int(until_s * S)
    given = {"follower": None, "verdict": None, "cause": None, "value": None} | more
    return {"lane": lane, "line": line, "from_us": int(from_s * S), "until_us": until_us} | given


def out(rule: str, from_s: float, until_s: float, cause: str = "slow_leader") -> dict[str, Any]:
    return row("away", rule, from_s, until_s, follower=2, verdict="spurious", cause=cause)


ROWS = [
    row("offset", "leader", 0, value=100), row("offset", "leader", 5, value=300),
    row("offset", "leader", 7, value=300), row("offset", "broker 2", 0, value=100),
    row("lag", "broker 2", 6, value=5),
    row("trouble", "broker 1 silent", 1, 6, verdict="silent"),
    row("fetch", "fetches of 2", 1, 3, follower=2, verdict="queue"),
    out("kafka-3.3", 6, 7), out("kafka-3.7", 6, 7), out("kafka-0.9", 1, 7), out("the brokers", 6.1, 7),
]  # fmt: skip


def test_offsets_step_and_lags_grow() -> None:
    offsets, lags = swim_lane_on_page(ROWS, (0, 10 * S), SHRINK, 4000, RULES).curves
    assert (offsets.title, offsets.least, offsets.most, offsets.limit) == ("offset", "100", "300", None)
    # 96 high, with 3 free at both edges; a thousand wide. Nothing is said of a point that changes nothing.
    paths = {line["name"]: line["path"] for line in offsets.lines}
    assert paths == {"leader": "M0 93H500V3H1000", "broker 2": "M0 93H1000"}
    # It has grown since it was 0, a second before: straight from there to 5 s, the upper edge.
    (line,) = lags.lines
    assert (lags.least, lags.most, line["path"]) == ("0 s", "5 s", "M100 53L600 3")
    assert lags.limit == 13  # 4 of 5 s, of 50 pixels


def test_offsets_have_a_gap_where_a_timeline_leaves_off() -> None:
    gap = [row("offset", "leader", 6), row("offset", "leader", 8, value=100), row("offset", "broker 2", 9)]
    beginning = [row("offset", "broker 3", 0), row("offset", "broker 3", 9, value=300), row("offset", "broker 4", 0)]
    (offsets,) = swim_lane_on_page([*ROWS[:2], *gap, *beginning], (0, 10 * S), SHRINK, 4000, []).curves
    paths = {line["name"]: line["path"] for line in offsets.lines}
    assert paths == {"leader": "M0 93H500V3H600M800 93H1000", "broker 3": "M900 3H1000"}
    assert not swim_lane_on_page(beginning[::2], (0, 10 * S), SHRINK, 4000, []).curves


def test_a_lag_from_before_the_picture_begins_at_its_edge() -> None:
    later = [row("lag", "broker 2", 6, value=8), row("lag", "broker 2", 7, value=0)]
    (_, lags) = swim_lane_on_page([*ROWS[:4], *later], (0, 10 * S), SHRINK, 4000, []).curves
    assert lags.lines[0]["path"] == "M0 40.5L600 3L700 53"  # 2 of 8 s at the edge


def test_bars_are_where_they_are_and_alike_rules_share_them() -> None:
    lane = swim_lane_on_page(ROWS, (0, 10 * S), SHRINK, 4000, RULES)
    assert lane.at == 60
    assert [(line["name"], line["follower"]) for line in lane.rows] == [
        ("broker 1 silent", None), ("fetches of 2", None), ("kafka-3.3, kafka-3.7", 2), ("the brokers", 2),
    ]  # fmt: skip
    assert [(line["name"], line["follower"]) for line in lane.others] == [("kafka-0.9", 2), ("true-lag", 2)]
    assert lane.rows[0]["bars"] == [{"x": 10, "width": 50, "css": "silent", "says": "silent, 5 s"}]
    assert lane.rows[2]["bars"] == [{"x": 60, "width": 10, "css": "spurious", "says": "spurious: slow leader, 1 s"}]
    assert lane.rows[1]["bars"] == [{"x": 10, "width": 20, "css": "queue", "says": "queue, 2 s"}]
    assert lane.others[1]["bars"] == []
    assert lane.phases
    assert lane.ticks[0] == {"x": 20, "text": "00:00:02"}


def test_other_rules_on_the_swim_lane() -> None:
    stands = swim_lane_on_page(ROWS, (0, 10 * S), SHRINK, 4000, RULES).stands
    assert stands == {"out": ["kafka-0.9"], "made": ["kafka-3.3", "kafka-3.7"], "kept": ["true-lag"]}
    more = [*ROWS, row("away", "kafka-3.7", 6, 7, follower=3, verdict="spurious", cause="caught_up")]
    # It drops one of the two.
    assert swim_lane_on_page(more, (0, 10 * S), SHRINK, 4000, RULES).stands["apart"] == [
        "kafka-0.9",
        "kafka-3.3",
    ]


def test_rules_with_equal_rows_share_one() -> None:
    rows = [
        {"rule": rule, "cause": "caught_up", "shrinks": shrinks}
        for rule, shrinks in (("true-lag", 1), ("kafka-3.7", 2), ("kafka-3.3", 2), ("kafka-2.1", 3))
    ]
    (drawn,) = alike_rules_in_picture(shrinks_by_cause_chart)(rows)["datasets"].values()
    assert [(one["rule"], one["shrinks"]) for one in drawn] == [
        ("kafka-2.1", 3), ("kafka-3.3, kafka-3.7", 2), ("true-lag", 1),
    ]  # fmt: skip


def test_rules_that_disagree_with_others_alike_share_a_row_of_the_disagreement_matrix() -> None:
    pairs = [("kafka-3.3", "true-lag"), ("kafka-3.7", "true-lag"), ("kafka-0.9", "kafka-3.3")]
    pairs.append(("kafka-0.9", "kafka-3.7"))
    spec = disagreement_chart([{"makes": makes, "makes_not": other, "shrinks": 2} for makes, other in pairs])
    (drawn,) = spec["datasets"].values()
    assert [(one["makes"], one["makes_not"]) for one in drawn] == [
        ("kafka-3.3, kafka-3.7", "true-lag"), ("kafka-0.9", "kafka-3.3, kafka-3.7"),
    ]  # fmt: skip


def test_labels_of_close_marks_are_on_different_sides_and_a_crowded_mark_has_none() -> None:
    rules = ["kafka-3.7", "kip-501-pending", "true-lag", "kafka-0.9", "kafka-0.8"]
    marks = [
        {"place": "", "rule": rule, "lag_time_s": 10.0, "detection_s": 15.0, "mistakes": 3.0, "low": 1.0, "high": 9.0,
         "seen": True}
        for rule in rules
    ]  # fmt: skip
    far = {**marks[0], "lag_time_s": 30.0, "detection_s": 45.0}
    spec = frontier_chart([*marks, far])
    (drawn,) = spec["datasets"].values()
    assert [one["side"] for one in drawn] == [0, 1, 2, 3, None, 0]
    assert sum("text" in layer["encoding"] for layer in spec["layer"]) == 4
    (alone,) = frontier_chart([far])["datasets"].values()
    assert alone[0]["side"] == 0
