"""Results of the naive model as rows of the tables."""

from typing import NamedTuple


class Change(NamedTuple):
    """A change of the ISR or of the leadership, with the state of the follower at that time."""

    time_us: int
    kind: str
    replica_id: int
    isr_before: frozenset[int]
    isr_after: frozenset[int]
    high_watermark: int
    leader_log_end_offset: int
    follower_log_end_offset: int
    last_caught_up_time_ms: int
    lag_ms: int
    made_by: str
    true_lag_ms: int
    causes: frozenset[str]
    leader_held_ms: int
    leader_silent_ms: int | None
    time_error_ms: int | None = None
    depends_on: str | None = None


class ReplicaRow(NamedTuple):
    """State of a follower from an instant on: a row of replica_timeline."""

    time_us: int
    replica_id: int
    log_end_offset: int
    lag_messages: int
    last_caught_up_time_ms: int
    in_isr: bool


class PartitionRow(NamedTuple):
    """State of a partition from an instant on: a row of partition_timeline."""

    time_us: int
    log_end_offset: int
    high_watermark: int
    isr: frozenset[int]
    acknowledged: int
