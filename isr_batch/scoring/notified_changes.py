"""Compute when a broker notifies the controller of ISR changes.

This is used in Spark's workers, where most packages are not installed.
"""

import pyarrow as pa


def with_notified(changes: pa.Table) -> pa.Table:
    """Add ``notified_us``, the time of the notification, to each ISR change of a broker under one rule run.

    Parameters
    ----------
    changes : pa.Table
        ISR changes with their time in ``change_us``.
    """
    # Imported here, because importing the kernels takes a second, and commands that only show results do not need them.
    from isr_batch.replay.kernel_cache import keep_compiled
    from udfs.kernel.notifications import notified_at_us

    keep_compiled()
    changes = changes.sort_by("change_us")
    return changes.append_column("notified_us", pa.array(notified_at_us(changes["change_us"].to_numpy())))
