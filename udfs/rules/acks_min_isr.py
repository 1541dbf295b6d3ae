"""acks-min-isr: the rule of Kafka 3.7, but acks=all is answered once min.insync.replicas members of the ISR have it.

Three proposals ask for earlier answers to producers: KIP-250 (``quorum.required.acks``), KIP-926
(``acks=min.insync.replicas``), and the older issue KAFKA-3471, which was closed. With Kafka's rule, a produce request
with acks=all waits for the slowest member of the ISR, and a member may be slow for the whole lag time before it is
dropped. Under this rule, the request only waits until min.insync.replicas members have the records, the leader
included. The ISR and the high watermark are those of kafka-3.7. So there are no other shrinks and expands, and
consumers may see a record later than its producer is answered.

Benefit: one slow member of the ISR does not delay producers.

Drawback: a clean election may lose acknowledged records. Kafka elects the first live member of the ISR, in the order of
the assignment, and that may be a member without the records. If k members have a record, any k - 1 of them may die, and
it is still on a member of the ISR; but it is only safe if the election prefers the longest log. The proposals do not
say which election they assume. With min.insync.replicas = 1, acks=all is acks=1.

A member counts from the time at which its joining is committed until its leaving is requested. Appends that were
acknowledged stay acknowledged, even if members leave. With the parameter ``quorum``, requests wait for this number of
members, as in KIP-250, whatever min.insync.replicas is; while the ISR is smaller, they wait. With ``counted`` =
assigned, copies outside the ISR count like those of members, so the leader may be the only member with the records. But
no clean election chooses a replica outside the ISR, so its copy may be worth nothing.

In a replay, producers send what was recorded: under this rule they wait less, but they do not send more. The records
that an election would lose include those acknowledged above the high watermark, whether the first live member of the
ISR leads next (``lost_if_leader_dies_records_max``) or the one with the shortest log (``loss_records_max``). The rule
is replayed only if it is named, not as part of ``all``.

Source: KIP-926, KIP-250, KAFKA-3471.
"""

from udfs.jit import kernel
from udfs.rules.base import Param, always_acts
from udfs.rules.kafka_3_7 import RULE as KAFKA_3_7

ASSIGNED = 1


@kernel
def has_copies(followers, leader_at, leader, params, end):
    """Return how many members of the ISR have all records below ``end``; of all replicas if ``counted`` = assigned.

    The leader is included, and members that have been requested to leave are not.
    """
    copies = 1
    for p in range(leader.replicas):
        counts = params.counted == ASSIGNED or (leader.isr & leader.pending_isr) >> p & 1
        if p != leader_at and counts and followers[p].log_end_offset >= end:
            copies += 1
    return copies


@kernel
def acknowledged_end(followers, leader_at, leader, params):
    """Return the largest log end below which enough replicas have all records, but at most the leader's."""
    enough = params.quorum if params.quorum != 0 else min(params.min_insync_replicas, leader.replicas)
    if enough == 1:
        return leader.log_end_offset
    end = leader.high_watermark
    for p in range(leader.replicas):
        own = min(followers[p].log_end_offset, leader.log_end_offset)
        if p != leader_at and own > end and has_copies(followers, leader_at, leader, params, own) >= enough:
            end = own
    return end


RULE = KAFKA_3_7.but(
    id="acks-min-isr",
    in_force="proposed",
    year=2018,
    source="KIP-926, KIP-250",
    acknowledged_end=acknowledged_end,
    acts_in_quiet=always_acts,
    on_request=True,
    params={
        "quorum": Param("number of copies that acks=all waits for, the leader's included; 0: min.insync.replicas", 0),
        "counted": Param("whose copies count", 0, ("isr", "assigned")),
    },
)
