"""Find when a broker notifies others of its ISR changes. Also used in Spark's workers, which lack most packages."""

import pyarrow as pa


def with_notified(changes: pa.Table) -> pa.Table:
    """Add ``notified_us``, when it is notified, to each ISR change (at ``change_us``) of one broker under one rule."""
    # Imported here, because the kernels take a second to import, and commands that only show results do not need them.
    from isr_batch.replay.kernel_cache import keep_compiled
    from udfs.kernel.notifications import notified_at_us

    keep_compiled()
    changes = changes.sort_by("change_us")
    return changes.append_column("notified_us", pa.array(notified_at_us(changes["change_us"].to_numpy())))
