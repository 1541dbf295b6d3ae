"""Compute eligible leader replicas (ELR, KIP-966 part 1) after an ISR change, as the controller does.

If a replica leaves the ISR and fewer than min.insync.replicas remain, the high watermark stalls from then on, so the
replica has every committed record. Therefore it may be elected as leader, until the ISR is large enough again or the
replica restarts after an unclean shutdown.

Sets of replicas are bit masks.

Source: PartitionChangeBuilder.build of 4.4.0, without reassignments. tests/conformance compares the results with those
of that class.
"""

NOBODY = 0
"""The empty set of replicas, as a bit mask."""


def elr_after(isr: int, elr: int, wanted_isr: int, lost: int, min_isr: int) -> int:
    """Return the ELR after the ISR has changed to ``wanted_isr``. Replicas that leave the ISR may become eligible.

    Parameters
    ----------
    isr, elr : int
        ISR and ELR before the change, as bit masks.
    wanted_isr : int
        ISR after the change.
    lost : int
        Replicas that have restarted after an unclean shutdown, as a bit mask.
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
