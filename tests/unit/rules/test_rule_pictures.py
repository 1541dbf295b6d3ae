"""The pictures of docs/rules.md match their sentences; `tests/unit/test_documents.py` finds outdated ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs.generate import rule_pictures
from docs.generate.documents import PICTURES
from docs.generate.rule_stories import SEEN, STORIES, Act, us
from tests.unit.kernel.test_kernel_against_naive import assert_agree
from udfs.rules import REGISTRY

# When each rule drops the follower of the troubles, by the number of the trouble. Up to 0.9, and under kip-16, checks
# are at 10, 20, ... s, after that at 5, 10, ... s; its last fetches before trouble are at 18, 42, 65.5, 102, 140 and
# 159.7 s. The leader that pauses checks when it wakes up at 153.2 s.
AT_CHECKS = {4: 85, 5: 115, 6: 153, 7: 170}
DROPPED = {
    "kafka-0.8": {1: 10, 3: 60, 4: 80, 6: 153, 7: 170},
    "kafka-0.9": {2: 30, 3: 60, 4: 80, 5: 120, 6: 153, 7: 170},
    "kafka-0.10.2": {3: 55, 4: 80, 5: 115, 6: 153, 7: 170},
    **dict.fromkeys(["kafka-2.1", "kafka-2.7", "kafka-3.3", "kafka-3.7"], AT_CHECKS),
    # There is one follower, and one member is enough.
    **dict.fromkeys(
        ["acks-min-isr", "kafka-19996-expand", "no-shrink-under-min-isr", "peer-outlier", "transfer-at-min-isr"],
        AT_CHECKS,
    ),
    "leader-health": {4: 85, 5: 115, 7: 170},
    "majority": {},
    "phi-accrual": {4: 85, 6: 153, 7: 170},
    "any-fetch": {4: 85, 6: 153, 7: 170},
    "fluss-0.9": {0: 0, **AT_CHECKS},
    # From 131 s on nothing that it lacks is acknowledged.
    "kafka-10853-acked": {4: 85, 5: 115},
    "kafka-10853-hw": {},
    "kafka-4485-design": {3: 52, 4: 75, 5: 112, 6: 150, 7: 169},
    "kip-16-catch-up-time": {3: 60, 4: 80, 5: 120, 6: 153, 7: 170},
    "kip-501-pending": {4: 85, 5: 115, 6: 153},
    "kip-501-relinquish": {4: 85, 5: 115, 6: 153},
    "shulou-braked": {4: 85, 7: 170},
    "true-lag": {4: 94, 5: 113},
}


@pytest.mark.parametrize("story", STORIES)
def test_the_naive_model_gives_the_same(story: str) -> None:
    told = STORIES[story]()
    assert_agree(told.log(), [told.setting(rule) for rule in REGISTRY])


@pytest.mark.parametrize("rule", REGISTRY)
def test_troubles_are_distinguished(rule: str) -> None:
    story, results = rule_pictures._told("troubles")
    shrinks = [change.time_us for change in results[rule]["changes"] if change.kind == "shrink"]
    dropped = {
        number: int((at_us - us(0)) / 1e6)
        for number, act in enumerate((Act(0, 0, ()), *story.acts))
        for at_us in shrinks
        if us(act.from_ms) <= at_us <= us(act.until_ms + 50)
    }
    assert dropped == DROPPED[rule]
    assert len(dropped) == len(shrinks)


@pytest.mark.parametrize(("rule", "at_ms", "behind"), [("kafka-3.7", 112_000, 370), ("kafka-19996-expand", 112_006, 0)])
def test_when_a_follower_joins_again_under_min_isr(rule: str, at_ms: int, behind: int) -> None:
    _, results = rule_pictures._told("high-watermark")
    (back,) = [c for c in results[rule]["changes"] if (c.kind, c.replica_id) == ("expand", 2)]
    assert (back.time_us, back.leader_log_end_offset - back.follower_log_end_offset) == (us(at_ms), behind)


def test_a_dead_broker_that_is_not_fenced_is_given_the_leadership() -> None:
    _, results = rule_pictures._told("high-watermark")
    given_up = [c.time_us for c in results["transfer-at-min-isr"]["changes"] if c.kind == "relinquish"]
    assert given_up == [us(85_000), us(100_000)]


def hidden(rule: str, second: float) -> int:
    """Records above the high watermark."""
    _, results = rule_pictures._told("high-watermark")
    state = next(row for row in reversed(results[rule]["partition"]) if row.time_us <= us(1000 * second))
    return int(state.log_end_offset - state.high_watermark)


@pytest.mark.parametrize(
    ("rule", "from_s"),
    [("kafka-2.1", 15), ("kafka-2.7", 30), ("kafka-3.3", 18), ("kafka-3.7", 18), ("kafka-10853-acked", 36)],
)
def test_how_long_a_dead_follower_is_waited_for(rule: str, from_s: int) -> None:
    assert hidden(rule, from_s - 0.01) > 0
    assert hidden(rule, from_s + 0.1) == 0


@pytest.mark.parametrize(
    ("rule", "while_shutting_down", "alone"),
    [
        ("kafka-2.7", 100, 0),
        ("kafka-3.3", 100, 0),
        ("kafka-3.7", 0, 260),
        ("kafka-10853-hw", 0, 260),
        ("no-shrink-under-min-isr", 0, 260),
        ("transfer-at-min-isr", 0, 260),
        ("majority", 0, 260),
    ],
)
def test_waits_for_a_broker_that_shuts_down_and_for_min_isr(rule: str, while_shutting_down: int, alone: int) -> None:
    """A record every 100 ms on average: 10 a second since 54 s until 63 s, and since 75 s until 100 s."""
    assert (hidden(rule, 63.5), hidden(rule, 100.5)) == (while_shutting_down, alone)


def test_every_rule_has_its_sentence() -> None:
    assert SEEN.keys() == REGISTRY.keys()
    assert all(shown.says and shown.story in STORIES for shown in SEEN.values())


def test_another_picture_is_old(tmp_path: Path) -> None:
    spec = rule_pictures.overview()
    file = tmp_path / "all.svg"
    assert rule_pictures.is_old(spec, file)
    file.write_text(rule_pictures.svg(spec), encoding="utf-8")
    assert not rule_pictures.is_old(spec, file)
    changed: Any = json.loads(json.dumps(spec).replace('"caught_up"', '"keeping_pace"', 1))
    assert rule_pictures.is_old(changed, file)


def test_pictures_are_small_and_need_no_network() -> None:
    for file in PICTURES.iterdir():
        drawn = file.read_text(encoding="utf-8")
        assert len(drawn) < 40_000, file.name
        assert not re.search(r"<script|href=|url\(http|@import", drawn), file.name
