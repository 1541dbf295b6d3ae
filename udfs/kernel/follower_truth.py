"""Track a follower independently of any rule: its log end, since when it lacks records, and which broker delayed it.

See FETCH_STATE and TERM of ``udfs.records``. A fetch is known from its arrival on; the log that is
replayed was written afterwards, so its later instants are known too.
"""

from udfs.jit import inlined, kernel
from udfs.kernel.append_history import AppendHistory, missing_since
from udfs.records import ARRIVED, NEVER_US, NO_FETCH, NOT_DUE, READ, RECORDED, SILENCE, UNKNOWN


@kernel
def overlap_of_spans(from_us, until_us, other_from_us, other_until_us):
    """Length of what two spans have in common."""
    return max(0, min(until_us, other_until_us) - max(from_us, other_from_us))


@inlined
def settle_truth(fetch, term, now_us):
    """Sum up how long the follower was held up by its leader, until ``now_us``.

    Three kinds of time are summed. In held time, the follower's fetch was in the request queue, was being processed, or
    waited longer than it had asked to. In silent time, the leader handled no request at all, and had no fetch of this
    follower that would show it. In idle time, no follower fetched from the leader, which may have been silent.
    """
    from_us = fetch.settled_us
    if now_us <= from_us:
        return
    if fetch.stage != NO_FETCH:
        fetch.held_us += _held(fetch, from_us, now_us)
    if term.silent_until_us > from_us:
        fetch.silent_us += _silent(fetch, term, from_us, now_us)
    if term.idle_until_us > from_us:
        fetch.idle_us += _idle(fetch, term, max(from_us, term.idle_from_us), min(now_us, term.idle_until_us))
    fetch.settled_us = now_us


@kernel
def _held(fetch, from_us, now_us):
    queued_us = overlap_of_spans(from_us, now_us, fetch.arrival_us, fetch.processed_us)
    return queued_us + overlap_of_spans(from_us, now_us, fetch.released_us, fetch.completed_us)


@kernel
def _idle(fetch, term, from_us, until_us):
    if until_us <= from_us:
        return 0
    held_us = 0 if fetch.stage == NO_FETCH else _held(fetch, from_us, until_us)
    return until_us - from_us - held_us - _silent(fetch, term, from_us, until_us)


@kernel
def _silent(fetch, term, from_us, now_us):
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
    """Begin a time without fetches: the leader is silent, or (IDLE) the reason is unknown."""
    term = state.term[0]
    for p in range(term.replicas):
        settle_truth(state.fetches[p], term, from_us)
    if kind == SILENCE:
        term.silent_from_us, term.silent_until_us = from_us, until_us
    else:
        term.idle_from_us, term.idle_until_us = from_us, until_us


@inlined
def position_of(state, replica_id):
    """Index of a follower in the assignment; -1 for any other broker."""
    for p in range(state.term[0].replicas):
        if state.fetches[p].replica_id == replica_id and p != state.term[0].leader:
            return p
    return -1


@kernel
def enter_instant_of_truth(fetch, stage):
    """An instant of its fetch has come; the next one is kept for the search for what is due first."""
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
    """It lacks nothing."""
    fetch.caught_us = now_us
    fetch.held_at_caught_us = fetch.held_us
    fetch.silent_at_caught_us = fetch.silent_us
    fetch.idle_at_caught_us = fetch.idle_us


@kernel
def _was_caught_up_at_previous_read(fetch):
    """It has reached the log end that its previous fetch found: it was caught up then, not now (KAFKA-4485)."""
    if fetch.previous_read_us > fetch.caught_us:
        fetch.caught_us = fetch.previous_read_us
        fetch.held_at_caught_us = fetch.held_at_previous_read_us
        fetch.silent_at_caught_us = fetch.silent_at_previous_read_us
        fetch.idle_at_caught_us = fetch.idle_at_previous_read_us


@kernel
def _explain_since_caught(fetch):
    """A sign of life: what was before it was last caught up needs no explanation any more."""
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
    """Process the fetch of row ``i``: the follower holds everything below its fetch offset."""
    now_us = rows.time_us[i]
    settle_truth(fetch, term, now_us)
    if fetch.missing_since_us == NEVER_US:
        _caught_up(fetch, now_us)
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
    """An io thread reads for it: the leader's log end is what the log says, else what the appends say."""
    settle_truth(fetch, term, now_us)
    fetch.read_us = now_us
    fetch.held_at_read_us = fetch.held_us
    fetch.silent_at_read_us = fetch.silent_us
    fetch.idle_at_read_us = fetch.idle_us
    if fetch.leader_log_end_offset < 0:
        fetch.leader_log_end_offset = term.log_end_offset


@kernel
def truth_after_record(fetch):
    """The leader knows what the follower holds, and the next fetch is compared with what this one found."""
    if fetch.error_code == 0:
        fetch.previous_leader_log_end_offset = fetch.leader_log_end_offset
        fetch.previous_read_us = fetch.read_us
        fetch.held_at_previous_read_us = fetch.held_at_read_us
        fetch.silent_at_previous_read_us = fetch.silent_at_read_us
        fetch.idle_at_previous_read_us = fetch.idle_at_read_us


@inlined
def truth_after_append(fetch, term, now_us):
    """The leader's log has grown: who lacked nothing lacks something from now on."""
    if fetch.missing_since_us == NEVER_US and fetch.log_end_offset < term.log_end_offset:
        settle_truth(fetch, term, now_us)
        _caught_up(fetch, now_us)
        fetch.missing_since_us = now_us


@kernel
def begin_truth(fetch, term):
    """A new term: nothing is known of the follower before its first fetch, unless there is nothing to hold."""
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
    fetch.settled_us = term.start_us
    _caught_up(fetch, term.start_us)
    _explain_since_caught(fetch)


@kernel
def true_lag_us(fetch, now_us):
    """How long ago the leader first held a record that the follower lacks; 0 when it lacks none."""
    return 0 if fetch.missing_since_us == NEVER_US else now_us - fetch.missing_since_us


@kernel
def truly_late_at_us(fetch, lag_time_ms):
    """First instant at which `true-lag` calls the follower out of sync; it counts whole milliseconds."""
    if fetch.missing_since_us == NEVER_US:
        return NEVER_US
    return (fetch.missing_since_us // 1000 + lag_time_ms + 1) * 1000


@kernel
def true_miss_at_us(fetch, lag_time_ms):
    """When every rule should have acted: after 1.5 lag times, and after anything else due at that instant."""
    if fetch.missing_since_us == NEVER_US:
        return NEVER_US
    return (fetch.missing_since_us // 1000 + lag_time_ms * 3 // 2 + 1) * 1000 + 1
