"""The ledger of the compiled replay against the naive one, column by column, on generated logs."""

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.kernel_ledger import in_buckets, ledgers
from tests.naive_ledger import ledger
from tests.strategies import Log, Setting, cases_of_all_rules, logs_over_midnight

LOGS = 300
LOGS_NIGHTLY = 50_000
PARTS = 6


def against_naive(part: int, examples: int) -> None:
    @seed(part)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(cases_of_all_rules(), st.booleans(), st.lists(st.integers(0, 60), max_size=3), st.data())
    def compare(case: tuple[Log, list[Setting]], over_midnight: bool, cuts: list[int], data: st.DataObject) -> None:
        log, runs = case
        if over_midnight:
            log = data.draw(logs_over_midnight(log))
        for run, found in zip(runs, ledgers(log, runs, tuple(cuts)), strict=True):
            expected = in_buckets(ledger(log, run))
            assert found.scores == expected.scores, run
            assert found.followers == expected.followers, run

    compare()


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, PARTS))])
def test_kernel_keeps_the_same_books(part: int) -> None:
    against_naive(part, LOGS // PARTS)


@seed(16)
@settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(cases_of_all_rules(), st.integers(1, 50))
def test_lag_times_that_share_their_books_keep_their_own(case: tuple[Log, list[Setting]], step_ms: int) -> None:
    log, rules = case
    lags_ms = [run.replica_lag_time_max_ms for run in rules]
    runs = [
        run._replace(replica_lag_time_max_ms=lag_ms + n * step_ms)
        for run, lag_ms in zip(rules, lags_ms, strict=True)
        for n in range(3)
    ]
    for run, found in zip(runs, ledgers(log, runs), strict=True):
        assert found == in_buckets(ledger(log, run)), run


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS, 2 * PARTS))
def test_kernel_keeps_the_same_books_on_many_logs(part: int) -> None:
    against_naive(part, LOGS_NIGHTLY // PARTS)
