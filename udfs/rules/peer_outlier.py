"""peer-outlier: as 3.7, but who lags no more than its fellow followers is not dropped.

Nobody has proposed it for Kafka; HDFS finds slow datanodes so (off by default): a node is slow only
if its peers, measured by the same reporter, are not. Here the reporter is the leader and the measure the time
since a follower was caught up. If the other followers in the ISR lag as well, the leader is to blame, or
the network before it, and nobody is dropped.

The limit is Hadoop's: three times the median lag of the others, or the median and three times their median
absolute deviation if that is more. Below the lag time nobody is slow. Hadoop puts the node itself into the
median and wants ten nodes; of two followers neither could ever be an outlier that way. Without another
follower in the ISR it decides as 3.7.

What it fixes: all that a slow or stopped leader does to all its followers at once.

What it breaks: followers that fail together, as in a rack, stay until the controller takes them out,
and acks=all waits. Hadoop also listens to several reporters; a partition has one leader.

Source: Apache Hadoop, OutlierDetector.getOutlierMetrics, DataNodePeerMetrics; KIP-501 for the argument.
"""

from udfs.jit import kernel
from udfs.rules.base import ADVANCE_HIGH_WATERMARK, NOTHING, TRY_TO_JOIN, Rule, after_any_write, never_acts

MEDIAN_MULTIPLIER = 3
DEVIATION_MULTIPLIER = 3
MAD_MULTIPLIER = 1.4826


@kernel
def begin_term(follower, leader, in_isr, leader_is_new, now_ms, params):
    """Members of the ISR count as caught up now, others as never; a new leader knows nobody's position."""
    follower.last_caught_up_time_ms = now_ms if in_isr else 0
    if leader_is_new:
        follower.log_end_offset = -1
        follower.last_fetch_leader_log_end_offset = -1
        follower.last_fetch_time_ms = 0
    else:
        follower.last_fetch_leader_log_end_offset = leader.log_end_offset
        follower.last_fetch_time_ms = now_ms if in_isr else 0


@kernel
def record_caught_up(follower, fetch):
    """Update the state of a follower by a fetch that was read without error.

    A fetch from the leader's log end proves that the follower is caught up now. A fetch from what was the
    log end at its previous fetch proves that it was caught up then. The time never goes back.
    """
    if fetch.fetch_offset >= fetch.leader_log_end_offset:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, fetch.handled_us // 1000)
    elif fetch.fetch_offset >= follower.last_fetch_leader_log_end_offset:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, follower.last_fetch_time_ms)
    follower.log_end_offset = fetch.fetch_offset
    follower.last_fetch_time_ms = fetch.handled_us // 1000


@kernel
def on_recorded(follower, leader, fetch, params):
    """A fetch that failed changes nothing; the leader's log end at the previous fetch never goes back."""
    if fetch.error_code != 0:
        return NOTHING
    before = follower.log_end_offset
    record_caught_up(follower, fetch)
    follower.last_fetch_leader_log_end_offset = max(
        follower.last_fetch_leader_log_end_offset, fetch.leader_log_end_offset
    )
    return TRY_TO_JOIN | ADVANCE_HIGH_WATERMARK if follower.log_end_offset != before else TRY_TO_JOIN


@kernel
def out_of_sync(follower, leader, fetch, now_ms, params):
    """Its log does not end where the leader's does, and it was not caught up within the lag time."""
    return (
        follower.log_end_offset != leader.log_end_offset
        and now_ms - follower.last_caught_up_time_ms > params.replica_lag_time_max_ms
    )


@kernel
def lag_ms(follower, leader, now_ms):
    """Time since it was caught up, none if its log ends where the leader's does."""
    if follower.log_end_offset == leader.log_end_offset:
        return 0
    return max(0, now_ms - follower.last_caught_up_time_ms)


@kernel
def median_distance(followers, p, leader_at, leader, now_ms, center_ms):
    """Median of how far the lags of the other followers in the ISR are from ``center_ms``; -1 without others."""
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
    """The others lag as well: it is no outlier among the followers in the ISR, so the leader is to blame."""
    median = median_distance(followers, p, leader_at, leader, now_ms, 0.0)
    if median < 0:
        return False
    deviation = median_distance(followers, p, leader_at, leader, now_ms, median) * MAD_MULTIPLIER
    limit_ms = max(median * MEDIAN_MULTIPLIER, median + DEVIATION_MULTIPLIER * deviation)
    return lag_ms(followers[p], leader, now_ms) <= limit_ms


@kernel
def may_join(follower, leader, fetch, now_ms, params):
    """It is eligible, and has everything below the high watermark and the start of the leader's epoch."""
    return follower.eligible != 0 and follower.log_end_offset >= max(
        leader.high_watermark, leader.leader_epoch_start_offset
    )


@kernel
def caught_up(follower, leader, now_ms, params):
    """Its log ends where the leader's does, or it was caught up within the lag time."""
    return (
        follower.log_end_offset == leader.log_end_offset
        or now_ms - follower.last_caught_up_time_ms <= params.replica_lag_time_max_ms
    )


@kernel
def eligible(follower):
    """Neither fenced nor shutting down, and it has fetched from this leader (KIP-903: its broker epoch is known)."""
    return follower.eligible != 0 and follower.log_end_offset >= 0


@kernel
def holds_high_watermark(follower, leader, fetch, now_ms, params):
    """The high watermark waits for the maximal ISR and for eligible caught-up followers."""
    return follower.in_maximal_isr != 0 or (eligible(follower) and caught_up(follower, leader, now_ms, params))


@kernel
def may_advance(leader, params):
    """Not while the committed ISR is smaller than min.insync.replicas, or than the assignment if that is less."""
    return leader.isr_size >= min(params.min_insync_replicas, leader.replicas)


RULE = Rule(
    id="peer-outlier",
    in_force="elsewhere",
    year=2017,
    source="Apache Hadoop, OutlierDetector",
    begin_term=begin_term,
    on_recorded=on_recorded,
    may_join=may_join,
    out_of_sync=out_of_sync,
    spares=spares,
    holds_high_watermark=holds_high_watermark,
    may_advance=may_advance,
    advances_on_commit=after_any_write,
    acts_in_quiet=never_acts,
    checks_per_lag_time=2,
    isr_write_in_background=True,
)
