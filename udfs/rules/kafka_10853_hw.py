"""kafka-10853-hw: as 3.7, but the shrink test compares a follower with the high watermark, not with the log end.

Proposed and rejected in one breath in KAFKA-10853: the one-line change that looks as if it kept a
follower that has everything that is committed.

What it breaks: the high watermark is the least log end of the ISR, so the slowest member always equals
it and never leaves, dead or alive, and the high watermark never moves again. A follower that is ahead of
it does not equal it, so that of two followers the better one is dropped.

Source: KAFKA-10853, the diff that it calls pretty broken.
"""

from udfs.jit import kernel
from udfs.rules import kafka_3_3, kafka_3_7
from udfs.rules.base import Rule, after_any_write


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Its log does not end at the high watermark, and it was not caught up within the lag time."""
    return (
        follower.log_end_offset != leader.high_watermark
        and now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    )


RULE = Rule(
    id="kafka-10853-hw",
    in_force="rejected",
    source="KAFKA-10853",
    begin_term=kafka_3_3.begin_term,
    on_recorded=kafka_3_3.on_recorded,
    may_join=kafka_3_3.may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=kafka_3_7.holds_high_watermark,
    may_advance=kafka_3_7.may_advance,
    advances_on_commit=after_any_write,
    checks_per_lag_time=2,
    isr_write_in_background=True,
)
