"""kafka-3.7: the high watermark stands still while the ISR is smaller than min.insync.replicas.

In force from 3.7.0 to 4.2.0: what runs today, and the baseline. Everything else is as in 3.6: a follower
is out of sync if it lacks something and was not caught up within the lag time; it may join if it is
eligible and has everything below the high watermark and the start of the leader's epoch; the high
watermark waits for the maximal ISR and for caught-up followers that may join. The freeze
(KAFKA-15583, KIP-966) keeps what is committed on at least min.insync.replicas brokers.

What it broke: with the ISR under min.insync.replicas even acks=1 records stay invisible to consumers.
What it did not fix: a leader that is slow or stopped still blames its followers (KIP-501), and most
of all in the first milliseconds after it wakes up.

Source: Partition.isFollowerOutOfSync, maybeIncrementLeaderHW, effectiveMinIsr of 3.7.2 and 4.1.0.
"""

from udfs.jit import kernel
from udfs.rules import kafka_2_1, kafka_3_3
from udfs.rules.base import Rule, after_any_write


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """The high watermark waits for the maximal ISR, and for caught-up followers that may join it."""
    return follower.in_maximal_isr != 0 or (
        kafka_3_3.eligible(follower) and kafka_3_3.caught_up(follower, leader, now_ms, params)
    )


@kernel
def may_advance(leader, params):
    """Not while the committed ISR is smaller than min.insync.replicas, or than the assignment."""
    return leader.isr_size >= min(params.min_insync_replicas, leader.replicas)


RULE = Rule(
    id="kafka-3.7",
    in_force="3.7.0 - 4.2.0",
    source="KIP-966, KAFKA-15583",
    begin_term=kafka_3_3.begin_term,
    on_recorded=kafka_3_3.on_recorded,
    may_join=kafka_3_3.may_join,
    out_of_sync=kafka_2_1.out_of_sync,
    holds_high_watermark=holds_high_watermark,
    may_advance=may_advance,
    advances_on_commit=after_any_write,
    checks_per_lag_time=2,
    isr_write_in_background=True,
)
