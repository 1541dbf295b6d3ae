"""The part of the state to replay: groups of rule runs with equal state (`shared_runs`), and ungrouped rule runs."""

from udfs.jit import inlined


@inlined
def active_run(active, k):
    """Return the index in the state's arrays of the ``k``-th rule run (or group of rule runs) to replay."""
    return active[k] & 0xFFFF
