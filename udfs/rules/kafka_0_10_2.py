"""kafka-0.10.2: a fetch from what was the log end at the previous fetch shows the follower was caught up at that time.

This rule was in force from 0.10.2.0 to 2.0.1. It fixed KAFKA-4485: a follower that is always one batch behind, but
keeps pace, stays in the ISR. A new term now grants every member of the ISR a fresh lag time. The high watermark now
also waits for followers outside the ISR that were caught up within the lag time. Without this wait, if the leader were
alone in the ISR, the high watermark could always be ahead of such a follower, which would never join.

Known problem: on an idle partition, only fetches renew a follower's last-caught-up time. So if anything delays the
fetches (slow ISR writes, a leader change), the follower is dropped although it lacks nothing. The ISR writes for
thousands of idle partitions then delay the next fetches (KAFKA-7152). Only 2.0.1 also requires that a joining follower
has reached the start of the leader's epoch (KAFKA-7128); the parameter ``joins_from_epoch_start`` selects this
behaviour.

isr-expiration runs twice per lag time, so a follower leaves between 1 and 1.5 lag times after it was last caught up.

Source: Replica.updateLogReadResult, Partition.makeLeader, maybeIncrementLeaderHW of 0.10.2.2, 2.0.1.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NEVER, NO_YES, TRY_TO_JOIN, Param, Rule, never_acts


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader treats ISR members as caught up now, and other followers as never caught up (new in 0.10.2).

    A new leader sets the log end offsets of all followers to unknown. A leader that stays the leader sets the time of
    every follower's last fetch to now.
    """
    follower.last_fetch_leader_log_end_offset = leader.log_end_offset
    follower.last_caught_up_time_ms = now_ms if in_isr else 0
    follower.last_fetch_time_ms = now_ms
    if leader_is_new:
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = -1


@kernel
def record_caught_up(follower, fetch):
    """Update a follower's state with a successful fetch (new in 0.10.2).

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

    After every fetch, even a failed one, the follower may join and the high watermark may advance.
    """
    if fetch.error_code != 0:
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = -1
    else:
        record_caught_up(follower, fetch)
        follower.last_fetch_leader_log_end_offset = fetch.leader_log_end_offset
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower was not caught up within the lag time."""
    return now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower has every record below the high watermark (2.0.1: and below the leader's epoch start)."""
    return follower.log_end_offset >= leader.high_watermark and (
        params.joins_from_epoch_start == 0 or follower.log_end_offset >= leader.leader_epoch_start_offset
    )


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Whether the high watermark waits for the follower: it is in the ISR, or was caught up within the lag time."""
    return follower.in_maximal_isr != 0 or now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms


RULE = Rule(
    id="kafka-0.10.2",
    in_force="0.10.2.0 - 2.0.1",
    year=2017,
    source="KAFKA-4485; 2.0.1: KAFKA-7128",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    acts_in_quiet=never_acts,
    no_lag_while=NEVER,
    checks_per_lag_time=2,
    params={"joins_from_epoch_start": Param("true: 2.0.1", 0, NO_YES)},
)
