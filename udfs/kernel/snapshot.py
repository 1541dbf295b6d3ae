"""Convert the state of a replay to bytes, from which a later replay continues.

The state is that of one partition on one leader, at the end of the days that were replayed. A header of int64 (hash of
the layout, slots, replicas, and sizes in use) is followed by the arrays of ``udfs.kernel.state.State``, little-endian.
Unused entries of the append history and of the waiting appends are omitted. A snapshot that another version of this
package wrote with another layout is refused. Its days are then replayed from the beginning.
"""

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from udfs.kernel.ack_latency import COUNT, TIME
from udfs.kernel.ledger_page import FOLLOWER_PAGE, PLACES
from udfs.kernel.state import PARAMS, State, empty_state
from udfs.records import FETCH_STATE, FOLLOWER, LEADER, TERM

_RECORDS = (TERM, FETCH_STATE, FOLLOWER, LEADER, PARAMS, FOLLOWER_PAGE)
LAYOUT = int.from_bytes(
    hashlib.sha256(repr((*((r.names, r.itemsize) for r in _RECORDS), PLACES)).encode()).digest()[:7]
)
"""Hash of the snapshot's layout: the records, the order of their fields, and the number of counters."""
_HEADER = 6


def packed_snapshot(state: State) -> bytes:
    """Pack a state into bytes, which `unpacked_snapshot` restores to an equal state."""
    first, end = (int(place) for place in state.history.used)
    waiting = int(state.ledger.waits[COUNT, TIME])
    header = np.array([LAYOUT, len(state.codes), len(state.fetches), first, end, waiting], np.int64)
    return b"".join(part.tobytes() for part in (header, *_arrays_of_state(state, first, end, waiting)))


def unpacked_snapshot(data: bytes) -> State:
    """Restore the state from the bytes of a snapshot.

    Raises
    ------
    ValueError
        If the bytes have another layout, or are incomplete.
    """
    header = np.frombuffer(data.ljust(8 * _HEADER, b"\0"), np.int64, _HEADER)
    if len(data) < header.nbytes or header[0] != LAYOUT:
        message = "the state was kept by another version"
        raise ValueError(message)
    _, places, replicas, first, end, waiting = header.tolist()
    state = empty_state(places, replicas)
    state.history.used[:] = first, end
    state.ledger.waits[COUNT, TIME] = waiting
    at = header.nbytes
    for part in _arrays_of_state(state, first, end, waiting):
        if at + part.nbytes > len(data):
            message = f"the state should have more than {len(data)} bytes"
            raise ValueError(message)
        part[...] = np.frombuffer(data, part.dtype, part.size, at).reshape(part.shape)
        at += part.nbytes
    return state


def _arrays_of_state(state: State, first: int, end: int, waiting: int) -> Iterator[npt.NDArray[np.generic]]:
    """Yield views of the arrays to store: the whole state, but history and waits without unused entries."""
    yield from (
        state.term,
        state.fetches,
        state.followers,
        state.leaders,
        state.params,
        state.codes,
        state.active,
        state.due_us,
    )
    yield from (state.history.log_end_offset[first:end], state.history.time_us[first:end])
    yield from (state.ledger.pages, state.ledger.followers)
    yield from (state.ledger.waits[:waiting], state.ledger.waits[COUNT])
