"""kafka-10853-hw: the rule of Kafka 3.7, but a follower whose log ends at the high watermark is not dropped.

Kafka 3.7 never drops a follower whose log end offset equals the leader's. Here the log end offset must equal the high
watermark instead. This change of one line was proposed and immediately rejected in KAFKA-10853. At first sight, the
change keeps every follower that has all committed records.

Drawback: the high watermark is the lowest log end in the ISR. The slowest member's log therefore always ends at the
high watermark, so the leader never drops this member. If it is dead, the high watermark stands still until the
controller removes it. The log of a follower that is further ahead ends beyond the high watermark, so the better one of
two followers is dropped.

Source: the diff in KAFKA-10853, which the ticket itself calls pretty broken.
"""

from udfs.jit import kernel
from udfs.rules.base import AT_HIGH_WATERMARK
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower's log does not end at the high watermark, and it was not caught up within the lag time."""
    return (
        follower.log_end_offset != leader.high_watermark
        and now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    )


RULE = KAFKA_3_7.but(
    id="kafka-10853-hw",
    in_force="rejected",
    year=2020,
    source="KAFKA-10853",
    out_of_sync=out_of_sync,
    no_lag_while=AT_HIGH_WATERMARK,
)
