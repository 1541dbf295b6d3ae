"""Packed segments: numbers survive packing, damage is reported, and a replay does not depend on the packing."""

import json
import random
import zlib
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.segments import in_pieces, packed_stream, segments_of
from tests.strategies import Log, Setting, cases_of_all_rules, logs
from tests.unit.batches.test_fetch_runs import stream
from udfs.batches import event_chunks, segments
from udfs.batches.event_chunks import COLUMNS_OF_FETCHES, event_chunks_of_fetches
from udfs.batches.replay import replay_batches
from udfs.batches.results import SET_COLUMNS, STATES
from udfs.batches.rule_runs import RuleRun
from udfs.batches.segment_stream import one_row_an_event
from udfs.batches.segments import (
    OF_FETCHES,
    PACKED,
    SEGMENT,
    DamagedSegmentError,
    packed_for_segment,
    unpack_segment,
    unpack_steps,
)
from udfs.batches.set_order import rows_of_piece
from udfs.records import APPEND, FETCH, NOBODY_WAITS, ROW_ORDER, Rows

LOGS = 40
DAY_US = 86_400_000_000
SET = {"cluster_id": "c", "topic": "t", "partition_id": 0, "leader_id": 1}
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200), st.integers(0, 70_000), st.sampled_from([-1, 0, 2**40])
)


def event(time_us: int, replica_id: int = 2, **given: Any) -> dict[str, Any]:
    kind = FETCH if replica_id > 0 else APPEND
    known = dict.fromkeys(Rows._fields, -1) | {"kind": int(kind), "time_us": time_us, "replica_id": replica_id}
    if kind == FETCH:
        known |= dict.fromkeys(("handled_us", "processed_us", "released_us", "until_us"), time_us + 7)
    return SET | known | given


def events_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Output of the stream, as plain rows."""
    batches = map(rows_of_piece, one_row_an_event(in_pieces(rows)))
    return [{name: row[name] for name in (*SET, *Rows._fields)} for batch in batches for row in batch.to_pylist()]


@given(st.lists(NUMBERS, max_size=50))
def test_numbers_come_out_as_they_went_in(values: list[int]) -> None:
    binary = packed_for_segment(np.array(values, np.int64))
    steps = np.empty(len(values), np.int64)
    unpack_steps(binary, steps)
    assert np.cumsum(steps).tolist() == values


@pytest.mark.parametrize(
    ("values", "width"),
    [([5, 5, 5], 0), ([5], 0), ([0, 127, -2], 2), ([0, 127, 0], 1), ([0, -128], 1), ([0, 32_768], 4), ([0, 2**31], 8)],
)
def test_differences_take_the_room_that_they_need(values: list[int], width: int) -> None:
    assert len(packed_for_segment(np.array(values))) == 9 + width * (len(values) - 1)


@pytest.mark.parametrize("binary", [b"", b"\0" * 8, b"\0" * 8 + b"\3", b"\0" * 8 + b"\1" + b"\0"])
def test_missing_numbers_are_reported(binary: bytes) -> None:
    with pytest.raises(DamagedSegmentError, match="3 numbers are not in"):
        unpack_steps(binary, np.empty(3, np.int64))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"format_version": 2}, "format 2, and 1 is known"),
        ({"checksum": 1}, "the checksum differs"),
        ({"offset": b"\0" * 9}, "the checksum differs"),
        ({"events": 10**15}, "1000000000000000 numbers are not in"),
    ],
)
def test_damage_is_reported_with_its_place(damage: dict[str, Any], told: str) -> None:
    (segment,) = segments_of([event(20), event(30)])
    with pytest.raises(DamagedSegmentError, match=rf"\('c', 't', 0, 1\) that begins at 20 us is damaged: {told}"):
        events_of(packed_stream([], [segment | damage]))


def test_a_wrong_number_of_fetches_is_reported() -> None:
    (segment,) = segments_of([event(20), event(30)])
    segment["kind"] = packed_for_segment(np.array([APPEND, FETCH], np.int64))
    segment["checksum"] = zlib.crc32(b"".join(segment[name] for name in PACKED))
    with pytest.raises(DamagedSegmentError, match="it should have 2 fetches"):
        events_of(packed_stream([], [segment]))


def test_segments_end_with_day_epoch_set_and_size() -> None:
    rows = [
        event(DAY_US - 20), event(DAY_US - 10, -1),
        event(DAY_US - 5),  # handled on the next day
        event(DAY_US - 4, -1), event(DAY_US),
        event(DAY_US + 1, leader_epoch=1), event(DAY_US + 2, leader_epoch=1), event(DAY_US + 3, leader_epoch=1),
        event(DAY_US + 3, partition_id=1),
    ]  # fmt: skip
    with patch.object(segments, "SEGMENT_ROWS", 2):
        found = segments_of(rows)
    told = ("partition_id", "day", "leader_epoch", "segment_number", "first_us", "last_us", "events", "fetches")
    assert [[segment[name] for name in told] for segment in found] == [
        [0, 0, 0, 0, DAY_US - 20, DAY_US - 10, 2, 1],
        [0, 1, 0, 1, DAY_US - 5, DAY_US - 5, 1, 1],
        [0, 0, 0, 2, DAY_US - 4, DAY_US - 4, 1, 0],
        [0, 1, 0, 3, DAY_US, DAY_US, 1, 1],
        [0, 1, 1, 4, DAY_US + 1, DAY_US + 2, 2, 2],
        [0, 1, 1, 5, DAY_US + 3, DAY_US + 3, 1, 1],
        [1, 1, 0, 0, DAY_US + 3, DAY_US + 3, 1, 1],
    ]
    assert events_of(packed_stream([], found)) == [{name: row[name] for name in (*SET, *Rows._fields)} for row in rows]


@pytest.mark.parametrize("number", range(LOGS))
def test_events_may_come_in_any_order(number: int) -> None:
    """Of several sets and epochs, with many at the same time; whatever is read, brought together or sorted at once."""
    choose = random.Random(number)
    rows = [
        event(DAY_US - 9 + choose.randrange(16), choose.choice([-1, 2, 3]), offset=choose.randrange(2))
        | {"partition_id": choose.randrange(2), "leader_epoch": choose.randrange(2)}
        for _ in range(choose.randrange(1, 150))
    ]
    in_order = sorted(rows, key=lambda row: [row[name] for name in (*SET_COLUMNS, *ROW_ORDER)])
    cuts = [choose.randrange(len(rows)) for _ in range(choose.randrange(12))]
    of_segment = choose.choice([2, 5])
    with (
        patch.object(event_chunks, "CHUNK_ROWS", choose.choice([2, 7, 1000])),
        patch.object(event_chunks, "PIECE_ROWS", choose.choice([1, 3])),
        patch.object(event_chunks, "PIECE_US", choose.choice([3, 1000])),
        patch.object(segments, "SEGMENT_ROWS", of_segment),
    ):
        found = segments_of(rows, cuts)
    assert events_of(packed_stream([], found)) == [
        {name: row[name] for name in (*SET, *Rows._fields)} for row in in_order
    ]
    keys = [(*(segment[name] for name in SET_COLUMNS), segment["segment_number"]) for segment in found]
    assert keys == sorted(set(keys))
    assert max(segment["events"] for segment in found) <= of_segment
    with patch.object(segments, "SEGMENT_ROWS", of_segment):
        assert segments_of(in_order) == found


def test_missing_columns_of_appends_are_not_packed() -> None:
    (segment,) = segments_of([event(20, -1, offset=3, code=1), event(30, -1, offset=5, code=1)])
    assert [len(segment[name]) for name in PACKED] == [10, 9, 10, 9, 0, 0, 0, 0, 0, 0]
    assert unpack_segment({field.name: segment[field.name] for field in SEGMENT})["handled_us"].tolist() == [-1, -1]


def test_refused_appends_are_left_out_and_no_producer_waits_without_a_logged_request() -> None:
    (segment,) = segments_of([event(20, -1, code=None), event(25, -1, offset=None, code=-1), event(30, -1, code=1)])
    columns = unpack_segment({field.name: segment[field.name] for field in SEGMENT})
    assert (columns["time_us"].tolist(), columns["code"].tolist()) == ([20, 30], [NOBODY_WAITS, 1])


@pytest.mark.parametrize("unit", [pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ms", "UTC")])
def test_times_are_read_whatever_their_unit_and_text_as_dictionaries(unit: pa.DataType) -> None:
    """As Spark hands them over, and as they are in files that it or others have written."""
    times = {name: 1_000 for name in COLUMNS_OF_FETCHES.values() if name.endswith("_time")}
    numbers = dict.fromkeys(("replica_id", "fetch_offset", "error_code"), 2)
    batch = pa.RecordBatch.from_pydict(
        {
            "cluster_id": pa.array(["c"]).dictionary_encode(),
            "topic": pa.array(["t"]),
            **{name: pa.array([0], pa.int32()) for name in ("partition_id", "leader_id", "leader_epoch")},
            **{name: pa.array([value]) for name, value in numbers.items()},
            **{name: pa.array([value], pa.timestamp("us")).cast(unit) for name, value in times.items()},
            "leader_log_end_offset": pa.nulls(1),
            "later_by": pa.nulls(1),
        }
    )
    (piece,) = [row for each in event_chunks_of_fetches(iter([batch])) for row in each.to_pylist()]
    assert (piece["cluster_id"], piece["topic"], piece["first_us"]) == ("c", "t", 1_000)
    found = {name: np.frombuffer(piece[name], np.int64).tolist() for name in COLUMNS_OF_FETCHES}
    assert found == {
        name: [{"leader_log_end_offset": -1}.get(column, times.get(column, 2))]
        for name, column in COLUMNS_OF_FETCHES.items()
    }


def test_segments_out_of_order_are_reported() -> None:
    found = segments_of([event(20)]) + segments_of([event(10)])
    rows = [row for segment in found for row in packed_stream([], [segment])]
    with pytest.raises(ValueError, match="not in order of time at 10 us"):
        events_of(rows)


@seed(20261122)
@settings(max_examples=LOGS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data(), cases_of_all_rules(), logs())
def test_a_replay_cannot_tell_how_its_log_was_packed(
    data: st.DataObject, case: tuple[Log, list[Setting]], other: Log
) -> None:
    """Packed at once, or each event in one of several packings that overlap in time."""
    log, chosen = case
    rules = [
        RuleRun(run.rule, {"replica_lag_time_max_ms": run.replica_lag_time_max_ms, **dict(run.flags)}) for run in chosen
    ]
    given_rows = [row for n, one in enumerate((log, other)) for row in stream(one, n, chosen[0], b"\0")]
    rows = [row | (dict.fromkeys(OF_FETCHES, -1) if row["kind"] == APPEND else {}) for row in given_rows]
    which = data.draw(st.binary(min_size=1, max_size=8))
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4))
    with patch.object(segments, "SEGMENT_ROWS", data.draw(st.sampled_from([1, 2, 5, 1000]))):
        parts = [[row for n, row in enumerate(rows) if which[n % len(which)] % 3 == part] for part in range(3)]
        several = [segment for part in parts for segment in segments_of(part, cuts)]
    whole = pa.Table.from_batches(one_row_an_event(in_pieces(packed_stream(rows, several), cuts))).to_pylist()
    assert [{name: row[name] for name in expected_names(row)} for row in whole] == [
        {name: row.get(name) for name in expected_names(row)} for row in rows
    ]

    def results(packed_rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        batches = replay_batches(in_pieces(packed_stream(rows, packed_rows)), rules)
        return [row for batch in batches for row in batch.to_pylist()]

    plain = results(several)
    assert plain == results(segments_of(rows))
    for kind in ("replica", "partition"):
        shared = list(replay_batches(in_pieces(packed_stream(rows, several)), rules, (), shared=[kind]))
        assert all(batch.schema == STATES[kind] for batch in shared)
        names = [*(STATES[kind].names[3:]), "rule", "params_json"]
        told = [{name: row[name] for name in names} for row in plain if row["result"] == kind]
        found = [
            {name: (row | {"rule": rule, "params_json": params_json})[name] for name in names}
            for batch in shared
            for row in batch.to_pylist()
            for run, (rule, params_json) in enumerate(json.loads(row["run_set"]))
            if row["runs"] >> run & 1
        ]
        assert sorted(found, key=repr) == sorted(told, key=repr)


def expected_names(row: dict[str, Any]) -> tuple[str, ...]:
    """Values of a row; a term's own struct is compared by its position alone."""
    return (*SET, *ROW_ORDER, *(() if row["kind"] < 0 else Rows._fields))
