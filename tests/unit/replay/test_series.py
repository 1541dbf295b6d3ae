"""Lag, last catching up and position at any instant, read from replica_timeline, against the naive model.

A row holds from its time until the next one; where ``lag_grows``, the lag at t is t - last_caught_up_time_ms. This is
asked at random instants, and just before, at and after each event.
"""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from isr_batch.lake.arrow_rows import arrow_schema
from isr_batch.lake.tables.inputs import FETCH_LOG
from isr_batch.replay.one_partition import timelines_of_results
from tests.naive import Leader
from tests.naive_rules import RULES
from tests.naive_truth import FETCH, Row, Term
from tests.strategies import VARIANTS, Log, Setting, cases_of_all_rules, instants, shifted
from tests.unit.kernel.test_kernel_against_naive import begin, new_replay, stretches
from udfs.batches.results import named_results
from udfs.kernel.ledger import DAY_US
from udfs.kernel.replay import advance_replay
from udfs.records import ROW_ORDER, new_kernel_output
from udfs.rules import REGISTRY
from udfs.rules.base import NO_LAG

TIMES = ("arrival_time", "handled_time", "processed_time", "released_time", "completed_time")
OF_SET = {"cluster_id": "c", "topic": "t", "partition_id": 0}
LEAST_US = 10 * DAY_US
"""Kafka's 0 for "never" is not an instant of the log."""


class State(NamedTuple):
    """A follower's state at an instant."""

    lag_ms: int | None
    last_caught_up_time_ms: int
    log_end_offset: int
    lag_messages: int | None
    in_isr: bool
    in_pseudo_isr: bool


def simulated(log: Log, run: Setting, probes: Sequence[int]) -> dict[tuple[int, int], State]:
    """State of each follower at each instant, by the naive model."""
    found = {}
    leader = Leader(RULES[run.rule](*run[1:4], **dict(run.flags)))
    for term, until_us in with_ends(log):
        leader.begin(term)
        rows = list(term.rows)
        for probe in probes:
            if not term.start_us <= probe < until_us:
                continue
            due = bisect_right([row.time_us for row in rows], probe)
            leader.play(rows[:due], probe)
            leader.now_us = probe
            del rows[:due]
            for f in leader.remote:
                behind = leader.leo - f.leo if f.leo >= 0 else None
                lag_ms = leader.rule.shown_lag_ms(f, leader)
                keeps_up = lag_ms is not None and lag_ms <= run.replica_lag_time_max_ms
                found[f.replica, probe] = State(lag_ms, f.cu, f.leo, behind, f.replica in leader.isr, keeps_up)
        leader.play(rows, term.end_us)
    return found


def with_ends(log: Log) -> Iterator[tuple[Term, int]]:
    """Terms, each with the instant up to which its rows hold: where the next one begins, that is later."""
    for term, later in zip(log.terms, [*log.terms[1:], None], strict=True):
        yield term, min(term.end_us + 1, later.start_us if later else term.end_us + 1)


def read(rows: list[dict[str, Any]], probe: int) -> State:
    """The state at an instant, read in the documented way."""
    row = rows[bisect_right(rows, probe, key=itemgetter("us")) - 1]
    lag_ms, caught_up_ms = row["lag_ms"], row["last_caught_up_time_ms"]
    if row["lag_grows"]:
        lag_ms = max(0, probe // 1000 - caught_up_ms)
    keeps_up = probe < row["until_us"] if row["lag_grows"] else lag_ms == 0
    offset, messages = row["follower_log_end_offset"], row["lag_messages"]
    return State(lag_ms, caught_up_ms, offset, messages, row["in_isr"], keeps_up)


def timeline(
    log: Log, runs: list[Setting], cuts: tuple[int, ...] = (), fetches: pa.Table | None = None
) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Rows of replica_timeline by run and replica, in order of time; ``fetches`` as fetch_log has them."""
    replicas = list(log.terms[0].replicas)
    state, out = new_replay(runs, replicas), new_kernel_output(1 << 17)
    limits = [run.replica_lag_time_max_ms for run in runs]
    params, marks = [json.dumps({"n": n, "replica_lag_time_max_ms": limit}) for n, limit in enumerate(limits)], []
    for epoch, term in enumerate(log.terms):
        begin(state, term, out)
        for stretch, until_us in stretches(term, cuts):
            state.term["row"] = 0
            assert advance_replay(state, stretch, until_us, out)
        identity = {
            **OF_SET,
            "leader_id": term.leader,
            "leader_epoch": epoch,
            "assigned": replicas,
            "params_json": params,
        }
        marks.append((out.filled.copy(), identity))
    results = named_results(out, marks, [run.rule for run in runs], ("replica", "partition"))
    rows = timelines_of_results(pa.Table.from_batches(results), fetches or fetch_log(log))["replica_timeline"]
    found = defaultdict(list)
    us = (rows[name].cast(pa.int64()).to_pylist() for name in ("time", "pseudo_isr_until"))
    for row, at_us, until_us in zip(rows.to_pylist(), *us, strict=True):
        run = json.loads(row["params_json"])["n"]
        found[run, row["replica_id"]].append({**row, "us": at_us, "until_us": until_us})
    for of_one in found.values():
        of_one.sort(key=itemgetter("us"))
    return found


def as_in_a_lake(log: Log) -> Log:
    """Equal times in the order of the stream, and each row in the term that its leader has begun by then.

    A request may be stamped after the end of its term: a lake sorts rows by their time, not by their epoch.
    """
    rows: dict[int, list[Row]] = defaultdict(list)
    for term in log.terms:
        begun = [(other.start_us, n) for n, other in enumerate(log.terms) if other.leader == term.leader]
        for row in term.rows:
            rows[max((one for one in begun if one[0] <= row.time_us), default=begun[0])[1]].append(row)
    order = attrgetter(*ROW_ORDER)
    terms = (term._replace(rows=tuple(sorted(rows[n], key=order))) for n, term in enumerate(log.terms))
    return log._replace(terms=tuple(terms))


def fetch_log(log: Log) -> pa.Table:
    rows = [(term.leader, epoch, row) for epoch, term in enumerate(log.terms) for row in term.rows if row.kind == FETCH]
    return pa.Table.from_pylist([fetched(*of, source_line=n) for n, of in enumerate(rows)], arrow_schema(FETCH_LOG))


def fetched(leader: int, epoch: int, row: Row, **other: Any) -> dict[str, Any]:
    instants_us = row.time_us, row.handled_us, row.processed_us, row.released_us, row.until_us
    return {
        **OF_SET, "leader_id": leader, "leader_epoch": epoch, "replica_id": row.replica_id,
        **{name: pa.scalar(us, pa.timestamp("us", "UTC")).as_py() for name, us in zip(TIMES, instants_us, strict=True)},
        "fetch_offset": None if row.offset < 0 else row.offset,
        "leader_log_end_offset": None if row.leader_log_end_offset < 0 else row.leader_log_end_offset,
        "error_code": row.code, "run_length": 1,
        "last_handled_time": pa.scalar(row.handled_us, pa.timestamp("us", "UTC")).as_py(), "source_file": "f",
        "event_date": pa.scalar(row.handled_us // DAY_US, pa.int32()).cast(pa.date32()).as_py(), **other,
    }  # fmt: skip


def differences(log: Log, runs: list[Setting], probes: Sequence[int], cuts: tuple[int, ...] = ()) -> list[str]:
    rows = timeline(log, runs, cuts)
    found = []
    for number, run in enumerate(runs):
        for (replica, probe), state in simulated(log, run, probes).items():
            told = read(rows[number, replica], probe)
            if told != state:
                found.append(f"{run.rule} {dict(run.flags)}, replica {replica} at {probe}: {told}, not {state}")
    return found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "part", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.nightly)]
)
def test_series_are_exact_at_every_instant_under_every_rule(part: int) -> None:
    @seed(part)
    @settings(
        max_examples=(30, 30, 300)[part],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases_of_all_rules(), st.data(), st.lists(st.integers(0, 60), max_size=2))
    def compare(case: tuple[Log, list[Setting]], data: st.DataObject, cuts: list[int]) -> None:
        log, runs = case
        log = as_in_a_lake(shifted(log, LEAST_US))
        first_us, last_us = log.terms[0].start_us, log.terms[-1].end_us
        drawn = data.draw(st.lists(st.integers(first_us, last_us), max_size=20))
        events = [us + more for us in instants(log) for more in (-1, 0, 1)]
        probes = sorted(us for us in {*drawn, *events} if first_us <= us <= last_us)
        assert not differences(log, runs, probes, tuple(cuts))

    compare()


HOUR_US = 3_600_000_000
STEP_US = 500_000
MEASURED = {
    "kafka-0.8": 200, "kafka-0.9": 200, "kafka-0.10.2": 100, "kafka-2.1": 100, "kafka-3.7": 100,
    "kafka-4485-design": 100, "kip-16-catch-up-time": 100, "kip-501-pending": STEP_US - 10, "true-lag": 0,
}  # fmt: skip
"""For each rule, microseconds from the arrival of a fetch to the time that the rule records for it."""
SEEN = {**dict.fromkeys(MEASURED, 200), "kip-501-pending": STEP_US - 10, "true-lag": 0}


def test_an_idle_partition_is_exact_for_an_hour_of_identical_fetches() -> None:
    """KAFKA-7152: the lag grows between two fetches up to 2.0.1, by half a second, and not since then.

    The fetches are one row of fetch_log. After them nothing comes for ten seconds.
    """
    start_us = 20 * DAY_US - HOUR_US // 2  # over midnight
    arrivals = range(start_us, start_us + HOUR_US, STEP_US)
    steps_us = 0, 100, 200, STEP_US - 10, STEP_US - 10
    rows = [Row(us, FETCH, 2, 0, 0, -1, *(us + step for step in steps_us[1:])) for us in arrivals]
    end_us = start_us + HOUR_US + 10_000_000
    log = Log((Term((1, 2), 1, start_us, end_us, 0, 0, (1, 2), leader_is_new=True, rows=tuple(rows)),), 30_000)
    runs_of_fetches = []
    for some in (
        [row for row in rows if row.handled_us < 20 * DAY_US],
        [r for r in rows if r.handled_us >= 20 * DAY_US],
    ):
        later_by = [STEP_US] * 5 + [1]
        later = {"run_length": len(some), "later_by": later_by * (len(some) - 1), "source_line": some[0].time_us}
        runs_of_fetches.append(fetched(1, 0, some[0], **later))
    fetches = pa.Table.from_pylist(runs_of_fetches, arrow_schema(FETCH_LOG))
    settings_of = [Setting(rule, 30_000, flags=dict(VARIANTS[::-1])[rule]) for rule in MEASURED]
    found = timeline(log, settings_of, fetches=fetches)
    for number, run in enumerate(settings_of):
        last_us = {us + SEEN[run.rule]: us + MEASURED[run.rule] for us in arrivals}
        seen = sorted(last_us)
        for probe in range(start_us + STEP_US, end_us, 7_654_321):
            told = read(found[number, 2], probe)
            caught_up_ms = last_us[seen[bisect_right(seen, probe) - 1]] // 1000
            grows = REGISTRY[run.rule].no_lag_while == NO_LAG[0]
            assert told[:2] == (probe // 1000 - caught_up_ms if grows else 0, caught_up_ms), run.rule


def test_a_user_sees_the_lag_grow_under_0_10_2_while_nothing_is_lacked() -> None:
    start_us = 30 * DAY_US
    rows = (Row(start_us, FETCH, 2, 0, 0, -1, *[start_us + 1000] * 4),)
    log = Log((Term((1, 2), 1, start_us, start_us + 9_000_000, 0, 0, (1, 2), leader_is_new=True, rows=rows),), 30_000)
    runs = [Setting("kafka-0.10.2", 30_000, flags=(("joins_from_epoch_start", 0),)), Setting("kafka-3.7", 30_000)]
    found = timeline(log, runs)
    lags_ms = [[read(found[run, 2], start_us + s * 1_000_000).lag_ms for s in (1, 2, 8)] for run in (0, 1)]
    assert lags_ms == [[999, 1999, 7999], [0, 0, 0]]


def test_every_rule_describes_its_series() -> None:
    for rule in REGISTRY.values():
        assert rule.no_lag_while in NO_LAG
        assert rule.series.startswith("Lag in ms: ")
    # A leader of 0.9 that stays the leader resets nothing.
    assert "even if the leader stays the same, the leader keeps each follower's" in REGISTRY["kafka-0.9"].series
