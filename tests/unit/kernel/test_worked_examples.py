"""The proposals' own examples: what each rule does and when, to the ms, worked out by hand.

A case lists every change of the ISR that the rule makes: ms from the start, kind, the replica that it is about,
and the ISR afterwards. Checks fall on multiples of their period, which is the lag time of 10 s up to 0.9, and half of
it since.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from isr_batch.simulation import proposal_examples as examples
from isr_batch.simulation.proposal_examples import ExampleTerm
from tests.naive_truth import APPEND, FETCH, Row, Term
from tests.strategies import Log, Setting
from tests.unit.kernel.test_kernel_against_naive import Result, replay

Change = tuple[int, str, int, tuple[int, ...]]
Flags = tuple[tuple[str, int], ...]

READ_LATER: Flags = (("replica_lag_max_messages", 4000),)
READ_FIRST: Flags = (*READ_LATER, ("recorded_before_read", 1))
READ_FIRST_IDLE_STAY: Flags = (*READ_FIRST, ("idle_followers_stay", 1))
LIMIT: Flags = (("follower_fetch_process_time_max_ms", 500),)
FROM_ARRIVAL: Flags = (("pending_from", 1),)


LAG_MS = 10_000


def term(story: ExampleTerm) -> Term:
    """A new leader, and all in the ISR by default."""
    rows = [Row(us(a.time_ms), APPEND, offset=a.log_end_offset, code=a.acks) for a in story.appends]
    for f in story.fetches:
        times = [us(ms) for ms in (f.handled_ms, f.recorded_ms, f.released_ms, f.completed_ms)]
        rows.append(Row(us(f.arrival_ms), FETCH, f.replica_id, f.fetch_offset, 0, -1, *times))
    return Term(
        story.replicas, story.replicas[0], us(0), us(story.end_ms), story.log_end_offset, story.log_end_offset,
        story.isr or story.replicas, leader_is_new=True,
        rows=tuple(sorted(rows, key=lambda row: (row.time_us, row.kind))),
    )  # fmt: skip


def us(ms: int) -> int:
    return (examples.START_MS + ms) * 1000


class Case(NamedTuple):
    """Changes of a rule on an example, and the high watermark at the end."""

    example: Callable[[], ExampleTerm]
    rule: str
    changes: Sequence[Change]
    high_watermark: int
    flags: Flags = ()
    min_insync_replicas: int = 1
    check_phase_ms: int = 0


def run(case: Case) -> Result:
    setting = Setting(case.rule, LAG_MS, case.min_insync_replicas, case.check_phase_ms, case.flags)
    (result,) = replay(Log((term(case.example()),)), [setting])
    return result


# Last caught up at 0, as the fetch at tx asked for less than the log end, and for no more than what it was at 0. So
# the first check that is later than 10 s drops both, and none later than tx + 10 s keeps them. From then on the high
# watermark is the log end, and neither is back before it has that.
BACK_LATE = [(26_510, "expand", 1002, (1001, 1002)), (26_520, "expand", 1003, (1001, 1002, 1003))]


def alone_at(ms: int) -> list[Change]:
    return [(ms, "shrink", 1002, (1001,)), (ms, "shrink", 1003, (1001,))]


KIP_501 = [
    Case(examples.kip_501_example, "kafka-0.9", [*alone_at(20_000), *BACK_LATE], 1100),
    Case(examples.kip_501_example, "kafka-0.10.2", [*alone_at(15_000), *BACK_LATE], 1100),
    Case(examples.kip_501_example, "kafka-2.1", [*alone_at(15_000), *BACK_LATE], 1100),
    Case(examples.kip_501_example, "kafka-3.7", [*alone_at(15_000), *BACK_LATE], 1100),
    Case(examples.kip_501_example, "kafka-4485-design", [*alone_at(10_001), *BACK_LATE], 1100),
    Case(examples.kip_501_example, "kip-501-pending", [], 1100),
    # Both fetches reach the limit at ty + 500 ms; leadership can be given up for only one of them.
    Case(examples.kip_501_example, "kip-501-relinquish", [(2000, "relinquish", 1001, (1001, 1002, 1003))], 1100, LIMIT),
]


def in_and_out(after_ms: int) -> list[Change]:
    """Every round of 20 s: in with the fetch, out before the next one."""
    return [
        change
        for round_ms in (0, 20_000, 40_000)
        for change in ((round_ms, "expand", 2, (1, 2)), (round_ms + after_ms, "shrink", 2, (1,)))
    ]


KAFKA_7152 = [
    Case(examples.kafka_7152_example, "kafka-0.10.2", in_and_out(15_000), 100),
    Case(examples.kafka_7152_example, "kafka-4485-design", in_and_out(10_001), 100),
    Case(examples.kafka_7152_example, "kafka-2.1", [(0, "expand", 2, (1, 2))], 100),
    Case(examples.kafka_7152_example, "kafka-3.7", [(0, "expand", 2, (1, 2))], 100),
]

# The last fetch asks for 299 of 300. Alone, the leader commits all, and the follower never asks for that much.
KAFKA_4485 = [
    Case(examples.kafka_4485_example, "kafka-0.9", [(10_001, "shrink", 2, (1,))], 300, check_phase_ms=1),
    Case(examples.kafka_4485_example, "kafka-0.10.2", [], 299, check_phase_ms=1),
    Case(examples.kafka_4485_example, "kafka-2.1", [], 299, check_phase_ms=1),
    Case(examples.kafka_4485_example, "kafka-3.7", [], 299, check_phase_ms=1),
    Case(examples.kafka_4485_example, "kafka-4485-design", [], 299),
    Case(examples.kafka_4485_example, "true-lag", [], 299),
]

ALONE = [(15_000, "shrink", 2, (1,)), (15_000, "shrink", 3, (1,))]
KAFKA_10853 = [
    Case(examples.kafka_10853_example, "kafka-2.1", ALONE, 101, min_insync_replicas=2),
    Case(examples.kafka_10853_example, "kafka-3.7", ALONE, 100, min_insync_replicas=2),
    Case(examples.kafka_10853_example, "kafka-10853-acked", [], 100, min_insync_replicas=2),
    Case(examples.kafka_10853_example, "kafka-10853-hw", [], 100, min_insync_replicas=2),
    # In the queue a fetch is not pending, unless it counts from the socket on.
    Case(examples.kafka_10853_example, "kip-501-pending", ALONE, 100, min_insync_replicas=2),
    Case(examples.kafka_10853_example, "kip-501-pending", [], 100, FROM_ARRIVAL, min_insync_replicas=2),
    # Leadership moves within 500 ms of the fetch; the log goes on with this leader, whose new epoch began at 710.
    Case(
        examples.kafka_10853_example, "kip-501-relinquish", [(710, "relinquish", 1, (1, 2, 3)), *ALONE], 100, LIMIT,
        min_insync_replicas=2,
    ),
]  # fmt: skip


def acks_all() -> ExampleTerm:
    return examples.kafka_10853_price_example(acks=-1)


def acks_1() -> ExampleTerm:
    return examples.kafka_10853_price_example(acks=1)


# Nothing beyond the dead follower's log end is committed, so with acks=all nothing is acknowledged that it lacks; and
# measured by the high watermark, which is its own log end, it lacks nothing at all.
WITHOUT_3 = [(15_000, "shrink", 3, (1, 2))]
PRICE = [
    Case(acks_all, "kafka-3.7", WITHOUT_3, 130, min_insync_replicas=2),
    Case(acks_all, "kafka-10853-acked", [], 100, min_insync_replicas=2),
    Case(acks_all, "kafka-10853-hw", [], 100, min_insync_replicas=2),
    Case(acks_1, "kafka-3.7", WITHOUT_3, 130, min_insync_replicas=2),
    Case(acks_1, "kafka-10853-acked", WITHOUT_3, 130, min_insync_replicas=2),
    Case(acks_1, "kafka-10853-hw", [], 100, min_insync_replicas=2),
]

# 7000 behind at the check, though it fetched 400 ms ago; back with the next fetch.
DROPPED_IN_A_BURST = [(10_000, "shrink", 2, (1,)), (10_500, "expand", 2, (1, 2))]
BURST = [
    Case(examples.lag_messages_burst_example, "kafka-0.8", DROPPED_IN_A_BURST, 10_000, READ_LATER),
    Case(examples.lag_messages_burst_example, "kafka-0.8", DROPPED_IN_A_BURST, 10_000, READ_FIRST),
    Case(examples.lag_messages_burst_example, "kafka-0.8", DROPPED_IN_A_BURST, 10_000, READ_FIRST_IDLE_STAY),
    Case(examples.lag_messages_burst_example, "kafka-0.9", [], 10_000),
    Case(examples.lag_messages_burst_example, "kafka-0.10.2", [], 10_000),
    Case(examples.lag_messages_burst_example, "kafka-3.7", [], 10_000),
]

# Last at the log end 9 s before the first append. 47 behind at the end of two days is less than 4000.
TRICKLE = [
    Case(examples.lag_messages_trickle_example, "kafka-0.8", [], 0, READ_LATER),
    Case(examples.lag_messages_trickle_example, "kafka-0.8", [], 0, READ_FIRST),
    Case(examples.lag_messages_trickle_example, "kafka-0.8", [], 0, READ_FIRST_IDLE_STAY),
    Case(examples.lag_messages_trickle_example, "kafka-0.9", [(3_610_000, "shrink", 2, (1,))], 47),
    Case(examples.lag_messages_trickle_example, "kafka-0.10.2", [(3_605_000, "shrink", 2, (1,))], 47),
    Case(examples.lag_messages_trickle_example, "kafka-3.7", [(3_605_000, "shrink", 2, (1,))], 47),
]

CASES = {
    "-".join([case.example.__name__, case.rule, *(f"{name}={value}" for name, value in case.flags)]): case
    for case in [*KIP_501, *KAFKA_7152, *KAFKA_4485, *KAFKA_10853, *PRICE, *BURST, *TRICKLE]
}


def bear_witness(record_property: Callable[[str, str], None], rule: str) -> None:
    record_property("rule", rule)
    record_property("witness", "example")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_example_comes_out_as_its_proposal_says(case: Case, record_property: Any) -> None:
    bear_witness(record_property, case.rule)
    result = run(case)
    changes = [
        (change.time_us // 1000 - examples.START_MS, change.kind, change.replica_id, tuple(sorted(change.isr_after)))
        for change in result["changes"]
    ]
    assert changes == list(case.changes)
    assert result["partition"][-1].high_watermark == case.high_watermark


@pytest.mark.parametrize(("rule", "caught_up_ms"), [("kip-501-pending", 26_500), ("kafka-3.7", 1000)])
def test_a_pending_fetch_counts_as_caught_up_when_it_is_answered(
    rule: str, caught_up_ms: int, record_property: Any
) -> None:
    """KIP-501: ty + 25 s, where 3.7 has tx."""
    bear_witness(record_property, rule)
    result = run(next(case for case in KIP_501 if case.rule == rule))
    until_us = (examples.START_MS + 26_500) * 1000
    rows = [row for row in result["replica"] if row.replica_id == 1002 and row.time_us <= until_us]
    assert rows[-1].last_caught_up_time_ms - examples.START_MS == caught_up_ms
