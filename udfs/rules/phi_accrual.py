"""phi-accrual: as 3.7, but a follower is dropped only if it is silent for suspiciously long as well.

Nobody has proposed it for Kafka. The phi accrual detector gives no verdict but a suspicion: phi is minus
the logarithm of how likely a gap between heartbeats as long as the present silence is, judged by the gaps
before. Cassandra convicts a node at phi 8, a chance of one in a hundred million. Here a fetch is a heartbeat.

It says "silent", not "behind". So it is combined with the lag time: a shrink needs both. With the parameter
``silence_is=enough`` either will do, which finds a dead follower earlier: after 9.2 s at a mean of 500 ms.

What it fixes: the time allowed grows with what is usual here. A slow leader, whose followers can fetch only
every few seconds, drops them no more.

What it breaks: a follower that fetches and never catches up stays for good, and acks=all waits for it.
A leader that stops takes its own pause for the silence of all.

Gaps are taken as exponential, as Cassandra does; the paper and Akka take them as normal. Their mean is
the leader's memory of a term: a busy follower's is no less than the wait of an idle one.

Source: Hayashibara et al., "The phi accrual failure detector", 2004; Cassandra, gms/FailureDetector.java.
"""

import math

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NOTHING, TRY_TO_JOIN, Param, Rule, after_any_write

LOG10_E = 1 / math.log(10)
ENOUGH = 1


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """As 3.7; how long the follower's gaps are is learned anew."""
    follower.fetch_gaps = 0
    follower.fetch_gaps_ms = 0
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
def record_gap(follower, fetch, params):
    """Take the time since the fetch before into the mean; when it is full, a gap of mean length goes."""
    if follower.last_fetch_time_ms <= 0:
        return
    if follower.fetch_gaps >= params.gaps_remembered:
        follower.fetch_gaps_ms -= follower.fetch_gaps_ms // follower.fetch_gaps
        follower.fetch_gaps -= 1
    follower.fetch_gaps += 1
    follower.fetch_gaps_ms += max(0, fetch.handled_us // 1000 - follower.last_fetch_time_ms)


@kernel
def on_recorded(follower, leader, fetch, params):
    """As 3.7, and the gap before this fetch is remembered."""
    if fetch.error_code != 0:
        return NOTHING
    before = follower.log_end_offset
    record_gap(follower, fetch, params)
    record_caught_up(follower, fetch)
    follower.last_fetch_leader_log_end_offset = max(
        follower.last_fetch_leader_log_end_offset, fetch.leader_log_end_offset
    )
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK if follower.log_end_offset != before else TRY_TO_JOIN


@kernel
def suspicion(follower, now_ms, params):
    """Phi: minus log10 of how likely a gap as long as the present silence is, if gaps are exponential."""
    silent_ms = now_ms - max(follower.last_fetch_time_ms, follower.last_caught_up_time_ms)
    mean_ms = follower.fetch_gaps_ms / follower.fetch_gaps if follower.fetch_gaps > 0 else 0.0
    return silent_ms / max(mean_ms, params.least_mean_gap_ms) * LOG10_E


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """It lacks something; it is silent, and was not caught up within the lag time (or either is enough)."""
    silent = suspicion(follower, now_ms, params) > params.phi_threshold
    behind = now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    if params.silence_is == ENOUGH:
        return follower.log_end_offset != leader.log_end_offset and (silent or behind)
    return follower.log_end_offset != leader.log_end_offset and silent and behind


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
    id="phi-accrual",
    in_force="elsewhere",
    year=2004,
    source="Hayashibara et al., Apache Cassandra",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    may_advance=may_advance,
    advances_on_commit=after_any_write,
    checks_per_lag_time=2,
    isr_write_in_background=True,
    params={
        "phi_threshold": Param("suspicion from which on a follower counts as silent", 8),
        "silence_is": Param("for a shrink, besides being behind or in place of it", 0, ("needed", "enough")),
        "least_mean_gap_ms": Param("a shorter mean counts as this: the wait for data of an idle fetch", 500, least=1),
        "gaps_remembered": Param("so many gaps between fetches make the mean", 1000, least=1),
    },
)
