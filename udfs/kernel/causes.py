"""Determine why a rule dropped a follower: all causes that apply, as bits. The first of them is the primary cause.

Causes of spurious shrinks come first, each from the JIRA issue or KIP that describes it: the follower lacks nothing
(KAFKA-7152), keeps pace (KAFKA-4485), was kept waiting by its leader (KIP-501), or lacks no acknowledged record
(KAFKA-10853). Causes of other shrinks follow.

Two causes require that the follower is alive: that it keeps pace, and that it lacks no acknowledged record. If no fetch
arrived from the follower for the lag time, the follower or its leader has stopped (docs/verdicts.md).
"""

import numpy as np

from udfs.jit import kernel
from udfs.kernel.excuses import HEARD, IN_FLIGHT_US, UNHEARD
from udfs.kernel.follower_truth import settle_truth, true_lag_us
from udfs.kernel.ledger_page import ledger_known_from_us
from udfs.records import NEVER_US

CAUSES = (
    "caught_up",
    "keeping_pace",
    "slow_leader",
    "unacked_only",
    "controller",
    "follower_stopped",
    "follower_slow",
    "unknown",
)
SPURIOUS = CAUSES[:4]
VERDICT_OF_CAUSE = {
    **dict.fromkeys(SPURIOUS, "spurious"),
    "controller": "excluded",
    "follower_stopped": "genuine",
    "follower_slow": "genuine",
    "unknown": "unknown",
}
CAUGHT_UP, KEEPING_PACE, SLOW_LEADER, UNACKED_ONLY, CONTROLLER, FOLLOWER_STOPPED, FOLLOWER_SLOW, UNKNOWN = (
    np.int64(1 << i) for i in range(len(CAUSES))
)

ORDINARY_WORK = 10
"""A leader is to blame for a shrink (cause SLOW_LEADER) only if it delayed the follower's fetches for more than
1/ORDINARY_WORK of the lag time."""


NO_ARRIVAL_US = -1
"""Value of ``last_arrival_us`` for a follower that has not fetched in this term."""

CADENCES_A_LAG_TIME = 3
"""Minimum number of logged fetches per lag time that can show that a follower has stopped."""


@kernel
def _acknowledged_without(state, r, p):
    """Return the offset up to which records would be acknowledged if follower ``p`` were not in the ISR."""
    leader, term = state.leaders[r], state.term[0]
    end = leader.log_end_offset
    for other in range(term.replicas):
        if other not in (p, term.leader) and leader.isr >> other & 1:
            end = min(end, state.fetches[other].log_end_offset)
    return max(end, leader.high_watermark, leader.acknowledged_offset)


@kernel
def _may_depend_on_earlier(state, r, p, now_us):
    """Whether a rule run's decision on follower ``p`` may depend on fetches from before the log begins."""
    follower, term = state.followers[r, p], state.term[0]
    shown = follower.last_caught_up_time_ms > term.start_us // 1000
    return not shown and now_us < ledger_known_from_us(term, state.params[r])


@kernel
def _is_shrink_explained(fetch, held_us, lag_time_us, now_us):
    """Whether the leader's delay explains the shrink: without ``held_us``, the follower would still be in sync.

    Delays of at most 1/ORDINARY_WORK of the lag time explain nothing.
    """
    return held_us * ORDINARY_WORK > lag_time_us and now_us - fetch.since_us - held_us <= lag_time_us


@kernel
def _has_stopped(fetch, lag_time_us, now_us):
    """Return the cause FOLLOWER_STOPPED, or UNKNOWN if the log contains too few fetches of the follower to show it."""
    thin = now_us < fetch.thin_until_us and fetch.cadence_us * CADENCES_A_LAG_TIME > lag_time_us
    return UNKNOWN if thin else FOLLOWER_STOPPED


@kernel
def causes_of_shrink(state, r, p, now_us):
    """Return why rule run ``r`` drops follower ``p`` at ``now_us``: bit i is set if CAUSES[i] applies."""
    fetch, term = state.fetches[p], state.term[0]
    settle_truth(fetch, term, now_us)
    lag_time_us = state.params[r].replica_lag_time_max_ms * 1000
    if term.ends_mid_term != 0 and now_us > term.end_us - IN_FLIGHT_US:
        return UNKNOWN
    if term.begins_mid_term != 0 and _may_depend_on_earlier(state, r, p, now_us):
        return UNKNOWN
    alive = fetch.last_arrival_us > max(now_us - lag_time_us, NO_ARRIVAL_US)
    if fetch.log_end_offset < 0:
        # The follower has not fetched in this term, which is evidence only after the lag time.
        return _has_stopped(fetch, lag_time_us, now_us) if now_us - term.start_us > lag_time_us else UNKNOWN
    causes = 0
    if fetch.missing_since_us == NEVER_US:
        causes |= CAUGHT_UP
    if alive and true_lag_us(fetch, now_us) <= lag_time_us:
        causes |= KEEPING_PACE
    held_us = fetch.held_us + fetch.silent_us
    if _is_shrink_explained(fetch, held_us, lag_time_us, now_us):
        causes |= SLOW_LEADER
    if alive and _acknowledged_without(state, r, p) <= fetch.log_end_offset:
        causes |= UNACKED_ONLY
    if term.begins_mid_term != 0 and fetch.caught_us <= term.start_us and causes & CAUGHT_UP == 0:
        # It is unknown since when the follower lacks a record, so causes that depend on that time cannot be decided.
        if causes & (KEEPING_PACE | SLOW_LEADER) != 0:
            return UNKNOWN
    if causes == 0:
        if _is_shrink_explained(fetch, held_us + fetch.idle_us, lag_time_us, now_us):
            return UNKNOWN
        return FOLLOWER_SLOW if alive else _has_stopped(fetch, lag_time_us, now_us)
    return causes


@kernel
def excused_by(causes):
    """Return the value of a follower's field ``excused`` (see `excuses`) after a shrink with these causes (bits).

    It is 0 if the shrink is not spurious, HEARD if the leader is to blame, and UNHEARD for other spurious shrinks.
    """
    if causes & (CAUGHT_UP | KEEPING_PACE | SLOW_LEADER | UNACKED_ONLY) == 0:
        return np.int64(0)
    return HEARD if causes & SLOW_LEADER != 0 else UNHEARD
