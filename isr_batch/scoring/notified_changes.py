"""Compute when a broker notifies the controller of ISR changes.

Notifications are rate-limited as in releases 0.9 to 2.6: a task runs every 2.5 s, and sends all pending changes in one
notification if the last change is more than 5 s old or the last notification more than 60 s
(ReplicaManager.maybePropagateIsrChanges). Since 2.7, brokers send no notifications, because they write ISR changes
through the controller. For such brokers, the result is what the changes would have caused on an older release. Spark's
workers import this module, so it may not import packages that are only installed on the driver.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

LOOK_US: Final = 2_500_000
QUIET_US: Final = 5_000_000
AT_LEAST_US: Final = 60_000_000
_FAR_US: Final = 1 << 62


def with_notified(changes: pa.Table) -> pa.Table:
    """Sort a broker's ISR changes under one rule run by time, and add the column ``notified_us``.

    It is the time at which the broker notifies the controller of the change.

    Parameters
    ----------
    changes : pa.Table
        ISR changes with their time in ``change_us`` (epoch microseconds).
    """
    changes = changes.sort_by("change_us")
    return changes.append_column("notified_us", pa.array(notified_at_us(changes["change_us"].to_pylist()), pa.int64()))


def notified_at_us(change_us: Sequence[int]) -> list[int]:
    """Return, for each ISR change of a broker, when the notification that contains it is sent.

    Parameters
    ----------
    change_us : sequence of int
        Times of the changes in epoch microseconds, in order.

    Returns
    -------
    list of int
        Times in epoch microseconds, equal for changes in the same notification.
    """
    sent_us: list[int] = []
    last_sent_us = -_FAR_US
    for number, (us, next_us) in enumerate(zip(change_us, [*change_us[1:], _FAR_US], strict=False), 1):
        allowed_us = min(us + QUIET_US, last_sent_us + AT_LEAST_US)
        look_us = (max(us, allowed_us) // LOOK_US + 1) * LOOK_US
        if look_us <= next_us:
            sent_us += [look_us] * (number - len(sent_us))
            last_sent_us = look_us
    return sent_us
