"""leader-health: as 3.7, but a leader that is slow itself gives its followers more time.

Nobody has proposed it for Kafka. Lifeguard, which memberlist and so Consul and Nomad ship, does it for
SWIM: a member that answers late must not call others late. It keeps a counter, local health multiplier: one up
when something of its own went wrong, one down when all went well, from 0 to 8. Timeouts are
multiplied by it plus one.

Here the signs are the leader's own work on fetches: queue, local work, response queue, sending, as in
kip-501-relinquish; the wait for data does not count. A fetch that took more than 500 ms is one up, any other
one down. A check that runs more than 500 ms after it was due, since the leader was stopped, counts as
one more: it is the first thing that a leader does when it wakes up.

What it fixes: shrinks in and right after the leader's own trouble.

What it breaks: dead followers are found later while the leader is in trouble, by up to eight lag times,
and for so long acks=all waits. A pause longer than two lag times still drops everybody.

Source: Dadgar, Phillips, Currey, "Lifeguard", 2018; memberlist awareness.go, ApplyDelta, ScaleTimeout.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NOTHING, TRY_TO_JOIN, Param, Rule, after_any_write


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """As 3.7; a term begins in good health."""
    leader.health_multiplier = 0
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
def on_completed(follower, leader, fetch, params):
    """A fetch that the leader held too long counts against its health, a prompt one for it."""
    until_recorded_us = min(fetch.processed_us, fetch.completed_us) - fetch.arrival_us
    held_us = until_recorded_us + max(0, fetch.completed_us - fetch.released_us)
    if held_us > params.prompt_ms * 1000:
        leader.health_multiplier = min(leader.health_multiplier + 1, params.most_lateness)
    else:
        leader.health_multiplier = max(leader.health_multiplier - 1, 0)
    return NOTHING


@kernel
def stretched_lag_time_ms(leader, now_ms, params):
    """The lag time, once more for each step of bad health, and for a check that runs late."""
    late = now_ms - leader.check_due_us // 1000 > params.prompt_ms
    return params.replica_lag_time_max_ms * (1 + min(leader.health_multiplier + late, params.most_lateness))


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """It lacks something, and was not caught up within the stretched lag time."""
    return (
        follower.log_end_offset != leader.log_end_offset
        and now_ms - follower.last_caught_up_time_ms > stretched_lag_time_ms(leader, now_ms, params)
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
    """The leader is not in good health, or a fetch was not prompt."""
    return leader.health_multiplier != 0 or quiet.longest_held_us > params.prompt_ms * 1000


RULE = Rule(
    id="leader-health",
    in_force="elsewhere",
    year=2018,
    source="Lifeguard, hashicorp/memberlist",
    begin_term=begin_term,
    on_recorded=on_recorded,
    on_completed=on_completed,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    may_advance=may_advance,
    advances_on_commit=after_any_write,
    acts_in_quiet=acts_in_quiet,
    checks_per_lag_time=2,
    isr_write_in_background=True,
    params={
        "prompt_ms": Param("longest time in the leader's hands of a prompt fetch, and of a prompt check", 500),
        "most_lateness": Param("the lag time is stretched by at most so many lag times", 8),
    },
)
