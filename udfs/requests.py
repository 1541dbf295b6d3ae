"""A leader's io threads, its followers' requests and its producers' waits, in the simulation."""

import numpy as np

from udfs import heap
from udfs.jit import kernel
from udfs.simulation_log import write_append

PRODUCED, APPENDED, FETCHED, TAKEN, RECORD, ANSWERED, FAULT = np.arange(7)
"""Kinds of events; all but a fault need the leader to be awake."""


@kernel
def start_request(world, who, now_us):
    """An io thread takes a request, or the request waits for one."""
    group = world.group[0]
    if group.busy == group.io_threads:
        world.queue[(group.queue_first + group.queued) % len(world.queue)] = who
        group.queued += 1
        return
    group.busy += 1
    if who >= 0:
        heap.push(world, now_us + group.queue_us + group.request_us + group.storage_us, APPENDED, who, group.serial)
    else:
        heap.push(world, now_us + group.queue_us, TAKEN, -1 - who, group.serial)


@kernel
def thread_is_free(world, now_us):
    """It takes the request that waits longest."""
    group = world.group[0]
    group.busy -= 1
    if group.queued > 0:
        who = world.queue[group.queue_first]
        group.queue_first = (group.queue_first + 1) % len(world.queue)
        group.queued -= 1
        start_request(world, who, now_us)


@kernel
def followers_begin(world, now_us):
    """A term begins: one follower after the other asks for the first time."""
    group = world.group[0]
    for f in range(len(world.peers)):
        if f != group.leader:
            peer = world.peers[f]
            first_us = max(now_us + group.election_us * (f + 1), peer.paused_until_us)
            heap.push(world, first_us + peer.link_us, FETCHED, f, peer.serial)


@kernel
def acknowledge(world, log, p, now_us):
    """Producers that wait for all hear of what the high watermark has passed, and go on."""
    group, partition = world.group[0], world.partitions[p]
    acknowledged = 0
    while (
        acknowledged < partition.in_flight and world.waiting[p, acknowledged, 2] <= world.leaders[p, 0].high_watermark
    ):
        wait = world.waiting[p, acknowledged]
        write_append(world, log, p, wait[0], wait[1], wait[2], -1, now_us, 0)
        acknowledged += 1
    if acknowledged > 0:
        for i in range(acknowledged, partition.in_flight):
            for j in range(3):
                world.waiting[p, i - acknowledged, j] = world.waiting[p, i, j]
        partition.in_flight -= acknowledged
        if partition.blocked != 0:
            partition.blocked = 0
            heap.push(world, max(now_us, partition.next_us), PRODUCED, p, group.serial)
