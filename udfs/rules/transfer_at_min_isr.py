"""transfer-at-min-isr: as 3.7, but rather than shrink below min.insync.replicas the leader hands over.

In LinkedIn's fork since October 2022. A leader that is too busy to serve fetches within the lag time loses
all its followers at once, and producers are refused, though it is the leader that is slow. So a check that
would leave fewer than min.insync.replicas members asks the controller to make another member the leader.

As shipped, that is the first broker in the ISR, in sync or not. Since 2026 the fork recommends only one
that is in sync (parameter ``candidates=in-sync``); with min.insync.replicas = 2 no member is when it
matters, and the ISR stays as it is (no-shrink-under-min-isr).

It fixes: partitions under min.insync.replicas through the leader's own fault.

It breaks: if the followers are dead and not yet fenced, leadership goes to a dead broker. If all brokers
are in trouble it comes back; each transfer costs an election and the followers a lag time of grace.

The log continues with the old leader, so the replay begins an epoch of this rule, as kip-501-relinquish does.

Source: linkedin/kafka pulls 390, 400 and 406; Partition.maybeTransferToNewLeader of its 3.x branches.
"""

from udfs.jit import kernel
from udfs.rules.base import GIVE_UP_LEADERSHIP, KEEP_ISR, SHRINK_ISR, Param
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7

IN_SYNC = 1


@kernel
def at_shrink(leader, remaining, params):
    """Rather than go under min.insync.replicas, hand over to another member; if none qualifies, all stay."""
    if remaining >= params.min_insync_replicas:
        return SHRINK_ISR
    return KEEP_ISR if params.candidates == IN_SYNC and remaining < 2 else GIVE_UP_LEADERSHIP


RULE = KAFKA_3_7.but(
    id="transfer-at-min-isr",
    in_force="elsewhere",
    year=2022,
    source="linkedin/kafka pull 406",
    at_shrink=at_shrink,
    params={
        "candidates": Param("possible new leaders: any member of the ISR, one that is in sync", 0, ("isr", "in-sync")),
    },
)
