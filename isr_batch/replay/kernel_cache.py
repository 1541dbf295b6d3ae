"""Store the machine code of the kernels for replays and simulations on disk, so that they are compiled only once.

``python -m isr_batch.replay.kernel_cache`` compiles the replay's kernels in advance (`make setup` runs it). Otherwise
the first replay compiles them.
"""

from functools import lru_cache

import numpy as np

from isr_batch import numba_cache
from udfs.batches.replay import NO_ROWS
from udfs.batches.segments import spread_steps
from udfs.kernel import replay
from udfs.kernel.quiet import quiet_stretch_of, walk_through_segment
from udfs.kernel.state import new_state
from udfs.records import FETCH, QUIET, Rows, new_kernel_output
from udfs.simulation.loop import simulation_loop


@lru_cache(maxsize=1)
def keep_compiled() -> None:
    """Make this process load the machine code of all kernels from disk, and save what it compiles there."""
    keep_packing_compiled()
    entries = (
        replay.begin_replay_of_term, replay.replay_has_room, replay.advance_replay, replay.close_day_of_replay,
        replay.end_replay_of_term, replay.pass_over_in_replay, replay.change_min_isr_in_replay, simulation_loop,
        spread_steps,
    )  # fmt: skip
    numba_cache.keep_compiled_by_numba(entries)


@lru_cache(maxsize=1)
def keep_packing_compiled() -> None:
    """Do the same as `keep_compiled`, but only for the functions that pack segments."""
    numba_cache.keep_compiled_by_numba((walk_through_segment,))


def compile_replay() -> None:
    """Compile each entry point for the argument types of a replay, by replaying a term without events."""
    keep_compiled()
    state, out = new_state([0], 1), new_kernel_output(1000)
    state.fetches["replica_id"] = state.term["replicas"] = 1
    replay.begin_replay_of_term(state, 1, 0, True, out)
    replay.replay_has_room(state, out)
    replay.advance_replay(state, NO_ROWS, 0, out)
    replay.close_day_of_replay(state, out)
    replay.end_replay_of_term(state, out)
    no_stretch, no_latencies = np.frombuffer(bytes(QUIET.itemsize), QUIET), np.frombuffer(b"", "<i8").reshape(0, 3)
    replay.pass_over_in_replay(state, no_stretch, NO_ROWS, no_latencies, out)
    quiet_stretch_of(Rows(*np.array([[0], [FETCH], *[[0]] * 8])))
    spread_steps(np.empty((4, 0), np.int64), np.empty((6, 0), np.int64), np.empty((10, 0), np.int64))


if __name__ == "__main__":
    compile_replay()
