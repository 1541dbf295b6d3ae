"""kafka-19996-expand: the rule of Kafka 3.7, but under min.insync.replicas only a follower that is caught up may join.

Proposed in KAFKA-19996; open in August 2026, in no release up to 4.4.0. Since 3.7 the high watermark does not advance
while the ISR is smaller than min.insync.replicas, so it falls further and further behind the log end. A follower that
is far behind the log end reaches the high watermark and joins; but it is not caught up, and the next check drops it.

Benefit: no more rounds of joining and leaving, each with two ISR writes, in which acks=all producers are accepted for
half a lag time and then wait for a follower that is far behind.

Drawback: the ISR stays under min.insync.replicas until a follower was caught up within the lag time.
Under constant load a follower that gains slowly stays outside for longer, and producers are refused.

The new condition is the caught-up test of the shrink, at the time of the fetch. If the ISR is not below
min.insync.replicas, and at all shrinks, this rule decides like the rule of Kafka 3.7.

Source: apache/kafka pull 23024, its description and its test; Partition.isFollowerInSync of 4.3.1.
"""

from udfs.jit import kernel
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7
from udfs.rules.kafka_3_7 import caught_up, may_advance
from udfs.rules.kafka_3_7 import may_join as kafka_3_7_may_join


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower may join by the rule of Kafka 3.7; if the high watermark is frozen, it must be caught up."""
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
