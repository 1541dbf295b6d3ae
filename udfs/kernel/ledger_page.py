"""Layout of a page: the counters that a replay keeps for one rule run and the current day, and those per follower."""

import numpy as np

from udfs.jit import kernel
from udfs.records import BUCKETS, FOLLOWER_MEASURES, MEASURES, WAIT_BUCKETS, int64_record

NO_VIOLATION = np.int64(-1)

(
    EXPOSURE_US,
    UNDER_MIN_ISR_US,
    AT_MIN_ISR_US,
    LEADER_ALONE_US,
    UNDER_REPLICATED_US,
    HIGH_WATERMARK_STALLED_US,
    STALLED_UNDER_MIN_ISR_US,
    LOSS_EXPOSED_US,
    LOSS_RECORDS_MAX,
    ISR_WRITES,
    REFUSED_APPENDS,
    ACKNOWLEDGED_APPENDS,
    NEVER_ACKNOWLEDGED,
    ACKS_ALL_LATENCY_MAX_US,
    ACKS_ALL_WAITS_1S_US,
    ACKS_ALL_WAITS_30S_US,
    ACKS_ALL_WAITS_1S_SILENT_US,
    ACKS_ALL_WAIT_MAX_US,
    ACKS_ALL_WAIT_UNKNOWN_US,
    ACKS_ALL_UNANSWERED_US,
    LOST_BY_HEIR_MAX,
    LOST_BY_FIRST_ACTIVE_MAX,
    LOST_BY_LONGEST_LOG_MAX,
    HIGH_WATERMARK_DECREASES,
    MEMBERS_BELOW_HIGH_WATERMARK,
    PASSED_WITHIN_LAG_TIME,
    LEADER_OUTSIDE_ISR,
    ISR_OUTSIDE_ASSIGNMENT,
    FIRST_VIOLATION_US,
    FIRST_VIOLATION,
) = np.arange(len(MEASURES))
"""Index of each of MEASURES in a page."""
SETTLED_US, AT_RISK, BELOW, WAITED_UNTIL_US, ANSWERED_US = len(MEASURES) + np.arange(5)
"""Indices of five more entries of a page: the time up to which times are summed; the largest number of records that a
member of the ISR lacks, of those acknowledged to acks=all and of those below the high watermark; the time up to which
waits of acks=all requests are summed; and the time up to which requests were answered then
(``udfs.kernel.unanswered``)."""
LATENCIES = len(MEASURES) + 5
"""Index of a page's first latency bucket. A bucket counts acknowledged acks=all appends by their latency."""
WAITS = LATENCIES + BUCKETS
"""Index of a page's first bucket of waits. A bucket holds the time in which a request with acks=all would wait so long.
The first of the WAIT_BUCKETS, for waits of up to a second, is only filled when a page is written."""
PLACES = WAITS + WAIT_BUCKETS
EXTREMES = (LOSS_RECORDS_MAX, ACKS_ALL_LATENCY_MAX_US, ACKS_ALL_WAIT_MAX_US)
"""Indices of the entries that are maxima."""
UNLESS_KNOWN = (
    LOST_BY_HEIR_MAX, LOST_BY_FIRST_ACTIVE_MAX, LOST_BY_LONGEST_LOG_MAX, FIRST_VIOLATION_US, FIRST_VIOLATION,
)  # fmt: skip
"""Indices of the entries that are -1 as long as there is nothing to report."""
NO_SUMS = (SETTLED_US, AT_RISK, BELOW, WAITED_UNTIL_US, ANSWERED_US, *EXTREMES, *UNLESS_KNOWN)
"""Indices of the entries that are not sums, such as maxima."""

FOLLOWER_PAGE = int64_record(
    *FOLLOWER_MEASURES,
    "judged",  # 1: the rule's answers are scored from settled_us on
    "settled_us",
    "looked_at_us",  # the missing_since_us for which a miss was last searched
    "missed",  # 1: a miss is counted, and it was not caught up since
    "excused",  # UNHEARD or HEARD: out of the ISR by a spurious shrink; 0: not
    "heard_us",  # arrival of its last fetch before that spurious shrink
    "dropped_us",  # time of its last shrink by the rule
    "depends_on",  # why that shrink is not certain; 0: it is certain
    "joined_us",  # latest time of its last return to the ISR; 0: it has not been outside
    "joined_by",  # depends_on of the shrink that this return undid
    "let_go_us",  # the last check that would have dropped it if one more record had been in the log; 0: none
    "named",  # 1: a line shows that the leader dropped it at that time
    "order_until_us",  # a fetch that arrived by then may have preceded the shrink, by the error of timestamps alone
    "doubt_until_us",  # a fetch that arrived by then may have preceded the check that dropped it; 0: none can
)
"""One follower's counters of the current day under one rule run."""


@kernel
def ledger_known_from_us(term, params):
    """Return the time from which a rule run's state cannot depend on events before the log begins, in microseconds.

    That is the start of the term if the log contains it, else a lag time and a check period after the log begins.
    """
    if term.begins_mid_term == 0:
        return term.start_us
    return term.start_us + (params.replica_lag_time_max_ms + params.check_period_ms + 1) * 1000


@kernel
def count_violation_on_page(page, promise, now_us):
    """Count a violation, and note it if it is the first of the day. ``promise`` is the index of its counter."""
    page[promise] += 1
    if page[FIRST_VIOLATION] == NO_VIOLATION:
        page[FIRST_VIOLATION] = promise - HIGH_WATERMARK_DECREASES
        page[FIRST_VIOLATION_US] = now_us
