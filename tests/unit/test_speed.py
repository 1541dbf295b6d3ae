"""What a row costs, in passes of a small loop over the same rows: half the speed fails, a busy machine does not.

Both are compiled by the same compiler in the same process, and timed in turn by the CPU time of the thread. The best
rounds count, and there are more of them as long as the ratio is too high. No time of the clock is looked at.
"""

import time
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.kernel import read_only, replay_in_memory, runs_of_lag_times
from benchmarks.log import Log, Plan, append_rates, log_of
from udfs.batches.replay import RuleRun
from udfs.jit import entry
from udfs.records import FETCH, RUNS_A_ROW, Int64Array, Rows
from udfs.rules import BASELINE, REGISTRY

FEWEST, MOST = 5, 40
"""Rounds."""
NOISE = 1.5
"""A ratio may be so much worse than it was; twice as slow is to fail."""

# As measured: to be lowered when the kernel gets faster.
RULES_BY_ONE = 6.5
"""All rules in one pass, by one rule."""
LAG_TIMES_BY_ONE = 5.1
"""As many lag times as a row of the timelines can stand for, by one; 13 if they shared nothing."""
BUSY_BY_SMALL_LOOP = 9.4
"""One rule on a partition with appends, by the small loop."""
IDLE_BY_SMALL_LOOP = 10.0
"""One rule on partitions without."""


@entry
def small_loop(rows: Rows, followers: Int64Array, out: Int64Array) -> int:
    """What a replay cannot do without: look at each row, keep each follower's place, take a minimum, write a row."""
    log_end, filled = 0, 0
    for i in range(len(rows.kind)):
        if rows.kind[i] == FETCH:
            mine = followers[rows.replica_id[i] & 7]
            mine[0] = rows.offset[i]
            if rows.offset[i] >= log_end:
                mine[1] = max(mine[1], rows.handled_us[i] // 1000)
        else:
            log_end = max(log_end, rows.offset[i])
        least = log_end
        for p in range(len(followers)):
            least = min(least, followers[p, 0])
        row = out[filled]
        filled = (filled + 1) % len(out)
        row[0] = rows.time_us[i]
        row[1] = log_end
        row[2] = least
        row[3] = rows.time_us[i] // 1000 - followers[rows.replica_id[i] & 7, 1]
    return filled


@pytest.fixture(scope="module")
def busy() -> Log:
    return read_only(log_of(Plan(100_000, 1, "alone")))


@pytest.fixture(scope="module")
def idle() -> Log:
    plan = Plan(250_000, 25)
    log = log_of(plan)
    without_appends = np.flatnonzero(append_rates(plan) == 0)
    sizes = np.diff(log.starts)[without_appends]
    keep = np.concatenate([np.arange(log.starts[i], log.starts[i + 1]) for i in without_appends])
    rows = Rows(*(column[keep] for column in log.rows))
    return read_only(Log(plan, rows, log.partitions[without_appends], np.concatenate([[0], np.cumsum(sizes)])))


def small(log: Log) -> None:
    small_loop(log.rows, np.zeros((8, 2), np.int64), np.zeros((1024, 4), np.int64))


def ratio(work: Callable[[], object], by: Callable[[], object], bound: float) -> float:
    """CPU time of one by that of the other, best rounds; the first round is not counted, it loads machine code."""
    best = [np.inf, np.inf]
    for i in range(1 + MOST):
        for which, run in enumerate((work, by)):
            begun = time.thread_time()
            run()
            if i:
                best[which] = min(best[which], time.thread_time() - begun)
        if i >= FEWEST and best[0] < bound * best[1]:
            break
    return float(best[0] / best[1])


def replay(log: Log, *rules: str) -> None:
    replay_in_memory(log, [RuleRun(rule) for rule in rules])


def test_all_rules_share_the_work_that_no_rule_changes(busy: Log) -> None:
    bound = NOISE * RULES_BY_ONE
    assert ratio(lambda: replay(busy, *REGISTRY), lambda: replay(busy, BASELINE), bound) < bound


def test_lag_times_of_a_rule_share_their_state(busy: Log) -> None:
    bound = NOISE * LAG_TIMES_BY_ONE
    lag_times = runs_of_lag_times(int(RUNS_A_ROW))
    assert ratio(lambda: replay_in_memory(busy, lag_times), lambda: replay(busy, BASELINE), bound) < bound


def test_a_row_of_a_busy_partition_costs_no_more_than_it_did(busy: Log) -> None:
    bound = NOISE * BUSY_BY_SMALL_LOOP
    assert ratio(lambda: replay(busy, BASELINE), lambda: small(busy), bound) < bound


def test_a_fetch_of_an_idle_partition_costs_no_more_than_it_did(idle: Log) -> None:
    bound = NOISE * IDLE_BY_SMALL_LOOP
    assert ratio(lambda: replay(idle, BASELINE), lambda: small(idle), bound) < bound
