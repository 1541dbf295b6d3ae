"""Runs of a rule that share their state (``udfs.kernel.shared_runs``) give the same results as each run alone."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.naive_truth import Term
from tests.strategies import VARIANT_IDS, VARIANTS, Log, Setting, instants, logs, logs_over_midnight
from tests.unit.kernel.test_kernel_against_naive import CODES, START_US, append, begin, columns, fetch, new_replay, term
from tests.unit.kernel.test_snapshot import Scores, put_away, replay
from udfs.kernel.families import FAMILIES
from udfs.kernel.replay import advance_replay
from udfs.kernel.state import State
from udfs.records import BY_RULE, CHANGE_COLUMNS, EXPAND, RUNS_A_ROW, SHRINK, new_kernel_output
from udfs.rules import REGISTRY

LOGS = 60
LOGS_NIGHTLY = 3000


def family_of(rule: str) -> list[int]:
    """Variants of the rules that know the same of followers."""
    return [i for i, (other, _) in enumerate(VARIANTS) if FAMILIES[CODES[other]] == FAMILIES[CODES[rule]]]


FAMILY = family_of("kafka-3.7")


@st.composite
def lag_times(draw: st.DrawFn, variant: int) -> tuple[Log, list[Setting], list[int]]:
    """A log, a rule with several lag times, and where to put the replay away."""
    log, lags_ms = draw(a_log_and_lag_times())
    rule, flags = VARIANTS[variant]
    min_isr, latency_ms = draw(st.integers(1, 3)), draw(st.sampled_from([0, 0, 10]))
    runs = [Setting(rule, lag_ms, min_isr, 0, flags) for lag_ms in lags_ms]
    if REGISTRY[rule].isr_write_in_background:
        runs[-1] = runs[-1]._replace(flags=(*dict(flags).items(), ("isr_write_latency_ms", latency_ms)))
    return log, runs, draw(two_instants(log))


@st.composite
def rules_of_a_family(draw: st.DrawFn, variants: list[int]) -> tuple[Log, list[Setting], list[int]]:
    """A log, some of these rules with several lag times, and where to put the replay away."""
    log, lags_ms = draw(a_log_and_lag_times())
    min_isr = draw(st.integers(1, 3))
    chosen = [VARIANTS[draw(st.sampled_from(variants))] for _ in lags_ms]
    runs = [Setting(rule, lag_ms, min_isr, 0, flags) for (rule, flags), lag_ms in zip(chosen, lags_ms, strict=True)]
    return log, runs, draw(two_instants(log))


@st.composite
def a_log_and_lag_times(draw: st.DrawFn) -> tuple[Log, list[int]]:
    log = draw(logs())
    if draw(st.booleans()):
        log = draw(logs_over_midnight(log))
    return log, [max(2, ms) for ms in draw(st.lists(st.integers(1, 4 * log.lag_ms), min_size=2, max_size=6))]


def two_instants(log: Log) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(instants(log)), max_size=2).map(sorted)


def of_run(found: Scores, r: int) -> list[list[list[int]]]:
    """Rows of a run, without its number; rows of an instant in any order, those of one follower in theirs."""
    replica, partition, change, score, follower, latency = found
    states, timeline = (
        [row[1:] for row in rows if row[0] >> RUNS_A_ROW == r // RUNS_A_ROW and row[0] >> r % RUNS_A_ROW & 1]
        for rows in (replica, partition)
    )
    # By time, follower and ``nth``, which counts the rows of other runs too.
    states.sort(key=lambda row: (row[1], row[0], row[3]))
    timelines = [[[*row[:3], *row[4:]] for row in states], sorted(timeline)]
    settled = CHANGE_COLUMNS.index("leader_held_ms")  # up to then only for what a rule drops
    changes = [row if row[2] == SHRINK and row[11] == BY_RULE else row[:settled] for row in change]
    numbered = [[row[1:] for row in rows if row[0] == r] for rows in (changes, score, follower)]
    return [*timelines, *numbered, [row for row, of in zip(latency, score, strict=True) if of[0] == r]]


Case = tuple[Log, list[Setting], list[int]]


def alone(cases: st.SearchStrategy[Case], number: int, examples: int) -> None:
    @seed(number)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(cases)
    def compare(case: Case) -> None:
        log, runs, cuts = case
        together = replay(log, runs, cuts, put_away)
        for r, run in enumerate(runs):
            assert of_run(together, r) == of_run(replay(log, [run], [], lambda state: state), 0), run

    compare()


@pytest.mark.parametrize("variant", range(len(VARIANTS)), ids=VARIANT_IDS)
def test_runs_that_share_a_state_equal_each_alone(variant: int) -> None:
    alone(lag_times(variant), variant, LOGS)


def test_rules_of_a_family_that_share_a_state_equal_each_alone() -> None:
    alone(rules_of_a_family(FAMILY), 0, 3 * LOGS)


def test_any_rules_side_by_side_equal_each_alone() -> None:
    alone(rules_of_a_family(list(range(len(VARIANTS)))), 1, 3 * LOGS)


@pytest.mark.nightly
def test_rules_of_a_family_that_share_a_state_on_many_logs() -> None:
    alone(rules_of_a_family(FAMILY), 2, 2 * LOGS_NIGHTLY)


@pytest.mark.nightly
@pytest.mark.parametrize("variant", range(len(VARIANTS)), ids=VARIANT_IDS)
def test_runs_that_share_a_state_on_many_logs(variant: int) -> None:
    alone(lag_times(variant), variant, LOGS_NIGHTLY)


def test_a_run_that_drops_a_follower_parts_from_the_others_and_rejoins() -> None:
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
        assert advance_replay(state, stretch, until_us, out)
        along[ms], since_us = state.leaders["along"][: len(runs)].tolist(), until_us
    assert along[0] == [0, 0, 0], "nobody is judged before it fetches"
    assert along[299] == [1, 1, 1]
    assert along[402] == [0, 1, 1], "late by the lag time of the first"
    assert along[479] == [0, 0, 1]
    assert along[999] == [1, 1, 1], "again since a check after the follower was back"
    assert state.term["active"] == 1
    assert out.change[: out.filled[2], [0, 2]].tolist() == [[0, SHRINK], [0, EXPAND]]


def calm_log(number: int) -> Term:
    """Two followers at the log end for seconds, and seldom: an error, a shorter log end, a pause, a fetch again."""
    random = Random(number)
    rows, end, now_us = [append(0, 1)], 1, 0
    begins_mid_term = random.random() < 0.3
    held = {2: 0, 3: 0} if not begins_mid_term else {2: 1, 3: 1}
    free_us = {2: 0, 3: 0}
    while now_us < 2_900_000:
        now_us += random.randrange(1000, 20_000)
        if random.random() < 0.5:
            end += random.randrange(3)
            rows.append(append(now_us, end))
        for replica in (2, 3):
            if free_us[replica] > now_us:
                continue
            at_us = now_us + replica
            chance = random.random()
            took_us = 0 if chance < 0.5 else random.randrange(2000) if chance < 0.985 else 40_000
            error = int(chance > 0.99)
            known = end - random.randrange(3) if chance < 0.02 else end
            rows.append(fetch(at_us, replica, held[replica], known=known, took_us=took_us, error=error))
            held[replica] = max(held[replica], known if chance < 0.9 else held[replica])
            free_us[replica] = at_us + took_us + (random.randrange(50_000, 300_000) if 0.95 < chance < 0.96 else 1)
    return term(
        *sorted(rows, key=lambda row: row.time_us), begins_mid_term=begins_mid_term, held_at_start=(1, 1, -1),
        leader_is_new=random.random() < 0.5,
    )._replace(end_us=START_US + 3_000_000)  # fmt: skip


@pytest.mark.parametrize("rule", ["kafka-3.7", "kip-501-relinquish"])
def test_rules_of_a_family_share_a_state_on_calm_logs_and_part_where_they_may_differ(rule: str) -> None:
    runs = [Setting(*VARIANTS[i][:1], 100 + 10 * (i % 3), 2, 0, VARIANTS[i][1]) for i in family_of(rule)]
    most_along = 0
    for number in range(40):
        log = Log((calm_log(number),))
        along = []

        def look(state: State) -> State:
            along.append(int(state.leaders["along"][: len(runs)].sum()))  # noqa: B023 called before the next number
            return state

        together = replay(log, runs, [START_US + 1000 * ms for ms in range(200, 3000, 200)], look)
        for r, run in enumerate(runs):
            assert of_run(together, r) == of_run(replay(log, [run], [], lambda state: state), 0), (number, run)
        most_along = max(most_along, *along)
    assert most_along > len(runs) // 2


def test_a_high_watermark_that_may_rise_by_itself_keeps_rules_of_a_family_apart() -> None:
    """Followers fetch first after a lag time, from where they are: up to 2.3 that moves the high watermark."""
    rows = [fetch(1000 * ms, replica, 1, known=1) for ms in range(350, 900, 50) for replica in (2, 3)]
    begun = term(
        *rows, begins_mid_term=True, start_offset=1, start_high_watermark=0, held_at_start=(-1, 1, 1),
        leader_is_new=False,
    )  # fmt: skip
    runs = [Setting(rule, 100, 2, 0, flags) for rule, flags in (VARIANTS[i] for i in FAMILY)]
    together = replay(Log((begun,)), runs, [], lambda state: state)
    for r, run in enumerate(runs):
        assert of_run(together, r) == of_run(replay(Log((begun,)), [run], [], lambda state: state), 0), run
    risen = [max(row[2] for row in of_run(together, r)[1]) for r in range(len(runs))]
    assert set(risen) == {0, 1}
