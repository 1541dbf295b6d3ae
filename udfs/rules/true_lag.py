"""true-lag: a follower is in sync if it has every record that was in the leader's log one lag time ago.

No leader can run this rule, because it uses the follower's real log end. A leader only knows the log end from the last
fetch that it has handled. The rule also drops a follower at once, without waiting for a check. KAFKA-4485 argues from
the definition of lag that this rule uses. The rule is the reference for all others: if another rule drops a follower
that true-lag keeps, the follower was keeping pace.

As soon as a fetch arrives, the follower's log is known to end at the fetch offset, even while the fetch waits in the
request queue. Between a response and the next fetch, the follower's log end is not known. The replay then assumes that
the log still ends at the offset of the previous fetch.

Source: KAFKA-4485, section on the definition of lag.
"""

from udfs.jit import kernel
from udfs.records import NEVER_US
from udfs.rules.base import (
    ADVANCE_HIGH_WATERMARK,
    CONTINUOUS,
    LACKS_NOTHING,
    NOTHING,
    TRY_TO_JOIN,
    Rule,
    never_acts,
    nothing,
)


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader sets each follower's log end offset to unknown until the follower's first fetch."""
    follower.log_end_offset = -1
    follower.last_caught_up_time_ms = now_ms if in_isr else 0


@kernel
def on_arrival(follower, leader, fetch, params):
    """Set the follower's log end to the fetch offset, and its last-caught-up time.

    That time is when the first record that the follower lacks was appended, or the fetch's arrival if it lacks none. A
    failed fetch is ignored.
    """
    if fetch.error_code != 0:
        return NOTHING
    follower.log_end_offset = fetch.log_end_offset
    follower.last_caught_up_time_ms = min(fetch.missing_since_us, fetch.arrival_us) // 1000
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK


@kernel
def on_append(follower, leader, fetch, params):
    """Set a follower's last-caught-up time to when the first record that it lacks was appended, if it lacks any."""
    if fetch.missing_since_us < NEVER_US and fetch.log_end_offset >= 0:
        follower.last_caught_up_time_ms = fetch.missing_since_us // 1000
    return NOTHING


@kernel
def overdue_at_ms(follower, leader, fetch, params):
    """Return the millisecond at which the oldest record that the follower lacks becomes older than the lag time.

    The result is NEVER_US if the follower lacks no record.
    """
    if fetch.log_end_offset >= leader.log_end_offset:
        return NEVER_US
    return fetch.missing_since_us // 1000 + params.replica_lag_time_max_ms + 1


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the oldest record that the follower lacks is older than the lag time."""
    return now_ms >= overdue_at_ms(follower, leader, fetch, params)


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower has every record below the high watermark, and every record older than the lag time."""
    return follower.log_end_offset >= leader.high_watermark and not out_of_sync(follower, leader, fetch, now_ms, params)


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Whether the high watermark waits for the follower: only if it is in the ISR."""
    return follower.in_isr != 0


RULE = Rule(
    id="true-lag",
    in_force="reference",
    year=2016,
    source="KAFKA-4485",
    begin_term=begin_term,
    on_arrival=on_arrival,
    on_append=on_append,
    on_recorded=nothing,
    may_join=may_join,
    out_of_sync=out_of_sync,
    overdue_at_ms=overdue_at_ms,
    holds_high_watermark=holds_high_watermark,
    acts_in_quiet=never_acts,
    caught_up_by="arrival",
    no_lag_while=LACKS_NOTHING,
    checks_per_lag_time=CONTINUOUS,
)
