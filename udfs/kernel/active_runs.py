"""Slots of the state that are replayed: groups, and rule runs that do not share a group's state (`shared_runs`)."""

from udfs.jit import inlined


@inlined
def active_run(active, k):
    """Return the slot of the k-th rule run or group to replay. The mask shows the compiler that it is not negative."""
    return active[k] & 0xFFFF
