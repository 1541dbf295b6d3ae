"""Find early shrinks: a spurious shrink is early if the follower had in fact died, as its silence afterwards shows."""

import numpy as np

from udfs.jit import kernel

UNHEARD, HEARD = np.int64(1), np.int64(2)
"""Values of ``excused`` in a follower's ledger after a spurious shrink. UNHEARD: the follower has not fetched since
then. HEARD: it has, or the leader was to blame for the shrink."""
IN_FLIGHT_US = 600_000
"""Time before the end of a log in which fetches may be missing, in microseconds. A fetch is logged when it completes,
and most fetches wait half a second for data."""


@kernel
def note_excuse(mine, fetch, term, excused):
    """Store in a follower's ledger that it was dropped, and what is to blame.

    ``excused`` is 0 (the follower), HEARD (its leader), or UNHEARD (the rule, unless the follower turns out to be
    dead).
    """
    mine.excused = excused
    mine.heard_us = max(fetch.last_arrival_us, term.start_us)


@kernel
def count_early(state, r, p, heard_us):
    """Count the last spurious shrink of follower ``p`` as early if it then did not fetch for a lag time.

    ``heard_us`` is the time of its next fetch, or the end of the log.
    """
    mine, fetch = state.ledger.followers[r, p], state.fetches[p]
    if mine.excused == UNHEARD and state.followers[r, p].in_isr == 0:
        unheard = max(fetch.last_arrival_us, state.term[0].start_us) == mine.heard_us
        if unheard and heard_us - mine.heard_us > state.params[r].replica_lag_time_max_ms * 1000:
            mine.early += 1
        mine.excused = HEARD
