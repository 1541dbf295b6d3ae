"""Count the acknowledged records that the heir lacks: the replica that would become leader if the leader died.

Eligible leader replicas (ELR) are ignored here; ``isr_batch.scoring.heir_offsets`` counts for clusters that have them.
"""

from udfs.jit import inlined, kernel
from udfs.kernel.ledger_page import LOST_BY_FIRST_ACTIVE_MAX, LOST_BY_HEIR_MAX, LOST_BY_LONGEST_LOG_MAX
from udfs.records import UNKNOWN


@inlined
def look_at_heirs(page, leader, term, followers, fetches, params):
    """Update the largest number of acknowledged records that the heir (the next leader) has lacked today.

    While the ISR has at least min.insync.replicas members, and at least two, the heir is a member, and has all records
    below the high watermark. Then nothing is counted, unless the rule has acknowledged records above the high watermark
    (`Rule.acknowledged_end`).
    """
    early = leader.acknowledged_end > leader.high_watermark
    if early or leader.isr_size < max(2, min(params.min_insync_replicas, leader.replicas)):
        _look_at_heirs(page, leader, term, followers, fetches)


@kernel
def _look_at_heirs(page, leader, term, followers, fetches):
    """Update the maxima LOST_BY_* in ``page``.

    If the ISR contains followers, the heir is the first active one. If not, either the first active replica or the one
    with the longest log may be elected, and both are counted.
    """
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
