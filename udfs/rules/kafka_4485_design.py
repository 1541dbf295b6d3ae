"""kafka-4485-design: in sync is whoever lags by no more than the lag time and has all that is committed.

Proposed in KAFKA-4485; what shipped as kafka-0.10.2 is the same idea with a periodic check. Lag is the
time since the follower was last caught up. The pseudo-ISR is every replica whose lag is at most the lag
time; the high watermark is the least log end of the pseudo-ISR, and never moves back; the ISR is who is
in the pseudo-ISR and has reached the high watermark. All of it holds at every instant: there is no
check to wait for.

It guarantees that a follower within the lag time is waited for until it has joined, that one beyond it
leaves at once, that the high watermark never decreases, and that every member of the ISR has reached it.

What it breaks: as kafka-0.10.2, it counts the time since the last fetch against followers of idle
partitions (KAFKA-7152), and leaving at the very instant, it does not forgive what a check would have missed.

The design is silent on a position that is not known yet. It counts as not behind, or every election
would empty the ISR.

Source: KAFKA-4485, description and its four guarantees.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, CONTINUOUS, NEVER, NOTHING, TRY_TO_JOIN, Rule, never_acts


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """Members of the ISR count as caught up now, others as never; a new leader knows nobody's position."""
    follower.last_fetch_leader_log_end_offset = leader.log_end_offset
    follower.last_caught_up_time_ms = now_ms if in_isr else 0
    follower.last_fetch_time_ms = now_ms
    if leader_is_new:
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = 0


@kernel
def record_caught_up(follower, fetch):
    """Update the state of a follower by a fetch that was read without error.

    A fetch from the leader's log end proves that the follower is caught up now. A fetch from what was the
    log end at its previous fetch proves that it was caught up then. The time never goes back.
    """
    if fetch.fetch_offset >= fetch.leader_log_end_offset:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, fetch.handled_us // 1000)
    elif fetch.fetch_offset >= follower.last_fetch_leader_log_end_offset:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, follower.last_fetch_time_ms)
    follower.log_end_offset = fetch.fetch_offset
    follower.last_fetch_time_ms = fetch.handled_us // 1000


@kernel
def on_recorded(follower, leader, fetch, params):
    """A fetch that failed changes nothing."""
    if fetch.error_code != 0:
        return NOTHING
    record_caught_up(follower, fetch)
    follower.last_fetch_leader_log_end_offset = fetch.leader_log_end_offset
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK


@kernel
def in_pseudo_isr(follower, now_ms, params):
    """Its lag is at most the lag time."""
    return now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms


@kernel
def overdue_at_ms(follower, leader, fetch, params):
    """Now if it lacks something that is committed, else the first millisecond beyond the lag time."""
    if follower.in_isr != 0 and 0 <= follower.log_end_offset < leader.high_watermark:
        return 0
    return follower.last_caught_up_time_ms + params.replica_lag_time_max_ms + 1


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """It left the pseudo-ISR, or its log became shorter than what is committed."""
    return now_ms >= overdue_at_ms(follower, leader, fetch, params)


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """In the pseudo-ISR, and it has all that is committed."""
    return in_pseudo_isr(follower, now_ms, params) and follower.log_end_offset >= leader.high_watermark


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """The high watermark waits for the pseudo-ISR."""
    return in_pseudo_isr(follower, now_ms, params)


RULE = Rule(
    id="kafka-4485-design",
    in_force="proposed",
    year=2016,
    source="KAFKA-4485",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    overdue_at_ms=overdue_at_ms,
    holds_high_watermark=holds_high_watermark,
    acts_in_quiet=never_acts,
    no_lag_while=NEVER,
    checks_per_lag_time=CONTINUOUS,
)
