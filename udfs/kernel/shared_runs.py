"""Replay rule runs that differ only in their lag time as one group, as long as all followers are in their ISRs.

A rule run is one rule with one set of parameters. A group consists of rule runs of one rule, or of rules of a family
(``udfs.kernel.families``). Their state is the same, because the followers' state does not depend on the lag time, and
the high watermark waits for all followers. So the state is kept once, in a slot for the group (an index of the arrays
of ``udfs.kernel.state.State``), after the slots of the rule runs. Before the states can differ, a rule run leaves its
group with a copy of the group's state: when it has a follower to drop, when a follower is about to be late by its lag
time, or when a day's counters are written. All rule runs leave at an irregular fetch, which rules of a family may
process differently. A rule run joins again when its state equals the group's.

The group also counts for its rule runs: while a rule run is in a group, its counters hold the difference between its
totals and the group's counters. A group uses the smallest lag time of its rule runs.
"""

import numpy as np
from numba import literal_unroll

from udfs.jit import inlined, kernel
from udfs.kernel import ledger, ledger_page, timeline_rows
from udfs.kernel.ack_latency import ack_waits_alike, forget_ack_waits, take_over_ack_waits
from udfs.kernel.families import FAMILIES, params_of_knowing
from udfs.kernel.follower_truth import truly_late_at_us
from udfs.kernel.rule_calls import ACKNOWLEDGE_EARLY
from udfs.kernel.unanswered import settle_waits
from udfs.records import FOLLOWER, LEADER, NEVER_US, RUNS_A_ROW
from udfs.rules import REGISTRY

NO_GROUP = np.int64(-1)
_ALIKE_IN = ("min_insync_replicas", *params_of_knowing(tuple(REGISTRY.values())))
"""Parameters that must be equal in all rule runs of a group, because the counters or the followers' state depends on
them."""
OWN = (
    "last_isr_change_time_ms", "last_isr_write_time_ms", "commit_us", "epoch_start_us", "give_up_us", "check_due_us",
    "check_us", "check_logged", "runs", "group", "along",
)  # fmt: skip
"""Fields of LEADER in which rule runs of a group may differ, because only checks and ISR writes read them."""
_OF_LEADER = tuple(name for name in LEADER.names or () if name not in OWN)
_OF_FOLLOWER = FOLLOWER.names or ()
TIMERS = ("commit_us", "give_up_us", "check_us")
"""Fields of LEADER with the timers of a rule run. A group's timers are never set."""


@inlined
def shared_runs_part_at_us(fetch, lag_time_ms):
    """Return when this follower makes a rule run with this lag time leave its group, in microseconds.

    That is just before the rule `true-lag` would find the follower out of sync.
    """
    return truly_late_at_us(fetch, lag_time_ms) - 1


@kernel
def _runs_may_share(state, r, other):
    """Whether two rule runs may be in one group: rules of one family, and equal parameters except the lag time.

    Neither may acknowledge appends above the high watermark: a group does not count the records that an heir lacks.
    """
    for name in literal_unroll(_ALIKE_IN):
        if state.params[r][name] != state.params[other][name]:
            return False
    early = ACKNOWLEDGE_EARLY >> state.codes[r] | ACKNOWLEDGE_EARLY >> state.codes[other]
    return FAMILIES[state.codes[r]] == FAMILIES[state.codes[other]] and early & 1 == 0


@kernel
def form_shared_runs(state):
    """Assign each rule run to a group at the start of a term. Until it joins the group, it is replayed separately."""
    term = state.term[0]
    term.active = term.runs
    groups = term.runs
    for r in range(term.runs):
        state.active[r] = r
        state.leaders[r].runs = timeline_rows.bit_of_timeline_run(r)
        state.leaders[r].group = NO_GROUP
        state.leaders[r].along = 0
    for group in range(term.runs, len(state.leaders)):
        forget_ack_waits(state.ledger.waits, group)
    for r in range(term.runs):
        if state.leaders[r].group != NO_GROUP or state.params[r].check_period_ms == 0:
            continue
        # A group writes one timeline row for all its runs, so it has no more runs than a row can represent.
        end = min(term.runs, (r // RUNS_A_ROW + 1) * RUNS_A_ROW)
        for other in range(r + 1, end):
            if state.params[other].check_period_ms != 0 and _runs_may_share(state, r, other):
                if state.leaders[r].group == NO_GROUP:
                    state.leaders[r].group = groups
                    state.codes[groups] = state.codes[r]
                    state.params[groups] = state.params[r]
                    state.leaders[groups].along = 0
                    groups += 1
                state.leaders[other].group = state.leaders[r].group


@kernel
def _take_over_shared_slot(state, to, of):
    """Copy the state of slot ``of`` to slot ``to``: leader, followers, waiting appends, and what has been scored."""
    for name in literal_unroll(_OF_LEADER):
        state.leaders[to][name] = state.leaders[of][name]
    for p in range(state.term[0].replicas):
        state.followers[to, p] = state.followers[of, p]
        mine, other = state.ledger.followers[to, p], state.ledger.followers[of, p]
        mine.judged = other.judged
        mine.settled_us = other.settled_us
        mine.looked_at_us = other.looked_at_us
        mine.missed = other.missed
        mine.let_go_us = other.let_go_us
    for place in (ledger_page.SETTLED_US, ledger_page.WAITED_UNTIL_US, ledger_page.ANSWERED_US):
        state.ledger.pages[to, place] = state.ledger.pages[of, place]
    take_over_ack_waits(state.ledger.waits, to, of)


@inlined
def run_shared_with(state, r):
    """Return the slot with the state of rule run ``r``: that of its group while it is in one, else its own.

    In a group's slot, the times of the last ISR change, the last ISR write and the due check are set to those of ``r``.
    """
    leader = state.leaders[r]
    if leader.along == 0:
        return r
    group = state.leaders[leader.group]
    group.last_isr_change_time_ms = leader.last_isr_change_time_ms
    group.last_isr_write_time_ms = leader.last_isr_write_time_ms
    group.check_due_us = leader.check_due_us
    return leader.group


@kernel
def _count_in(state, r, times):
    """Add its group's counters to those of rule run ``r`` (``times`` = 1), or subtract them (``times`` = -1)."""
    g = state.leaders[r].group
    page, of_group = state.ledger.pages[r], state.ledger.pages[g]
    for place in range(ledger_page.PLACES):
        if place not in ledger_page.NO_SUMS:
            page[place] += times * of_group[place]
    for p in range(state.term[0].replicas):
        mine, of_all = state.ledger.followers[r, p], state.ledger.followers[g, p]
        mine.judged_us += times * of_all.judged_us
        mine.agreed_us += times * of_all.agreed_us
        mine.agreed_by_blame_us += times * of_all.agreed_by_blame_us
        mine.misses += times * of_all.misses
        mine.late_in_isr_us += times * of_all.late_in_isr_us


@kernel
def _add_extremes(state, r):
    """Merge the maxima and the first violation of its group into those of rule run ``r``."""
    page, of_group = state.ledger.pages[r], state.ledger.pages[state.leaders[r].group]
    for place in ledger_page.EXTREMES:
        page[place] = max(page[place], of_group[place])
    if page[ledger_page.FIRST_VIOLATION] == ledger_page.NO_VIOLATION:
        page[ledger_page.FIRST_VIOLATION] = of_group[ledger_page.FIRST_VIOLATION]
        page[ledger_page.FIRST_VIOLATION_US] = of_group[ledger_page.FIRST_VIOLATION_US]


@kernel
def _clear_extremes_of_shared(state, g):
    """Clear the maxima and the first violation of group ``g``, because another rule run joins it."""
    page = state.ledger.pages[g]
    for place in ledger_page.EXTREMES:
        page[place] = 0
    page[ledger_page.FIRST_VIOLATION] = ledger_page.NO_VIOLATION
    page[ledger_page.FIRST_VIOLATION_US] = ledger_page.NO_VIOLATION


@inlined
def part_shared_run(state, r):
    """Take rule run ``r`` out of its group, if it is in one, so that it is replayed separately."""
    if state.leaders[r].along != 0:
        _part_from_shared_run(state, r)


@kernel
def _part_from_shared_run(state, r):
    """Take rule run ``r`` out of its group, with a copy of the group's state and counters."""
    term, leader = state.term[0], state.leaders[r]
    g = leader.group
    _take_over_shared_slot(state, r, g)
    _count_in(state, r, 1)
    _add_extremes(state, r)
    page, of_group = state.ledger.pages[r], state.ledger.pages[g]
    page[ledger_page.AT_RISK] = of_group[ledger_page.AT_RISK]
    page[ledger_page.BELOW] = of_group[ledger_page.BELOW]
    term.runs_at_risk += int(page[ledger_page.AT_RISK] > 0)
    leader.along = 0
    state.leaders[g].along -= 1
    state.leaders[g].runs ^= leader.runs & timeline_rows.BITS
    state.active[term.active] = r
    term.active += 1
    if state.leaders[g].along == 0:
        term.runs_at_risk -= int(of_group[ledger_page.AT_RISK] > 0)
        _take_away_shared_slot(state, g)
        forget_ack_waits(state.ledger.waits, g)
    state.params[g].replica_lag_time_max_ms = _least_lag_time_of_group_ms(state, g)


@inlined
def is_irregular(fetch, term):
    """Whether a fetch failed, or the leader's log is shorter than at the previous fetch.

    Rules of one family may process such a fetch differently.
    """
    known = max(fetch.previous_leader_log_end_offset, term.start_offset)
    return fetch.error_code != 0 or fetch.leader_log_end_offset < known


@kernel
def part_shared_runs(state):
    """Take all rule runs out of their groups, so that each is replayed separately."""
    for r in range(state.term[0].runs):
        part_shared_run(state, r)


@kernel
def _take_away_shared_slot(state, place):
    """Remove slot ``place`` from the list of slots to replay."""
    term = state.term[0]
    term.active -= 1
    for i in range(term.active):
        if state.active[i] == place:
            state.active[i] = state.active[term.active]


@kernel
def _least_lag_time_of_group_ms(state, g):
    """Return the smallest lag time of the rule runs that are in group ``g`` now."""
    least_ms = NEVER_US // 1000000
    for r in range(state.term[0].runs):
        if state.leaders[r].along != 0 and state.leaders[r].group == g:
            least_ms = min(least_ms, state.params[r].replica_lag_time_max_ms)
    return least_ms


@inlined
def join_shared_run(state, r, now_us):
    """Put rule run ``r`` into its group, if all followers are in the ISR and its state equals that of the group.

    If the group is empty, it gets the state of the rule run.
    """
    leader = state.leaders[r]
    if leader.group != NO_GROUP and leader.along == 0 and leader.isr_size == leader.replicas:
        _join_shared_run(state, r, now_us)


@kernel
def join_shared_runs(state, now_us):
    """Put each rule run that is not in its group into it, if its state equals that of the group."""
    for r in range(state.term[0].runs):
        join_shared_run(state, r, now_us)


@kernel
def _join_shared_run(state, r, now_us):
    """Put rule run ``r``, whose ISR contains all followers, into its group if their states are equal."""
    term, leader = state.term[0], state.leaders[r]
    g = leader.group
    if not _may_join_group(state, r, now_us):
        return
    _settle_shared_slot(state, r, now_us)
    if state.leaders[g].along == 0:
        _start_group(state, r)
    else:
        _settle_shared_slot(state, g, now_us)
        if not _is_like_its_shared_run(state, r):
            return
        for other in range(term.runs):
            if state.leaders[other].along != 0 and state.leaders[other].group == g:
                _add_extremes(state, other)
        _clear_extremes_of_shared(state, g)
    _count_in(state, r, -1)
    leader.along = 1
    state.leaders[g].along += 1
    state.leaders[g].runs |= leader.runs
    forget_ack_waits(state.ledger.waits, r)
    _take_away_shared_slot(state, r)
    lag_time_ms = state.params[r].replica_lag_time_max_ms
    state.params[g].replica_lag_time_max_ms = min(state.params[g].replica_lag_time_max_ms, lag_time_ms)
    for p in range(term.replicas):
        if p != term.leader:
            term.miss_due_us = min(term.miss_due_us, shared_runs_part_at_us(state.fetches[p], lag_time_ms))


@kernel
def _settle_shared_slot(state, place, now_us):
    """Bring the counters of slot ``place`` up to date, up to ``now_us``."""
    ledger.settle_ledger(state.ledger.pages[place], state.leaders[place], state.params[place], now_us)
    settle_waits(state, place, now_us)
    for p in range(state.term[0].replicas):
        if p != state.term[0].leader:
            ledger.settle_ledger_of_follower(state, place, p, now_us)


@kernel
def _may_join_group(state, r, now_us):
    """Whether the state of rule run ``r`` allows it to join its group.

    There must be no ISR write in flight, no ISR member below the high watermark, and no follower that is late, not
    scored yet or in doubt. Requests must wait for the followers' fetches alone, as in all rule runs of the group.
    The high watermark must not be able to rise, because some releases only advance it when a follower's offset changes.
    And the rule must not remember that the leader's log was once longer than at a follower's latest fetch, because
    other rules of its family forget that.
    """
    term, leader = state.term[0], state.leaders[r]
    if leader.commit_us != NEVER_US or state.ledger.pages[r, ledger_page.AT_RISK] != 0:
        return False
    if leader.replicas == 1 and term.observers != 0:  # what an observer would lack as the next leader is counted
        return False
    least = leader.log_end_offset
    for p in range(term.replicas):
        if p == term.leader:
            continue
        follower = state.followers[r, p]
        known = max(state.fetches[p].previous_leader_log_end_offset, term.start_offset)
        if follower.last_fetch_leader_log_end_offset > known:
            return False
        if p < leader.replicas:
            least = min(least, follower.log_end_offset)
    if least > leader.high_watermark:
        return False
    if state.ledger.pages[r, ledger_page.SETTLED_US] > now_us:  # the run's ledger does not count yet
        return False
    for p in range(leader.replicas):
        if p == term.leader:
            continue
        fetch, mine = state.fetches[p], state.ledger.followers[r, p]
        if mine.judged == 0 or mine.settled_us > now_us or mine.looked_at_us != NEVER_US or mine.missed != 0:
            return False
        answered_us = state.ledger.pages[r, ledger_page.ANSWERED_US]
        known_us = ledger_page.ledger_known_from_us(term, state.params[r])
        if max(mine.let_go_us, answered_us, known_us) > fetch.had_until_us:
            return False
        # After leadership is given up, members return without a fetch. So a later fetch may still show that a shrink is
        # not certain.
        if fetch.arrival_us <= mine.doubt_until_us:
            return False
        if (
            shared_runs_part_at_us(fetch, state.params[r].replica_lag_time_max_ms) <= now_us
            or mine.joined_us == NEVER_US
        ):
            return False
    return True


@kernel
def _is_like_its_shared_run(state, r):
    """Whether the state of rule run ``r`` equals that of its group."""
    g = state.leaders[r].group
    for name in literal_unroll(_OF_LEADER):
        if state.leaders[r][name] != state.leaders[g][name]:
            return False
    for p in range(state.term[0].replicas):
        for name in literal_unroll(_OF_FOLLOWER):
            if state.followers[r, p][name] != state.followers[g, p][name]:
                return False
    if state.ledger.pages[g, ledger_page.AT_RISK] != 0:
        return False
    return ack_waits_alike(state.ledger.waits, r, g)


@kernel
def _start_group(state, r):
    """Start the empty group of rule run ``r`` with the rule run's state and cleared counters."""
    term, g = state.term[0], state.leaders[r].group
    _take_over_shared_slot(state, g, r)
    ledger.clear_ledger(state.ledger.pages[g], state.ledger.followers[g])
    state.ledger.pages[g, ledger_page.AT_RISK] = state.ledger.pages[g, ledger_page.BELOW] = 0
    state.leaders[g].runs = state.leaders[r].runs
    state.leaders[g].group = NO_GROUP
    state.params[g].replica_lag_time_max_ms = state.params[r].replica_lag_time_max_ms
    for name in literal_unroll(TIMERS):
        state.leaders[g][name] = NEVER_US
    state.active[term.active] = g
    term.active += 1
