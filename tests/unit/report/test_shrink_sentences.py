"""One shrink in sentences."""

from typing import Any

from isr_batch.report.shrink_sentences import shrink_sentences
from isr_batch.report.shrinks_on_page import ShrinkInQuery, _judged_as_drops

SEVEN = 1_767_225_607_000_000
"""2026-01-01 00:00:07."""


HELD_UP = (
    "Broker 3: spurious, because the leader held up its fetches. Last caught up 6,090 ms before, with a lag time of "
    "4,000 ms; its true lag was 0 ms. Of that time the leader was silent for 500 ms and held its fetches for 5,500 ms. "
    "Back in the ISR after 1.5 s."
)


def facts(**more: Any) -> dict[str, Any]:
    return {
        "leader_id": 1, "replica_id": 3, "leader_log_end_offset": 120, "follower_log_end_offset": 120, "lag_ms": 6090,
        "true_lag_ms": 0, "leader_held_ms": 5500, "leader_silent_ms": 500, "verdict": "spurious",
        "primary_cause": "slow_leader", "time_error_ms": 2, "depends_on": None, "change_us": SEVEN,
        "restored_us": SEVEN + 1_500_000,
        "source_file": "broker-1/server.log", "source_line": 17,
    } | more  # fmt: skip


def test_a_healthy_follower() -> None:
    stands = {"made": ["kafka-2.1"], "kept": ["true-lag"], "apart": []}
    headline, said = shrink_sentences([facts()], "busy-0", "kafka-3.7", 4000, stands)
    assert headline == "Broker 1 drops broker 3 from the ISR of busy-0 at 2026-01-01 00:00:07.000 UTC"
    assert said == [
        HELD_UP,
        "Dropped as well by kafka-2.1.",
        "Kept in the ISR by true-lag.",
        "The brokers ran kafka-3.7; the line: broker-1/server.log:17.",
    ]


def test_two_that_are_not_certain_and_not_back() -> None:
    stopped = facts(
        replica_id=2, verdict="genuine", primary_cause="follower_stopped", follower_log_end_offset=100,
        true_lag_ms=5000, leader_held_ms=0, leader_silent_ms=0, depends_on="check_time", time_error_ms=104,
        restored_us=None, source_file=None,
    )  # fmt: skip
    headline, said = shrink_sentences([stopped, facts(source_file=None)], "busy-0", "kafka-3.7", 4000, {})
    assert "drops broker 2 and broker 3 from" in headline
    assert said[0] == (
        "Broker 2: genuine, because no fetch of it arrived any more (possible, not certain: it depends on when the "
        "leader's check ran). The check may have run up to 104 ms earlier or later. Last caught up 6,090 ms before, "
        "with a lag time of 4,000 ms; its true lag was 5,000 ms, and the leader knew of 20 records that it "
        "lacked. The log ends, or the term does, before it is back."
    )
    assert said[-1] == "By a replay of kafka-3.7; the logs have no line about it."


def test_one_that_never_fetched() -> None:
    _, said = shrink_sentences(
        [facts(lag_ms=None, follower_log_end_offset=-1, true_lag_ms=None)], "t-0", "kafka-3.7", 4000, {}
    )
    assert "Not caught up in this term, with a lag time of 4,000 ms; its true lag is unknown. Of" in said[0]


def test_the_verdict_is_that_of_the_drop() -> None:
    shrink = ShrinkInQuery(1, "c", "busy", 0, "kafka-3.7", "{}", SEVEN, SEVEN, 0, 0)
    drop = {
        "topic": "busy", "partition_id": 0, "replayed_us": SEVEN, "replica_id": 3, "verdict": "genuine",
        "cause": "follower_stopped",
    }  # fmt: skip
    others = [drop | {"replayed_us": SEVEN + 1}, drop | {"replica_id": 2}, drop | {"partition_id": 1}]
    (judged,) = _judged_as_drops([facts()], shrink, [drop])
    assert (judged["verdict"], judged["primary_cause"]) == ("genuine", "follower_stopped")
    assert _judged_as_drops([facts()], shrink, others) == [facts()]
