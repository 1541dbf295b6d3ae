"""Process appends, and each fetch at its four instants (arrival, read, recording, response).

Both update the followers' true state, and their state under each rule.
"""

from collections.abc import Callable
from typing import Any

from udfs.jit import inlined, kernel
from udfs.kernel import (
    append_history,
    doubts,
    follower_truth,
    isr,
    ledger,
    misses,
    rule_calls,
    shared_runs,
    timers,
    unanswered,
)
from udfs.kernel.active_runs import active_run
from udfs.kernel.rule_calls import GIVE_UP, HEED_APPENDS, RULES, on_append, rule_bits
from udfs.kernel.timeline_rows import caught_up_times
from udfs.records import ARRIVED, BEHIND, COMPLETED, NOBODY_WAITS, READ, RECORDED, SENT_FROM_UNKNOWN, UNKNOWN
from udfs.rules.base import NOTHING, SHOW, nothing

ALL = UNKNOWN
"""Value of ``acks`` for acks=all: the producer waits for all in-sync replicas."""


@kernel
def _end_wait(state, now_us):
    """If a check waits for the log to reach the log end in the check's log line, and it has, schedule it for now."""
    term = state.term[0]
    if term.log_end_offset >= term.awaited_offset:
        for r in range(term.runs):
            if state.leaders[r].check_us == term.awaited_until_us:
                state.leaders[r].check_us = now_us
                timers.await_rule_timer(term, state.due_us, r, now_us)
        term.awaited_offset = 0


@inlined
def take_in_append(state, log_end_offset, acks, now_us, out):
    """Process an append to the leader's log: update the true state of followers, and the state under every rule run.

    ``acks`` is that of the produce request (ALL, 0 or 1), or NOBODY_WAITS if no produce request or no acks is logged.
    """
    term = state.term[0]
    if acks == ALL:
        ledger.produce_in_ledger(term, state.active, state.ledger, state.leaders, state.params, log_end_offset, now_us)
    elif acks != NOBODY_WAITS:
        for k in range(term.active):
            r = active_run(state.active, k)
            state.leaders[r].acknowledged_offset = max(state.leaders[r].acknowledged_offset, log_end_offset)
    if log_end_offset <= term.log_end_offset:
        ledger.show_leaders_in_ledger(state, now_us, out)
        return
    term.log_end_offset = log_end_offset
    if term.awaited_offset != 0:
        _end_wait(state, now_us)
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
        if HEED_APPENDS >> state.codes[r] & 1:
            for p in range(term.replicas):
                if p != term.leader:
                    on_append(state.codes[r], state.followers[r, p], leader, state.fetches[p], state.params[r])
        isr.advance_high_watermark(state, r, now_us // 1000)
        isr.show_followers(state, r, now_us, out, since)
        timers.schedule_crossing(state, r, now_us)
    ledger.show_leaders_in_ledger(state, now_us, out)


@kernel
def take_in_append_called(state, log_end_offset, acks, now_us, out):
    """Call ``take_in_append`` without inlining it, where code size matters more than speed."""
    take_in_append(state, log_end_offset, acks, now_us, out)


def _for_all_rules(instant: str) -> Callable[..., Any]:
    """Return the compiled function that processes one instant of a fetch (such as ``on_read``) under all rules."""
    call = getattr(rule_calls, instant)
    heeds = rule_bits(getattr(rule, instant) is not nothing for rule in RULES)
    has_to_say_so = caught_up_times(instant)

    @inlined
    def decide(state, p, now_us, out):
        """Call each rule's function for this instant of a fetch of follower ``p``, and take the steps that it returns.

        These steps are to expand the ISR, to advance the high watermark, or only to write changes to the timeline.
        """
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
                    isr.after_fetch(state, r, p, todo, now_us, out, since)
                    shown = shown and ledger.is_in_ledger(state.leaders[r])
                    timers.schedule_crossing(state, r, now_us)
        if not shown:
            ledger.show_leaders_in_ledger(state, now_us, out)

    return decide


on_arrival, on_read = _for_all_rules("on_arrival"), _for_all_rules("on_read")
on_recorded, on_completed = _for_all_rules("on_recorded"), _for_all_rules("on_completed")


@inlined
def serve_fetch(state, p, stage, now_us, out):
    """Process the instant at which follower ``p``'s fetch is READ, RECORDED or COMPLETED (``stage``).

    This updates the follower's true state, and calls each rule's function for this instant.
    """
    fetch = state.fetches[p]
    if stage == READ:
        if fetch.leader_log_end_offset > state.term[0].log_end_offset:
            # The fetch shows an append whose row comes later or is missing.
            take_in_append_called(state, fetch.leader_log_end_offset, NOBODY_WAITS, now_us, out)
        follower_truth.truth_after_read(fetch, state.term[0], now_us)
    follower_truth.enter_instant_of_truth(fetch, stage)
    if stage == READ:
        on_read(state, p, now_us, out)
    elif stage == RECORDED:
        doubts.note_lateness_for_doubts(state.term[0], fetch.arrival_us, fetch.processed_us, now_us)
        if fetch.is_back == 0:
            isr.note_returns(state, p, now_us)
        if shared_runs.is_irregular(fetch, state.term[0]):
            shared_runs.part_shared_runs(state)
        unanswered.note_what_it_had(state, p, now_us)
        on_recorded(state, p, now_us, out)
        if fetch.arrival_us <= fetch.doubt_until_us:
            isr.settle_doubts(state, p, now_us, out)
        follower_truth.truth_after_record(fetch)
    else:
        doubts.note_lateness_for_doubts(state.term[0], fetch.released_us, fetch.completed_us, now_us)
        on_completed(state, p, now_us, out)


@kernel
def take_in(state, p, stage, now_us, out):
    """Call ``serve_fetch`` without inlining it."""
    serve_fetch(state, p, stage, now_us, out)


@inlined
def take_in_fetch(state, p, rows, i, out):
    """Process the arrival of the fetch in row ``i`` of ``rows``, which follower ``p`` sent."""
    term, now_us = state.term[0], rows.time_us[i]
    # If a follower has two connections, its previous fetch is completed before this one is processed.
    state.fetches[p].completed_us = min(state.fetches[p].completed_us, now_us)
    for stage in range(READ, COMPLETED + 1):
        if ARRIVED <= state.fetches[p].stage < stage:
            take_in(state, p, stage, now_us, out)
    offset, code = rows.offset[i], rows.code[i]
    if offset == UNKNOWN and state.fetches[p].log_end_offset >= 0:
        # No request has listed the partition since its last known offset, so the offset has not changed.
        offset = state.fetches[p].log_end_offset
        code = 0 if code == SENT_FROM_UNKNOWN else code
    elif offset == UNKNOWN:
        offset = term.log_end_offset
        code = SENT_FROM_UNKNOWN if code == 0 and state.fetches[p].held_at_start == BEHIND else code
    if code == 0 and offset > term.log_end_offset:
        # A follower cannot have records that its leader lacks, so the append happened earlier than its timestamp says.
        take_in_append_called(state, offset, NOBODY_WAITS, now_us, out)
    misses.misses_before_arrival(state, p, now_us, offset)
    follower_truth.truth_after_arrival(state.fetches[p], term, state.history, rows, i, offset, code)
    misses.misses_after_arrival(state, p, now_us)
    on_arrival(state, p, now_us, out)
    if GIVE_UP & term.rules != 0:
        for r in range(term.runs):
            timers.schedule_giving_up(state, r, now_us)
