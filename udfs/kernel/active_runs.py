"""The rule runs that are replayed separately, not along with another (`udfs.kernel.shared_runs`)."""

from udfs.jit import inlined


@inlined
def active_run(active, k):
    """The k-th of the runs that are replayed separately; the mask shows the compiler that the index is not negative."""
    return active[k] & 0xFFFF
