"""no-shrink-under-min-isr: the rule of Kafka 3.7, but the ISR is never shrunk below min.insync.replicas.

LinkedIn's fork of Kafka has used this rule since 2022 whenever it cannot move leadership (see transfer-at-min-isr),
because no member qualifies or the controller refuses. If a check would leave fewer than min.insync.replicas members, it
drops no one, not even members that are out of sync. Since pull 471 the leader then logs "shrinkISR is blocked", which
explains long produce latencies.

Benefit: a check that runs at a bad moment does not cause producers with acks=all to be refused (NOT_ENOUGH_REPLICAS).
Nor is the high watermark frozen because a follower was dropped.

Drawback: while fewer than min.insync.replicas members are alive, acks=all waits for the dead ones until the controller
removes them. Producers see a late timeout instead of an immediate error, and no metric of the ISR shows the trouble.

Source: linkedin/kafka, Partition.needsShrinkIsr with leaderTransferEnabled; pulls 406 and 471.
"""

from udfs.jit import kernel
from udfs.rules.base import KEEP_ISR, SHRINK_ISR
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7


@kernel
def at_shrink(leader, remaining, params):
    """Return KEEP_ISR if a shrink would leave fewer members than min.insync.replicas, else SHRINK_ISR.

    This holds even if the partition has fewer replicas than min.insync.replicas.
    """
    return SHRINK_ISR if remaining >= params.min_insync_replicas else KEEP_ISR


RULE = KAFKA_3_7.but(
    id="no-shrink-under-min-isr",
    in_force="elsewhere",
    year=2022,
    source="linkedin/kafka pulls 406, 471",
    at_shrink=at_shrink,
)
