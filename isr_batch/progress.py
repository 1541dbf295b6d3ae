"""Count the progress of long work in this process, so that the terminal can show it.

Spark counts its own work (`isr_batch.session.running_tasks`).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

Part = TypeVar("Part")


class WorkDone(NamedTuple):
    """How much of some work is done, and how much there is in all; ``key`` identifies the work.

    For work that cannot be counted, ``total`` is 0, and ``unit`` says what is done.
    """

    key: object
    done: float
    total: float
    unit: str


_now: list[WorkDone] = []
"""The pieces of work in progress; one that is part of another comes after it."""


def counted(parts: Iterable[tuple[Part, float]], total: float, unit: str) -> Iterator[Part]:
    """Yield parts one after the other. A part's size is counted as done once the next part is requested."""
    key, done, place = object(), 0.0, len(_now)
    _now.append(WorkDone(key, done, total, unit))
    try:
        for part, size in parts:
            yield part
            done += size
            _now[place] = WorkDone(key, done, total, unit)
    finally:
        del _now[place:]


@contextmanager
def uncounted(what: str) -> Iterator[None]:
    """Let the terminal show what is done in this block, wherever no work of it is counted."""
    place = len(_now)
    _now.append(WorkDone(object(), 0, 0, what))
    try:
        yield
    finally:
        del _now[place:]


def progress_now() -> WorkDone | None:
    """Return the progress of the innermost piece of work; None if nothing is being counted."""
    return _now[-1] if _now else None
