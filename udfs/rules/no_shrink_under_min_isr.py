"""no-shrink-under-min-isr: the rule of Kafka 3.7, but the ISR is never shrunk below min.insync.replicas.

LinkedIn's fork has done this since 2022, in the cases in which transfer-at-min-isr cannot move leadership: no member
qualifies, or the controller refuses. A check that would leave fewer than min.insync.replicas members drops none of
those that are out of sync. Pull 471 logs "shrinkISR is blocked", to explain long produce latencies.

Benefit: producers with acks=all are not refused (NOT_ENOUGH_REPLICAS) because a check ran in a bad
moment, and the high watermark does not stall because a follower is outside the ISR.

Drawback: while fewer than min.insync.replicas members are alive, acks=all waits for the dead ones until the controller
takes them out. Producers see a late timeout instead of an immediate error; and no metric of the ISR shows it.

Source: linkedin/kafka, Partition.needsShrinkIsr with leaderTransferEnabled; pulls 406 and 471.
"""

from udfs.jit import kernel
from udfs.rules.base import KEEP_ISR, SHRINK_ISR
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7


@kernel
def at_shrink(leader, remaining, params):
    """Keep all if fewer than min.insync.replicas would be left, even if the partition has fewer replicas than that."""
    return SHRINK_ISR if remaining >= params.min_insync_replicas else KEEP_ISR


RULE = KAFKA_3_7.but(
    id="no-shrink-under-min-isr",
    in_force="elsewhere",
    year=2022,
    source="linkedin/kafka pulls 406, 471",
    at_shrink=at_shrink,
)
