"""Rows of the timelines, as the kernel writes them: one for all rule runs that come to the same state at an instant.

Most runs agree at nearly every instant, so that 15 rules write some three rows an event and not sixteen.
"""

import numpy as np

from udfs.jit import inlined
from udfs.records import RUNS_A_ROW

LOOK_BACK = 16
"""Latest rows of an instant that are looked through; where runs have more states than that, some rows stay double."""


BITS = np.int64((1 << RUNS_A_ROW) - 1)
"""The part of a row's ``runs`` that says which of a stretch of runs they are."""


@inlined
def bit_of_timeline_run(r):
    """Of a timeline row, the number of the stretch of runs that the run is in, and its bit."""
    return r // RUNS_A_ROW << RUNS_A_ROW | 1 << r % RUNS_A_ROW


@inlined
def _joins(row, runs):
    """Note runs in a row with their state, unless they have that row already, or belong to another stretch of runs."""
    if row[0] >> RUNS_A_ROW != runs >> RUNS_A_ROW or row[0] & runs & BITS:
        return False
    row[0] |= runs
    return True


@inlined
def show_follower_in_timeline(out, since, p, now_us, follower, leader):
    """Write the follower's state if its position, its membership, or its last catching up while behind changed.

    Rows from ``since`` on are of this instant.
    """
    behind = follower.log_end_offset != leader.log_end_offset
    if (
        follower.log_end_offset == follower.shown_log_end_offset
        and follower.in_isr == follower.shown_in_isr
        and not (behind and follower.last_caught_up_time_ms != follower.shown_last_caught_up_time_ms)
    ):
        return
    follower.shown_log_end_offset = follower.log_end_offset
    follower.shown_in_isr = follower.in_isr
    follower.shown_last_caught_up_time_ms = follower.last_caught_up_time_ms
    rows, filled = out.replica, out.filled[0]
    lag = leader.log_end_offset - follower.log_end_offset
    follower.shown_lag_messages = lag
    for i in range(filled - 1, max(since, filled - LOOK_BACK) - 1, -1):
        if (
            rows[i, 1] == p
            and rows[i, 3] == follower.log_end_offset
            and rows[i, 5] == lag
            and rows[i, 6] == follower.last_caught_up_time_ms
            and rows[i, 7] == follower.in_isr
            and _joins(rows[i], leader.runs)
        ):
            return
    row = rows[filled]
    out.filled[0] += 1
    row[0] = leader.runs
    row[1] = p
    row[2] = now_us
    row[3] = follower.log_end_offset
    # A request that the follower's next one overtook was handled later than now.
    row[4] = max(0, now_us // 1000 - follower.last_caught_up_time_ms) if behind else 0
    row[5] = lag
    row[6] = follower.last_caught_up_time_ms
    row[7] = follower.in_isr


@inlined
def show_leader_in_timeline(rows, filled, since, now_us, leader):
    """Write the partition's state; rows from ``since`` on are of this instant."""
    for i in range(filled[1] - 1, max(since, filled[1] - LOOK_BACK) - 1, -1):
        if (
            rows[i, 2] == leader.log_end_offset
            and rows[i, 3] == leader.high_watermark
            and rows[i, 4] == leader.isr
            and _joins(rows[i], leader.runs)
        ):
            return
    row = rows[filled[1]]
    filled[1] += 1
    row[0] = leader.runs
    row[1] = now_us
    row[2] = leader.log_end_offset
    row[3] = leader.high_watermark
    row[4] = leader.isr
