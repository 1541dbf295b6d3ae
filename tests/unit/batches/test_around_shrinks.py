"""Timelines around shrinks are those of the whole log, restricted to the spans with a dropped follower."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.naive_truth import Term
from tests.segments import in_pieces, packed_stream, segments_of
from tests.strategies import MIDNIGHT_US, Log, Setting, cases_of_all_rules, logs_over_midnight
from tests.unit.batches.test_fetch_runs import stream
from tests.unit.kernel.test_kernel_against_naive import append, fetch, term
from tests.unit.test_windows import DAY_US, WITH_KEPT, in_windows
from udfs.batches import around_shrinks
from udfs.batches.replay import SetReplay, replay_batches
from udfs.batches.results import SET_COLUMNS, STATE
from udfs.batches.rule_runs import RuleRun
from udfs.batches.segments import OF_FETCHES
from udfs.records import APPEND, NEVER_US, Rows

LOGS, LOGS_NIGHTLY = 60, 2000
TIMELINES = ("replica", "partition")
STATE_COLUMNS = {
    "replica": ("follower_log_end_offset", "lag_messages", "last_caught_up_time_ms", "in_isr"),
    "partition": ("leader_log_end_offset", "high_watermark", "isr_after"),
}
Row = dict[str, Any]
Found = Counter[tuple[Any, ...]]


def line(row: Row, time_us: int | None = None) -> tuple[Any, ...]:
    whose = (row["result"], *(row[name] for name in (*SET_COLUMNS, "leader_epoch", "rule", "params_json")))
    state = (str(row[name]) for name in STATE_COLUMNS[row["result"]])
    return (*whose, row.get("replica_id"), row["time_us"] if time_us is None else time_us, *state)


def replayed(rows: Sequence[Row], runs: list[RuleRun], until_us: int, cuts: Sequence[int] = ()) -> list[Row]:
    """Timelines around shrinks, a row for each run, and the states at the end."""
    packed_rows = [row for row in packed_stream(rows, segments_of(rows)) if row["time_us"] < until_us]
    batches = replay_batches(
        in_pieces(packed_rows, cuts, WITH_KEPT), runs, (STATE,), until_us, TIMELINES, around_shrinks=True
    )
    return [one for batch in batches for row in batch.to_pylist() for one in each_run(row)]


def each_run(row: Row) -> Iterator[Row]:
    if row["result"] not in TIMELINES:
        yield row
        return
    for run, (rule, params_json) in enumerate(json.loads(row["run_set"])):
        if row["runs"] >> run & 1:
            yield row | {"rule": rule, "params_json": params_json, "kind": None}


def expected(rows: Sequence[Row], runs: list[RuleRun]) -> Found:
    """The definition, read row by row off timelines and changes of the whole log."""
    batches = replay_batches(in_pieces(packed_stream(rows, segments_of(rows))), runs)
    told: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for batch in batches:
        for row in batch.to_pylist():
            told[*(row[name] for name in (*SET_COLUMNS, "leader_epoch"))].append(row)
    found: Found = Counter()
    for row in rows:
        of_term = row.get("term")
        if of_term:
            of = told[*(row[name] for name in SET_COLUMNS), of_term["leader_epoch"]]
            found += of_one_term(of, row["time_us"], of_term)
    return found


def of_one_term(of: list[Row], start_us: int, of_term: dict[str, Any]) -> Found:
    found: Found = Counter()
    end_us, assigned = of_term["end_us"], of_term["assigned"]
    timelines: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    inside: list[tuple[int, int]] = []
    for row in of:
        if row["result"] in TIMELINES:
            timelines[row["result"], row["rule"], row["params_json"], row["replica_id"]].append(row)
        elif row["kind"] == "shrink":
            lag_us, at_us = 1000 * json.loads(row["params_json"])["replica_lag_time_max_ms"], row["time_us"]
            inside.append((max(at_us - lag_us, at_us // DAY_US * DAY_US, start_us), at_us))
    for (kind, *_), states in timelines.items():
        if kind == "partition":
            ends = [state["time_us"] for state in states[1:]] + [end_us]
            inside += [
                (state["time_us"], until_us)
                for state, until_us in zip(states, ends, strict=True)
                if len(state["isr_after"]) < len(assigned)
            ]
    for begin_us, until_us in cut_at_midnight(joined(inside)):
        closes = until_us < end_us and (until_us + 1) % DAY_US
        for states in timelines.values():
            before = [state for state in states if state["time_us"] <= begin_us]
            found.update(line(state, begin_us) for state in before[-1:])
            found.update(line(state) for state in states if begin_us < state["time_us"] <= until_us)
            if closes:
                last = {"in_isr": True, "isr_after": assigned}
                unknown = dict.fromkeys(set(sum(STATE_COLUMNS.values(), ())) - last.keys())
                found[line(states[0] | last | unknown, until_us + 1)] += 1
    return found


def joined(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    last: tuple[int, int] | None = None
    for begin_us, until_us in sorted(spans):
        if last and begin_us <= last[1] + 1:
            last = last[0], max(last[1], until_us)
        else:
            if last:
                yield last
            last = begin_us, until_us
    if last:
        yield last


def cut_at_midnight(spans: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for begin_us, until_us in spans:
        if begin_us < MIDNIGHT_US <= until_us:
            yield begin_us, MIDNIGHT_US - 1
            yield MIDNIGHT_US, until_us
        else:
            yield begin_us, until_us


def as_rows(log: Log, setting: Setting, calm: bytes) -> list[Row]:
    told = [row for n in range(2) for row in stream(log, n, setting, calm)]
    return [row | (dict.fromkeys(OF_FETCHES, -1) if row["kind"] == APPEND else {}) for row in told]


def lines(found: list[Row]) -> Found:
    return Counter(line(row) for row in found if row["result"] != STATE)


def compare(examples: int) -> None:
    @seed(38)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(cases_of_all_rules().flatmap(over_midnight), st.binary(min_size=1, max_size=8), st.booleans())
    def check(case: tuple[Log, list[Setting]], calm: bytes, in_chunks: bool) -> None:
        log, chosen = case
        runs = [
            RuleRun(run.rule, {"replica_lag_time_max_ms": run.replica_lag_time_max_ms, **dict(run.flags)})
            for run in chosen
        ]
        rows = as_rows(log, chosen[0], calm)
        whole = expected(rows, runs)
        if in_chunks:  # results leave after every batch of the stream
            with patch.object(SetReplay, "advance", leaving_first), patch.object(around_shrinks, "_AT_ONCE", 3):
                assert lines(replayed(rows, runs, int(NEVER_US), range(len(rows)))) == whole
        else:
            assert lines(replayed(rows, runs, int(NEVER_US))) == whole
            assert lines(in_windows(rows, runs, [MIDNIGHT_US], replayed)) == whole

    check()


@st.composite
def over_midnight(draw: st.DrawFn, case: tuple[Log, list[Setting]]) -> tuple[Log, list[Setting]]:
    log, runs = case
    return draw(logs_over_midnight(log)), runs


_advance = SetReplay.advance


def leaving_first(self: SetReplay, rows: Rows, until_us: int) -> Iterator[pa.RecordBatch]:
    yield from self.flush()
    yield from _advance(self, rows, until_us)


def test_they_are_the_timelines_of_the_spans() -> None:
    compare(LOGS)


@pytest.mark.nightly
def test_they_are_the_timelines_of_the_spans_of_many_logs() -> None:
    compare(LOGS_NIGHTLY)


def calm_but_for_one(stalled_ms: range) -> Term:
    """A second of fetches every 10 ms and an append every 50; follower 3 does not fetch for some time."""
    appends = [append(1000 * ms, 1 + ms // 50) for ms in range(0, 1000, 50)]
    fetches = [
        fetch(1000 * ms, replica, 1 + ms // 50)
        for ms in range(1, 1000, 10)
        for replica in (2, 3)
        if replica == 2 or ms not in stalled_ms
    ]
    return term(*sorted([*appends, *fetches], key=lambda row: row.time_us))


def test_a_rule_that_spares_the_follower_has_the_rows_as_well() -> None:
    begun = calm_but_for_one(range(300, 520))
    runs = [RuleRun("kafka-3.7", {"replica_lag_time_max_ms": lag_ms}) for lag_ms in (100, 400)]
    rows = as_rows(Log((begun,)), Setting("kafka-3.7"), b"\0")
    found = [
        row for row in replayed(rows, runs, int(NEVER_US)) if row["result"] in TIMELINES and row["partition_id"] == 0
    ]
    changes = [row for batch in replay_batches(in_pieces(rows), runs, ("change",)) for row in batch.to_pylist()]
    shrink, expand, *_ = [row["time_us"] for row in changes]
    for lag_ms in (100, 400):
        of_run = [row for row in found if json.loads(row["params_json"])["replica_lag_time_max_ms"] == lag_ms]
        for kind in TIMELINES:
            times = [row["time_us"] for row in of_run if row["result"] == kind]
            assert times == sorted(times)
            assert (times[0], times[-1]) == (shrink - 100_000, expand + 1)
            assert len(set(times)) > 4
        last = [row for row in of_run if row["time_us"] == expand + 1]
        assert [row["in_isr"] for row in last if row["result"] == "replica"] == [True, True]
        assert {row["follower_log_end_offset"] for row in last if row["result"] == "replica"} == {None}
        assert [row["isr_after"] for row in last if row["result"] == "partition"] == [[1, 2, 3]]
    assert lines(replayed(rows, runs[1:], int(NEVER_US))) == Counter(), "nobody was dropped"
