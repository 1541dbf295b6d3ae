"""Records of what the controller stated about clusters and partitions.

Runs in Spark's workers, which lack most packages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ControllerWord(NamedTuple):
    """A statement of the controller at a time.

    ``topic`` None means all topics, ``partition_id`` None all partitions.
    """

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
    """Whether a cluster has eligible leader replicas (ELR), and the controller's statements over time.

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
