"""Small logs on which rules differ: the proposals' own examples, and further cases.

As in ``proposal_examples``, one partition and one term each, and times are ms from the start of the term.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from isr_batch.simulation.proposal_examples import (
    STORIES,
    ExampleAppend,
    ExampleFetch,
    ExampleTerm,
    kafka_10853_price_example,
)


def _fetch(ms: int, replica: int, offset: int, held_ms: int = 0) -> ExampleFetch:
    """The leader takes ``held_ms`` to read for it, and answers at once then."""
    return ExampleFetch(ms, replica, offset, ms + held_ms, ms + held_ms, ms + held_ms, ms + held_ms)


def stale_high_watermark_log() -> ExampleTerm:
    """A follower is back under min.insync.replicas: at the high watermark, and 10 s away from the log end."""
    back = [_fetch(1000 + 2000 * n, 2, 100 * n) for n in range(6)]
    return ExampleTerm(
        "A leader alone under min.insync.replicas, and a follower that is back 500 records behind",
        (1, 2),
        0,
        20_000,
        [ExampleAppend(500, 500)],
        [*back, *(_fetch(ms, 2, 500) for ms in range(12_000, 20_000, 500))],
        isr=(1,),
        min_insync_replicas=2,
    )


def slow_leader_log() -> ExampleTerm:
    """The leader takes 900 ms for each fetch, five times, and then no fetch comes for 14 s."""
    fetches = [_fetch(1000 * n, 2, 0, 900) for n in range(5)]
    return ExampleTerm(
        "A leader that has been slow with every fetch, and then hears nothing from its follower for 14 s",
        (1, 2),
        0,
        30_000,
        [ExampleAppend(5_000, 10)],
        [*fetches, *(_fetch(ms, 2, 10) for ms in range(19_000, 30_000, 500))],
    )


def just_joined_log() -> ExampleTerm:
    """A follower joins, lacks a record from 2 s on, and is not heard of until 40 s."""
    return ExampleTerm(
        "A follower that stops just after it has joined the ISR",
        (1, 2),
        0,
        60_000,
        [ExampleAppend(2_000, 10)],
        [_fetch(1000, 2, 0), *(_fetch(ms, 2, 10) for ms in range(40_000, 60_000, 500))],
        isr=(1,),
    )


WORKED_LOGS: Final[tuple[Callable[[], ExampleTerm], ...]] = (
    *STORIES.values(),
    partial(kafka_10853_price_example, acks=1),
    stale_high_watermark_log,
    slow_leader_log,
    just_joined_log,
)
