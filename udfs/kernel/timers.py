"""The timers of each rule run: next check, answer to an ISR write, overdue follower, giving up leadership."""

from udfs.jit import inlined, kernel
from udfs.kernel.rule_calls import GIVE_UP, gives_up_at_us, overdue_at_ms
from udfs.records import (
    ARRIVED,
    NEVER_US,
    NO_LINE,
    RECORDED,
)


@kernel
def first_rule_timer(term, due_us, leaders):
    """Return the rule run whose timer fires first, and set ``term.rules_due_us`` to the time of that timer.

    This is called rarely, because usually no timer is due when a fetch is processed.
    """
    while True:
        first, least_us = 0, NEVER_US
        for r in range(term.runs):
            least_us = min(least_us, due_us[r])
        while due_us[first] != least_us:
            first += 1
        term.rules_due_us = least_us
        reset_timer(due_us, leaders, first)
        if due_us[first] == least_us:
            return first


@inlined
def reset_timer(due_us, leaders, r):
    """Set ``due_us`` of rule run ``r`` to the time of its next timer, after a timer fired or was postponed."""
    due_us[r] = min(leaders[r].check_us, leaders[r].commit_us, leaders[r].give_up_us)


@kernel
def schedule_check(state, r, after_us):
    """Set rule run ``r``'s timer to its first periodic check after ``after_us``.

    If the check is due during a silence of the leader, the timer is set to the end of the silence.
    """
    leader = state.leaders[r]
    period_us = state.params[r].check_period_ms * 1000
    if period_us == 0:
        return
    phase_us = state.params[r].check_phase_ms * 1000
    if after_us == leader.check_due_us:
        leader.check_due_us += period_us
    else:
        leader.check_due_us = phase_us + ((after_us - phase_us) // period_us + 1) * period_us
    leader.check_us = leader.check_due_us
    leader.check_logged = NO_LINE
    defer_check(state, r)


@kernel
def defer_check(state, r):
    """Postpone the check of rule run ``r`` to the end of a silence of the leader, if it is due during the silence."""
    leader = state.leaders[r]
    if state.term[0].silent_from_us <= leader.check_us < state.term[0].silent_until_us:
        leader.check_us = state.term[0].silent_until_us
    await_rule_timer(state.term[0], state.due_us, r, leader.check_us)


@inlined
def schedule_crossing(state, r, now_us):
    """If rule run ``r`` has no periodic checks, set its check timer to when the next follower becomes overdue.

    Followers outside the ISR are included, because the high watermark may have waited for them.
    """
    if state.params[r].check_period_ms == 0:
        params, code = state.params[r], state.codes[r]
        _find_overdue_timer(
            state.term[0], state.due_us, r, state.leaders[r], state.followers[r], state.fetches, params, code,
            now_us,
        )  # fmt: skip


@kernel
def _find_overdue_timer(term, due_us, r, leader, followers, fetches, params, code, now_us):
    """Set the check timer of rule run ``r`` to the first time at which a follower is overdue."""
    check_us = NEVER_US
    if leader.commit_us == NEVER_US:
        for p in range(leader.replicas):
            if p == term.leader:
                continue
            overdue_ms = overdue_at_ms(code, followers[p], leader, fetches[p], params)
            if overdue_ms < check_us // 1000:
                if followers[p].in_isr != 0:
                    check_us = max(overdue_ms * 1000, now_us)
                elif overdue_ms * 1000 > now_us:
                    check_us = overdue_ms * 1000
    leader.check_us = check_us
    await_rule_timer(term, due_us, r, check_us)


@inlined
def schedule_giving_up(state, r, now_us):
    """If rule run ``r`` gives up leadership over slow fetches, set its timer to when a fetch will be too slow."""
    if GIVE_UP >> state.codes[r] & 1:
        params, code = state.params[r], state.codes[r]
        _find_giving_up_timer(state.term[0], state.due_us, r, state.leaders[r], state.fetches, params, code, now_us)


@kernel
def _find_giving_up_timer(term, due_us, r, leader, fetches, params, code, now_us):
    """Set the timer of rule run ``r`` to when the leader will first have held a fetch for too long."""
    leader.give_up_us = NEVER_US
    for p in range(term.replicas):
        fetch = fetches[p]
        if ARRIVED <= fetch.stage <= RECORDED and fetch.arrival_us >= leader.epoch_start_us:
            at_us = gives_up_at_us(code, fetch, params)
            if at_us > now_us:
                leader.give_up_us = min(leader.give_up_us, at_us)
    await_rule_timer(term, due_us, r, leader.give_up_us)


@inlined
def await_rule_timer(term, due_us, r, at_us):
    """Lower ``due_us[r]``, before which no timer of rule run ``r`` fires, to the time ``at_us`` of a timer just set.

    If the timer was postponed, ``due_us[r]`` is too early until `reset_timer` is called.
    """
    due_us[r] = min(due_us[r], at_us)
    term.rules_due_us = min(term.rules_due_us, at_us)
