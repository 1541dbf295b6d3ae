"""Access to the rule runs that are replayed separately, not as a part of a group (`udfs.kernel.shared_runs`)."""

from udfs.jit import inlined


@inlined
def active_run(active, k):
    """Return the k-th separately replayed run; the mask shows the compiler that the index is not negative."""
    return active[k] & 0xFFFF
