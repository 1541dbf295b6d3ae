"""The session kernel against a model made of dicts, on generated requests cut into batches anywhere."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fetch_runs import singly
from tests.request_pieces import fetch_piece
from udfs.batches.partitions_read import partitions_read
from udfs.request_log.requests import DIVERGED

Request = dict[str, Any]


SCHEMA = pa.schema([
    ("broker_id", pa.int32()), ("replica_id", pa.int32()),
    *((f"{name}_us", pa.int64()) for name in ("arrival", "handled", "processed", "released", "completed", "answered")),
    ("source_file", pa.string()), ("source_line", pa.int64()),
    ("session", pa.int64()), ("session_epoch", pa.int32()), ("error_code", pa.int32()),
    ("partitions", pa.binary()),
])  # fmt: skip


def request(line: int, session: int = 1, epoch: int = 0, **given: Any) -> Request:
    times = {f"{name}_us": line for name in ("arrival", "handled", "processed", "released", "completed", "answered")}
    row = {"broker_id": 1, "replica_id": 2, **times, "source_file": "f", "source_line": line, "session": session,
           "session_epoch": epoch, "error_code": 0, "topics": [], "forgotten": [], "responses": []}  # fmt: skip
    return row | given


def listed(topic: str, **offsets: int) -> dict[str, Any]:
    partitions = [
        {"partition": int(name[1:]), "currentLeaderEpoch": 3, "fetchOffset": offset} for name, offset in offsets.items()
    ]
    return {"topicId": topic, "topic": None, "partitions": partitions}


def answered(
    topic: str, partition: int, error: int = 0, watermark: int = 9, *, diverges: bool = False
) -> dict[str, Any]:
    row = {"partitionIndex": partition, "errorCode": error, "highWatermark": watermark,
           "recordsSizeInBytes": watermark // 7,
           "divergingEpoch": {"epoch": 1} if diverges else None}  # fmt: skip
    return {"topicId": topic, "topic": None, "partitions": [row]}


COLUMNS = (
    "source_line", "topic", "partition_id", "leader_epoch", "fetch_offset", "error_code", "high_watermark",
    "records_size", "fell_from",
)  # fmt: skip


def in_batches(requests: list[Request], cuts: list[int]) -> Iterator[pa.RecordBatch]:
    edges = [0, *sorted(cuts), len(requests)]
    for first, last in pairwise(edges):
        rows = [row | {"partitions": fetch_piece(row)} for row in requests[first:last]]
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def read(requests: list[Request], cuts: list[int] | None = None, rows_out: int = 1000) -> list[tuple[Any, ...]]:
    batches = partitions_read(in_batches(requests, cuts or []), rows_out)
    return in_order(tuple(row[name] for name in COLUMNS) for row in singly(batches))


def in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: row[:3])


def each(entries: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for entry in entries:
        for partition in entry["partitions"]:
            yield entry["topicId"] or entry["topic"], partition


def read_by_dicts(requests: list[Request]) -> list[tuple[Any, ...]]:
    """A leader's behaviour, in dicts."""
    sessions: dict[tuple[int, int], dict[tuple[str, int], tuple[int, int]]] = {}
    failed: dict[tuple[int, int, str, int], int] = {}
    out = []
    for row in requests:
        session = (row["broker_id"], row["session"])
        if row["session_epoch"] <= 0:
            sessions[session] = {}
        if row["error_code"]:
            continue
        cached = sessions.setdefault(session, {})
        fell: dict[tuple[str, int], int] = {}
        for topic, p in each(row["topics"]):
            partition = topic, p["partition"]
            if partition not in cached:
                failed[*session, *partition] = 0
            epoch, offset = cached.get(partition, (None, -1))
            if epoch == p["currentLeaderEpoch"] and offset > p["fetchOffset"] and not failed[*session, *partition]:
                fell[partition] = offset
            cached[topic, p["partition"]] = (p["currentLeaderEpoch"], p["fetchOffset"])
        for topic, p in each(row["forgotten"]):
            cached.pop((topic, p), None)
        answers = {}
        for topic, p in each(row["responses"]):
            error = p["errorCode"] or (DIVERGED if p["divergingEpoch"] else 0)
            answers[topic, p["partitionIndex"]] = (error, p["highWatermark"], p["recordsSizeInBytes"])
        for partition, (epoch, offset) in cached.items():
            answer = answers.get(partition, (0, None, 0))
            failed[*session, *partition] = answer[0]
            out.append((row["source_line"], *partition, epoch, offset, *answer, fell.get(partition)))
    return in_order(out)


TOPIC = st.sampled_from(["a", "b", "c"])
PARTITION = st.integers(0, 3)


@st.composite
def entries(draw: st.DrawFn, partition: st.SearchStrategy[Any]) -> list[dict[str, Any]]:
    some = draw(st.lists(st.tuples(TOPIC, st.lists(partition, max_size=3), st.booleans()), max_size=3))
    return [{"topicId": t if by_id else None, "topic": None if by_id else t, "partitions": p} for t, p, by_id in some]


def once(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """No request lists a partition twice."""
    seen: set[tuple[str, int]] = set()

    def new(topic: str, partition: int) -> bool:
        return (topic, partition) not in seen and not seen.add((topic, partition))  # type: ignore[func-returns-value]

    return [
        entry
        | {"partitions": [p for p in entry["partitions"] if new(entry["topicId"] or entry["topic"], p["partition"])]}
        for entry in topics
    ]


@st.composite
def request_logs(draw: st.DrawFn) -> list[Request]:
    asked = st.builds(
        lambda p, e, o: {"partition": p, "currentLeaderEpoch": e, "fetchOffset": o}, PARTITION, st.integers(-1, 2),
        st.integers(0, 2**40),
    )  # fmt: skip
    response = st.builds(
        lambda p, e, w, d: answered("", p, e, w, diverges=d)["partitions"][0],
        PARTITION, st.sampled_from([0, 0, 6]), st.integers(0, 2**40), st.booleans(),
    )  # fmt: skip
    rows: list[Request] = []
    for broker in (1, 2):
        for session in range(draw(st.integers(0, 2))):
            first = draw(st.integers(-1, 1))
            for number in range(draw(st.integers(1, 6))):
                epoch = draw(st.sampled_from([first + number] * 5 + [0]))
                rows.append(request(
                    len(rows), session, epoch, broker_id=broker, error_code=draw(st.sampled_from([0, 0, 0, 71])),
                    topics=once(draw(entries(asked))), forgotten=draw(entries(PARTITION)),
                    responses=draw(entries(response)),
                ))  # fmt: skip
    return rows


@settings(max_examples=200, deadline=None)  # the first call compiles
@given(st.data(), request_logs())
def test_kernel_equals_the_dicts_however_the_log_is_cut(data: st.DataObject, log: list[Request]) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(log)), max_size=4))
    rows_out = data.draw(st.integers(1, 30))
    assert read(log, cuts, rows_out) == read_by_dicts(log)


def test_partitions_not_listed_are_read_at_their_last_offset() -> None:
    log = [
        request(1, topics=[listed("a", p0=5, p1=7)]),
        request(2, epoch=1, topics=[listed("a", p1=8)], responses=[answered("a", 0)]),
        request(3, epoch=2),
    ]
    assert [row[:3] + row[4:7] for row in read(log)] == [
        (1, "a", 0, 5, 0, None), (1, "a", 1, 7, 0, None),
        (2, "a", 0, 5, 0, 9), (2, "a", 1, 8, 0, None),
        (3, "a", 0, 5, 0, None), (3, "a", 1, 8, 0, None),
    ]  # fmt: skip


def test_refused_request_reads_nothing_and_changes_nothing() -> None:
    log = [
        request(1, topics=[listed("a", p0=5)]),
        request(2, epoch=1, topics=[listed("a", p0=6, p1=6)], error_code=71),
        request(3, epoch=1, topics=[listed("a", p0=7)]),
    ]
    assert [(row[0], row[2], row[4]) for row in read(log)] == [(1, 0, 5), (3, 0, 7)]


def test_forgotten_partition_is_not_read_even_if_listed_in_the_same_request() -> None:
    gone = [{"topicId": "a", "topic": None, "partitions": [0, 1]}]
    log = [
        request(1, topics=[listed("a", p0=5, p2=5)]),
        request(2, epoch=1, topics=[listed("a", p1=6)], forgotten=gone),
    ]
    assert [(row[0], row[2]) for row in read(log)] == [(1, 0), (1, 2), (2, 2)]


def test_errors_of_partitions_and_diverging_epochs_are_reported() -> None:
    log = [request(1, topics=[listed("a", p0=5, p1=5, p2=5)],
                   responses=[answered("a", 0, error=6), answered("a", 1, diverges=True)])]  # fmt: skip
    assert [row[5] for row in read(log)] == [6, DIVERGED, 0]


def test_a_topic_may_appear_several_times() -> None:
    log = [request(1, topics=[listed("a", p0=5), listed("b", p0=1), listed("a", p1=6)])]
    assert [(row[1], row[2], row[4]) for row in read(log)] == [("a", 0, 5), ("a", 1, 6), ("b", 0, 1)]


def test_a_log_that_begins_within_a_session_has_the_partitions_listed_since() -> None:
    log = [request(1, epoch=8), request(2, epoch=9, topics=[listed("a", p0=5)]), request(3, epoch=10)]
    assert [row[0] for row in read(log)] == [2, 3]


def test_the_same_session_id_on_another_broker_is_another_session() -> None:
    log = [request(1, topics=[listed("a", p0=5)]), request(2, epoch=1, broker_id=2)]
    assert [row[0] for row in read(log)] == [1]


def test_no_requests_give_no_rows() -> None:
    assert read([]) == []


def test_an_offset_that_goes_back_is_reported_unless_the_follower_truncated() -> None:
    def fell(*answers: dict[str, Any], epoch: int = 3) -> Any:
        again = listed("a", p0=5)
        again["partitions"][0]["currentLeaderEpoch"] = epoch
        log = [request(1, topics=[listed("a", p0=9)], responses=list(answers)), request(2, epoch=1, topics=[again])]
        return read(log)[1][-1]

    assert fell() == fell(answered("a", 0)) == 9
    assert fell(answered("a", 0, error=1)) is None
    assert fell(answered("a", 0, diverges=True)) is None
    assert fell(epoch=4) is None
