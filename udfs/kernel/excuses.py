"""Followers that are out of the ISR by a spurious shrink, and whether they had died: the shrink was early then."""

import numpy as np

from udfs.jit import kernel

UNHEARD, HEARD = np.int64(1), np.int64(2)
"""``excused`` on a follower's page: it has not fetched since the shrink; or it has, or the leader stops it."""
IN_FLIGHT_US = 600_000
"""Before the end of a log: a fetch is written down when it is done, and most wait half a second for data."""


@kernel
def note_excuse(mine, fetch, term, excused):
    """A shrink, for which the follower is to blame (0), or is not: UNHEARD, or HEARD if it was the leader's fault."""
    mine.excused = excused
    mine.heard_us = max(fetch.last_arrival_us, term.start_us)


@kernel
def count_early(state, r, p, heard_us):
    """Its first fetch after a spurious shrink, or the end: if it was silent for a lag time, the shrink was early."""
    mine, fetch = state.ledger.followers[r, p], state.fetches[p]
    if mine.excused == UNHEARD and state.followers[r, p].in_isr == 0:
        unheard = max(fetch.last_arrival_us, state.term[0].start_us) == mine.heard_us
        if unheard and heard_us - mine.heard_us > state.params[r].replica_lag_time_max_ms * 1000:
            mine.early += 1
        mine.excused = HEARD
