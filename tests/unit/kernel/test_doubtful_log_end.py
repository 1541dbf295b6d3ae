"""Where the end of an append had to be shared out between two offsets that the log names, nothing depends on where.

An ingest knows every offset that a follower asked for, and what was appended in between only by size
(``append_log.log_end_error``). A follower's position is never inside such a stretch, so whether it lacks something, and
since when, is the same for all ways to share it. Only rules that count messages may decide otherwise.
"""

from collections.abc import Collection
from itertools import groupby

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.naive_rows import Change
from tests.naive_truth import APPEND, CHECK, FETCH, Row, Term
from tests.strategies import Log, Setting, cases_of_all_rules
from tests.unit.kernel.test_kernel_against_naive import START_US, append, fetch, replay, term
from udfs.rules import REGISTRY

COUNT_MESSAGES = {"kafka-0.8", "kip-16-catch-up-time"}


def without_idle_appends(log: Log) -> Log:
    """Leave out appends that end no further than the log did, which no leader makes."""

    def growing(t: Term) -> Term:
        rows, reached = [], t.start_offset
        for row in t.rows:
            if row.kind != APPEND or row.offset > reached:
                rows.append(row)
                reached = row.offset if row.kind == APPEND else reached
        return t._replace(rows=tuple(rows))

    return log._replace(terms=tuple(map(growing, log.terms)))


def shared_otherwise(log: Log, draw: st.DrawFn) -> Log:
    """The same log with other ends of its appends, each between the same two named offsets as before."""
    named = sorted(
        {row.offset for t in log.terms for row in t.rows if row.kind == FETCH}
        | {row.leader_log_end_offset for t in log.terms for row in t.rows if row.kind == FETCH}
        | {row.offset for t in log.terms for row in t.rows if row.kind == CHECK}
        | {t.start_offset for t in log.terms}
    )

    def gap(row: Row) -> tuple[int, int]:
        below = max((offset for offset in named if offset <= row.offset), default=-1)
        return below, min((offset for offset in named if offset > row.offset), default=2**62)

    def otherwise(t: Term) -> Term:
        ends: dict[int, int] = {}
        growing = [(gap(row), number, row.offset) for number, row in enumerate(t.rows) if row.kind == APPEND]
        for (low, high), members in groupby(growing, key=lambda entry: entry[0]):
            inside = [(number, end) for _, number, end in members if end != low]
            if not inside:
                continue
            room = min(high - low - 1, 10 * len(inside))
            chosen = draw(st.lists(st.integers(1, room), min_size=len(inside), max_size=len(inside), unique=True))
            ends |= {number: low + step for (number, _), step in zip(inside, sorted(chosen), strict=True)}
        rows = tuple(row._replace(offset=ends.get(number, row.offset)) for number, row in enumerate(t.rows))
        return t._replace(rows=rows)

    return log._replace(terms=tuple(map(otherwise, log.terms)))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Log, Log, list[Setting]]:
    drawn, runs = draw(cases_of_all_rules())
    log = without_idle_appends(drawn)
    return log, shared_otherwise(log, draw), runs


def decided(change: Change, unnamed: Collection[int]) -> Change:
    """All but the offsets that the stretch is about."""
    if change.kind == "relinquish" or change.replica_id in unnamed:  # of the leader's own replica, or taken from it
        change = change._replace(follower_log_end_offset=0)
    return change._replace(high_watermark=0, leader_log_end_offset=0)


def changes(log: Log, runs: list[Setting]) -> dict[str, list[Change]]:
    unnamed = {row.replica_id for t in log.terms for row in t.rows if row.kind == FETCH and row.offset < 0}
    results = zip(runs, replay(log, runs), strict=True)
    return {run.rule: [decided(change, unnamed) for change in result["changes"]] for run, result in results}


@pytest.mark.parametrize("examples", [150, pytest.param(1150, marks=pytest.mark.long)])
def test_changes_and_verdicts_do_not_depend_on_it(examples: int) -> None:
    @seed(20261122 + examples)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(pairs())
    def compare(case: tuple[Log, Log, list[Setting]]) -> None:
        log, other, runs = case
        found, expected = changes(other, runs), changes(log, runs)
        assert [rule for rule in found if found[rule] != expected[rule] and rule not in COUNT_MESSAGES] == []

    compare()


def test_rules_that_count_messages_do() -> None:
    def log(end: int) -> Log:
        rows = fetch(0, 2, 0), fetch(0, 3, 0), append(1000, end), append(1_900_000, 9)
        return Log((term(*rows, end_us=START_US + 2_500_000),))

    runs = [Setting("kafka-0.8", 1000, flags=(("replica_lag_max_messages", 8),))]
    assert REGISTRY.keys() >= COUNT_MESSAGES
    assert changes(log(8), runs) == changes(log(1), runs)
    runs = [Setting("kafka-0.8", 1000, flags=(("replica_lag_max_messages", 6),))]
    assert changes(log(8), runs) != changes(log(1), runs)
