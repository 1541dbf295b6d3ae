"""Pieces of requests written and read by hand, as udfs/request_log/pieces.py describes them."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from udfs.request_log import unpacked

Entries = Sequence[tuple[str, bool, Sequence[tuple[int, ...]]]]
"""Topic entries: id or name, whether it is an id, and the numbers of its partitions as they are written."""


def unsigned(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def signed(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def piece(*lists: Entries) -> bytes:
    out = b""
    for entries in lists:
        out += unsigned(len(entries))
        for topic, is_id, partitions in entries:
            name = topic.encode()
            out += unsigned(2 * len(name) + is_id) + name + unsigned(len(partitions))
            out += b"".join(unsigned(number) for partition in partitions for number in partition)
    return out


def _entries(topics: Iterable[dict[str, Any]], numbers: Any) -> Entries:
    return [
        (t["topicId"] or t["topic"], t["topicId"] is not None, [numbers(p) for p in t["partitions"]]) for t in topics
    ]


def fetch_piece(row: dict[str, Any]) -> bytes:
    """Piece of a request with ``topics``, ``forgotten`` and ``responses`` in Fetch's JSON form."""

    def answered(p: dict[str, Any]) -> tuple[int, ...]:
        error = p["errorCode"] or (-1 if p["divergingEpoch"] else 0)
        return p["partitionIndex"], signed(error), p["highWatermark"] + 1, p["recordsSizeInBytes"] + 1

    return piece(
        _entries(row["topics"], lambda p: (p["partition"], p["currentLeaderEpoch"] + 1, p["fetchOffset"] + 1)),
        _entries(row["forgotten"], lambda p: (p,)),
        _entries(row["responses"], answered),
    )


def by_topic(partitions: unpacked.UnpackedPartitions) -> list[dict[tuple[str, int], tuple[int, ...]]]:
    """For each request, the numbers unpacked from its list of partitions, by topic and partition id."""
    found: list[dict[tuple[str, int], tuple[int, ...]]] = [{} for _ in partitions.per_request]
    topics = partitions.topic_by_partition().to_pylist()
    for request, topic, numbers in zip(partitions.request(), topics, partitions.numbers.tolist(), strict=True):
        found[request][topic, numbers[0]] = tuple(numbers[1:])
    return found


def partitions_of(rows: pa.RecordBatch) -> list[dict[str, dict[tuple[str, int], tuple[int, ...]]]]:
    """For each parsed line of a request log, the partitions requested, forgotten and answered."""
    out: list[dict[str, dict[tuple[str, int], tuple[int, ...]]]] = []
    for kind, packed in zip(rows.column("kind").to_pylist(), rows.column("partitions"), strict=True):
        one = pa.array([packed.as_py()], pa.binary())
        if kind == "produce":
            lists = dict(zip(("asked", "answered"), unpacked.unpacked_produce_requests(one), strict=True))
        else:
            lists = dict(zip(("asked", "forgotten", "answered"), unpacked.unpacked_fetches(one), strict=True))
        out.append({name: by_topic(each)[0] for name, each in lists.items()})
    return out
