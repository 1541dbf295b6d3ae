"""Measure outages: how long a request with acks=all would wait if a producer sent it at a given instant.

Latencies of requests hide outages, because producers with requests in flight send no more. Therefore this is measured
for every instant, whether a request was sent or not. A request is acknowledged once every follower for which the high
watermark waits would hold it, the ISR has min.insync.replicas, and the high watermark may move. A request that is
refused is sent again, as clients do, so it waits as well.

A follower would hold a request that was sent at t, when a fetch is recorded whose offset includes all that the log had
at t, and whose predecessor was read, or waited for data, at t or later. These times are all those until
``fetch.proven_us``, which only grows. A member of the ISR that has everything, and is dead, is not dropped as long as
nothing is appended; but the request would be, so a check lets it go if it would have dropped it without its last
record.

The times until which requests are acknowledged are the least of these (WAITS_FROM_US of a page). It is kept exactly
only while some request waits for more than a second; shorter waits are not counted. Where fetches are not known (IDLE,
THIN), nothing waits.
"""

from udfs.jit import inlined, kernel
from udfs.kernel.ack_latency import latency_bucket
from udfs.kernel.active_runs import active_run
from udfs.kernel.ledger_page import WAIT_MAX_US, WAIT_OVER_SECOND_US, WAIT_OVER_TIMEOUT_US, WAITS, WAITS_FROM_US
from udfs.kernel.rule_calls import RULES, holds_high_watermark, may_advance, outvoted, rule_bits
from udfs.records import BUCKETS, FIRST_WAIT_BUCKET
from udfs.rules.base import AT_HIGH_WATERMARK, HAS_ALL_ACKNOWLEDGED, never_outvoted

SECOND_US = 1_000_000
"""Shorter waits are not counted."""
TIMEOUT_US = 30_000_000
"""Default of producers' request.timeout.ms."""
OUTVOTE = rule_bits(rule.outvoted is not never_outvoted for rule in RULES)
"""Rules by which other followers may outvote the one that holds the high watermark."""
HEED_ACKS = rule_bits(rule.no_lag_while in (AT_HIGH_WATERMARK, HAS_ALL_ACKNOWLEDGED) for rule in RULES)
"""Rules that may wait no longer for a follower outside the ISR when records are acknowledged that it lacks."""


@inlined
def some_request_waits(term, fetches, now_us):
    """Whether a request may have waited for more than a second for a follower that some run needs."""
    for p in range(term.replicas):
        if p != term.leader and fetches[p].unneeded == 0 and fetches[p].proven_us < now_us - SECOND_US:
            return True
    return False


@inlined
def may_count_waits(term, fetches, fetch, now_us):
    """Whether an instant of a fetch may acknowledge requests of long ago under a run, or make them wait again.

    Requests that wait for a member of the ISR wait until that member fetches, or the ISR changes.
    """
    return (
        fetch.outsider_in > 0 or fetch.proven_us < now_us - SECOND_US or some_outsider_is_awaited(term, fetches, now_us)
    )


@inlined
def some_outsider_is_awaited(term, fetches, now_us):
    """Whether a request may have waited for more than a second for a follower outside the ISR of some run."""
    for p in range(term.replicas):
        if p != term.leader and fetches[p].outsider_in > 0 and fetches[p].unneeded == 0:
            if fetches[p].proven_us < now_us - SECOND_US:
                return True
    return False


@inlined
def note_proof(fetch):
    """Note that a fetch was recorded: it proves what its follower had asked for before."""
    if fetch.error_code == 0:
        fetch.proven_us = max(fetch.proven_us, min(fetch.asked_us, fetch.missing_since_us))


@inlined
def note_question(fetch):
    """Note that a fetch was answered: whatever was appended before its read, or in its wait, is in an answer."""
    if fetch.error_code == 0:
        parked = fetch.released_us > fetch.processed_us
        fetch.asked_us = max(fetch.asked_us, fetch.released_us if parked else fetch.handled_us)


@inlined
def need_all(term, fetches):
    """Forget which followers no run waits for, because an ISR or min.insync.replicas is about to change."""
    for p in range(term.replicas):
        fetches[p].unneeded = 0


@kernel
def _acknowledged_until_us(term, leader, followers, fetches, mine, params, code, acknowledged_us, clock_us, now_us):
    """Return the sending time until which requests are acknowledged now; ``clock_us`` is the leader's clock."""
    if leader.isr_size < min(params.min_insync_replicas, leader.replicas) or not may_advance(code, leader, params):
        return acknowledged_us
    until_us = now_us
    leader.log_end_offset += 1  # the request's record, which no follower has
    for p in range(term.replicas):
        if p != term.leader and holds_high_watermark(code, followers[p], leader, fetches[p], clock_us // 1000, params):
            fetches[p].unneeded = 0
            proven_us = max(fetches[p].proven_us, mine[p].let_go_us)
            if proven_us < until_us and not _outvoted_in_time(term, leader, followers, fetches, code, p, now_us):
                until_us = proven_us
    leader.log_end_offset -= 1
    return max(acknowledged_us, until_us)


@inlined
def _outvoted_in_time(term, leader, followers, fetches, code, p, now_us):
    """Ask the rule whether the other followers outvote this one, with proven times in place of log ends."""
    if OUTVOTE >> code & 1 == 0:
        return False
    for q in range(term.replicas):
        fetches[q].kept_log_end_offset = followers[q].log_end_offset
        followers[q].log_end_offset = min(fetches[q].proven_us, now_us)
    answer = outvoted(code, followers, p, term.leader, leader)
    for q in range(term.replicas):
        followers[q].log_end_offset = fetches[q].kept_log_end_offset
    return answer


@inlined
def _acknowledged_in_run_us(state, r, clock_us, now_us):
    page = state.ledger.pages[r]
    return _acknowledged_until_us(
        state.term[0], state.leaders[r], state.followers[r], state.fetches, state.ledger.followers[r], state.params[r],
        state.codes[r], page[WAITS_FROM_US], clock_us, now_us,
    )  # fmt: skip


@kernel
def note_acknowledged(state, r, now_us):
    """Note until when requests are acknowledged under a run before something changes.

    None has waited for long since requests last were looked at, unless the high watermark waited for a follower outside
    the ISR until that was no longer caught up.
    """
    page, clock_us = state.ledger.pages[r], state.term[0].waits_at_us
    acknowledged_us = _acknowledged_in_run_us(state, r, now_us, now_us)
    held_us = _acknowledged_in_run_us(state, r, min(clock_us, now_us), now_us)
    while held_us < acknowledged_us:
        page[WAITS_FROM_US] = held_us
        end_us = now_us
        while end_us // 1000 - clock_us // 1000 > 1:
            middle_us = (clock_us + end_us) // 2000 * 1000
            if _acknowledged_in_run_us(state, r, middle_us, now_us) > held_us:
                end_us = middle_us
            else:
                clock_us = middle_us
        until_us = _acknowledged_in_run_us(state, r, end_us, end_us)
        _add_waits(page, page[WAITS_FROM_US], until_us, end_us)
        page[WAITS_FROM_US] = until_us
        clock_us = end_us
        held_us = _acknowledged_in_run_us(state, r, clock_us, now_us)
    page[WAITS_FROM_US] = acknowledged_us


@kernel
def count_waits(state, r, now_us, answered_us):
    """Count how long requests have waited under a run that something at ``now_us`` has acknowledged."""
    page = state.ledger.pages[r]
    until_us = _acknowledged_in_run_us(state, r, now_us, now_us)
    _add_waits(page, page[WAITS_FROM_US], until_us, answered_us)
    page[WAITS_FROM_US] = until_us


@kernel
def note_all_acknowledged(state, now_us):
    """Do as ``note_acknowledged`` does, for all runs."""
    for k in range(state.term[0].active):
        note_acknowledged(state, active_run(state.active, k), now_us)


@kernel
def count_all_waits(state, now_us):
    """Count the waits of requests that a recorded fetch has acknowledged under some run."""
    term = state.term[0]
    for p in range(term.replicas):
        state.fetches[p].unneeded = 1
    term.waits_at_us = now_us
    for k in range(term.active):
        count_waits(state, active_run(state.active, k), now_us, now_us)


@kernel
def assume_held(state, p, until_us, now_us):
    """Assume that a follower whose fetches are not known would hold all requests, from now until a time."""
    note_all_acknowledged(state, now_us)
    state.fetches[p].proven_us = max(state.fetches[p].proven_us, until_us)
    count_all_waits(state, now_us)


@kernel
def let_go(state, r, followers, now_us):
    """Let go of some followers (bits) at a check that would have dropped them without their last record."""
    note_acknowledged(state, r, now_us)
    for p in range(state.term[0].replicas):
        if followers >> p & 1:
            state.ledger.followers[r, p].let_go_us = now_us
    count_waits(state, r, now_us, now_us + state.params[r].isr_write_latency_ms * 1000)


@kernel
def close_waits(state, r, now_us):
    """Count requests that wait at the end of a day or term, as if they were acknowledged then."""
    note_acknowledged(state, r, now_us)
    page = state.ledger.pages[r]
    _add_waits(page, page[WAITS_FROM_US], now_us, now_us)
    page[WAITS_FROM_US] = max(page[WAITS_FROM_US], now_us)


@inlined
def _add_waits(page, from_us, until_us, now_us):
    """Count requests sent from ``from_us`` to ``until_us``, at every instant, and acknowledged now."""
    if until_us > from_us and now_us - from_us > SECOND_US:
        _add_long_waits(page, now_us - until_us, now_us - from_us)


@kernel
def _add_long_waits(page, shortest_us, longest_us):
    """Count the time in which requests wait for as long as these two times, and all between."""
    page[WAIT_MAX_US] = max(page[WAIT_MAX_US], longest_us)
    page[WAIT_OVER_SECOND_US] += longest_us - max(shortest_us, SECOND_US)
    if longest_us > TIMEOUT_US:
        page[WAIT_OVER_TIMEOUT_US] += longest_us - max(shortest_us, TIMEOUT_US)
    low_us = max(shortest_us, SECOND_US)
    while low_us < longest_us:
        bucket = latency_bucket(low_us)
        end_us = longest_us
        if bucket < BUCKETS - 1:
            end_us = min(longest_us, (16 + (bucket + 1) % 16) << ((bucket + 1) // 16 - 1))
        page[WAITS + bucket - FIRST_WAIT_BUCKET] += end_us - low_us
        low_us = end_us
