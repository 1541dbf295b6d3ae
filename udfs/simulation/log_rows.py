"""Small things that the simulation does: draw a gap, tell the time, look at a partition, write a row of the log."""

import numpy as np

from udfs.jit import inlined, kernel
from udfs.kernel.append_history import History
from udfs.kernel.ledger import Ledger
from udfs.kernel.state import State

FETCHES, APPENDS, TERMS, EVENTS = np.arange(4)
"""Tables of a ``udfs.simulation.world.Log``, as ``filled`` counts them."""


@kernel
def gap_us(world, p):
    """Time to the next produce request, by splitmix64 and the exponential distribution."""
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
def moment(group, time_us):
    """When an event really happens: after the one before, and not at a whole millisecond."""
    now_us = max(time_us, group.now_us + 1)
    if now_us % 1000 == 0:
        now_us += 1
    group.now_us = now_us
    return now_us


@inlined
def view(world, p):
    """The state of one partition, as the steps take it."""
    return State(
        world.term[p : p + 1],
        world.fetches[p],
        world.followers[p],
        world.leaders[p],
        world.params,
        world.codes,
        world.active,
        world.due_us[p : p + 1],
        History(world.history_offset[p], world.history_us[p], world.history_used[p]),
        Ledger(world.ledger.pages[p], world.ledger.followers[p], world.ledger.waits[p]),
    )


@inlined
def write(table, filled, which, values):
    """Write a row of the log; ``values`` are int64, one a column."""
    for i in range(len(values)):
        table[filled[which], i] = values[i]
    filled[which] += 1


@inlined
def write_fetch(world, log, p, f, high_watermark):
    """A fetch as the leader's request log would have it."""
    group, fetch = world.group[0], world.fetches[p, f]
    instants = (fetch.arrival_us, fetch.handled_us, fetch.processed_us, fetch.released_us, fetch.completed_us)
    values = (p, group.leader_epoch, group.leader, f, *instants, fetch.fetch_offset, high_watermark)
    write(log.fetches, log.filled, FETCHES, values)


@kernel
def write_append(world, log, p, time_us, base_offset, log_end_offset, acks, acknowledged_us, error_code):
    """An append, with the time of its acknowledgement; UNKNOWN where there is none."""
    group = world.group[0]
    values = (
        p, group.leader_epoch, group.leader, time_us, base_offset, log_end_offset, np.int64(acks), acknowledged_us,
        np.int64(error_code),
    )  # fmt: skip
    write(log.appends, log.filled, APPENDS, values)


@kernel
def write_term(world, log, p, end_us):
    """The term that ends now."""
    group, partition = world.group[0], world.partitions[p]
    values = (
        p, group.leader_epoch, group.leader, partition.term_start_us, end_us, world.term[p].start_offset,
        partition.term_high_watermark, partition.term_isr, partition.previous_leader,
    )  # fmt: skip
    write(log.terms, log.filled, TERMS, values)


@kernel
def label_score(world, log, p):
    """Say whose the next row of ``World.out.score`` is."""
    whose = log.scores[world.out.filled[3]]
    whose[0] = p
    whose[1] = world.group[0].leader_epoch
    whose[2] = world.group[0].leader


@kernel
def write_event(log, broker, from_us, until_us, kind):
    """Something that happened to a broker as a whole."""
    write(log.events, log.filled, EVENTS, (broker, from_us, until_us, np.int64(kind)))
