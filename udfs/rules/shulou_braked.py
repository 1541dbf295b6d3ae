"""shulou-braked: the rule of Kafka 3.7, but for a while after a change of the ISR no follower is dropped.

An article on the ISR claims that Kafka drops no follower within 5 s of the last ISR change, by the leader or the
controller, nor within 60 s of the last ISR change that the leader itself wrote. Kafka has never worked like that, but
this rule does. Under this rule, a replica that has just joined has a minute to catch up.

Kafka had these two limits only for the notification that sends ISR changes in ZooKeeper to other brokers: from 0.9
to 2.6, and up to 3.9 with an inter.broker.protocol.version below 2.7-IV2. The notification was sent as soon as one of
the two times had passed. Applied to shrinks, the two limits show what waiting saves and what it costs.

The start of a term is treated as an ISR change that the leader did not write. So after the start of a term, only the
limit of 5 s applies.

Source: the article "What is the scaling process of KAFKA's ISR?"; ReplicaManager.maybePropagateIsrChanges.
"""

from udfs.jit import kernel
from udfs.rules.base import Param
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7
from udfs.rules.kafka_3_7 import out_of_sync as kafka_3_7_out_of_sync


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether kafka-3.7 would drop the follower, and the last ISR change and write are longer ago than their limits."""
    return (
        now_ms - leader.last_isr_change_time_ms > params.isr_change_brake_ms
        and now_ms - leader.last_isr_write_time_ms > params.isr_write_brake_ms
        and kafka_3_7_out_of_sync(follower, leader, fetch, now_ms, params)
    )


RULE = KAFKA_3_7.but(
    id="shulou-braked",
    in_force="proposed",
    year=2025,
    source="an article, 2025",
    out_of_sync=out_of_sync,
    params={
        "isr_change_brake_ms": Param("time without shrinks after any change of the ISR", 5000),
        "isr_write_brake_ms": Param("time without shrinks after a change that this leader wrote", 60_000),
    },
)
