"""The state of one partition's replay between two rows."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.kernel.append_history import AppendHistory, new_append_history
from udfs.kernel.families import FAMILIES
from udfs.kernel.ledger import Ledger, new_ledger
from udfs.records import FETCH_STATE, FOLLOWER, LEADER, TERM
from udfs.rules import COMMON_PARAMS, REGISTRY


class State(NamedTuple):
    """The state of one partition's replay between two rows of the log, with R slots and n replicas.

    A slot holds the state under one rule run, or that of a group of rule runs (``udfs.kernel.shared_runs``).
    """

    term: npt.NDArray[np.void]
    """The current term's state that is the same under all rules: one record of type TERM."""
    fetches: npt.NDArray[np.void]
    """Each follower's true state: FETCH_STATE, shape (n,). Here and below, the entry of the leader is unused."""
    followers: npt.NDArray[np.void]
    """Each follower's state in each slot: FOLLOWER, shape (R, n)."""
    leaders: npt.NDArray[np.void]
    """The partition's state in each slot: LEADER, shape (R,)."""
    params: npt.NDArray[np.void]
    """Parameters of each slot: records with one int64 field per parameter, shape (R,)."""
    codes: npt.NDArray[np.int64]
    """Rule of each slot, as its index in the registry, shape (R,)."""
    active: npt.NDArray[np.int64]
    """Slots to replay, shape (R,). The first ``TERM.active`` entries are in use. They do not include rule runs in a
    group."""
    due_us: npt.NDArray[np.int64]
    """For each slot, a lower bound for the time of its next timer, shape (R,)."""
    history: AppendHistory
    ledger: Ledger


WAITS = 1 << 12
"""Maximum number of unacknowledged acks=all appends that are tracked one by one."""

PARAMS = np.dtype(
    [
        (name, np.int64)
        for name in (*COMMON_PARAMS, *sorted({name for rule in REGISTRY.values() for name in rule.params}))
    ],
    align=True,
)
"""Record type with a field for each parameter of any rule. A rule reads those that it declares."""


def new_state(codes: Sequence[int], replicas: int) -> State:
    """Return the state before the first term. ``codes`` contains the index in the registry of each rule run's rule."""
    groups = sum(runs // 2 for runs in Counter(FAMILIES[code] for code in codes).values())
    state = empty_state(len(codes) + groups, replicas)
    state.term["runs"] = len(codes)
    state.codes[: len(codes)] = codes
    for name in ("last_caught_up_time_ms", "log_end_offset"):
        state.followers[name] = -1
    state.followers["eligible"] = 1
    return state


def empty_state(places: int, replicas: int) -> State:
    """Return a state with room for ``places`` rule runs and groups, in which all values are zero."""
    return State(
        np.zeros(1, TERM),
        np.zeros(replicas, FETCH_STATE),
        np.zeros((places, replicas), FOLLOWER),
        np.zeros(places, LEADER),
        np.zeros(places, PARAMS),
        np.zeros(places, np.int64),
        np.zeros(places, np.int64),
        np.zeros(places, np.int64),
        new_append_history(),
        new_ledger(places, replicas, WAITS),
    )
