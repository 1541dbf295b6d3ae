"""kafka-3.7: as 2.1, but the high watermark stands still while the ISR is smaller than min.insync.replicas.

In force from 3.7.0 to 4.2.0: what runs today. On the way from 2.6 came: one ISR change in flight at a
time, with the high watermark waiting for the larger of old and new ISR (KIP-497, 2.7); the state
updated in the read itself, and reset only by a higher leader epoch (KAFKA-13790, 3.3); only followers
that are neither fenced nor shutting down may join (KIP-841, 3.3), and the high watermark waits for a
follower outside the ISR only if it may join (KAFKA-15021, 3.6); the freeze under min ISR
(KAFKA-15583, KIP-966, 3.7).

What it broke: with the ISR under min.insync.replicas even acks=1 records stay invisible to consumers.
What it did not fix: a leader that is slow or stopped still blames its followers (KIP-501), and most
of all in the first milliseconds after it wakes up.

Source: Partition.fetchRecords, updateFollowerFetchState, isFollowerOutOfSync,
maybeIncrementLeaderHW, Replica.updateFetchState, resetReplicaState of 3.7.2 and 4.1.0.
"""

from udfs.bookkeeping import grant_fresh_start, record_caught_up
from udfs.jit import kernel
from udfs.rules import kafka_2_1
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, TRY_TO_JOIN, Rule


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """Members of the ISR count as caught up now, others as never; a new leader knows nobody's position."""
    grant_fresh_start(follower, leader, in_isr, now_ms)
    if leader_is_new:
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = 0
    else:
        follower.last_fetch_time_ms = now_ms if in_isr else 0


@kernel
def on_recorded(follower, leader, fetch, params):
    """A fetch that failed changes nothing; the leader's log end at the previous fetch never goes back."""
    if fetch.error_code != 0:
        return 0
    before = follower.log_end_offset
    record_caught_up(follower, fetch)
    follower.last_fetch_leader_log_end_offset = max(
        follower.last_fetch_leader_log_end_offset, fetch.leader_log_end_offset
    )
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK if follower.log_end_offset != before else TRY_TO_JOIN


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Eligible, and it has everything below the high watermark and the start of the leader's epoch."""
    return follower.eligible != 0 and kafka_2_1.may_join(follower, leader, fetch, now_ms, params)


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """The high watermark waits for the maximal ISR, and for caught-up followers that may join it."""
    return follower.in_maximal_isr != 0 or (
        follower.eligible != 0
        and (
            follower.log_end_offset == leader.log_end_offset
            or now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms
        )
    )


@kernel
def may_advance(leader, params):
    """Not while the committed ISR is smaller than min.insync.replicas, or than the assignment."""
    return leader.isr_size >= min(params.min_insync_replicas, leader.replicas)


RULE = Rule(
    id="kafka-3.7",
    in_force="3.7.0 - 4.2.0",
    source="KIP-497, KIP-841, KIP-966, KAFKA-15583",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=kafka_2_1.out_of_sync,
    holds_high_watermark=holds_high_watermark,
    may_advance=may_advance,
    checks_per_lag_time=2,
    isr_write_in_background=True,
)
