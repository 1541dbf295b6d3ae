"""Decide whether a shrink is certain, or depends on what the log leaves open: check time, event order, or membership.

The time of a check is known only as an interval. Timestamps are truncated to milliseconds, and a leader logs an action
a little after it. So the interval is as wide as the error of timestamps plus the leader's recent delay. It is wider in
three cases. If the leader was silent when the check was due, and no log line shows when it ran, the check ran some time
after the leader woke up. If the log does not show the phase of the periodic check, the check ran at some time within a
period. If a check must have run late, because the line that it would have logged is missing, it ran at some time after
it was due.

If a log line shows that the leader dropped this follower, part of the order is known: at that check the follower lacked
records, and no fetch from the log end had come before. The line only reflects the brokers' own rule. Other fetches, on
which another rule may depend, remain in doubt.

If a log begins in mid-term and no line shows the ISR, a follower that has not fetched from the log end may not have
been a member.

A shrink is certain if the rule makes it wherever in this interval the check ran. Every other shrink is possible: a row
of kind DOUBT follows it, with the same time and the reason.
"""

import numpy as np

from udfs.jit import kernel
from udfs.kernel.follower_truth import overlap_of_spans
from udfs.kernel.ledger import DAY_US
from udfs.records import ABSENT_LINE, DOUBT, NEVER_US, NO_LINE, OTHERS_LINE, OWN_LINE, READ

DEPENDS_ON = (None, "event_order", "check_time", "check_phase", "isr_at_start")
NOTHING, EVENT_ORDER, CHECK_TIME, CHECK_PHASE, ISR_AT_START = np.arange(len(DEPENDS_ON))

STAMP_US = 1_000
"""Maximum error of a timestamp, in microseconds: log lines and Kafka's clock are truncated to milliseconds."""
AWAKE_US = 100_000
"""A leader that wakes up runs its overdue checks within this time, in microseconds (measured: 3 to 60 ms)."""
LATE_FOR_US = 5_000_000
"""After the leader has delayed a fetch, event times may be wrong by as much as that delay for this time, in us."""
STARVED_US = 100_000
"""A leader with a longer delay than this, in microseconds, may also log late. The timestamps of two fetches then do not
show their order."""


@kernel
def is_late_no_more(late_at_us, now_us):
    """Whether the leader's last large delay, at ``late_at_us``, was more than LATE_FOR_US before ``now_us``."""
    return now_us - late_at_us > LATE_FOR_US


@kernel
def note_lateness_for_doubts(term, from_us, until_us, now_us):
    """Update the leader's largest recent delay: it has delayed a fetch from ``from_us`` to ``until_us``.

    Time in which the leader handled no request at all (a silence) is subtracted. An earlier delay that is larger is
    kept instead for LATE_FOR_US.
    """
    late_us = until_us - from_us - overlap_of_spans(from_us, until_us, term.silent_from_us, term.silent_until_us)
    if late_us >= term.late_us or is_late_no_more(term.late_at_us, now_us):
        term.late_us = late_us
        term.late_at_us = now_us


@kernel
def error_us(term, now_us):
    """Return the maximum error of an event's time in microseconds: truncation plus the leader's recent delay."""
    return STAMP_US + (0 if is_late_no_more(term.late_at_us, now_us) else term.late_us)


@kernel
def check_error_us(leader, term, params, now_us):
    """Return how much later than in the replay (at ``now_us``) the leader's check may have run, in microseconds.

    This is `error_us`, or more if no log line about this partition shows when the check ran.
    """
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
    """Write a DOUBT row: the last shrink of follower ``p`` is possible, not certain. ``depends_on`` is the reason."""
    mine.depends_on = depends_on
    mine.doubt_until_us = 0
    row = out.change[out.filled[2]]
    out.filled[2] += 1
    row[:] = 0
    row[0], row[1], row[2], row[3] = r, mine.dropped_us, DOUBT, p
    row[17] = depends_on


@kernel
def begin_doubt(mine, follower, leader, term, fetch, params, now_us, ran_late):
    """Return why a shrink that happens now is not certain (an index of DEPENDS_ON), or NOTHING if no reason is known.

    A later fetch may add a reason: it may have come before the check, and would have prevented the shrink. The latest
    time at which such a fetch can arrive is stored in ``mine`` (``doubt_until_us``).

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
        # The fetch by which the follower returned may have been recorded after this check.
        return EVENT_ORDER
    if mine.joined_by != NOTHING and follower.last_caught_up_time_ms * 1000 < mine.joined_us:
        # The follower returned after a shrink that is not certain, and was not caught up since. So this shrink is not
        # certain either.
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
    """Whether neither ``fetch`` nor a later one can show that the follower's last shrink is not certain.

    There are three such cases. First, ``fetch`` arrived after ``doubt_until_us``. Second, the shrink was on an earlier
    day (each day's results are stored separately). Third, a log line shows the shrink, and ``fetch`` is from the log
    end: the line proves that no such fetch came before the check.
    """
    at_log_end = fetch.stage >= READ and fetch.error_code == 0 and fetch.fetch_offset >= fetch.leader_log_end_offset
    later = fetch.arrival_us > mine.doubt_until_us or (mine.named != 0 and at_log_end)
    return later or now_us // DAY_US != mine.dropped_us // DAY_US


@kernel
def what_doubt_depends_on(mine, term, fetch):
    """Return why a shrink is not certain, given that ``fetch`` would have prevented it if it came before the check.

    The result is EVENT_ORDER if the two are so close that the error of timestamps hides which came first. Otherwise the
    time of the check is uncertain: CHECK_PHASE if the log does not show the phase of periodic checks, else CHECK_TIME.
    """
    if fetch.arrival_us <= mine.order_until_us:
        return EVENT_ORDER
    return CHECK_TIME if term.phase_unknown == 0 else CHECK_PHASE


@kernel
def note_expand_in_doubt(mine, term, fetch, r, p, now_us, out):
    """Write a DOUBT row before a follower returns to the ISR, if its last shrink turns out not to be certain.

    It is not certain if the fetch that brings the follower back may have come before the check that dropped it.
    """
    if mine.doubt_until_us != 0 and not doubt_is_over(mine, fetch, now_us):
        write_doubt(out, mine, r, p, what_doubt_depends_on(mine, term, fetch))
    mine.doubt_until_us = 0
    late_us = error_us(term, now_us)
    # A leader short of CPU may have recorded this fetch late, so that the follower rejoined only with its next fetch.
    mine.joined_us = NEVER_US if late_us > STARVED_US else now_us + late_us
    mine.joined_by = mine.depends_on
