"""The state of a simulation: a leader, its followers, their common partitions, and the queue of events.

A group is a set of brokers, each with a replica of every partition of the group. One of them leads all partitions.
Every array is int64 or a record of int64. There are P partitions and n replicas, which are identified by their position
in the assignment.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.jit import inlined, kernel
from udfs.kernel.ack_latency import new_ack_waits
from udfs.kernel.append_history import AppendHistory
from udfs.kernel.ledger import Ledger
from udfs.kernel.ledger_page import FOLLOWER_PAGE, PLACES
from udfs.kernel.state import PARAMS, State
from udfs.records import (
    FETCH_STATE,
    FOLLOWER,
    LEADER,
    NEVER_US,
    TERM,
    Int64Array,
    KernelOutput,
    Rows,
    int64_record,
    new_kernel_output,
)

GROUP = int64_record(
    "now_us",
    "end_us",
    "started",
    "leader",
    "leader_epoch",
    "serial",  # number of the term: events of earlier ones are void
    "events",  # number of events in the heap
    "pushed",  # events pushed so far: orders events of equal times
    "faults_done",
    "io_threads",
    "busy",
    "queue_first",
    "queued",
    "paused_until_us",  # until when the leader as a whole is paused
    "request_us",  # usual time of a read or an append
    "send_us",
    "max_wait_us",  # longest wait of a follower's fetch for data
    "isr_write_us",  # how long an expansion blocks the fetch that causes it; 0 if ISR writes happen in the background
    "max_in_flight",  # acks=all requests that a producer has in flight at most
    "retry_us",  # time until a refused produce request is sent again
    "election_us",  # time until a new leader is found, or followers fetch from it
    "electing",  # the leader gave up, and the next one is not elected yet
    "changes_noted",
)

PEER = int64_record(
    "phase",
    "serial",
    "paused_until_us",
    "link_us",  # one-way delay of its link
    "record_us",  # time to write one record
    "most_records",  # per partition in one response
    "next_partition",  # next partition of its fetch to be recorded
    "wait_until_us",
    "received",  # number of records in the response in flight
    "written_us",  # when it has written its latest response; until then its log ends at its fetch offset
    "queue_us",  # as leader: extra delay of requests in the queue
    "storage_us",  # as leader: extra time of a read or an append
)
"""A broker: its fetcher, which has one request in flight for all partitions, and its speed as leader."""
IDLE, UNDER_WAY, PARKED = np.arange(3)

PARTITION = int64_record(
    "gap_us",  # mean time between produce requests; 0: no producer
    "regular",  # 1: equal times between requests; 0: exponential
    "records",  # records in a produce request
    "acks",
    "next_us",  # when the producer sends its next request
    "in_flight",
    "blocked",
    "term_start_us",
    "term_high_watermark",
    "term_isr",
    "previous_leader",
)

FAULT = int64_record("time_us", "kind", "who", "value")
PAUSE_FOLLOWER, PAUSE_LEADER, QUEUE, STORAGE, LINK, PACE, QUOTA, CHANGE_LEADER, REMOVE, ELIGIBILITY = np.arange(10)
"""Kinds of faults. A fault's ``value`` depends on its kind: the end of a pause; for QUEUE, STORAGE and LINK the added
delay; for PACE the delay per record; for QUOTA the records per fetch; for ELIGIBILITY 1 if the broker may join an ISR.
Times are in us."""

FETCH_COLUMNS = (
    "partition_id", "leader_epoch", "leader", "replica", "arrival_time", "handled_time", "processed_time",
    "released_time", "completed_time", "fetch_offset", "high_watermark",
)  # fmt: skip
APPEND_COLUMNS = (
    "partition_id", "leader_epoch", "leader", "append_time", "base_offset", "log_end_offset", "acks",
    "acknowledged_time", "error_code",
)  # fmt: skip
TERM_COLUMNS = (
    "partition_id", "leader_epoch", "leader", "start_time", "end_time", "start_offset", "start_high_watermark",
    "isr_at_start", "previous_leader",
)  # fmt: skip
EVENT_COLUMNS = ("broker", "event_time", "end_time", "kind")
SILENT, FENCED, UNFENCED = np.arange(3)
EVENT_KINDS = ("silent", "fenced", "unfenced")

WHOSE_COLUMNS = (
    "partition_id", "leader_epoch", "leader", "missing_since_us", "acknowledged_without_it", "held", "heard_us",
)  # fmt: skip
"""Columns that describe an ISR change. The last four are the follower's true state, even if the log does not show it:
the time since which it has lacked records (NEVER_US: it lacks none), the offset up to which records would be
acknowledged without it, its log end, and when its last fetch reached this leader."""


class WorldLog(NamedTuple):
    """The log that a simulation writes: int64 arrays of shape (capacity, columns), and the number of rows in each."""

    fetches: Int64Array
    appends: Int64Array
    terms: Int64Array
    events: Int64Array
    changes: Int64Array
    """WHOSE_COLUMNS of each row of ``World.out.change``."""
    scores: Int64Array
    """Partition, leader epoch and leader of each row of ``World.out.score``."""
    filled: Int64Array


class World(NamedTuple):
    """The complete state of a simulated group between two events."""

    group: npt.NDArray[np.void]
    peers: npt.NDArray[np.void]
    partitions: npt.NDArray[np.void]
    faults: npt.NDArray[np.void]
    random: npt.NDArray[np.uint64]
    # A heap of events, ordered by time.
    event_us: Int64Array
    event_order: Int64Array
    event_kind: Int64Array
    event_who: Int64Array
    event_serial: Int64Array
    timers: Int64Array
    """All timers as a tournament tree. Index 1 holds the earliest time. The leaves are the timers of partitions, then
    those of followers' fetches that wait for data."""
    queue: Int64Array
    """Requests that wait for an I/O thread: the partition's number for a produce request, -1 - f for a fetch of
    follower f."""
    held: Int64Array
    """Log end offset of each broker's replica, shape (P, n)."""
    answered: Int64Array
    """Log end offset that each broker's replica will have after the response in flight is written, shape (P, n)."""
    waiting: Int64Array
    """acks=all appends that wait for the high watermark, shape (P, max_in_flight, 3): time, base offset, log end
    offset."""
    remembered: npt.NDArray[np.void]
    """For each broker, the state of the other replicas when it was last the leader: FOLLOWER, shape (P, n, n)."""
    # State of the replay, for each partition.
    term: npt.NDArray[np.void]
    fetches: npt.NDArray[np.void]
    followers: npt.NDArray[np.void]
    leaders: npt.NDArray[np.void]
    params: npt.NDArray[np.void]
    codes: Int64Array
    active: Int64Array
    due_us: Int64Array
    history_offset: Int64Array
    history_us: Int64Array
    history_used: Int64Array
    ledger: Ledger
    row: Rows
    out: KernelOutput


HISTORY, WAITS = 1024, 16
"""Capacities in the simulation: of a partition's history of appends, and of its waiting appends. Under acks-min-isr,
producers go on while a member of the ISR is slow, so that it lacks hundreds of appends before it is dropped."""


def new_world(partitions: int, replicas: int, faults: npt.NDArray[np.void], max_in_flight: int, seed: int) -> World:
    """Return the state of a simulated group before its first event.

    The caller must fill in ``group``, ``peers``, ``partitions``, ``params`` and ``codes``.
    """
    heap = 4 * partitions + 16 * replicas + len(faults) + 64
    terms = np.zeros(partitions, TERM)
    terms["runs"] = 1
    leaves = 1 << (partitions + replicas - 1).bit_length()
    fetches = np.zeros((partitions, replicas), FETCH_STATE)
    fetches["replica_id"] = np.arange(replicas)
    remembered = np.zeros((partitions, replicas, replicas), FOLLOWER)
    for name in ("last_caught_up_time_ms", "log_end_offset"):
        remembered[name] = -1
    remembered["eligible"] = 1
    group = np.zeros(1, GROUP)
    group["max_in_flight"] = max_in_flight
    return World(
        group=group,
        peers=np.zeros(replicas, PEER),
        partitions=np.zeros(partitions, PARTITION),
        faults=np.sort(faults, order="time_us", kind="stable"),
        random=np.array([seed], np.uint64),
        event_us=np.zeros(heap, np.int64),
        event_order=np.zeros(heap, np.int64),
        event_kind=np.zeros(heap, np.int64),
        event_who=np.zeros(heap, np.int64),
        event_serial=np.zeros(heap, np.int64),
        timers=np.full(2 * leaves, NEVER_US),
        queue=np.zeros(partitions + replicas, np.int64),
        held=np.zeros((partitions, replicas), np.int64),
        answered=np.zeros((partitions, replicas), np.int64),
        waiting=np.zeros((partitions, max_in_flight, 3), np.int64),
        remembered=remembered,
        term=terms,
        fetches=fetches,
        followers=remembered[:, 0:1, :].copy(),
        leaders=np.zeros((partitions, 1), LEADER),
        params=np.zeros(1, PARAMS),
        codes=np.zeros(1, np.int64),
        active=np.zeros(1, np.int64),
        due_us=np.full(partitions, NEVER_US),
        history_offset=np.zeros((partitions, HISTORY), np.int64),
        history_us=np.zeros((partitions, HISTORY), np.int64),
        history_used=np.zeros((partitions, 2), np.int64),
        ledger=Ledger(
            np.zeros((partitions, 1, PLACES), np.int64),
            np.zeros((partitions, 1, replicas), FOLLOWER_PAGE),
            np.stack([new_ack_waits(1, WAITS)] * partitions),
        ),
        row=Rows(*(np.full(1, NEVER_US) for _ in Rows._fields)),
        out=new_kernel_output(1 << 14, 2 * partitions),
    )


def new_world_log(partitions: int, capacity: int) -> WorldLog:
    """Allocate a log with room for ``capacity`` rows per table, plus the rows that the end of all terms adds."""
    rows = capacity + 8 * partitions
    return WorldLog(
        fetches=np.zeros((rows, len(FETCH_COLUMNS)), np.int64),
        appends=np.zeros((rows, len(APPEND_COLUMNS)), np.int64),
        terms=np.zeros((rows, len(TERM_COLUMNS)), np.int64),
        events=np.zeros((rows, len(EVENT_COLUMNS)), np.int64),
        changes=np.zeros((1 << 14, len(WHOSE_COLUMNS)), np.int64),
        scores=np.zeros((2 * partitions, 3), np.int64),
        filled=np.zeros(4, np.int64),
    )


@kernel
def apply_fault_to_world(peer, kind, value):
    """Begin or end a fault of kind ``kind`` by setting the delay or limit of ``peer``, the affected broker."""
    if kind == PAUSE_FOLLOWER:
        peer.paused_until_us = value
    elif kind == QUEUE:
        peer.queue_us = value
    elif kind == STORAGE:
        peer.storage_us = value
    elif kind == LINK:
        peer.link_us = value
    elif kind == PACE:
        peer.record_us = value
    elif kind == QUOTA:
        peer.most_records = value


@kernel
def produce_gap_of_world_us(world, p):
    """Return the time until a partition's next produce request, in microseconds.

    It is the partition's mean if ``regular`` is set. If not, it is drawn from an exponential distribution with this
    mean.
    """
    mean_us = world.partitions[p].gap_us
    if world.partitions[p].regular != 0:
        return mean_us
    world.random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = world.random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    uniform = np.float64(z >> np.uint64(11)) / 9007199254740992.0
    return np.int64(-mean_us * np.log(1.0 - uniform)) + 1


@kernel
def next_instant_of_world_us(group, time_us):
    """Move the group's clock to ``time_us`` and return the clock's new time.

    The time is moved later if it is not after the previous event, or if it is at a whole millisecond.
    """
    now_us = max(time_us, group.now_us + 1)
    if now_us % 1000 == 0:
        now_us += 1
    group.now_us = now_us
    return now_us


@inlined
def partition_state_of_world(world, p):
    """Return the state of partition ``p`` as a `State`, for the functions of `udfs.kernel.partition`."""
    return State(
        world.term[p : p + 1],
        world.fetches[p],
        world.followers[p],
        world.leaders[p],
        world.params,
        world.codes,
        world.active,
        world.due_us[p : p + 1],
        AppendHistory(world.history_offset[p], world.history_us[p], world.history_used[p]),
        Ledger(world.ledger.pages[p], world.ledger.followers[p], world.ledger.waits[p]),
    )
