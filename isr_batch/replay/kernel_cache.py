"""The kernels of the replay and of the simulation, compiled once a machine."""

from functools import lru_cache

from isr_batch import compiled
from udfs.kernel.replay import kernels
from udfs.simulation.loop import simulation


def digest_of_sources() -> str:
    """A hash of what the kernels are made of: machine code, and states that it has left, are of these sources alone."""
    return compiled.digest_of()


@lru_cache(maxsize=1)
def keep_compiled() -> None:
    """Let the entry points of this process load their machine code, and save what they compile."""
    compiled.keep_compiled((*kernels(), simulation()), digest_of_sources())
