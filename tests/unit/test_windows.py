"""A log that is replayed window by window gives what it gives in one go, wherever it is cut."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.segments import STREAM, in_pieces, packed_stream, segments_of
from tests.strategies import Log, Setting, cases_of_all_rules, instants, logs_over_midnight
from tests.unit.batches.test_fetch_runs import stream
from udfs.batches.replay import replay_batches
from udfs.batches.results import KINDS, SET_COLUMNS, STATE
from udfs.batches.rule_runs import RuleRun
from udfs.batches.segments import OF_FETCHES
from udfs.batches.stream_columns import KEPT_FIELDS
from udfs.records import APPEND, FETCH, GOES_ON, NEVER_US, TERM_STARTS, Rows

LOGS = 60
WITH_KEPT = pa.schema([*STREAM, ("kept", pa.struct(KEPT_FIELDS))])
DAY_US = 86_400_000_000


def of_set(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in SET_COLUMNS)


def results(rows: Sequence[dict[str, Any]], runs: list[RuleRun], until_us: int) -> list[dict[str, Any]]:
    packed_rows = [row for row in packed_stream(rows, segments_of(rows)) if row["time_us"] < until_us]
    batches = replay_batches(in_pieces(packed_rows, schema=WITH_KEPT), runs, (*KINDS, STATE), until_us)
    return [row for batch in batches for row in batch.to_pylist()]


def in_windows(
    rows: Sequence[dict[str, Any]],
    runs: list[RuleRun],
    cuts: Sequence[int],
    results: Callable[[Sequence[dict[str, Any]], list[RuleRun], int], list[dict[str, Any]]] = results,
) -> list[dict[str, Any]]:
    """Each window has what is left of the log, and the states of the one before."""
    terms = [(row["time_us"], of_set(row), row["term"]) for row in rows if row["kind"] == TERM_STARTS]
    found: list[dict[str, Any]] = []
    states: list[dict[str, Any]] = []
    for since_us, until_us in pairwise([0, *cuts, int(NEVER_US)]):
        begins = []
        for state in states:
            kept = {name: state[name] for name, _ in KEPT_FIELDS if name not in {"end_us", "ends_mid_term"}}
            # A leader that starts again begins a term of the same epoch.
            _, kept["end_us"], kept["ends_mid_term"] = max(
                (time_us, term["end_us"], term["ends_mid_term"]) for time_us, which, term in terms
                if time_us < since_us and (which, term["leader_epoch"]) == (of_set(state), state["leader_epoch"])
            )  # fmt: skip
            known = dict.fromkeys(Rows._fields, -1) | {"kind": int(GOES_ON), "time_us": since_us, "kept": kept}
            begins.append({name: state[name] for name in SET_COLUMNS} | known)
        # Segments may begin before the window: rows from before it are given, and must not count again.
        given_rows = [row for row in rows if row["time_us"] >= since_us or row["kind"] in (APPEND, FETCH)]
        told = results([*begins, *given_rows], runs, until_us)
        states = [row for row in told if row["result"] == STATE]
        # A run writes its own days only; a day of scores begins at midnight.
        for row in told:
            of_day = row["time_us"] + (DAY_US - 1 if "score" in row["result"] else 0)
            # A doubt has the time of its shrink, and is of its day; outside of this test windows are days.
            assert (
                row["result"] == STATE or row["kind"] == "doubt" or (since_us <= of_day and row["time_us"] < until_us)
            ), (since_us, until_us)
        found += [row for row in told if row["result"] != STATE]
    return found


def in_order(found: list[dict[str, Any]]) -> list[str]:
    return sorted(str(row) for row in found)


@st.composite
def cut_logs(draw: st.DrawFn) -> tuple[Log, list[Setting], list[int]]:
    log, runs = draw(cases_of_all_rules())
    log = draw(logs_over_midnight(log))
    of_log = instants(log)
    midnight = [us // DAY_US * DAY_US for us in of_log[-1:]]
    return log, runs, sorted(set(draw(st.lists(st.sampled_from([*of_log, *midnight]), max_size=4))))


@seed(20261122)
@settings(max_examples=LOGS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(cut_logs(), st.binary(min_size=1, max_size=8))
def test_windows_equal_one_replay(case: tuple[Log, list[Setting], list[int]], calm: bytes) -> None:
    log, chosen, cuts = case
    runs = [
        RuleRun(run.rule, {"replica_lag_time_max_ms": run.replica_lag_time_max_ms, **dict(run.flags)}) for run in chosen
    ]
    told = [row for n in range(2) for row in stream(log, n, chosen[0], calm)]
    rows = [row | (dict.fromkeys(OF_FETCHES, -1) if row["kind"] == APPEND else {}) for row in told]
    whole = [row for row in results(rows, runs, int(NEVER_US)) if row["result"] != STATE]
    assert in_order(in_windows(rows, runs, cuts)) == in_order(whole)


def test_state_kept_by_other_code_is_refused() -> None:
    row = dict.fromkeys(Rows._fields, -1) | dict(zip(SET_COLUMNS, ("c", "t", 0, 1), strict=True))
    kept = {
        "leader_epoch": 0,
        "end_us": 9,
        "ends_mid_term": False,
        "assigned": [1, 2],
        "params": [],
        "state": b"\x78\x01\x03\0\0\0\0\1",
    }
    begins = row | {"kind": int(GOES_ON), "time_us": 5, "kept": kept}
    with pytest.raises(ValueError, match="another version"):
        list(replay_batches(in_pieces([begins], schema=WITH_KEPT), []))
