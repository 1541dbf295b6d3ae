"""kafka-3.7: the high watermark is frozen while the ISR is smaller than min(min.insync.replicas, assigned replicas).

This rule has been in force since 3.7.0, and still was in 4.4.0. It is the newest rule of Kafka, and the baseline for
the proposals. Shrinks and expands are those of Kafka 3.6: a check drops a follower whose log end is not the leader's,
if now - lastCaughtUpTimeMs > replica.lag.time.max.ms. A follower may join if it is eligible and has every record below
the high watermark and below the start of the leader's epoch. The high watermark waits for the maximal ISR, and for
eligible followers that are caught up. New is that the high watermark is frozen while the ISR is smaller than
min.insync.replicas (KAFKA-15583, KIP-966). So a record is committed only when at least min.insync.replicas brokers have
it, by the setting at that time. If the partition has fewer replicas than min.insync.replicas, all of them are enough;
before 3.7, acks=all was always refused then. A fetch with a stale broker epoch, sent before the follower's broker
restarted, is fenced; recorded fetches do not show this.

Known problem: while the ISR is under min.insync.replicas, consumers do not see new records, not even those produced
with acks=1. Not solved: a leader that is slow, or was stopped, still drops healthy followers (KIP-501), most often in
the first milliseconds after it wakes up.

Source: Partition.isFollowerOutOfSync, maybeIncrementLeaderHW, effectiveMinIsr of 3.7.2, 4.1.0 and 4.3.1.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NOTHING, TRY_TO_JOIN, Rule, after_any_write, never_acts


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader treats ISR members as caught up now, and other followers as never caught up (as in kafka-3.3).

    A new leader sets the log end offsets of all followers to unknown. A leader that stays the leader sets the time of
    the last fetch to now, but only for ISR members.
    """
    follower.last_caught_up_time_ms = now_ms if in_isr else 0
    if leader_is_new:
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = 0
    else:
        follower.last_fetch_leader_log_end_offset = leader.log_end_offset
        follower.last_fetch_time_ms = now_ms if in_isr else 0


@kernel
def record_caught_up(follower, fetch):
    """Update a follower's state with a successful fetch (unchanged in 3.7).

    A fetch from the leader's log end proves that the follower is caught up now. A fetch from what was the log end at
    the follower's previous fetch proves that the follower was caught up at that previous fetch. The last-caught-up time
    never decreases.
    """
    if fetch.fetch_offset >= fetch.leader_log_end_offset:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, fetch.handled_us // 1000)
    elif fetch.fetch_offset >= follower.last_fetch_leader_log_end_offset:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, follower.last_fetch_time_ms)
    follower.log_end_offset = fetch.fetch_offset
    follower.last_fetch_time_ms = fetch.handled_us // 1000


@kernel
def on_recorded(follower, leader, fetch, params):
    """Record a successful fetch, and ignore a failed one. After a successful fetch, the follower may join.

    The high watermark may advance only if the fetch changed the follower's log end offset. The stored log end of the
    leader at the follower's fetches never decreases.
    """
    if fetch.error_code != 0:
        return NOTHING
    before = follower.log_end_offset
    record_caught_up(follower, fetch)
    follower.last_fetch_leader_log_end_offset = max(
        follower.last_fetch_leader_log_end_offset, fetch.leader_log_end_offset
    )
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK if follower.log_end_offset != before else TRY_TO_JOIN


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower's log end is not the leader's, and it was not caught up within the lag time."""
    return (
        follower.log_end_offset != leader.log_end_offset
        and now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    )


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower is eligible, and has every record below the high watermark and the leader's epoch start."""
    return follower.eligible != 0 and follower.log_end_offset >= max(
        leader.high_watermark, leader.leader_epoch_start_offset
    )


@kernel
def caught_up(follower, leader, now_ms, params):
    """Whether the follower's log ends where the leader's does, or it was caught up within the lag time."""
    return (
        follower.log_end_offset == leader.log_end_offset
        or now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms
    )


@kernel
def eligible(follower):
    """Whether the follower is neither fenced nor shutting down, and has fetched in this term (KIP-903)."""
    return follower.eligible != 0 and follower.log_end_offset >= 0


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Whether the high watermark waits for the follower: it is in the maximal ISR, or eligible and caught up."""
    return follower.in_maximal_isr != 0 or (eligible(follower) and caught_up(follower, leader, now_ms, params))


@kernel
def may_advance(leader, params):
    """Whether the committed ISR has at least min.insync.replicas members, or contains all replicas (new in 3.7)."""
    return leader.isr_size >= min(params.min_insync_replicas, leader.replicas)


RULE = Rule(
    id="kafka-3.7",
    in_force="3.7.0 - 4.4.0",
    year=2024,
    source="KIP-966, KAFKA-15583",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    may_advance=may_advance,
    advances_on_commit=after_any_write,
    acts_in_quiet=never_acts,
    checks_per_lag_time=2,
    isr_write_in_background=True,
)
