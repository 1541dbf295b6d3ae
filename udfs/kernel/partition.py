"""Advance the state of one partition: process rows of the log, the steps of each fetch, and timers that are due.

Both the replay (``udfs.kernel.replay``) and the simulation (``udfs.simulation.loop``) call these functions.
"""

import numpy as np

from udfs.jit import inlined, kernel
from udfs.kernel import append_history, doubts, follower_truth, isr, ledger, misses, shared_runs, timers, unanswered
from udfs.kernel.active_runs import active_run
from udfs.kernel.fetch_instants import serve_fetch, take_in_append, take_in_fetch
from udfs.kernel.rule_calls import begin_rule_term
from udfs.records import (
    APPEND,
    CHECK,
    ELIGIBLE,
    FETCH,
    IDLE,
    ISR_WRITE,
    LONG_AGO,
    NEVER_US,
    NOT_DUE,
    OTHERS_LINE,
    OWN_LINE,
    REMOVED,
    SILENCE,
    THIN,
    UNKNOWN,
)

CHECK_SLACK_US = 2_000
"""Maximum difference, in microseconds, between the time of a check in a log line and the time of the same check in the
replay. They differ because timestamps are truncated."""
NOBODY = np.int64(-1)


@kernel
def begin_partition_term(state, isr_at_start, high_watermark, leader_is_new, out):
    """Reset the state at the start of a term, and write the term's first timeline rows.

    The caller must have set ``state.params``, and the constant fields of ``state.term``. ``isr_at_start`` is a set of
    positions in the assignment, as bits.
    """
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
    shared_runs.form_shared_runs(state)
    term.highest_acknowledged = high_watermark
    for p in range(term.replicas):
        state.fetches[p].outsider_in = state.fetches[p].doubt_until_us = 0
        state.fetches[p].is_back = 1
        state.fetches[p].named_us = LONG_AGO
        for r in range(term.runs if p < term.replicas - term.observers else 0):
            state.fetches[p].outsider_in += 1 - state.followers[r, p].in_isr
    since = out.filled[0]
    for r in range(term.runs):
        leader = state.leaders[r]
        leader.log_end_offset = term.start_offset
        leader.high_watermark = high_watermark
        # A log that begins in mid-term does not show the epoch's start offset, but it is below all committed offsets.
        leader.leader_epoch_start_offset = term.start_offset if term.begins_mid_term == 0 else high_watermark
        leader.replicas = term.replicas - term.observers
        leader.acknowledged_offset = leader.acknowledged_end = leader.last_append_time_ms = 0
        leader.shown_acknowledged_end = 0
        leader.shown_log_end_offset = -2
        leader.check_us = leader.give_up_us = state.due_us[r] = NEVER_US
        leader.check_due_us = leader.last_isr_write_time_ms = LONG_AGO
        leader.epoch_start_us = term.start_us
        for p in range(term.replicas):
            follower = state.followers[r, p]
            follower.shown_log_end_offset = -2
            follower.pending_fetch = 0
            if p >= leader.replicas:
                follower.in_isr = follower.in_maximal_isr = 0
            member = (isr_at_start >> p) & 1
            if p != term.leader:
                at_ms, params = term.start_us // 1000, state.params[r]
                begin_rule_term(state.codes[r], follower, leader, member != 0, leader_is_new, at_ms, params)
                if term.begins_mid_term != 0:
                    follower.log_end_offset = max(state.fetches[p].held_at_start, UNKNOWN)
        isr.install_isr(state, r, isr_at_start, term.start_us)
        # The logged high watermark is used, not a computed one: some releases advance it only when a follower's offset
        # changes.
        if term.begins_mid_term == 0 or state.params[r].check_period_ms == 0:
            isr.advance_high_watermark(state, r, term.start_us // 1000)
        isr.show_followers(state, r, term.start_us, out, since)
        timers.schedule_check(state, r, term.start_us - 1)
        timers.schedule_crossing(state, r, term.start_us)
    ledger.show_leaders_in_ledger(state, term.start_us, out)


@inlined
def come_to(state, until_us, out):
    """Advance the state to ``until_us``: process due timers and due steps of fetches, in chronological order.

    At equal times the order is: fetch responses, giving up leadership, answers to ISR writes, checks, reads and
    recordings of fetches, and the search for misses.
    """
    term = state.term[0]
    while True:
        due, which = NOT_DUE, NOBODY
        for p in range(term.replicas):
            if state.fetches[p].due < due:
                due, which = state.fetches[p].due, p
        due_us, before_us = due >> 1, (due + 1) >> 1
        if term.rules_due_us < before_us and term.rules_due_us <= until_us:
            r = timers.first_rule_timer(term, state.due_us, state.leaders)
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
            serve_fetch(state, which, state.fetches[which].stage + 1, due_us, out)
        elif state.leaders[which].give_up_us == due_us:
            isr.relinquish_leadership(state, which, due_us, out)
            timers.schedule_giving_up(state, which, due_us)
        elif state.leaders[which].commit_us == due_us:
            isr.commit_isr(state, which, due_us)
            isr.show_all(state, which, due_us, out)
            timers.schedule_crossing(state, which, due_us)
        elif (
            term.log_end_offset < term.awaited_offset
            and due_us < term.awaited_until_us
            and state.leaders[which].check_logged == OWN_LINE
        ):
            state.leaders[which].check_us = term.awaited_until_us
            timers.reset_timer(state.due_us, state.leaders, which)
        else:
            isr.check_isr(state, which, due_us, out)
            # If the line of a check is slightly earlier than the check was due, the check must not run again when due.
            timers.schedule_check(state, which, max(due_us, state.leaders[which].check_due_us))
            timers.schedule_crossing(state, which, due_us)
            timers.reset_timer(state.due_us, state.leaders, which)


@kernel
def fire_timers(state, until_us, out):
    """Call ``come_to`` without inlining it, because the simulation calls it in several places."""
    come_to(state, until_us, out)


@kernel
def _note_check(state, r, due_us, ran_us, code, log_end_offset):
    """Move the next check of rule run ``r`` to ``ran_us``, at which the check ran according to the log.

    A line about another partition is ignored if the check runs when the leader wakes up from a silence. The timestamp
    of the line is truncated to a millisecond. Within this millisecond, the check came after the append that the line
    shows. An absent line proves that the check had not run yet.
    """
    term, leader = state.term[0], state.leaders[r]
    if state.params[r].check_period_ms == 0 or (code == OTHERS_LINE and leader.check_us == term.silent_until_us):
        return
    if due_us - CHECK_SLACK_US <= leader.check_us <= ran_us + CHECK_SLACK_US:
        leader.check_us = ran_us
        leader.check_logged = code
        timers.await_rule_timer(term, state.due_us, r, leader.check_us)
        until_us = ran_us + doubts.STAMP_US - 1
        if term.awaited_until_us != until_us:
            term.awaited_offset = 0
        if log_end_offset > max(term.log_end_offset, term.awaited_offset):
            term.awaited_offset = log_end_offset
        term.awaited_until_us = until_us


@inlined
def take_in_row(state, rows, i, out):
    """Process row ``i`` of the log: an append, a fetch's arrival, or another kind (``udfs.records.Rows``)."""
    term = state.term[0]
    now_us = rows.time_us[i]
    kind = rows.kind[i]
    if kind == APPEND:
        take_in_append(state, rows.offset[i], rows.code[i], now_us, out)
        return
    if kind in (SILENCE, IDLE):
        unanswered.settle_waits_of_all(state, now_us)
        follower_truth.truth_before_pause(state, kind, now_us, rows.until_us[i])
        for p in range(term.replicas if kind == IDLE else 0):
            unanswered.wait_for_no_fetch(state, p, rows.until_us[i], now_us)
        for r in range(term.runs):
            if kind == SILENCE and state.params[r].check_period_ms != 0:
                timers.defer_check(state, r)
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
                # Since 2.1, a follower that lacks no records is not dropped. So the leader's line shows that this
                # follower lacked records.
                log_end_offset = state.fetches[p].log_end_offset + 1
        for r in range(term.runs):
            _note_check(state, r, now_us, rows.until_us[i], rows.code[i], log_end_offset)
        return
    if p < 0:
        term.ignored += 1
        return
    if kind == FETCH:
        take_in_fetch(state, p, rows, i, out)
        return
    if kind == THIN:
        state.fetches[p].cadence_us, state.fetches[p].thin_until_us = rows.offset[i], rows.until_us[i]
        unanswered.wait_for_no_fetch(state, p, rows.until_us[i], now_us)
        return
    if kind == REMOVED:
        misses.stop_judging_misses(state, p, now_us)
    for k in range(term.active):
        r = active_run(state.active, k)
        if kind == REMOVED:
            isr.remove_from_isr(state, r, p, now_us, out)
        elif kind == ELIGIBLE:
            ledger.settle_ledger_of_follower(state, r, p, now_us)
            state.followers[r, p].eligible = rows.code[i]
        timers.schedule_crossing(state, r, now_us)


@kernel
def take_in_row_called(state, rows, i, out):
    """Call ``take_in_row`` without inlining it, because the simulation calls it in several places."""
    take_in_row(state, rows, i, out)
