"""Count the acknowledged records that the heir lacks: the replica that would become leader if the leader died.

The heir is the first live member of the ISR, or, in `look_at_members`, the member with the shortest log.
Eligible leader replicas (ELR) are ignored here; ``isr_batch.scoring.heir_offsets`` counts for clusters that have them.
"""

from udfs.jit import inlined, kernel
from udfs.kernel.ledger_page import (
    AT_RISK,
    BELOW,
    LOSS_RECORDS_MAX,
    LOST_BY_FIRST_ACTIVE_MAX,
    LOST_BY_HEIR_MAX,
    LOST_BY_LONGEST_LOG_MAX,
    MEMBERS_BELOW_HIGH_WATERMARK,
    count_violation_on_page,
)
from udfs.records import UNKNOWN


@inlined
def look_at_heirs(page, leader, term, followers, fetches, params):
    """Update the largest number of acknowledged records that the heir (the next leader) has lacked today.

    While the ISR has at least min.insync.replicas members, and at least two, the heir is a member, and has all records
    below the high watermark. It can then only lack records above it that are acknowledged to producers with acks=all
    (`Rule.acknowledged_end`). Otherwise, records of producers with acks=0 and 1 are counted, too.
    """
    if leader.isr_size < max(2, min(params.min_insync_replicas, leader.replicas)):
        _look_at_heirs(page, leader, term, followers, fetches, max(leader.high_watermark, leader.acknowledged_offset))
    elif leader.acknowledged_end > leader.high_watermark:
        _look_at_heirs(page, leader, term, followers, fetches, leader.acknowledged_end)


@kernel
def _look_at_heirs(page, leader, term, followers, fetches, acknowledged):
    """Update the maxima LOST_BY_* in ``page``, given the offset below which records are acknowledged.

    If the ISR contains followers, the heir is the first active one. If not, either the first active replica or the one
    with the longest log may be elected, and both are counted.
    """
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


@kernel
def look_at_members(page, leader, term, fetches, now_us):
    """Update how many acknowledged records would be lost if the ISR member with the shortest log became leader.

    Records of producers with acks=all count. The number of those below the high watermark is 0 under a sound rule. When
    it rises from 0, a violation is counted.
    """
    at_risk, below = 0, 0
    acknowledged = max(leader.high_watermark, leader.acknowledged_end)
    for p in range(term.replicas):
        known = fetches[p].log_end_offset
        if p != term.leader and leader.isr >> p & 1 and known >= 0:
            at_risk = max(at_risk, acknowledged - known)
            below = max(below, leader.high_watermark - known)
    if below > 0 and page[BELOW] == 0:
        count_violation_on_page(page, MEMBERS_BELOW_HIGH_WATERMARK, now_us)
    page[BELOW] = below
    term.runs_at_risk += int(at_risk > 0) - int(page[AT_RISK] > 0)
    page[AT_RISK] = at_risk
    page[LOSS_RECORDS_MAX] = max(page[LOSS_RECORDS_MAX], at_risk)
