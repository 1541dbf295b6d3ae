"""kafka-2.1: a follower whose log ends where the leader's does stays in sync, however long ago it fetched.

In force from 2.1.0 to 2.6.3. It fixed KAFKA-7152: followers of idle partitions no longer leave and
return in an endless round. Since 2.0.1 a follower may join only from the start of the leader's epoch
on (KAFKA-7128), or records that the leader committed would be lost with it.

What it broke: a follower of an idle partition that has died is noticed only after the next append,
and then at once, since its lag is counted from its last fetch.

Up to 2.3.1 an error in the read made the follower's position unknown; since 2.4.0 (KAFKA-8841) such a
fetch changes nothing, and the high watermark is looked at only when the follower's position moved:
parameter ``errors_change_nothing``.

Source: Partition.readRecords, getOutOfSyncReplicas of 2.1.1; Replica.updateFetchState of 2.4.1.
"""

from udfs.jit import kernel
from udfs.rules import kafka_0_10_2
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NO_YES, NOTHING, TRY_TO_JOIN, Param, Rule
from udfs.rules.caught_up import record_caught_up


@kernel
def on_recorded_since_2_4(follower, leader, fetch, params):
    """A fetch that failed is none; the high watermark is looked at only if the follower moved."""
    if fetch.error_code != 0:
        return NOTHING
    before = follower.log_end_offset
    record_caught_up(follower, fetch)
    follower.last_fetch_leader_log_end_offset = fetch.leader_log_end_offset
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK if follower.log_end_offset != before else TRY_TO_JOIN


@kernel
def on_recorded(follower, leader, fetch, params):
    """As before; since 2.4 an error is no fetch at all."""
    if params.errors_change_nothing == 0:
        return kafka_0_10_2.on_recorded(follower, leader, fetch, params)
    return on_recorded_since_2_4(follower, leader, fetch, params)


@kernel
def begin_term_since_2_4(follower, leader, in_isr, leader_is_new, now_ms, params):
    """As before, but a new leader takes the previous fetch to have been at the epoch of time."""
    kafka_0_10_2.begin_term(follower, leader, in_isr, leader_is_new, now_ms, params)
    if leader_is_new:
        follower.last_fetch_time_ms = 0


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """Members of the ISR count as caught up now, others as never."""
    if params.errors_change_nothing == 0:
        kafka_0_10_2.begin_term(follower, leader, in_isr, leader_is_new, now_ms, params)
    else:
        begin_term_since_2_4(follower, leader, in_isr, leader_is_new, now_ms, params)


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """It has everything below the high watermark and below the start of the leader's epoch."""
    return follower.log_end_offset >= max(leader.high_watermark, leader.leader_epoch_start_offset)


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """It lacks something, and was not caught up within the lag time."""
    return (
        follower.log_end_offset != leader.log_end_offset
        and now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    )


RULE = Rule(
    id="kafka-2.1",
    in_force="2.1.0 - 2.6.3",
    source="KAFKA-7152, KAFKA-7128; 2.4: KAFKA-8841",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=kafka_0_10_2.holds_high_watermark,
    checks_per_lag_time=2,
    params={"errors_change_nothing": Param("true: 2.4.0 to 2.6.3", 0, NO_YES)},
)
