"""kafka-2.1: a follower whose log ends where the leader's does stays in sync, however long ago it fetched.

This rule was in force from 2.1.0 to 2.6.3. It fixed KAFKA-7152: followers of idle partitions no longer leave and rejoin
the ISR in an endless loop. Since 2.0.1 a follower may join only if its log reaches the start of the leader's epoch
(KAFKA-7128). Without this condition, a follower could join, become the leader, and lack records that the old leader had
committed.

Known problem: a dead follower of an idle partition stays in the ISR until the next append. The first check after this
append drops the follower at once, since its last-caught-up time is that of its last fetch.

Up to 2.3.1, if a fetch failed with an error, the leader set the follower's log end offset to unknown. Since 2.4.0
(KAFKA-8841) such a fetch changes nothing, and a fetch may advance the high watermark only if it moved the follower's
log end offset. The parameter ``errors_change_nothing`` selects the later behaviour.

Source: Partition.readRecords, getOutOfSyncReplicas of 2.1.1; Replica.updateFetchState of 2.4.1.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NO_YES, NOTHING, TRY_TO_JOIN, Param, Rule, never_acts


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader treats ISR members as caught up now, and other followers as never caught up (as in kafka-0.10.2).

    A new leader sets the log end offsets of all followers to unknown, and since 2.4 the times of their last fetches to
    0. A leader that stays the leader sets the time of every follower's last fetch to now.
    """
    follower.last_fetch_leader_log_end_offset = leader.log_end_offset
    follower.last_caught_up_time_ms = now_ms if in_isr else 0
    follower.last_fetch_time_ms = now_ms
    if leader_is_new:
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = -1 if params.errors_change_nothing == 0 else 0


@kernel
def record_caught_up(follower, fetch):
    """Update a follower's state with a successful fetch (unchanged in 2.1).

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
    """Record the fetch. A failed fetch sets the follower's log end offset and its previous fetch to unknown.

    After every fetch, the follower may join and the high watermark may advance. Since 2.4, a failed fetch changes
    nothing, and the high watermark may advance only if the fetch changed the follower's log end offset.
    """
    if fetch.error_code != 0:
        if params.errors_change_nothing != 0:
            return NOTHING
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = -1
        return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK
    before = follower.log_end_offset
    record_caught_up(follower, fetch)
    follower.last_fetch_leader_log_end_offset = fetch.leader_log_end_offset
    if params.errors_change_nothing != 0 and follower.log_end_offset == before:
        return TRY_TO_JOIN
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower's log end is not the leader's (new in 2.1) and it was not caught up within the lag time."""
    return (
        follower.log_end_offset != leader.log_end_offset
        and now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    )


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower has every record below the high watermark and below the leader's epoch start."""
    return follower.log_end_offset >= max(leader.high_watermark, leader.leader_epoch_start_offset)


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Whether the high watermark waits for the follower: it is in the ISR, or was caught up within the lag time."""
    return follower.in_maximal_isr != 0 or now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms


RULE = Rule(
    id="kafka-2.1",
    in_force="2.1.0 - 2.6.3",
    year=2018,
    source="KAFKA-7152, KAFKA-7128; 2.4: KAFKA-8841",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    acts_in_quiet=never_acts,
    checks_per_lag_time=2,
    knows_as="kafka-0.10.2",
    params={"errors_change_nothing": Param("true: 2.4.0 to 2.6.3", 0, NO_YES)},
)
