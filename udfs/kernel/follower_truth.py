"""Track each follower's true state: the part of its state that does not depend on the rule.

It consists of the follower's log end, the time since which it has lacked records, and how long the leader has delayed
its fetches.

The state is in FETCH_STATE and TERM of ``udfs.records``. When the arrival of a fetch is processed, its later instants
are already known, because its log line was written after them.
"""

from udfs.jit import inlined, kernel
from udfs.kernel.append_history import AppendHistory, missing_since
from udfs.kernel.unanswered import note_fetch_in_answer
from udfs.records import ARRIVED, NEVER_US, NO_FETCH, NOT_DUE, READ, RECORDED, SILENCE, UNKNOWN


@kernel
def overlap_of_spans(from_us, until_us, other_from_us, other_until_us):
    """Return the length of the intersection of two time spans."""
    return max(0, min(until_us, other_until_us) - max(from_us, other_from_us))


@inlined
def settle_truth(fetch, term, now_us):
    """Update the sums of how long the leader delayed the follower, up to ``now_us``.

    There are three sums, without overlap. Held time: the follower's fetch was in the request queue, was being
    processed, or waited longer than it had asked to. Silent time: outside held time, the leader handled no request at
    all. Idle time: outside held and silent time, no follower fetched from the leader, for an unknown reason.
    """
    from_us = fetch.settled_us
    if now_us <= from_us:
        return
    if fetch.stage != NO_FETCH:
        fetch.held_us += _held_by_leader_us(fetch, from_us, now_us)
    if term.silent_until_us > from_us:
        fetch.silent_us += _leader_silent_us(fetch, term, from_us, now_us)
    if term.idle_until_us > from_us:
        fetch.idle_us += _follower_truly_idle_us(
            fetch, term, max(from_us, term.idle_from_us), min(now_us, term.idle_until_us)
        )
    fetch.settled_us = now_us


@kernel
def _held_by_leader_us(fetch, from_us, now_us):
    """Return how long the leader held the follower's fetch between ``from_us`` and ``now_us``."""
    queued_us = overlap_of_spans(from_us, now_us, fetch.arrival_us, fetch.processed_us)
    return queued_us + overlap_of_spans(from_us, now_us, fetch.released_us, fetch.completed_us)


@kernel
def _follower_truly_idle_us(fetch, term, from_us, until_us):
    """Return how long, within a time span, the leader was not silent and held no fetch of this follower."""
    if until_us <= from_us:
        return 0
    held_us = 0 if fetch.stage == NO_FETCH else _held_by_leader_us(fetch, from_us, until_us)
    return until_us - from_us - held_us - _leader_silent_us(fetch, term, from_us, until_us)


@kernel
def _leader_silent_us(fetch, term, from_us, now_us):
    """Return how long, within a time span, the leader was silent and held no fetch of this follower."""
    silent = overlap_of_spans(from_us, now_us, term.silent_from_us, term.silent_until_us)
    if fetch.stage != NO_FETCH:
        silent -= overlap_of_spans(
            max(from_us, fetch.arrival_us), min(now_us, fetch.processed_us), term.silent_from_us, term.silent_until_us
        )
        silent -= overlap_of_spans(
            max(from_us, fetch.released_us), min(now_us, fetch.completed_us), term.silent_from_us, term.silent_until_us
        )
    return silent


@kernel
def truth_before_pause(state, kind, from_us, until_us):
    """Store when a pause without fetches begins and ends: a silence of the leader, or an unexplained pause (IDLE)."""
    term = state.term[0]
    for p in range(term.replicas):
        settle_truth(state.fetches[p], term, from_us)
    if kind == SILENCE:
        term.silent_from_us, term.silent_until_us = from_us, until_us
    else:
        term.idle_from_us, term.idle_until_us = from_us, until_us


@inlined
def position_of(state, replica_id):
    """Return a follower's index in the assignment; -1 for the leader and for brokers without a replica."""
    for p in range(state.term[0].replicas):
        if state.fetches[p].replica_id == replica_id and p != state.term[0].leader:
            return p
    return -1


@kernel
def enter_instant_of_truth(fetch, stage):
    """Set ``stage`` of a fetch (ARRIVED, READ, RECORDED, COMPLETED), and ``due`` to when it reaches the next stage."""
    fetch.stage = stage
    if stage == ARRIVED:
        fetch.due = 2 * min(fetch.handled_us, NOT_DUE // 2) + 1
    elif stage == READ:
        fetch.due = 2 * min(fetch.processed_us, NOT_DUE // 2) + 1
    elif stage == RECORDED:
        fetch.due = 2 * min(fetch.completed_us, NOT_DUE // 2)
    else:
        fetch.due = NOT_DUE


@kernel
def _caught_up(fetch, now_us):
    """Store that the follower lacks no record at ``now_us``, and the sums of delays at that time."""
    fetch.caught_us = now_us
    fetch.held_at_caught_us = fetch.held_us
    fetch.silent_at_caught_us = fetch.silent_us
    fetch.idle_at_caught_us = fetch.idle_us


@kernel
def _was_caught_up_at_previous_read(fetch):
    """Store that the follower was caught up when its previous fetch was read, unless it was caught up later.

    The caller has checked that the follower's log now reaches the leader's log end at that read.
    """
    if fetch.previous_read_us > fetch.caught_us:
        fetch.caught_us = fetch.previous_read_us
        fetch.held_at_caught_us = fetch.held_at_previous_read_us
        fetch.silent_at_caught_us = fetch.silent_at_previous_read_us
        fetch.idle_at_caught_us = fetch.idle_at_previous_read_us


@kernel
def _explain_since_caught(fetch):
    """Make the sums of delays cover only the time since the follower was last caught up."""
    fetch.since_us = fetch.caught_us
    fetch.held_us -= fetch.held_at_caught_us
    fetch.silent_us -= fetch.silent_at_caught_us
    fetch.idle_us -= fetch.idle_at_caught_us
    fetch.held_at_previous_read_us -= fetch.held_at_caught_us
    fetch.silent_at_previous_read_us -= fetch.silent_at_caught_us
    fetch.idle_at_previous_read_us -= fetch.idle_at_caught_us
    fetch.held_at_caught_us = 0
    fetch.silent_at_caught_us = 0
    fetch.idle_at_caught_us = 0


@inlined
def truth_after_arrival(fetch, term, history: AppendHistory, rows, i, fetch_offset, error_code):
    """Update a follower's true state when its fetch arrives (row ``i``): it has all records below ``fetch_offset``.

    A failed fetch does not show the follower's log end.
    """
    now_us = rows.time_us[i]
    settle_truth(fetch, term, now_us)
    if fetch.missing_since_us == NEVER_US:
        _caught_up(fetch, now_us)
    if fetch.stage != NO_FETCH and fetch.error_code == 0:
        note_fetch_in_answer(fetch)
    fetch.arrival_us = now_us
    fetch.handled_us = rows.handled_us[i]
    fetch.processed_us = rows.processed_us[i]
    fetch.released_us = rows.released_us[i]
    fetch.completed_us = rows.until_us[i]
    enter_instant_of_truth(fetch, ARRIVED)
    fetch.fetch_offset = fetch_offset
    fetch.error_code = error_code
    fetch.leader_log_end_offset = rows.leader_log_end_offset[i]
    fetch.last_arrival_us = now_us
    if fetch.error_code == 0:
        fetch.log_end_offset = fetch.fetch_offset
        fetch.missing_since_us = missing_since(history, fetch.log_end_offset)
        previous = fetch.previous_leader_log_end_offset
        if fetch.missing_since_us >= now_us:
            _caught_up(fetch, now_us)
        elif previous >= 0 and fetch.log_end_offset >= previous:
            _was_caught_up_at_previous_read(fetch)
    _explain_since_caught(fetch)


@inlined
def truth_after_read(fetch, term, now_us):
    """Update the true state when an I/O thread reads the leader's log for a fetch.

    If the fetch's log line does not name the leader's log end, the log end after the last append is used.
    """
    settle_truth(fetch, term, now_us)
    fetch.read_us = now_us
    fetch.held_at_read_us = fetch.held_us
    fetch.silent_at_read_us = fetch.silent_us
    fetch.idle_at_read_us = fetch.idle_us
    if fetch.leader_log_end_offset < 0:
        fetch.leader_log_end_offset = term.log_end_offset


@kernel
def truth_after_record(fetch):
    """Store at which log end, and when, the leader read its log for this fetch. Called when the fetch is recorded.

    The next fetch is compared with these values. A failed fetch is ignored.
    """
    if fetch.error_code == 0:
        fetch.previous_leader_log_end_offset = fetch.leader_log_end_offset
        fetch.previous_read_us = fetch.read_us
        fetch.held_at_previous_read_us = fetch.held_at_read_us
        fetch.silent_at_previous_read_us = fetch.silent_at_read_us
        fetch.idle_at_previous_read_us = fetch.idle_at_read_us


@inlined
def truth_after_append(fetch, term, now_us):
    """Update a follower's true state after an append: if it lacked no record, it lacks records from ``now_us`` on."""
    if fetch.missing_since_us == NEVER_US and fetch.log_end_offset < term.log_end_offset:
        settle_truth(fetch, term, now_us)
        _caught_up(fetch, now_us)
        fetch.missing_since_us = now_us


@kernel
def begin_truth(fetch, term):
    """Reset a follower's true state at the start of a term.

    The follower's log end is then unknown, unless the leader's log is empty, or the term begins in mid-term and a log
    line shows the follower's log end (``held_at_start``).
    """
    enter_instant_of_truth(fetch, NO_FETCH)
    held = max(fetch.held_at_start, UNKNOWN) if term.begins_mid_term != 0 else 0 if term.start_offset == 0 else UNKNOWN
    fetch.log_end_offset = held
    fetch.missing_since_us = NEVER_US if held >= term.start_offset else term.start_us
    fetch.previous_leader_log_end_offset = -1
    fetch.previous_read_us = term.start_us
    fetch.held_at_previous_read_us = 0
    fetch.silent_at_previous_read_us = 0
    fetch.idle_at_previous_read_us = 0
    fetch.last_arrival_us = -1
    fetch.leader_log_end_offset = -1
    fetch.held_us = 0
    fetch.silent_us = 0
    fetch.idle_us = 0
    fetch.cadence_us = fetch.thin_until_us = 0
    fetch.answer_until_us = fetch.had_until_us = term.start_us
    fetch.settled_us = term.start_us
    _caught_up(fetch, term.start_us)
    _explain_since_caught(fetch)


@kernel
def true_lag_us(fetch, now_us):
    """Return the true lag in microseconds: the age of the first record that the follower lacks; 0 if it lacks none."""
    return 0 if fetch.missing_since_us == NEVER_US else now_us - fetch.missing_since_us


@kernel
def truly_late_at_us(fetch, lag_time_ms):
    """Return when the oldest record that the follower lacks becomes older than the lag time, in microseconds.

    From then on the rule `true-lag` finds the follower out of sync. It is a whole millisecond, or NEVER_US if the
    follower lacks no record.
    """
    if fetch.missing_since_us == NEVER_US:
        return NEVER_US
    return (fetch.missing_since_us // 1000 + lag_time_ms + 1) * 1000


@kernel
def true_miss_at_us(fetch, lag_time_ms):
    """Return when the true lag exceeds 1.5 lag times, in microseconds, or NEVER_US if the follower lacks no record.

    By then every rule should have dropped the follower.
    """
    if fetch.missing_since_us == NEVER_US:
        return NEVER_US
    return (fetch.missing_since_us // 1000 + lag_time_ms * 3 // 2 + 1) * 1000 + 1
