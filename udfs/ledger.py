"""What a rule costs and gets right on one set, counted while it is replayed: exact over step functions, never sampled.

docs/verdicts.md has the definitions. Integrals are of the states that partition_timeline shows; a UTC midnight and the
end of a term close a page, which becomes a row a rule run, and a row a run and follower.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.jit import inlined, kernel
from udfs.latencies import FIRST_RUN, acknowledge, append_waits, await_none, give_up_waiting, new_waits
from udfs.records import BUCKETS, FOLLOWER_MEASURES, MEASURES, NEVER_US, Int64Array, int64_record
from udfs.verdict import CAUGHT_UP, KEEPING_PACE, SLOW_LEADER, UNACKED_ONLY, UNKNOWN, causes_of_shrink

DAY_US = 86_400_000_000
NO_VIOLATION = np.int64(-1)
NOT_A_MISS = CAUGHT_UP | KEEPING_PACE | SLOW_LEADER | UNACKED_ONLY | UNKNOWN

(
    EXPOSURE_US,
    UNDER_MIN_ISR_US,
    AT_MIN_ISR_US,
    LEADER_ALONE_US,
    UNDER_REPLICATED_US,
    HIGH_WATERMARK_STALLED_US,
    LOSS_EXPOSED_US,
    LOSS_RECORDS_MAX,
    ISR_WRITES,
    REFUSED_APPENDS,
    ACKNOWLEDGED_APPENDS,
    NEVER_ACKNOWLEDGED,
    ACKS_ALL_LATENCY_MAX_US,
    HIGH_WATERMARK_DECREASES,
    MEMBERS_BELOW_HIGH_WATERMARK,
    PASSED_WITHIN_LAG_TIME,
    LEADER_OUTSIDE_ISR,
    ISR_OUTSIDE_ASSIGNMENT,
    FIRST_VIOLATION_US,
    FIRST_VIOLATION,
) = np.arange(len(MEASURES))
"""Places of MEASURES on the open page of a rule run."""
SETTLED_US, AT_RISK = len(MEASURES) + np.arange(2)
"""And what the page needs besides: integrals are up to here; records that the worst member of the ISR lacks."""
LATENCIES = len(MEASURES) + 2
"""Then acknowledged appends by bucket of latency."""
PLACES = LATENCIES + BUCKETS

FOLLOWER_PAGE = int64_record(
    *FOLLOWER_MEASURES,
    "judged",  # its answers count, from settled_us on
    "settled_us",
    "looked_at_us",  # the missing_since_us that was last looked at for a miss
    "missed",  # counted already, and not caught up since
)
"""The open page of a rule run's follower."""


class Ledger(NamedTuple):
    """The open pages of a set: R rule runs, n replicas."""

    pages: Int64Array
    """Shape (R, PLACES)."""
    followers: npt.NDArray[np.void]
    """FOLLOWER_PAGE, shape (R, n)."""
    waits: Int64Array
    """Of ``udfs.latencies``."""


def new_ledger(runs: int, replicas: int, waits: int) -> Ledger:
    """Empty pages; at most ``waits`` appends are waited for one by one."""
    return Ledger(np.zeros((runs, PLACES), np.int64), np.zeros((runs, replicas), FOLLOWER_PAGE), new_waits(runs, waits))


@kernel
def _late_at_us(fetch, params):
    """First instant at which `true-lag` calls the follower out of sync; it counts whole milliseconds."""
    if fetch.missing_since_us == NEVER_US:
        return NEVER_US
    return (fetch.missing_since_us // 1000 + params.replica_lag_time_max_ms + 1) * 1000


@kernel
def _miss_at_us(fetch, params):
    """When no rule has an excuse any more: one and a half lag times, and what else is due then first."""
    if fetch.missing_since_us == NEVER_US:
        return NEVER_US
    return (fetch.missing_since_us // 1000 + params.replica_lag_time_max_ms * 3 // 2 + 1) * 1000 + 1


@kernel
def _violate(page, promise, now_us):
    page[promise] += 1
    if page[FIRST_VIOLATION] == NO_VIOLATION:
        page[FIRST_VIOLATION] = promise - HIGH_WATERMARK_DECREASES
        page[FIRST_VIOLATION_US] = now_us


@kernel
def _clear(page, followers):
    """An empty page; what is at risk stays so."""
    for place in range(PLACES):
        if place not in (SETTLED_US, AT_RISK):
            page[place] = 0
    page[FIRST_VIOLATION_US] = NO_VIOLATION
    page[FIRST_VIOLATION] = NO_VIOLATION
    for p in range(len(followers)):
        follower = followers[p]
        follower.judged_us = 0
        follower.agreed_us = 0
        follower.misses = 0


@kernel
def begin(state, isr_at_start):
    """Open a page for a term. Who is in the ISR is judged after a lag time at the latest, others when they fetch."""
    ledger, term = state.ledger, state.term[0]
    await_none(ledger.waits)
    term.day_ends_us = (term.start_us // DAY_US + 1) * DAY_US
    term.miss_due_us = NEVER_US
    for r in range(len(ledger.pages)):
        ledger.pages[r][AT_RISK] = 0
        ledger.pages[r][SETTLED_US] = term.start_us
        _clear(ledger.pages[r], ledger.followers[r])
        for p in range(term.replicas):
            follower = ledger.followers[r, p]
            follower.judged = (isr_at_start >> p) & 1
            follower.settled_us = (term.start_us // 1000 + state.params[r].replica_lag_time_max_ms + 1) * 1000
            follower.looked_at_us = NEVER_US
            follower.missed = 0
            if p != term.leader:
                term.miss_due_us = min(term.miss_due_us, _miss_at_us(state.fetches[p], state.params[r]))


@kernel
def settle(page, leader, params, now_us):
    """Sum up the state that was last shown, until ``now_us``."""
    elapsed_us = now_us - page[SETTLED_US]
    if elapsed_us <= 0:
        return
    page[SETTLED_US] = now_us
    members = 0
    for p in range(leader.replicas):
        members += leader.shown_isr >> p & 1
    wanted = min(params.min_insync_replicas, leader.replicas)
    page[EXPOSURE_US] += elapsed_us
    if members < wanted:
        page[UNDER_MIN_ISR_US] += elapsed_us
    elif members == wanted:
        page[AT_MIN_ISR_US] += elapsed_us
    if members == 1:
        page[LEADER_ALONE_US] += elapsed_us
    if members < leader.replicas:
        page[UNDER_REPLICATED_US] += elapsed_us
    if leader.shown_high_watermark < leader.shown_log_end_offset:
        page[HIGH_WATERMARK_STALLED_US] += elapsed_us
    if page[AT_RISK] > 0:
        page[LOSS_EXPOSED_US] += elapsed_us
        page[LOSS_RECORDS_MAX] = max(page[LOSS_RECORDS_MAX], page[AT_RISK])


@kernel
def _sum_up(mine, fetch, in_isr, high_watermark, params, now_us):
    if mine.judged == 0 or now_us <= mine.settled_us:
        return
    late_at_us = min(max(_late_at_us(fetch, params), mine.settled_us), now_us)
    if in_isr != 0:
        mine.agreed_us += late_at_us - mine.settled_us
    else:
        mine.agreed_us += now_us - late_at_us
        if fetch.log_end_offset < high_watermark:
            mine.agreed_us += late_at_us - mine.settled_us
    mine.judged_us += now_us - mine.settled_us
    mine.settled_us = now_us


@kernel
def settle_follower(state, r, p, now_us):
    """Sum up how long the rule's answer was the right one, until ``now_us``.

    Right is who `true-lag` calls in sync; but an outsider below the high watermark has to stay outside.
    """
    in_isr, high_watermark = state.followers[r, p].in_isr, state.leaders[r].shown_high_watermark
    _sum_up(state.ledger.followers[r, p], state.fetches[p], in_isr, high_watermark, state.params[r], now_us)


@kernel
def look_at_risk(page, leader, term, fetches, now_us):
    """Acknowledged records that the clean election of a member of the ISR would lose: 0 under a sound rule."""
    at_risk = 0
    for p in range(term.replicas):
        known = fetches[p].log_end_offset
        if p != term.leader and leader.isr >> p & 1 and known >= 0:
            at_risk = max(at_risk, leader.high_watermark - known)
    if at_risk > 0 and page[AT_RISK] == 0:
        _violate(page, MEMBERS_BELOW_HIGH_WATERMARK, now_us)
    page[AT_RISK] = at_risk
    page[LOSS_RECORDS_MAX] = max(page[LOSS_RECORDS_MAX], at_risk)


@kernel
def _acknowledge(waits, page, r, high_watermark, now_us):
    acknowledged, longest_us = acknowledge(waits, r, high_watermark, now_us, page[LATENCIES:])
    page[ACKNOWLEDGED_APPENDS] += acknowledged
    page[ACKS_ALL_LATENCY_MAX_US] = max(page[ACKS_ALL_LATENCY_MAX_US], longest_us)


@inlined
def show_leader(state, r, now_us, out):
    """Write the partition's state if log end offset, high watermark or ISR changed, and account for the one before."""
    leader = state.leaders[r]
    if (
        leader.log_end_offset != leader.shown_log_end_offset
        or leader.high_watermark != leader.shown_high_watermark
        or leader.isr != leader.shown_isr
    ):
        _show_leader(state, r, now_us, out)


@kernel
def _show_leader(state, r, now_us, out):
    leader, term = state.leaders[r], state.term[0]
    page = state.ledger.pages[r]
    settle(state.ledger.pages[r], state.leaders[r], state.params[r], now_us)
    begun = leader.shown_log_end_offset >= 0
    if leader.high_watermark != leader.shown_high_watermark and begun:
        for p in range(term.replicas):
            if p != term.leader and state.followers[r, p].in_isr == 0:
                settle_follower(state, r, p, now_us)
    if leader.high_watermark < leader.shown_high_watermark and begun:
        _violate(page, HIGH_WATERMARK_DECREASES, now_us)
    rises = leader.high_watermark > leader.shown_high_watermark and begun
    leader.shown_log_end_offset = leader.log_end_offset
    leader.shown_high_watermark = leader.high_watermark
    leader.shown_isr = leader.isr
    look_at_risk(page, leader, state.term[0], state.fetches, now_us)
    if rises:
        for p in range(term.replicas):
            known = state.fetches[p].log_end_offset
            if p != term.leader and 0 <= known < leader.high_watermark:
                if now_us < _late_at_us(state.fetches[p], state.params[r]):
                    _violate(page, PASSED_WITHIN_LAG_TIME, now_us)
    if leader.isr >> term.leader & 1 == 0:
        _violate(page, LEADER_OUTSIDE_ISR, now_us)
    if leader.isr >> term.replicas != 0:
        _violate(page, ISR_OUTSIDE_ASSIGNMENT, now_us)
    _acknowledge(state.ledger.waits, page, r, leader.high_watermark, now_us)
    row = out.partition[out.filled[1]]
    out.filled[1] += 1
    row[0] = r
    row[1] = now_us
    row[2] = leader.log_end_offset
    row[3] = leader.high_watermark
    row[4] = leader.isr


@kernel
def produce(state, log_end_offset, now_us):
    """A producer that waits for all; a rule whose ISR is too small refuses it."""
    ledger = state.ledger
    i = append_waits(ledger.waits, log_end_offset, now_us)
    for r in range(len(ledger.pages)):
        leader = state.leaders[r]
        if leader.isr_size < min(state.params[r].min_insync_replicas, leader.replicas):
            ledger.pages[r][REFUSED_APPENDS] += 1
        else:
            ledger.waits[FIRST_RUN + r, i] += 1
            _acknowledge(ledger.waits, ledger.pages[r], r, leader.high_watermark, now_us)


@kernel
def note_lack(state, p, now_us):
    """The follower lacks something since another instant than before: look for a miss in time, after the rules did."""
    for r in range(len(state.leaders)):
        due_us = max(_miss_at_us(state.fetches[p], state.params[r]), now_us + 1)
        state.term[0].miss_due_us = min(state.term[0].miss_due_us, due_us)


@kernel
def before_arrival(state, p, now_us, log_end_offset):
    """A fetch is about to tell what the follower holds; -1: nothing."""
    fetch = state.fetches[p]
    for r in range(len(state.leaders)):
        if (
            state.followers[r, p].in_isr == 0
            or _late_at_us(fetch, state.params[r]) <= now_us
            or log_end_offset < fetch.log_end_offset
        ):
            settle_follower(state, r, p, now_us)


@kernel
def after_arrival(state, p, now_us):
    """It has told; see ``before_arrival``."""
    fetch = state.fetches[p]
    for r in range(len(state.leaders)):
        mine = state.ledger.followers[r, p]
        if fetch.error_code == 0:
            if mine.judged == 0 or mine.settled_us > now_us:
                mine.judged = 1
                mine.settled_us = now_us
            page, leader = state.ledger.pages[r], state.leaders[r]
            if page[AT_RISK] > 0 or (leader.isr >> p & 1 and fetch.log_end_offset < leader.high_watermark):
                settle(state.ledger.pages[r], state.leaders[r], state.params[r], now_us)
                look_at_risk(page, leader, state.term[0], state.fetches, now_us)
        if mine.looked_at_us != fetch.missing_since_us:
            mine.looked_at_us = NEVER_US
        if mine.missed != 0 and now_us < _late_at_us(fetch, state.params[r]):
            mine.missed = 0
    if fetch.missing_since_us != NEVER_US:
        note_lack(state, p, now_us)


@kernel
def stop_judging(state, p, now_us):
    """The controller took it out: until it fetches again its absence is nobody's mistake."""
    for r in range(len(state.leaders)):
        settle_follower(state, r, p, now_us)
        state.ledger.followers[r, p].judged = 0


@kernel
def look_for_misses(state, now_us):
    """Followers that failed genuinely one and a half lag times ago and are still in the ISR."""
    term = state.term[0]
    state.term[0].miss_due_us = NEVER_US
    for r in range(len(state.leaders)):
        leader, params = state.leaders[r], state.params[r]
        for p in range(term.replicas):
            fetch, mine = state.fetches[p], state.ledger.followers[r, p]
            if p == term.leader or fetch.missing_since_us in (NEVER_US, mine.looked_at_us):
                continue
            due_us = _miss_at_us(fetch, params)
            if due_us > now_us:
                state.term[0].miss_due_us = min(state.term[0].miss_due_us, due_us)
                continue
            mine.looked_at_us = fetch.missing_since_us
            leaving = leader.commit_us != NEVER_US and leader.pending_isr >> p & 1 == 0
            if state.followers[r, p].in_isr == 0 or leaving or mine.missed != 0:
                continue
            if mine.judged == 0 or mine.settled_us > now_us:
                continue
            if causes_of_shrink(state, r, p, now_us) & NOT_A_MISS == 0:
                mine.missed = 1
                mine.misses += 1


@kernel
def _write(ledger, r, day, out):
    page = ledger.pages[r]
    latencies = out.latency[out.filled[3]]
    for bucket in range(len(latencies)):
        latencies[bucket] = page[LATENCIES + bucket]
    row = out.score[out.filled[3]]
    out.filled[3] += 1
    row[0] = r
    row[1] = day
    for place in range(SETTLED_US):
        row[2 + place] = page[place]


@kernel
def close(state, now_us, out):
    """Close the pages of the day, write them, and open new ones."""
    ledger, term = state.ledger, state.term[0]
    day = term.day_ends_us // DAY_US - 1
    term.day_ends_us += DAY_US
    for r in range(len(ledger.pages)):
        settle(state.ledger.pages[r], state.leaders[r], state.params[r], now_us)
        _write(ledger, r, day, out)
        for p in range(term.replicas):
            if p != term.leader:
                settle_follower(state, r, p, now_us)
                mine = ledger.followers[r, p]
                row = out.follower_score[out.filled[4]]
                out.filled[4] += 1
                row[0] = r
                row[1] = p
                row[2] = day
                row[3] = mine.judged_us
                row[4] = mine.agreed_us
                row[5] = mine.misses
        _clear(ledger.pages[r], ledger.followers[r])


@kernel
def end(state, now_us, out):
    """Close the pages of a term; what has waited for longer than the lag time was never acknowledged."""
    for r in range(len(state.leaders)):
        lag_us = state.params[r].replica_lag_time_max_ms * 1000
        state.ledger.pages[r][NEVER_ACKNOWLEDGED] = give_up_waiting(state.ledger.waits, r, now_us - lag_us)
    close(state, now_us, out)
