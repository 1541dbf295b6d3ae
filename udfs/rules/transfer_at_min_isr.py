"""transfer-at-min-isr: the rule of Kafka 3.7, but a leader hands over rather than shrink below min.insync.replicas.

LinkedIn's fork of Kafka has used this rule since October 2022. Under Kafka's rule, a leader that is too busy to serve
fetches within the lag time drops all its followers at once. Produce requests are then refused, although only the leader
is slow. Under the fork's rule, if a check would leave fewer than min.insync.replicas members, the leader asks the
controller to make another member the leader.

In the first version, the new leader is the first other broker in the ISR, whether it is in sync or not. Since 2026 the
fork only recommends a broker that is in sync (parameter ``candidates`` = in-sync). With min.insync.replicas = 2, no
other member is in sync when a check would leave too few members. The ISR then stays unchanged, as under
no-shrink-under-min-isr.

Benefit: a partition no longer falls below min.insync.replicas only because its leader is slow.

Drawback: if the followers are dead and not yet fenced, leadership goes to a dead broker. If all brokers are in trouble,
leadership comes back to the old leader. Each transfer costs an election, and gives every follower a fresh lag time.

The transfer did not happen in the recorded cluster, so the brokers' logs show the old leader only. The replay therefore
keeps the old leader and begins a new leader epoch under this rule, as it does for kip-501-relinquish.

Source: linkedin/kafka pulls 390, 400 and 406; Partition.maybeTransferToNewLeader of its 3.x branches.
"""

from udfs.jit import kernel
from udfs.rules.base import GIVE_UP_LEADERSHIP, KEEP_ISR, SHRINK_ISR, Param
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7

IN_SYNC = 1


@kernel
def at_shrink(leader, remaining, params):
    """Return GIVE_UP_LEADERSHIP if a shrink would leave fewer members than min.insync.replicas, else SHRINK_ISR.

    With ``candidates`` = in-sync, the result is KEEP_ISR instead if only the leader would remain.
    """
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
        "candidates": Param("possible new leaders: any member of the ISR, or only one in sync", 0, ("isr", "in-sync")),
    },
)
