"""kip-501-relinquish: as kip-501-pending, and a leader that takes too long over a fetch gives up leadership.

Proposed in KIP-501 (solution 2, follower.fetch.process.time.max.ms = 500). What counts is the time that
the request spends in the leader's hands: queue, local work, response queue, sending. The leader gives
up at the instant at which that passes the limit, and moves to the end of the ISR, whose next member
takes over. With nobody else in the ISR it stays.

What it fixes: requests that pile up in the queue of a slow leader, where they are not pending yet.

What it breaks: leadership thrashes if the trouble moves on, or is everybody's. Counting the wait for data
as well (parameter ``count_long_poll``) would give up leadership at every idle fetch.

The log goes on with the old leader, so the replay does: it begins an epoch of this rule with the current
ISR, as a new leader would, and counts. Fetches that were under way by then give nothing up.

Source: KIP-501, solution 2.
"""

from udfs.jit import kernel
from udfs.records import NEVER_US
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NO_YES, NOTHING, SHOW, TRY_TO_JOIN, Param, Rule, after_any_write

HANDLED, ARRIVAL = 0, 1


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """Members of the ISR count as caught up now, others as never; a new leader knows nobody's position."""
    follower.last_caught_up_time_ms = now_ms if in_isr else 0
    if leader_is_new:
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = 0
    else:
        follower.last_fetch_leader_log_end_offset = leader.log_end_offset
        follower.last_fetch_time_ms = now_ms if in_isr else 0


@kernel
def begin_pending(follower, fetch, leader_log_end_offset):
    """A fetch is pending if it is at the log end, or at that of the previous fetch."""
    previous = follower.last_fetch_leader_log_end_offset
    follower.pending_fetch = fetch.error_code == 0 and (
        fetch.fetch_offset >= leader_log_end_offset or (previous >= 0 and fetch.fetch_offset >= previous)
    )


@kernel
def on_arrival(follower, leader, fetch, params):
    """Only the other reading of the proposal looks at the socket."""
    follower.pending_fetch = 0
    if params.pending_from == ARRIVAL:
        begin_pending(follower, fetch, leader.log_end_offset)
    return NOTHING


@kernel
def on_read(follower, leader, fetch, params):
    """An io thread has taken the request."""
    if params.pending_from == HANDLED:
        begin_pending(follower, fetch, fetch.leader_log_end_offset)
    return NOTHING


@kernel
def on_recorded(follower, leader, fetch, params):
    """As 3.7, but when it was caught up is settled by the answer."""
    if fetch.error_code != 0:
        return NOTHING
    before = follower.log_end_offset
    follower.log_end_offset = fetch.fetch_offset
    follower.last_fetch_leader_log_end_offset = max(
        follower.last_fetch_leader_log_end_offset, fetch.leader_log_end_offset
    )
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK if follower.log_end_offset != before else TRY_TO_JOIN


@kernel
def on_completed(follower, leader, fetch, params):
    """A pending fetch is answered: caught up now."""
    if follower.pending_fetch == 0:
        return NOTHING
    follower.pending_fetch = 0
    follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, fetch.completed_us // 1000)
    return SHOW


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """None of its fetches is pending, it lacks something, and was not caught up within the lag time."""
    return (
        follower.pending_fetch == 0
        and follower.log_end_offset != leader.log_end_offset
        and now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    )


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """It is eligible, and has everything below the high watermark and the start of the leader's epoch."""
    return follower.eligible != 0 and follower.log_end_offset >= max(
        leader.high_watermark, leader.leader_epoch_start_offset
    )


@kernel
def caught_up(follower, leader, now_ms, params):
    """Its log ends where the leader's does, or it was caught up within the lag time."""
    return (
        follower.log_end_offset == leader.log_end_offset
        or now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms
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


@kernel
def gives_up_at_us(fetch, params):
    """When the time in the leader's hands reaches the limit, if it does before the answer."""
    limit_us = params.follower_fetch_process_time_max_ms * 1000
    if params.count_long_poll != 0:
        return fetch.arrival_us + limit_us if fetch.completed_us - fetch.arrival_us > limit_us else NEVER_US
    until_recorded_us = fetch.processed_us - fetch.arrival_us
    if until_recorded_us > limit_us:
        return fetch.arrival_us + limit_us
    if until_recorded_us + max(0, fetch.completed_us - fetch.released_us) > limit_us:
        return fetch.released_us + limit_us - until_recorded_us
    return NEVER_US


@kernel
def acts_in_quiet(quiet, leader, params):
    """A fetch may have taken too long; what is pending by the other reading hangs on the log end at each arrival."""
    longest_us = quiet.longest_fetch_us if params.count_long_poll != 0 else quiet.longest_held_us
    return longest_us > params.follower_fetch_process_time_max_ms * 1000 or params.pending_from == ARRIVAL


RULE = Rule(
    id="kip-501-relinquish",
    in_force="proposed",
    year=2019,
    source="KIP-501, solution 2",
    begin_term=begin_term,
    on_arrival=on_arrival,
    on_read=on_read,
    on_recorded=on_recorded,
    on_completed=on_completed,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    may_advance=may_advance,
    advances_on_commit=after_any_write,
    acts_in_quiet=acts_in_quiet,
    caught_up_by="completed",
    checks_per_lag_time=2,
    isr_write_in_background=True,
    gives_up_at_us=gives_up_at_us,
    params={
        "pending_from": Param(
            "from when on a fetch is pending: an io thread takes it, it arrives", 0, ("handled", "arrival")
        ),
        "follower_fetch_process_time_max_ms": Param("longest that the leader may take over a fetch", 500, least=1),
        "count_long_poll": Param("true: the wait for data counts too", 0, NO_YES),
    },
)
