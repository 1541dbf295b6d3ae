"""A partition as the controller changes it, with our ELR: what is compared with the released PartitionChangeBuilder.

Sets of replicas are bits: bit p is the replica at position p of the assignment, which is the order of elections. 4.1
remembers the last known leader when the ISR becomes empty, and not when a partition has no leader any more.
"""

from dataclasses import dataclass

from isr_batch.scoring.elr import NOBODY, elr_after

NO_LEADER = -1
PREFERRED, ONLINE, UNCLEAN = range(3)
"""Elections: go back to the first replica of the assignment; keep the leader if it may stay; and unclean if need be."""


@dataclass
class Partition:
    """State of a partition in the metadata log, as changed by ``PARTITION_CHANGE_RECORD``.

    Parameters
    ----------
    isr : int
    elr : int
        Eligible leader replicas; never in the ISR.
    last_known_leader : int
        The replica in lastKnownElr while there is no leader, or NO_LEADER.
    leader : int
        Position in the assignment, or NO_LEADER.
    recovering : int
        leaderRecoveryState: 1 since an unclean election.
    """

    isr: int
    elr: int
    last_known_leader: int
    leader: int
    recovering: int


def holds(replicas: int, p: int) -> bool:
    """Whether the replica at position ``p`` is among these; NO_LEADER is in no set."""
    return p >= 0 and replicas >> p & 1 != 0


def first_of(replicas: int) -> int:
    """First replica of the set in the order of the assignment; NO_LEADER if the set is empty."""
    return (replicas & -replicas).bit_length() - 1


def _elected(leader: int, valid: int, active: int, last_resort: int, election: int) -> tuple[int, bool]:
    """Position of the elected leader, or NO_LEADER, and whether the election is unclean."""
    if election == PREFERRED and valid & 1 != 0:
        return 0, False
    if holds(valid, leader):
        return leader, False
    if valid != 0:
        return first_of(valid), False
    if holds(active, last_resort):
        return last_resort, True
    if election == UNCLEAN and active != 0:
        return first_of(active), True
    return NO_LEADER, False


def change(
    partition: Partition,
    wanted_isr: int,
    active: int,
    lost: int,
    min_isr: int,
    election: int,
    elr_enabled: bool,
) -> None:
    """Change a partition as the controller does, in place.

    Parameters
    ----------
    partition : Partition
    wanted_isr : int
        The ISR that the leader asks for, or that is left when the controller takes a broker out.
    active : int
        Replicas that may lead: registered, not fenced, not shutting down, their log directory online.
    lost : int
        Replicas that come back from an unclean shutdown, which are no longer in ``wanted_isr`` either.
    min_isr : int
        min.insync.replicas, but no more than the size of the assignment.
    election : int
        PREFERRED, ONLINE or UNCLEAN.
    elr_enabled : bool
        eligible.leader.replicas.version is 1 or more.
    """
    elr = partition.elr
    if elr_enabled:
        elr = elr_after(partition.isr, elr, wanted_isr, lost, min_isr)
    valid = active & (wanted_isr if wanted_isr != 0 else elr)
    # No replica is safe: the last leader may lead, if it is active.
    last_resort = partition.last_known_leader if elr_enabled and wanted_isr == 0 and elr == 0 else NO_LEADER
    winner, unclean = _elected(partition.leader, valid, active, last_resort, election)
    isr = wanted_isr
    if winner != partition.leader and (unclean or holds(elr, winner)):
        # An election from the ELR is clean; after an unclean one no other replica is known to have all committed
        # records.
        isr = 1 << winner
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


def clear(partition: Partition) -> None:
    """CLEAR_ELR_RECORD: min.insync.replicas was changed, and may make eligible replicas ineligible."""
    partition.elr = NOBODY
    partition.last_known_leader = NO_LEADER
