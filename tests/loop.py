"""Run the compiled simulation in a test until it is done."""

from typing import Any

import numpy as np

from udfs.simulation.loop import simulation_loop
from udfs.simulation.world import World, new_world_log

Tables = dict[str, np.ndarray[Any, Any]]


def simulate(world: World, room: int = 2000) -> Tables:
    """Run a simulated world to its end; return all rows that it wrote, by table.

    ``room`` is the size of its buffers, after which they are emptied.
    """
    log = new_world_log(len(world.partitions), room)
    parts: dict[str, list[Any]] = {name: [] for name in (*log._fields[:4], "changes", "whose")}
    done = 0
    while not done:
        done = simulation_loop(world, log, room)
        for name, filled in zip(log._fields[:4], log.filled, strict=True):
            parts[name].append(getattr(log, name)[:filled].copy())
        changes = world.out.filled[2]
        parts["changes"].append(np.hstack([log.changes[:changes, :2], world.out.change[:changes]]))
        parts["whose"].append(log.changes[:changes].copy())
        log.filled[:] = 0
        world.out.filled[:] = 0
        world.group["changes_noted"] = 0
    return {name: np.concatenate(rows) for name, rows in parts.items()}
