"""kafka-19996-expand: the rule of Kafka 3.7, but under min.insync.replicas only a follower that is caught up may join.

KAFKA-19996 proposes this rule. The issue was open in August 2026, and no release up to 4.4.0 has the rule. Since 3.7
the high watermark does not advance while the ISR is smaller than min.insync.replicas, so the high watermark falls
further and further behind the log end. A follower that is far behind the log end then reaches the high watermark and
joins. But this follower is not caught up, and the next check drops it.

Benefit: such a follower no longer joins and leaves again and again. Each time, there are two ISR writes, and producers
with acks=all are accepted for half a lag time, only to wait for a follower that is far behind.

Drawback: the ISR stays under min.insync.replicas until a follower outside it was caught up within the last lag time.
Under constant load, a follower that catches up slowly stays outside for longer, and producers are refused until it
joins.

The new condition is the one under which a check keeps a member (caught up within the lag time, or at the log end). The
leader tests the condition at each fetch of a follower outside the ISR. All shrinks are as in Kafka 3.7, and so are all
expansions of an ISR that is not below min.insync.replicas.

Source: apache/kafka pull 23024, its description and its test; Partition.isFollowerInSync of 4.3.1.
"""

from udfs.jit import kernel
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7
from udfs.rules.kafka_3_7 import caught_up, may_advance
from udfs.rules.kafka_3_7 import may_join as kafka_3_7_may_join


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower may join: as in kafka-3.7, but below min.insync.replicas only if it is caught up."""
    return kafka_3_7_may_join(follower, leader, fetch, now_ms, params) and (
        may_advance(leader, params) or caught_up(follower, leader, now_ms, params)
    )


RULE = KAFKA_3_7.but(
    id="kafka-19996-expand",
    in_force="proposed",
    year=2026,
    source="KAFKA-19996, apache/kafka pull 23024",
    may_join=may_join,
)
