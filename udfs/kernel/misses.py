"""Find misses, and update the counters of rule runs when a fetch may change whether they are right about a follower.

A rule run is right about a follower if it is right to have it in its ISR, or right not to. A miss: the follower is
still in the ISR 1.5 lag times after it began to lack records, although a shrink would be genuine. Most fetches change
nothing for any rule run. Summaries over all rule runs in TERM and FETCH_STATE show this, so that only the remaining
fetches are examined under each rule run.
"""

from udfs.jit import inlined, kernel
from udfs.kernel.active_runs import active_run
from udfs.kernel.causes import CAUGHT_UP, KEEPING_PACE, SLOW_LEADER, UNACKED_ONLY, UNKNOWN, causes_of_shrink
from udfs.kernel.excuses import count_early
from udfs.kernel.follower_truth import true_miss_at_us, truly_late_at_us
from udfs.kernel.ledger import settle_ledger, settle_ledger_of_follower
from udfs.kernel.ledger_page import AT_RISK, ledger_known_from_us
from udfs.kernel.lost_records import look_at_members
from udfs.kernel.shared_runs import join_shared_runs, part_shared_run, part_shared_runs, shared_runs_part_at_us
from udfs.records import NEVER_US

NOT_A_MISS = CAUGHT_UP | KEEPING_PACE | SLOW_LEADER | UNACKED_ONLY | UNKNOWN


@inlined
def note_lack_for_misses(state, p, now_us):
    """Schedule `look_for_misses`, because follower ``p`` has begun to lack records.

    If it still lacks them after 1.5 lag times, that call counts a miss for rule runs that wrongly kept it in the ISR.
    """
    term = state.term[0]
    due_us = max(shared_runs_part_at_us(state.fetches[p], term.least_lag_time_ms), now_us + 1)
    term.miss_due_us = min(term.miss_due_us, due_us)


@inlined
def misses_before_arrival(state, p, now_us, log_end_offset):
    """Bring the counters of rule runs up to date before a fetch changes the known log end of follower ``p``.

    ``log_end_offset`` is the log end that the fetch shows, or -1.
    """
    fetch = state.fetches[p]
    back = log_end_offset < fetch.log_end_offset
    if fetch.outsider_in > 0 or truly_late_at_us(fetch, state.term[0].least_lag_time_ms) <= now_us or back:
        _settle_misses_of_runs(state, p, now_us, back)


@kernel
def _settle_misses_of_runs(state, p, now_us, back):
    """Update the counters of rule runs that have follower ``p`` outside the ISR, or whose lag time it has exceeded.

    If ``back`` (the follower's log became shorter), update the counters of all rule runs.
    """
    fetch = state.fetches[p]
    for k in range(state.term[0].active):
        r = active_run(state.active, k)
        late_us = truly_late_at_us(fetch, state.params[r].replica_lag_time_max_ms)
        if state.followers[r, p].in_isr == 0 or late_us <= now_us or back:
            settle_ledger_of_follower(state, r, p, now_us)
            count_early(state, r, p, now_us)


@inlined
def misses_after_arrival(state, p, now_us):
    """Bring the counters of rule runs up to date after a fetch has changed the known log end of follower ``p``."""
    fetch, term = state.fetches[p], state.term[0]
    below = fetch.error_code == 0 and fetch.log_end_offset < term.highest_acknowledged
    if fetch.quiet == 0 or term.runs_at_risk > 0 or below:
        _look_at_misses_of_runs(state, p, now_us)
    if fetch.missing_since_us != NEVER_US:
        note_lack_for_misses(state, p, now_us)


@kernel
def _look_at_misses_of_runs(state, p, now_us):
    """Update each rule run's counters for a fetch of follower ``p``.

    The follower's field ``quiet`` becomes 1 if its next fetches can change nothing for any rule run.
    """
    fetch = state.fetches[p]
    fetch.quiet = 1
    for k in range(state.term[0].active):
        r = active_run(state.active, k)
        if p >= state.leaders[r].replicas:  # no answer about an observer is right or wrong
            continue
        mine = state.ledger.followers[r, p]
        if fetch.error_code == 0:
            if mine.judged == 0 or mine.settled_us > now_us:
                mine.judged = 1
                mine.settled_us = max(now_us, ledger_known_from_us(state.term[0], state.params[r]))
            page, leader = state.ledger.pages[r], state.leaders[r]
            acknowledged = max(leader.high_watermark, leader.acknowledged_end)
            if page[AT_RISK] > 0 or (leader.isr >> p & 1 and fetch.log_end_offset < acknowledged):
                settle_ledger(state.ledger.pages[r], state.leaders[r], state.params[r], now_us)
                look_at_members(page, leader, state.term[0], state.fetches, now_us)
        if mine.looked_at_us != fetch.missing_since_us:
            mine.looked_at_us = NEVER_US
        if mine.missed != 0 and now_us < truly_late_at_us(fetch, state.params[r].replica_lag_time_max_ms):
            mine.missed = 0
        if mine.judged == 0 or mine.settled_us > now_us or mine.looked_at_us != NEVER_US or mine.missed != 0:
            fetch.quiet = 0
    if fetch.quiet != 0:
        join_shared_runs(state, now_us)


@kernel
def stop_judging_misses(state, p, now_us):
    """Stop counting whether rules are right about follower ``p``, which the controller removed, until it fetches."""
    state.fetches[p].quiet = 0
    part_shared_runs(state)
    for r in range(state.term[0].runs):
        settle_ledger_of_follower(state, r, p, now_us)
        state.ledger.followers[r, p].judged = state.ledger.followers[r, p].excused = 0


@kernel
def look_for_misses(state, now_us):
    """Count a miss for each rule run that has kept a failed follower in the ISR for more than 1.5 lag times.

    A rule run that is replayed in a group leaves the group before the follower is late by the run's lag time
    (`shared_runs`).
    """
    term = state.term[0]
    state.term[0].miss_due_us = NEVER_US
    for r in range(term.runs):
        leader, params = state.leaders[r], state.params[r]
        for p in range(leader.replicas):
            fetch, mine = state.fetches[p], state.ledger.followers[r, p]
            if p == term.leader or fetch.missing_since_us in (NEVER_US, mine.looked_at_us):
                continue
            if leader.along != 0:
                due_us = shared_runs_part_at_us(fetch, params.replica_lag_time_max_ms)
                if due_us > now_us:
                    term.miss_due_us = min(term.miss_due_us, due_us)
                    continue
                part_shared_run(state, r)
            due_us = true_miss_at_us(fetch, params.replica_lag_time_max_ms)
            if due_us > now_us:
                state.term[0].miss_due_us = min(state.term[0].miss_due_us, due_us)
                continue
            mine.looked_at_us = fetch.missing_since_us
            fetch.quiet = 0
            leaving = leader.commit_us != NEVER_US and leader.pending_isr >> p & 1 == 0
            if state.followers[r, p].in_isr == 0 or leaving or mine.missed != 0:
                continue
            if mine.judged == 0 or mine.settled_us > now_us:
                continue
            if causes_of_shrink(state, r, p, now_us) & NOT_A_MISS == 0:
                settle_ledger_of_follower(state, r, p, now_us)
                mine.missed = 1
                mine.misses += 1
