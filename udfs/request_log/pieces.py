"""Encode the partitions of one fetch or produce request as bytes, called a piece.

A piece has three lists: requested partitions, forgotten partitions (of a fetch), and partitions in the response. A list
is a count of topic entries and, for each entry, its name, a count of partitions, and these numbers per partition:

=========  =============================================  =============================================
list       fetch                                          produce
=========  =============================================  =============================================
asked      partition, leader epoch + 1, fetch offset + 1  partition, bytes + 2 (0: not logged)
forgotten  partition
answered   partition, error, high watermark + 1, bytes+1  partition, error, base offset + 1
=========  =============================================  =============================================

A count or number has seven bits per byte, the lowest first. The eighth bit is set in all bytes but the last. An error
may be negative, so 0, -1, 1, -2 ... are written as 0, 1, 2, 3 ... A name is encoded as twice its length in bytes, plus
one if it is a topic id, followed by the bytes of the JSON string.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.jit import entry, inlined, kernel
from udfs.request_log import fields as f

FETCH_NUMBERS = (3, 1, 4)
PRODUCE_NUMBERS = (2, 0, 3)
"""Count of numbers per partition in each list (asked, forgotten, answered), in pieces of fetches and produce
requests."""

ASKED, FORGOTTEN, ANSWERED = range(3)

Ints = npt.NDArray[np.int64]


class PieceLists(NamedTuple):
    """One of the three lists (requested, forgotten, in the response) of many requests, decoded from pieces.

    ``names`` contains the concatenated names of all topic entries; the name of entry i ends at ``name_end[i]``.
    ``is_id`` and ``partitions`` say for each topic entry whether its name is a topic id, and how many partitions it
    has. ``entries`` and ``listed`` are the numbers of topic entries and of partitions in each piece. ``numbers`` has
    one row per partition, with numbers as they are encoded.
    """

    names: npt.NDArray[np.uint8]
    name_end: Ints
    is_id: npt.NDArray[np.bool_]
    partitions: Ints
    entries: Ints
    listed: Ints
    numbers: Ints


@kernel
def write_unsigned_piece(number, out, at):
    """Write a non-negative number to ``out`` at ``at``, seven bits per byte. Return the position after it."""
    while number >= 128:
        out[at] = (number & 127) | 128
        number >>= 7
        at += 1
    out[at] = number
    return at + 1


@kernel
def write_signed_piece(number, out, at):
    """Write a number of any sign to ``out`` at ``at``, seven bits per byte. Return the position after it."""
    return write_unsigned_piece((number << 1) ^ (number >> 63), out, at)


@kernel
def write_name_piece(text, topics, row, out, at):
    """Write the topic id of entry ``row`` of ``topics`` to ``out`` at ``at``, or the topic's name if it has no id.

    Return the position after it. ``topics`` contains positions in ``text`` (`udfs.request_log.fields`).
    """
    begin, end = topics[row, f.ID_BEGIN], topics[row, f.ID_END]
    is_id = begin != f.NULL
    if not is_id:
        column = f.TOPIC_BEGIN if topics[row, f.TOPIC_BEGIN] != f.NULL else f.NAME_BEGIN
        begin, end = topics[row, column], topics[row, column + 1]
    at = write_unsigned_piece(2 * (end - begin) + is_id, out, at)
    for k in range(begin, end):
        out[at] = text[k]
        at += 1
    return at


@inlined
def _read_varint(data, at):
    """Read the unsigned number at ``at``, seven bits per byte. Return the number and the position after it."""
    number, shift = np.int64(0), 0
    while data[at] >= 128:
        number |= np.int64(data[at] & 127) << shift
        shift += 7
        at += 1
    return number | np.int64(data[at]) << shift, at + 1


@entry
def count_pieces(data, edges, numbers, totals):
    """Count the topic entries, partitions and bytes of names in many pieces, separately for each of their three lists.

    A piece is the encoded partitions of one request: requested, forgotten, and in the response.

    Parameters
    ----------
    data : uint8 array
        The pieces, one after the other.
    edges : int32 or int64 array (n + 1)
        Piece i is ``data[edges[i]:edges[i + 1]]``; it may be empty.
    numbers : tuple of three int
        `FETCH_NUMBERS` or `PRODUCE_NUMBERS`.
    totals : int64 array (3, 3)
        The counts are written here: one row per list, with the bytes of all names, the number of topic entries, and the
        number of partitions.
    """
    totals[:] = 0
    for i in range(len(edges) - 1):
        at = np.int64(edges[i])
        if edges[i + 1] == edges[i]:
            continue
        for kind in range(3):
            topics, at = _read_varint(data, at)
            totals[kind, 1] += topics
            for _ in range(topics):
                length, at = _read_varint(data, at)
                at += length >> 1
                totals[kind, 0] += length >> 1
                partitions, at = _read_varint(data, at)
                totals[kind, 2] += partitions
                for _ in range(partitions * numbers[kind]):
                    _number, at = _read_varint(data, at)


@entry
def unpack_pieces(data, edges, numbers, asked: PieceLists, forgotten: PieceLists, answered: PieceLists, filled):
    """Decode pieces into their three lists. The caller allocates these with the sizes that `count_pieces` found.

    ``data``, ``edges`` and ``numbers`` are those of `count_pieces`. The caller passes an array of zeros as ``filled``
    (int64, shape (3, 3)). Afterwards it equals ``totals`` of `count_pieces`.
    """
    name, topic, row = filled[:, 0], filled[:, 1], filled[:, 2]
    for i in range(len(edges) - 1):
        at = np.int64(edges[i])
        empty = edges[i + 1] == edges[i]
        for kind in range(3):
            out = asked if kind == ASKED else (forgotten if kind == FORGOTTEN else answered)
            out.entries[i] = out.listed[i] = 0
            if empty:
                continue
            out.entries[i], at = _read_varint(data, at)
            for _ in range(out.entries[i]):
                length, at = _read_varint(data, at)
                for _ in range(length >> 1):
                    out.names[name[kind]] = data[at]
                    name[kind] += 1
                    at += 1
                out.name_end[topic[kind]] = name[kind]
                out.is_id[topic[kind]] = length & 1
                out.partitions[topic[kind]], at = _read_varint(data, at)
                out.listed[i] += out.partitions[topic[kind]]
                for _ in range(out.partitions[topic[kind]]):
                    for k in range(numbers[kind]):
                        out.numbers[row[kind], k], at = _read_varint(data, at)
                    row[kind] += 1
                topic[kind] += 1
