"""Compute eligible leader replicas (ELR, KIP-966 part 1) after an ISR change, as the controller does.

If the ISR is smaller than min.insync.replicas after a replica has left, the high watermark is stalled from then on, so
the replica has every committed record. Therefore it may be elected as leader until the ISR is large enough again, or
until it restarts after an unclean shutdown.

Sets of replicas are bit masks.

Source: PartitionChangeBuilder.build of 4.4.0, without reassignments. tests/conformance compares the result with that
class.
"""

NOBODY = 0
"""The empty set of replicas, as a bit mask."""


def elr_after(isr: int, elr: int, wanted_isr: int, lost: int, min_isr: int) -> int:
    """Return the ELR after the ISR changes to ``wanted_isr``. Replicas that leave the ISR may become eligible.

    Parameters
    ----------
    isr, elr : int
        ISR and ELR before the change, as bit masks.
    wanted_isr : int
        ISR after the change.
    lost : int
        Replicas that restart after an unclean shutdown.
    min_isr : int
        min.insync.replicas, but at most the number of assigned replicas.

    Returns
    -------
    int
        The ELR as a bit mask.
    """
    if wanted_isr.bit_count() >= min_isr:
        return NOBODY
    return (elr | isr) & ~wanted_isr & ~lost
