"""The headline alone names the broker at fault and when, for the faults that the samples were recorded under."""

import re

import pytest

from isr_batch.incidents.own_shrinks import own_shrinks
from isr_batch.incidents.sentences import cluster_headline
from isr_batch.lake.lake import Lake

NEAR_S = 12
"""A dead broker is fenced when its session ends; a stopped one was last caught up before its stop."""
FAULTS = {
    "leader-stop": [
        (1, "16:30:46"), (2, "16:31:02"), (3, "16:31:22"), (1, "16:31:48"), (2, "16:32:06"), (2, "16:32:23"),
        (3, "16:33:10"),
    ],
    "follower-stop": [(3, "16:27:12"), (3, "16:28:02"), (3, "16:28:58"), (3, "16:29:25")],
    "restart": [(2, "16:49:12"), (3, "16:49:59"), (1, "16:50:52"), (2, "16:51:32"), (1, "16:52:07")],
    "quiet": [],
}  # fmt: skip
"""Broker and instant of each stop, kill and restart that outlasted a lag time or a session, as they were recorded."""


def seconds_of(clock: str) -> int:
    hours, minutes, seconds = map(int, clock.split(":"))
    return 3600 * hours + 60 * minutes + seconds


def named(sentences: str) -> list[tuple[int, int]]:
    """Brokers and seconds of the day: an instant belongs to the last broker that was named outside of parentheses."""
    found, broker = [], 0
    for who, clock in re.findall(r"broker (\d+)|(\d\d:\d\d:\d\d)", re.sub(r"\([^)]*\)", "", sentences)):
        if who:
            broker = int(who)
        else:
            found.append((broker, seconds_of(clock)))
    return found


@pytest.mark.parametrize("cluster_id", FAULTS)
def test_each_fault_is_named_and_no_other_broker(sample_lake: Lake, cluster_id: str) -> None:
    own = own_shrinks(sample_lake)
    (cluster,) = (one for one in own.clusters if one["cluster_id"] == cluster_id)
    said = named(" ".join(cluster_headline(own, cluster)))
    faults = [(broker, seconds_of(clock)) for broker, clock in FAULTS[cluster_id]]
    for broker, second in faults:
        assert any(who == broker and abs(at - second) <= NEAR_S for who, at in said), (broker, second)
    for who, at in said:
        assert any(who == broker and -NEAR_S <= at - second <= 3 * NEAR_S for broker, second in faults), (who, at)
