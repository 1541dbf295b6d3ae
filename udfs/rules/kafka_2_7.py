"""kafka-2.7: the leader requests a new ISR from the controller and goes on; it has one request in flight at a time.

This rule was in force from 2.7.0 to 3.2.3. KIP-497 moved ISR writes from the leader to the controller: the leader sends
a request (AlterIsr, since 3.2 AlterPartition) and gets the response later. The high watermark waits for the *maximal
ISR*. A joining replica is in the maximal ISR as soon as the leader sends the request, and a leaving replica is in it
until the response. While a request is in flight, the ISR neither expands nor shrinks. So a second replica that could
join does not join at its present fetch, but only at a later one. Clusters with inter.broker.protocol.version below
2.7-IV2 still write to ZooKeeper, as in kafka-2.1; an ingest does not read this setting.

Known problem: up to 3.0.2 the response did not move the high watermark. After a shrink, the high watermark therefore
stayed where it was until the next append, or until a fetch moved a follower's log end offset (KAFKA-13091, fixed in
3.1: parameter ``advances_on_commit``). With KRaft, a leader of 3.0 to 3.2 also forgot what it knew about its followers
at every ISR change, as at the start of a term (KAFKA-13790). The replay takes these changes from the brokers' logs. If
only the replay makes an ISR change, the leader forgets nothing. Two bugs of 2.7.0, 2.7.1 and 2.8.0 are not replayed: a
fetch whose log diverged from the leader's was recorded all the same, and a response with the current version of the ISR
left the request in flight.

Source: Partition.maybeExpandIsr, maybeShrinkIsr, sendAlterIsrRequest of 2.7.2; handleAlterIsrUpdate of
3.1.2.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NO_YES, NOTHING, TRY_TO_JOIN, Param, Rule, never_acts


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader treats ISR members as caught up now, and other followers as never caught up (as in kafka-2.1).

    A new leader sets the log end offsets of all followers to unknown, and the times of their last fetches to 0. A
    leader that stays the leader sets the time of every follower's last fetch to now.
    """
    follower.last_fetch_leader_log_end_offset = leader.log_end_offset
    follower.last_caught_up_time_ms = now_ms if in_isr else 0
    follower.last_fetch_time_ms = now_ms
    if leader_is_new:
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = 0


@kernel
def record_caught_up(follower, fetch):
    """Update a follower's state with a successful fetch (unchanged in 2.7).

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

    The high watermark may advance only if the fetch changed the follower's log end offset.
    """
    if fetch.error_code != 0:
        return NOTHING
    before = follower.log_end_offset
    record_caught_up(follower, fetch)
    follower.last_fetch_leader_log_end_offset = fetch.leader_log_end_offset
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
    """Whether the follower has every record below the high watermark and below the leader's epoch start."""
    return follower.log_end_offset >= max(leader.high_watermark, leader.leader_epoch_start_offset)


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Whether the high watermark waits for the follower: in the maximal ISR, or caught up within the lag time."""
    return follower.in_maximal_isr != 0 or now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms


@kernel
def advances_on_commit(expanding, params):
    """Whether the high watermark may advance when an ISR write is answered: as the parameter of this name says.

    Set it to true for the releases from 3.1 on.
    """
    return params.advances_on_commit != 0


RULE = Rule(
    id="kafka-2.7",
    in_force="2.7.0 - 3.2.3",
    year=2020,
    source="KIP-497; 3.1: KAFKA-13091",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    advances_on_commit=advances_on_commit,
    acts_in_quiet=never_acts,
    checks_per_lag_time=2,
    isr_write_in_background=True,
    knows_as="kafka-0.10.2",
    params={"advances_on_commit": Param("true: 3.1.0 to 3.2.3", 0, NO_YES)},
)
