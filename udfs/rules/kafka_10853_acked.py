"""kafka-10853-acked: as 3.7, with the largest acknowledged offset in place of the leader's log end.

Proposed in KAFKA-10853: a follower that lacks only records which were not acknowledged could take
over without losing anything, so it stays in the ISR. An append with acks=0 or 1 is acknowledged at
once, one with acks=all when the high watermark passes it. Where all producers use acks=1 the rule
decides as 3.7 does.

What it fixes: a leader whose storage or network stalls after an acks=all append no longer throws out
everybody who could replace it.

What it breaks: if all traffic is acks=all, nothing beyond a dead follower's log end is ever acknowledged,
so it is never dropped, and the high watermark never moves again.

Records of earlier terms count as acknowledged up to the high watermark that the leader took over.

Source: KAFKA-10853, largestAckedOffset.
"""

from udfs.jit import kernel
from udfs.rules.base import (
    ADVANCE_HIGH_WATERMARK,
    HAS_ALL_ACKNOWLEDGED,
    NOTHING,
    TRY_TO_JOIN,
    Rule,
    after_any_write,
    never_acts,
)


@kernel
def largest_acknowledged_offset(leader):
    """End of the records whose producers have been answered."""
    return max(leader.acknowledged_offset, leader.high_watermark)


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """As in 3.7, but the largest acknowledged offset counts as the log end."""
    follower.last_caught_up_time_ms = now_ms if in_isr else 0
    if leader_is_new:
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = 0
    else:
        follower.last_fetch_leader_log_end_offset = largest_acknowledged_offset(leader)
        follower.last_fetch_time_ms = now_ms if in_isr else 0


@kernel
def on_read(follower, leader, fetch, params):
    """What is acknowledged is looked up when Kafka looks up the log end."""
    follower.acknowledged_at_read = largest_acknowledged_offset(leader)
    return NOTHING


@kernel
def on_recorded(follower, leader, fetch, params):
    """Caught up now if it has all that is acknowledged, then if it has all that was at its previous fetch."""
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
    """It lacks nothing that was acknowledged, or was caught up within the lag time."""
    return (
        follower.log_end_offset >= largest_acknowledged_offset(leader)
        or now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms
    )


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """It lacks something that was acknowledged, and was not caught up within the lag time."""
    return not caught_up(follower, leader, now_ms, params)


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """It is eligible, and has everything below the high watermark and the start of the leader's epoch."""
    return follower.eligible != 0 and follower.log_end_offset >= max(
        leader.high_watermark, leader.leader_epoch_start_offset
    )


@kernel
def eligible(follower):
    """Neither fenced nor shutting down, and it has fetched from this leader (KIP-903: its broker epoch is known)."""
    return follower.eligible != 0 and follower.log_end_offset >= 0


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """The high watermark waits for the maximal ISR and for eligible caught-up followers."""
    return follower.in_maximal_isr != 0 or (eligible(follower) and caught_up(follower, leader, now_ms, params))


@kernel
def may_advance(leader, params):
    """Not while the committed ISR is smaller than min.insync.replicas, or than the assignment if that is less."""
    return leader.isr_size >= min(params.min_insync_replicas, leader.replicas)


RULE = Rule(
    id="kafka-10853-acked",
    in_force="proposed",
    year=2020,
    source="KAFKA-10853",
    begin_term=begin_term,
    on_read=on_read,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    may_advance=may_advance,
    advances_on_commit=after_any_write,
    acts_in_quiet=never_acts,
    no_lag_while=HAS_ALL_ACKNOWLEDGED,
    checks_per_lag_time=2,
    isr_write_in_background=True,
)
