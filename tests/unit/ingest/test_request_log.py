"""Lines of the request log, JSON: what they say, against a plain reader; and every way to be no request."""

import gzip
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from isr_batch.ingest.requests.request_log import FILE, FOLLOWER_FETCH, PRODUCE, REFUSED, parse_requests
from tests.mutated_lines import mutated
from tests.naive_request_log import MARK, naive_request
from tests.request_pieces import partitions_of
from tests.unit.ingest.test_request_log_text import LINES
from udfs.request_log import cut, pieces, requests, unpacked

SAMPLE = Path(__file__).parents[3] / "data" / "samples" / "leader-stop" / "broker-2" / "request.log.gz"
MUTATED = 10_000
STAMP = "[2026-11-21 16:30:10,000] DEBUG"
AS_IN_2_8 = (
    ('"topicId":', '"topic":'), ('"partitions":[{"partitionIndex":', '"partitionResponses":[{"partition":'),
    (',{"partitionIndex":', ',{"partition":'), ('"responses":[{"topic":', '"responses":[{"name":"","topic":'),
)  # fmt: skip


def parsed(lines: list[str | None], **columns: Any) -> pa.RecordBatch:
    rows = [{"broker_id": 2, "source_file": "f", "source_line": n, "value": text} | columns
            for n, text in enumerate(lines)]  # fmt: skip
    return parse_requests(pa.RecordBatch.from_pylist(rows, LINES))


def reasons(*lines: str) -> list[str | None]:
    found: list[str | None] = parsed(list(lines)).column("reason").to_pylist()
    return found


def as_naive(lines: list[str]) -> None:
    rows = parsed(list(lines))
    assert rows.num_rows == len(lines)
    for line, row, partitions in zip(lines, rows.to_pylist(), partitions_of(rows), strict=True):
        expected = naive_request(line)
        found = {name: row[name] for name in expected}
        if expected.get("partitions"):
            found["partitions"] = partitions
        assert found == expected, line
        if row["kind"] == REFUSED:
            assert row["raw"] == line[:500]


@pytest.fixture(scope="module")
def originals() -> list[bytes]:
    return [text for text in gzip.decompress(SAMPLE.read_bytes()).split(b"\n") if 0 < len(text) < 1500]


def test_recorded_lines_equal_a_plain_readers(originals: list[bytes]) -> None:
    lines = [text.decode() for text in originals[:3000]]
    as_naive(lines)
    for old, new in AS_IN_2_8:
        lines = [line.replace(old, new) for line in lines]
    as_naive(lines)


def test_mutated_lines_equal_a_plain_readers(originals: list[bytes]) -> None:
    chance = random.Random(20261125)
    chosen = [chance.choice(originals) for _ in range(MUTATED + 1)]
    for old, new in AS_IN_2_8:
        chosen[::3] = [line.replace(old.encode(), new.encode()) for line in chosen[::3]]
    changed = [mutated(a, b, chance).decode("utf-8", "replace") for a, b in pairwise(chosen)]
    # Text is another test's.
    json_lines = [line for line in changed if (line.partition(MARK)[2] or '{"').startswith('{"')]
    assert len(json_lines) > MUTATED * 0.9
    for first in range(0, len(json_lines), 997):
        as_naive(json_lines[first : first + 997])


def fetch(**members: Any) -> str:
    """A follower's fetch; ``a__b`` is member b of member a."""
    partition = {"partition": 3, "currentLeaderEpoch": 4, "fetchOffset": 5}
    request: dict[str, Any] = {
        "requestHeader": {"requestApiKey": 1, "requestApiVersion": 12, "clientId": "c"},
        "request": {"replicaId": 2, "topics": [{"topic": "t", "partitions": [partition]}]},
        "response": {"responses": []},
        **{f"{name}TimeMs": 1 for name in ("total", "requestQueue", "local", "remote", "send")},
    }
    for name, value in members.items():
        *path, last = name.split("__")
        inner = request
        for step in path:
            inner = inner[step]
        inner[last] = value
    return f"{STAMP}{MARK}{json.dumps(request)}"


def test_the_last_of_several_members_of_one_name_counts() -> None:
    twice = fetch().replace('"topics"', '"topics": [{"topic": "x", "partitions": []}, null], "topics"')
    entry = '"partitions": [{"partition": 3'
    again = fetch().replace(entry, f'"partitions": [{{}}], "topic": "u", {entry}, "partition": 7')
    rows = parsed([twice, again, fetch().replace('"request":', '"request": {"topics": []}, "request":')])
    assert rows.column("kind").to_pylist() == [FOLLOWER_FETCH] * 3
    asked = [each["asked"] for each in partitions_of(rows)]
    assert asked == [{("t", 3): (4, 5)}, {("u", 7): (4, 5)}, {("t", 3): (4, 5)}]
    assert reasons(fetch().replace('"topics"', '"topics": [5], "topics"')) == ["malformed JSON"]


def test_names_with_escapes() -> None:
    name, client = 'a"\\\n/ü\U0001f600', 'ç"'
    rows = parsed([fetch(request__topics=[{"topic": name, "partitions": []}], requestHeader__clientId=client),
                   fetch(request__topics=[{"topicId": name, "partitions": [{"partition": 0, "fetchOffset": 0}]}])]
                  )  # fmt: skip
    assert rows.column("client_id").to_pylist() == [client, "c"]
    assert [each["asked"] for each in partitions_of(rows)] == [{}, {(name, 0): (-1, 0)}]


def test_numbers_at_their_limits() -> None:
    most = 1 << 53
    topic = "request__topics"

    def asks(**partition: Any) -> str:
        entry = {"partition": 0, "fetchOffset": 0} | partition
        return fetch(**{topic: [{"topic": "t", "partitions": [entry]}]})

    odd, malformed = "offset or partition out of range", "malformed JSON"
    cases = {
        asks(fetchOffset=most): None, asks(fetchOffset=most + 1): odd, asks(fetchOffset=-1): odd,
        asks(fetchOffset=(1 << 63) - 1): odd, asks(fetchOffset=1 << 63): malformed, asks(fetchOffset=-1 << 63): odd,
        asks(fetchOffset=-(1 << 63) - 1): malformed, asks(partition=(1 << 31) - 1): None,
        asks(partition=1 << 31): malformed, asks(partition=-1): odd, asks(partition=None): odd,
        asks(fetchOffset=1.0): malformed, asks(currentLeaderEpoch=-1): None, asks(currentLeaderEpoch=-2): odd,
        fetch(totalTimeMs=86_400_000): None, fetch(totalTimeMs=86_400_000.5): "time out of range",
        fetch(localTimeMs=2.0): None, fetch(localTimeMs=2.001): "time out of range",
        fetch(sendTimeMs=None): None, fetch(sendTimeMs=-0.1): "time out of range",
        fetch(localTimeMs=-0.1): "request without api key or durations",
        fetch(totalTimeMs="1"): malformed, fetch(totalTimeMs=float("nan")): malformed,
        fetch(totalTimeMs=float("inf")): malformed, fetch(unread=float("nan")): malformed,
    }  # fmt: skip
    assert dict(zip(cases, reasons(*cases), strict=True)) == cases
    exact = parsed([fetch(totalTimeMs=3.0005, requestQueueTimeMs=0.0005, localTimeMs=1e-4, remoteTimeMs=12.5e-1)])
    us = {name: exact.column(name)[0].as_py() for name in ("arrival_us", "handled_us", "processed_us", "completed_us")}
    assert us["completed_us"] - us["arrival_us"] == 3001
    assert (us["handled_us"] - us["arrival_us"], us["processed_us"] - us["handled_us"]) == (1, 0)


def test_times_that_there_are_not() -> None:
    def at(stamp: str) -> str | None:
        return reasons(fetch().replace("2026-11-21 16:30:10,000", stamp))[0]

    none = "no readable time stamp"
    assert [at(s) for s in ("2028-02-29 00:00:00,000", "2026-11-21 23:59:59.999")] == [None, None]
    assert [at(s) for s in ("2026-02-29 00:00:00,000", "2100-02-29 00:00:00,000", "2026-00-10 00:00:00,000",
                            "2026-04-31 00:00:00,000", "2026-11-21 24:00:00,000", "2026-11-21 23:59:60,000",
                            "2026-11-21T23:59:59,000", "2026-11-21 23:59:59,00x")] == [none] * 8  # fmt: skip
    assert [at(s) for s in ("2009-12-31 00:00:00,000", "9999-12-31 00:00:00,000")] == ["time out of range"] * 2


def test_lines_without_a_request() -> None:
    assert reasons("", "  ", "\t", "x", STAMP, STAMP + MARK, MARK + "{}") == [
        None, None, *["not a line of the request log"] * 4, "no readable time stamp"
    ]  # fmt: skip
    assert parsed(["", "  ", "\t"]).column("kind").to_pylist() == ["blank", "blank", REFUSED]
    cut_short = fetch()[:-20]
    assert reasons(cut_short, fetch().replace(": 4,", ": x,"), fetch() + fetch(), fetch() + " {} }") == [
        "truncated line", "malformed JSON", "two requests in one line", None
    ]  # fmt: skip
    deep = fetch().replace('"request":', f'"deep": {"[" * 1001}{"]" * 1001}, "request":')
    assert reasons(deep, deep.replace("[" * 1001, "[" * 900).replace("]" * 1001, "]" * 900)) == ["malformed JSON", None]
    version = parsed([fetch(requestHeader__requestApiVersion=19), fetch(requestHeader__requestApiVersion=3)])
    assert version.column("detail").to_pylist() == ["API 1, version 19", "API 1, version 3"]


def test_other_requests_may_have_other_members_of_the_same_names() -> None:
    assert parsed([fetch(requestHeader__requestApiKey=24, request__topics=["a"])]).column("kind")[0].as_py() == "other"
    assert reasons(fetch(request__topics=["a"])) == ["malformed JSON"]


def test_a_request_without_a_response() -> None:
    produce = fetch(requestHeader__requestApiKey=0, response="", request={
        "acks": 0, "topicData": [{"name": "t", "partitionData": [{"index": 1, "recordsSizeInBytes": 7}, {"index": 2}]}]
    })  # fmt: skip
    rows = parsed([produce])
    assert rows.column("kind").to_pylist() == [PRODUCE]
    assert partitions_of(rows) == [{"asked": {("t", 1): (7,), ("t", 2): (-2,)}, "answered": {}}]


def test_lines_and_files_that_could_not_be_read() -> None:
    rows = [
        {
            "broker_id": 2,
            "source_file": "f",
            "source_line": 3,
            "value": None,
            "problem": "line too long",
            "detail": "d",
        },
        {"broker_id": 2, "source_file": "f", "source_line": None, "value": None, "problem": "empty file"},
    ]
    found = parse_requests(pa.RecordBatch.from_pylist(rows, LINES)).to_pylist()
    assert [(row["kind"], row["reason"], row["detail"], row["line_hash"]) for row in found] == [
        (REFUSED, "line too long", "d", None), (FILE, "empty file", None, None)
    ]  # fmt: skip
    assert parse_requests(pa.RecordBatch.from_pylist([], LINES)).num_rows == 0


def test_bytes_that_could_be_written_to_compile_nothing_again() -> None:
    """The reader gets both: those that it made, and those that Spark sent."""
    made = pa.RecordBatch.from_pylist([{"source_line": 1, "value": fetch()}], LINES)
    sent = pa.ipc.read_record_batch(pa.py_buffer(made.serialize().to_pybytes()), LINES)
    assert [batch.column("value").buffers()[2].is_mutable for batch in (made, sent)] == [True, False]
    for read in (parse_requests(made), parse_requests(sent)):
        for found in (read, pa.ipc.read_record_batch(pa.py_buffer(read.serialize().to_pybytes()), read.schema)):
            assert unpacked.unpacked_fetches(found.column("partitions"))
    functions: tuple[Any, ...] = (
        cut.cut_lines,
        requests.read_requests_into_columns,
        pieces.count_pieces,
        pieces.unpack_pieces,
    )
    assert [len(function.compiled.signatures) for function in functions] == [1, 1, 1, 1]


def test_a_part_of_a_batch_is_read_as_such() -> None:
    lines = [fetch(), "x", fetch(request__sessionId=5), fetch(request__sessionId=6)]
    batch = pa.RecordBatch.from_pylist([{"source_line": n, "value": text} for n, text in enumerate(lines)], LINES)
    assert parse_requests(batch.slice(2, 1)).to_pylist() == parse_requests(batch).slice(2, 1).to_pylist()


@pytest.mark.parametrize(
    ("text", "xxh64"),
    [("", -7444071767201028348), ("a", -8582455328737087284), ("Spark", -4294468057691064905)],
)  # the same as Spark's xxhash64
def test_the_hash_of_a_line(text: str, xxh64: int) -> None:
    data = np.frombuffer(text.encode(), np.uint8)
    out = cut.room_for_cut_lines(1)
    cut.cut_lines(data, np.array([0, len(data)], np.int32), out)
    assert out.line_hash[0] == xxh64
