"""Everything that the replay of one partition keeps between two rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.history import History, new_history
from udfs.ledger import Ledger, new_ledger
from udfs.records import FETCH_STATE, FOLLOWER, LEADER, TERM
from udfs.rules import COMMON_PARAMS, REGISTRY


class State(NamedTuple):
    """Everything between two rows. R rule runs, n replicas of the assignment."""

    term: npt.NDArray[np.void]
    """TERM, shape (1,)."""
    fetches: npt.NDArray[np.void]
    """FETCH_STATE, shape (n,); the leader's own place is unused here and below."""
    followers: npt.NDArray[np.void]
    """FOLLOWER, shape (R, n)."""
    leaders: npt.NDArray[np.void]
    """LEADER, shape (R,)."""
    params: npt.NDArray[np.void]
    """One int64 field a parameter, shape (R,)."""
    codes: npt.NDArray[np.int64]
    """Position of the rule in the registry, shape (R,)."""
    history: History
    ledger: Ledger


WAITS = 1 << 12
"""Appends that producers wait for, remembered one by one."""

PARAMS = np.dtype(
    [
        (name, np.int64)
        for name in (*COMMON_PARAMS, *sorted({name for rule in REGISTRY.values() for name in rule.params}))
    ],
    align=True,
)
"""Parameters of all rules together; a rule reads its own."""


def new_state(codes: Sequence[int], replicas: int) -> State:
    """State for rule runs of the given codes and an assignment of ``replicas``, before any term."""
    runs = len(codes)
    state = State(
        np.zeros(1, TERM),
        np.zeros(replicas, FETCH_STATE),
        np.zeros((runs, replicas), FOLLOWER),
        np.zeros(runs, LEADER),
        np.zeros(runs, PARAMS),
        np.array(codes, np.int64),
        new_history(),
        new_ledger(runs, replicas, WAITS),
    )
    for name in ("last_caught_up_time_ms", "log_end_offset"):
        state.followers[name] = -1
    state.followers["eligible"] = 1
    return state


def room_for_a_row(runs: int, replicas: int) -> int:
    """Result rows of a kind that one input row, and the timers before it, can give at most.

    Each follower is read, recorded and answered once at most, joins, leaves and makes the leader give up
    once at most; a change of the ISR may write every follower's row.
    """
    return runs * replicas * (6 * replicas + 12)
