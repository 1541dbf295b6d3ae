"""Count early shrinks: shrinks that were spurious when they were made, but whose follower turned out to be dead.

The follower was dead if it did not fetch for more than a lag time after its last fetch before the shrink.
"""

import numpy as np

from udfs.jit import kernel

UNHEARD, HEARD = np.int64(1), np.int64(2)
"""Values of a follower's field ``excused`` after a spurious shrink. UNHEARD: the follower has not fetched since. HEARD:
the follower has fetched again, or the leader was to blame for the shrink."""
IN_FLIGHT_US = 600_000
"""Length of the time before the end of a log in which fetches may be missing, in microseconds. A fetch is only logged
when it completes, and most fetches wait half a second for data."""


@kernel
def note_excuse(mine, fetch, term, excused):
    """Record in ``mine``, a follower's counters, that a rule dropped the follower, and what was to blame.

    ``excused`` is 0 (the follower), HEARD (its leader), or UNHEARD (the rule, unless the follower turns out to be
    dead).
    """
    mine.excused = excused
    mine.heard_us = max(fetch.last_arrival_us, term.start_us)


@kernel
def count_early(state, r, p, heard_us):
    """If follower ``p`` was silent for more than a lag time, count its last spurious shrink as early: it was dead.

    The silence begins with the follower's last fetch before the shrink, and ends at ``heard_us``: at its next fetch, or
    at the end of the log.
    """
    mine, fetch = state.ledger.followers[r, p], state.fetches[p]
    if mine.excused == UNHEARD and state.followers[r, p].in_isr == 0:
        unheard = max(fetch.last_arrival_us, state.term[0].start_us) == mine.heard_us
        if unheard and heard_us - mine.heard_us > state.params[r].replica_lag_time_max_ms * 1000:
            mine.early += 1
        mine.excused = HEARD
