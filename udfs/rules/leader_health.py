"""leader-health: the rule of Kafka 3.7, but a leader that is slow itself gives its followers more time.

No one has proposed this for Kafka. Lifeguard, which is part of memberlist and so of Consul and Nomad, has the same idea
for the membership protocol SWIM: a member that is slow itself must not declare others slow. Each member keeps a counter
from 0 to 8, the local health multiplier. The counter goes up by 1 with each failure in the member's own work, and down
by 1 with each success. Timeouts are multiplied by the counter plus one.

Under this rule, the counter depends on how long the leader holds each fetch: in the request queue, in local work, in
the response queue and in sending. The wait for data is not included (as in kip-501-relinquish). A fetch held for more
than 500 ms raises the counter by one; any other fetch lowers it by one. If a check runs more than 500 ms late, because
the leader was stopped, this check takes the counter to be one higher than it is: with a counter of 0, a follower has
two lag times. Without this addition, the leader would look healthy to the check, since a leader that wakes up runs its
check before it handles any fetch.

Benefit: no shrinks during the leader's own trouble or right after it.

Drawback: while the leader is in trouble, it drops dead followers up to eight lag times later, and until then producers
with acks=all wait. After a pause of more than two lag times, the leader still drops all followers.

Source: Dadgar, Phillips, Currey, "Lifeguard", 2018; memberlist awareness.go, ApplyDelta, ScaleTimeout.
"""

from udfs.jit import kernel
from udfs.rules.base import NOTHING, Param
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7
from udfs.rules.kafka_3_7 import begin_term as kafka_3_7_begin_term


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader treats followers as in kafka-3.7, and sets its own health counter to 0 (healthy)."""
    leader.health_multiplier = 0
    kafka_3_7_begin_term(follower, leader, in_isr, leader_is_new, now_ms, params)


@kernel
def on_completed(follower, leader, fetch, params):
    """Raise the health counter by 1 if the leader held the fetch too long; otherwise lower it by 1."""
    until_recorded_us = min(fetch.processed_us, fetch.completed_us) - fetch.arrival_us
    held_us = until_recorded_us + max(0, fetch.completed_us - fetch.released_us)
    if held_us > params.prompt_ms * 1000:
        leader.health_multiplier = min(leader.health_multiplier + 1, params.most_lateness)
    else:
        leader.health_multiplier = max(leader.health_multiplier - 1, 0)
    return NOTHING


@kernel
def stretched_lag_time_ms(leader, now_ms, params):
    """Return the lag time times (1 + the health counter). For a check that runs late, the counter is one higher."""
    late = now_ms - leader.check_due_us // 1000 > params.prompt_ms
    return params.replica_lag_time_max_ms * (1 + min(leader.health_multiplier + late, params.most_lateness))


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower's log end is not the leader's, and it was not caught up within the stretched lag time."""
    return (
        follower.log_end_offset != leader.log_end_offset
        and now_ms - follower.last_caught_up_time_ms > stretched_lag_time_ms(leader, now_ms, params)
    )


@kernel
def acts_in_quiet(quiet, leader, params):
    """Whether the health counter is above 0, or the leader held some fetch for so long that the counter rose."""
    return leader.health_multiplier != 0 or quiet.longest_held_us > params.prompt_ms * 1000


RULE = KAFKA_3_7.but(
    id="leader-health",
    in_force="elsewhere",
    year=2018,
    source="Lifeguard, hashicorp/memberlist",
    begin_term=begin_term,
    on_completed=on_completed,
    out_of_sync=out_of_sync,
    acts_in_quiet=acts_in_quiet,
    params={
        "prompt_ms": Param("a prompt fetch is at most this long in the leader's hands; a prompt check, this late", 500),
        "most_lateness": Param("maximum number of lag times that are added", 8),
    },
)
