"""Simulate a leader's I/O threads, its followers' fetches, and producers that wait for acknowledgements."""

import numpy as np

from udfs.jit import inlined, kernel
from udfs.kernel.append_history import AppendHistory, missing_since
from udfs.records import RELINQUISH
from udfs.simulation import event_queue
from udfs.simulation.log_rows import write_append_row

PRODUCED, APPENDED, FETCHED, TAKEN, RECORD, ANSWERED, FAULT, ELECTION = np.arange(8)
"""Kinds of events in the simulation's queue. Those before FAULT are postponed while the leader is paused."""
NOT_ENOUGH_REPLICAS = np.int64(19)
"""Kafka's error code for an acks=all append that is refused because the ISR is under min.insync.replicas."""


@kernel
def request_is_void(world, kind, who, serial):
    """Whether an event belongs to a request (or an ELECTION) of a leader epoch that is over, so that it is ignored.

    ``kind``, ``who`` and ``serial`` are those of the event (`event_queue.push_event`). A FAULT is never void.
    """
    if kind == FAULT:
        return False
    if kind in (PRODUCED, APPENDED, TAKEN, ELECTION):
        return serial != world.group[0].serial
    return serial != world.peers[who].serial


@kernel
def forget_void_requests(world):
    """Remove the events of void requests from the event queue.

    They could fill the queue if elections follow each other faster than producers send requests.
    """
    group = world.group[0]
    events = group.events
    group.events = 0
    for i in range(events):
        kind, who, serial = world.event_kind[i], world.event_who[i], world.event_serial[i]
        if not request_is_void(world, kind, who, serial):
            event_queue.push_event(world, world.event_us[i], kind, who, serial)


@kernel
def _written_log_end(world, p, f, now_us):
    """Return up to which offset follower ``f`` has written its log at ``now_us``, without records in transit."""
    return world.fetches[p, f].fetch_offset if now_us < world.peers[f].written_us else world.held[p, f]


@kernel
def _label_isr_change(world, label, p, change):
    """Fill in ``label`` (WHOSE_COLUMNS) for an ISR change: its partition, and the replica's true state before it."""
    group, leader = world.group[0], world.leaders[p, 0]
    at_us, who, isr, high_watermark = change[1], change[3], change[4], change[6]
    history = AppendHistory(world.history_offset[p], world.history_us[p], world.history_used[p])
    end = leader.log_end_offset
    for other in range(len(world.peers)):
        if other not in (who, group.leader) and isr >> other & 1:
            end = min(end, _written_log_end(world, p, other, at_us))
    label[0] = p
    label[1] = group.leader_epoch
    label[2] = group.leader
    label[3] = missing_since(history, _written_log_end(world, p, who, at_us))
    label[4] = max(end, high_watermark, leader.acknowledged_offset)
    label[5] = _written_log_end(world, p, who, at_us)
    label[6] = world.fetches[p, who].last_arrival_us


@kernel
def successor_of_leader(world):
    """Return the position of the next leader, or -1 if no other broker is in every partition's ISR.

    It is the first such broker after the current leader.
    """
    group, brokers = world.group[0], len(world.peers)
    shared = (1 << brokers) - 1
    for p in range(len(world.partitions)):
        shared &= world.leaders[p, 0].isr
    for i in range(1, brokers):
        to = (group.leader + i) % brokers
        if shared >> to & 1:
            return to
    return -1


@inlined
def note_changes_of_leader(world, log, p, now_us):
    """Write the true state of the replica to ``log.changes`` for each new ISR change of partition ``p``.

    If the leader gave up leadership, schedule an election.
    """
    if world.group[0].changes_noted < world.out.filled[2]:
        _note_isr_changes(world, log, p, now_us)


@kernel
def _note_isr_changes(world, log, p, now_us):
    """Do the work of `note_changes_of_leader`, if there are new ISR changes."""
    group = world.group[0]
    while group.changes_noted < world.out.filled[2]:
        _label_isr_change(world, log.changes[group.changes_noted], p, world.out.change[group.changes_noted])
        if world.out.change[group.changes_noted, 2] == RELINQUISH and group.electing == 0:
            group.electing = 1
            event_queue.push_event(world, now_us + group.election_us, ELECTION, 0, group.serial)
        group.changes_noted += 1


@kernel
def start_request(world, who, now_us):
    """Give a request to a free I/O thread, or queue it until a thread is free.

    ``who`` is the partition for a produce request, and -1 - f for a fetch of follower f.
    """
    group = world.group[0]
    if group.busy == group.io_threads:
        world.queue[(group.queue_first + group.queued) % len(world.queue)] = who
        group.queued += 1
        return
    group.busy += 1
    leader = world.peers[group.leader]
    if who >= 0:
        event_queue.push_event(
            world, now_us + leader.queue_us + group.request_us + leader.storage_us, APPENDED, who, group.serial
        )
    else:
        event_queue.push_event(world, now_us + leader.queue_us, TAKEN, -1 - who, group.serial)


@kernel
def thread_takes_request(world, now_us):
    """Free an I/O thread, which then picks up the request that has waited longest, if any."""
    group = world.group[0]
    group.busy -= 1
    if group.queued > 0:
        who = world.queue[group.queue_first]
        group.queue_first = (group.queue_first + 1) % len(world.queue)
        group.queued -= 1
        start_request(world, who, now_us)


@kernel
def followers_request_first(world, now_us):
    """Schedule the first fetch of each follower from a new leader."""
    group = world.group[0]
    for f in range(len(world.peers)):
        if f != group.leader:
            peer = world.peers[f]
            peer.written_us = now_us
            first_us = max(now_us + group.election_us * (f + 1), peer.paused_until_us)
            event_queue.push_event(world, first_us + peer.link_us, FETCHED, f, peer.serial)


@kernel
def acknowledge_producers(world, log, p, now_us):
    """Acknowledge the acks=all appends that the rule acknowledges by now, and let their producers continue."""
    group, partition, leader = world.group[0], world.partitions[p], world.leaders[p, 0]
    end = max(leader.high_watermark, leader.acknowledged_end)
    acknowledged = 0
    while acknowledged < partition.in_flight and world.waiting[p, acknowledged, 2] <= end:
        wait = world.waiting[p, acknowledged]
        write_append_row(world, log, p, wait[0], wait[1], wait[2], -1, now_us, 0)
        acknowledged += 1
    if acknowledged > 0:
        for i in range(acknowledged, partition.in_flight):
            for j in range(3):
                world.waiting[p, i - acknowledged, j] = world.waiting[p, i, j]
        partition.in_flight -= acknowledged
        if partition.blocked != 0:
            partition.blocked = 0
            event_queue.push_event(world, max(now_us, partition.next_us), PRODUCED, p, group.serial)
