"""shulou-braked: the rule of Kafka 3.7, but for a while after a change of the ISR no follower is dropped.

An article on the ISR says that Kafka drops no follower within 5 s of the last change of the ISR, nor within 60 s of the
last write of the ISR. Under this rule it does not. A replica that has just joined therefore has a minute to catch up.

Kafka itself had these two brakes only from 0.9 to 2.6, and only for the notification that sends ISR changes to other
brokers. That notification was sent as soon as one of the two times had passed. Applied to shrinks, the brakes show what
waiting saves and what it costs.

The start of a term is a change of the ISR, but not a write by this leader, so only the brake of 5 s holds after it.

Source: the article "What is the scaling process of KAFKA's ISR?"; ReplicaManager.maybePropagateIsrChanges.
"""

from udfs.jit import kernel
from udfs.rules.base import Param
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7
from udfs.rules.kafka_3_7 import out_of_sync as kafka_3_7_out_of_sync


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower is out of sync by the rule of Kafka 3.7, and neither brake holds."""
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
