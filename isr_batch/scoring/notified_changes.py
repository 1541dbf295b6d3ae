"""Compute when a broker notifies the controller of ISR changes. Used in Spark's workers, which lack most packages."""

import pyarrow as pa


def with_notified(changes: pa.Table) -> pa.Table:
    """Add ``notified_us``, the time of the notification, to each ISR change of one broker under one rule.

    ``change_us`` is the time of the change.
    """
    # Imported here, because the kernels take a second to import, and commands that only show results do not need them.
    from isr_batch.replay.kernel_cache import keep_compiled
    from udfs.kernel.notifications import notified_at_us

    keep_compiled()
    changes = changes.sort_by("change_us")
    return changes.append_column("notified_us", pa.array(notified_at_us(changes["change_us"].to_numpy())))
