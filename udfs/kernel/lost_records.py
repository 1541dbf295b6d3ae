"""Count the acknowledged records that would be lost if the leader died, by the broker that would lead instead.

This is for clusters without eligible leader replicas; ``isr_batch.scoring.heir_offsets`` knows those.
"""

from udfs.jit import inlined, kernel
from udfs.kernel.ledger_page import LOST_BY_FIRST_ACTIVE_MAX, LOST_BY_HEIR_MAX, LOST_BY_LONGEST_LOG_MAX
from udfs.records import UNKNOWN


@inlined
def look_at_heirs(page, leader, term, followers, fetches, params):
    """Count what the heir lacks of the acknowledged records: while it matters, at each change of the partition.

    With min.insync.replicas in the ISR, the high watermark is not behind, and a clean heir has all below it.
    """
    if leader.isr_size < max(2, min(params.min_insync_replicas, leader.replicas)):
        _look_at_heirs(page, leader, term, followers, fetches)


@kernel
def _look_at_heirs(page, leader, term, followers, fetches):
    """Count what the first active replica lacks, in the ISR or without one there, and the one with the longest log."""
    acknowledged = max(leader.high_watermark, leader.acknowledged_offset)
    first, longest, all_known = UNKNOWN, UNKNOWN, True
    for p in range(term.replicas):
        if p == term.leader or followers[p].eligible == 0 or (leader.isr_size > 1 and leader.isr >> p & 1 == 0):
            continue
        if first == UNKNOWN:
            first = p
        all_known = all_known and fetches[p].log_end_offset >= 0
        longest = max(longest, fetches[p].log_end_offset)
    if first == UNKNOWN or fetches[first].log_end_offset < 0:
        return
    lost = max(0, acknowledged - fetches[first].log_end_offset)
    if leader.isr_size > 1:
        page[LOST_BY_HEIR_MAX] = max(page[LOST_BY_HEIR_MAX], lost)
    else:
        page[LOST_BY_FIRST_ACTIVE_MAX] = max(page[LOST_BY_FIRST_ACTIVE_MAX], lost)
        if all_known:
            page[LOST_BY_LONGEST_LOG_MAX] = max(page[LOST_BY_LONGEST_LOG_MAX], acknowledged - longest, 0)
