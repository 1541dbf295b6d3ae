"""Measure for how long an acks=all request would have to wait, at every instant, whether a producer sends one or not.

Requests of the log do not show this, because producers whose requests are not answered stop sending. An instant counts
if a request that was sent a second (or 30 s) before would still be unanswered. Requests are answered in the order in
which they are sent, so the time up to which they are answered is enough: the least ``had_until_us`` of the followers
in the ISR. It never moves back.

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
from udfs.kernel.active_runs import active_run
from udfs.kernel.ledger_page import ACKS_ALL_WAITS_1S_US, ACKS_ALL_WAITS_30S_US, ANSWERED_US, WAITED_UNTIL_US
from udfs.kernel.rule_calls import ACKNOWLEDGE_EARLY, RULES, acknowledged_end, outvoted, rule_bits
from udfs.records import NEVER_US, UNKNOWN
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
    """Add the time up to ``now_us`` in which requests have waited for more than a second, and for more than 30 s.

    The caller calls this before it changes the ISR of rule run ``r``, or anything else on which the waits depend. The
    times are UNKNOWN if the log has only one time per fetch: then it does not show how long a fetch waited for data.
    """
    page, leader, params = state.ledger.pages[r], state.leaders[r], state.params[r]
    if leader.isr_size < min(params.min_insync_replicas, leader.replicas):
        page[ANSWERED_US] = now_us
    else:
        page[ANSWERED_US] = _answered_until_us(state, r, now_us)
        longest_us = params.replica_lag_time_max_ms * 1000 if DROP_BY_TRUE_LAG >> state.codes[r] & 1 else NEVER_US
        _add_waits(page, ACKS_ALL_WAITS_1S_US, SECOND_US, longest_us, now_us)
        _add_waits(page, ACKS_ALL_WAITS_30S_US, TIMEOUT_US, longest_us, now_us)
    page[WAITED_UNTIL_US] = max(page[WAITED_UNTIL_US], now_us)
    if state.term[0].held_unknown:
        page[ACKS_ALL_WAITS_1S_US] = page[ACKS_ALL_WAITS_30S_US] = UNKNOWN


@inlined
def _add_waits(page, place, wait_us, longest_us, now_us):
    if wait_us <= longest_us:
        page[place] += max(0, now_us - max(page[WAITED_UNTIL_US], page[ANSWERED_US] + wait_us))


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
