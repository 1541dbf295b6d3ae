"""Find what a shrink depends on that the log leaves open: when the check ran, the order of events, and membership.

Timestamps are cut to milliseconds, and a leader logs an action a little after it. So the time of the check that drops a
follower is an interval, not an instant: as wide as the error of timestamps, plus the recent delay of the leader. If a
leader was silent when a check was due, and no line shows when the check ran, it ran some time after the leader woke up.
If the log does not show the phase of the periodic check, the check ran at some time within a period. If a check must
have run late, because no line shows its effect, it ran at some time after it was due.

Where a line says that the leader dropped this very follower, part of the order is known: the follower lacked something
at that check, and no fetch that showed it at the log end had come before. Other fetches remain in doubt: the line
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
"""Stamps and Kafka's clock are cut to milliseconds."""
AWAKE_US = 100_000
"""So long after it woke up, a leader that was silent has run the checks that had been due (measured: 3 to 60 ms)."""
LATE_FOR_US = 5_000_000
"""A leader that was late with a fetch may be late with anything for so long."""
STARVED_US = 100_000
"""A leader this late may also have logged late: then the order of its fetches is not that of their timestamps."""


@kernel
def is_late_no_more(late_at_us, now_us):
    """A leader that was late once is so no more, however late it was: what it took then says nothing of now."""
    return now_us - late_at_us > LATE_FOR_US


@kernel
def note_lateness_for_doubts(term, from_us, until_us, now_us):
    """The leader worked on a fetch during this span; the time that it was silent is counted separately."""
    late_us = until_us - from_us - overlap_of_spans(from_us, until_us, term.silent_from_us, term.silent_until_us)
    if late_us >= term.late_us or is_late_no_more(term.late_at_us, now_us):
        term.late_us = late_us
        term.late_at_us = now_us


@kernel
def error_us(term, now_us):
    """By how much the instant of an event is in doubt: timestamps are cut, and the leader is late with its work."""
    return STAMP_US + (0 if is_late_no_more(term.late_at_us, now_us) else term.late_us)


@kernel
def check_error_us(leader, term, params, now_us):
    """Uncertainty of the instant of a check: `error_us`, or more where no line shows when it was due."""
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
    """Mark the follower's last shrink as possible only."""
    mine.depends_on = depends_on
    mine.doubt_until_us = 0
    row = out.change[out.filled[2]]
    out.filled[2] += 1
    row[:] = 0
    row[0], row[1], row[2], row[3] = r, mine.dropped_us, DOUBT, p
    row[17] = depends_on


@kernel
def begin_doubt(mine, follower, leader, term, fetch, params, now_us, ran_late):
    """A check drops the follower; note until when a fetch of it may have come before the check.

    Returns what the shrink depends on already.

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
        The rule would not have dropped it if the check had run as early as the timestamps allow.
    """
    mine.dropped_us = now_us
    mine.depends_on = NOTHING
    mine.named = leader.check_logged == OWN_LINE and fetch.named_us <= now_us < fetch.named_us + STAMP_US
    late_us = error_us(term, now_us)
    mine.order_until_us = now_us + late_us
    mine.doubt_until_us = now_us + check_error_us(leader, term, params, now_us)
    if mine.named == 0 and fetch.missing_since_us != NEVER_US and fetch.missing_since_us >= now_us - late_us:
        return EVENT_ORDER
    # A rule's time may be far below 0 (kip-16-catch-up-time subtracts what messages take).
    if now_us < mine.joined_us:
        # It came back by a fetch that the leader may have recorded later than this check.
        return EVENT_ORDER
    if mine.joined_by != NOTHING and follower.last_caught_up_time_ms * 1000 < mine.joined_us:
        # It has not been caught up since it came back from a possible shrink: it may have been out all the time.
        return mine.joined_by
    at_log_end = fetch.missing_since_us == NEVER_US or fetch.caught_us > term.start_us
    if term.isr_inferred != 0 and not (mine.named != 0 or mine.joined_us != 0 or at_log_end):
        # Nothing shows that it was a member: neither a line, nor a fetch at the log end, which would have made it one.
        return ISR_AT_START
    at_any_time = term.phase_unknown != 0 and leader.check_logged == NO_LINE
    some_time_later = leader.check_logged == ABSENT_LINE or (ran_late and not at_any_time)
    return CHECK_TIME if params.check_period_ms != 0 and some_time_later else NOTHING


@kernel
def doubt_is_over(mine, fetch, now_us):
    """Whether no fetch can raise a doubt any more: it came later, or on another day, whose rows are written apart.

    If a Shrinking line names the follower, a fetch that shows it at the log end came after that check.
    """
    at_log_end = fetch.stage >= READ and fetch.error_code == 0 and fetch.fetch_offset >= fetch.leader_log_end_offset
    later = fetch.arrival_us > mine.doubt_until_us or (mine.named != 0 and at_log_end)
    return later or now_us // DAY_US != mine.dropped_us // DAY_US


@kernel
def what_doubt_depends_on(mine, term, fetch):
    """A fetch that arrived within the interval of the check shows the follower in sync."""
    if fetch.arrival_us <= mine.order_until_us:
        return EVENT_ORDER
    return CHECK_TIME if term.phase_unknown == 0 else CHECK_PHASE


@kernel
def note_expand_in_doubt(mine, term, fetch, r, p, now_us, out):
    """It joins, perhaps by a fetch that may have been before the check: it may have been a member all the time."""
    if mine.doubt_until_us != 0 and not doubt_is_over(mine, fetch, now_us):
        write_doubt(out, mine, r, p, what_doubt_depends_on(mine, term, fetch))
    mine.doubt_until_us = 0
    late_us = error_us(term, now_us)
    # By a starved leader it may have been taken back at its next fetch only.
    mine.joined_us = NEVER_US if late_us > STARVED_US else now_us + late_us
    mine.joined_by = mine.depends_on
