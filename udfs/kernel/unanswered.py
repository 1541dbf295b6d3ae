"""Measure for how long an acks=all request would have to wait, at every instant, whether a producer sends one or not.

Requests of the log do not show this, because producers whose requests are not answered stop sending. An instant counts
if a request that was sent a second (or 30 s) before would still be unanswered. Requests are answered in the order in
which they are sent, so the time up to which they are answered is enough: the least ``had_until_us`` of the followers
in the ISR. It never moves back. Where it jumps at an instant, the requests in between are answered at that instant.
This gives the histogram of latency over time: in each bucket, for how many microseconds requests would be sent that
wait so long. They count on the day on which they are answered.

Waits of up to a second are in one bucket. A fetch may wait for data up to replica.fetch.wait.max.ms, a request would
end that wait, and the log does not show when. And only longer waits make ``settle_waits`` necessary at a fetch.

A follower has what the leader had appended until ``had_until_us``, or would have appended: the answer to a fetch could
contain everything until the leader read its log for it, or until its wait for data ended. The follower's next fetch
shows that it has these records. A follower that died while it had every record is not dropped before something is
appended. But a request would append a record. So a check ends the waits for a follower that it would drop if one more
record were in the log.

No request waits while the ISR is smaller than min.insync.replicas, because it would be refused: this is
``under_min_isr_us``. No follower is waited for in time without known fetches (IDLE, THIN). Followers outside the ISR
are not waited for, although some releases let the high watermark wait for them for up to a lag time.
"""

from udfs.jit import inlined, kernel
from udfs.kernel.ack_latency import end_of_latency_bucket_us, latency_bucket
from udfs.kernel.active_runs import active_run
from udfs.kernel.ledger_page import (
    ACKS_ALL_UNANSWERED_US,
    ACKS_ALL_WAIT_MAX_US,
    ACKS_ALL_WAIT_UNKNOWN_US,
    ACKS_ALL_WAITS_1S_SILENT_US,
    ACKS_ALL_WAITS_1S_US,
    ACKS_ALL_WAITS_30S_US,
    ANSWERED_US,
    EXPOSURE_US,
    UNDER_MIN_ISR_US,
    WAITED_UNTIL_US,
    WAITS,
    ledger_known_from_us,
)
from udfs.kernel.rule_calls import ACKNOWLEDGE_EARLY, RULES, acknowledged_end, outvoted, rule_bits
from udfs.records import FIRST_SLOW_BUCKET, NEVER_US, UNKNOWN, WAIT_BUCKETS
from udfs.rules.base import LACKS_NOTHING, never_outvoted

SECOND_US = 1_000_000
TIMEOUT_US = 30_000_000
"""Default of the producers' request.timeout.ms, in microseconds."""
OUTVOTE = rule_bits(rule.outvoted is not never_outvoted for rule in RULES)
"""The rules (as bits) under which a request waits for a quorum of all replicas instead of the ISR."""
DROP_BY_TRUE_LAG = rule_bits(rule.no_lag_while == LACKS_NOTHING for rule in RULES)
"""The rules (as bits) that drop a follower that lacks a record for longer than the lag time, even if it fetches."""


@inlined
def note_fetch_in_answer(fetch):
    """Set ``answer_until_us``: the answer to the last fetch contained all appends up to this time.

    Called when the next fetch arrives, which shows that the follower received the answer.
    """
    until_us = fetch.released_us if fetch.released_us > fetch.processed_us else fetch.handled_us
    fetch.answer_until_us = max(fetch.answer_until_us, min(until_us, fetch.completed_us))


@inlined
def note_read_for_waits(follower, log_end, now_us):
    """Set ``shows_until_us``: a fetch in a quiet stretch shows that the follower has all appends up to this time.

    Called when the leader reads its log for the fetch. If the fetch is from the log end, the time is exact. If not, the
    follower may also have later appends.
    """
    if follower.offset >= log_end:
        follower.shows_until_us = follower.answer_until_us
    elif follower.offset >= follower.read_log_end:
        follower.shows_until_us = max(follower.had_until_us, min(follower.answer_until_us, follower.read_us))
    follower.read_us, follower.read_log_end = now_us, log_end


@inlined
def note_what_it_had(state, p, now_us):
    """Set ``had_until_us``: follower ``p`` has all appends up to this time. Called when a fetch of it is recorded."""
    fetch = state.fetches[p]
    if fetch.error_code == 0:
        until_us = min(fetch.answer_until_us, fetch.missing_since_us)
        if until_us > fetch.had_until_us:
            if fetch.had_until_us < now_us - SECOND_US:
                _settle_waits_for(state, p, now_us)
            fetch.had_until_us = until_us


@kernel
def wait_for_no_fetch(state, p, until_us, now_us):
    """Treat follower ``p`` as having all appends until ``until_us``, because its fetches until then are not known."""
    _settle_waits_for(state, p, now_us)
    state.fetches[p].had_until_us = max(state.fetches[p].had_until_us, until_us)


@kernel
def _settle_waits_for(state, p, now_us):
    """Call ``settle_waits`` for all rule runs in which requests wait for follower ``p``."""
    for k in range(state.term[0].active):
        r = active_run(state.active, k)
        if state.leaders[r].isr >> p & 1 or (OUTVOTE | ACKNOWLEDGE_EARLY) >> state.codes[r] & 1:
            settle_waits(state, r, now_us)


@inlined
def is_waited_for(state, r, p, now_us):
    """Whether a request may have waited for follower ``p`` for more than a second under rule run ``r``."""
    return max(state.fetches[p].had_until_us, state.ledger.followers[r, p].let_go_us) < now_us - SECOND_US


@kernel
def _answered_until_us(state, r, now_us):
    """Return the time up to which requests are answered at ``now_us`` under rule run ``r``."""
    leader, term, until_us = state.leaders[r], state.term[0], now_us
    quorum = OUTVOTE >> state.codes[r] & 1
    for p in range(leader.replicas):
        if p != term.leader and (leader.isr >> p & 1 or quorum):
            had_until_us = max(state.fetches[p].had_until_us, state.ledger.followers[r, p].let_go_us)
            if had_until_us < until_us and not (quorum and _is_outvoted_in_time(state, r, p)):
                until_us = had_until_us
    until_us = max(state.ledger.pages[r, ANSWERED_US], until_us)
    return _acknowledged_until_us(state, r, until_us, now_us) if ACKNOWLEDGE_EARLY >> state.codes[r] & 1 else until_us


@kernel
def _lend_times_as_log_ends(state, r):
    """Replace each follower's log end with ``had_until_us``, so that a rule computes with times.

    `_give_back_log_ends` undoes this.
    """
    for q in range(len(state.fetches)):
        state.fetches[q].lent_log_end_offset = state.followers[r, q].log_end_offset
        state.followers[r, q].log_end_offset = state.fetches[q].had_until_us


@kernel
def _give_back_log_ends(state, r):
    for q in range(len(state.fetches)):
        state.followers[r, q].log_end_offset = state.fetches[q].lent_log_end_offset
        state.fetches[q].lent_log_end_offset = 0


@kernel
def _acknowledged_until_us(state, r, until_us, now_us):
    """Return the time up to which requests are answered according to the rule, which gets times in place of log ends.

    ``until_us`` takes the place of the high watermark: all followers for which it waits have all appends until then.
    """
    leader = state.leaders[r]
    log_end, high_watermark = leader.log_end_offset, leader.high_watermark
    leader.log_end_offset, leader.high_watermark = now_us, until_us
    _lend_times_as_log_ends(state, r)
    answer = acknowledged_end(state.codes[r], state.followers[r], state.term[0].leader, leader, state.params[r])
    _give_back_log_ends(state, r)
    leader.log_end_offset, leader.high_watermark = log_end, high_watermark
    return answer


@kernel
def _is_outvoted_in_time(state, r, p):
    """Ask the rule whether requests are answered without follower ``p``, with times in place of log ends."""
    _lend_times_as_log_ends(state, r)
    answer = outvoted(state.codes[r], state.followers[r], p, state.term[0].leader, state.leaders[r])
    _give_back_log_ends(state, r)
    return answer


@kernel
def settle_waits(state, r, now_us):
    """Add how long requests have waited up to ``now_us``, for rule run ``r``.

    The caller calls this before it changes the ISR of rule run ``r``, or anything else on which the waits depend. The
    times are UNKNOWN if the log has only one time per fetch: then it does not show how long a fetch waited for data.
    """
    page, leader, params, term = state.ledger.pages[r], state.leaders[r], state.params[r], state.term[0]
    refused = leader.isr_size < min(params.min_insync_replicas, leader.replicas)
    _note_answered(page, now_us if refused else _answered_until_us(state, r, now_us), term, params)
    if not refused:
        longest_us = params.replica_lag_time_max_ms * 1000 if DROP_BY_TRUE_LAG >> state.codes[r] & 1 else NEVER_US
        since_us = page[WAITED_UNTIL_US]
        if longest_us >= SECOND_US:
            from_us = max(since_us, page[ANSWERED_US] + SECOND_US)
            page[ACKS_ALL_WAITS_1S_US] += max(0, now_us - from_us)
            page[ACKS_ALL_WAITS_1S_SILENT_US] += _overlap_us(from_us, now_us, term.silent_from_us, term.silent_until_us)
        if longest_us >= TIMEOUT_US:
            page[ACKS_ALL_WAITS_30S_US] += max(0, now_us - max(since_us, page[ANSWERED_US] + TIMEOUT_US))
        if leader.isr_size > 1:
            page[ACKS_ALL_WAIT_UNKNOWN_US] += _overlap_us(since_us, now_us, term.idle_from_us, term.idle_until_us)
        if page[ANSWERED_US] < now_us - longest_us:
            _note_dropped_for(page, longest_us, now_us, term, params)
    page[WAITED_UNTIL_US] = max(page[WAITED_UNTIL_US], now_us)
    if term.held_unknown:
        page[ACKS_ALL_WAITS_1S_US] = page[ACKS_ALL_WAITS_30S_US] = page[ACKS_ALL_WAITS_1S_SILENT_US] = UNKNOWN
        page[ACKS_ALL_WAIT_MAX_US] = page[ACKS_ALL_WAIT_UNKNOWN_US] = page[ACKS_ALL_UNANSWERED_US] = UNKNOWN


@inlined
def _overlap_us(from_us, until_us, other_from_us, other_until_us):
    return max(0, min(until_us, other_until_us) - max(from_us, other_from_us))


@inlined
def _note_answered(page, until_us, term, params):
    """Store that requests are answered (or refused) that were sent up to ``until_us``.

    Those of them that have waited for more than a second were answered by what changed just after the last call.
    """
    from_us, answered_us = page[ANSWERED_US], page[WAITED_UNTIL_US]
    page[ANSWERED_US] = until_us
    if from_us < min(until_us, answered_us - SECOND_US):
        from_us = max(from_us, ledger_known_from_us(term, params))
        _fill_buckets_of_waits(page, max(answered_us - until_us, SECOND_US), answered_us - from_us)


@kernel
def _note_dropped_for(page, longest_us, now_us, term, params):
    """Store that each request has waited for ``longest_us``, and then for the follower no more that lacked it."""
    sent_us = now_us - longest_us - max(page[ANSWERED_US], ledger_known_from_us(term, params))
    page[ANSWERED_US] = now_us - longest_us
    if longest_us > SECOND_US and sent_us > 0:
        page[WAITS + 1 + latency_bucket(longest_us) - FIRST_SLOW_BUCKET] += sent_us
        page[ACKS_ALL_WAIT_MAX_US] = max(page[ACKS_ALL_WAIT_MAX_US], longest_us)


@kernel
def _fill_buckets_of_waits(page, least_us, longest_us):
    """Count requests that have waited for ``least_us`` to ``longest_us``: one per microsecond."""
    bucket = latency_bucket(least_us)
    if least_us < longest_us:
        page[ACKS_ALL_WAIT_MAX_US] = max(page[ACKS_ALL_WAIT_MAX_US], longest_us)
    while least_us < longest_us:
        end_us = min(longest_us, end_of_latency_bucket_us(bucket))
        page[WAITS + 1 + bucket - FIRST_SLOW_BUCKET] += end_us - least_us
        least_us, bucket = end_us, bucket + 1


@kernel
def settle_waits_of_all(state, now_us):
    """Call ``settle_waits`` for all rule runs."""
    for k in range(state.term[0].active):
        settle_waits(state, active_run(state.active, k), now_us)


@kernel
def end_waits(state, r, now_us):
    """At the end of a term, count the time in which the requests were sent that are not answered then."""
    settle_waits(state, r, now_us)
    page = state.ledger.pages[r]
    known_us = max(page[ANSWERED_US], ledger_known_from_us(state.term[0], state.params[r]))
    page[ACKS_ALL_UNANSWERED_US] = max(0, now_us - known_us)


@kernel
def fill_bucket_of_short_waits(page):
    """Set a page's bucket of waits of up to a second: the time that is left, without time in which all are refused."""
    unknown_us = page[ACKS_ALL_WAIT_UNKNOWN_US] + page[ACKS_ALL_UNANSWERED_US]
    page[WAITS] = page[EXPOSURE_US] - page[UNDER_MIN_ISR_US] - unknown_us
    for bucket in range(1, WAIT_BUCKETS):
        page[WAITS] -= page[WAITS + bucket]


@kernel
def let_go(state, r, dropped, now_us):
    """Let requests that were sent before ``now_us`` no longer wait for the followers ``dropped`` (bits).

    A check would drop these followers now if such a request had appended a record. The rule keeps them in the ISR only
    because the recorded log ends where theirs do.
    """
    settle_waits(state, r, now_us)
    for p in range(state.term[0].replicas):
        if dropped >> p & 1:
            state.ledger.followers[r, p].let_go_us = now_us
