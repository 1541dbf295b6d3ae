"""Moments that the naive ledger keeps, and the rows that it makes of them."""

from typing import NamedTuple

from tests.naive_rows import PartitionRow


class Score(NamedTuple):
    """Effects of a rule on producers and operators in one term on one UTC day. Times in us."""

    day: int
    exposure_us: int
    under_min_isr_us: int
    at_min_isr_us: int
    leader_alone_us: int
    under_replicated_us: int
    high_watermark_stalled_us: int
    stalled_under_min_isr_us: int
    loss_exposed_us: int
    loss_records_max: int
    isr_writes: int
    refused_appends: int
    acknowledged_appends: int
    never_acknowledged: int
    acks_all_latency_max_us: int
    acks_all_waits_1s_us: int
    acks_all_waits_30s_us: int
    acks_all_waits_1s_silent_us: int
    acks_all_wait_max_us: int
    acks_all_wait_unknown_us: int
    acks_all_unanswered_us: int
    lost_by_heir_max: int
    lost_by_first_active_max: int
    lost_by_longest_log_max: int
    high_watermark_decreases: int
    members_below_high_watermark: int
    passed_within_lag_time: int
    leader_outside_isr: int
    isr_outside_assignment: int
    first_violation_us: int
    first_violation: int
    latencies: tuple[int, ...]
    """Waits of the acknowledged appends, shortest first."""
    waits: tuple[int, ...] = ()
    """Time in which a request would wait for up to a second, and then by bucket."""


class FollowerScore(NamedTuple):
    """For how long a follower was in or out of the ISR as it should be, in one term on one UTC day. Times in us."""

    replica_id: int
    day: int
    judged_us: int
    agreed_us: int
    misses: int
    agreed_by_blame_us: int
    early: int
    late_in_isr_us: int


class Ledger(NamedTuple):
    """All scores in the order of terms and days; those of followers also in the order of the assignment."""

    scores: list[Score]
    followers: list[FollowerScore]


class Moment(NamedTuple):
    """State of a partition after an event, or after an instant at which one was due."""

    time_us: int
    row: PartitionRow
    """The last one of the timeline."""
    wrote: bool
    """Whether that row is of this moment."""
    arrived: bool
    """Whether a fetch has just arrived."""
    positions: dict[int, int]
    """E of every follower, -1 if unknown."""
    missing_us: dict[int, int | None]
    """When the first record was appended that a follower lacks; None if it lacks none."""
    heard: dict[int, int]
    """FETCH or REMOVED, whichever came last of a follower; a fetch with an error is neither."""
    missed: frozenset[int]
    """Followers that the rule has missed, and that have not been within the lag time since."""
    excused: frozenset[int]
    """Followers whose last shrink was a mistake, and that have not been back since."""
    eligible: tuple[int, ...]
    """Followers that the controller lets join, in the order of the assignment."""
    acked_end: int
    """Up to where the rule acknowledges acks=all before HW is there."""

    @property
    def acked(self) -> int:
        """Up to where acks=all is acknowledged."""
        return max(self.row.high_watermark, self.acked_end)


class Piece(NamedTuple):
    """A span of a term (us) in which nothing changes, and the moment at its beginning."""

    begin_us: int
    end_us: int
    moment: Moment


class Produced(NamedTuple):
    """An append with acks=all, and the size of the ISR that it waits for."""

    time_us: int
    offset: int
    isr_size: int
    moments_before: int
