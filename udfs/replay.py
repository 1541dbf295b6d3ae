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

from udfs import ledger
from udfs.jit import entry, kernel
from udfs.rules import REGISTRY
from udfs.rules.base import Rule
from udfs.state import room_for_a_row
from udfs.steps import build_steps

compiled_room_for_a_row = kernel(room_for_a_row)


class Kernels(NamedTuple):
    """The entry points; see the functions of the same names."""

    begin_term: Callable[..., None]
    advance: Callable[..., int]
    end_term: Callable[..., None]
    has_room: Callable[..., bool]


@lru_cache(maxsize=1)
def kernels() -> Kernels:
    """Compiled for the registry, once a process (some seconds at the first call)."""
    return build_kernels(tuple(REGISTRY.values()))


@entry
def has_room(state, out):
    """Whether another row, the timers before it, and a page closed in between find room."""
    runs, replicas = len(state.leaders), state.term[0].replicas
    return (
        max(out.filled[0], out.filled[1], out.filled[2]) + compiled_room_for_a_row(runs, replicas) <= len(out.replica)
        and out.filled[3] + runs <= len(out.score)
        and out.filled[4] + runs * replicas <= len(out.follower_score)
    )


def build_kernels(rules: Sequence[Rule]) -> Kernels:
    """Compile the replay for these rules; a run's code is a position in ``rules``."""
    steps = build_steps(rules)
    begin_term, take_in_row, fire_timers = steps.begin_term, steps.take_in_row, steps.fire_timers

    @entry
    def entry_to_begin_term(state, isr_at_start, high_watermark, leader_is_new, out):
        """Reset for a term that ``state.term`` and ``state.params`` already describe."""
        begin_term(state, isr_at_start, high_watermark, leader_is_new, out)

    @kernel
    def let_time_pass(state, until_us, out):
        """Fire timers, and close a page at each midnight before what happens then; 0 when there is no room."""
        while has_room(state, out):
            midnight_us = state.term[0].day_ends_us
            if midnight_us > until_us:
                fire_timers(state, until_us, out)
                return 1
            fire_timers(state, midnight_us - 1, out)
            ledger.close(state, midnight_us, out)
        return 0

    @entry
    def advance(state, rows, until_us, out):
        """Replay rows from ``state.term.row`` on, then the timers up to ``until_us``.

        Returns 1 when all is done, 0 when ``out`` has to be emptied first; call again with the same rows.
        """
        term = state.term[0]
        while term.row < len(rows.time_us):
            i = term.row
            if rows.time_us[i] > term.end_us:
                term.ignored += len(rows.time_us) - i
                term.row = len(rows.time_us)
                break
            if let_time_pass(state, rows.time_us[i], out) == 0:
                return 0
            take_in_row(state, rows, i, out)
            term.row += 1
        return let_time_pass(state, min(until_us, term.end_us), out)

    @entry
    def end_term(state, out):
        """Close the pages, after ``advance`` has come to the end of the term."""
        ledger.end(state, max(state.term[0].start_us, state.term[0].end_us), out)

    return Kernels(entry_to_begin_term, advance, end_term, has_room)
