"""majority: no follower is dropped, and a record is committed once a majority of the replicas has it.

This is not a rule for an ISR, but Raft's rule for when a record is committed. As a reference, majority shows what an
ISR gains and costs. The high watermark is the (n/2 + 1)-th largest log end of all n replicas, including the leader. The
metadata log of KRaft works in this way, and so does Redpanda; KIP-1171 proposes it for Kafka's partitions.

Benefit: there are no shrinks, so no spurious ones; a slow or dead follower does not delay commits as long as a majority
is alive.

Cost: with three replicas, a partition stays available after one failure. With an ISR and min.insync.replicas = 1, it
also survives a second failure if the ISR has shrunk in between. And while a majority of the replicas lags, nothing is
committed at all, whatever min.insync.replicas is.

The tables of results need an ISR. Under this rule, the ISR consists of all replicas that have fetched in this term, and
no replica leaves it. The columns on lost records assume that Kafka's controller may elect any member of the ISR; Raft
only elects a replica that has all committed records. Raft commits records of earlier terms only together with a record
of the new term, and a new leader in Raft writes such a record at once. A new leader in Kafka writes no such record, so
the replay commits records of earlier terms without it.

Source: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm", 2014, 5.3 and 5.4.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NOTHING, TRY_TO_JOIN, Rule


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """The leader sets each follower's log end offset (Raft: matchIndex) to unknown until the follower's first fetch."""
    follower.log_end_offset = -1
    follower.last_caught_up_time_ms = now_ms if in_isr else 0


@kernel
def on_recorded(follower, leader, fetch, params):
    """Set the follower's log end offset to the fetch offset. A failed fetch is ignored.

    After a successful fetch, the follower joins and the high watermark may advance.
    """
    if fetch.error_code != 0:
        return NOTHING
    follower.log_end_offset = fetch.fetch_offset
    if fetch.fetch_offset >= fetch.leader_log_end_offset:
        follower.last_caught_up_time_ms = fetch.handled_us // 1000
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Return false: no follower is ever out of sync."""
    return False


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """Return true: every follower that fetches joins."""
    return True


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """Return true: the high watermark waits for every follower that is not outvoted (see `outvoted`)."""
    return True


@kernel
def outvoted(followers, p, leader_at, leader):
    """Whether the other replicas that have every record of follower ``p`` are a majority of all replicas."""
    ahead = 1
    for q in range(leader.replicas):
        if q != p and q != leader_at:
            more = followers[q].log_end_offset - followers[p].log_end_offset
            ahead += more > 0 or (more == 0 and q < p)
    return ahead > leader.replicas // 2


RULE = Rule(
    id="majority",
    in_force="reference",
    year=2014,
    source="Raft, KIP-1171",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    holds_high_watermark=holds_high_watermark,
    outvoted=outvoted,
    checks_per_lag_time=2,
    isr_write_in_background=True,
)
