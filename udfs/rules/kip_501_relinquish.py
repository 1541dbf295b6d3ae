"""kip-501-relinquish: as kip-501-pending, and a leader that takes too long over a fetch gives up leadership.

Proposed in KIP-501 (solution 2, follower.fetch.process.time.max.ms = 500). What counts is the time that
the request spends in the leader's hands: queue, local work, response queue, sending. The leader gives
up at the instant at which that passes the limit, and moves to the end of the ISR, whose next member
takes over. With nobody else in the ISR it stays.

What it fixes: requests that pile up in the queue of a slow leader, where they are not pending yet.

What it breaks: leadership thrashes if the trouble moves on, or is everybody's. Counting the wait for data
as well (parameter ``count_long_poll``) would give up leadership at every idle fetch.

The log goes on with the old leader, so the replay does: it begins an epoch of this rule with the ISR as
it stands, as a new leader would, and counts. Fetches that were under way by then give nothing up.

Source: KIP-501, solution 2.
"""

from dataclasses import replace

from udfs.jit import kernel
from udfs.records import NEVER_US
from udfs.rules import kip_501_pending
from udfs.rules.base import NO_YES, Param


@kernel
def gives_up_at_us(fetch, params):
    """When the time in the leader's hands reaches the limit, if it does before the answer."""
    limit_us = params.follower_fetch_process_time_max_ms * 1000
    if params.count_long_poll != 0:
        return fetch.arrival_us + limit_us if fetch.completed_us - fetch.arrival_us > limit_us else NEVER_US
    until_recorded_us = fetch.processed_us - fetch.arrival_us
    if until_recorded_us > limit_us:
        return fetch.arrival_us + limit_us
    if until_recorded_us + max(0, fetch.completed_us - fetch.released_us) > limit_us:
        return fetch.released_us + limit_us - until_recorded_us
    return NEVER_US


RULE = replace(
    kip_501_pending.RULE,
    id="kip-501-relinquish",
    source="KIP-501, solution 2",
    gives_up_at_us=gives_up_at_us,
    params={
        "pending_from": kip_501_pending.PENDING_FROM,
        "follower_fetch_process_time_max_ms": Param("longest that the leader may take over a fetch", 500, least=1),
        "count_long_poll": Param("true: the wait for data counts too", 0, NO_YES),
    },
    doc=__doc__,
)
