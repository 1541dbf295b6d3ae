"""When a broker notifies the controller of ISR changes, against the task of ReplicaManager run step by step."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from isr_batch.scoring.notified_changes import notified_at_us


def told(changes: list[float]) -> list[float]:
    at = notified_at_us([int(second * 1_000_000) for second in changes])
    return [float(us) / 1_000_000 for us in at]


def test_notifications_wait_for_quiet_or_a_minute() -> None:
    # The first change is sent at the next run of the task: no notification was sent for a minute.
    assert told([1.0]) == [2.5]
    # The next ones wait for 5 s without a change: the runs at 12.5 (4.5 s later) and 15 (7 s later).
    assert told([1.0, 4.0, 8.0]) == [2.5, 15.0, 15.0]
    # Changes every 2 s are never quiet; they are sent by the first run of the task more than a minute after the last
    # one.
    busy = [1.0 + 2 * i for i in range(40)]
    assert told(busy)[:31] == [2.5] + [65.0] * 30
    assert told([]) == []


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=50))
@settings(deadline=None, database=None)
def test_notifications_look_by_look(change_ms: list[int]) -> None:
    """The task of ReplicaManager, run every 2.5 s."""
    change_us = sorted(ms * 1000 + 1 for ms in change_ms)
    look_us, last_told_us = 0, -(10**15)
    waiting: list[int] = []
    expected: dict[int, int] = {}
    while len(expected) < len(set(change_us)):
        look_us += 2_500_000
        waiting = [us for us in change_us if us < look_us and us not in expected]
        seen = [us for us in change_us if us < look_us]
        if waiting and (seen[-1] + 5_000_000 < look_us or last_told_us + 60_000_000 < look_us):
            expected |= dict.fromkeys(waiting, look_us)
            last_told_us = look_us
    at = notified_at_us(change_us)
    assert at == [expected[us] for us in change_us]
    assert all(a <= b for a, b in pairwise(at))
