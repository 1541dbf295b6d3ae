"""What the controller says, of a cluster or a partition. Also for Spark's workers, which lack most packages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ControllerWord(NamedTuple):
    """What the controller says at a time: of all topics if ``topic`` is None, of all partitions likewise."""

    at_us: int
    number: int
    """Which of several at the same time comes first."""
    kind: str
    """elr_version, min_isr, cleared, unclean_restart, active, inactive, or unclean (an election)."""
    topic: str | None = None
    partition_id: int | None = None
    broker_id: int | None = None
    value: int | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True)
class ControlledCluster:
    """What is known of a cluster as a whole.

    Parameters
    ----------
    words : sequence of ControllerWord
        In order.
    source : str
        Of ``elr_enabled``: given, recorded, release, logged, snapshot or unknown.
    enabled : bool, optional
        Whether it has eligible leader replicas, until a Word says otherwise; None: nothing tells.
    """

    words: Sequence[ControllerWord]
    source: str
    enabled: bool | None
