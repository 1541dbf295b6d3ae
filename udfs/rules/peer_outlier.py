"""peer-outlier: the rule of Kafka 3.7, but a follower that lags no more than the other followers is not dropped.

No one has proposed this for Kafka. HDFS detects slow datanodes in this way (off by default): a node that measures its
latencies to several peers reports a peer as slow only if the other peers are not slow. Here the leader is the measuring
node, and the measure is the time since a follower was last caught up. If the other followers in the ISR lag as well,
the leader or its network is to blame, and no follower is dropped.

A follower is an outlier if its lag exceeds both `replica.lag.time.max.ms` and a limit computed from the lags of the
other followers in the ISR: 3 x median, or median + 3 x 1.4826 x median absolute deviation, whichever is greater. The
formula is Hadoop's, with two changes. First, Hadoop's median also includes the node that is tested. If it did so here,
neither of two followers could ever be an outlier. Second, Hadoop requires at least ten nodes, and this rule does not.
If the ISR has no other follower, this rule decides like the rule of Kafka 3.7.

Benefit: a slow or stopped leader no longer drops all its followers at once.

Drawback: followers that fail together, such as those in one rack, stay in the ISR until the controller removes them,
and acks=all waits for them. Hadoop combines reports from several nodes. Here only the partition's leader measures.

Source: Apache Hadoop, OutlierDetector.getOutlierMetrics, DataNodePeerMetrics; KIP-501 for the argument.
"""

from udfs.jit import kernel
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7

MEDIAN_MULTIPLIER = 3
DEVIATION_MULTIPLIER = 3
MAD_MULTIPLIER = 1.4826


@kernel
def lag_ms(follower, leader, now_ms):
    """Return the time since a follower was last caught up, in ms; 0 if its log ends where the leader's does."""
    if follower.log_end_offset == leader.log_end_offset:
        return 0
    return max(0, now_ms - follower.last_caught_up_time_ms)


@kernel
def median_distance(followers, p, leader_at, leader, now_ms, center_ms):
    """Return the median distance from ``center_ms`` to the lags of the ISR's followers other than ``p``, in ms.

    If the ISR has no other follower, the result is -1.
    """
    peers, median = 0, 0.0
    for q in range(len(followers)):
        peers += q != p and q != leader_at and followers[q].in_isr != 0
    for q in range(len(followers)):
        if q == p or q == leader_at or followers[q].in_isr == 0:
            continue
        distance = abs(lag_ms(followers[q], leader, now_ms) - center_ms)
        nearer = 0
        for other in range(len(followers)):
            if other != p and other != leader_at and followers[other].in_isr != 0:
                its = abs(lag_ms(followers[other], leader, now_ms) - center_ms)
                nearer += its < distance or (its == distance and other < q)
        if nearer in ((peers - 1) // 2, peers // 2):
            median += distance / 2 if peers % 2 == 0 else distance
    return median if peers > 0 else -1.0


@kernel
def spares(followers, p, leader_at, leader, now_ms, params):
    """Whether follower ``p`` is not an outlier: its lag is within the limit computed from the lags of the others."""
    median = median_distance(followers, p, leader_at, leader, now_ms, 0.0)
    if median < 0:
        return False
    deviation = median_distance(followers, p, leader_at, leader, now_ms, median) * MAD_MULTIPLIER
    limit_ms = max(median * MEDIAN_MULTIPLIER, median + DEVIATION_MULTIPLIER * deviation)
    return lag_ms(followers[p], leader, now_ms) <= limit_ms


RULE = KAFKA_3_7.but(
    id="peer-outlier",
    in_force="elsewhere",
    year=2017,
    source="Apache Hadoop, OutlierDetector",
    spares=spares,
)
