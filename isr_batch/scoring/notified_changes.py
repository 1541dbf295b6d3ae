"""Find when ISR changes of one broker are notified. This also runs in Spark's workers, which lack most packages."""

from functools import lru_cache

import pyarrow as pa


def with_notified(changes: pa.Table) -> pa.Table:
    """Add ``notified_us``, the time of its notification, to each change of one broker under one rule: ``change_us``."""
    # The kernels take a second to import, which commands that show results need not wait for.
    from udfs.kernel.notifications import notified_at_us

    _keep_compiled()
    changes = changes.sort_by("change_us")
    return changes.append_column("notified_us", pa.array(notified_at_us(changes["change_us"].to_numpy())))


@lru_cache(maxsize=1)
def _keep_compiled() -> None:
    from isr_batch.numba_cache import keep_compiled
    from udfs.kernel import notifications

    keep_compiled((notifications._notify,))  # noqa: SLF001 (what is kept is the entry itself)
