"""kip-501-pending: as 3.7, but a follower whose fetch the leader has not answered yet stays in sync.

Proposed in KIP-501 (solution 1, follower.fetch.pending.reads.insync.enable). A fetch is pending if it
asks for no less than the leader's log end at the previous fetch. It is so from when an io thread takes it
until it is answered, wait for data included, and then the follower counts as caught up at the time of
the answer, not of the fetch.

What it fixes: a leader that is slow to read its log no longer drops the followers that wait for it.

What it does not: a fetch that lies in the request queue is not pending yet, and a leader that was stopped
has not even read it from the socket. Parameter ``pending_from`` = arrival counts the queue too.

The proposal speaks of dropping a follower only: who may join, and whom the high watermark waits for, is as
in 3.7. At a follower's first fetch in a term there is no previous one, so it must be at the log end.

Source: KIP-501, solution 1.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NOTHING, SHOW, TRY_TO_JOIN, Param, Rule, after_any_write

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
def acts_in_quiet(quiet, leader, params):
    """What is pending by the other reading hangs on the log end at each arrival."""
    return params.pending_from == ARRIVAL


RULE = Rule(
    id="kip-501-pending",
    in_force="proposed",
    year=2019,
    source="KIP-501, solution 1",
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
    params={
        "pending_from": Param(
            "from when on a fetch is pending: an io thread takes it, it arrives", 0, ("handled", "arrival")
        )
    },
)
