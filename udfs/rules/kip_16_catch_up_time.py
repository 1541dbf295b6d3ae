"""kip-16-catch-up-time: a follower is in sync if, at the pace it keeps, it would catch up within the lag time.

KIP-16 considered this rule, and rejected it in favour of the rule that became kafka-0.9. At each fetch, the leader
estimates how long the follower will need to catch up: the number of records that the follower is behind, divided by the
number of records that it received per unit of time between its last two fetches. At the log end, the estimate is 0.

Benefit: a follower is not dropped for a burst that it reads without delay, or for being always one batch behind.

Drawback: past throughput does not predict the future. A follower that is about to fail looks fast until its next fetch.
A single slow fetch after a pause makes a healthy follower look slow. A fetch that does not advance yields no new
estimate, so the previous estimate is kept.

In the tables, last_caught_up_time_ms is the time of the fetch minus the estimate. So lag_ms, which the rule compares
with the lag time, is the estimate plus the time since the fetch, also after a fetch from the log end.

Source: KIP-16, rejected alternatives.
"""

import numpy as np

from udfs.jit import kernel
from udfs.records import UNKNOWN
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, TRY_TO_JOIN
from udfs.rules.kafka_0_9 import RULE as KAFKA_0_9

LONGEST_MS = 2.0**40


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader treats ISR members as caught up now and others as never caught up, and forgets followers' pace."""
    if leader_is_new:
        follower.log_end_offset = -1
    follower.last_fetch_time_ms = UNKNOWN
    follower.last_caught_up_time_ms = now_ms if in_isr else 0


@kernel
def on_recorded(follower, leader, fetch, params):
    """Estimate the time to catch up from the last two fetches. Set last_caught_up_time_ms to the fetch time minus it.

    A fetch from the log end needs no time. A failed fetch sets the follower's log end offset and pace to unknown.
    """
    now_ms = fetch.handled_us // 1000
    if fetch.error_code != 0:
        follower.log_end_offset = -1
        follower.last_fetch_time_ms = UNKNOWN
        return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK
    behind = fetch.leader_log_end_offset - fetch.fetch_offset
    moved = fetch.fetch_offset - follower.log_end_offset
    if behind <= 0:
        follower.last_caught_up_time_ms = now_ms
    elif follower.last_fetch_time_ms != UNKNOWN and moved > 0:
        estimate_ms = behind / moved * max(0, now_ms - follower.last_fetch_time_ms)
        follower.last_caught_up_time_ms = now_ms - np.int64(min(estimate_ms, LONGEST_MS))
    follower.log_end_offset = fetch.fetch_offset
    follower.last_fetch_time_ms = now_ms
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK


@kernel
def acts_in_quiet(quiet, leader, params):
    """Whether an estimate, plus the time since the follower was at the log end, may have reached the lag time."""
    return quiet.longest_behind_us // 1000 + quiet.longest_catch_up_ms >= params.replica_lag_time_max_ms


RULE = KAFKA_0_9.but(
    id="kip-16-catch-up-time",
    in_force="rejected",
    year=2015,
    source="KIP-16",
    begin_term=begin_term,
    on_recorded=on_recorded,
    acts_in_quiet=acts_in_quiet,
    caught_up_by="handled",
)
