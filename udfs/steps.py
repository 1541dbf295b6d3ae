"""What happens to a partition, step by step: a row of the log comes in, an instant of a fetch or a timer falls due.

Built for a list of rules, so that the compiler sees their functions. The replay (``udfs.replay``) and the simulation
(``udfs.simulation``) take the same steps.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from udfs import facts, history, ledger
from udfs.isr import isr_calls, rule_calls
from udfs.jit import inlined, kernel
from udfs.records import (
    APPEND,
    ARRIVED,
    CHECK,
    COMPLETED,
    ELIGIBLE,
    FETCH,
    LONG_AGO,
    NEVER_US,
    NO_FETCH,
    NOBODY_WAITS,
    READ,
    RECORDED,
    REMOVED,
    SILENCE,
)
from udfs.rules.base import NOTHING, Rule, never_gives_up, nothing

CHECK_SLACK_US = 2_000
"""A check seen in the log belongs to the due one that is this near, stamps being cut to milliseconds."""
NOBODY, OVERDUE = np.int64(-1), np.int64(-2)
ALL = np.int64(-1)


class Steps(NamedTuple):
    """See the functions of the same names."""

    begin_term: Callable[..., Any]
    take_in_row: Callable[..., Any]
    take_in: Callable[..., Any]
    fire_timers: Callable[..., Any]
    schedule_giving_up: Callable[..., Any]


def bits_of(answers: Iterable[bool]) -> np.int64:
    """Bit i is the i-th answer."""
    return np.int64(sum(1 << i for i, answer in enumerate(answers) if answer))


def build_steps(rules: Sequence[Rule]) -> Steps:
    """Compile the steps for these rules; a run's code is a position in ``rules``."""
    calls = rule_calls(rules)
    isr = isr_calls(calls)
    begin_rule_term, overdue_at_ms = calls.begin_term, calls.overdue_at_ms
    on_append, gives_up_at_us = calls.on_append, calls.gives_up_at_us
    check, remove, commit = isr.check, isr.remove, isr.commit
    install, relinquish = isr.install, isr.relinquish
    advance_high_watermark, show_all = isr.advance_high_watermark, isr.show_all
    give_up = bits_of(rule.gives_up_at_us is not never_gives_up for rule in rules)
    heed_appends = bits_of(rule.on_append is not nothing for rule in rules)

    @kernel
    def schedule_check(state, r, after_us):
        """Next run of isr-expiration after ``after_us``; a leader that is silent then runs it when it wakes."""
        leader = state.leaders[r]
        period_us = state.params[r].check_period_ms * 1000
        if period_us == 0:
            return
        phase_us = state.params[r].check_phase_ms * 1000
        leader.check_due_us = phase_us + ((after_us - phase_us) // period_us + 1) * period_us
        leader.check_us = leader.check_due_us
        defer_check(state, r)

    @kernel
    def defer_check(state, r):
        """A leader that does nothing for anybody does not check either, but makes up for it at once."""
        leader = state.leaders[r]
        if state.term[0].silent_from_us <= leader.check_us < state.term[0].silent_until_us:
            leader.check_us = state.term[0].silent_until_us

    @inlined
    def schedule_crossing(state, r, now_us):
        """A rule without periodic checks acts when a member of the ISR becomes overdue, or an outsider does.

        The outsider has nothing to leave, but the high watermark may have waited for it.
        """
        if state.params[r].check_period_ms == 0:
            find_crossing(state, r, now_us)

    @kernel
    def find_crossing(state, r, now_us):
        leader = state.leaders[r]
        leader.check_us = NEVER_US
        if leader.commit_us != NEVER_US:
            return
        for p in range(leader.replicas):
            follower = state.followers[r, p]
            if p == state.term[0].leader:
                continue
            overdue_ms = overdue_at_ms(state.codes[r], follower, leader, state.fetches[p], state.params[r])
            if overdue_ms < leader.check_us // 1000:
                if follower.in_isr != 0:
                    leader.check_us = max(overdue_ms * 1000, now_us)
                elif overdue_ms * 1000 > now_us:
                    leader.check_us = overdue_ms * 1000

    @inlined
    def schedule_giving_up(state, r, now_us):
        """The next instant at which a fetch of the rule's present epoch has taken too long."""
        if give_up >> state.codes[r] & 1:
            find_giving_up(state, r, now_us)

    @kernel
    def find_giving_up(state, r, now_us):
        leader = state.leaders[r]
        leader.give_up_us = NEVER_US
        for p in range(leader.replicas):
            fetch = state.fetches[p]
            if ARRIVED <= fetch.stage <= RECORDED and fetch.arrival_us >= leader.epoch_start_us:
                at_us = gives_up_at_us(state.codes[r], fetch, state.params[r])
                if at_us > now_us:
                    leader.give_up_us = min(leader.give_up_us, at_us)

    @kernel
    def begin_term(state, isr_at_start, high_watermark, leader_is_new, out):
        """Reset for a term that ``state.term`` and ``state.params`` already describe."""
        term = state.term[0]
        term.log_end_offset = term.start_offset
        term.silent_from_us = 0
        term.silent_until_us = 0
        history.begin(state.history, term.start_offset, term.start_us)
        for p in range(term.replicas):
            facts.begin(state.fetches[p], term)
        ledger.begin(state, isr_at_start)
        for r in range(len(state.leaders)):
            leader = state.leaders[r]
            leader.log_end_offset = term.start_offset
            leader.high_watermark = high_watermark
            leader.leader_epoch_start_offset = term.start_offset
            leader.replicas = term.replicas
            leader.acknowledged_offset = 0
            leader.last_append_time_ms = 0
            leader.shown_log_end_offset = -2
            leader.check_us = NEVER_US
            leader.epoch_start_us = term.start_us
            leader.give_up_us = NEVER_US
            leader.last_isr_write_time_ms = LONG_AGO
            for p in range(term.replicas):
                follower = state.followers[r, p]
                follower.shown_log_end_offset = -2
                follower.pending_fetch = 0
                member = (isr_at_start >> p) & 1
                if p != term.leader:
                    begin_rule_term(
                        state.codes[r],
                        follower,
                        leader,
                        member != 0,
                        leader_is_new,
                        term.start_us // 1000,
                        state.params[r],
                    )
            install(state, r, isr_at_start, term.start_us)
            advance_high_watermark(state, r, term.start_us // 1000)
            show_all(state, r, term.start_us, out)
            schedule_check(state, r, term.start_us - 1)
            schedule_crossing(state, r, term.start_us)

    @kernel
    def take_in_append(state, log_end_offset, acks, now_us, out):
        """The leader's log has grown."""
        term = state.term[0]
        if acks == ALL:
            ledger.produce(state, log_end_offset, now_us)
        elif acks != NOBODY_WAITS:
            for r in range(len(state.leaders)):
                state.leaders[r].acknowledged_offset = max(state.leaders[r].acknowledged_offset, log_end_offset)
        if log_end_offset <= term.log_end_offset:
            return
        term.log_end_offset = log_end_offset
        held_by_all = log_end_offset
        for p in range(term.replicas):
            if p != term.leader:
                facts.append(state.fetches[p], term, now_us)
                if state.fetches[p].missing_since_us == now_us:
                    ledger.note_lack(state, p, now_us)
                held_by_all = min(held_by_all, state.fetches[p].log_end_offset)
        history.remember(state.history, log_end_offset, now_us, held_by_all)
        for r in range(len(state.leaders)):
            leader = state.leaders[r]
            leader.log_end_offset = log_end_offset
            leader.last_append_time_ms = now_us // 1000
            for p in range(term.replicas):
                if p != term.leader and heed_appends >> state.codes[r] & 1:
                    on_append(state.codes[r], state.followers[r, p], leader, state.fetches[p], state.params[r])
            advance_high_watermark(state, r, now_us // 1000)
            show_all(state, r, now_us, out)
            schedule_crossing(state, r, now_us)

    def heeding(instant, after):
        """One instant of a fetch, for all rules that look at it; ``after`` is what the leader does then."""
        call = getattr(calls, instant)
        heeds = bits_of(getattr(rule, instant) is not nothing for rule in rules)

        @inlined
        def decide(state, p, now_us, out):
            fetch = state.fetches[p]
            for r in range(len(state.leaders)):
                if heeds >> state.codes[r] & 1:
                    todo = call(state.codes[r], state.followers[r, p], state.leaders[r], fetch, state.params[r])
                    if todo != NOTHING:
                        after(state, r, p, todo, now_us, out)
                        schedule_crossing(state, r, now_us)

        return decide

    on_arrival, on_read = heeding("on_arrival", isr.after_fetch), heeding("on_read", isr.after_fetch)
    on_recorded, on_completed = heeding("on_recorded", isr.after_recorded), heeding("on_completed", isr.after_fetch)

    @inlined
    def serve(state, p, stage, now_us, out):
        """A later instant of the follower's latest fetch, for the facts and for every rule."""
        fetch = state.fetches[p]
        if stage == READ:
            if fetch.leader_log_end_offset > state.term[0].log_end_offset:
                # The row tells of an append that the log has later, or not at all.
                take_in_append(state, fetch.leader_log_end_offset, NOBODY_WAITS, now_us, out)
            facts.read(fetch, state.term[0], now_us)
        fetch.stage = stage
        if stage == READ:
            on_read(state, p, now_us, out)
        elif stage == RECORDED:
            on_recorded(state, p, now_us, out)
            facts.record(fetch)
        else:
            on_completed(state, p, now_us, out)

    @kernel
    def take_in(state, p, stage, now_us, out):
        serve(state, p, stage, now_us, out)

    @kernel
    def fire_timers(state, until_us, out):
        """Everything due up to ``until_us`` in order of time.

        At equal times: answers, leadership given up, ISR writes answered, checks, reads, a look for misses.
        """
        while True:
            due_us = NEVER_US
            stage, which = NO_FETCH, NOBODY
            for p in range(state.term[0].replicas):
                fetch = state.fetches[p]
                if fetch.stage == RECORDED and fetch.completed_us < due_us:
                    due_us, stage, which = fetch.completed_us, COMPLETED, p
            for r in range(len(state.leaders)):
                leader = state.leaders[r]
                at_us = min(leader.check_us, leader.commit_us, leader.give_up_us)
                if at_us < due_us:
                    due_us, stage, which = at_us, NOBODY, r
            for p in range(state.term[0].replicas):
                fetch = state.fetches[p]
                if fetch.stage == ARRIVED and fetch.handled_us < due_us:
                    due_us, stage, which = fetch.handled_us, READ, p
                elif fetch.stage == READ and fetch.processed_us < due_us:
                    due_us, stage, which = fetch.processed_us, RECORDED, p
            if state.term[0].miss_due_us < due_us:
                due_us, stage = state.term[0].miss_due_us, OVERDUE
            if due_us > until_us:
                return
            if stage == OVERDUE:
                ledger.look_for_misses(state, due_us)
            elif stage != NOBODY:
                serve(state, which, stage, due_us, out)
            elif state.leaders[which].give_up_us == due_us:
                relinquish(state, which, due_us, out)
                schedule_giving_up(state, which, due_us)
            elif state.leaders[which].commit_us == due_us:
                commit(state, which, due_us)
                show_all(state, which, due_us, out)
                schedule_crossing(state, which, due_us)
            else:
                check(state, which, due_us, out)
                # A check that the log has a little early must not run again when it was due.
                schedule_check(state, which, max(due_us, state.leaders[which].check_due_us))
                schedule_crossing(state, which, due_us)

    @kernel
    def position_of(state, replica_id):
        for p in range(state.term[0].replicas):
            if state.fetches[p].replica_id == replica_id and p != state.term[0].leader:
                return p
        return -1

    @kernel
    def take_in_row(state, rows, i, out):
        """One row of the log, at its time."""
        term = state.term[0]
        now_us = rows.time_us[i]
        kind = rows.kind[i]
        if kind == APPEND:
            take_in_append(state, rows.offset[i], rows.code[i], now_us, out)
            return
        if kind == SILENCE:
            for p in range(term.replicas):
                facts.settle(state.fetches[p], term, now_us)
            term.silent_from_us = now_us
            term.silent_until_us = rows.until_us[i]
            for r in range(len(state.leaders)):
                if state.params[r].check_period_ms != 0:
                    defer_check(state, r)
            return
        if kind == CHECK:
            for r in range(len(state.leaders)):
                leader = state.leaders[r]
                if (
                    state.params[r].check_period_ms != 0
                    and now_us - CHECK_SLACK_US <= leader.check_us <= rows.until_us[i] + CHECK_SLACK_US
                ):
                    leader.check_us = rows.until_us[i]
            return
        p = position_of(state, rows.replica_id[i])
        if p < 0:
            term.ignored += 1
            return
        if kind == FETCH:
            # Two connections of one follower: what came by the older one is over first.
            state.fetches[p].completed_us = min(state.fetches[p].completed_us, now_us)
            for stage in range(READ, COMPLETED + 1):
                if ARRIVED <= state.fetches[p].stage < stage:
                    take_in(state, p, stage, now_us, out)
            if rows.code[i] == 0 and rows.offset[i] > term.log_end_offset:
                # A follower holds nothing that its leader lacks: the append is older than its stamp.
                take_in_append(state, rows.offset[i], NOBODY_WAITS, now_us, out)
            ledger.before_arrival(state, p, now_us, rows.offset[i])
            facts.arrive(state.fetches[p], term, state.history, rows, i)
            ledger.after_arrival(state, p, now_us)
            on_arrival(state, p, now_us, out)
            for r in range(len(state.leaders)):
                schedule_giving_up(state, r, now_us)
            return
        if kind == REMOVED:
            ledger.stop_judging(state, p, now_us)
        for r in range(len(state.leaders)):
            if kind == REMOVED:
                remove(state, r, p, now_us, out)
            elif kind == ELIGIBLE:
                state.followers[r, p].eligible = rows.code[i]
            schedule_crossing(state, r, now_us)

    return Steps(begin_term, take_in_row, take_in, fire_timers, schedule_giving_up)
