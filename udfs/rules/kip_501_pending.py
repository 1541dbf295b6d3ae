"""kip-501-pending: as in Kafka 3.7, but a follower that keeps up stays in sync until the leader has answered its fetch.

KIP-501 proposes this rule (solution 1, follower.fetch.pending.reads.insync.enable). A fetch is pending if its offset is
at least the leader's log end at this fetch or at the previous one. It is pending from when an I/O thread takes it from
the request queue until it is answered, including any wait for data. When the leader answers a pending fetch, it sets
lastCaughtUpTimeMs to the time of the response, not to that of the fetch. Answered means here that the response was
written to the socket, which the request log shows. ReplicaManager itself only sees the earlier response callback.

Benefit: a leader that is slow to read its log no longer drops the followers whose fetches are waiting for the read.

If a leader is stopped (a long pause, SIGSTOP), the fetches that were waiting for data when the leader stopped remain
pending, so their followers stay in the ISR. On logs of stopped leaders, most of the spurious shrinks that the rule
avoids are avoided in this way.

Drawback: a fetch that waits for data is answered after up to replica.fetch.wait.max.ms (500 ms). The lag of a follower
that then stops is counted from the response, so the follower may be dropped a check later.

Not solved: a fetch in the request queue is not pending yet, and a fetch that was sent after the leader stopped has not
even been read from the socket. With the parameter ``pending_from`` = arrival, a fetch in the queue is pending as well.

The proposal says that Replica#updateFetchState sets the time at which the follower was last caught up. But Kafka calls
this method after it has read the partition's log, before the fetch waits for data, and not when it answers the fetch.
The parameter ``caught_up_at`` = recorded follows the proposal literally. A follower then stays in the ISR while its
response is stuck, but the first check after the response drops it.

The proposal only changes when a follower is dropped. A follower may join the ISR, and the high watermark waits for it,
under the same conditions as in Kafka 3.7. But whether the high watermark waits depends on the follower's last-caught-up
time, which this rule sets at the response. A follower's first fetch in a term has no previous fetch, so it is pending
only if it is from the present log end.

Source: KIP-501, solution 1.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NOTHING, SHOW, TRY_TO_JOIN, Param
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7
from udfs.rules.kafka_3_7 import out_of_sync as kafka_3_7_out_of_sync

HANDLED, ARRIVAL = 0, 1
COMPLETED, RECORDED = 0, 1


@kernel
def begin_pending(follower, fetch, leader_log_end_offset):
    """Mark a fetch as pending if it succeeds and its offset has reached the log end of now or of the previous fetch."""
    previous = follower.last_fetch_leader_log_end_offset
    follower.pending_fetch = fetch.error_code == 0 and (
        fetch.fetch_offset >= leader_log_end_offset or (previous >= 0 and fetch.fetch_offset >= previous)
    )


@kernel
def on_arrival(follower, leader, fetch, params):
    """Mark the previous fetch as no longer pending, and this fetch as pending if ``pending_from`` = arrival.

    Only a fetch that meets the conditions of `begin_pending` is marked.
    """
    follower.pending_fetch = 0
    if params.pending_from == ARRIVAL:
        begin_pending(follower, fetch, leader.log_end_offset)
    return NOTHING


@kernel
def on_read(follower, leader, fetch, params):
    """Mark the fetch as pending if ``pending_from`` = handled and it meets the conditions of `begin_pending`."""
    if params.pending_from == HANDLED:
        begin_pending(follower, fetch, fetch.leader_log_end_offset)
    return NOTHING


@kernel
def on_recorded(follower, leader, fetch, params):
    """Record a successful fetch as kafka-3.7 does, but do not set the last-caught-up time, which `on_completed` sets.

    With ``caught_up_at`` = recorded, a pending fetch sets that time here. A failed fetch is ignored.
    """
    if fetch.error_code != 0:
        return NOTHING
    before = follower.log_end_offset
    follower.log_end_offset = fetch.fetch_offset
    follower.last_fetch_leader_log_end_offset = max(
        follower.last_fetch_leader_log_end_offset, fetch.leader_log_end_offset
    )
    if params.caught_up_at == RECORDED and follower.pending_fetch != 0:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, fetch.processed_us // 1000)
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK if follower.log_end_offset != before else TRY_TO_JOIN


@kernel
def on_completed(follower, leader, fetch, params):
    """Mark the fetch as no longer pending.

    With ``caught_up_at`` = completed, the last-caught-up time of a pending fetch's follower becomes the present time.
    """
    if follower.pending_fetch == 0:
        return NOTHING
    follower.pending_fetch = 0
    if params.caught_up_at == COMPLETED:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, fetch.completed_us // 1000)
    return SHOW


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower has no pending fetch and is out of sync under kafka-3.7."""
    return follower.pending_fetch == 0 and kafka_3_7_out_of_sync(follower, leader, fetch, now_ms, params)


@kernel
def acts_in_quiet(quiet, leader, params):
    """Whether ``pending_from`` is arrival; the replay must then see each arrival, and not skip any part of the log."""
    return params.pending_from == ARRIVAL


RULE = KAFKA_3_7.but(
    id="kip-501-pending",
    in_force="proposed",
    year=2019,
    source="KIP-501, solution 1",
    on_arrival=on_arrival,
    on_read=on_read,
    on_recorded=on_recorded,
    on_completed=on_completed,
    out_of_sync=out_of_sync,
    acts_in_quiet=acts_in_quiet,
    caught_up_by="completed",
    params={
        "pending_from": Param(
            "start of the pending time: an I/O thread takes the fetch, or it arrives", 0, ("handled", "arrival")
        ),
        "caught_up_at": Param(
            "when a pending fetch shows the follower caught up: when it is answered, or recorded",
            0,
            ("completed", "recorded"),
        ),
    },
)
