"""kafka-10853-acked: the rule of Kafka 3.7, with the largest acknowledged offset in place of the leader's log end.

KAFKA-10853 proposes this rule: a follower that only lacks unacknowledged records stays in the ISR, because it could
become the leader without losing an acknowledged record. An append with acks=0 or 1 is acknowledged at once; an append
with acks=all is acknowledged when the high watermark reaches its end. If all producers use acks=1, this rule decides
like the rule of Kafka 3.7.

Benefit: a leader whose storage or network stalls after an acks=all append no longer drops every follower that could
replace it.

Drawback: if all producers use acks=all, no record beyond a dead member's log end is acknowledged. So the leader never
drops the dead member, and the high watermark stands still until the controller removes this member.

Records of earlier terms are acknowledged if they are below the leader's high watermark at the start of its term.

Source: KAFKA-10853, largestAckedOffset.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, HAS_ALL_ACKNOWLEDGED, NOTHING, TRY_TO_JOIN
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7
from udfs.rules.kafka_3_7 import begin_term as kafka_3_7_begin_term
from udfs.rules.kafka_3_7 import eligible


@kernel
def largest_acknowledged_offset(leader):
    """Return the offset after the last record that was acknowledged to its producer."""
    return max(leader.acknowledged_offset, leader.high_watermark)


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader treats followers as in kafka-3.7, with one exception.

    If the leader stays the leader, a follower is considered caught up at its last fetch if its next fetch shows that it
    has every record acknowledged by the start of the term. In kafka-3.7, it needs every record that the leader had
    then.
    """
    kafka_3_7_begin_term(follower, leader, in_isr, leader_is_new, now_ms, params)
    if not leader_is_new:
        follower.last_fetch_leader_log_end_offset = largest_acknowledged_offset(leader)


@kernel
def on_read(follower, leader, fetch, params):
    """Store the largest acknowledged offset when the leader reads its log for the fetch, for use by `on_recorded`."""
    follower.acknowledged_at_read = largest_acknowledged_offset(leader)
    return NOTHING


@kernel
def on_recorded(follower, leader, fetch, params):
    """Record a successful fetch, and ignore a failed one. After a successful fetch, the follower may join.

    The follower is caught up at this fetch if it has every record that was acknowledged when the leader read its log
    for this fetch. If it has every record that was acknowledged at the read for its previous fetch, it was caught up
    at that fetch. The high watermark may advance only if the fetch changed the follower's log end offset.
    """
    if fetch.error_code != 0:
        return NOTHING
    before = follower.log_end_offset
    now_ms = fetch.handled_us // 1000
    acknowledged = follower.acknowledged_at_read
    if fetch.fetch_offset >= acknowledged:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, now_ms)
    elif fetch.fetch_offset >= follower.last_fetch_leader_log_end_offset:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, follower.last_fetch_time_ms)
    follower.log_end_offset = fetch.fetch_offset
    follower.last_fetch_leader_log_end_offset = max(follower.last_fetch_leader_log_end_offset, acknowledged)
    follower.last_fetch_time_ms = now_ms
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK if follower.log_end_offset != before else TRY_TO_JOIN


@kernel
def caught_up(follower, leader, now_ms, params):
    """Whether the follower has every acknowledged record, or was caught up within the lag time."""
    return (
        follower.log_end_offset >= largest_acknowledged_offset(leader)
        or now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms
    )


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower lacks an acknowledged record, and was not caught up within the lag time."""
    return not caught_up(follower, leader, now_ms, params)


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Whether the high watermark waits for the follower: it is in the maximal ISR, or eligible and `caught_up`."""
    return follower.in_maximal_isr != 0 or (eligible(follower) and caught_up(follower, leader, now_ms, params))


RULE = KAFKA_3_7.but(
    id="kafka-10853-acked",
    in_force="proposed",
    year=2020,
    source="KAFKA-10853",
    begin_term=begin_term,
    on_read=on_read,
    on_recorded=on_recorded,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    no_lag_while=HAS_ALL_ACKNOWLEDGED,
)
