"""The controller's statements about clusters and partitions. Spark's workers, which lack most packages, use it too."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ControllerWord(NamedTuple):
    """A statement of the controller at a time: about all topics if ``topic`` is None, and likewise for partitions."""

    at_us: int
    number: int
    """Orders statements of the same time."""
    kind: str
    """elr_version, min_isr, cleared, unclean_restart, active, inactive, or unclean (an election)."""
    topic: str | None = None
    partition_id: int | None = None
    broker_id: int | None = None
    value: int | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True)
class ControlledCluster:
    """A cluster's settings for eligible leader replicas, over time.

    Parameters
    ----------
    words : sequence of ControllerWord
        Statements in order of time.
    source : str
        Source of ``elr_enabled``: given, recorded, release, logged, snapshot or unknown.
    enabled : bool, optional
        Whether it has eligible leader replicas, until a statement changes it; None if unknown.
    """

    words: Sequence[ControllerWord]
    source: str
    enabled: bool | None
