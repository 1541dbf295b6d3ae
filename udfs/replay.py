"""The replay of one leader's term of one partition through many rules at once.

``advance`` takes a stretch of rows (``udfs.records.Rows``) and the state so far, and knows nothing
of where they came from. Rows are in order of their time; for a fetch that is its arrival. Its later
instants, the periodic check of every rule, and the answer to an ISR write are timers, which fire in
between. Work that no rule changes (what the follower holds and lacks, the history of appends) is done
once for all rules.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from udfs.jit import entry, kernel
from udfs.rules import REGISTRY
from udfs.rules.base import Rule
from udfs.state import room_for_a_row
from udfs.steps import build_steps

compiled_room_for_a_row = kernel(room_for_a_row)


class Kernels(NamedTuple):
    """The two entry points; see the functions of the same names."""

    begin_term: Callable[..., None]
    advance: Callable[..., int]


@lru_cache(maxsize=1)
def kernels() -> Kernels:
    """Compiled for the registry, once a process (some seconds at the first call)."""
    return build_kernels(tuple(REGISTRY.values()))


def build_kernels(rules: Sequence[Rule]) -> Kernels:
    """Compile the replay for these rules; a run's code is a position in ``rules``."""
    steps = build_steps(rules)
    begin_term, take_in_row, fire_timers = steps.begin_term, steps.take_in_row, steps.fire_timers

    @entry
    def entry_to_begin_term(state, isr_at_start, high_watermark, leader_is_new, out):
        """Reset for a term that ``state.term`` and ``state.params`` already describe."""
        begin_term(state, isr_at_start, high_watermark, leader_is_new, out)

    @entry
    def advance(state, rows, until_us, out):
        """Replay rows from ``state.term.row`` on, then the timers up to ``until_us``.

        Returns 1 when all is done, 0 when ``out`` has to be emptied first; call again with the same rows.
        """
        term = state.term[0]
        room = compiled_room_for_a_row(len(state.leaders), term.replicas)
        while term.row < len(rows.time_us):
            if max(out.filled) + room > len(out.replica):
                return 0
            i = term.row
            if rows.time_us[i] > term.end_us:
                term.ignored += len(rows.time_us) - i
                term.row = len(rows.time_us)
                break
            fire_timers(state, rows.time_us[i], out)
            take_in_row(state, rows, i, out)
            term.row += 1
        if max(out.filled) + room > len(out.replica):
            return 0
        fire_timers(state, min(until_us, term.end_us), out)
        return 1

    return Kernels(entry_to_begin_term, advance)
