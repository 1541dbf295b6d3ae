"""Change the ISR and the high watermark under one rule run, and write the changes to the output."""

import numpy as np

from udfs.jit import inlined, kernel
from udfs.kernel import doubts
from udfs.kernel.ack_latency import acknowledge_early
from udfs.kernel.active_runs import active_run
from udfs.kernel.causes import CONTROLLER, causes_of_shrink, excused_by
from udfs.kernel.excuses import note_excuse
from udfs.kernel.follower_truth import true_lag_us
from udfs.kernel.ledger import settle_ledger_of_follower, show_leader_in_ledger
from udfs.kernel.ledger_page import ISR_WRITES
from udfs.kernel.rule_calls import (
    ACKNOWLEDGE_EARLY,
    advances_on_commit,
    at_shrink,
    begin_rule_term,
    holds_high_watermark,
    may_advance,
    may_join,
    out_of_sync,
    outvoted,
    spares,
)
from udfs.kernel.shared_runs import join_shared_run, part_shared_run, run_shared_with
from udfs.kernel.timeline_rows import show_follower_in_timeline
from udfs.kernel.timers import await_rule_timer
from udfs.kernel.unanswered import is_waited_for, let_go, settle_waits
from udfs.records import BY_CONTROLLER, BY_RULE, EXPAND, LONG_AGO, NEVER_US, RELINQUISH, SHRINK, UNKNOWN
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, GIVE_UP_LEADERSHIP, SHRINK_ISR, TRY_TO_JOIN

NO_CAUSE = np.int64(0)


@kernel
def _write_isr_change(out, r, p, now_us, kind, made_by, isr_after, follower, leader, fetch, causes, error_us):
    """Write a result row for an ISR change: a shrink, an expansion, or giving up leadership."""
    row = out.change[out.filled[2]]
    out.filled[2] += 1
    row[0] = r
    row[1] = now_us
    row[2] = kind
    row[3] = p
    row[4] = leader.isr
    row[5] = isr_after
    row[6] = leader.high_watermark
    row[7] = leader.log_end_offset
    row[8] = follower.log_end_offset
    row[9] = follower.last_caught_up_time_ms
    row[10] = max(0, now_us // 1000 - follower.last_caught_up_time_ms)
    row[11] = made_by
    row[12] = true_lag_us(fetch, now_us) // 1000
    row[13] = causes
    row[14] = fetch.held_us // 1000
    row[15] = fetch.silent_us // 1000 if fetch.idle_us == 0 else UNKNOWN
    row[16] = (error_us + 999) // 1000
    row[17] = doubts.NOTHING


@inlined
def _has_to_leave_isr(state, r, code, p, now_ms, params):
    """Whether the rule finds follower ``p`` out of sync, and does not spare it because of other followers' state."""
    leader = state.leaders[r]
    return out_of_sync(code, state.followers[r, p], leader, state.fetches[p], now_ms, params) and not spares(
        code, state.followers[r], p, state.term[0].leader, leader, now_ms, params
    )


@kernel
def _whom_to_drop_for_a_record(state, r, place, now_us):
    """Return the members with every record (bits) that a check would drop if one more record were in the log.

    Only members for which a request has waited for more than a second are returned, and none if the rest of the ISR
    would be under min.insync.replicas. ``place`` is the slot with the state of rule run ``r``.
    """
    leader, params, dropped, remaining = state.leaders[place], state.params[r], 0, 1
    leader.log_end_offset += 1
    for p in range(leader.replicas):
        if p != state.term[0].leader and state.followers[place, p].in_isr != 0:
            remaining += 1
            if _has_to_leave_isr(state, place, state.codes[r], p, now_us // 1000, params):
                remaining -= 1
                if state.followers[place, p].log_end_offset == leader.log_end_offset - 1:
                    dropped |= int(is_waited_for(state, place, p, now_us)) << p
    shrinks = at_shrink(state.codes[r], leader, remaining, params) == SHRINK_ISR
    leader.log_end_offset -= 1
    return dropped if shrinks and remaining >= min(params.min_insync_replicas, leader.replicas) else 0


@inlined
def _let_go_at_check(state, r, now_us):
    """End the waits for those members that a check of rule run ``r`` would drop if a request had appended a record."""
    place = run_shared_with(state, r)
    for p in range(state.leaders[place].replicas):
        if state.leaders[place].isr >> p & 1 and p != state.term[0].leader and is_waited_for(state, place, p, now_us):
            dropped = _whom_to_drop_for_a_record(state, r, place, now_us)
            if dropped != 0:
                part_shared_run(state, r)
                let_go(state, r, dropped, now_us)
            return


@inlined
def advance_high_watermark(state, r, clock_ms):
    """Advance the high watermark to the lowest log end of the replicas for which rule run ``r`` makes it wait.

    It never moves back. ``clock_ms`` is passed to the rule (`Rule.holds_high_watermark`) as the present time; -1 after
    a failed read, so that no follower is late.
    """
    leader = state.leaders[r]
    params = state.params[r]
    code = state.codes[r]
    if ACKNOWLEDGE_EARLY >> code & 1:
        acknowledge_early(state, r)
    # Often the high watermark cannot rise: it is at the leader's log end, or at that of the slowest follower.
    if leader.high_watermark >= leader.log_end_offset or not may_advance(code, leader, params):
        return
    candidate = leader.log_end_offset
    for p in range(leader.replicas):
        if p == state.term[0].leader:
            continue
        follower = state.followers[r, p]
        if (
            follower.log_end_offset < candidate
            and holds_high_watermark(code, follower, leader, state.fetches[p], clock_ms, params)
            and not outvoted(code, state.followers[r], p, state.term[0].leader, leader)
        ):
            candidate = follower.log_end_offset
            if candidate <= leader.high_watermark:
                return
    leader.high_watermark = candidate
    term = state.term[0]
    term.highest_acknowledged = max(term.highest_acknowledged, candidate)


@kernel
def install_isr(state, r, isr, now_us):
    """Set the committed ISR of rule run ``r`` to ``isr`` (bits), and cancel an ISR write in flight."""
    settle_waits(state, r, now_us)
    leader = state.leaders[r]
    leader.isr = isr
    leader.pending_isr = isr
    leader.commit_us = NEVER_US
    leader.isr_size = 0
    leader.last_isr_change_time_ms = now_us // 1000
    for p in range(leader.replicas):
        member = (isr >> p) & 1
        leader.isr_size += member
        if member != state.followers[r, p].in_isr:
            settle_ledger_of_follower(state, r, p, now_us)
            state.fetches[p].outsider_in += 1 - 2 * member
            if member != 0:
                state.ledger.followers[r, p].excused = 0
        state.followers[r, p].in_isr = member
        state.followers[r, p].in_maximal_isr = member


@inlined
def show_followers(state, r, now_us, out, since):
    """Write a timeline row for each follower whose state has changed since its last row.

    ``since`` is the index of the first row in ``out.replica`` with the time ``now_us``. If a row from there on has the
    same state, rule run ``r`` is added to that row instead.
    """
    leader = state.leaders[r]
    for p in range(state.term[0].replicas):
        if p != state.term[0].leader:
            show_follower_in_timeline(out, since, p, now_us, state.followers[r, p], leader, state.term[0])


@inlined
def show_all(state, r, now_us, out):
    """Write timeline rows for the partition and its followers under rule run ``r``, where their state has changed."""
    show_followers(state, r, now_us, out, out.filled[0])
    show_leader_in_ledger(state, r, now_us, out)


@kernel
def commit_isr(state, r, now_us):
    """Process the response to an ISR write of rule run ``r``: the requested ISR becomes the committed ISR."""
    leader = state.leaders[r]
    expanding = leader.pending_isr & ~leader.isr != 0
    install_isr(state, r, leader.pending_isr, now_us)
    leader.last_isr_write_time_ms = now_us // 1000
    if advances_on_commit(state.codes[r], expanding, state.params[r]):
        advance_high_watermark(state, r, now_us // 1000)


@kernel
def _write_isr(state, r, isr, now_us):
    """Send an ISR write that requests ``isr`` for rule run ``r``. Without write latency, the response comes at once."""
    leader = state.leaders[r]
    latency_us = state.params[r].isr_write_latency_ms * 1000
    state.ledger.pages[r, ISR_WRITES] += 1
    settle_waits(state, r, now_us)
    leader.pending_isr = isr
    leader.commit_us = now_us + latency_us
    term = state.term[0]
    if latency_us != 0 and term.write_asked_us <= now_us < term.write_answered_us:
        # If log lines show an ISR write that was sent now or is in flight, the response comes when it was answered.
        same = now_us <= term.write_asked_us + doubts.STAMP_US
        leader.commit_us = term.write_answered_us if same else max(leader.commit_us, term.write_answered_us)
    if latency_us == 0:
        commit_isr(state, r, now_us)
    else:
        await_rule_timer(state.term[0], state.due_us, r, leader.commit_us)


@kernel
def _settle_doubt(state, r, p, now_us, out):
    """Mark the last shrink of follower ``p`` as not certain if a check after its present fetch would have kept it.

    The fetch may have been recorded as soon as it was handled, and the check may have run right after that.
    """
    mine, fetch, term = state.ledger.followers[r, p], state.fetches[p], state.term[0]
    if doubts.doubt_is_over(mine, fetch, now_us):
        mine.doubt_until_us = 0
        return
    leader, follower = state.leaders[r], state.followers[r, p]
    # State as before the check: the follower was in the ISR, and the check's ISR write was not sent yet.
    changed_ms, written_ms, in_isr = leader.last_isr_change_time_ms, leader.last_isr_write_time_ms, follower.in_isr
    leader.last_isr_change_time_ms = leader.last_isr_write_time_ms = LONG_AGO
    follower.in_isr = 1
    clock_us = max(fetch.handled_us, 2 * mine.dropped_us - mine.order_until_us)
    late = _has_to_leave_isr(state, r, state.codes[r], p, clock_us // 1000, state.params[r])
    leader.last_isr_change_time_ms, leader.last_isr_write_time_ms = changed_ms, written_ms
    follower.in_isr = in_isr
    if not late:
        doubts.write_doubt(out, mine, r, p, doubts.what_doubt_depends_on(mine, term, fetch))


@kernel
def note_returns(state, p, now_us):
    """In each rule run that does not know when follower ``p`` returned to the ISR, store that it was now at the latest.

    The present fetch is the follower's first since that return. An unknown time is a ``joined_us`` of NEVER_US.
    """
    state.fetches[p].is_back = 1
    for k in range(state.term[0].active):
        mine = state.ledger.followers[active_run(state.active, k), p]
        if mine.joined_us == NEVER_US:
            mine.joined_us = now_us + doubts.error_us(state.term[0], now_us)


@kernel
def settle_doubts(state, p, now_us, out):
    """In each rule run, mark the last shrink of follower ``p`` as not certain if its present fetch shows that."""
    for k in range(state.term[0].active):
        r = active_run(state.active, k)
        if state.ledger.followers[r, p].doubt_until_us != 0:
            _settle_doubt(state, r, p, now_us, out)


@kernel
def _expand_isr(state, r, p, now_us, out):
    """Request that follower ``p`` joins the ISR of rule run ``r``."""
    mine, fetch = state.ledger.followers[r, p], state.fetches[p]
    doubts.note_expand_in_doubt(mine, state.term[0], fetch, r, p, now_us, out)
    if mine.joined_us == NEVER_US:
        fetch.is_back = 0
    leader = state.leaders[r]
    follower = state.followers[r, p]
    isr = leader.isr | (1 << p)
    _write_isr_change(out, r, p, now_us, EXPAND, BY_RULE, isr, follower, leader, fetch, NO_CAUSE, 0)
    follower.in_maximal_isr = 1
    _write_isr(state, r, isr, now_us)


@inlined
def after_fetch(state, r, p, todo, now_us, out, since):
    """Carry out what rule run ``r`` decided at a fetch of follower ``p``, and write the follower's timeline row.

    ``todo``, the rule's decision, contains the bits TRY_TO_JOIN (expand the ISR) and ADVANCE_HIGH_WATERMARK. ``since``
    is as in `show_followers`. After the last rule run, the caller must call ``show_leaders_in_ledger`` once.
    """
    leader = state.leaders[r]
    follower = state.followers[r, p]
    if (
        todo & TRY_TO_JOIN
        and follower.in_isr == 0
        and p < leader.replicas
        and leader.commit_us == NEVER_US
        and may_join(state.codes[r], follower, leader, state.fetches[p], now_us // 1000, state.params[r])
    ):
        _expand_isr(state, r, p, now_us, out)
    if todo & ADVANCE_HIGH_WATERMARK:
        # Kafka uses the time of the read as the present time. After a failed read it is -1, so no follower is late.
        fetch = state.fetches[p]
        advance_high_watermark(state, r, fetch.handled_us // 1000 if fetch.error_code == 0 else -1)
    show_follower_in_timeline(out, since, p, now_us, follower, leader, state.term[0])


@kernel
def relinquish_leadership(state, r, now_us, out):
    """Let the leader give up leadership under rule run ``r``: a new leader epoch begins with the same ISR.

    Nothing happens if the leader is the only member of the ISR.
    """
    part_shared_run(state, r)
    leader = state.leaders[r]
    term = state.term[0]
    leader.give_up_us = NEVER_US
    if leader.isr_size < 2:
        return
    itself = state.followers[r, term.leader]
    itself.log_end_offset = leader.log_end_offset
    itself.last_caught_up_time_ms = now_us // 1000
    _write_isr_change(
        out, r, term.leader, now_us, RELINQUISH, BY_RULE, leader.isr, itself, leader, state.fetches[term.leader],
        NO_CAUSE, 0,
    )  # fmt: skip
    state.ledger.pages[r, ISR_WRITES] += 1
    leader.epoch_start_us = now_us
    leader.leader_epoch_start_offset = leader.log_end_offset
    install_isr(state, r, leader.isr, now_us)
    for p in range(term.replicas):
        if p != term.leader:
            follower = state.followers[r, p]
            begin_rule_term(
                state.codes[r], follower, leader, follower.in_isr != 0, True, now_us // 1000, state.params[r]
            )
    advance_high_watermark(state, r, now_us // 1000)
    show_all(state, r, now_us, out)


@kernel
def check_isr(state, r, now_us, out):
    """Run one check (isr-expiration) of rule run ``r``: drop every member that is out of sync.

    Each shrink is written with its causes, and with a DOUBT row if it is not certain. Nothing is checked while an ISR
    write is in flight.
    """
    params = state.params[r]
    if state.leaders[r].commit_us != NEVER_US:
        return
    _let_go_at_check(state, r, now_us)
    place = run_shared_with(state, r)
    leader = state.leaders[place]
    isr, remaining = leader.isr, leader.isr_size
    for p in range(leader.replicas):
        if (
            p != state.term[0].leader
            and state.followers[place, p].in_isr != 0
            and _has_to_leave_isr(state, place, state.codes[r], p, now_us // 1000, params)
        ):
            isr &= ~(1 << p)
            remaining -= 1
    if isr != leader.isr:
        todo = at_shrink(state.codes[r], leader, remaining, params)
        if todo == GIVE_UP_LEADERSHIP:
            relinquish_leadership(state, r, now_us, out)
            return
        if todo != SHRINK_ISR:
            isr = leader.isr
    if isr == leader.isr:
        if params.check_period_ms == 0:
            # No member has to leave. But the high watermark may no longer have to wait for a follower outside the ISR.
            advance_high_watermark(state, r, now_us // 1000)
            show_leader_in_ledger(state, r, now_us, out)
        join_shared_run(state, r, now_us)
        return
    part_shared_run(state, r)
    leader = state.leaders[r]
    for p in range(leader.replicas):
        if (leader.isr & ~isr) >> p & 1:
            fetch = state.fetches[p]
            causes = causes_of_shrink(state, r, p, now_us)
            follower, mine = state.followers[r, p], state.ledger.followers[r, p]
            error_us = doubts.check_error_us(leader, state.term[0], params, now_us)
            _write_isr_change(out, r, p, now_us, SHRINK, BY_RULE, isr, follower, leader, fetch, causes, error_us)
            note_excuse(mine, fetch, state.term[0], excused_by(causes))
            earliest_us = now_us - doubts.error_us(state.term[0], now_us)
            ran_late = not _has_to_leave_isr(state, r, state.codes[r], p, earliest_us // 1000, params)
            depends_on = doubts.begin_doubt(mine, follower, leader, state.term[0], fetch, params, now_us, ran_late)
            if depends_on != doubts.NOTHING:
                doubts.write_doubt(out, mine, r, p, depends_on)
            fetch.doubt_until_us = max(fetch.doubt_until_us, mine.doubt_until_us)
    if not advances_on_commit(state.codes[r], False, params):
        advance_high_watermark(state, r, now_us // 1000)
    _write_isr(state, r, isr, now_us)
    show_all(state, r, now_us, out)


@kernel
def remove_from_isr(state, r, p, now_us, out):
    """Remove replica ``p`` from the ISR of rule run ``r`` because the controller removed it, whatever the rule says."""
    leader = state.leaders[r]
    follower = state.followers[r, p]
    if follower.in_maximal_isr == 0:
        return
    isr = leader.isr & ~(1 << p)
    if follower.in_isr != 0:
        fetch = state.fetches[p]
        _write_isr_change(out, r, p, now_us, SHRINK, BY_CONTROLLER, isr, follower, leader, fetch, CONTROLLER, 0)
    install_isr(state, r, isr, now_us)
    advance_high_watermark(state, r, now_us // 1000)
    show_all(state, r, now_us, out)
