"""Runs of identical fetches: which fetches form them, that nothing is lost, and that a replay gives the same."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.fetch_runs import OWN, singly
from tests.naive_truth import FETCH
from tests.segments import in_pieces, packed_stream, segments_of
from tests.strategies import Log, Setting, cases_of_all_rules, logs
from tests.unit.kernel.test_fetch_sessions import (
    COLUMNS,
    Request,
    answered,
    in_batches,
    in_order,
    listed,
    read_by_dicts,
    request,
    request_logs,
)
from udfs.batches import fetch_runs
from udfs.batches.partitions_read import partitions_read
from udfs.batches.replay import replay_batches
from udfs.batches.rule_runs import RuleRun
from udfs.records import ROW_ORDER, TERM_STARTS, Rows

LOGS = 120
INSTANTS = OWN[:5]
DAY_US = 86_400_000_000


def idle(count: int = 3, *, first_us: int = 10 * DAY_US, apart_us: int = 500_000, **given: Any) -> list[Request]:
    """A session that lists a partition once, and hears nothing of it."""
    requests = []
    for n in range(count):
        times = dict(zip((*INSTANTS, "answered_us"), (0, 10, 200, 400_000, 400_300, 400_100), strict=True))
        at = {name: first_us + n * apart_us + us for name, us in times.items()}
        requests.append(request(100 + 3 * n, 7, n, **at, **given))
    requests[0]["topics"] = [listed("a", p0=5, p1=6)]
    return requests


def runs_of(requests: list[Request]) -> list[tuple[int, ...]]:
    """Lines of the fetches of partition 0, by run."""
    found = []
    for batch in partitions_read(in_batches(requests, [])):
        for row in batch.to_pylist():
            lines = tuple(one["source_line"] for one in singly([pa.RecordBatch.from_pylist([row], batch.schema)]))
            found += [lines] if row["partition_id"] == 0 else []
    return sorted(found)


def test_an_idle_partition_has_one_row() -> None:
    (batch,) = partitions_read(in_batches(idle(), []))
    row = batch.to_pylist()[0]
    assert (row["partition_id"], row["source_line"], row["run_length"]) == (0, 100, 3)
    assert row["later_by"] == [*[500_000] * 5, 3] * 2
    assert row["last_handled_us"] == row["handled_us"] + 1_000_000
    assert row["last_waited_us"] == row["last_handled_us"]
    assert row["last_read_us"] == row["arrival_us"] + 1_400_100


def test_a_run_that_did_not_wait_was_read_once() -> None:
    requests = idle()
    for one in requests[1:]:
        one["released_us"] = one["processed_us"]
    (batch,) = partitions_read(in_batches(requests, []))
    row = batch.to_pylist()[0]
    assert (row["run_length"], row["last_waited_us"]) == (3, row["handled_us"])
    assert row["last_read_us"] == row["processed_us"] + 1_000_000


LAST = {
    "another offset": {"topics": [listed("a", p0=6)]},
    "an error": {"responses": [answered("a", 0, error=6)]},
    "a diverging epoch": {"responses": [answered("a", 0, diverges=True)]},
    "records": {"responses": [answered("a", 0, watermark=7)]},
    "a high watermark where there was none": {"responses": [answered("a", 0, watermark=6)]},
    "another file": {"source_file": "g"},
    "a request is missing": {"session_epoch": 3},
    "another broker": {"broker_id": 9, "topics": [listed("a", p0=5)], "session_epoch": 0},
    "a full fetch": {"topics": [listed("a", p0=5)], "session_epoch": 0},
    "a line further up": {"source_line": 99},
}


@pytest.mark.parametrize("given", LAST.values(), ids=LAST)
def test_a_fetch_that_differs_ends_the_run(given: Request) -> None:
    requests = idle()
    requests[2] |= given
    assert runs_of(requests) == sorted([(100, 103), (requests[2]["source_line"],)])


def test_an_epoch_that_is_unknown_makes_no_run() -> None:
    requests = idle()
    for partition in requests[0]["topics"][0]["partitions"]:
        partition["currentLeaderEpoch"] = -1
    assert runs_of(requests) == [(100,), (103,), (106,)]


def test_another_leader_epoch_ends_the_run() -> None:
    requests = idle()
    requests[2]["topics"] = [listed("a", p0=5)]
    requests[2]["topics"][0]["partitions"][0]["currentLeaderEpoch"] = 4
    assert runs_of(requests) == [(100, 103), (106,)]


def test_equal_high_watermarks_go_together() -> None:
    requests = idle()
    for one in requests[1:]:
        one["responses"] = [answered("a", 0, watermark=6)]
    assert runs_of(requests) == [(100,), (103, 106)]


def test_a_partition_that_is_left_out_once_begins_another_run() -> None:
    requests = idle(4)
    requests[2]["forgotten"] = [{"topicId": "a", "topic": None, "partitions": [0]}]
    requests[3]["topics"] = [listed("a", p0=5)]
    assert runs_of(requests) == [(100, 103), (109,)]


def test_a_refused_request_in_between_ends_the_run() -> None:
    requests = idle(4)
    requests[1]["error_code"] = 71
    assert runs_of(requests) == [(100,), (106, 109)]


def test_midnight_ends_the_run() -> None:
    assert runs_of(idle(first_us=10 * DAY_US - 10 - 500_001)) == [(100, 103), (106,)]
    assert runs_of(idle(first_us=10 * DAY_US - 10 - 500_000)) == [(100,), (103, 106)]


@pytest.mark.parametrize("name", INSTANTS)
def test_instants_that_go_back_end_the_run(name: str) -> None:
    requests = idle()
    requests[2][name] = requests[1][name] - 1
    assert runs_of(requests) == [(100, 103), (106,)]


def test_two_fetches_at_one_instant_are_no_run() -> None:
    assert runs_of(idle(apart_us=0)) == [(100,), (103,), (106,)]


def test_differences_fit_into_an_int() -> None:
    assert runs_of(idle(3, apart_us=2**31 - 1)) == [(100, 103, 106)]
    assert runs_of(idle(3, apart_us=2**31)) == [(100,), (103,), (106,)]


@settings(max_examples=200, deadline=None)  # the first call compiles
@given(st.data(), request_logs())
def test_expanded_runs_equal_the_fetches_read(data: st.DataObject, log: list[Request]) -> None:
    now_us = data.draw(st.sampled_from([10**15, 20 * DAY_US - 3000]))
    steps = st.lists(st.sampled_from([0, 1, 700, 2**31]), min_size=7, max_size=7)
    for one in log:
        now_us += one["source_line"] % 5 and 500
        draw = data.draw(st.one_of(st.none(), steps))
        at_us = now_us + (draw[0] if draw else 1)
        names = (*INSTANTS[:4], "answered_us", "completed_us")
        for name, step in zip(names, draw[1:] if draw else [200] * 6, strict=True):
            at_us += step
            one[name] = at_us
        if data.draw(st.booleans()):  # most say nothing new
            one |= {"topics": [], "forgotten": [], "responses": []}
    by_line = {one["source_line"]: one for one in log}
    cuts = data.draw(st.lists(st.integers(0, len(log)), max_size=3))
    batches = list(partitions_read(in_batches(log, cuts), data.draw(st.integers(1, 40))))
    single = list(singly(batches))
    assert in_order(tuple(row[name] for name in COLUMNS) for row in single) == read_by_dicts(log)
    for row in single:
        told = by_line[row["source_line"]]
        assert all(row[name] == told[name] for name in (*OWN, "broker_id", "replica_id", "source_file"))
    for batch in batches:
        for run in batch.to_pylist():
            of_run = [by_line[one["source_line"]] for one in singly([pa.RecordBatch.from_pylist([run], batch.schema)])]
            last = of_run[-1]
            waited = [one["handled_us"] for one in of_run if one["released_us"] > one["processed_us"]]
            assert run["last_handled_us"] == last["handled_us"] == max(one["handled_us"] for one in of_run)
            assert run["last_waited_us"] == max(waited, default=None)
            was_read = "answered_us" if last["released_us"] > last["processed_us"] else "processed_us"
            assert run["last_read_us"] == last[was_read]


def stream(log: Log, partition: int, setting: Setting, calm: bytes) -> list[dict[str, Any]]:
    """Rows of one set, in order; many of its followers ask for the same again."""
    rows: list[dict[str, Any]] = []
    for epoch, term in enumerate(log.terms):
        known: dict[str, Any] = dict.fromkeys(Rows._fields, -1)
        begins: dict[str, Any] = known | {
            "time_us": term.start_us, "kind": int(TERM_STARTS), "offset": term.start_offset, "leader": term.leader,
            "term": {
                "leader_epoch": epoch, "end_us": term.end_us, "high_watermark": term.start_high_watermark,
                "assigned": list(term.replicas), "isr_at_start": list(term.isr), "leader_is_new": term.leader_is_new,
                "process_is_new": epoch == 0, "replica_lag_time_max_ms": setting.replica_lag_time_max_ms,
                "min_insync_replicas": setting.min_insync_replicas, "check_origin_ms": setting.check_phase_ms,
                "isr_write_ms": 0, "begins_mid_term": term.begins_mid_term,
                "ends_mid_term": term.ends_mid_term, "offsets_known": True, "phase_known": term.phase_known,
                "isr_known": term.isr_known,
                "held_known": True,
                "held_at_start": list(term.held_at_start), "observers": list(term.observers),
            },
        }  # fmt: skip
        rows += [begins, *(known | row._asdict() | {"leader": term.leader} for row in term.rows)]
    rows.sort(key=lambda row: [row[name] for name in ROW_ORDER])
    asked: dict[int, int] = {}
    for n, row in enumerate(rows):
        if row["kind"] == FETCH:
            if calm[n % len(calm)] > 80:
                row |= {"code": 0, "leader_log_end_offset": -1, "offset": asked.get(row["replica_id"], row["offset"])}
            asked[row["replica_id"]] = row["offset"]
    rows.sort(key=lambda row: [row[name] for name in ROW_ORDER])
    key = {"cluster_id": "c", "topic": "t", "partition_id": partition}
    of_sets = [key | {"leader_id": row["leader"]} | row for row in rows]
    return sorted(of_sets, key=lambda row: row["leader_id"])


LATER_ROWS = ("time_us", "handled_us", "processed_us", "released_us", "until_us")


def with_runs(rows: Sequence[dict[str, Any]], alone: bytes) -> list[dict[str, Any]]:
    """Put every fetch that can be into the run of one before it, but for some."""
    out: list[dict[str, Any]] = []
    begun: dict[tuple[int, ...], tuple[dict[str, Any], dict[str, Any]]] = {}
    for n, row in enumerate(rows):
        if row["kind"] != FETCH or row["code"]:
            out.append(dict(row))
            continue
        key = ("partition_id", "leader_id", "replica_id", "offset", "leader_log_end_offset")
        same = tuple(row[name] for name in key)
        first, last = begun.get(same, (row, row))
        later = [row[name] - last[name] for name in LATER_ROWS]
        goes_on = row["handled_us"] > last["handled_us"] and all(row[name] >= last[name] for name in LATER_ROWS)
        if goes_on and max(later) < 2**31 and alone[n % len(alone)] > 60:
            first["later_by"] = [*(first.get("later_by") or []), *later, 0]
        else:
            first = dict(row)
            out.append(first)
        begun[same] = first, row
    return out


def results(rows: Sequence[dict[str, Any]], runs: list[RuleRun], cuts: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Replay rows, their fetches and appends packed."""
    stream = packed_stream(rows, segments_of(rows, cuts))
    return [row for batch in replay_batches(in_pieces(stream, cuts), runs) for row in batch.to_pylist()]


@pytest.mark.parametrize("examples", [LOGS // 2, pytest.param(LOGS, marks=pytest.mark.long)])
def test_a_replay_cannot_tell_runs_from_single_fetches(examples: int) -> None:
    @seed(20260731 + examples)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data(), cases_of_all_rules(), logs())
    def compare(data: st.DataObject, case: tuple[Log, list[Setting]], other: Log) -> None:
        log, chosen = case
        rules = [
            RuleRun(run.rule, {"replica_lag_time_max_ms": run.replica_lag_time_max_ms, **dict(run.flags)})
            for run in chosen
        ]
        bits = st.binary(min_size=1, max_size=8)
        calm = data.draw(bits)
        single = [row for n, one in enumerate((log, other, log)) for row in stream(one, n, chosen[0], calm)]
        runs = with_runs(single, data.draw(bits))
        cuts = data.draw(st.lists(st.integers(0, len(runs)), max_size=5))
        with patch.object(fetch_runs, "PIECE", data.draw(st.sampled_from([1, 3, 10, fetch_runs.PIECE]))):
            found = results(runs, rules, cuts)
        assert found == results(single, rules)

    compare()
