"""lastCaughtUpTimeMs as every release since 0.10.2 keeps it."""

from udfs.jit import kernel


@kernel
def record_caught_up(follower, fetch):
    """Take in a fetch that was read without error.

    A fetch at the log end (L) proves that the follower is caught up now. One at the log end of the
    previous fetch proves that it was caught up then. The time never goes back.
    """
    if fetch.fetch_offset >= fetch.leader_log_end_offset:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, fetch.handled_us // 1000)
    elif fetch.fetch_offset >= follower.last_fetch_leader_log_end_offset:
        follower.last_caught_up_time_ms = max(follower.last_caught_up_time_ms, follower.last_fetch_time_ms)
    follower.log_end_offset = fetch.fetch_offset
    follower.last_fetch_time_ms = fetch.handled_us // 1000


@kernel
def grant_fresh_start(follower, leader, in_isr, now_ms):
    """A new term: members of the ISR are caught up from now, others have never been."""
    follower.last_fetch_leader_log_end_offset = leader.log_end_offset
    follower.last_caught_up_time_ms = now_ms if in_isr else 0
