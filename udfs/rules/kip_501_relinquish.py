"""kip-501-relinquish: like kip-501-pending, but a leader that takes too long over a fetch gives up leadership.

KIP-501 proposes this rule (solution 2, follower.fetch.process.time.max.ms = 500). The leader measures how long it holds
each fetch: in the request queue, in local work, in the response queue and in sending. As soon as it has held a fetch
for longer than this setting allows, the leader gives up leadership and moves to the end of the ISR. The next member of
the ISR becomes the leader. A leader that is alone in the ISR remains the leader.

Benefit: the rule also helps if fetches pile up in the request queue of a slow leader, where kip-501-pending does not
consider them pending yet.

Drawback: leadership moves back and forth if the trouble moves along with it, or affects all brokers. If the measured
time includes the wait for data (parameter ``count_long_poll``), every fetch of an idle partition makes the leader give
up leadership.

The transfer did not happen in the recorded cluster, so the brokers' logs show the old leader only. The replay therefore
keeps the old leader. Under this rule the replay begins a new leader epoch with the current ISR, as a new leader would,
and counts the transfer. Fetches in flight at the time of the transfer cause no further transfer.

Source: KIP-501, solution 2.
"""

from udfs.jit import kernel
from udfs.records import NEVER_US
from udfs.rules.base import NO_YES, Param
from udfs.rules.kip_501_pending import ARRIVAL
from udfs.rules.kip_501_pending import RULE as KIP_501_PENDING


@kernel
def gives_up_at_us(fetch, params):
    """Return when the leader has held the fetch for as long as the limit; NEVER_US if it answers the fetch sooner."""
    limit_us = params.follower_fetch_process_time_max_ms * 1000
    if params.count_long_poll != 0:
        return fetch.arrival_us + limit_us if fetch.completed_us - fetch.arrival_us > limit_us else NEVER_US
    until_recorded_us = fetch.processed_us - fetch.arrival_us
    if until_recorded_us > limit_us:
        return fetch.arrival_us + limit_us
    if until_recorded_us + max(0, fetch.completed_us - fetch.released_us) > limit_us:
        return fetch.released_us + limit_us - until_recorded_us
    return NEVER_US


@kernel
def acts_in_quiet(quiet, leader, params):
    """Whether the leader held a fetch for longer than the limit, or ``pending_from`` is arrival (kip-501-pending)."""
    longest_us = quiet.longest_fetch_us if params.count_long_poll != 0 else quiet.longest_held_us
    return longest_us > params.follower_fetch_process_time_max_ms * 1000 or params.pending_from == ARRIVAL


RULE = KIP_501_PENDING.but(
    id="kip-501-relinquish",
    in_force="proposed",
    year=2019,
    source="KIP-501, solution 2",
    gives_up_at_us=gives_up_at_us,
    acts_in_quiet=acts_in_quiet,
    params={
        "follower_fetch_process_time_max_ms": Param("longest time that the leader may take over a fetch", 500, least=1),
        "count_long_poll": Param("true: include the wait for data", 0, NO_YES),
    },
)
