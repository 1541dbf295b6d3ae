"""fluss-0.9: the rule of Kafka 3.7, but no member of the ISR gets a fresh lag time when a term begins.

Apache Fluss adopted Kafka's rule. Up to 0.9.1, a leader that the coordinator notifies of its term forgets every
follower: the follower's log end offset becomes unknown, and the leader treats the follower as never caught up.
Therefore the first check of a term drops every member that has not fetched in this term yet, whether anything was
appended or not. Since KAFKA-4485, Kafka treats members as caught up at the start of a term, which grants each of them a
fresh lag time. The shrinks that fluss-0.9 makes and kafka-3.7 does not show what this fresh lag time is worth. If a
follower is dropped before its first fetch in a term, and the term is younger than the lag time, the verdict is unknown.
Scores of mistakes do not include such shrinks.

Benefit: a member that died before the election leaves at the first check.

Drawback: after every election, the first check drops healthy followers that have not fetched yet. In Fluss, it also
does so if the coordinator repeats a notification of the same term. A first fetch below the log end does not help. Such
a fetch could only show that the follower was caught up at its previous fetch, and this term has no previous fetch.

A follower may join once it has every record below the high watermark, even if it has not reached the start of the
leader's epoch. Fluss uses min.insync.replicas as configured; this rule uses at most the number of assigned replicas, as
Kafka does. The brokers' logs show terms, but not repeated notifications of the same term, so such a notification drops
no follower in a replay. The rule is replayed only if it is named, not as part of ``all``.

Source: apache/fluss 0.9.1, Replica, FollowerReplica; issue 3698, fixed in August 2026.
"""

from udfs.jit import kernel
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader treats every follower as never caught up, even ISR members, and sets log end offsets to unknown."""
    follower.last_caught_up_time_ms = 0
    follower.log_end_offset = -1
    follower.last_fetch_leader_log_end_offset = 0
    follower.last_fetch_time_ms = 0


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Whether the follower is eligible and has every record below the high watermark."""
    return follower.eligible != 0 and follower.log_end_offset >= leader.high_watermark


RULE = KAFKA_3_7.but(
    id="fluss-0.9",
    in_force="elsewhere",
    year=2026,
    source="apache/fluss issue 3698",
    begin_term=begin_term,
    may_join=may_join,
    on_request=True,
)
