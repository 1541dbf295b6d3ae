"""Which rule runs are replayed by themselves, and not along with another (`udfs.kernel.shared_runs`)."""

from udfs.jit import inlined


@inlined
def active_run(active, k):
    """The k-th of the runs that are replayed by themselves; the mask says that it is no index from the end."""
    return active[k] & 0xFFFF
