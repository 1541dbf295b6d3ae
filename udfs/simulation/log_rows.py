"""Write the rows of a simulated log."""

import numpy as np

from udfs.jit import inlined, kernel

FETCHES, APPENDS, TERMS, EVENTS = np.arange(4)
"""Indices of the tables of a ``udfs.simulation.world.WorldLog`` in its ``filled``."""


@inlined
def _write_log_row(table, filled, which, values):
    """Append a row of int64 ``values`` to a table of the log; ``which`` is the table's index in ``filled``."""
    for i in range(len(values)):
        table[filled[which], i] = values[i]
    filled[which] += 1


@inlined
def write_fetch_row(world, log, p, f, high_watermark):
    """Write follower ``f``'s fetch of partition ``p`` as a row of ``log.fetches``."""
    group, fetch = world.group[0], world.fetches[p, f]
    instants = (fetch.arrival_us, fetch.handled_us, fetch.processed_us, fetch.released_us, fetch.completed_us)
    values = (p, group.leader_epoch, group.leader, f, *instants, fetch.fetch_offset, high_watermark)
    _write_log_row(log.fetches, log.filled, FETCHES, values)


@kernel
def write_append_row(world, log, p, time_us, base_offset, log_end_offset, acks, acknowledged_us, error_code):
    """Write an append to partition ``p`` as a row of ``log.appends``.

    ``acknowledged_us`` is UNKNOWN if the append was never acknowledged. The offsets are UNKNOWN if it was refused.
    """
    group = world.group[0]
    values = (
        p, group.leader_epoch, group.leader, time_us, base_offset, log_end_offset, np.int64(acks), acknowledged_us,
        np.int64(error_code),
    )  # fmt: skip
    _write_log_row(log.appends, log.filled, APPENDS, values)


@kernel
def write_term_row(world, log, p, end_us):
    """Write partition ``p``'s current term, which ends at ``end_us``, as a row of ``log.terms``."""
    group, partition = world.group[0], world.partitions[p]
    values = (
        p, group.leader_epoch, group.leader, partition.term_start_us, end_us, world.term[p].start_offset,
        partition.term_high_watermark, partition.term_isr, partition.previous_leader,
    )  # fmt: skip
    _write_log_row(log.terms, log.filled, TERMS, values)


@kernel
def label_score_row(world, log, p):
    """Write the partition, leader epoch and leader to which the next row of ``world.out.score`` belongs."""
    whose = log.scores[world.out.filled[3]]
    whose[0] = p
    whose[1] = world.group[0].leader_epoch
    whose[2] = world.group[0].leader


@kernel
def write_event_row(log, broker, from_us, until_us, kind):
    """Write an event of a whole broker (SILENT, FENCED or UNFENCED) as a row of ``log.events``."""
    _write_log_row(log.events, log.filled, EVENTS, (broker, from_us, until_us, np.int64(kind)))
