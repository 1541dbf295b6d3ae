"""shulou-braked: as 3.7, but after a change of the ISR nobody is dropped for a while.

An article on the ISR reads Kafka's brakes so: no judgement within 5 s of the last change of the ISR, nor
within 60 s of the last write of it, which gives a replica that has just joined a minute to catch up.

What Kafka really brakes so, from 0.9 to 2.6, is only the telling of others that the ISR has changed,
and there either condition is enough. As a rule of its own it shows what forbearance buys, and costs.

A term begins with a change of the ISR, but not with a write by this leader.

Source: seed article, "What is the scaling process of KAFKA's ISR?"; ReplicaManager.maybePropagateIsrChanges.
"""

from dataclasses import replace

from udfs.jit import kernel
from udfs.rules import kafka_2_1, kafka_3_7
from udfs.rules.base import Param


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """No brake holds, it lacks something, and was not caught up within the lag time."""
    return (
        now_ms - leader.last_isr_change_time_ms > params.isr_change_brake_ms
        and now_ms - leader.last_isr_write_time_ms > params.isr_write_brake_ms
        and kafka_2_1.out_of_sync(follower, leader, fetch, now_ms, params)
    )


RULE = replace(
    kafka_3_7.RULE,
    id="shulou-braked",
    in_force="proposed",
    source="an article, 2025",
    out_of_sync=out_of_sync,
    params={
        "isr_change_brake_ms": Param("after any change of the ISR", 5000),
        "isr_write_brake_ms": Param("after a change that this leader wrote", 60_000),
    },
    doc=__doc__,
)
