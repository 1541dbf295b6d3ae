"""Count what each rule run costs and for how long it is right, while one partition on one leader is replayed.

docs/verdicts-reasoning.md defines the counters. Times are exact sums over the states in partition_timeline, without
sampling. A rule run's counters of one UTC day are a page. At midnight and at the end of a term, pages are written
(one row per rule run, one per rule run and follower) and cleared.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.jit import inlined, kernel
from udfs.kernel.ack_latency import (
    FIRST_RUN,
    acknowledge_waits,
    add_ack_wait,
    clear_ack_waits,
    count_given_up_ack_waits,
    new_ack_waits,
    some_ack_waits_end,
)
from udfs.kernel.active_runs import active_run
from udfs.kernel.excuses import IN_FLIGHT_US, count_early
from udfs.kernel.follower_truth import true_miss_at_us, truly_late_at_us
from udfs.kernel.ledger_page import (
    ACKNOWLEDGED_APPENDS,
    ACKS_ALL_LATENCY_MAX_US,
    ANSWERED_US,
    AT_MIN_ISR_US,
    AT_RISK,
    BELOW,
    EXPOSURE_US,
    FOLLOWER_PAGE,
    HIGH_WATERMARK_DECREASES,
    HIGH_WATERMARK_STALLED_US,
    ISR_OUTSIDE_ASSIGNMENT,
    LATENCIES,
    LEADER_ALONE_US,
    LEADER_OUTSIDE_ISR,
    LOSS_EXPOSED_US,
    LOSS_RECORDS_MAX,
    NEVER_ACKNOWLEDGED,
    NO_VIOLATION,
    PASSED_WITHIN_LAG_TIME,
    PLACES,
    REFUSED_APPENDS,
    SETTLED_US,
    STALLED_UNDER_MIN_ISR_US,
    UNDER_MIN_ISR_US,
    UNDER_REPLICATED_US,
    UNLESS_KNOWN,
    WAITED_UNTIL_US,
    count_violation_on_page,
    ledger_known_from_us,
)
from udfs.kernel.lost_records import look_at_heirs, look_at_members
from udfs.kernel.timeline_rows import show_leader_in_timeline
from udfs.kernel.unanswered import end_waits, fill_bucket_of_short_waits, settle_waits
from udfs.records import NEVER_US, Int64Array

DAY_US = 86_400_000_000
EACH = np.int64(-1)


class Ledger(NamedTuple):
    """All counters of the current day of one partition on one leader, for R rule runs and groups, and n replicas."""

    pages: Int64Array
    """The counters of each rule run: MEASURES, working entries, and buckets of latencies and waits; (R, PLACES)."""
    followers: npt.NDArray[np.void]
    """The counters of each rule run and follower: FOLLOWER_PAGE, shape (R, n)."""
    waits: Int64Array
    """The acks=all appends that wait for the high watermark (``udfs.kernel.ack_latency``)."""


def new_ledger(runs: int, replicas: int, waits: int) -> Ledger:
    """Return a ledger (the counters of all rule runs) with room for ``waits`` appends that wait for acknowledgement."""
    pages, followers = np.zeros((runs, PLACES), np.int64), np.zeros((runs, replicas), FOLLOWER_PAGE)
    return Ledger(pages, followers, new_ack_waits(runs, waits))


@kernel
def clear_ledger(page, followers):
    """Set a rule run's counters to 0 for the next day, except AT_RISK and the times up to which sums are complete."""
    for place in range(PLACES):
        if place not in (SETTLED_US, AT_RISK, BELOW, WAITED_UNTIL_US, ANSWERED_US):
            page[place] = 0
    for place in UNLESS_KNOWN:
        page[place] = NO_VIOLATION
    for p in range(len(followers)):
        follower = followers[p]
        follower.judged_us = follower.agreed_us = follower.agreed_by_blame_us = 0
        follower.misses = follower.early = 0
        follower.late_in_isr_us = 0


@kernel
def begin_ledger(state, isr_at_start):
    """Reset the ledger at the start of a term.

    Whether a rule run is right about a follower counts from the follower's first fetch on. If a member of the ISR does
    not fetch within one lag time after the start of the term, it counts from the end of that lag time on.
    """
    ledger, term = state.ledger, state.term[0]
    clear_ack_waits(ledger.waits)
    term.day_ends_us = (term.start_us // DAY_US + 1) * DAY_US
    term.miss_due_us = NEVER_US
    term.least_lag_time_ms = state.params[0].replica_lag_time_max_ms
    term.runs_at_risk = 0
    for p in range(term.replicas):
        state.fetches[p].quiet = 0
    for r in range(term.runs):
        lag_time_ms = state.params[r].replica_lag_time_max_ms
        term.least_lag_time_ms = min(term.least_lag_time_ms, lag_time_ms)
        ledger.pages[r][AT_RISK] = ledger.pages[r][BELOW] = 0
        ledger.pages[r][SETTLED_US] = ledger_known_from_us(term, state.params[r])
        ledger.pages[r][WAITED_UNTIL_US] = ledger.pages[r][SETTLED_US]
        ledger.pages[r][ANSWERED_US] = term.start_us
        clear_ledger(ledger.pages[r], ledger.followers[r])
        for p in range(term.replicas):
            follower = ledger.followers[r, p]
            follower.judged = (isr_at_start >> p) & 1
            late_us = (term.start_us // 1000 + lag_time_ms + 1) * 1000
            follower.settled_us = max(late_us, ledger_known_from_us(term, state.params[r]))
            follower.looked_at_us = NEVER_US
            follower.missed = follower.excused = 0
            follower.doubt_until_us = follower.let_go_us = 0
            follower.depends_on = 0
            follower.joined_us = follower.joined_by = 0
            if p != term.leader:
                term.miss_due_us = min(term.miss_due_us, true_miss_at_us(state.fetches[p], lag_time_ms))


@kernel
def settle_ledger(page, leader, params, now_us):
    """Bring the sums of times in ``page`` up to date, such as the time with an ISR smaller than min.insync.replicas.

    The time since the last update is added to each sum whose condition the partition's state ``leader`` meets.
    """
    elapsed_us = now_us - page[SETTLED_US]
    if elapsed_us <= 0:
        return
    page[SETTLED_US] = now_us
    members = leader.shown_isr_size
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
        if members < wanted:
            page[STALLED_UNDER_MIN_ISR_US] += elapsed_us
    if page[AT_RISK] > 0:
        page[LOSS_EXPOSED_US] += elapsed_us
        page[LOSS_RECORDS_MAX] = max(page[LOSS_RECORDS_MAX], page[AT_RISK])


@kernel
def _sum_up_accuracy(mine, fetch, follower, high_watermark, params, now_us):
    """Add for how long since the last update a rule run was right about a follower (`settle_ledger_of_follower`)."""
    if mine.judged == 0 or now_us <= mine.settled_us:
        return
    since_us = mine.settled_us if follower.eligible != 0 else now_us
    late_us = min(max(truly_late_at_us(fetch, params.replica_lag_time_max_ms), since_us), now_us)
    if follower.in_isr != 0:
        mine.agreed_us += late_us - since_us
        mine.late_in_isr_us += now_us - late_us
        if mine.missed == 0:
            mine.agreed_by_blame_us += now_us - since_us
    else:
        right_from_us = since_us if fetch.log_end_offset < high_watermark else late_us
        mine.agreed_us += now_us - right_from_us
        if mine.excused == 0:
            mine.agreed_by_blame_us += now_us - right_from_us
    mine.judged_us += now_us - since_us
    mine.settled_us = now_us


@kernel
def settle_ledger_of_follower(state, r, p, now_us):
    """Update how long rule run ``r`` was right to have follower ``p`` in the ISR or outside it, by lag and by blame.

    Right by lag (``agreed_us``): a member whose true lag is within the lag time; an outsider whose true lag is not, or
    that is below the high watermark. By blame (``agreed_by_blame_us``): a member until a miss is counted (`misses`); an
    outsider as by lag, but not after a spurious shrink. Time in which the follower is fenced is left out.
    """
    mine, high_watermark = state.ledger.followers[r, p], state.leaders[r].shown_high_watermark
    _sum_up_accuracy(mine, state.fetches[p], state.followers[r, p], high_watermark, state.params[r], now_us)


@inlined
def _acknowledge_in_ledger(waits, page, r, high_watermark, now_us):
    if some_ack_waits_end(waits, r, high_watermark):
        _count_acknowledged_in_ledger(waits, page, r, high_watermark, now_us)


@kernel
def _count_acknowledged_in_ledger(waits, page, r, high_watermark, now_us):
    acknowledged, longest_us = acknowledge_waits(waits, r, high_watermark, now_us, page[LATENCIES:])
    page[ACKNOWLEDGED_APPENDS] += acknowledged
    page[ACKS_ALL_LATENCY_MAX_US] = max(page[ACKS_ALL_LATENCY_MAX_US], longest_us)


@inlined
def is_in_ledger(leader):
    """Whether a partition's state is the one that was last written to the rule run's ledger and timeline."""
    return (
        leader.log_end_offset == leader.shown_log_end_offset
        and leader.high_watermark == leader.shown_high_watermark
        and leader.isr == leader.shown_isr
        and leader.acknowledged_offset == leader.shown_acknowledged_offset
        and leader.acknowledged_end == leader.shown_acknowledged_end
    )


@inlined
def show_leader_in_ledger(state, r, now_us, out):
    """If the partition's state under rule run ``r`` has changed, write a timeline row and update the counters."""
    if not is_in_ledger(state.leaders[r]):
        _show_in_ledger(state, r, now_us, out)


@inlined
def show_leaders_in_ledger(state, now_us, out):
    """Write a timeline row and update the counters for each rule run under which the partition's state has changed."""
    _show_in_ledger(state, EACH, now_us, out)


@inlined
def _show_in_ledger(state, which, now_us, out):
    _show_leaders_in_ledger(
        state.term[0], state.active, state.leaders, state.params, state.followers, state.fetches, state.ledger,
        out.partition, out.filled, which, now_us,
    )  # fmt: skip


@inlined
def _show_leaders_in_ledger(term, active, leaders, params, followers, fetches, ledger, rows, filled, which, now_us):
    # Arrays are passed one by one, not in a tuple, because a call would pass all of it, and half is not needed.
    since = filled[1]
    for k in range(term.active if which == EACH else 1):
        r = active_run(active, k) if which == EACH else which
        if not is_in_ledger(leaders[r]):
            leader = leaders[r]
            # A producer may be answered without any change that the timeline shows.
            answered = leader.shown_acknowledged_end
            leader.shown_acknowledged_end = leader.acknowledged_end
            is_shown = is_in_ledger(leader) and answered != leader.acknowledged_end
            _ledger_of_leader(term, leader, params[r], followers[r], fetches, ledger, r, now_us)
            if not is_shown:
                show_leader_in_timeline(rows, filled, since, now_us, leader)


@inlined
def _ledger_of_leader(term, leader, params, followers, fetches, ledger, r, now_us):
    page = ledger.pages[r]
    settle_ledger(page, leader, params, now_us)
    begun = leader.shown_log_end_offset >= 0
    moved = leader.high_watermark != leader.shown_high_watermark
    if moved and begun:
        for p in range(term.replicas):
            if p != term.leader and followers[p].in_isr == 0:
                _sum_up_accuracy(
                    ledger.followers[r, p], fetches[p], followers[p], leader.shown_high_watermark, params, now_us
                )
    if leader.high_watermark < leader.shown_high_watermark and begun:
        count_violation_on_page(page, HIGH_WATERMARK_DECREASES, now_us)
    # If only the log grew, no further follower is at risk.
    early = leader.acknowledged_end > leader.high_watermark
    changed = moved or early or leader.isr != leader.shown_isr or not begun
    rises = leader.high_watermark > leader.shown_high_watermark and begun
    leader.shown_log_end_offset = leader.log_end_offset
    leader.shown_acknowledged_offset = leader.acknowledged_offset
    leader.shown_high_watermark = leader.high_watermark
    leader.shown_isr = leader.isr
    leader.shown_isr_size = leader.isr_size
    look_at_heirs(page, leader, term, followers, fetches, params)
    if changed or page[AT_RISK] > 0:
        look_at_members(page, leader, term, fetches, now_us)
    if rises and now_us >= ledger_known_from_us(term, params):
        for p in range(leader.replicas):
            known = fetches[p].log_end_offset
            if p != term.leader and 0 <= known < leader.high_watermark:
                if now_us < truly_late_at_us(fetches[p], params.replica_lag_time_max_ms):
                    count_violation_on_page(page, PASSED_WITHIN_LAG_TIME, now_us)
    if leader.isr >> term.leader & 1 == 0:
        count_violation_on_page(page, LEADER_OUTSIDE_ISR, now_us)
    if leader.isr >> term.replicas != 0:
        count_violation_on_page(page, ISR_OUTSIDE_ASSIGNMENT, now_us)
    _acknowledge_in_ledger(ledger.waits, page, r, max(leader.high_watermark, leader.acknowledged_end), now_us)


@inlined
def produce_in_ledger(term, active, ledger, leaders, params, log_end_offset, now_us):
    """Count an acks=all append in each rule run: refused if the ISR is below min.insync.replicas, or else waiting."""
    place = add_ack_wait(ledger.waits, log_end_offset, now_us)
    for k in range(term.active):
        r = active_run(active, k)
        leader = leaders[r]
        if leader.isr_size < min(params[r].min_insync_replicas, leader.replicas):
            ledger.pages[r][REFUSED_APPENDS] += 1
        else:
            ledger.waits[place, FIRST_RUN + r] += 1
            end = max(leader.high_watermark, leader.acknowledged_end)
            _acknowledge_in_ledger(ledger.waits, ledger.pages[r], r, end, now_us)


@kernel
def _write_ledger(ledger, r, day, out):
    page = ledger.pages[r]
    fill_bucket_of_short_waits(page)
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
def close_ledger(state, now_us, out):
    """Write the day's counters as score rows, and clear them for the next day."""
    ledger, term = state.ledger, state.term[0]
    day = term.day_ends_us // DAY_US - 1
    term.day_ends_us += DAY_US
    for r in range(term.runs):
        settle_ledger(state.ledger.pages[r], state.leaders[r], state.params[r], now_us)
        settle_waits(state, r, now_us)
        _write_ledger(ledger, r, day, out)
        for p in range(term.replicas):
            if p != term.leader:
                settle_ledger_of_follower(state, r, p, now_us)
                mine = ledger.followers[r, p]
                row = out.follower_score[out.filled[4]]
                out.filled[4] += 1
                row[0] = r
                row[1] = p
                row[2] = day
                row[3] = mine.judged_us
                row[4] = mine.agreed_us
                row[5] = mine.misses
                row[6] = mine.agreed_by_blame_us
                row[7] = mine.early
                row[8] = mine.late_in_isr_us
        clear_ledger(ledger.pages[r], ledger.followers[r])


@kernel
def end_ledger(state, now_us, out):
    """Write the counters at the end of a term.

    Appends that have waited for more than a lag time by then are counted as never acknowledged.
    """
    last_us = now_us - IN_FLIGHT_US * state.term[0].ends_mid_term
    for r in range(state.term[0].runs):
        lag_us = state.params[r].replica_lag_time_max_ms * 1000
        end_waits(state, r, now_us)
        state.ledger.pages[r][NEVER_ACKNOWLEDGED] = count_given_up_ack_waits(state.ledger.waits, r, now_us - lag_us)
        for p in range(state.term[0].replicas):
            if p != state.term[0].leader:
                settle_ledger_of_follower(state, r, p, now_us)
                count_early(state, r, p, last_us)
    close_ledger(state, now_us, out)
