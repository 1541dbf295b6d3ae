"""A replay that passes over quiet stretches of its log gives what a replay of every row gives."""

from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.naive_truth import Row, Term
from tests.strategies import VARIANTS, Log, Setting, logs, logs_over_midnight
from tests.unit.kernel.test_kernel_against_naive import START_US, append, begin, columns, fetch, new_replay, term
from tests.unit.kernel.test_snapshot import results
from udfs.batches.quiet_rows import AroundQuiet, packed_quiet, unpacked_quiet
from udfs.kernel.replay import replay_kernels
from udfs.records import APPEND, CHECK, FETCH, ISR_WRITE, REMOVED, SILENCE, UNKNOWN, new_kernel_output
from udfs.rules import REGISTRY
from udfs.rules.base import always_acts

LOGS = 150
KNOWN = [variant for variant in VARIANTS if REGISTRY[variant[0]].acts_in_quiet is not always_acts]
"""Rules, with parameters, that say what they do in a quiet stretch."""


class Replayed:
    """A replay of a log's terms; how often a stretch was passed over, of how many."""

    def __init__(self, log: Log, runs: list[Setting], rows_a_segment: int) -> None:
        self.asked = self.passed = 0
        self.state = new_replay(runs, log.terms[0].replicas)
        self.out = new_kernel_output(60_000, 4096)
        for begun in log.terms:
            begin(self.state, begun, self.out)
            for packed, rows in groupby(begun.rows, key=lambda row: row.kind in (APPEND, FETCH)):
                self._replay(list(rows), rows_a_segment if packed else 0)
            self._advance([], int(2**62))
            replay_kernels().end_term(self.state, self.out)
        _, _, change, score, follower, latency = results(self.out)
        # Of one instant, runs may come in another order.
        self.results = sorted(change), sorted(score), sorted(follower), sorted(zip(score, latency, strict=True))

    def _replay(self, rows: list[Row], rows_a_segment: int) -> None:
        for first in range(0, len(rows), rows_a_segment or len(rows)):
            segment = rows[first : first + (rows_a_segment or len(rows))]
            binary = packed_quiet(columns(segment), 0) if rows_a_segment else None
            if binary is None:
                self._advance(segment)
                continue
            around = unpacked_quiet(binary)
            first_row, end_row = (int(around.quiet[name][0]) for name in ("first_row", "end_row"))
            assert [column.tolist() for column in around.before] == [list(column) for column in columns(segment[:first_row])]
            self._advance(segment[:first_row])
            self.asked += 1
            if self._passes_over(around):
                self.passed += 1
            else:
                self._advance(segment[first_row:end_row])
            self._advance(segment[end_row:])

    def _passes_over(self, around: AroundQuiet) -> bool:
        return bool(
            replay_kernels().pass_over(self.state, around.quiet, around.latest, around.latencies, self.out)
        )

    def _advance(self, rows: Sequence[Row], until_us: int = -1) -> None:
        self.state.term["row"] = 0
        assert replay_kernels().advance(self.state, columns(rows), until_us, self.out)


def assert_alike(log: Log, runs: list[Setting], rows_a_segment: int) -> Replayed:
    passed_over, whole = Replayed(log, runs, rows_a_segment), Replayed(log, runs, 0)
    assert passed_over.results == whole.results, runs
    return passed_over


def runs_of(random: Random, count: int) -> list[Setting]:
    """Rules with lag times from 60 to 300 ms."""
    chosen = [random.choice(KNOWN) for _ in range(count)]
    min_isr = random.randrange(1, 4)
    return [Setting(rule, random.randrange(60, 300), min_isr, random.randrange(50), flags) for rule, flags in chosen]


def mostly_quiet_log(number: int) -> Term:
    """Two followers at the log end for seconds; in some of them appends, pauses, facts, and what goes wrong."""
    random = Random(number)
    rows, end, now_us = [append(0, 1)], 1, 0
    held, free_us = {2: 0, 3: 0}, {2: 0, 3: 0}
    wild = 0
    while now_us < 5_900_000:
        if now_us // 500_000 != wild // 64:
            wild = now_us // 500_000 * 64 + random.randrange(64)
        mood = wild % 64 // 2
        now_us += random.randrange(1000, 20_000)
        if random.random() < 0.4:
            end += random.randrange(3) if mood != 1 else random.randrange(3000)
            rows.append(append(now_us, end, random.choice([-1, -1, 1, -2])))
        for replica in (2, 3):
            if free_us[replica] > now_us:
                continue
            at_us, chance = now_us + replica, random.random()
            took_us = random.randrange(2000) if chance < 0.5 or mood != 2 else 60_000
            known = end if random.random() < 0.8 else UNKNOWN
            if mood == 3 and chance < 0.05:
                known = max(end - 1, 0)
            error = int(mood == 4 and chance < 0.05)
            offset = held[replica] if mood != 5 or chance > 0.05 else max(0, held[replica] - random.randrange(3000))
            rows.append(fetch(at_us, replica, offset, known=known, took_us=took_us, error=error))
            waits_us = random.choice([0, 0, 15_000])
            rows[-1] = rows[-1]._replace(until_us=rows[-1].until_us + waits_us, released_us=rows[-1].released_us + waits_us)
            held[replica] = max(offset, end if mood != 6 or replica == 2 else held[replica])
            pause_us = random.randrange(30_000, 260_000) if mood in (7, 8) and chance < 0.1 else 0
            free_us[replica] = at_us + took_us + waits_us + pause_us + 1
        if mood == 9 and random.random() < 0.02:
            until_us = now_us + random.randrange(80_000)
            rows.append(Row(now_us, SILENCE, until_us=until_us))
        if mood == 10 and random.random() < 0.02:
            rows.append(Row(now_us, REMOVED, replica_id=3))
        if mood == 11 and random.random() < 0.02:
            rows.append(Row(now_us, CHECK, code=UNKNOWN, until_us=now_us + random.randrange(20_000)))
        if mood == 12 and random.random() < 0.02:
            rows.append(Row(now_us, ISR_WRITE, until_us=now_us + random.randrange(40_000)))
    return term(
        *sorted(rows, key=lambda row: (row.time_us, row.kind)), leader_is_new=random.random() < 0.5,
    )._replace(end_us=START_US + 6_000_000)  # fmt: skip


@pytest.mark.parametrize("part", range(3))
def test_a_mostly_quiet_log(part: int) -> None:
    passed = 0
    for number in range(part * LOGS, (part + 1) * LOGS):
        random = Random(number)
        log = Log((mostly_quiet_log(number),))
        found = assert_alike(log, runs_of(random, random.choice([1, 2, 6, 20])), random.choice([40, 100, 400]))
        passed += found.passed
    assert passed > 3 * LOGS
