"""Classes for the controller's statements about clusters and partitions.

They are used in Spark's workers, where most packages are not installed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ControllerWord(NamedTuple):
    """A statement of the controller, at a time.

    If ``topic`` is None, it is about all topics; if ``partition_id`` is None, about all partitions.
    """

    at_us: int
    number: int
    """Order among statements of the same time."""
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
        Statements in chronological order.
    source : str
        Source of ``enabled``: given, recorded, release, logged, snapshot or unknown.
    enabled : bool, optional
        Whether the cluster has ELR, until a statement changes it; None if unknown.
    """

    words: Sequence[ControllerWord]
    source: str
    enabled: bool | None
