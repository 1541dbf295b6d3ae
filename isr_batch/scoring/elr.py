"""Eligible leader replicas (KIP-966, part 1): the controller's reaction to a change of the ISR.

A replica that leaves the ISR by a change after which it is smaller than min.insync.replicas has everything that is
committed, because the high watermark is stalled from then on. So it stays eligible as leader until the ISR is large
enough again, or it comes back from an unclean shutdown.

Sets of replicas are bits.

Source: PartitionChangeBuilder.build of 4.4.0, without reassignments; tests/conformance compares with the class.
"""

NOBODY = 0
"""An empty set."""


def elr_after(isr: int, elr: int, wanted_isr: int, lost: int, min_isr: int) -> int:
    """Give the ELR after a change of the ISR to ``wanted_isr``; members of the ISR before it may be in it.

    Parameters
    ----------
    isr, elr : int
        Before.
    wanted_isr : int
    lost : int
        Replicas that come back from an unclean shutdown.
    min_isr : int
        min.insync.replicas, but no more than the size of the assignment.
    """
    if wanted_isr.bit_count() >= min_isr:
        return NOBODY
    return (elr | isr) & ~wanted_isr & ~lost
