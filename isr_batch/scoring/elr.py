"""Compute eligible leader replicas (ELR, KIP-966, part 1) after a change of the ISR, as the controller does.

If the ISR is smaller than min.insync.replicas after a replica has left, the replica has every committed record, because
the high watermark is stalled from then on. Therefore it remains eligible as leader until the ISR is large enough again,
or until it comes back from an unclean shutdown.

Sets of replicas are bits.

Source: PartitionChangeBuilder.build of 4.4.0, without reassignments; tests/conformance compares with the class.
"""

NOBODY = 0
"""The empty set of replicas, as bits."""


def elr_after(isr: int, elr: int, wanted_isr: int, lost: int, min_isr: int) -> int:
    """Return the ELR after a change of the ISR to ``wanted_isr``; members that leave the ISR may become eligible.

    Parameters
    ----------
    isr, elr : int
        ISR and ELR before the change.
    wanted_isr : int
    lost : int
        Replicas that come back from an unclean shutdown.
    min_isr : int
        min.insync.replicas, but no more than the size of the assignment.
    """
    if wanted_isr.bit_count() >= min_isr:
        return NOBODY
    return (elr | isr) & ~wanted_isr & ~lost
