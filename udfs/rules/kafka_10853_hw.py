"""kafka-10853-hw: as 3.7, but the shrink test compares a follower with the high watermark, not with the log end.

Proposed and at once rejected in KAFKA-10853: a change of one line that looks as if it kept a
follower that has everything that is committed.

It breaks: the high watermark is the least log end of the ISR, so the slowest member always equals
it and never leaves, dead or alive, and the high watermark never moves again. A follower that is ahead of
it does not equal it, so the better one of two followers is dropped.

Source: KAFKA-10853, the diff that it calls pretty broken.
"""

from udfs.jit import kernel
from udfs.rules.base import AT_HIGH_WATERMARK
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Its log does not end at the high watermark, and it was not caught up within the lag time."""
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
