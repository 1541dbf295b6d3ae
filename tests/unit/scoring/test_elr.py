"""ELR after changes of a partition: worked examples, and random sequences against sets."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

import pytest

from tests import partition_change
from tests.naive_eligible_leaders import ONLINE, PREFERRED, UNCLEAN, Change, Partition

REPLICAS = 4
State = tuple[set[int], set[int], int | None, int | None, bool]


def bits(replicas: frozenset[int]) -> int:
    return sum(1 << replica for replica in replicas)


def members(replicas: int) -> frozenset[int]:
    return frozenset(replica for replica in range(64) if replicas >> replica & 1)


def ours(state: Sequence[int], changes: Iterable[Change | Sequence[Any]]) -> list[tuple[int, ...]]:
    """A partition after each of the changes, as five numbers."""
    partition, after = partition_change.Partition(*state), []
    for *change, clears in changes:
        if clears:
            partition_change.clear(partition)
        partition_change.change(partition, *change)
        after.append(astuple(partition))
    return after


def states(isr: frozenset[int], changes: list[Change]) -> list[State]:
    """After each change of a partition that 0 leads with this ISR."""
    rows = [(*map(bits, change[:3]), *change[3:]) for change in changes]

    def one(position: int) -> int | None:
        return None if position < 0 else position

    return [
        (set(members(now)), set(members(eligible)), one(last), one(leader), bool(recovering))
        for now, eligible, last, leader, recovering in ours((bits(isr), 0, -1, 0, 0), rows)
    ]


def drawn_changes(draw: random.Random) -> list[Change]:
    def some() -> frozenset[int]:
        return members(draw.getrandbits(REPLICAS))

    return [
        Change(
            some(), some(), draw.choice([frozenset(), some()]), draw.randint(1, 3),
            draw.choice([ONLINE, PREFERRED, UNCLEAN]), draw.random() < 0.75, draw.random() < 0.25,
        )
        for _ in range(draw.randint(0, 12))
    ]  # fmt: skip


def test_any_changes_equal_sets() -> None:
    for seed in range(6000):
        take_changes(drawn_changes(random.Random(seed)))


def take_changes(changes: list[Change]) -> None:
    """Fail unless the partition is after each change what sets give."""
    everybody = members(2**REPLICAS - 1)
    partition = Partition(set(everybody))
    expected: list[State] = []
    for change in changes:
        partition.take(change)
        leaders = partition.last_known_leader, partition.leader, partition.recovering
        expected.append((set(partition.isr), set(partition.elr), *leaders))
    found = states(everybody, changes)
    assert found == expected
    for (isr, eligible, *_), change in zip(found, changes, strict=True):
        assert not isr & eligible
        # A replica elected from the ELR is the only member of the ISR, and the others stay eligible, whatever min ISR
        # is.
        assert not eligible or (change.elr_enabled and len(change.wanted_isr) < change.min_isr)
        assert not eligible & change.lost


ALL = frozenset({0, 1, 2})


def isr_and_elr(*isrs: set[int], min_isr: int = 2, everybody: frozenset[int] = ALL) -> list[tuple[set[int], set[int]]]:
    changes = [Change(frozenset(isr), everybody, min_isr=min_isr) for isr in isrs]
    return [(isr, eligible) for isr, eligible, *_ in states(everybody, changes)]


def test_two_dropped_in_one_check_are_both_eligible() -> None:
    assert isr_and_elr({0}) == [({0}, {1, 2})]


def test_of_two_dropped_one_after_the_other_the_second_is_eligible() -> None:
    assert isr_and_elr({0, 1}, {0}) == [({0, 1}, set()), ({0}, {1})]


def test_with_min_isr_1_no_replica_is_eligible_while_the_isr_has_a_member() -> None:
    assert isr_and_elr({0}, min_isr=1) == [({0}, set())]
    assert isr_and_elr({0}, everybody=frozenset({0, 1})) == [({0}, {1})], "two replicas, two wanted"


def test_the_controllers_clear_empties_it_until_the_isr_changes() -> None:
    alone = Change(frozenset({0}), ALL)
    assert states(ALL, [alone, alone._replace(clears=True)])[-1][:2] == ({0}, set())


def test_a_leader_alone_dies_and_an_eligible_one_takes_over() -> None:
    """Cleanly; the old leader is eligible in turn, until it is back from an unclean shutdown."""
    alone, dies = Change(frozenset({0}), ALL), Change(frozenset(), ALL - {0})
    back = Change(frozenset({1}), ALL, lost=frozenset({0}))
    told = states(ALL, [alone, dies, back])
    assert told[1] == ({1}, {0, 2}, None, 1, False)
    assert told[2] == ({1}, {2}, None, 1, False)


def test_the_last_known_leader_is_elected_uncleanly_when_no_replica_is_eligible() -> None:
    """All die, the last of them 0, which comes back from an unclean shutdown: it is not eligible, but led last."""
    nobody: frozenset[int] = frozenset()
    dies = Change(nobody, nobody)
    back = Change(nobody, frozenset({0}), lost=ALL)
    told = states(ALL, [Change(frozenset({0}), frozenset({0})), dies, back])
    assert told[1] == (set(), {0, 1, 2}, 0, None, False)
    assert told[2] == ({0}, set(), None, 0, True)


def test_without_elr_the_last_member_stays_in_the_isr() -> None:
    """And the partition is offline, unless unclean elections are allowed."""
    dies = Change(frozenset(), ALL - {0}, elr_enabled=False)
    alone = Change(frozenset({0}), ALL, elr_enabled=False)
    assert states(ALL, [alone, dies])[-1] == ({0}, set(), None, None, False)
    assert states(ALL, [alone, dies._replace(election=UNCLEAN)])[-1] == ({1}, set(), None, 1, True)


@pytest.mark.parametrize(("election", "leader"), [(ONLINE, 1), (PREFERRED, 0)])
def test_only_a_preferred_election_takes_leadership_from_one_that_may_stay(election: int, leader: int) -> None:
    moved = Change(ALL, ALL - {0})
    assert states(ALL, [moved, Change(ALL, ALL, election=election)])[-1][3] == leader
