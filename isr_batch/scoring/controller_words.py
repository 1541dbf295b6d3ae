"""Classes for the controller's statements about clusters and partitions, which are metadata records or derived events.

Spark's workers import this module, so it may not import packages that are only installed on the driver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ControllerWord(NamedTuple):
    """A statement of the controller at a time, such as a new setting or an unclean election.

    If ``topic`` is None, the statement is about all topics. If ``partition_id`` is None, the statement is about all
    partitions.
    """

    at_us: int
    number: int
    """Sort key among statements at the same time."""
    kind: str
    """elr_version, min_isr, cleared, unclean_restart, active, inactive, or unclean (an election)."""
    topic: str | None = None
    partition_id: int | None = None
    broker_id: int | None = None
    value: int | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True)
class ControlledCluster:
    """Whether a cluster uses eligible leader replicas (ELR), and the controller's statements about it.

    Parameters
    ----------
    words : sequence of ControllerWord
        Statements in chronological order.
    source : str
        Source of ``enabled``: given, recorded, release, logged, snapshot or unknown.
    enabled : bool, optional
        Whether the cluster uses ELR before the first statement that changes it; None if unknown.
    """

    words: Sequence[ControllerWord]
    source: str
    enabled: bool | None
