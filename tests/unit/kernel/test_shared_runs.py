"""Runs of a rule that share their state (``udfs.kernel.shared_runs``) give what each of them gives by itself."""

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.strategies import VARIANT_IDS, VARIANTS, Log, Setting, instants, logs, logs_over_midnight
from tests.unit.kernel.test_kernel_against_naive import append, begin, columns, fetch, new_replay, term
from tests.unit.kernel.test_snapshot import Scores, put_away, replay
from udfs.kernel.replay import replay_kernels
from udfs.records import BY_RULE, CHANGE_COLUMNS, EXPAND, RUNS_A_ROW, SHRINK, new_kernel_output
from udfs.rules import REGISTRY

LOGS = 60
LOGS_NIGHTLY = 3000


@st.composite
def lag_times(draw: st.DrawFn, variant: int) -> tuple[Log, list[Setting], list[int]]:
    """A log, a rule with several lag times, and where to put the replay away."""
    log = draw(logs())
    if draw(st.booleans()):
        log = draw(logs_over_midnight(log))
    rule, flags = VARIANTS[variant]
    lags_ms = draw(st.lists(st.integers(1, 4 * log.lag_ms), min_size=2, max_size=6))
    min_isr, latency_ms = draw(st.integers(1, 3)), draw(st.sampled_from([0, 0, 10]))
    runs = [Setting(rule, max(2, lag_ms), min_isr, 0, flags) for lag_ms in lags_ms]
    if REGISTRY[rule].isr_write_in_background:
        runs[-1] = runs[-1]._replace(flags=(*dict(flags).items(), ("isr_write_latency_ms", latency_ms)))
    return log, runs, sorted(draw(st.lists(st.sampled_from(instants(log)), max_size=2)))


def of_run(found: Scores, r: int) -> list[list[list[int]]]:
    """What a run wrote, without its number; rows of an instant in any order."""
    replica, partition, change, score, follower, latency = found
    timelines = [
        sorted(row[1:] for row in rows if row[0] >> RUNS_A_ROW == r // RUNS_A_ROW and row[0] >> r % RUNS_A_ROW & 1)
        for rows in (replica, partition)
    ]
    settled = CHANGE_COLUMNS.index("leader_held_ms")  # up to then only for what a rule drops
    changes = [row if row[2] == SHRINK and row[11] == BY_RULE else row[:settled] for row in change]
    numbered = [[row[1:] for row in rows if row[0] == r] for rows in (changes, score, follower)]
    return [*timelines, *numbered, [row for row, of in zip(latency, score, strict=True) if of[0] == r]]


def alone(variant: int, examples: int) -> None:
    @seed(variant)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(lag_times(variant))
    def compare(case: tuple[Log, list[Setting], list[int]]) -> None:
        log, runs, cuts = case
        together = replay(log, runs, cuts, put_away)
        for r, run in enumerate(runs):
            assert of_run(together, r) == of_run(replay(log, [run], [], lambda state: state), 0), run

    compare()


@pytest.mark.parametrize("variant", range(len(VARIANTS)), ids=VARIANT_IDS)
def test_runs_that_share_a_state_give_what_each_gives_alone(variant: int) -> None:
    alone(variant, LOGS)


@pytest.mark.nightly
@pytest.mark.parametrize("variant", range(len(VARIANTS)), ids=VARIANT_IDS)
def test_runs_that_share_a_state_on_many_logs(variant: int) -> None:
    alone(variant, LOGS_NIGHTLY)


def test_who_drops_a_follower_parts_from_the_others_and_comes_back() -> None:
    """Follower 3 lacks a record for 180 ms, longer than two of three lag times; one of them checks meanwhile."""
    fetches = [fetch(1000 * ms, 2, 1 if ms < 300 else 2) for ms in range(1, 1000, 10)]
    fetches += [fetch(1000 * ms, 3, 1) for ms in range(1, 300, 10)]
    fetches += [fetch(1000 * ms, 3, 2) for ms in range(480, 1000, 10)]
    rows = [append(0, 1), append(300_000, 2), *fetches]
    begun = term(*sorted(rows, key=lambda row: row.time_us))
    runs = [Setting("kafka-3.7", lag_ms) for lag_ms in (100, 150, 200)]
    state, out = new_replay(runs, begun.replicas), new_kernel_output(20_000, 64)
    begin(state, begun, out)
    along: dict[int, list[int]] = {}
    since_us = -1
    for ms in (0, 299, 402, 479, 999):
        until_us = begun.start_us + 1000 * ms
        state.term["row"] = 0
        stretch = columns([row for row in begun.rows if since_us < row.time_us <= until_us])
        assert replay_kernels().advance(state, stretch, until_us, out)
        along[ms], since_us = state.leaders["along"][: len(runs)].tolist(), until_us
    assert along[0] == [0, 0, 0], "nobody is judged before it fetches"
    assert along[299] == [1, 1, 1]
    assert along[402] == [0, 1, 1], "late by the lag time of the first"
    assert along[479] == [0, 0, 1]
    assert along[999] == [1, 1, 1], "again since a check after the follower was back"
    assert state.term["active"] == 1
    assert out.change[: out.filled[2], [0, 2]].tolist() == [[0, SHRINK], [0, EXPAND]]
