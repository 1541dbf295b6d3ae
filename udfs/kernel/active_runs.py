"""Access to the runs that are replayed on their own, not as part of a group that shares its state (`shared_runs`)."""

from udfs.jit import inlined


@inlined
def active_run(active, k):
    """Return the k-th separately replayed run; the mask shows the compiler that the index is not negative."""
    return active[k] & 0xFFFF
