"""What happens to a partition, step by step: a row of the log comes in, an instant of a fetch or a timer falls due.

Built for a list of rules, so that the compiler sees their functions. The replay (``udfs.kernel.replay``) and the
simulation (``udfs.simulation.loop``) take the same steps.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from udfs.jit import inlined, kernel
from udfs.kernel import append_history, doubts, follower_truth, ledger, misses, shared_runs
from udfs.kernel.active_runs import active_run
from udfs.kernel.families import families
from udfs.kernel.isr import isr_calls
from udfs.kernel.rule_calls import rule_calls
from udfs.kernel.timeline_rows import caught_up_times
from udfs.kernel.timers import await_rule_timer, first_rule_timer, rule_timers, set_timer_anew, timer_bits
from udfs.records import (
    APPEND,
    ARRIVED,
    BEHIND,
    CHECK,
    COMPLETED,
    ELIGIBLE,
    FETCH,
    IDLE,
    ISR_WRITE,
    LONG_AGO,
    NEVER_US,
    NOBODY_WAITS,
    NOT_DUE,
    OTHERS_LINE,
    OWN_LINE,
    READ,
    RECORDED,
    REMOVED,
    SENT_FROM_UNKNOWN,
    SILENCE,
    THIN,
    UNKNOWN,
)
from udfs.rules.base import NOTHING, SHOW, Rule, never_gives_up, nothing

CHECK_SLACK_US = 2_000
"""A check seen in the log belongs to the due one that is this near, stamps being cut to milliseconds."""
NOBODY = ALL = np.int64(-1)


class PartitionSteps(NamedTuple):
    """The steps of the replay of a partition; see the functions of the same names."""

    begin_term: Callable[..., Any]
    take_in_row: Callable[..., Any]
    take_in_row_called: Callable[..., Any]
    """``take_in_row``, called instead of compiled into its callers: the simulation has several."""
    take_in: Callable[..., Any]
    come_to: Callable[..., Any]
    fire_timers: Callable[..., Any]
    """``come_to``, called instead of compiled into its caller."""
    schedule_giving_up: Callable[..., Any]
    schedule_check: Callable[..., Any]
    schedule_crossing: Callable[..., Any]


def build_partition_steps(rules: Sequence[Rule]) -> PartitionSteps:
    """Compile the steps for these rules; a run's code is a position in ``rules``."""
    calls = rule_calls(rules)
    isr = isr_calls(calls)
    timers = rule_timers(rules, calls)
    schedule_check, defer_check = timers.schedule_check, timers.defer_check
    schedule_crossing, schedule_giving_up = timers.schedule_crossing, timers.schedule_giving_up
    begin_rule_term, on_append = calls.begin_term, calls.on_append
    check, remove, commit = isr.check, isr.remove, isr.commit
    install, relinquish, advance_high_watermark = isr.install, isr.relinquish, isr.advance_high_watermark
    show_followers, show_all, after_fetch = isr.show_followers, isr.show_all, isr.after_fetch
    note_returns, settle_doubts = isr.note_returns, isr.settle_doubts
    families_of_rules = families(rules)
    give_up = timer_bits(rule.gives_up_at_us is not never_gives_up for rule in rules)
    heed_appends = timer_bits(rule.on_append is not nothing for rule in rules)

    @kernel
    def begin_term(state, isr_at_start, high_watermark, leader_is_new, out):
        """Reset for a term that ``state.term`` and ``state.params`` already describe."""
        term = state.term[0]
        shared_runs.part_shared_runs(state)
        term.log_end_offset = term.start_offset
        term.silent_from_us = term.silent_until_us = term.idle_from_us = term.idle_until_us = 0
        term.awaited_offset = term.awaited_until_us = term.write_asked_us = term.write_answered_us = 0
        term.late_us = term.late_at_us = 0
        term.rules_due_us = NEVER_US
        term.rules = 0
        for r in range(term.runs):
            term.rules |= 1 << state.codes[r]
        append_history.begin_append_history(state.history, term.start_offset, term.start_us)
        for p in range(term.replicas):
            follower_truth.begin_truth(state.fetches[p], term)
        ledger.begin_ledger(state, isr_at_start)
        shared_runs.form_shared_runs(state, families_of_rules)
        term.highest_high_watermark = high_watermark
        for p in range(term.replicas):
            state.fetches[p].outsider_in = state.fetches[p].doubt_until_us = 0
            state.fetches[p].is_back = 1
            state.fetches[p].named_us = LONG_AGO
            for r in range(term.runs):
                state.fetches[p].outsider_in += 1 - state.followers[r, p].in_isr
        since = out.filled[0]
        for r in range(term.runs):
            leader = state.leaders[r]
            leader.log_end_offset = term.start_offset
            leader.high_watermark = high_watermark
            # Where the epoch began is not in a log that begins later; what is committed lies behind it.
            leader.leader_epoch_start_offset = term.start_offset if term.begins_mid_term == 0 else high_watermark
            leader.replicas = term.replicas
            leader.acknowledged_offset = leader.last_append_time_ms = 0
            leader.shown_log_end_offset = -2
            leader.check_us = leader.give_up_us = state.due_us[r] = NEVER_US
            leader.check_due_us = leader.last_isr_write_time_ms = LONG_AGO
            leader.epoch_start_us = term.start_us
            for p in range(term.replicas):
                follower = state.followers[r, p]
                follower.shown_log_end_offset = -2
                follower.pending_fetch = 0
                member = (isr_at_start >> p) & 1
                if p != term.leader:
                    at_ms, params = term.start_us // 1000, state.params[r]
                    begin_rule_term(state.codes[r], follower, leader, member != 0, leader_is_new, at_ms, params)
                    if term.begins_mid_term != 0:
                        follower.log_end_offset = max(state.fetches[p].held_at_start, UNKNOWN)
            install(state, r, isr_at_start, term.start_us)
            # What was told of it counts: some releases leave it behind until a follower's offset moves.
            if term.begins_mid_term == 0 or state.params[r].check_period_ms == 0:
                advance_high_watermark(state, r, term.start_us // 1000)
            show_followers(state, r, term.start_us, out, since)
            schedule_check(state, r, term.start_us - 1)
            schedule_crossing(state, r, term.start_us)
        ledger.show_leaders_in_ledger(state, term.start_us, out)

    @kernel
    def end_wait(state, now_us):
        """The log end has come to what the line of a waiting check names: the check runs now."""
        term = state.term[0]
        if term.log_end_offset >= term.awaited_offset:
            for r in range(term.runs):
                if state.leaders[r].check_us == term.awaited_until_us:
                    state.leaders[r].check_us = now_us
                    await_rule_timer(term, state.due_us, r, now_us)
            term.awaited_offset = 0

    @kernel
    def take_in_append(state, log_end_offset, acks, now_us, out):
        """The leader's log has grown."""
        term = state.term[0]
        if acks == ALL:
            ledger.produce_in_ledger(
                term, state.active, state.ledger, state.leaders, state.params, log_end_offset, now_us
            )
        elif acks != NOBODY_WAITS:
            for k in range(term.active):
                r = active_run(state.active, k)
                state.leaders[r].acknowledged_offset = max(state.leaders[r].acknowledged_offset, log_end_offset)
        if log_end_offset <= term.log_end_offset:
            ledger.show_leaders_in_ledger(state, now_us, out)
            return
        term.log_end_offset = log_end_offset
        if term.awaited_offset != 0:
            end_wait(state, now_us)
        held_by_all = log_end_offset
        for p in range(term.replicas):
            if p != term.leader:
                follower_truth.truth_after_append(state.fetches[p], term, now_us)
                if state.fetches[p].missing_since_us == now_us:
                    misses.note_lack_for_misses(state, p, now_us)
                held_by_all = min(held_by_all, state.fetches[p].log_end_offset)
        append_history.remember_append(state.history, log_end_offset, now_us, held_by_all)
        since = out.filled[0]
        for k in range(term.active):
            r = active_run(state.active, k)
            leader = state.leaders[r]
            leader.log_end_offset = log_end_offset
            leader.last_append_time_ms = now_us // 1000
            if heed_appends >> state.codes[r] & 1:
                for p in range(term.replicas):
                    if p != term.leader:
                        on_append(state.codes[r], state.followers[r, p], leader, state.fetches[p], state.params[r])
            advance_high_watermark(state, r, now_us // 1000)
            show_followers(state, r, now_us, out, since)
            schedule_crossing(state, r, now_us)
        ledger.show_leaders_in_ledger(state, now_us, out)

    def heeding(instant):
        """One instant of a fetch, for all rules that look at it."""
        call = getattr(calls, instant)
        heeds = timer_bits(getattr(rule, instant) is not nothing for rule in rules)
        has_to_say_so = caught_up_times(rules, instant)

        @inlined
        def decide(state, p, now_us, out):
            if heeds & state.term[0].rules == 0:
                return
            fetch = state.fetches[p]
            shown = True
            since = out.filled[0]
            for k in range(state.term[0].active):
                r = active_run(state.active, k)
                if heeds >> state.codes[r] & 1:
                    todo = call(state.codes[r], state.followers[r, p], state.leaders[r], fetch, state.params[r])
                    if has_to_say_so(state.codes[r], state.followers[r, p], state.leaders[r], fetch, now_us):
                        todo |= SHOW
                    if todo != NOTHING:
                        after_fetch(state, r, p, todo, now_us, out, since)
                        shown = shown and ledger.is_in_ledger(state.leaders[r])
                        schedule_crossing(state, r, now_us)
            if not shown:
                ledger.show_leaders_in_ledger(state, now_us, out)

        return decide

    on_arrival, on_read = heeding("on_arrival"), heeding("on_read")
    on_recorded, on_completed = heeding("on_recorded"), heeding("on_completed")

    @inlined
    def serve(state, p, stage, now_us, out):
        """A later instant of the follower's latest fetch, for the facts and for every rule."""
        fetch = state.fetches[p]
        if stage == READ:
            if fetch.leader_log_end_offset > state.term[0].log_end_offset:
                # The row tells of an append that the log has later, or not at all.
                take_in_append(state, fetch.leader_log_end_offset, NOBODY_WAITS, now_us, out)
            follower_truth.truth_after_read(fetch, state.term[0], now_us)
        follower_truth.enter_instant_of_truth(fetch, stage)
        if stage == READ:
            on_read(state, p, now_us, out)
        elif stage == RECORDED:
            doubts.note_lateness_for_doubts(state.term[0], fetch.arrival_us, fetch.processed_us, now_us)
            if fetch.is_back == 0:
                note_returns(state, p, now_us)
            if shared_runs.is_irregular(fetch, state.term[0]):
                shared_runs.part_shared_runs(state)
            on_recorded(state, p, now_us, out)
            if fetch.arrival_us <= fetch.doubt_until_us:
                settle_doubts(state, p, now_us, out)
            follower_truth.truth_after_record(fetch)
        else:
            doubts.note_lateness_for_doubts(state.term[0], fetch.released_us, fetch.completed_us, now_us)
            on_completed(state, p, now_us, out)

    @kernel
    def take_in(state, p, stage, now_us, out):
        serve(state, p, stage, now_us, out)

    @inlined
    def come_to(state, until_us, out):
        """Everything due up to ``until_us`` in order of time.

        At equal times: answers, leadership given up, ISR writes answered, checks, reads, a look for misses.
        """
        term = state.term[0]
        while True:
            due, which = NOT_DUE, NOBODY
            for p in range(term.replicas):
                if state.fetches[p].due < due:
                    due, which = state.fetches[p].due, p
            due_us, before_us = due >> 1, (due + 1) >> 1
            if term.rules_due_us < before_us and term.rules_due_us <= until_us:
                r = first_rule_timer(term, state.due_us, state.leaders)
                if term.rules_due_us < before_us:
                    which = r
            ruled = term.rules_due_us < before_us
            if ruled:
                due_us = term.rules_due_us
            if min(due_us, term.miss_due_us) > until_us:
                return
            if term.miss_due_us < due_us:
                misses.look_for_misses(state, term.miss_due_us)
            elif not ruled:
                serve(state, which, state.fetches[which].stage + 1, due_us, out)
            elif state.leaders[which].give_up_us == due_us:
                relinquish(state, which, due_us, out)
                schedule_giving_up(state, which, due_us)
            elif state.leaders[which].commit_us == due_us:
                commit(state, which, due_us)
                show_all(state, which, due_us, out)
                schedule_crossing(state, which, due_us)
            elif (
                term.log_end_offset < term.awaited_offset
                and due_us < term.awaited_until_us
                and state.leaders[which].check_logged == OWN_LINE
            ):
                state.leaders[which].check_us = term.awaited_until_us
                set_timer_anew(state.due_us, state.leaders, which)
            else:
                check(state, which, due_us, out)
                # A check that the log has a little early must not run again when it was due.
                schedule_check(state, which, max(due_us, state.leaders[which].check_due_us))
                schedule_crossing(state, which, due_us)
                set_timer_anew(state.due_us, state.leaders, which)

    @kernel
    def fire_timers(state, until_us, out):
        come_to(state, until_us, out)

    @kernel
    def note_check(state, r, due_us, ran_us, code, log_end_offset):
        """A line tells when a check ran; of another partition it says less than when the leader woke up.

        The stamp of the line is cut to a millisecond. Within that, the check came after the append that it shows. An
        absent line tells that it had not run yet.
        """
        term, leader = state.term[0], state.leaders[r]
        if state.params[r].check_period_ms == 0 or (code == OTHERS_LINE and leader.check_us == term.silent_until_us):
            return
        if due_us - CHECK_SLACK_US <= leader.check_us <= ran_us + CHECK_SLACK_US:
            leader.check_us = ran_us
            leader.check_logged = code
            await_rule_timer(term, state.due_us, r, leader.check_us)
            until_us = ran_us + doubts.STAMP_US - 1
            if term.awaited_until_us != until_us:
                term.awaited_offset = 0
            if log_end_offset > max(term.log_end_offset, term.awaited_offset):
                term.awaited_offset = log_end_offset
            term.awaited_until_us = until_us

    @inlined
    def take_in_row(state, rows, i, out):
        """One row of the log, at its time."""
        term = state.term[0]
        now_us = rows.time_us[i]
        kind = rows.kind[i]
        if kind == APPEND:
            take_in_append(state, rows.offset[i], rows.code[i], now_us, out)
            return
        if kind in (SILENCE, IDLE):
            follower_truth.truth_before_pause(state, kind, now_us, rows.until_us[i])
            for r in range(term.runs):
                if kind == SILENCE and state.params[r].check_period_ms != 0:
                    defer_check(state, r)
            return
        if kind == ISR_WRITE:
            term.write_asked_us, term.write_answered_us = now_us, rows.until_us[i]
            return
        p = follower_truth.position_of(state, rows.replica_id[i])
        if kind == CHECK:
            log_end_offset = rows.offset[i]
            if p >= 0:
                state.fetches[p].named_us = rows.until_us[i]
                if log_end_offset == UNKNOWN:
                    # Nobody is dropped who lacks nothing (2.1 on).
                    log_end_offset = state.fetches[p].log_end_offset + 1
            for r in range(term.runs):
                note_check(state, r, now_us, rows.until_us[i], rows.code[i], log_end_offset)
            return
        if p < 0:
            term.ignored += 1
            return
        if kind == FETCH:
            # Two connections of one follower: what came by the older one is over first.
            state.fetches[p].completed_us = min(state.fetches[p].completed_us, now_us)
            for stage in range(READ, COMPLETED + 1):
                if ARRIVED <= state.fetches[p].stage < stage:
                    take_in(state, p, stage, now_us, out)
            offset, code = rows.offset[i], rows.code[i]
            if offset == UNKNOWN and state.fetches[p].log_end_offset >= 0:
                # It has not been listed since, so it is still what it was.
                offset = state.fetches[p].log_end_offset
                code = 0 if code == SENT_FROM_UNKNOWN else code
            elif offset == UNKNOWN:
                offset = term.log_end_offset
                code = SENT_FROM_UNKNOWN if code == 0 and state.fetches[p].held_at_start == BEHIND else code
            if code == 0 and offset > term.log_end_offset:
                # A follower holds nothing that its leader lacks: the append is older than its stamp.
                take_in_append(state, offset, NOBODY_WAITS, now_us, out)
            misses.misses_before_arrival(state, p, now_us, offset)
            follower_truth.truth_after_arrival(state.fetches[p], term, state.history, rows, i, offset, code)
            misses.misses_after_arrival(state, p, now_us)
            on_arrival(state, p, now_us, out)
            if give_up & term.rules != 0:
                for r in range(term.runs):
                    schedule_giving_up(state, r, now_us)
            return
        if kind == THIN:
            state.fetches[p].cadence_us, state.fetches[p].thin_until_us = rows.offset[i], rows.until_us[i]
            return
        if kind == REMOVED:
            misses.stop_judging_misses(state, p, now_us)
        for k in range(term.active):
            r = active_run(state.active, k)
            if kind == REMOVED:
                remove(state, r, p, now_us, out)
            elif kind == ELIGIBLE:
                state.followers[r, p].eligible = rows.code[i]
            schedule_crossing(state, r, now_us)

    @kernel
    def take_in_row_called(state, rows, i, out):
        take_in_row(state, rows, i, out)

    schedules = (schedule_giving_up, schedule_check, schedule_crossing)
    return PartitionSteps(begin_term, take_in_row, take_in_row_called, take_in, come_to, fire_timers, *schedules)
