"""any-fetch: the rule of Kafka 3.7, but every fetch shows that its follower is caught up.

This is a thought experiment: what if every fetch renewed the follower's last-caught-up time? In Kafka, the lag time
limits two things: how long a follower may be silent, and how long it may be behind. Under this rule it only limits
silence. The followers that kafka-3.7 drops and any-fetch keeps are those that are alive and behind.

Benefit: only a follower that is silent leaves the ISR.

Drawback: a follower that fetches forever and never catches up stays in the ISR. The high watermark waits for this
follower, so produce requests with acks=all take longer and longer. The high watermark also waits for a broker that
returns after hours, until that broker has every record. With the parameter ``outsiders`` = as-3.7, the high watermark
does not wait for such a broker: the rule of Kafka 3.7 then decides whether a follower outside the ISR is caught up.

The rule is replayed only if it is named, not as part of ``all``.

Source: the discussion of the definition of lag in KAFKA-4485, taken to its logical conclusion.
"""

from udfs.jit import kernel
from udfs.rules.base import Param
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7
from udfs.rules.kafka_3_7 import on_recorded as kafka_3_7_on_recorded

SAME = 0


@kernel
def on_recorded(follower, leader, fetch, params):
    """Record the fetch as kafka-3.7 does, and treat the follower as caught up after every successful fetch.

    With ``outsiders`` = as-3.7, only kafka-3.7's rule applies to followers outside the ISR.
    """
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
            "fetches that count outside the ISR: all, as inside it, or those that count in Kafka 3.7",
            0,
            ("same", "as-3.7"),
        )
    },
)
