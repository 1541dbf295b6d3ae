"""any-fetch: the rule of Kafka 3.7, but every fetch shows that its follower is caught up.

A thought experiment: why is the time at which a follower was last caught up not renewed by each of its fetches? The lag
time has two meanings in Kafka: how long a follower may be silent, and how long it may be behind. This rule only has the
first one. The followers that kafka-3.7 drops and any-fetch keeps are those that are alive and behind.

Benefit: only a follower that is silent leaves the ISR.

Drawback: a follower that fetches forever and never catches up stays. The high watermark waits for it, so acks=all takes
longer and longer. It also waits for a broker that is back after hours, until that broker has every record. With the
parameter ``outsiders`` = as-3.7 it does not, because a follower outside the ISR is then caught up only as under the
rule of Kafka 3.7.

It is replayed on request, not with ``all``.

Source: the discussion of the definition of lag in KAFKA-4485, taken to its end.
"""

from udfs.jit import kernel
from udfs.rules.base import Param
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7
from udfs.rules.kafka_3_7 import on_recorded as kafka_3_7_on_recorded

SAME = 0


@kernel
def on_recorded(follower, leader, fetch, params):
    """Record the fetch like the rule of Kafka 3.7; unless it failed, count it as proof of being caught up."""
    todo = kafka_3_7_on_recorded(follower, leader, fetch, params)
    if fetch.error_code == 0 and (params.outsiders == SAME or follower.in_isr != 0):
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, fetch.handled_us // 1000)
    return todo


RULE = KAFKA_3_7.but(
    id="any-fetch",
    in_force="reference",
    year=2016,
    source="KAFKA-4485",
    on_recorded=on_recorded,
    on_request=True,
    params={
        "outsiders": Param(
            "which fetches count outside the ISR: all, as inside; those of the rule of Kafka 3.7", 0, ("same", "as-3.7")
        )
    },
)
