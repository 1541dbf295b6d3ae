"""kafka-4485-design: a follower is in sync if it lags by no more than the lag time and has every committed record.

KAFKA-4485 proposes this rule; the released rule kafka-0.10.2 is the same idea with a periodic check. Lag is the time
since the follower was last caught up. The pseudo-ISR consists of all replicas whose lag is at most the lag time. The
high watermark is the lowest log end in the pseudo-ISR, and never moves back. The ISR consists of those members of the
pseudo-ISR that have reached the high watermark. Both sets are determined at every instant, without a periodic check.

The rule makes four guarantees. The high watermark waits for each follower that lags by at most the lag time, even
before the follower has joined the ISR. A follower that lags by more leaves at once. The high watermark never decreases.
Every member of the ISR has reached the high watermark.

Drawback: like kafka-0.10.2, the rule counts the time since the last fetch against followers of idle partitions
(KAFKA-7152). Also, the rule drops a follower whose lag exceeds the lag time only briefly. A periodic check would miss
such a lag.

The rule follows the final text of the issue, in which two kinds of fetches show that a follower is caught up. A fetch
from the present log end shows that the follower is caught up now. A fetch from what was the log end at the previous
fetch shows that it was caught up at that previous fetch. Before its last edit, the text had only the second kind; the
parameter ``caught_up_by`` = previous-only selects that version. Under the earlier text, a follower leaves the ISR at
the same time or sooner, joins at the same time or later, and needs two fetches to rejoin after a pause.

The design does not define the lag of a follower whose log end offset is not known yet. Here such a follower is not
considered behind; otherwise every election would empty the ISR.

Source: KAFKA-4485, description and its four guarantees.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, CONTINUOUS, NEVER, NOTHING, TRY_TO_JOIN, Param, Rule
from udfs.rules.kafka_0_10_2 import begin_term, record_caught_up

PREVIOUS_ONLY = 1


@kernel
def on_recorded(follower, leader, fetch, params):
    """Record a successful fetch, after which the follower may join and the high watermark advance. Ignore a failed one.

    With ``caught_up_by`` = previous-only, a fetch can only show that the follower was caught up at its previous fetch.
    """
    if fetch.error_code != 0:
        return NOTHING
    by_previous_ms = follower.last_caught_up_time_ms
    if fetch.fetch_offset >= follower.last_fetch_leader_log_end_offset:
        by_previous_ms = max(by_previous_ms, follower.last_fetch_time_ms)
    record_caught_up(follower, fetch)
    if params.caught_up_by == PREVIOUS_ONLY:
        follower.last_caught_up_time_ms = by_previous_ms
    follower.last_fetch_leader_log_end_offset = fetch.leader_log_end_offset
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK


@kernel
def in_pseudo_isr(follower, now_ms, params):
    """Whether the follower is in the pseudo-ISR: its lag is at most the lag time."""
    return now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms


@kernel
def overdue_at_ms(follower, leader, fetch, params):
    """Return the first millisecond at which the follower is out of sync if it does not fetch before.

    The result is 0 (out of sync already) if the follower is in the ISR and lacks a committed record.
    """
    if follower.in_isr != 0 and 0 <= follower.log_end_offset < leader.high_watermark:
        return 0
    return follower.last_caught_up_time_ms + params.replica_lag_time_max_ms + 1


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower's lag exceeds the lag time, or it is in the ISR without every committed record.

    A member can lack committed records if its log was truncated below the high watermark.
    """
    return now_ms >= overdue_at_ms(follower, leader, fetch, params)


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower has every committed record, and a lag of at most the lag time (it is in the pseudo-ISR)."""
    return in_pseudo_isr(follower, now_ms, params) and follower.log_end_offset >= leader.high_watermark


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Whether the high watermark waits for the follower: only if it is in the pseudo-ISR."""
    return in_pseudo_isr(follower, now_ms, params)


@kernel
def acts_in_quiet(quiet, leader, params):
    """Whether ``caught_up_by`` is previous-only, in which case the replay must not skip quiet stretches of the log."""
    return params.caught_up_by == PREVIOUS_ONLY


RULE = Rule(
    id="kafka-4485-design",
    in_force="proposed",
    year=2016,
    source="KAFKA-4485",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    overdue_at_ms=overdue_at_ms,
    holds_high_watermark=holds_high_watermark,
    acts_in_quiet=acts_in_quiet,
    no_lag_while=NEVER,
    checks_per_lag_time=CONTINUOUS,
    params={
        "caught_up_by": Param(
            "fetches that show a follower caught up: from the log end, now or at the previous fetch; "
            "or only the latter",
            0,
            ("log-end-or-previous", "previous-only"),
        )
    },
)
