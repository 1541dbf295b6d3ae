"""Types of the int64 records that the replay reads, keeps and writes. Values that Kafka has too have Kafka's names.

Times that order events are microseconds since the epoch (``*_us``). Times that Kafka itself keeps and compares are
milliseconds (``*_ms``), truncated from the microseconds, as a broker's clock would return them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

NEVER_US = np.int64(2**62)
"""A time later than any event."""
NOT_DUE = NEVER_US
"""Value of ``FETCH_STATE.due`` for a fetch that is processed up to its response. It is later than any real due time."""
LONG_AGO = np.int64(-(2**62))
"""A time earlier than any event."""
UNKNOWN = np.int64(-1)
"""An unknown offset or time; Kafka's own value for a follower that has not fetched."""

SENT_FROM_UNKNOWN = np.int64(-2)
"""Value of ``code`` for a fetch whose offset no log line names, but whose response contained records. So the follower
was behind the leader by an unknown number of records."""

AT_LOG_END = np.int64(-2)
"""Stands for a follower's log end at the start of a term if it equals the leader's and no log line names the offset."""
BEHIND = np.int64(-3)
"""Stands for a follower's log end at the start of a term if it is below the leader's by an unknown number of records,
because the follower was outside the ISR."""

# Kinds of input rows, in the order in which rows of equal times are replayed. GOES_ON and TERM_STARTS rows describe a
# leader's term, and MIN_ISR rows change a parameter. udfs.batches.replay handles them; the kernel never sees them.
GOES_ON, TERM_STARTS = np.int64(-2), np.int64(-1)
SILENCE, CHECK, REMOVED, ELIGIBLE, APPEND, FETCH, ISR_WRITE, IDLE, THIN, MIN_ISR = np.arange(10)


NOBODY_WAITS = np.int64(-2)
"""Value of acks for an append whose produce request is not logged. The append is known only because the log grew, and
no producer waits for it."""


NO_LINE, OWN_LINE, OTHERS_LINE, ABSENT_LINE = np.int64(0), UNKNOWN, np.int64(-2), np.int64(-3)
"""Where the time of a check comes from (``code`` of a CHECK row, and ``check_logged`` of LEADER). NO_LINE: the schedule
of checks. OWN_LINE: a log line about this partition. OTHERS_LINE: a log line about another partition of the leader,
because this one was checked at about the same time. ABSENT_LINE: no log line shows a shrink when the check was due,
although a check at that time would have dropped a follower; so the check ran later."""


class Rows(NamedTuple):
    """Rows that the kernel reads: consecutive rows of one leader's term, in order of ``time_us``, then ``kind``.

    Every array is int64 of shape (rows,). The meaning of a column depends on the kind:

    ========= =================== ============================== =============== ===================
    kind      time_us             replica_id                     offset          code
    ========= =================== ============================== =============== ===================
    SILENCE   leader falls silent                                                until_us: its end
    CHECK     check was due                                       OWN_LINE, ...   until_us: it ran
    REMOVED   controller removes  replica that left the ISR
    ELIGIBLE  controller decides  replica                                        1 may join, 0 not
    APPEND    log end moved                                      log end offset  acks
    FETCH     request arrived     follower                       fetch offset    Kafka error code
    ISR_WRITE leader sent request                                                until_us: response
    IDLE      last fetch of all                                                  until_us: the next
    THIN      sparse log begins   follower                       its cadence     until_us: its end
    ========= =================== ============================== =============== ===================

    CHECK: ``offset`` is the log end that the check's log line names, or UNKNOWN; ``replica_id`` is the follower that
    the check dropped.

    FETCH: ``offset`` is UNKNOWN if no log line names it, because the fetch session began before the log, and no request
    has listed the partition since. If the response to such a fetch had records (code SENT_FROM_UNKNOWN), the follower
    was behind by an unknown number of records. If the response had none, the follower was at the leader's log end, and
    stays there until a line names its offset. Only for a follower that was BEHIND when the log began, such a response
    proves nothing, because a throttled follower gets no records either.

    IDLE: no follower fetched from the leader, for an unknown reason. THIN: the log has only one fetch of the follower
    per cadence (in microseconds), too few to decide for every lag time whether the follower stopped.
    """

    time_us: Int64Array
    kind: Int64Array
    replica_id: Int64Array
    offset: Int64Array
    code: Int64Array
    leader_log_end_offset: Int64Array
    """FETCH: leader's log end offset when the fetch was handled if the log says so, else UNKNOWN."""
    handled_us: Int64Array
    """FETCH: time at which an I/O thread picked up the request from the queue and read the log (Kafka's fetch time)."""
    processed_us: Int64Array
    """FETCH: time at which the leader finished its local work and updated its state of the follower."""
    released_us: Int64Array
    """FETCH: time at which the fetch stopped waiting for data (the end of the long poll)."""
    until_us: Int64Array
    """FETCH: time at which the response was sent. SILENCE, CHECK, ISR_WRITE, IDLE, THIN: see the table."""


ROW_ORDER = (
    "time_us", "kind", "handled_us", "replica_id", "offset", "code", "leader_log_end_offset", "processed_us",
    "released_us", "until_us",
)  # fmt: skip
"""Columns by which the rows of a partition on one leader are sorted. Those after ``kind`` make the order of rows with
equal times and kinds deterministic."""


def int64_record(*names: str) -> np.dtype[np.void]:
    """Return a record type with int64 fields of these names."""
    return np.dtype([(name, np.int64) for name in names], align=True)


FOLLOWER = int64_record(
    "log_end_offset",  # the offset of its last recorded fetch
    "last_caught_up_time_ms",
    "last_fetch_time_ms",
    "last_fetch_leader_log_end_offset",
    "in_isr",  # 1: in the committed ISR
    "in_maximal_isr",  # 1: in the ISR if a pending expansion is included
    "eligible",  # 1: the controller would let it join the ISR
    "pending_fetch",  # KIP-501: 1: its latest fetch keeps it in sync until it is answered
    "acknowledged_at_read",  # KAFKA-10853: end of the acknowledged records when its latest fetch was read
    "fetch_gaps",  # phi-accrual: number of remembered gaps between its fetches
    "fetch_gaps_ms",  # sum of these gaps
    # as last written to the timeline
    "shown_log_end_offset",
    "shown_lag_messages",
    "shown_last_caught_up_time_ms",
    "shown_in_isr",
    "shown_at_us",
    "followed_caught_up_time_ms",  # lastCaughtUpTimeMs as its last row and its later fetches from the log end show it
)
"""A follower's state under one rule run (one rule with one set of parameters)."""

LEADER = int64_record(
    "log_end_offset",
    "high_watermark",
    "leader_epoch_start_offset",
    "isr",  # bit p set: the replica at position p of the assignment is in the committed ISR
    "isr_size",
    "replicas",  # size of the assignment without observers
    "acknowledged_offset",  # log end after the last append with acks 0 or 1, which is acknowledged at once
    "acknowledged_end",  # up to it, acks=all is acknowledged before the high watermark is there; 0: nowhere
    "health_multiplier",  # leader-health: 0 while the leader is healthy
    "last_append_time_ms",
    "last_isr_change_time_ms",
    "last_isr_write_time_ms",  # last ISR write of this leader; LONG_AGO: none in this term
    "pending_isr",  # ISR after the write in flight is answered
    "commit_us",  # when that write is answered; NEVER_US: no write in flight
    "epoch_start_us",  # start of the term, or of the epoch that the rule began by giving up leadership
    "give_up_us",  # when the rule gives up leadership; NEVER_US: no fetch takes that long
    "check_due_us",  # next run of isr-expiration by its schedule
    "check_us",  # when that check runs, which is later if the leader was stopped
    "check_logged",  # source for the time of the next check: NO_LINE, OWN_LINE, OTHERS_LINE, ABSENT_LINE
    # sharing of state with other runs (udfs.kernel.shared_runs)
    "runs",  # for a rule run, the run; for a group, the runs in it; encoded as in rows of the timelines
    "group",  # slot of its group; NO_GROUP: none
    "along",  # for a rule run, 1 if it is in its group; for a group, the number of its runs
    "shown_log_end_offset",
    "shown_high_watermark",
    "shown_acknowledged_offset",
    "shown_acknowledged_end",
    "shown_isr",
    "shown_isr_size",
)
"""The partition's state under one rule run (one rule with one set of parameters), as the leader sees it."""

FETCH_STATE = int64_record(
    "replica_id",
    "held_at_start",  # its log end at the start of a term that begins in mid-term; UNKNOWN: no line shows it
    "stage",  # stage of its latest fetch: NO_FETCH, ARRIVED, READ, RECORDED, COMPLETED
    "arrival_us",
    "handled_us",
    "processed_us",
    "released_us",
    "completed_us",
    "fetch_offset",
    "error_code",
    "leader_log_end_offset",  # leader's log end at handled_us
    "log_end_offset",  # the follower's true log end
    "read_us",  # when its latest fetch was read
    "held_at_read_us",  # held_us, silent_us and idle_us at that time
    "silent_at_read_us",
    "idle_at_read_us",
    "previous_leader_log_end_offset",  # leader's log end at the follower's previous successful fetch
    "previous_read_us",
    "held_at_previous_read_us",
    "silent_at_previous_read_us",
    "idle_at_previous_read_us",
    "last_arrival_us",
    "missing_since_us",  # append of the first record that it lacks; NEVER_US if it lacks none
    "caught_us",  # when it last lacked nothing, or read a log end that it has reached since
    "since_us",  # the earlier of caught_us and its last arrival, from which on delays are summed
    "held_us",  # time since since_us in which a fetch of it was inside the leader
    "silent_us",  # time since since_us in which the leader was silent and had no fetch of it
    "idle_us",  # time since since_us without fetches from the leader, for an unknown reason
    "settled_us",  # the time up to which these three are summed
    "held_at_caught_us",  # values of these three at caught_us
    "silent_at_caught_us",
    "idle_at_caught_us",
    "cadence_us",  # nearly every gap between its fetches is shorter; valid until thin_until_us
    "thin_until_us",
    "answer_until_us",  # records appended until then were in the answer to its last answered fetch, or would have been
    "had_until_us",  # its recorded fetches show that it had what was appended until then (``udfs.kernel.unanswered``)
    "lent_log_end_offset",  # 0, except while a rule is asked about times instead of log ends
    "due",  # its next instant: twice the microseconds, plus one if timers of rules go first; NOT_DUE: none
    # for all rule runs together
    "outsider_in",  # number of rule runs that have it outside the ISR
    "doubt_until_us",  # fetches that arrived later cannot have preceded a check that dropped it
    "is_back",  # 0: no fetch was recorded since its return, under some rule run, to the ISR of a starved leader
    "named_us",  # the last check whose line shows that the leader dropped it
    "quiet",  # 1: all rule runs judge it, and none has searched for a miss since it was last caught up
)
"""The part of a follower's state that is the same under every rule: its latest fetch, and since when it has lacked
records."""

NO_FETCH, ARRIVED, READ, RECORDED, COMPLETED = np.arange(5)

TERM = int64_record(
    "leader",  # position of the leader in the assignment
    "replicas",
    "observers",  # number of followers that never join the ISR; they have the last positions
    "start_us",
    "end_us",
    "begins_mid_term",  # 1: the term began before start_us, and its state at start_us is inferred
    "ends_mid_term",  # 1: the term may continue after end_us, when requests in flight are not in the log
    "phase_unknown",  # 1: the log does not show when the periodic check is due
    "isr_inferred",  # 1: no line shows the ISR at start_us
    "held_unknown",  # 1: the log has one instant per fetch; time in the leader is unknown
    "offsets_known",  # 0: the log names no offset, and the log end is counted from 0 instead
    "start_offset",
    "log_end_offset",
    "silent_from_us",
    "silent_until_us",
    "idle_from_us",
    "idle_until_us",
    "awaited_offset",  # the next check waits for this log end, which its line shows, as long as the timestamp allows
    "awaited_until_us",
    "write_asked_us",  # time of the last ISR write whose request and response are logged
    "write_answered_us",
    "late_us",  # longest recent time that the leader took to record a fetch, or to send its response
    "late_at_us",  # when that delay ended
    "day_ends_us",  # midnight at which the open pages of the ledger are closed
    "miss_due_us",  # before this time, no search for misses is needed
    "rules_due_us",  # before this time, no timer of a rule run is due
    "runs",
    "active",  # number of slots (runs, or groups of runs) that are replayed separately
    "rules",  # bit c set: a rule run has the rule of code c
    "least_lag_time_ms",  # smallest lag time of all rule runs
    "highest_acknowledged",  # offset up to which some rule run acknowledges acks=all
    "runs_at_risk",  # runs with a member of the ISR that lacks records which are acknowledged to acks=all
    "shown_at_us",  # when a follower was last written to the timeline; shown_then: the number of rows of that instant
    "shown_then",
    "row",  # number of given rows that are already replayed
    "ignored",  # number of rows of replicas outside the assignment, or after the end of the term
)
"""The part of a partition's state that is the same under all rules. A term is the time of one leader epoch."""


QUIET = int64_record(
    "first_row",  # index of the first row that need not be replayed; end_row: of the row after the last
    "end_row",
    "from_us",  # time of the first row; until_us: of the row after the last, by which due timers have fired
    "until_us",
    "log_end_at_first",
    "log_end_at_end",
    "appends",  # number of appends that moved the log end
    "first_append_us",  # time of the first such append; 0: none
    "last_append_us",
    "acknowledged_offset",  # end of the last append with acks 0 or 1; 0: none
    "longest_behind_us",  # longest time since a follower was at the log end when its fetch was read
    "most_behind_messages",  # most messages that a follower lacked, as the leader knew
    "longest_catch_up_ms",  # longest time that a follower would need to catch up, by KIP-16's estimate
    "longest_held_us",  # longest time of a fetch in the leader, without the wait for data
    "longest_fetch_us",  # longest time of a fetch in the leader, with the wait
    "latest_peak_us",  # largest delay of the leader with a fetch (``udfs.kernel.doubts``), and its time
    "latest_peak_at_us",
    "late_us",  # late_us of TERM at the end
    "late_at_us",
    "stalled_us",  # time with the high watermark below the log end, if recorded fetches advance it
    "stalled_by_arrival_us",  # the same if the arrival of fetches advances it
    "longest_ack_us",
    "longest_ack_by_arrival_us",
    "longest_wait_us",  # upper bound for the wait of an acks=all request that is sent at any instant
)
"""A quiet stretch of a segment (``udfs.kernel.quiet``). At both ends no follower lacks a record: each follower's latest
fetch is recorded and from the log end. Its fetch before was also from the log end, or from what was the log end when
the fetch before that was read."""


class KernelOutput(NamedTuple):
    """Arrays into which the kernel writes result rows: int64, shape (capacity, columns).

    ``filled`` holds the number of rows written to each of the five arrays before it.
    """

    replica: Int64Array
    partition: Int64Array
    change: Int64Array
    score: Int64Array
    follower_score: Int64Array
    filled: Int64Array
    latency: Int64Array
    """For each row of ``score``: the number of acknowledged acks=all appends per bucket of latency, then the time per
    bucket of waits (``udfs.kernel.unanswered``): (scores, BUCKETS + WAIT_BUCKETS)."""


RUNS_A_ROW = np.int64(48)
"""Maximum number of rule runs with the same state that share one row of a timeline."""
REPLICA_COLUMNS = (
    "runs", "position", "time_us", "follower_log_end_offset", "nth", "lag_messages", "last_caught_up_time_ms",
    "in_isr",
)  # fmt: skip
PARTITION_COLUMNS = ("runs", "time_us", "leader_log_end_offset", "high_watermark", "isr", "acknowledged_offset")
"""Columns of ``partition``. ``runs`` encodes the rule runs that share the row: the upper bits are the number of a block
of rule runs, and bit b of the lower RUNS_A_ROW bits stands for rule run ``block * RUNS_A_ROW + b``."""
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
"""Invariants of Kafka's replication; the ledger counts how often a rule breaks each."""
MEASURES = (
    "exposure_us",
    "under_min_isr_us",
    "at_min_isr_us",
    "leader_alone_us",
    "under_replicated_us",
    "high_watermark_stalled_us",
    "stalled_under_min_isr_us",
    "loss_exposed_us",
    "loss_records_max",
    "isr_writes",
    "refused_appends",
    "acknowledged_appends",
    "never_acknowledged",
    "acks_all_latency_max_us",
    "acks_all_waits_1s_us",
    "acks_all_waits_30s_us",
    "acks_all_waits_1s_silent_us",
    "acks_all_wait_max_us",
    "acks_all_wait_unknown_us",
    "acks_all_unanswered_us",
    "lost_by_heir_max",
    "lost_by_first_active_max",
    "lost_by_longest_log_max",
    *VIOLATIONS,
    "first_violation_us",
    "first_violation",
)
SCORE_COLUMNS = ("rule", "day", *MEASURES)
"""Columns of ``score``. ``day`` is the number of days since 1970-01-01. ``first_violation`` is an index of VIOLATIONS,
or -1 if the rule run has violated no invariant."""
FOLLOWER_MEASURES = ("judged_us", "agreed_us", "misses", "agreed_by_blame_us", "early", "late_in_isr_us")
FOLLOWER_SCORE_COLUMNS = ("rule", "position", "day", *FOLLOWER_MEASURES)

FOLLOWERS_A_SCORE = 16
BUCKETS = 528
"""Number of buckets of a latency histogram. They cover 19 hours; longer latencies are counted in the last bucket."""
FIRST_SLOW_BUCKET = 270
"""The bucket that contains a second. The histogram of waits has one bucket for all waits of up to a second, and then
these."""
WAIT_BUCKETS = 1 + BUCKETS - FIRST_SLOW_BUCKET

SHRINK, EXPAND, RELINQUISH, DOUBT = np.arange(4)
"""Kinds of rows of ``change``. A DOUBT row is not an ISR change: it says why a shrink at the same time is only
possible, instead of certain."""
BY_RULE, BY_CONTROLLER = np.arange(2)
CHANGE_KINDS = ("shrink", "expand", "relinquish", "doubt")
MADE_BY = ("rule", "controller")


def new_kernel_output(capacity: int, scores: int = 256) -> KernelOutput:
    """Allocate output arrays.

    ``replica``, ``partition`` and ``change`` have room for ``capacity`` rows each, ``score`` and ``latency`` for
    ``scores`` rows, and ``follower_score`` for FOLLOWERS_A_SCORE times as many as ``score``.
    """
    return KernelOutput(
        np.empty((capacity, len(REPLICA_COLUMNS)), np.int64),
        np.empty((capacity, len(PARTITION_COLUMNS)), np.int64),
        np.empty((capacity, len(CHANGE_COLUMNS)), np.int64),
        np.empty((scores, len(SCORE_COLUMNS)), np.int64),
        np.empty((scores * FOLLOWERS_A_SCORE, len(FOLLOWER_SCORE_COLUMNS)), np.int64),
        np.zeros(5, np.int64),
        np.empty((scores, BUCKETS + WAIT_BUCKETS), np.int64),
    )
