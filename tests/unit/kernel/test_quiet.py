"""A replay that passes over quiet stretches of its log gives what a replay of every row gives."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from random import Random
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.naive_truth import Row
from tests.strategies import VARIANTS, Log, Setting, logs, logs_over_midnight, shifted, slowed
from tests.unit.kernel.test_kernel_against_naive import START_US, append, begin, columns, fetch, new_replay, term
from tests.unit.kernel.test_snapshot import results
from udfs.batches import quiet_rows
from udfs.batches.quiet_rows import (
    AroundQuiet,
    QuietRows,
    fetches_from_below,
    packed_quiet,
    recall_appends,
    unpacked_quiet,
)
from udfs.kernel.replay import advance_replay, end_replay_of_term, pass_over_in_replay
from udfs.records import (
    APPEND,
    BY_RULE,
    CHANGE_COLUMNS,
    CHECK,
    DOUBT,
    ELIGIBLE,
    EXPAND,
    FETCH,
    IDLE,
    ISR_WRITE,
    REMOVED,
    SHRINK,
    SILENCE,
    THIN,
    new_kernel_output,
)
from udfs.rules import REGISTRY
from udfs.rules.base import always_acts

LOGS = 100
LOGS_NIGHTLY = 2000
DAY_US = 86_400_000_000
KNOWN = [variant for variant in VARIANTS if REGISTRY[variant[0]].acts_in_quiet is not always_acts]
"""Rules, with parameters, that say what they do in a quiet stretch."""


class Replayed:
    """A replay of a log's terms; how often a stretch was passed over, of how many."""

    def __init__(self, log: Log, runs: list[Setting], rows_a_segment: int) -> None:
        self.asked = self.passed = self.recalled = 0
        self.pieces: list[QuietRows] = []
        self.state = new_replay(runs, log.terms[0].replicas)
        self.out = new_kernel_output(60_000, 4096)
        for begun in log.terms:
            begin(self.state, begun, self.out)
            self.pieces.clear()
            for packed, rows in groupby(begun.rows, key=lambda row: row.kind in (APPEND, FETCH)):
                self._replay(list(rows), rows_a_segment if packed else 0)
            self._advance([], 2**62)
            end_replay_of_term(self.state, self.out)
        _, _, change, score, follower, latency = results(self.out)
        # Within one instant, runs may come in another order.
        settled = CHANGE_COLUMNS.index("leader_held_ms")  # from then on only the rows around drops
        change = [row if row[2] == SHRINK and row[11] == BY_RULE else row[:settled] for row in change]
        self.results = sorted(change), sorted(score), sorted(follower), sorted(zip(score, latency, strict=True))

    def _replay(self, rows: list[Row], rows_a_segment: int) -> None:
        for first in range(0, len(rows), rows_a_segment or len(rows)):
            segment = rows[first : first + (rows_a_segment or len(rows))]
            with patch.object(quiet_rows, "LEAST_SHARE", 0):
                binary = packed_quiet(columns(segment)) if rows_a_segment else None
            if binary is None:
                self._advance(segment)
                continue
            around = unpacked_quiet(binary)
            assert around is not None
            first_row, end_row = (int(around.quiet[name][0]) for name in ("first_row", "end_row"))
            assert [column.tolist() for column in around.before] == [
                list(column) for column in columns(segment[:first_row])
            ]
            self._advance(segment[:first_row])
            self.asked += 1
            if self._passes_over(around):
                self.passed += 1
                self.pieces.append(QuietRows((), around, partial(as_batch, segment)))
            else:
                self._advance(segment[first_row:end_row])
            self._advance(segment[end_row:])

    def _passes_over(self, around: AroundQuiet) -> bool:
        self._advance([], int(around.quiet["from_us"][0]))
        return bool(pass_over_in_replay(self.state, around.quiet, around.latest, around.latencies, self.out))

    def _advance(self, rows: Sequence[Row], until_us: int = -1) -> None:
        if self.pieces and fetches_from_below(columns(rows), self.pieces[-1]):
            recall_appends(self.state.history, self.pieces)
            self.pieces.clear()
            self.recalled += 1
        self.state.term["row"] = 0
        assert advance_replay(self.state, columns(rows), until_us, self.out)


def as_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns(rows)._asdict())


def assert_alike(log: Log, runs: list[Setting], rows_a_segment: int) -> Replayed:
    passed_over, whole = Replayed(log, runs, rows_a_segment), Replayed(log, runs, 0)
    assert passed_over.results == whole.results, runs
    return passed_over


def runs_of(random: Random, count: int) -> list[Setting]:
    """Rules with lag times from 60 to 300 ms."""
    chosen = [random.choice(KNOWN) for _ in range(count)]
    min_isr = random.randrange(1, 4)
    return [Setting(rule, random.randrange(60, 300), min_isr, random.randrange(50), flags) for rule, flags in chosen]


TROUBLES = (
    "burst", "slow leader", "shorter log", "error", "lost records", "throttled", "pause", "long pause", "silence",
    "removed", "check seen", "isr write", "not eligible", "idle", "thin", *[""] * 19,
)  # fmt: skip
"""Disturbances of half a second: mostly none."""


class MostlyQuiet:
    """Two followers at the log end for seconds, with occasional disturbances."""

    def __init__(self, number: int) -> None:
        self.random = Random(number)
        self.mid_term = self.random.random() < 0.2
        self.rows, self.end = [append(0, 1)], 1
        self.held = {2: int(self.mid_term), 3: int(self.mid_term)}
        self.free_us = {2: 0, 3: 0}

    def log(self) -> Log:
        now_us, trouble = 0, ""
        until_us = self.random.choice([6_000_000, self.random.randrange(2_000_000, 6_000_000)])
        while now_us < 5_900_000:
            step_us = self.random.randrange(1000, 20_000)
            if (now_us + step_us) // 500_000 != now_us // 500_000:
                trouble = self.random.choice(TROUBLES)
            now_us += step_us
            if self.random.random() < 0.4:
                self.end += self.random.randrange(3000 if trouble == "burst" else 3)
                self.rows.append(append(now_us, self.end, self.random.choice([-1, -1, 1, -2])))
            for replica in (2, 3):
                if self.free_us[replica] <= now_us:
                    self.fetch(now_us + replica, replica, trouble)
            if self.random.random() < 0.03:
                self.rows += self.fact(now_us, trouble)
        begun = term(
            *sorted(self.rows, key=lambda row: (row.time_us, row.kind)), leader_is_new=self.random.random() < 0.5,
            begins_mid_term=self.mid_term, held_at_start=(1, 1, -1), phase_known=self.random.random() < 0.7,
        )  # fmt: skip
        log = Log((begun._replace(end_us=START_US + until_us),))
        midnight_us = DAY_US - START_US - self.random.randrange(6_000_000)
        return shifted(log, midnight_us) if self.random.random() < 0.3 else log

    def fetch(self, now_us: int, replica: int, trouble: str) -> None:
        random, chance = self.random, self.random.random()
        took_us = (
            random.choice([60_000, 150_000]) if trouble == "slow leader" and chance < 0.5 else random.randrange(2000)
        )
        known = -1 if random.random() < 0.2 else max(0, self.end - (trouble == "shorter log" and chance < 0.05))
        lost = random.randrange(3000) if trouble == "lost records" and chance < 0.05 else 0
        offset = max(0, self.held[replica] - lost)
        error = int(trouble == "error" and chance < 0.05)
        row = fetch(now_us, replica, offset, known=known, took_us=took_us, error=error)
        waits_us = random.choice([0, 0, 15_000])
        self.rows.append(row._replace(until_us=row.until_us + waits_us, released_us=row.released_us + waits_us))
        longest_us = {"pause": 120_000, "long pause": 400_000}.get(trouble, 0) if chance < 0.1 else 0
        self.free_us[replica] = (
            now_us + took_us + waits_us + 1 + (random.randrange(30_000, longest_us) if longest_us else 0)
        )
        if trouble != "throttled" or replica == 2:
            self.held[replica] = max(offset, self.end)

    def fact(self, now_us: int, trouble: str) -> list[Row]:
        until_us = now_us + self.random.randrange(80_000)
        return {
            "silence": [Row(now_us, int(SILENCE), until_us=until_us)],
            "idle": [Row(now_us, int(IDLE), until_us=until_us)],
            "thin": [Row(now_us, int(THIN), 3, self.random.randrange(100_000), until_us=until_us + 200_000)],
            "removed": [Row(now_us, int(REMOVED), replica_id=3)],
            "check seen": [
                Row(
                    now_us,
                    int(CHECK),
                    self.random.choice([2, 3]),
                    self.end + self.random.randrange(3),
                    -1,
                    until_us=until_us,
                ),
            ],
            "isr write": [Row(now_us, int(ISR_WRITE), until_us=until_us)],
            "not eligible": [Row(now_us, int(ELIGIBLE), replica_id=3, code=self.random.randrange(2))],
        }.get(trouble, [])


def compare(number: int) -> Replayed:
    random = Random(number)
    runs = runs_of(random, random.choice([1, 2, 6, 20]))
    log = MostlyQuiet(number).log()
    if number % 3 == 0:  # so slow that requests may wait for more than a second in a stretch
        log, runs = slowed(log, runs, 15)
    return assert_alike(log, runs, random.choice([40, 100, 400]))


@pytest.mark.parametrize("part", range(3))
def test_mostly_quiet_logs(part: int) -> None:
    found = [compare(number) for number in range(part * LOGS, (part + 1) * LOGS)]
    assert sum(each.passed for each in found) > 3 * LOGS
    assert sum(each.recalled for each in found) > LOGS // 20


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(3, 6))
def test_many_mostly_quiet_logs(part: int) -> None:
    for number in range(part * LOGS_NIGHTLY, (part + 1) * LOGS_NIGHTLY):
        compare(number)


@seed(20261127)
@settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data(), logs())
def test_any_log(data: st.DataObject, log: Log) -> None:
    if data.draw(st.booleans()):
        log = data.draw(logs_over_midnight(log))
    chosen = data.draw(st.lists(st.sampled_from(KNOWN), min_size=1, max_size=6))
    lag_ms = st.integers(2, 8 * log.lag_ms)
    assert_alike(log, [Setting(rule, data.draw(lag_ms), 2, 0, flags) for rule, flags in chosen], 20)


def test_rules_that_say_nothing_of_quiet_stretches() -> None:
    """They learn from each fetch, or let the high watermark pass a follower."""
    unsaid = {name for name, rule in REGISTRY.items() if rule.acts_in_quiet is always_acts}
    assert unsaid == {"acks-min-isr", "majority", "phi-accrual"}


def steady(until_ms: int, took_us: Callable[[int], int] = lambda _: 100, gone_ms: int = 10**9) -> list[Row]:
    """Two followers that fetch at the log end every 20 ms; the second one does so no more from some time on."""
    rows = [append(0, 1)]
    for ms in range(1, until_ms, 20):
        rows += [append(1000 * ms, ms + 1), fetch(1000 * ms + 2000, 2, ms + 1, took_us=took_us(ms))]
        if ms < gone_ms:
            rows.append(fetch(1000 * ms + 3000, 3, ms + 1, took_us=100))
    return rows


def cut_at(rows: list[Row], *cuts_ms: int) -> tuple[Row, ...]:
    """Facts that change nothing end segments."""
    facts = [Row(1000 * ms, int(ELIGIBLE), 3, code=1) for ms in cuts_ms]
    return tuple(sorted([*rows, *facts], key=lambda row: (row.time_us, row.kind)))


def late_now_and_then(ms: int) -> int:
    return {1001: 60_000, 3001: 8000}.get(ms, 1000 + 4000 * (ms // 20 % 3 == 0))


@pytest.mark.parametrize(("until_ms", "passed"), [(10_500, False), (5500, True)])
def test_how_late_the_leader_was_is_known_behind_a_stretch(until_ms: int, passed: bool) -> None:
    """It was 60 ms late at 1 s, which counts until 6 s; and then it counts how late it was since, not before."""
    rows = cut_at(steady(until_ms + 800, late_now_and_then, gone_ms=until_ms + 100), 2000, until_ms)
    log = Log((term(*rows)._replace(end_us=START_US + 1000 * (until_ms + 800)),))
    found = assert_alike(log, [Setting("kafka-3.7", 200)], 10**6)
    assert (found.passed, found.asked) == (2 + passed, 3)
    assert found.results[0], "a shrink, with the uncertainty of its time"


def test_a_shrink_that_is_written_within_a_stretch() -> None:
    rows = [row for row in steady(2000) if row.replica_id != 3 or not 500_000 < row.time_us < 720_000]
    log = Log((term(*cut_at(rows, 745, 1500))._replace(end_us=START_US + 2_000_000),))
    found = assert_alike(log, [Setting("kafka-3.7", 100, flags=(("isr_write_latency_ms", 150),))], 10**6)
    assert [row[1] - START_US < 700_000 for row in found.results[0]] == [True, False]


def test_a_high_watermark_that_is_left_behind() -> None:
    """Followers fetch from where they are when the log begins: up to 2.3 that does not move the high watermark."""
    rows = [fetch(1000 * ms, replica, 1, known=1) for ms in range(350, 900, 10) for replica in (2, 3)]
    begun = term(
        *rows, begins_mid_term=True, start_offset=1, start_high_watermark=0, held_at_start=(-1, 1, 1),
        leader_is_new=False,
    )  # fmt: skip
    passed = [assert_alike(Log((begun,)), [Setting(rule, 100, flags=flags)], 20).passed for rule, flags in KNOWN]
    assert min(passed) == 0
    assert max(passed) > 0


def test_a_check_with_a_line_after_a_stretch() -> None:
    """Due at 800 ms, it ran at 950 ms, when 100 records had come since 945 ms: the next one is at 1400 ms only."""
    before = [row for row in steady(2000) if row.time_us < 945_000]
    after = [row._replace(offset=row.offset + 200) for row in steady(2000) if row.time_us >= 945_000]
    seen = Row(799_000, int(CHECK), code=-2, until_us=950_000)
    rows = cut_at([*before, seen, append(945_000, 1042), *after], 940)
    log = Log((term(*rows)._replace(end_us=START_US + 2_000_000),))
    found = assert_alike(log, [Setting("kafka-0.8", 600, flags=(("replica_lag_max_messages", 50),))], 10**6)
    assert found.passed > 1
    assert [row[1] - START_US for row in found.results[0] if row[2] == SHRINK] == [950_000] * 2


def test_a_leader_that_is_silent_within_a_stretch_is_not_late() -> None:
    """Its time for a fetch meanwhile does not show how late it is otherwise: the uncertainty of a shrink's time."""
    rows = steady(1500, lambda ms: 15_000 if 500 < ms < 680 else 100, gone_ms=800)
    rows.append(Row(500_000, int(SILENCE), until_us=700_000))
    log = Log((term(*cut_at(rows, 695))._replace(end_us=START_US + 1_500_000),))
    found = assert_alike(log, [Setting("kafka-3.7", 200)], 10**6)
    assert [row[CHANGE_COLUMNS.index("time_error_ms")] for row in found.results[0]] == [2]
    assert found.passed < found.asked


def test_a_follower_that_is_back_since_its_latest_fetch() -> None:
    """It keeps pace, and joins by a fetch over which the leader took 150 ms; soon behind the stretch it is gone."""
    rows = [row for row in steady(700) if row.replica_id != 3 or row.time_us < 500_000]
    rows += [fetch(701_000, 3, 500, took_us=100), append(703_000, 722), fetch(705_000, 3, 682, took_us=100)]
    rows += [fetch(1000 * ms, 2, 722, took_us=100) for ms in range(704, 1800, 20)]
    rows.append(fetch(725_000, 3, 722, took_us=150_000))
    rows += [fetch(1000 * ms, 3, 722, took_us=100) for ms in range(880, 1400, 20)]
    rows += [append(1_395_000, 723), *(fetch(1000 * ms + 1, 2, 723, took_us=100) for ms in range(1396, 1800, 20))]
    log = Log((term(*cut_at(rows, 700, 1390))._replace(end_us=START_US + 1_800_000),))
    found = assert_alike(log, [Setting("kafka-3.7", 100)], 10**6)
    kinds = [row[2] for row in found.results[0]]
    assert kinds == [SHRINK, EXPAND, SHRINK, DOUBT]
    assert found.passed < found.asked


def test_more_appends_wait_than_a_replay_remembers_one_by_one() -> None:
    """Of 6000 within 30 ms a replay merges some, so that their latencies are not those of single appends."""
    burst = [append(510_000 + 5 * n, 1000 + n) for n in range(6000)]
    rows = sorted([*(row for row in steady(500) if row.time_us < 500_000), *burst], key=lambda row: row.time_us)
    rows += [
        fetch(1000 * ms + 50 * replica, replica, 6999, took_us=100) for ms in range(545, 900, 20) for replica in (2, 3)
    ]
    log = Log((term(*rows)._replace(end_us=START_US + 900_000),))
    found = assert_alike(log, [Setting("kafka-3.7", 100)], 10**6)
    assert found.passed == 0
