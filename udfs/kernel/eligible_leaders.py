"""Eligible leader replicas (KIP-966, part 1): what the controller makes of a change of a partition.

A replica that leaves the ISR by a change after which it is smaller than min.insync.replicas has everything that is
committed, as the high watermark stands still from then on. So it stays eligible as leader until the ISR is large enough
again, or it comes back from an unclean shutdown.

Sets of replicas are bits: bit p is the replica at position p of the assignment, which is the order of elections.

Source: PartitionChangeBuilder.build of 4.4.0, without reassignments; tests/conformance compares with the class. 4.1
remembers the last known leader when the ISR becomes empty, and not when a partition has no leader any more.
"""

import numpy as np

from udfs.jit import kernel
from udfs.records import int64_record

NO_LEADER = np.int64(-1)
NOBODY = np.int64(0)
"""An empty set."""
PREFERRED, ONLINE, UNCLEAN = np.arange(3)
"""Elections: go back to the first replica of the assignment; keep the leader if it may stay; and unclean if need be."""

PARTITION = int64_record(
    "isr",
    "elr",  # eligible leader replicas; none of them is in the ISR
    "last_known_leader",  # the one that lastKnownElr names while nobody leads, or NO_LEADER
    "leader",  # position in the assignment, or NO_LEADER
    "recovering",  # leaderRecoveryState: 1 since an unclean election
)
"""What the metadata log says of a partition, as ``PARTITION_CHANGE_RECORD`` changes it."""


@kernel
def holds(replicas, p):
    """Whether the replica at position ``p`` is among these; NO_LEADER is in no set."""
    return p >= 0 and replicas >> p & 1 != 0


@kernel
def first_of(replicas):
    """The first of them in order of assignment, NO_LEADER of none."""
    if replicas == 0:
        return NO_LEADER
    p = NO_LEADER + 1
    while replicas >> p & 1 == 0:
        p += 1
    return p


@kernel
def number_of(replicas):
    """How many they are."""
    number = 0
    while replicas != 0:
        replicas &= replicas - 1
        number += 1
    return number


@kernel
def eligible_after(isr, elr, wanted_isr, lost, min_isr):
    """ELR after a change of the ISR to ``wanted_isr``; the members of the ISR before it may be among them.

    Parameters
    ----------
    isr, elr : int64
        Before.
    wanted_isr : int64
    lost : int64
        Replicas that come back from an unclean shutdown.
    min_isr : int64
        min.insync.replicas, but no more than the size of the assignment.
    """
    if number_of(wanted_isr) >= min_isr:
        return NOBODY
    return (elr | isr) & ~wanted_isr & ~lost


@kernel
def _elected(partition, valid, active, last_resort, election):
    """Who leads, and whether the election is unclean."""
    if election == PREFERRED and valid & 1 != 0:
        return NO_LEADER + 1, False
    if holds(valid, partition.leader):
        return partition.leader, False
    if valid != 0:
        return first_of(valid), False
    if last_resort and holds(active, partition.last_known_leader):
        return partition.last_known_leader, True
    if election == UNCLEAN and active != 0:
        return first_of(active), True
    return NO_LEADER, False


@kernel
def change(partition, wanted_isr, active, lost, min_isr, election, elr_enabled):
    """Change a partition as the controller does, in place.

    Parameters
    ----------
    partition : PARTITION
    wanted_isr : int64
        The ISR that the leader asks for, or that is left when the controller takes a broker out.
    active : int64
        Replicas that may lead: registered, not fenced, not shutting down, their log directory online.
    lost : int64
        Replicas that come back from an unclean shutdown, which are no longer in ``wanted_isr`` either.
    min_isr : int64
        min.insync.replicas, but no more than the size of the assignment.
    election : int64
        PREFERRED, ONLINE or UNCLEAN.
    elr_enabled : bool
        eligible.leader.replicas.version is 1 or more.
    """
    elr = partition.elr
    if elr_enabled:
        elr = eligible_after(partition.isr, elr, wanted_isr, lost, min_isr)
    valid = active & (wanted_isr if wanted_isr != 0 else elr)
    last_resort = elr_enabled and wanted_isr == 0 and elr == 0
    winner, unclean = _elected(partition, valid, active, last_resort, election)
    isr = wanted_isr
    if winner != partition.leader and (unclean or holds(elr, winner)):
        # An election from the ELR is clean; after an unclean one nobody else is known to have what is committed.
        isr = NOBODY | 1 << winner
        elr = NOBODY if unclean else elr & ~isr
        if unclean:
            partition.recovering = 1
    if isr == 0 and not elr_enabled:
        isr = partition.isr  # the last member stays
    if elr_enabled and winner != partition.leader:
        if winner != NO_LEADER:
            partition.last_known_leader = NO_LEADER
        elif partition.last_known_leader == NO_LEADER:
            partition.last_known_leader = partition.leader
    partition.isr = isr
    partition.elr = elr if elr_enabled else NOBODY
    partition.leader = winner


@kernel
def clear(partition):
    """CLEAR_ELR_RECORD: min.insync.replicas was changed, and who was eligible by the old one may not be by the new."""
    partition.elr = NOBODY
    partition.last_known_leader = NO_LEADER
