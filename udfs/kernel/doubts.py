"""Find out whether a shrink depends on facts that the log leaves open: check time, order of events, membership.

Timestamps are cut to milliseconds, and a leader logs an action a little after it. So the time of the check that drops a
follower is an interval, not an instant: as wide as the error of timestamps, plus the recent delay of the leader. If a
leader was silent when a check was due, and no line shows when the check ran, it ran some time after the leader woke up.
If the log does not show the phase of the periodic check, the check ran at some time within a period. If a check must
have run late, because no line shows its effect, it ran at some time after it was due.

If a line shows that the leader dropped this follower, part of the order is known: the follower lacked records at that
check, and no fetch that showed it at the log end had come before. Other fetches remain in doubt, because the line only
reflects the brokers' rule, and another rule may depend on them.

Where a log begins in mid-term and no line names the ISR, a follower that has not been seen at the log end may not have
been a member.

A shrink is certain if the rule makes it wherever in this interval the check ran. All other shrinks are possible: a row
of kind DOUBT follows, with the time of the shrink and what it depends on.
"""

import numpy as np

from udfs.jit import kernel
from udfs.kernel.follower_truth import overlap_of_spans
from udfs.kernel.ledger import DAY_US
from udfs.records import ABSENT_LINE, DOUBT, NEVER_US, NO_LINE, OTHERS_LINE, OWN_LINE, READ

DEPENDS_ON = (None, "event_order", "check_time", "check_phase", "isr_at_start")
NOTHING, EVENT_ORDER, CHECK_TIME, CHECK_PHASE, ISR_AT_START = np.arange(len(DEPENDS_ON))

STAMP_US = 1_000
"""Error of timestamps, because log lines and Kafka's clock are truncated to milliseconds."""
AWAKE_US = 100_000
"""A leader that wakes up runs its overdue checks within this time, in microseconds (measured: 3 to 60 ms)."""
LATE_FOR_US = 5_000_000
"""Time for which a leader that was late with a fetch may be late with other work."""
STARVED_US = 100_000
"""If a leader was late by this, in microseconds, it may also have logged late, so that timestamps do not show the order
of fetches."""


@kernel
def is_late_no_more(late_at_us, now_us):
    """Whether a leader's delay, however large, was too long ago to affect the present."""
    return now_us - late_at_us > LATE_FOR_US


@kernel
def note_lateness_for_doubts(term, from_us, until_us, now_us):
    """Note how long the leader worked on a fetch, without the time of a silence, which is considered separately."""
    late_us = until_us - from_us - overlap_of_spans(from_us, until_us, term.silent_from_us, term.silent_until_us)
    if late_us >= term.late_us or is_late_no_more(term.late_at_us, now_us):
        term.late_us = late_us
        term.late_at_us = now_us


@kernel
def error_us(term, now_us):
    """Return the possible error of an event's time in us: truncated timestamps, plus the leader's recent delay."""
    return STAMP_US + (0 if is_late_no_more(term.late_at_us, now_us) else term.late_us)


@kernel
def check_error_us(leader, term, params, now_us):
    """Return the possible error of a check's time: `error_us`, or more if no line shows when the check was due."""
    late_us = error_us(term, now_us)
    if params.check_period_ms == 0:
        return late_us
    if term.phase_unknown != 0 and leader.check_logged == NO_LINE:
        return params.check_period_ms * 1000
    if leader.check_logged == ABSENT_LINE:
        return late_us + max(0, now_us - leader.check_due_us)
    if leader.check_logged == OTHERS_LINE or (leader.check_logged == NO_LINE and now_us == term.silent_until_us):
        return late_us + AWAKE_US
    return late_us


@kernel
def write_doubt(out, mine, r, p, depends_on):
    """Mark the follower's last shrink as possible, with the reason."""
    mine.depends_on = depends_on
    mine.doubt_until_us = 0
    row = out.change[out.filled[2]]
    out.filled[2] += 1
    row[:] = 0
    row[0], row[1], row[2], row[3] = r, mine.dropped_us, DOUBT, p
    row[17] = depends_on


@kernel
def begin_doubt(mine, follower, leader, term, fetch, params, now_us, ran_late):
    """Note, for a follower that a check drops, until when its fetches may have come before the check.

    Returns the reasons that are already known to make the shrink only possible.

    Parameters
    ----------
    mine : FOLLOWER_PAGE
    follower : FOLLOWER
    leader : LEADER
    term : TERM
    fetch : FETCH_STATE
    params : record
    now_us : int
    ran_late : bool
        Whether the rule would have kept the follower if the check had run as early as the timestamps allow.
    """
    mine.dropped_us = now_us
    mine.depends_on = NOTHING
    mine.named = leader.check_logged == OWN_LINE and fetch.named_us <= now_us < fetch.named_us + STAMP_US
    late_us = error_us(term, now_us)
    mine.order_until_us = now_us + late_us
    mine.doubt_until_us = now_us + check_error_us(leader, term, params, now_us)
    if mine.named == 0 and fetch.missing_since_us != NEVER_US and fetch.missing_since_us >= now_us - late_us:
        return EVENT_ORDER
    # A rule's time may be far below 0 (kip-16-catch-up-time subtracts the time that missing messages take).
    if now_us < mine.joined_us:
        # The fetch by which the follower returned may have been recorded after this check: it depends on that.
        return EVENT_ORDER
    if mine.joined_by != NOTHING and follower.last_caught_up_time_ms * 1000 < mine.joined_us:
        # The follower has not been caught up since it returned after a possible shrink, so it may not have returned at
        # all.
        return mine.joined_by
    at_log_end = fetch.missing_since_us == NEVER_US or fetch.caught_us > term.start_us
    if term.isr_inferred != 0 and not (mine.named != 0 or mine.joined_us != 0 or at_log_end):
        # Neither a line nor a fetch at the log end shows that the follower was in the ISR.
        return ISR_AT_START
    at_any_time = term.phase_unknown != 0 and leader.check_logged == NO_LINE
    some_time_later = leader.check_logged == ABSENT_LINE or (ran_late and not at_any_time)
    return CHECK_TIME if params.check_period_ms != 0 and some_time_later else NOTHING


@kernel
def doubt_is_over(mine, fetch, now_us):
    """Whether no later fetch can make a shrink doubtful: it would come too late, or on another day, stored separately.

    If a Shrinking line names the follower, a fetch that shows it at the log end came after that check.
    """
    at_log_end = fetch.stage >= READ and fetch.error_code == 0 and fetch.fetch_offset >= fetch.leader_log_end_offset
    later = fetch.arrival_us > mine.doubt_until_us or (mine.named != 0 and at_log_end)
    return later or now_us // DAY_US != mine.dropped_us // DAY_US


@kernel
def what_doubt_depends_on(mine, term, fetch):
    """Return the reasons for doubt if a fetch that arrived within the error of the check shows the follower in sync."""
    if fetch.arrival_us <= mine.order_until_us:
        return EVENT_ORDER
    return CHECK_TIME if term.phase_unknown == 0 else CHECK_PHASE


@kernel
def note_expand_in_doubt(mine, term, fetch, r, p, now_us, out):
    """Note an expand whose fetch may have come before the check, so that the follower may never have left the ISR."""
    if mine.doubt_until_us != 0 and not doubt_is_over(mine, fetch, now_us):
        write_doubt(out, mine, r, p, what_doubt_depends_on(mine, term, fetch))
    mine.doubt_until_us = 0
    late_us = error_us(term, now_us)
    # A leader short of CPU may have recorded this fetch late, and let the follower rejoin only at the next one.
    mine.joined_us = NEVER_US if late_us > STARVED_US else now_us + late_us
    mine.joined_by = mine.depends_on
