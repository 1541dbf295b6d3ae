"""Count the progress of long work in this process, so that the terminal can show it.

Spark counts its own work (`isr_batch.session.running_tasks`).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

Part = TypeVar("Part")


class WorkDone(NamedTuple):
    """The progress of a piece of work: ``done`` of ``total``, both in ``unit``. ``key`` identifies the work.

    For work that is not counted, ``total`` is 0, and ``unit`` describes the work.
    """

    key: object
    done: float
    total: float
    unit: str


_now: list[WorkDone] = []
"""The pieces of work in progress. A piece that is part of another comes after it."""


def counted(parts: Iterable[tuple[Part, float]], total: float, unit: str) -> Iterator[Part]:
    """Yield each part in ``parts``, which are pairs (part, size), and count its size once the next part is requested.

    ``total`` is the sum of the sizes, in ``unit``.
    """
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
    """Let `progress_now` return ``what``, which describes the work in the ``with`` block, while the block runs.

    While the block does work that `counted` counts, `progress_now` returns the progress of that work instead.
    """
    place = len(_now)
    _now.append(WorkDone(object(), 0, 0, what))
    try:
        yield
    finally:
        del _now[place:]


def progress_now() -> WorkDone | None:
    """Return the progress of the work that runs now, of the innermost part if it is nested; None if nothing runs."""
    return _now[-1] if _now else None
