"""kafka-2.7: the leader asks for a new ISR and goes on; one request at a time.

In force from 2.7.0 to 3.2.3. KIP-497 took the writing of the ISR from the leader to the controller: the
leader asks (AlterIsr, since 3.2 AlterPartition) and the answer comes later. A replica that is about to
join counts for the high watermark from the asking on (the maximal ISR); one that is about to leave
counts until the answer. While a request is in flight the partition neither expands nor shrinks, so a
second replica that could join has to come again with a later fetch.

What it broke: up to 3.0.2 the answer did not move the high watermark, so that after a shrink it waited
for the next append, or for a fetch that moved a follower (KAFKA-13091, fixed in 3.1: parameter
``advances_on_commit``). With KRaft, releases 3.0 to 3.2 also took every change of the ISR for a new term
(KAFKA-13790): the terms in the log show it, but a replayed change does not begin a term of its own.

Source: Partition.maybeExpandIsr, maybeShrinkIsr, sendAlterIsrRequest of 2.7.2; handleAlterIsrUpdate of
3.1.2.
"""

from udfs.jit import kernel
from udfs.rules import kafka_0_10_2, kafka_2_1
from udfs.rules.base import NO_YES, Param, Rule


@kernel
def advances_on_commit(expanding, params):
    """Since 3.1."""
    return params.advances_on_commit != 0


RULE = Rule(
    id="kafka-2.7",
    in_force="2.7.0 - 3.2.3",
    source="KIP-497; 3.1: KAFKA-13091",
    begin_term=kafka_2_1.begin_term_since_2_4,
    on_recorded=kafka_2_1.on_recorded_since_2_4,
    may_join=kafka_2_1.may_join,
    out_of_sync=kafka_2_1.out_of_sync,
    holds_high_watermark=kafka_0_10_2.holds_high_watermark,
    advances_on_commit=advances_on_commit,
    checks_per_lag_time=2,
    isr_write_in_background=True,
    params={"advances_on_commit": Param("true: 3.1.0 to 3.2.3", 0, NO_YES)},
)
