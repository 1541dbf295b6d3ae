"""Random life of a partition in two forms: steps for a released Partition, and rows for the replay."""

import random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tests.naive_truth import APPEND, ELIGIBLE, FETCH, REMOVED, Row
from tests.unit.kernel.test_kernel_against_naive import columns
from udfs.records import Rows

Longs = npt.NDArray[np.int64]

# Kinds of steps, as java/Leader.java numbers them.
TERM, CHECK, READ, RECORD, FAILED_FETCH, GROW, REMOVE, MAKE_ELIGIBLE = range(8)
# At equal times: checks, then instants of fetches that came before, then what comes in.
FIRST, SECOND, THIRD = range(3)
START_US = 1_700_000_000_123_457
START_OFFSETS = (0, 10, 2**31 - 2, 2**32 + 7)
SMALL = 2
"""So many of them, and what is appended to them, are far from the end of an int."""
LAG_TIMES_MS = (7, 100, 250)
FENCED = 74


class Term(NamedTuple):
    """State that a leader receives at the start of a term, and the steps of the term."""

    start_us: int
    end_us: int
    start_offset: int
    isr: int
    leader_is_new: bool
    steps: list[tuple[int, ...]]
    rows: list[Row]


class Life(NamedTuple):
    """A partition's settings and terms. Replicas are numbered by their position in the assignment."""

    replicas: int
    leader: int
    lag_ms: int
    min_isr: int
    latency_ms: int
    phase_ms: int
    terms: list[Term]

    @property
    def steps(self) -> Longs:
        return np.array([step for term in self.terms for step in term.steps], np.int64)


def life(seed: int, *, latency: bool, removals: bool, small: bool, terms: int = 3, moves: int = 200) -> Life:
    """Draw a life: its ISR written with latency or at once, members removed by the controller or not, offsets small."""
    draw = random.Random(seed)
    replicas = draw.choice((2, 3, 3, 4))
    lag_ms = draw.choice(LAG_TIMES_MS)
    empty = Life(
        replicas,
        draw.randrange(replicas),
        lag_ms,
        draw.choice((1, 2, 2, 3)),
        draw.choice((0, 1, lag_ms // 3, lag_ms)) if latency else 0,
        draw.choice((0, 1, lag_ms // 3, -lag_ms)),
        [],
    )
    start_us, end = START_US, draw.choice(START_OFFSETS[: SMALL if small else None])
    for number in range(terms):
        drawn = _Moves(draw, empty, start_us, end)
        if removals and draw.random() < 0.3:
            drawn.remove(draw.choice(drawn.followers))  # perhaps before it was ever heard of
        for _ in range(moves):
            drawn.move(removals=removals)
        empty.terms.append(drawn.term(leader_is_new=number == 0 or draw.random() < 0.5))
        start_us, end = empty.terms[-1].end_us + 1, drawn.end
    return empty


class _Moves:
    """Draws one term."""

    def __init__(self, draw: random.Random, life: Life, start_us: int, start_offset: int) -> None:
        self.draw = draw
        self.life = life
        self.start_us = self.now_us = start_us
        self.start_offset = self.end = start_offset
        # Followers ask from the start of a batch; 4.0 takes them to it from anywhere else (KAFKA-17803).
        self.batches = [life.terms[0].start_offset if life.terms else start_offset, start_offset]
        self.followers = [p for p in range(life.replicas) if p != life.leader]
        self.free_us = dict.fromkeys(self.followers, start_us)
        self.asked = dict.fromkeys(self.followers, start_offset)
        self.seen = dict.fromkeys(self.followers, start_offset)
        self.rows: list[Row] = []
        self.steps: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def duration_us(self) -> int:
        lag_us = self.life.lag_ms * 1000
        parts = [lag_us // part for part in (16, 8, 4, 2, 1)]
        return self.draw.choice((0, 1, 500, 999, 1000, 1001, 2000, *parts, lag_us - 1000, lag_us + 1000))

    def move(self, *, removals: bool) -> None:
        if self.draw.random() < 0.7:
            self.now_us += self.duration_us() // self.draw.choice((1, 1, 4))
        what = self.draw.random()
        who = self.draw.choice(self.followers)
        if what < 0.3:
            self.grow()
        elif what < 0.95 or (what < 0.97 and not removals):
            self.fetch(who)
        elif what < 0.97:
            self.remove(who)
        else:
            flag = self.draw.randrange(2)
            self.take((MAKE_ELIGIBLE, self.now_us, who, 0, flag), ELIGIBLE, who, 0, flag)

    def take(self, step: tuple[int, ...], kind: int, who: int, offset: int, code: int) -> None:
        self.steps.append(((self.now_us, THIRD, len(self.rows), 0), step))
        self.rows.append(Row(self.now_us, kind, who, offset, code))

    def remove(self, who: int) -> None:
        self.take((REMOVE, self.now_us, who, 0, 0), REMOVED, who, 0, 0)

    def grow(self) -> None:
        records = self.draw.choice((1, 1, 2, 5))
        self.end += records
        self.batches.append(self.end)
        self.take((GROW, self.now_us, 0, records, 0), APPEND, 0, self.end, self.draw.choice((-1, 1)))

    def fetch(self, who: int) -> None:
        """Ask when the former fetch is answered; for the log end as a rule, or near it, or for what was the log end."""
        self.now_us = max(self.now_us, self.free_us[who])
        end, asked, seen = self.end, self.asked[who], self.seen[who]
        before = self.batches[-2:][0]
        offset = self.draw.choice((end, end, end, seen, seen, asked, before, before, self.draw.choice(self.batches)))
        failed = self.draw.random() < 0.06
        handled_us = self.now_us + self.duration_us() // self.draw.choice((1, 10, 10))
        processed_us = handled_us + (self.duration_us() // 10 if self.draw.random() < 0.5 else 0)
        answered_us = processed_us + self.duration_us()
        code = FENCED if failed else 0
        last = (FAILED_FETCH if failed else RECORD, processed_us, who, offset, int(processed_us == handled_us))
        self.instant(who, len(self.rows), 0, (READ, handled_us, who, offset, 0))
        self.instant(who, len(self.rows), 1, last)
        self.rows.append(
            Row(self.now_us, FETCH, who, offset, code, -1, handled_us, processed_us, processed_us, answered_us)
        )
        self.free_us[who] = answered_us
        if not failed:
            self.asked[who], self.seen[who] = offset, end

    def instant(self, who: int, row: int, stage: int, step: tuple[int, ...]) -> None:
        us = step[1]
        self.steps.append(((us, THIRD, row, 1 + stage) if us == self.now_us else (us, SECOND, who, stage), step))

    def term(self, *, leader_is_new: bool) -> Term:
        end_us = max([self.now_us, *(key[0] for key, _ in self.steps)]) + self.duration_us()
        period_us, phase_us = self.life.lag_ms // self.checks * 1000, self.life.phase_ms * 1000
        first = phase_us - (phase_us - self.start_us) // period_us * period_us
        for due_us in range(first, end_us + 1, period_us):
            self.steps.append(((due_us, FIRST, 0, 0), (CHECK, due_us, 0, 0, 0)))
        isr = 1 << self.life.leader
        for p in self.followers:
            isr |= (self.draw.random() < 0.7) << p
        begun = (TERM, self.start_us, 0, isr, int(leader_is_new))
        steps = [begun, *(step for _, step in sorted(self.steps))]
        return Term(self.start_us, end_us, self.start_offset, isr, leader_is_new, steps, self.rows)

    checks = 2


def groups(term: Term) -> tuple[Rows, Longs, Longs, Longs]:
    """Rows of a term, and of each time: itself, the first row after it, and the last step of it."""
    rows = columns(term.rows)
    times = np.array([step[1] for step in term.steps], np.int64)
    lasts = np.flatnonzero(np.append(times[1:] != times[:-1], True))
    after = np.searchsorted(rows.time_us, times[lasts], side="right")
    return rows, times[lasts], after, lasts
