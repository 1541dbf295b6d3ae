"""kafka-0.8: a follower is in sync if it has fetched within the lag time, and is not too many messages behind.

This rule was in force from 0.8.0 to 0.8.2.2. It is the first rule of Kafka, and has two limits: a follower that has not
fetched for replica.lag.time.max.ms is stuck, and a follower that is more than replica.lag.max.messages (4000) behind is
slow.

Known problem: after a batch of more than replica.lag.max.messages records, the next check drops every follower, however
fast the follower is. On a quiet partition, a follower may lack the same few records for days (KIP-16). A follower whose
fetches fail is never dropped. Such a follower is not stuck, because it fetches. It is never considered slow, because
the leader does not know its log end offset.

Two details differ in early releases. Up to 0.8.1.1 the leader took a follower's log end offset from the fetch request
before it read its own log for the fetch; the parameter ``recorded_before_read`` selects this behaviour. In 0.8.0 a
follower that lacks nothing was not considered stuck, even if it did not fetch; the parameter ``idle_followers_stay``
selects that behaviour.

isr-expiration, the task that checks the ISR, runs once per lag time (replica.lag.time.max.ms). These releases do not
keep a lastCaughtUpTimeMs. Whether a follower is stuck depends on the time of its last fetch, from whatever offset
(logEndOffsetUpdateTimeMs). So in the tables and below, a follower is considered caught up at each of its fetches:
last_caught_up_time_ms is the time of its last fetch, and lag_ms is the time since then.

Source: KafkaApis.handleFetchRequest of 0.8.0 and 0.8.1.1; ReplicaManager.readMessageSets,
Partition.getOutOfSyncReplicas of 0.8.2.2.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NEVER, NO_YES, NOTHING, TRY_TO_JOIN, Param, Rule


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader sets each follower's log end offset to unknown, and the time of its last fetch to now."""
    follower.log_end_offset = -1
    follower.last_caught_up_time_ms = now_ms


@kernel
def on_read(follower, leader, fetch, params):
    """Record the fetch before the leader reads its log, if ``recorded_before_read`` is set (up to 0.8.1.1)."""
    if params.recorded_before_read == 0:
        return NOTHING
    follower.log_end_offset = fetch.fetch_offset
    follower.last_caught_up_time_ms = fetch.handled_us // 1000
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK


@kernel
def on_recorded(follower, leader, fetch, params):
    """Record the fetch, unless `on_read` did. A failed fetch sets the follower's log end offset to unknown."""
    if params.recorded_before_read != 0:
        return NOTHING
    follower.log_end_offset = fetch.fetch_offset if fetch.error_code == 0 else -1
    follower.last_caught_up_time_ms = fetch.processed_us // 1000
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower has every record below the high watermark."""
    return follower.log_end_offset >= leader.high_watermark


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower is stuck (has not fetched within the lag time) or slow (is too many messages behind)."""
    stuck = now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    if params.idle_followers_stay != 0:
        stuck = stuck and follower.log_end_offset < leader.log_end_offset
    behind = leader.log_end_offset - follower.log_end_offset
    return stuck or (follower.log_end_offset >= 0 and behind > params.replica_lag_max_messages)


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Whether the high watermark waits for the follower: only if it is in the ISR."""
    return follower.in_isr != 0


@kernel
def acts_in_quiet(quiet, leader, params):
    """Whether a quiet stretch must be replayed: a follower may be slow in it, or ``recorded_before_read`` is set."""
    return quiet.most_behind_messages > params.replica_lag_max_messages or params.recorded_before_read != 0


RULE = Rule(
    id="kafka-0.8",
    in_force="0.8.0 - 0.8.2.2",
    year=2013,
    source="KAFKA-1097; 0.8.2: KAFKA-1555",
    begin_term=begin_term,
    on_read=on_read,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    acts_in_quiet=acts_in_quiet,
    caught_up_by="processed",
    no_lag_while=NEVER,
    checks_per_lag_time=1,
    params={
        "replica_lag_max_messages": Param("number of records; a follower that is further behind is slow", 4000),
        "recorded_before_read": Param("true: 0.8.0 to 0.8.1.1", 0, NO_YES),
        "idle_followers_stay": Param("true, with recorded_before_read: 0.8.0", 0, NO_YES),
    },
)
