"""Write rows of the timelines: one row for all rule runs that have the same state at an instant.

Most rule runs agree at nearly every instant, so that 15 rules write about three rows per event instead of sixteen.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from udfs.jit import inlined
from udfs.kernel.rule_calls import RULES, rule_bits
from udfs.records import RUNS_A_ROW

LOOK_BACK = 16
"""Maximum number of rows of the same instant that are searched for an equal state before a row is written. If one is
found, the rule run shares that row."""


BITS = np.int64((1 << RUNS_A_ROW) - 1)
"""Mask for the bits of ``runs`` that represent single rule runs. The bits above encode the number of their block of
RUNS_A_ROW rule runs."""


@inlined
def bit_of_timeline_run(r):
    """Return column ``runs`` of a row for rule run ``r`` alone: the number of its block, and its bit in the block."""
    return r // RUNS_A_ROW << RUNS_A_ROW | 1 << r % RUNS_A_ROW


@inlined
def _joins(row, runs):
    """Add the encoded rule runs ``runs`` to a timeline row, and return whether that was possible.

    It is not possible if the row belongs to another block of rule runs, or already includes one of ``runs``.
    """
    if row[0] >> RUNS_A_ROW != runs >> RUNS_A_ROW or row[0] & runs & BITS:
        return False
    row[0] |= runs
    return True


_CAUGHT_UP_AT = {"on_arrival": ["arrival"], "on_recorded": ["handled", "processed"], "on_completed": ["completed"]}
"""For each rule function that may set a follower's last-caught-up time, the values of ``Rule.caught_up_by`` of the
rules that do so in this function."""


def caught_up_times(instant: str) -> Callable[..., Any]:
    """Return a compiled function that returns whether a last-caught-up time must be written to the timeline.

    ``instant`` names the rule function that may have set that time, such as ``on_read``. No row is needed if the
    follower was caught up by a fetch from the log end, because `replica_timeline.sql` derives that time from the log of
    fetches, once for all rules.
    """
    times = _CAUGHT_UP_AT.get(instant, [])
    follows = rule_bits(rule.caught_up_by in times for rule in RULES)
    handled = rule_bits(rule.caught_up_by == "handled" for rule in RULES)
    else_by = f"{(times or ['handled'])[-1]}_us"

    @inlined
    def has_to_say_so(code, follower, leader, fetch, now_us):
        """Whether a follower's last-caught-up time differs from the one that the log of fetches shows."""
        if follows >> code & 1 == 0:
            return False
        at_end = fetch.error_code == 0 and follower.log_end_offset == leader.log_end_offset
        if at_end and follower.shown_at_us != now_us:  # a row of this instant has the complete state
            at_us = fetch.handled_us if handled >> code & 1 else fetch[else_by]
            follower.followed_caught_up_time_ms = max(follower.followed_caught_up_time_ms, at_us // 1000)
        return follower.followed_caught_up_time_ms != follower.last_caught_up_time_ms

    return has_to_say_so


@inlined
def show_follower_in_timeline(out, since, p, now_us, follower, leader, term):
    """Write a timeline row for follower ``p`` if its state differs from its last row.

    The row is needed if the log end or the membership changed, or, while the follower is behind, its last-caught-up
    time. It is also needed if the follower was caught up other than by a fetch from the log end. In a log without
    offsets, it is also needed if the lag changed, because only the row shows then whether the follower is behind.

    ``since`` is the index of the first row in ``out.replica`` with the time ``now_us``. If a row from there on has the
    same state, the rule run is added to it instead.
    """
    behind = follower.log_end_offset != leader.log_end_offset
    lag = leader.log_end_offset - follower.log_end_offset
    if (
        follower.log_end_offset == follower.shown_log_end_offset
        and follower.in_isr == follower.shown_in_isr
        and not (behind and follower.last_caught_up_time_ms != follower.shown_last_caught_up_time_ms)
        and follower.last_caught_up_time_ms == follower.followed_caught_up_time_ms
        and (term.offsets_known != 0 or lag == follower.shown_lag_messages)
    ):
        return
    follower.shown_log_end_offset = follower.log_end_offset
    follower.shown_in_isr = follower.in_isr
    follower.shown_last_caught_up_time_ms = follower.last_caught_up_time_ms
    follower.followed_caught_up_time_ms = follower.last_caught_up_time_ms
    follower.shown_at_us = now_us
    rows, filled = out.replica, out.filled[0]
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
    if term.shown_at_us != now_us:
        term.shown_at_us, term.shown_then = now_us, 0
    row = rows[filled]
    out.filled[0] += 1
    row[0] = leader.runs
    row[1] = p
    row[2] = now_us
    row[3] = follower.log_end_offset
    row[4] = term.shown_then
    term.shown_then += 1
    row[5] = lag
    row[6] = follower.last_caught_up_time_ms
    row[7] = follower.in_isr


@inlined
def show_leader_in_timeline(rows, filled, since, now_us, leader):
    """Write a row of the partition timeline with ``leader``'s state, or add its rule runs to a row with this state.

    ``since`` is the index of the first row with the time ``now_us``. Only rows from there on are searched.
    """
    for i in range(filled[1] - 1, max(since, filled[1] - LOOK_BACK) - 1, -1):
        if (
            rows[i, 2] == leader.log_end_offset
            and rows[i, 3] == leader.high_watermark
            and rows[i, 4] == leader.isr
            and rows[i, 5] == leader.acknowledged_offset
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
    row[5] = leader.acknowledged_offset
