"""Records of int64 that the replay reads, keeps and writes, named as in Kafka.

Times that order events are microseconds since the epoch (``*_us``). Times that Kafka itself keeps and compares are
milliseconds (``*_ms``), truncated from the microseconds, as a broker's clock would return them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

NEVER_US = np.int64(2**62)
"""Later than any event."""
NOT_DUE = NEVER_US
"""Due time of a fetch with no instant to come: later than any instant of another one."""
LONG_AGO = np.int64(-(2**62))
"""Earlier than any event."""
UNKNOWN = np.int64(-1)
"""An unknown offset or time; Kafka's own value for a follower that has not fetched."""

SENT_FROM_UNKNOWN = np.int64(-2)
"""Error code of a fetch whose offset no line names, and that was answered with records: its follower was behind."""

AT_LOG_END = np.int64(-2)
"""Log end of a follower at the start of a term: the leader's log end, whose offset no line names."""
BEHIND = np.int64(-3)
"""Log end of a follower at the start of a term: below the leader's, since a line shows it outside the ISR."""

# Kinds of input rows. At equal times they are replayed in this order. The first two carry a leader's
# term for the adapter (udfs.batches.replay), the last one a parameter: these never reach the kernel.
GOES_ON, TERM_STARTS = np.int64(-2), np.int64(-1)
SILENCE, CHECK, REMOVED, ELIGIBLE, APPEND, FETCH, ISR_WRITE, IDLE, THIN, MIN_ISR = np.arange(10)


NOBODY_WAITS = np.int64(-2)
"""Acks of an append that no request in the log made: it was seen by its effects."""


NO_LINE, OWN_LINE, OTHERS_LINE, ABSENT_LINE = np.int64(0), UNKNOWN, np.int64(-2), np.int64(-3)
"""Sources for the time of a check, and codes of CHECK rows: a line about this partition; a line about another partition
of the leader, so that this one was checked at about that time; or the absence of a line, although the check would have
dropped a follower when it was due, so that it ran later."""


class Rows(NamedTuple):
    """Rows that the kernel reads: a stretch of one leader's term, in order of ``time_us``, then ``kind``.

    Every array is int64 of shape (rows,). The meaning of a column depends on the kind:

    ========= =================== ============================== =============== ===================
    kind      time_us             replica_id                     offset          code
    ========= =================== ============================== =============== ===================
    SILENCE   leader falls silent                                                until_us: its end
    CHECK     check was due                                       OWN_LINE, ...   until_us: it ran
    REMOVED   controller's word   replica taken out of the ISR
    ELIGIBLE  controller's word   replica that may (not) join                    1 may join, 0 not
    APPEND    log end moved                                      log end offset  acks
    FETCH     request arrived     follower                       fetch offset    Kafka error code
    ISR_WRITE the leader asked                                                   until_us: the answer
    IDLE      last fetch of all                                                  until_us: the next
    THIN      from then on      follower                         its cadence     until_us: as long
    ========= =================== ============================== =============== ===================

    For a check, the offset is the log end that its line names, or UNKNOWN, and the replica is the one that it dropped.
    The offset of a fetch is UNKNOWN where no line names it: a session that began before the log, in which the partition
    was never listed. With an answer without records the follower was at the leader's log end, unless it was BEHIND when
    the log began (a throttled one gets no records), and stays where it was until its offset is named. With records
    (code SENT_FROM_UNKNOWN) it was behind by an unknown number of records.

    IDLE: no follower fetched from the leader, for an unknown reason. THIN: the log has too few fetches of the follower,
    one per cadence in microseconds, to decide for every lag time whether it stopped.
    """

    time_us: Int64Array
    kind: Int64Array
    replica_id: Int64Array
    offset: Int64Array
    code: Int64Array
    leader_log_end_offset: Int64Array
    """FETCH: leader's log end offset when the fetch was handled if the log says so, else UNKNOWN."""
    handled_us: Int64Array
    """FETCH: an io thread took the request and read: Kafka's fetch time, and the leader's log end then."""
    processed_us: Int64Array
    """FETCH: local work done: the follower's new state can be seen."""
    released_us: Int64Array
    """FETCH: end of the wait for data that the follower asked for."""
    until_us: Int64Array
    """FETCH: response sent. SILENCE, CHECK, ISR_WRITE, IDLE, THIN: as above."""


ROW_ORDER = (
    "time_us", "kind", "handled_us", "replica_id", "offset", "code", "leader_log_end_offset", "processed_us",
    "released_us", "until_us",
)  # fmt: skip
"""Sort order of the rows of a set. Columns after ``kind`` only make the order of equal times deterministic."""


def int64_record(*names: str) -> np.dtype[np.void]:
    """Make a type of records of int64 fields."""
    return np.dtype([(name, np.int64) for name in names], align=True)


FOLLOWER = int64_record(
    "log_end_offset",  # last recorded fetch offset
    "last_caught_up_time_ms",
    "last_fetch_time_ms",
    "last_fetch_leader_log_end_offset",
    "in_isr",  # committed ISR
    "in_maximal_isr",  # and with a pending expansion, before it is committed
    "eligible",  # the controller would let it join
    "pending_fetch",  # KIP-501: its latest fetch keeps it in sync until it is answered
    "acknowledged_at_read",  # KAFKA-10853: what was acknowledged when its latest fetch was read
    "fetch_gaps",  # phi-accrual: number of remembered gaps between its fetches
    "fetch_gaps_ms",  # and this is their sum
    # as last written to the timeline
    "shown_log_end_offset",
    "shown_lag_messages",
    "shown_last_caught_up_time_ms",
    "shown_in_isr",
    "shown_at_us",
    "followed_caught_up_time_ms",  # what its row, and the fetches since then that found it at the log end, come to
)
"""A follower in the eyes of one rule."""

LEADER = int64_record(
    "log_end_offset",
    "high_watermark",
    "leader_epoch_start_offset",
    "isr",  # bit p set: the replica at position p of the assignment is in the committed ISR
    "isr_size",
    "replicas",  # size of the assignment
    "acknowledged_offset",  # end of the last append with acks 0 or 1: acknowledged at once
    "health_multiplier",  # leader-health: 0 when all goes well
    "last_append_time_ms",
    "last_isr_change_time_ms",
    "last_isr_write_time_ms",  # of this leader's own; LONG_AGO: none in this term
    "pending_isr",  # what the ISR becomes when the write in flight is answered
    "commit_us",  # when that is; NEVER_US: nothing in flight
    "epoch_start_us",  # of the term, or of the epoch that the rule began by giving up leadership
    "give_up_us",  # when the rule gives up leadership; NEVER_US: no fetch takes that long
    "check_due_us",  # next run of isr-expiration by its schedule
    "check_us",  # and when it really runs (later when the leader was stopped)
    "check_logged",  # source for the time of the next check: NO_LINE, OWN_LINE, OTHERS_LINE, ABSENT_LINE
    # with which other runs it shares its state (udfs.kernel.shared_runs)
    "runs",  # as encoded in rows of the timelines: the run; of a group, the runs that go along with it
    "group",  # its place; NO_GROUP: none
    "along",  # 1: goes along with its group; of a group, how many do
    "shown_log_end_offset",
    "shown_high_watermark",
    "shown_acknowledged_offset",
    "shown_isr",
    "shown_isr_size",
)
"""The leader's view of the partition under one rule."""

FETCH_STATE = int64_record(
    "replica_id",
    "held_at_start",  # its log end at the start of a term that begins in mid-term; UNKNOWN: no line shows it
    "stage",  # of its latest fetch: NO_FETCH, ARRIVED, READ, RECORDED, COMPLETED
    "arrival_us",
    "handled_us",
    "processed_us",
    "released_us",
    "completed_us",
    "fetch_offset",
    "error_code",
    "leader_log_end_offset",  # at handled_us
    "log_end_offset",  # the follower's true log end
    "read_us",  # when its latest fetch was read
    "held_at_read_us",  # what held_us, silent_us and idle_us were then
    "silent_at_read_us",
    "idle_at_read_us",
    "previous_leader_log_end_offset",  # at the follower's previous fetch that counted
    "previous_read_us",
    "held_at_previous_read_us",
    "silent_at_previous_read_us",
    "idle_at_previous_read_us",
    "last_arrival_us",
    "missing_since_us",  # append of the first record that it lacks; NEVER_US if it lacks none
    "caught_us",  # when it last lacked nothing, or read a log end that it has reached since
    "since_us",  # the earlier of caught_us and its last arrival: from here on it has something to explain
    "held_us",  # since then: its fetches inside the leader
    "silent_us",  # since then: leader silent while no fetch was inside
    "idle_us",  # since then: no fetches from the leader, for a reason that neither of these shows
    "settled_us",  # these three are summed up to here
    "held_at_caught_us",  # what they were at caught_us
    "silent_at_caught_us",
    "idle_at_caught_us",
    "cadence_us",  # nearly every gap between its fetches is shorter; valid until thin_until_us
    "thin_until_us",
    "due",  # its next instant: twice its us, and one more where timers of rules go first; NOT_DUE: none
    # of all rule runs together
    "outsider_in",  # number of rule runs that have it outside the ISR
    "doubt_until_us",  # no fetch that arrived later may have come before a check that dropped it
    "is_back",  # 0: no fetch was recorded since it came back, under some run, to the ISR of a starved leader
    "named_us",  # the last check whose line says that the leader dropped it
    "quiet",  # each judges it, and none has looked for a miss since it was last caught up
)
"""State of a follower that does not depend on a rule: its latest fetch, and the records that it lacks."""

NO_FETCH, ARRIVED, READ, RECORDED, COMPLETED = np.arange(5)

TERM = int64_record(
    "leader",  # position of the leader in the assignment
    "replicas",
    "start_us",
    "end_us",
    "begins_mid_term",  # 1: it began before start_us, and its state then is inferred from the log
    "ends_mid_term",  # 1: it went on after end_us, or that is unknown: requests in flight then are not in the log
    "phase_unknown",  # 1: the log does not show when the periodic check is due
    "isr_inferred",  # 1: no line shows the ISR at start_us
    "held_unknown",  # 1: the log names one instant of each fetch, so that how long the leader had it is not known
    "offsets_known",  # 0: nothing in the log names an offset, and the log end counts from 0 in their place
    "start_offset",
    "log_end_offset",
    "silent_from_us",
    "silent_until_us",
    "idle_from_us",
    "idle_until_us",
    "awaited_offset",  # a check whose line shows this log end waits for it, as far as the line's timestamp lets it
    "awaited_until_us",
    "write_asked_us",  # the last ISR write that has lines for its request and its answer
    "write_answered_us",
    "late_us",  # how long the leader took lately to record a fetch, or to send its answer, at the most
    "late_at_us",  # when it had done so
    "day_ends_us",  # midnight at which the open pages of the ledger are closed
    "miss_due_us",  # no miss is to be looked for before
    "rules_due_us",  # no timer of a rule run is due before
    "runs",
    "active",  # slots that are replayed separately: runs, and groups of them
    "rules",  # bit c set: a run has the rule of code c
    "least_lag_time_ms",  # of all rule runs
    "highest_high_watermark",
    "runs_at_risk",  # runs with a member of the ISR below the high watermark
    "shown_at_us",  # when a follower was last written to the timeline, and the number of rows of this instant
    "shown_then",
    "row",  # number of rows of this stretch that are already replayed
    "ignored",  # rows of replicas outside the assignment, or after the end of the term
)
"""The term as a whole."""


QUIET = int64_record(
    "first_row",  # of the rows that need no replay
    "end_row",
    "from_us",  # time of the first, and of the one after the last: what is due by then has happened
    "until_us",
    "log_end_at_first",
    "log_end_at_end",
    "appends",  # that moved the log end
    "first_append_us",  # the first of them; 0: none
    "last_append_us",
    "acknowledged_offset",  # end of the last append with acks 0 or 1; 0: none
    "longest_behind_us",  # since a follower was at the log end when its fetch was read, at the most
    "most_behind_messages",  # that the leader knew a follower to lack
    "longest_catch_up_ms",  # that a follower would have needed at its pace, by KIP-16's estimate
    "longest_held_us",  # a fetch in the leader's hands, without the wait for data
    "longest_fetch_us",  # and with it
    "latest_peak_us",  # the latest that the leader was with a fetch (``udfs.kernel.doubts``), and when that was
    "latest_peak_at_us",
    "late_us",  # TERM's at the end
    "late_at_us",
    "stalled_us",  # high watermark below the log end, if recorded fetches move it
    "stalled_by_arrival_us",  # or if the arrival of fetches does
    "longest_ack_us",
    "longest_ack_by_arrival_us",
)
"""A quiet stretch of a segment (``udfs.kernel.quiet``). At both ends each follower's latest fetch is recorded and
from the log end, and the one before it was from there as well, or from the log end that the one before had found."""


class KernelOutput(NamedTuple):
    """Rows that the kernel writes, int64 of shape (capacity, columns); ``filled`` says how many of each are in use."""

    replica: Int64Array
    partition: Int64Array
    change: Int64Array
    score: Int64Array
    follower_score: Int64Array
    filled: Int64Array
    latency: Int64Array
    """For each score, acknowledged appends by bucket of latency (``kernel.ack_latency``), shape (scores, BUCKETS)."""


RUNS_A_ROW = np.int64(48)
"""Rule runs that one row of a timeline can stand for."""
REPLICA_COLUMNS = (
    "runs", "position", "time_us", "follower_log_end_offset", "nth", "lag_messages", "last_caught_up_time_ms",
    "in_isr",
)  # fmt: skip
PARTITION_COLUMNS = ("runs", "time_us", "leader_log_end_offset", "high_watermark", "isr", "acknowledged_offset")
"""``runs``: of its RUNS_A_ROW lower bits, b is set where run ``(runs >> RUNS_A_ROW) * RUNS_A_ROW + b`` has the row."""
CHANGE_COLUMNS = (
    "rule", "time_us", "kind", "position", "isr_before", "isr_after", "high_watermark", "leader_log_end_offset",
    "follower_log_end_offset", "last_caught_up_time_ms", "lag_ms", "made_by", "true_lag_ms", "causes",
    "leader_held_ms", "leader_silent_ms", "time_error_ms", "depends_on",
)  # fmt: skip

VIOLATIONS = (
    "high_watermark_decreases",
    "members_below_high_watermark",
    "passed_within_lag_time",
    "leader_outside_isr",
    "isr_outside_assignment",
)
"""Promises that a rule should keep."""
MEASURES = (
    "exposure_us",
    "under_min_isr_us",
    "at_min_isr_us",
    "leader_alone_us",
    "under_replicated_us",
    "high_watermark_stalled_us",
    "loss_exposed_us",
    "loss_records_max",
    "isr_writes",
    "refused_appends",
    "acknowledged_appends",
    "never_acknowledged",
    "acks_all_latency_max_us",
    *VIOLATIONS,
    "first_violation_us",
    "first_violation",
)
SCORE_COLUMNS = ("rule", "day", *MEASURES)
"""``day`` counts from 1970-01-01; ``first_violation`` is a position in VIOLATIONS, or -1."""
FOLLOWER_MEASURES = ("judged_us", "agreed_us", "misses", "agreed_by_blame_us", "early")
FOLLOWER_SCORE_COLUMNS = ("rule", "position", "day", *FOLLOWER_MEASURES)

FOLLOWERS_A_SCORE = 16
BUCKETS = 528
"""Number of latency buckets: enough for 19 hours; longer latencies fall into the last one."""

SHRINK, EXPAND, RELINQUISH, DOUBT = np.arange(4)
"""DOUBT: what the follower's shrink at this time depends on; see ``udfs.kernel.doubts``."""
BY_RULE, BY_CONTROLLER = np.arange(2)
CHANGE_KINDS = ("shrink", "expand", "relinquish", "doubt")
MADE_BY = ("rule", "controller")


def new_kernel_output(capacity: int, scores: int = 256) -> KernelOutput:
    """Room for ``capacity`` rows of the timelines and changes each, ``scores`` rows, and what followers they have."""
    return KernelOutput(
        np.empty((capacity, len(REPLICA_COLUMNS)), np.int64),
        np.empty((capacity, len(PARTITION_COLUMNS)), np.int64),
        np.empty((capacity, len(CHANGE_COLUMNS)), np.int64),
        np.empty((scores, len(SCORE_COLUMNS)), np.int64),
        np.empty((scores * FOLLOWERS_A_SCORE, len(FOLLOWER_SCORE_COLUMNS)), np.int64),
        np.zeros(5, np.int64),
        np.empty((scores, BUCKETS), np.int64),
    )
