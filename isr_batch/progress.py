"""How far long work of this process has come: the loop that does it counts, the terminal asks.

What Spark does is counted by Spark (`isr_batch.session.running_tasks`).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

Part = TypeVar("Part")


class WorkDone(NamedTuple):
    """How much is done of how much; ``key`` is another one for other work."""

    key: object
    done: float
    total: float
    unit: str


_now: list[WorkDone] = []
"""Work within work is last."""


def counted(parts: Iterable[tuple[Part, float]], total: float, unit: str) -> Iterator[Part]:
    """Give parts one after the other; one counts as done, with its size, when the next is asked for."""
    key, done, place = object(), 0.0, len(_now)
    _now.append(WorkDone(key, done, total, unit))
    try:
        for part, size in parts:
            yield part
            done += size
            _now[place] = WorkDone(key, done, total, unit)
    finally:
        del _now[place:]


def progress_now() -> WorkDone | None:
    """Look at the work that is under way; None where nothing is counted."""
    return _now[-1] if _now else None
