"""Eligible leader replicas with sets, written from KIP-966 and from what the controller's records show."""

from dataclasses import dataclass, field
from typing import NamedTuple

PREFERRED, ONLINE, UNCLEAN = range(3)


class Change(NamedTuple):
    """A change that a leader or the controller wants to make to a partition, and the state of its replicas then.

    Replicas are numbered in the order of the assignment; 0 is the preferred leader.
    """

    wanted_isr: frozenset[int]
    active: frozenset[int]
    lost: frozenset[int] = frozenset()
    """Back from an unclean shutdown."""
    min_isr: int = 2
    election: int = ONLINE
    elr_enabled: bool = True
    clears: bool = False
    """CLEAR_ELR_RECORD came before it."""


@dataclass
class Partition:
    """State of a partition: ISR, ELR, leader (None if it has none), its last leader, whether elected uncleanly."""

    isr: set[int]
    elr: set[int] = field(default_factory=set)
    last_known_leader: int | None = None
    leader: int | None = 0
    recovering: bool = False

    def take(self, change: Change) -> None:
        if change.clears:
            self.elr, self.last_known_leader = set(), None
        former_isr, former_leader = set(self.isr), self.leader
        isr = set(change.wanted_isr)
        if change.elr_enabled:
            # Members of the ISR until now are eligible if this change leaves it too small.
            eligible = set() if len(isr) >= change.min_isr else (self.elr | former_isr) - isr - change.lost
        else:
            eligible = set(self.elr)

        leader, unclean = self._elect(change, isr, eligible)
        if leader != former_leader and leader is not None:
            if unclean:
                isr, eligible, self.recovering = {leader}, set(), True
            elif leader in eligible:
                isr, eligible = {leader}, eligible - {leader}
        self.leader = leader
        self.elr = eligible if change.elr_enabled else set()
        # Without ELR the last member of the ISR stays in it, whatever becomes of it.
        self.isr = isr if isr or change.elr_enabled else former_isr
        if change.elr_enabled and leader is None and former_leader is not None:
            self.last_known_leader = self.last_known_leader if self.last_known_leader is not None else former_leader
        elif change.elr_enabled and leader is not None and leader != former_leader:
            self.last_known_leader = None

    def _elect(self, change: Change, isr: set[int], eligible: set[int]) -> tuple[int | None, bool]:
        candidates = sorted((isr or eligible) & change.active)
        if change.election == PREFERRED and 0 in candidates:
            return 0, False
        if self.leader in candidates:
            return self.leader, False
        if candidates:
            return candidates[0], False
        if change.elr_enabled and not isr and not eligible and self.last_known_leader in change.active:
            return self.last_known_leader, True
        if change.election == UNCLEAN and change.active:
            return min(change.active), True
        return None, False
