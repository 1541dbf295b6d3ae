"""Find the quiet stretch of a segment: rows without a failed fetch, at whose two ends no follower lacks a record.

The effect of such a stretch is known without a replay, whatever the rule: the log end, the high watermark (the lowest
log end of the followers, as long as all are in the ISR), how long producers with acks=all waited, and each follower's
latest fetch. QUIET holds the extremes of all other values on which a rule may act, for ``Rule.acts_in_quiet``. The
stretch is found once, when a segment is packed; ``udfs.kernel.pass_over`` uses it.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.jit import entry, inlined
from udfs.kernel.ack_latency import latency_bucket
from udfs.kernel.doubts import is_late_no_more
from udfs.kernel.unanswered import note_fetch_in_answer, note_read_for_waits
from udfs.records import (
    APPEND,
    ARRIVED,
    BUCKETS,
    COMPLETED,
    FETCH,
    LONG_AGO,
    NO_FETCH,
    NOBODY_WAITS,
    NOT_DUE,
    QUIET,
    READ,
    RECORDED,
    UNKNOWN,
    Int64Array,
    Rows,
    int64_record,
)

MOST_FOLLOWERS = 15
MOST_WAITING = 2000
"""Maximum number of appends that may wait at the same time in a quiet stretch. With more, a replay might merge some of
them (``udfs.kernel.ack_latency``)."""
BY_RECORD, BY_ARRIVAL = 0, 1
"""Whether the high watermark advances when the leader records a fetch, or, under some rules, already at its arrival."""

_FOLLOWER = int64_record(
    "replica_id", "row", "row_before", "kept_pace", "stage", "due", "arrival_us", "handled_us", "processed_us",
    "released_us", "completed_us", "offset", "log_end", "log_end_before", "known_log_end", "recorded_offset",
    "recorded_at_ms", "strict", "from_end_before", "strict_us", "read_us", "read_log_end", "answer_until_us",
    "shows_until_us", "had_until_us",
)  # fmt: skip
_LEADER = int64_record("log_end", "settled_us", "waits", "appends")
_PACE = int64_record("high_watermark", "acknowledged", "stalled_us", "longest_ack_us")


class QuietStretch(NamedTuple):
    """A quiet stretch of a segment: its bounds, and its effects on the state of a replay."""

    quiet: npt.NDArray[np.void]
    """One record of type QUIET: the bounds, and the largest delays in the stretch."""
    latest: Rows
    """The last two fetches of each follower in the stretch. ``leader_log_end_offset`` is always set."""
    latencies: Int64Array
    """Number of acks=all appends that were acknowledged, per bucket of latency: shape (2, BUCKETS), for BY_RECORD and
    BY_ARRIVAL."""
    appends: Int64Array
    """Log end and time of each append in the stretch that moved the log end: shape (n, 2)."""


class _Walk(NamedTuple):
    """State of a pass over a segment's n followers and its rows, to find the quiet stretch."""

    leader: npt.NDArray[np.void]
    """_LEADER, shape (1,)."""
    paces: npt.NDArray[np.void]
    """_PACE, shape (2,): BY_RECORD and BY_ARRIVAL."""
    followers: npt.NDArray[np.void]
    """_FOLLOWER, shape (n,)."""
    waits: Int64Array
    """Time and log end of each append for which producers wait, shape (rows, 2)."""
    appends: Int64Array
    """Log end and time of each append that moved the log end, shape (3 * rows, 2)."""


def quiet_stretch_of(rows: Rows) -> QuietStretch | None:
    """Return a segment's quiet stretch, from the first to the last row at which no follower lacks a record.

    Parameters
    ----------
    rows : Rows
        Fetches and appends only.

    Returns
    -------
    QuietStretch or None
        None if a fetch failed or its offset is unknown, a log became shorter, there are no fetches, or fewer than two
        rows at which no follower lacks a record.
    """
    replica_ids = np.unique(rows.replica_id[rows.kind == FETCH])
    if not 0 < len(replica_ids) <= MOST_FOLLOWERS:
        return None
    walk = _Walk(
        np.zeros(1, _LEADER), np.zeros(2, _PACE), np.zeros(len(replica_ids), _FOLLOWER),
        np.empty((len(rows.time_us), 2), np.int64), np.empty((3 * len(rows.time_us), 2), np.int64),
    )  # fmt: skip
    quiet, latencies = np.zeros(1, QUIET), np.zeros((2, BUCKETS), np.int64)
    quiet["first_row"] = quiet["end_row"] = -1
    walk.followers["replica_id"] = replica_ids
    if not walk_through_segment(walk, rows, quiet, latencies) or quiet["end_row"][0] <= quiet["first_row"][0]:
        return None
    if not walk_through_segment(walk, rows, quiet, latencies):
        return None
    followers, appends = walk.followers, walk.appends[: int(quiet["appends"][0])]
    places = np.concatenate([followers["row_before"], followers["row"]])
    found = np.concatenate([followers["log_end_before"], followers["log_end"]])
    latest = Rows(*(column[places] for column in rows))._replace(leader_log_end_offset=found)
    return QuietStretch(quiet, latest, latencies, appends)


@entry
def walk_through_segment(walk, rows, quiet, latencies):
    """Find the bounds of the quiet stretch, or, in a second call, sum up its effects.

    The first call, with ``quiet[0].first_row`` < 0, sets ``first_row`` and ``end_row``: the first and the last row at
    which no follower lacks a record. The second call fills the other fields of ``quiet``, ``latencies`` and
    ``walk.appends``. Returns False if the segment has no quiet stretch, for example because a fetch failed.
    """
    quiet = quiet[0]
    summing = quiet.first_row >= 0
    _begin_quiet_walk(walk, quiet)
    for i in range(len(rows.time_us)):
        now_us = rows.time_us[i]
        if not _walk_quiet_to(walk, now_us, quiet, latencies):
            return False
        if summing and i == quiet.end_row:
            _end_quiet(walk, now_us, quiet)
            return True
        if _all_is_held_in_quiet(walk):
            if not summing:
                quiet.first_row = i if quiet.first_row < 0 else quiet.first_row
                quiet.end_row = i
            elif i == quiet.first_row:
                _begin_quiet_sums(walk, now_us, quiet, latencies)
        if rows.kind[i] == APPEND:
            regular = _walk_quiet_append(walk, rows.offset[i], rows.code[i], now_us, quiet, latencies)
        else:
            regular = rows.kind[i] == FETCH and _walk_quiet_fetch(walk, rows, i, quiet, latencies)
        if not regular:
            return False
    return not summing


@inlined
def _begin_quiet_walk(walk, quiet):
    leader = walk.leader[0]
    quiet.longest_held_us = quiet.longest_fetch_us = 0
    leader.log_end = UNKNOWN
    leader.settled_us = leader.waits = leader.appends = 0
    for way in range(2):
        walk.paces[way].high_watermark = UNKNOWN
        walk.paces[way].acknowledged = 0
    for p in range(len(walk.followers)):
        follower = walk.followers[p]
        follower.stage = NO_FETCH
        follower.due = NOT_DUE
        follower.offset = follower.recorded_offset = follower.known_log_end = follower.recorded_at_ms = UNKNOWN
        follower.row = follower.row_before = UNKNOWN
        follower.kept_pace = 0
        follower.strict = follower.from_end_before = 0
        follower.strict_us = follower.read_us = follower.read_log_end = LONG_AGO
        follower.answer_until_us = follower.shows_until_us = follower.had_until_us = LONG_AGO


@inlined
def _all_is_held_in_quiet(walk):
    """Whether each follower's latest fetch is recorded and from the log end, and its previous fetch kept pace."""
    for p in range(len(walk.followers)):
        follower = walk.followers[p]
        if follower.row_before < 0 or follower.kept_pace == 0:
            return False
        if follower.stage < RECORDED or follower.recorded_offset != walk.leader[0].log_end:
            return False
    return True


@inlined
def _begin_quiet_sums(walk, now_us, quiet, latencies):
    """Reset the sums at ``now_us``, the beginning of the quiet stretch."""
    leader = walk.leader[0]
    quiet.from_us = now_us
    quiet.log_end_at_first = leader.log_end
    quiet.first_append_us = quiet.last_append_us = quiet.acknowledged_offset = 0
    quiet.longest_behind_us = quiet.most_behind_messages = quiet.longest_catch_up_ms = quiet.longest_wait_us = 0
    quiet.latest_peak_us = quiet.late_us = UNKNOWN
    quiet.late_at_us = quiet.latest_peak_at_us = LONG_AGO
    leader.settled_us = now_us
    leader.appends = 0
    latencies[:] = 0
    for way in range(2):
        walk.paces[way].stalled_us = walk.paces[way].longest_ack_us = 0


@inlined
def _end_quiet(walk, now_us, quiet):
    """Complete the sums at ``now_us``, the end of the quiet stretch."""
    _settle_quiet_stalls(walk, now_us)
    quiet.until_us = now_us
    quiet.log_end_at_end = walk.leader[0].log_end
    quiet.appends = walk.leader[0].appends
    quiet.stalled_us = walk.paces[BY_RECORD].stalled_us
    quiet.stalled_by_arrival_us = walk.paces[BY_ARRIVAL].stalled_us
    quiet.longest_ack_us = walk.paces[BY_RECORD].longest_ack_us
    quiet.longest_ack_by_arrival_us = walk.paces[BY_ARRIVAL].longest_ack_us
    for p in range(len(walk.followers)):
        quiet.longest_behind_us = max(quiet.longest_behind_us, now_us - walk.followers[p].strict_us)
        quiet.longest_wait_us = max(quiet.longest_wait_us, now_us - walk.followers[p].had_until_us)


@inlined
def _settle_quiet_stalls(walk, now_us):
    """Add the time up to ``now_us`` for which each of the two high watermarks was below the log end."""
    leader = walk.leader[0]
    for way in range(2):
        if walk.paces[way].high_watermark < leader.log_end:
            walk.paces[way].stalled_us += now_us - leader.settled_us
    leader.settled_us = now_us


@inlined
def _advance_quiet_high_watermarks(walk, now_us, latencies):
    """Advance both high watermarks to the lowest log end, one by recorded fetches and one by arrived fetches."""
    leader = walk.leader[0]
    for way in range(2):
        pace, least = walk.paces[way], leader.log_end
        for p in range(len(walk.followers)):
            held = walk.followers[p].recorded_offset if way == BY_RECORD else walk.followers[p].offset
            least = min(least, held)
        if least > pace.high_watermark:
            pace.high_watermark = least
            _acknowledge_in_quiet(walk, way, now_us, latencies)


@inlined
def _acknowledge_in_quiet(walk, way, now_us, latencies):
    """Count the acks=all appends that a high watermark has reached, by latency; ``way`` is BY_RECORD or BY_ARRIVAL."""
    pace = walk.paces[way]
    while pace.acknowledged < walk.leader[0].waits and walk.waits[pace.acknowledged, 1] <= pace.high_watermark:
        latency_us = now_us - walk.waits[pace.acknowledged, 0]
        latencies[way, latency_bucket(latency_us)] += 1
        pace.longest_ack_us = max(pace.longest_ack_us, latency_us)
        pace.acknowledged += 1


@inlined
def _walk_quiet_append(walk, log_end_offset, acks, now_us, quiet, latencies):
    """Process an append. Return False if the segment has no quiet stretch because too many appends wait."""
    leader = walk.leader[0]
    if acks == UNKNOWN:  # -1 is acks=all
        i = leader.waits
        walk.waits[i, 0] = now_us
        walk.waits[i, 1] = log_end_offset if i == 0 else max(log_end_offset, walk.waits[i - 1, 1])
        leader.waits += 1
        for way in range(2):
            _acknowledge_in_quiet(walk, way, now_us, latencies)
    elif acks != NOBODY_WAITS:
        quiet.acknowledged_offset = max(quiet.acknowledged_offset, log_end_offset)
    if log_end_offset > leader.log_end:
        _settle_quiet_stalls(walk, now_us)
        leader.log_end = log_end_offset
        walk.appends[leader.appends, 0] = log_end_offset
        walk.appends[leader.appends, 1] = now_us
        leader.appends += 1
        quiet.last_append_us = now_us
        if quiet.first_append_us == 0:
            quiet.first_append_us = now_us
        for p in range(len(walk.followers)):
            behind = log_end_offset - walk.followers[p].recorded_offset
            quiet.most_behind_messages = max(quiet.most_behind_messages, behind)
        _advance_quiet_high_watermarks(walk, now_us, latencies)
    waiting = leader.waits - min(walk.paces[BY_RECORD].acknowledged, walk.paces[BY_ARRIVAL].acknowledged)
    return waiting <= MOST_WAITING


@inlined
def _walk_quiet_fetch(walk, rows, i, quiet, latencies):
    """Process the arrival of a fetch. Return False if the segment has no quiet stretch because of this fetch."""
    now_us, offset = rows.time_us[i], rows.offset[i]
    p = 0
    while walk.followers[p].replica_id != rows.replica_id[i]:
        p += 1
    follower = walk.followers[p]
    # If a follower has two connections, its previous fetch is completed before this one is processed.
    follower.completed_us = min(follower.completed_us, now_us)
    for stage in range(READ, COMPLETED + 1):
        if ARRIVED <= follower.stage < stage:
            if not _enter_stage_in_quiet(walk, follower, stage, now_us, quiet, latencies):
                return False
    if rows.code[i] != 0 or offset < max(follower.offset, 0):
        return False
    if not now_us <= rows.handled_us[i] <= rows.processed_us[i] <= rows.until_us[i]:
        return False
    if offset > walk.leader[0].log_end and not _walk_quiet_append(walk, offset, NOBODY_WAITS, now_us, quiet, latencies):
        return False
    if follower.stage != NO_FETCH:
        note_fetch_in_answer(follower)
    follower.arrival_us = now_us
    follower.handled_us = rows.handled_us[i]
    follower.processed_us = rows.processed_us[i]
    follower.released_us = rows.released_us[i]
    follower.completed_us = rows.until_us[i]
    follower.stage = ARRIVED
    follower.due = 2 * follower.handled_us + 1
    follower.log_end_before = follower.log_end
    follower.log_end = rows.leader_log_end_offset[i]
    follower.row_before = follower.row
    follower.kept_pace = follower.strict != 0 or follower.from_end_before != 0
    follower.row = i
    held_us = follower.processed_us - now_us + max(0, follower.completed_us - follower.released_us)
    quiet.longest_held_us = max(quiet.longest_held_us, held_us)
    quiet.longest_fetch_us = max(quiet.longest_fetch_us, follower.completed_us - now_us)
    if offset > follower.offset:
        _settle_quiet_stalls(walk, now_us)
        follower.offset = offset
        _advance_quiet_high_watermarks(walk, now_us, latencies)
    return True


@inlined
def _walk_quiet_to(walk, until_us, quiet, latencies):
    """Process later instants of fetches up to ``until_us``, in chronological order.

    At equal times, responses come first. Return False if the segment has no quiet stretch because of one of them.
    """
    while True:
        due, which = NOT_DUE, 0
        for p in range(len(walk.followers)):
            if walk.followers[p].due < due:
                due, which = walk.followers[p].due, p
        if due >> 1 > until_us:
            return True
        follower = walk.followers[which]
        if not _enter_stage_in_quiet(walk, follower, follower.stage + 1, due >> 1, quiet, latencies):
            return False


@inlined
def _enter_stage_in_quiet(walk, follower, stage, now_us, quiet, latencies):
    """Move a fetch to ``stage``. Return False if the segment has no quiet stretch because of this fetch."""
    leader = walk.leader[0]
    follower.stage = stage
    if stage == READ:
        follower.due = 2 * follower.processed_us + 1
        if follower.log_end > leader.log_end and not _walk_quiet_append(
            walk, follower.log_end, NOBODY_WAITS, now_us, quiet, latencies
        ):
            return False
        if follower.log_end < 0:
            follower.log_end = leader.log_end
        follower.strict = follower.offset >= leader.log_end
        follower.from_end_before = 0 <= follower.known_log_end <= follower.offset
        note_read_for_waits(follower, leader.log_end, now_us)
        return follower.log_end >= follower.known_log_end
    if stage == COMPLETED:
        follower.due = NOT_DUE
        _note_quiet_lateness(quiet, follower.completed_us - follower.released_us, now_us)
        return True
    follower.due = 2 * follower.completed_us
    _note_quiet_lateness(quiet, follower.processed_us - follower.arrival_us, now_us)
    _record_in_quiet(follower, now_us, quiet)
    if follower.offset > follower.recorded_offset:
        _settle_quiet_stalls(walk, now_us)
        follower.recorded_offset = follower.offset
        _advance_quiet_high_watermarks(walk, now_us, latencies)
    return True


@inlined
def _record_in_quiet(follower, now_us, quiet):
    """Called when a fetch is recorded. Update the longest time for which a follower was behind or would catch up."""
    quiet.longest_wait_us = max(quiet.longest_wait_us, now_us - follower.had_until_us)
    follower.had_until_us = follower.shows_until_us
    handled_ms = follower.handled_us // 1000
    behind, moved = follower.log_end - follower.offset, follower.offset - follower.recorded_offset
    if behind > 0 and moved > 0 and follower.recorded_at_ms != UNKNOWN:
        estimate_ms = behind / moved * max(0, handled_ms - follower.recorded_at_ms)
        quiet.longest_catch_up_ms = max(quiet.longest_catch_up_ms, np.int64(estimate_ms) + 1)
    follower.recorded_at_ms = handled_ms
    follower.known_log_end = follower.log_end
    if follower.strict != 0:
        quiet.longest_behind_us = max(quiet.longest_behind_us, now_us - follower.strict_us)
        follower.strict_us = min(follower.handled_us, now_us)


@inlined
def _note_quiet_lateness(quiet, late_us, now_us):
    """Store the leader's delay ``late_us`` if it is the largest in the stretch, or the largest recent one."""
    if late_us >= quiet.latest_peak_us:
        quiet.latest_peak_us = late_us
        quiet.latest_peak_at_us = now_us
    if late_us >= quiet.late_us or is_late_no_more(quiet.late_at_us, now_us):
        quiet.late_us = late_us
        quiet.late_at_us = now_us
