"""Times at which a broker notifies the controller of ISR changes, rate-limited as in releases 0.9 to 2.6.

A task runs every 2.5 s (ReplicaManager.maybePropagateIsrChanges). It sends all pending changes in one notification if
the last change is more than 5 s old or the last notification more than 60 s. A broker that changes its ISR through the
controller (2.7 and later) sends no notifications. For such a broker, the result shows what its changes would have cost
on an older release.
"""

import numpy as np
import numpy.typing as npt

from udfs.jit import entry
from udfs.records import Int64Array

LOOK_US, QUIET_US, AT_LEAST_US = 2_500_000, 5_000_000, 60_000_000


@entry
def notify(change_us, notified_us):
    """Write to ``notified_us``, for each ISR change, when the notification that includes it is sent."""
    started_us = change_us[0] // LOOK_US * LOOK_US
    notified, waiting = started_us - AT_LEAST_US, 0
    for i in range(len(change_us)):
        next_us = change_us[i + 1] if i + 1 < len(change_us) else np.int64(2**62)
        look_us = (change_us[i] // LOOK_US + 1) * LOOK_US
        while waiting <= i and look_us <= next_us:
            if look_us - change_us[i] > QUIET_US or look_us - notified > AT_LEAST_US:
                notified_us[waiting : i + 1] = look_us
                notified, waiting = look_us, i + 1
            look_us += LOOK_US


def notified_at_us(change_us: Int64Array) -> Int64Array:
    """Return, for each ISR change of a broker, when the notification with this change is sent.

    Parameters
    ----------
    change_us : int64 array of shape (changes,)
        Times of the changes in order, in microseconds.

    Returns
    -------
    int64 array of shape (changes,)
        Times in microseconds, equal for changes in the same notification.
    """
    notified_us: npt.NDArray[np.int64] = np.zeros(len(change_us), np.int64)
    if len(change_us):
        notify(np.array(change_us), notified_us)  # copied, because read-only arrays would be compiled again
    return notified_us
