"""kafka-0.9: a follower is in sync if, within the lag time, one of its fetches was from the leader's log end.

This rule was in force from 0.9.0.0 to 0.10.1.1. It removed the limit replica.lag.max.messages (KAFKA-1546, KIP-16).
With that limit, every larger burst removed followers from the ISR, and dead followers of quiet partitions stayed in the
ISR.

Known problem: if producers send many small batches, a follower's fetch is always one batch behind the log end by the
time the leader handles it. Such a follower is dropped although it keeps pace (KAFKA-4485). Also, a new leader does not
grant its followers a fresh lag time. A follower's last-caught-up time is the one from the last term in which this
broker was the leader; if there was no such term, it is the time at which this broker first heard of the follower.

isr-expiration, the task that checks the ISR, runs once per lag time, so a follower leaves between 1 and 2 lag times
after it was last at the log end.

Source: ReplicaManager.fetchMessages, Replica.updateLogReadResult, Partition.getOutOfSyncReplicas of
0.9.0.1 and 0.10.1.1.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NEVER, TRY_TO_JOIN, Rule, never_acts


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader keeps each follower's last-caught-up time, and sets it to now only if the follower has none.

    If the leader did not lead in the term before, it sets the log end offsets of all followers to unknown; otherwise it
    keeps them.
    """
    if leader_is_new:
        follower.log_end_offset = -1
    if follower.last_caught_up_time_ms < 0:  # first heard of
        follower.last_caught_up_time_ms = now_ms


@kernel
def on_recorded(follower, leader, fetch, params):
    """Record the fetch. If it is from the log end, the last-caught-up time becomes the time of this recording.

    Later releases use the earlier time at which the log was read. A failed fetch sets the follower's log end offset to
    unknown. After every fetch, the follower may join and the high watermark may advance.
    """
    if fetch.error_code != 0:
        follower.log_end_offset = -1
    else:
        follower.log_end_offset = fetch.fetch_offset
        if fetch.fetch_offset >= fetch.leader_log_end_offset:
            follower.last_caught_up_time_ms = fetch.processed_us // 1000
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower has every record below the high watermark (unchanged in 0.9)."""
    return follower.log_end_offset >= leader.high_watermark


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether none of the follower's fetches within the lag time was from the log end."""
    return now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Whether the high watermark waits for the follower: only if it is in the ISR (unchanged in 0.9)."""
    return follower.in_isr != 0


RULE = Rule(
    id="kafka-0.9",
    in_force="0.9.0.0 - 0.10.1.1",
    year=2015,
    source="KIP-16, KAFKA-1546",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    acts_in_quiet=never_acts,
    caught_up_by="processed",
    no_lag_while=NEVER,
    checks_per_lag_time=1,
)
