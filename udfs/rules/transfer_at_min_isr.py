"""transfer-at-min-isr: as 3.7, but rather than shrink below min.insync.replicas the leader hands over.

In LinkedIn's fork since October 2022. A leader that is too busy to serve fetches within the lag time loses
all its followers at once, and producers are refused, though it is the leader that is slow. So a check that
would leave fewer than min.insync.replicas members asks the controller to make another member the leader.

As shipped, that is the first broker in the ISR, in sync or not. Since 2026 the fork recommends only one
that is in sync (parameter ``candidates=in-sync``); with min.insync.replicas = 2 there is none when it
matters, and the ISR stays as it is (no-shrink-under-min-isr).

What it fixes: partitions under min.insync.replicas through the leader's own fault.

What it breaks: if the followers are dead and not yet fenced, leadership goes to a dead broker. If the
trouble is everybody's it comes back; each transfer costs an election and the followers a lag time of grace.

The log goes on with the old leader, so the replay begins an epoch of this rule, as kip-501-relinquish does.

Source: linkedin/kafka pulls 390, 400 and 406; Partition.maybeTransferToNewLeader of its 3.x branches.
"""

from udfs.jit import kernel
from udfs.rules.base import (
    ADVANCE_HIGH_WATERMARK,
    GIVE_UP_LEADERSHIP,
    KEEP_ISR,
    NOTHING,
    SHRINK_ISR,
    TRY_TO_JOIN,
    Param,
    Rule,
    after_any_write,
    never_acts,
)

IN_SYNC = 1


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
    """A fetch that failed changes nothing; the leader's log end at the previous fetch never goes back."""
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
    """Its log does not end where the leader's does, and it was not caught up within the lag time."""
    return (
        follower.log_end_offset != leader.log_end_offset
        and now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    )


@kernel
def at_shrink(leader, remaining, params):
    """Rather than go under min.insync.replicas, hand over to another member; if none qualifies, all stay."""
    if remaining >= params.min_insync_replicas:
        return SHRINK_ISR
    return KEEP_ISR if params.candidates == IN_SYNC and remaining < 2 else GIVE_UP_LEADERSHIP


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


RULE = Rule(
    id="transfer-at-min-isr",
    in_force="elsewhere",
    year=2022,
    source="linkedin/kafka pull 406",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    at_shrink=at_shrink,
    holds_high_watermark=holds_high_watermark,
    may_advance=may_advance,
    advances_on_commit=after_any_write,
    acts_in_quiet=never_acts,
    checks_per_lag_time=2,
    isr_write_in_background=True,
    params={
        "candidates": Param("who may take over: any member of the ISR, one that is in sync", 0, ("isr", "in-sync")),
    },
)
