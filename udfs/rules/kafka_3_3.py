"""kafka-3.3: only a higher leader epoch resets a follower's state, and only eligible followers may join.

This rule was in force from 3.3.0 to 3.6.2. The leader updates what it knows about a follower as soon as it has read the
partition's log for the fetch; before 3.3, it first read the logs of all partitions in the request. Only a higher leader
epoch resets this knowledge. In 3.0 to 3.2 with KRaft, every change of the ISR gave all members a fresh lag time
(KAFKA-13790). A follower that is fenced or shutting down may not join (KIP-841). Since 3.5 with KRaft, a fetch that a
follower sent before its broker restarted does not let the follower join either (KIP-903; recorded fetches do not show
this). For each follower, the leader stores where its own log ended at the follower's previous fetch; in a term, this
stored offset never decreases.

With ZooKeeper no broker is fenced, and the leader only knows whether the follower's broker is alive. So the leader may
request an ISR with a broker that is shutting down. The controller refuses this request (KAFKA-14140), but the high
watermark waits for that follower until the response. In the replay, the leader knows which brokers are shutting down,
as with KRaft.

Known problem: up to 3.5.2 the high watermark waited for a caught-up follower outside the ISR even if the follower was
not allowed to join. So a broker that was shutting down could hold back the high watermark for a lag time (KAFKA-15021,
fixed in 3.6: parameter ``only_eligible_hold_high_watermark``). And while the ISR was under min.insync.replicas, the
high watermark still advanced, so that committed records could be lost if one broker failed.

With KRaft, every shrink began a new leader epoch (up to 3.5; since then, only with a metadata.version below 3.6). The
replay takes these terms from the brokers' logs; a shrink that only the replay makes begins no new term.

Source: Partition.fetchRecords, isReplicaIsrEligible, maybeIncrementLeaderHW, Replica.updateFetchState,
resetReplicaState of 3.3.2, 3.5.2, 3.6.2.
"""

from udfs.jit import kernel
from udfs.rules.base import (
    ADVANCE_HIGH_WATERMARK,
    NO_YES,
    NOTHING,
    TRY_TO_JOIN,
    Param,
    Rule,
    after_any_write,
    never_acts,
)


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader treats ISR members as caught up now, and other followers as never caught up (as in kafka-2.7).

    A new leader sets the log end offsets of all followers to unknown. A leader that stays the leader sets the time of
    the last fetch to now, but only for ISR members (before 3.3, for all followers).
    """
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
    """Update a follower's state with a successful fetch (unchanged in 3.3).

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
    """Record a successful fetch, and ignore a failed one. After a successful fetch, the follower may join.

    The high watermark may advance only if the fetch changed the follower's log end offset. New in 3.3: the stored log
    end of the leader at the follower's fetches never decreases.
    """
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
    """Whether the follower's log end is not the leader's, and it was not caught up within the lag time."""
    return (
        follower.log_end_offset != leader.log_end_offset
        and now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    )


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower is eligible (new in 3.3), and has all records below high watermark and epoch start."""
    return follower.eligible != 0 and follower.log_end_offset >= max(
        leader.high_watermark, leader.leader_epoch_start_offset
    )


@kernel
def caught_up(follower, leader, now_ms, params):
    """Whether the follower's log ends where the leader's does, or it was caught up within the lag time."""
    return (
        follower.log_end_offset == leader.log_end_offset
        or now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms
    )


@kernel
def eligible(follower):
    """Whether the follower is neither fenced nor shutting down, and has fetched from this leader (KIP-903)."""
    return follower.eligible != 0 and follower.log_end_offset >= 0


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Whether the high watermark waits for the follower: in the maximal ISR, or caught up (3.6: and eligible)."""
    return follower.in_maximal_isr != 0 or (
        caught_up(follower, leader, now_ms, params)
        and (params.only_eligible_hold_high_watermark == 0 or eligible(follower))
    )


RULE = Rule(
    id="kafka-3.3",
    in_force="3.3.0 - 3.6.2",
    year=2022,
    source="KAFKA-13790, KIP-841; 3.5: KIP-903; 3.6: KAFKA-15021",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    advances_on_commit=after_any_write,
    acts_in_quiet=never_acts,
    checks_per_lag_time=2,
    isr_write_in_background=True,
    knows_as="kafka-0.10.2",
    params={"only_eligible_hold_high_watermark": Param("true: 3.6.0 to 3.6.2", 0, NO_YES)},
)
