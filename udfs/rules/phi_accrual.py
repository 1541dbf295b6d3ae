"""phi-accrual: the rule of Kafka 3.7, but a follower is dropped only if it has also been silent for suspiciously long.

No one has proposed this for Kafka. The phi accrual failure detector outputs a degree of suspicion instead of a yes or
no. From earlier gaps between heartbeats, the detector computes the probability of a gap as long as the current silence;
phi is minus the decimal logarithm of this probability. Cassandra convicts a node at phi 8, a probability of 1e-8. Here
each fetch is a heartbeat.

The detector shows that a follower is silent, not that the follower is behind. So here a follower is dropped only if it
is both silent and behind by more than the lag time. With the parameter ``silence_is`` = enough, one of the two
conditions is enough if the follower lacks records. Then a dead follower is dropped earlier: after 9.2 s if the mean gap
is 500 ms.

Benefit: the longer the gaps between a follower's fetches usually are, the longer the follower may be silent. A leader
that is so slow that its followers can fetch only every few seconds no longer drops them.

Drawback: a follower that fetches and never catches up stays in the ISR for good, and acks=all waits for it. A leader
that was stopped mistakes its own pause for silence of all followers.

Gaps are assumed to be exponentially distributed, as in Cassandra; the paper and Akka assume a normal distribution. The
mean is over the gaps of the current term. This mean is never taken to be shorter than the time for which an idle
follower's fetch waits for data.

Source: Hayashibara et al., "The phi accrual failure detector", 2004; Cassandra, gms/FailureDetector.java.
"""

import math

from udfs.jit import kernel
from udfs.rules.base import Param, always_acts
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7
from udfs.rules.kafka_3_7 import begin_term as kafka_3_7_begin_term
from udfs.rules.kafka_3_7 import on_recorded as kafka_3_7_on_recorded

LOG10_E = 1 / math.log(10)
ENOUGH = 1


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader treats followers as in kafka-3.7, and discards the gaps measured in earlier terms."""
    follower.fetch_gaps = 0
    follower.fetch_gaps_ms = 0
    kafka_3_7_begin_term(follower, leader, in_isr, leader_is_new, now_ms, params)


@kernel
def record_gap(follower, fetch, params):
    """Update the follower's mean gap between fetches with the gap before this fetch.

    If the mean already includes ``gaps_remembered`` gaps, one gap of mean length is removed first. So recent gaps have
    more weight.
    """
    if follower.last_fetch_time_ms <= 0:
        return
    if follower.fetch_gaps >= params.gaps_remembered:
        follower.fetch_gaps_ms -= follower.fetch_gaps_ms // follower.fetch_gaps
        follower.fetch_gaps -= 1
    follower.fetch_gaps += 1
    follower.fetch_gaps_ms += max(0, fetch.handled_us // 1000 - follower.last_fetch_time_ms)


@kernel
def on_recorded(follower, leader, fetch, params):
    """Record the fetch as kafka-3.7 does, and, if it succeeded, update the mean gap between the follower's fetches."""
    if fetch.error_code == 0:
        record_gap(follower, fetch, params)
    return kafka_3_7_on_recorded(follower, leader, fetch, params)


@kernel
def suspicion(follower, now_ms, params):
    """Return phi: minus log10 of the probability that a gap between fetches lasts as long as the present silence.

    Gaps are assumed to be exponentially distributed.
    """
    silent_ms = now_ms - max(follower.last_fetch_time_ms, follower.last_caught_up_time_ms)
    mean_ms = follower.fetch_gaps_ms / follower.fetch_gaps if follower.fetch_gaps > 0 else 0.0
    return silent_ms / max(mean_ms, params.least_mean_gap_ms) * LOG10_E


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Whether the follower lacks records, has been silent for too long, and was not caught up within the lag time.

    With ``silence_is`` = enough, one of the last two conditions is enough.
    """
    silent = suspicion(follower, now_ms, params) > params.phi_threshold
    behind = now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    if params.silence_is == ENOUGH:
        return follower.log_end_offset != leader.log_end_offset and (silent or behind)
    return follower.log_end_offset != leader.log_end_offset and silent and behind


RULE = KAFKA_3_7.but(
    id="phi-accrual",
    in_force="elsewhere",
    year=2004,
    source="Hayashibara et al., Apache Cassandra",
    begin_term=begin_term,
    on_recorded=on_recorded,
    out_of_sync=out_of_sync,
    acts_in_quiet=always_acts,
    params={
        "phi_threshold": Param("suspicion above which a follower is silent", 8),
        "silence_is": Param(
            "silence is needed for a shrink in addition to lag, or is enough without it", 0, ("needed", "enough")
        ),
        "least_mean_gap_ms": Param("minimum of the mean gap: the time that an idle fetch waits for data", 500, least=1),
        "gaps_remembered": Param("maximum number of gaps between fetches in the mean", 1000, least=1),
    },
)
