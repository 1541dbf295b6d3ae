"""ELR after any change of any partition: ours against the controller's PartitionChangeBuilder, as released."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.conformance.releases import Releases
from tests.partition_change import UNCLEAN
from tests.unit.scoring.test_elr import ours

pytestmark = pytest.mark.conformance

CHANGES = 10_000
LAST_KNOWN_LEADER = 2


@pytest.mark.parametrize(("release", "same"), [("4.1.0", [0, 1, 3, 4]), ("4.4.0", [0, 1, LAST_KNOWN_LEADER, 3, 4])])
def test_changes_are_those_of_the_released_controller(
    release: str, same: list[int], releases: Releases, record_property: Callable[[str, object], None]
) -> None:
    """4.1 remembers the last known leader by another rule, and elects by it as Kafka 4.4 does."""
    driver = releases.driver(release, "Changes")
    draw = np.random.default_rng(41)
    for replicas in (2, 3, 4, 5):
        sets, size = draw.integers(0, 2**replicas, (CHANGES, 5)), CHANGES
        isr, elr, wanted, active, lost = sets.T
        elr &= ~isr
        wanted *= draw.integers(0, 3, size) > 0
        active |= isr * draw.integers(0, 2, size)  # usually a member of the ISR may lead
        lost *= draw.integers(0, 4, size) == 0
        last, leader = draw.integers(-1, replicas, (2, size))
        recovering, elr_enabled = draw.integers(0, 2, size), draw.integers(0, 8, size) > 0
        min_isr, election = draw.integers(1, replicas + 1, size), draw.integers(0, UNCLEAN + 1, size)
        before = np.stack([isr, elr, last, leader, recovering], axis=1)
        change = np.stack([wanted, active, lost, min_isr, election, elr_enabled], axis=1)
        answer = driver.call("play", np.hstack([before, change]).astype("<i8").tobytes(), replicas)
        expected = np.frombuffer(answer, "<i8").reshape(size, 5)
        pairs = zip(before.tolist(), change.tolist(), strict=True)
        after = [ours(state, [[*row, False]])[0] for state, row in pairs]
        found = np.array(after, np.int64)
        wrong = np.flatnonzero((found != expected)[:, same].any(axis=1))
        told = [(before[at], change[at], expected[at], found[at]) for at in wrong[:3]]
        assert not len(wrong), f"of {len(wrong)}: before, change, released, ours: {told}"
        changed = (found != before).sum(axis=0)
        assert (changed > size // 200).all(), "each of the five changes often"
    record_property("release", release)
