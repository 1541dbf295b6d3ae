"""Decode the partitions of requests, which are encoded as pieces (see `pieces`), into Arrow and numpy arrays."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from udfs.request_log import pieces

Ints = npt.NDArray[np.int64]

_MORE = 128
_ESCAPE = ord("\\")


class UnpackedPartitions(NamedTuple):
    """One of the three lists of a batch's requests: partitions requested, forgotten, or in the responses.

    ``topics`` contains one string per topic entry: the topic's id where ``is_id`` is true, else its name. ``per_topic``
    is the number of partitions of each topic entry. ``entries`` and ``per_request`` are the numbers of topic entries
    and of partitions of each request. ``numbers`` has one row per partition, with the decoded numbers that
    `udfs.request_log.pieces` lists.
    """

    topics: pa.Array
    is_id: npt.NDArray[np.bool_]
    per_topic: Ints
    entries: Ints
    per_request: Ints
    numbers: Ints

    def request(self) -> Ints:
        """Return for each partition the index of its request in the batch."""
        return np.repeat(np.arange(len(self.per_request)), self.per_request)

    def topic_by_partition(self) -> pa.Array:
        """Return the topic (id or name) of each partition."""
        return self.topics.take(pa.array(np.repeat(np.arange(len(self.per_topic)), self.per_topic)))


def unpacked_fetches(packed: pa.Array) -> tuple[UnpackedPartitions, UnpackedPartitions, UnpackedPartitions]:
    """Decode the partitions of fetches from pieces.

    Parameters
    ----------
    packed : binary array
        One piece per request. A null is a request without partitions.

    Returns
    -------
    asked, forgotten, answered : UnpackedPartitions
        The columns of ``numbers`` are (partition, leader epoch, offset), (partition,), and (partition, error, high
        watermark, bytes).
    """
    asked, forgotten, answered = _unpacked_pieces(packed, pieces.FETCH_NUMBERS)
    asked.numbers[:, 1:] -= 1
    answered.numbers[:, 1] = _zigzag_decoded(answered.numbers[:, 1])
    answered.numbers[:, 2:] -= 1
    return asked, forgotten, answered


def with_topics_in_front(
    piece: bytes, topics: Sequence[tuple[str, Sequence[tuple[int, int, int]]]], *, by_id: bool
) -> bytes:
    """Return the encoded partitions of a fetch (a piece) with more requested partitions added at their front.

    Parameters
    ----------
    piece : bytes
        The piece of a fetch.
    topics : sequence of (str, sequence of (int, int, int))
        Topic ids or names, each with its partitions: partition id, leader epoch and offset; -1 if unknown.
    by_id : bool
        Whether the topics are given as ids.
    """
    out = bytearray()
    first = next(place for place, byte in enumerate(piece) if byte < _MORE)
    count = sum((byte & (_MORE - 1)) << 7 * place for place, byte in enumerate(piece[: first + 1]))
    _write_varint(count + len(topics), out)
    for topic, partitions in topics:
        name = json.dumps(topic, ensure_ascii=False)[1:-1].encode()
        _write_varint(2 * len(name) + by_id, out)
        out += name
        _write_varint(len(partitions), out)
        for partition, leader_epoch, offset in partitions:
            _write_varint(partition, out)
            _write_varint(leader_epoch + 1, out)
            _write_varint(offset + 1, out)
    return bytes(out) + piece[first + 1 :]


def _write_varint(number: int, out: bytearray) -> None:
    """Append an unsigned number to ``out``, with seven bits per byte."""
    while number >= _MORE:
        out.append(number % _MORE | _MORE)
        number //= _MORE
    out.append(number)


def unpacked_produce_requests(packed: pa.Array) -> tuple[UnpackedPartitions, UnpackedPartitions]:
    """Decode the partitions of produce requests from pieces.

    Returns
    -------
    asked, answered : UnpackedPartitions
        The columns of ``numbers`` are (partition, bytes or -2 if not logged), and (partition, error, base offset).
    """
    asked, _none, answered = _unpacked_pieces(packed, pieces.PRODUCE_NUMBERS)
    asked.numbers[:, 1] -= 2
    answered.numbers[:, 1] = _zigzag_decoded(answered.numbers[:, 1])
    answered.numbers[:, 2] -= 1
    return asked, answered


def _zigzag_decoded(numbers: Ints) -> Ints:
    """Convert zigzag-encoded numbers to signed numbers."""
    return (numbers >> 1) ^ -(numbers & 1)


def _unpacked_pieces(
    packed: pa.Array, numbers: tuple[int, int, int]
) -> tuple[UnpackedPartitions, UnpackedPartitions, UnpackedPartitions]:
    """Decode pieces into their three lists. ``numbers`` is `FETCH_NUMBERS` or `PRODUCE_NUMBERS` of `pieces`."""
    rows = len(packed)
    _valid, edges, data = packed.buffers()
    # Both arrays are always read-only. For writable arrays, numba would compile the function again.
    at = np.frombuffer(memoryview(edges if rows else bytes(4)).toreadonly(), np.int32)
    at = at[packed.offset : packed.offset + rows + 1] if rows else at
    text = np.frombuffer(memoryview(data or b"").toreadonly(), np.uint8)
    totals = np.empty((3, 3), np.int64)
    pieces.count_pieces(text, at, numbers, totals)
    asked, forgotten, answered = (
        pieces.PieceLists(
            np.empty(size, np.uint8), np.empty(entries, np.int64), np.empty(entries, np.bool_),
            np.empty(entries, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64),
            np.empty((partitions, columns), np.int64),
        )
        for (size, entries, partitions), columns in zip(totals, numbers, strict=True)
    )  # fmt: skip
    pieces.unpack_pieces(text, at, numbers, asked, forgotten, answered, np.zeros((3, 3), np.int64))
    return _partitions_of_lists(asked), _partitions_of_lists(forgotten), _partitions_of_lists(answered)


def _partitions_of_lists(lists: pieces.PieceLists) -> UnpackedPartitions:
    """Convert one of the three lists, which the kernel has decoded, to Arrow and numpy arrays."""
    edges = np.concatenate([[0], lists.name_end]).astype(np.int32)
    names = pa.StringArray.from_buffers(len(lists.name_end), pa.py_buffer(edges), pa.py_buffer(lists.names))
    return UnpackedPartitions(
        unescaped(names), lists.is_id, lists.partitions, lists.entries, lists.listed, lists.numbers
    )


def unescaped(names: pa.Array) -> pa.Array:
    """Return JSON strings (without quotes) with their escapes replaced by the characters that they encode."""
    text = names.buffers()[2]
    if text is None or not (np.frombuffer(text, np.uint8) == _ESCAPE).any():
        return names
    # A lone surrogate is not a character; like Spark, it is replaced by a question mark.
    return pa.array([json.loads(f'"{name}"').encode("utf-8", "replace").decode() for name in names.to_pylist()])
