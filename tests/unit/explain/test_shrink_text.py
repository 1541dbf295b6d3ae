"""Sentences about a shrink, from facts made up for each."""

from dataclasses import replace

import pytest

from isr_batch.errors import UsageError
from isr_batch.explain.shrink_text import (
    DroppedFollower,
    FetchInText,
    OtherRuleInText,
    ShrinkStory,
    shrink_headline,
    shrink_lines,
)
from isr_batch.shown_times import time_text_ms
from isr_batch.window import DAY_US, AskedTime, parse_asked_time, parse_instant

SECOND = 1_000_000
NOW = 1_767_268_800 * SECOND  # 2026-01-01 12:00:00
FETCH = FetchInText(NOW - 5 * SECOND, NOW - 5 * SECOND, NOW - 5 * SECOND, NOW - 4_500_000, NOW - SECOND, 7, None, 0)
FOLLOWER = DroppedFollower(
    replica_id=3, made_by="rule", follower_log_end_offset=7, last_caught_up_time_ms=NOW // 1000 - 5000, lag_ms=5000,
    true_log_end_offset=7, true_lag_ms=11, leader_held_ms=3500, leader_silent_ms=1400, causes=("slow_leader",),
    verdict="spurious", time_error_ms=2, depends_on=None, restored_us=NOW + 69_000, acknowledged_offset=None,
    appends=1, records=2, lacked_appends=1,
    fetches=(FETCH,), next_arrival_us=NOW + 4000, observed_us=None, observed_by=None, stands=(),
)  # fmt: skip
STORY = ShrinkStory(
    rule="kafka-3.7", params_json='{"replica_lag_time_max_ms": 4000}', lag_time_ms=4000, cluster_id="c", topic="busy",
    partition_id=0, leader_epoch=4, leader_id=1, term_start_us=NOW - 60 * SECOND, term_end_us=NOW + 60 * SECOND,
    min_insync_replicas=2, broker_version="4.1.0", change_us=NOW, from_asked_us=0, isr_before=(1, 2, 3),
    isr_after=(1, 2), high_watermark=7, leader_log_end_offset=9, silences=((1, NOW - 5 * SECOND, NOW - 100_000),),
    quiets=(), dropped=(FOLLOWER,),
)  # fmt: skip


def lines(**facts: object) -> list[str]:
    """The story with other facts about its follower."""
    return [line.strip() for line in shrink_lines(replace(STORY, dropped=(replace(FOLLOWER, **facts),)))]  # type: ignore[arg-type]


def cause(told: list[str], name: str) -> str:
    (line,) = [line for line in told if line.split()[1:2] == [name] and line.split()[0] in {"yes", "no"}]
    return " ".join(line.split())


def test_dependencies_of_a_possible_shrink() -> None:
    assert not [line for line in lines() if line.startswith("Possible")]
    assert "Possible, not certain: it depends on when the leader's check ran" in lines(depends_on="check_time")


def test_how_uncertain_its_time_is() -> None:
    assert not [line for line in lines() if line.startswith("The check")]
    assert "The check may have run up to 2,000 ms earlier or later" in lines(time_error_ms=2000)


def test_broker_time_and_duration() -> None:
    told = lines()
    assert told[0] == "kafka-3.7 drops broker 3 from the ISR of busy-0 at 2026-01-01 12:00:00.000 UTC"
    assert (
        "Broker 1 was silent (it served no request) for 4,900 ms, "
        "from 2026-01-01 11:59:55.000 to 2026-01-01 11:59:59.900." in told
    )
    assert "Broker 3: spurious, slow_leader" in told
    assert "it had all records below offset 7 and lacked 2 records; true lag 11 ms" in told
    assert "since lastCaughtUpTimeMs: 1 append of 2 records; it lacked 1 append" in told
    assert "back in the ISR at 2026-01-01 12:00:00.069, 69 ms later" in told
    assert "not back in the ISR by the end of the term's log, at 2026-01-01 12:01:00.000" in lines(restored_us=None)


def test_two_followers_and_the_controller() -> None:
    other = replace(FOLLOWER, replica_id=2)
    assert shrink_headline(replace(STORY, dropped=(other, FOLLOWER))).startswith("kafka-3.7 drops brokers 2 and 3 from")
    told = lines(made_by="controller", causes=("controller",), verdict="excluded")
    assert told[0].startswith("The controller drops broker 3")
    assert not [line for line in told if "keeping_pace" in line or "held its fetches" in line]


def test_numbers_that_decide_each_cause() -> None:
    told = lines()
    assert cause(told, "caught_up") == "no caught_up its log ends at 7, the leader's at 9"
    assert cause(told, "slow_leader").endswith("the leader accounts for 4,900 ms of the time since it was "
                                               "last caught up; at most 4,000 ms remain")  # fmt: skip
    assert cause(told, "follower_stopped").endswith(
        "last fetch 5,000 ms ago, lag time 4,000 ms; but a cause above applies"
    )
    told = lines(causes=("follower_stopped",), verdict="genuine")
    assert cause(told, "slow_leader").endswith("; more than 4,000 ms remain")
    assert cause(told, "follower_stopped") == "yes follower_stopped last fetch 5,000 ms ago, lag time 4,000 ms"
    assert cause(lines(causes=("follower_stopped",), leader_held_ms=0, leader_silent_ms=0), "slow_leader") == (
        "no slow_leader the leader accounts for none of the time"
    )
    # Records acknowledged with acks=1 are beyond the high watermark.
    assert "acknowledged up to 9," in cause(lines(acknowledged_offset=9), "unacked_only")
    assert "acknowledged up to 7," in cause(lines(acknowledged_offset=5), "unacked_only")


def test_responses_that_were_due_while_the_leader_served_others_were_not_delivered() -> None:
    """The fetch was done at 4.5 s before, and its response was sent at 1 s before."""
    said = [
        cause([line.strip() for line in shrink_lines(replace(STORY, silences=silences))], "slow_leader")
        for silences in (
            ((3, NOW - 4 * SECOND, NOW - 2 * SECOND),),
            ((1, NOW - 4 * SECOND, NOW - 3 * SECOND),),
            ((1, NOW - 4 * SECOND, NOW - 2 * SECOND),),
        )
    ]
    sign = "; answer_not_delivered: for {} ms its responses were due, while the leader served others: suspect"
    assert sign.format("3,500") in said[0]
    assert sign.format("2,500") in said[1]
    assert said[2].endswith("at most 4,000 ms remain")
    follower_silent = "\n".join(shrink_lines(replace(STORY, silences=((3, NOW - 9 * SECOND, NOW + SECOND),))))
    assert "Broker 3 was silent (it served no request) for 10,000 ms, from " in follower_silent


def test_what_a_table_of_fetches_does_not_tell() -> None:
    quiet = replace(STORY, quiets=((NOW - 5 * SECOND, NOW - SECOND),), silences=())
    told = "\n".join(
        shrink_lines(
            replace(
                quiet, dropped=(replace(FOLLOWER, leader_held_ms=None, leader_silent_ms=None, causes=("unknown",)),)
            )
        )
    )
    assert (
        "No follower fetched from broker 1 for 4,000 ms, from 2026-01-01 11:59:55.000 to 2026-01-01 11:59:59.000; "
        "the reason is unknown." in told
    )
    assert "how long the leader held its fetches is unknown, because the log names one instant of each; how" in told
    assert "yes  unknown           no follower fetched from the leader for a time, and it may have been silent" in told
    assert "the leader accounts for none of the time, as far as the log shows" in told
    known = lines(leader_held_ms=None, leader_silent_ms=4200)
    assert any(line.strip().endswith("one instant of each; the leader was silent for 4,200 ms") for line in known)
    assert cause(known, "slow_leader").startswith("yes slow_leader the leader accounts for 4,200 ms")


def test_facts_that_the_rule_could_not_see() -> None:
    late = "the fetch that shows this had arrived, but the leader had not processed it yet"
    assert late not in lines()
    assert late in lines(true_log_end_offset=9)
    assert "it had all records below offset 9 and lacked nothing" in lines(true_log_end_offset=9)
    nothing = lines(true_log_end_offset=None, fetches=(), follower_log_end_offset=-1, causes=("unknown",))
    assert "it had not fetched in this term: its log end offset is unknown" in nothing
    assert "none of its fetches arrived in this term before the shrink" in nothing
    assert cause(nothing, "unknown") == "yes unknown it has not fetched in this term, which is 60,000 ms old"
    assert any(line.startswith("log end offset: follower unknown, leader 9") for line in nothing)
    assert any("not caught up in this term" in line for line in lines(last_caught_up_time_ms=0))
    assert any("that is within the lag time" in line for line in lines(lag_ms=4000))
    assert not any("that is within the lag time" in line for line in lines(lag_ms=4001))


def test_other_runs_are_grouped() -> None:
    stands = (
        OtherRuleInText("a", "made", NOW - SECOND, "caught_up"),
        OtherRuleInText("b", "made", NOW, "slow_leader"),
        OtherRuleInText("c", "made", NOW + 400, "slow_leader"),
        OtherRuleInText("d", "kept"),
        OtherRuleInText("e", "out"),
    )
    assert lines(stands=stands)[-5:] == [
        "Other replayed rules",
        "make this shrink too, 1,000 ms earlier, judged caught_up: a",
        "make this shrink too, at the same time, judged slow_leader: b, c",
        "keep the follower in the ISR: d",
        "had dropped it already: e",
    ]


def test_instants() -> None:
    assert time_text_ms(NOW + 1999) == "2026-01-01 12:00:00.001"
    for text in ("2026-01-01T12:00:00", "2026-01-01 12:00", "2026-01-01T13:00:00+01:00", "1767268800000"):
        assert parse_instant("--at", text) == NOW
    assert parse_instant("--at", "2026-01-01T12:00:00.000001Z") == NOW + 1
    for text in ("noon", "", "12:00", "9" * 20):
        with pytest.raises(UsageError, match="--at"):
            parse_instant("--at", text)


def test_times_of_any_day() -> None:
    """The day is that on which something is nearest."""
    assert parse_asked_time("--at", "2026-01-01T12:00:00") == AskedTime(NOW)
    for text in ("12:00", "12:00:00", "12:00:00.000"):
        asked = parse_asked_time("--at", text)
        assert asked.any_day
        assert [asked.after_us(NOW + us) for us in (-1, 0, DAY_US, DAY_US // 3)] == [-1, 0, 0, DAY_US // 3]
        assert asked.after_us(NOW - 5, NOW + 5) == 0
    for text in ("noon", "25:00", "12:00+01:00", "12:0"):
        with pytest.raises(UsageError, match="--at"):
            parse_asked_time("--at", text)
