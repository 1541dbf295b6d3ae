"""Requests of sessions in turn, cut into batches anywhere, and the partitions that requests list."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fetch_runs import singly
from tests.request_pieces import fetch_piece, piece, signed
from tests.unit.kernel.test_fetch_sessions import Request, answered, in_batches, listed, read, request
from udfs.batches.listed_partitions import listed_by_fetches, produced_partitions, seen_in_fetches
from udfs.batches.partitions_read import sessions_read
from udfs.batches.sessions import (
    INSTANTS,
    STRETCH_OF_SESSION,
    missing_session_requests,
    session_requests_in_turn,
    with_session_members,
)


@st.composite
def sessions(draw: st.DrawFn) -> list[Request]:
    rows: list[Request] = []
    for broker in (1, 2):
        for session in draw(st.lists(st.integers(-1, 3), unique=True, max_size=3)):
            for epoch in sorted(draw(st.lists(st.integers(-1, 5), max_size=4))):
                arrival = draw(st.integers(0, 50))
                times = dict.fromkeys(INSTANTS, arrival) | {"completed_us": arrival + draw(st.integers(0, 50))}
                file = draw(st.sampled_from(["a", "b"]))
                rows.append(request(len(rows), session, epoch, broker_id=broker, source_file=file, **times))
    return rows


@settings(max_examples=100, deadline=None)
@given(st.data(), sessions())
def test_requests_know_the_one_before_and_end_before_the_next(data: st.DataObject, log: list[Request]) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(log)), max_size=4))
    found = [row for batch in session_requests_in_turn(in_batches(log, cuts)) for row in batch.to_pylist()]
    assert len(found) == len(log)
    of = [(row["broker_id"], row["session"]) for row in log]
    for n, (row, given_row) in enumerate(zip(found, log, strict=True)):
        goes_on = n + 1 < len(log) and of[n + 1] == of[n]
        in_turn = goes_on and of[n][1] > 0 and log[n + 1]["source_file"] == given_row["source_file"]
        late = max(0, given_row["completed_us"] - log[n + 1]["arrival_us"]) if in_turn else 0
        assert [row[name] for name in INSTANTS] == [given_row[name] - late for name in INSTANTS]
        assert row["previous_epoch"] == (log[n - 1]["session_epoch"] if n and of[n - 1] == of[n] else None)
        assert row["source_line"] == given_row["source_line"]


def test_gaps_between_requests() -> None:
    session = 7 + STRETCH_OF_SESSION
    log = [request(n, session, epoch, error_code=error) for n, (epoch, error) in enumerate(
        [(4, 0), (5, 0), (7, 0), (9, 71), (9, 0)]
    )]  # fmt: skip
    log += [request(9, 8, 1, error_code=71), request(10, 9, 0)]
    found = [
        row
        for batch in session_requests_in_turn(in_batches(log, [2]))
        for row in missing_session_requests(batch).to_pylist()
    ]
    assert [(row["source_line"], row["reason"], row["detail"]) for row in found] == [
        (0, "fetch session began before the log", "session 7 of broker 1 with replica 2: epoch 4 after none"),
        (2, "gap in fetch session", "session 7 of broker 1 with replica 2: epoch 7 after 5"),
    ]  # fmt: skip


def test_the_first_request_of_a_session_reads_its_earlier_partitions() -> None:
    log = [request(1, 7, 4, topics=[listed("a", p0=5)]), request(2, 7, 5), request(3, 8, 1)]
    held = [(["a"], "name of a", [(0, -1, -1), (200, -1, -1)]), ([], "b", [(1, -1, -1)])]
    batches = list(sessions_read(in_batches(log, [1]), {(1, 7): held, (1, 9): held}))
    gaps = [row for batch in batches for row in batch.to_pylist() if row["reason"]]
    assert [row["source_line"] for row in gaps] == [1, 3]
    reads = [batch.filter(pc.is_null(batch.column("reason"))) for batch in batches]
    rows = sorted(singly(reads), key=lambda row: (row["source_line"], row["topic"], row["partition_id"]))
    assert [(row["source_line"], row["topic"], row["partition_id"], row["fetch_offset"]) for row in rows] == [
        (1, "a", 0, 5), (1, "a", 200, -1), (1, "b", 1, -1), (2, "a", 0, 5), (2, "a", 200, -1), (2, "b", 1, -1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lists", "topic"),
    [
        ({}, "id"),
        ({"topics": [listed("x", p0=1)]}, "id"),
        ({"topics": [listed("x", p0=1) | {"topicId": None, "topic": "x"}]}, "name"),
        ({"responses": [answered("x", 0) | {"topicId": None, "topic": "x"}]}, "name"),
        ({"forgotten": [{"topicId": None, "topic": "x", "partitions": [4]}]}, "id"),
    ],
)
def test_members_are_named_as_the_request_names_topics(lists: dict[str, Any], topic: str) -> None:
    (batch,) = session_requests_in_turn(in_batches([request(1, 7, 4, **lists)], []))
    (with_held,) = (
        with_session_members(batch, {(1, 7): [(["id"], "name", [(0, -1, -1)])]}).column("partitions").to_pylist()
    )
    own = fetch_piece(request(1, 7, 4, **lists))
    added = piece([(topic, topic == "id", [(0, 0, 0)])], [], [])[1:-2]
    assert with_held == bytes([own[0] + 1]) + added + own[1:]


def fetches(*requests: Request) -> pa.RecordBatch:
    (batch,) = in_batches(list(requests), [])
    return batch.append_column("stretch", pa.array([0] * batch.num_rows, pa.int32()))


def test_partitions_that_fetches_list() -> None:
    batch = fetches(
        request(10, topics=[listed("a", p0=5, p1=6), listed("b", p0=7)], responses=[answered("a", 1, error=6)]),
        request(20, topics=[listed("a", p0=5)], error_code=71),
        request(30, topics=[listed("a", p0=5)], responses=[answered("b", 0, error=6), answered("a", 0, error=-1)]),
        request(40, topics=[listed("a", p0=9)]),
    )
    (rows,) = listed_by_fetches(iter([batch]))
    names = ("handled_us", "topic_id", "partition_id", "leader_epoch", "fetch_offset", "failed")
    assert list(zip(*(rows.column(name).to_pylist() for name in names), strict=True)) == [
        (10, "a", 0, 3, 5, False), (10, "a", 1, 3, 6, True), (10, "b", 0, 3, 7, False), (20, "a", 0, 3, 5, True),
        (30, "a", 0, 3, 5, False), (40, "a", 0, 3, 9, False),
    ]  # fmt: skip
    (seen,) = seen_in_fetches(iter([batch]))
    assert sorted(tuple(row.values()) for row in seen.to_pylist()) == [
        (1, 0, "a", 0, 3, 2, 10, 40, 3), (1, 0, "a", 1, 3, 2, None, None, 0), (1, 0, "b", 0, 3, 2, 10, 10, 1)
    ]  # fmt: skip


def test_partitions_of_produce_requests() -> None:
    given_rows = [
        piece([("a", True, [(0, 5), (1, 0)])], [], []),
        piece([("a", True, [(0, 5)])], [], [("a", True, [(0, signed(0), 8), (1, signed(-1), 0)])]),
        piece([("a", True, [(0, 5)])], [], [("a", True, [])]),
    ]
    whole = {name: [1, 2, 3] for name in ("broker_id", "handled_us", "processed_us", "completed_us", "acks")}
    columns = whole | {
        "client_id": ["x", "y", None],
        "source_file": ["f"] * 3,
        "source_line": [1, 2, 3],
        "partitions": given_rows,
    }
    batch = pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})
    names = ("source_line", "client_id", "topic_id", "partition_id", "answered", "base_offset", "error_code", "size")
    rows = [
        tuple(row[name] for name in names) for part in produced_partitions(iter([batch])) for row in part.to_pylist()
    ]
    assert rows == [
        (1, "x", "a", 0, False, None, 0, 3), (1, "x", "a", 1, False, None, 0, None),
        (2, "y", "a", 0, True, 7, 0, None), (2, "y", "a", 1, True, None, -1, None),
    ]  # fmt: skip


def test_long_numbers_and_names() -> None:
    log = [request(1, topics=[listed("t" * 300, p0=(1 << 53) - 1, p2147483647=0)])]
    assert [row[1:5] for row in read(log)] == [("t" * 300, 0, 3, (1 << 53) - 1), ("t" * 300, 2**31 - 1, 3, 0)]
