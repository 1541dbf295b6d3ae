"""Find, for each line of a request log, its time, where its request begins, and a hash of the whole line."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.jit import entry, inlined, kernel
from udfs.request_log.fields import MARK, NULL
from udfs.request_log.words import BYTES, filled_with, word_at, word_without

BLANK, WITHOUT_REQUEST, JSON, TEXT = range(4)
"""Classes of lines: blank, without a request, with a request as JSON, with a request as text (before Kafka 2.8)."""

_MARK = np.frombuffer(MARK, np.uint8).copy()
_STAMP = np.frombuffer(b"[dddd-dd-dd dd:dd:dd,ddd]", np.uint8).copy()
_DAYS = np.array([31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_SPACE, _QUOTE, _COMMA, _POINT, _OPEN, _ZERO, _DIGIT = (ord(c) for c in ' ",.{0d')
_NEWLINE = ord("\n")
_NEWLINES = filled_with(_NEWLINE)
_SEED = 42
_P1, _P2, _P3 = (np.uint64(p) for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)


class CutLines(NamedTuple):
    """Columns with one value per line of a block.

    ``line_class`` is BLANK, WITHOUT_REQUEST, JSON or TEXT. ``stamp_us`` is the line's time in microseconds since the
    epoch, or `NULL`. ``begin`` is the position in the block at which the request begins, or -1 if the line has none.
    """

    line_class: npt.NDArray[np.int8]
    stamp_us: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    line_hash: npt.NDArray[np.int64]


def room_for_cut_lines(lines: int) -> CutLines:
    """Allocate a `CutLines` for ``lines`` lines."""
    return CutLines(np.empty(lines, np.int8), *(np.empty(lines, np.int64) for _ in range(3)))


@inlined
def _number_of_digits(text, at, digits):
    """Parse the next ``digits`` decimal digits as one number."""
    number = 0
    for k in range(at, at + digits):
        number = number * 10 + (np.int64(text[k]) - _ZERO)
    return number


@kernel
def _line_stamp_us(text, at, end):
    """Parse the time ``[yyyy-MM-dd HH:mm:ss,SSS]`` at ``at`` as UTC, in microseconds; `NULL` if it is missing."""
    if end - at < len(_STAMP):
        return NULL
    for k in range(len(_STAMP)):
        c, wanted = text[at + k], _STAMP[k]
        if wanted == _DIGIT:
            if not _ZERO <= c <= _ZERO + 9:
                return NULL
        elif c != wanted and not (wanted == _COMMA and c == _POINT):
            return NULL
    year, month, day = (
        _number_of_digits(text, at + 1, 4),
        _number_of_digits(text, at + 6, 2),
        _number_of_digits(text, at + 9, 2),
    )
    hour, minute, second = (
        _number_of_digits(text, at + 12, 2),
        _number_of_digits(text, at + 15, 2),
        _number_of_digits(text, at + 18, 2),
    )
    if not (1 <= month <= 12 and 1 <= day <= _DAYS[month - 1] and hour < 24 and minute < 60 and second < 60):
        return NULL
    if month == 2 and day == 29 and not (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)):
        return NULL
    # Days since 1970 by the civil calendar, with years that begin in March.
    y = year - (month <= 2)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = 365 * y + y // 4 - y // 100 + y // 400 + of_year - 719_468
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    return (seconds * 1000 + _number_of_digits(text, at + 21, 3)) * 1000


@kernel
def _after_mark_in_line(text, at, end):
    """Return the position after ``MARK``, the text in front of a logged request; -1 if the line does not contain it."""
    while at + len(_MARK) <= end:
        k = 0
        while k < len(_MARK) and text[at + k] == _MARK[k]:
            k += 1
        if k == len(_MARK):
            return at + k
        at += 1
    return -1


@inlined
def _line_hash_rotated(x, bits):
    """Rotate a 64-bit word to the left by ``bits``."""
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@inlined
def _line_hash_round(total, word):
    """Mix eight bytes of a line into the hash ``total``."""
    return _line_hash_rotated(total + word * _P2, 31) * _P1


@kernel
def _hash_of_line(text, at, end):
    """Return the XXH64 hash of a line's bytes."""
    seed = np.uint64(_SEED)
    length = np.uint64(end - at)
    if end - at >= 32:
        a, b, c, d = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at + 32 <= end:
            a = _line_hash_round(a, word_at(text, at))
            b = _line_hash_round(b, word_at(text, at + 8))
            c = _line_hash_round(c, word_at(text, at + 16))
            d = _line_hash_round(d, word_at(text, at + 24))
            at += 32
        total = (
            _line_hash_rotated(a, 1) + _line_hash_rotated(b, 7) + _line_hash_rotated(c, 12) + _line_hash_rotated(d, 18)
        )
        for part in (a, b, c, d):
            total = (total ^ _line_hash_round(np.uint64(0), part)) * _P1 + _P4
    else:
        total = seed + _P5
    total += length
    while at + 8 <= end:
        total = _line_hash_rotated(total ^ _line_hash_round(np.uint64(0), word_at(text, at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        word = np.uint64(0)
        for k in range(4):
            word |= np.uint64(text[at + k]) << np.uint64(8 * k)
        total = _line_hash_rotated(total ^ (word * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        total = _line_hash_rotated(total ^ (np.uint64(text[at]) * _P5), 11) * _P1
        at += 1
    total = (total ^ (total >> np.uint64(33))) * _P2
    total = (total ^ (total >> np.uint64(29))) * _P3
    return np.int64(total ^ (total >> np.uint64(32)))


@entry
def count_requests(text: npt.NDArray[np.uint8], at):
    """Return the number of lines in a block if ``MARK`` is at the same position in all of them, else -1.

    Parameters
    ----------
    text : uint8 array
        Lines without the last newline.
    at : int64
        Position of the mark in each line, in bytes.
    """
    lines, begin = 0, 0
    while begin <= len(text):
        if _after_mark_in_line(text, begin + at, min(begin + at + len(_MARK), len(text))) < 0:
            return -1
        lines += 1
        while begin < len(text) and text[begin] != _NEWLINE:
            begin += BYTES if begin + BYTES <= len(text) and word_without(text, begin, _NEWLINES) else 1
        begin += 1
    return lines


@entry
def cut_lines(text, edges, out: CutLines):
    """Find the class, time and hash of each line of a request log, and the position at which its request begins.

    Parameters
    ----------
    text : uint8 array
        UTF-8.
    edges : int32 or int64 array (n + 1)
        Line i is ``text[edges[i]:edges[i + 1]]``.
    out : CutLines
        Receives the results for the n lines.
    """
    for i in range(len(edges) - 1):
        at, end = np.int64(edges[i]), np.int64(edges[i + 1])
        out.stamp_us[i] = _line_stamp_us(text, at, end)
        out.line_hash[i] = _hash_of_line(text, at, end)
        begin = _after_mark_in_line(text, at, end)
        out.begin[i] = begin
        if 0 <= begin < end:
            is_json = text[begin] == _OPEN and begin + 1 < end and text[begin + 1] == _QUOTE
            out.line_class[i] = JSON if is_json else TEXT
        else:
            while at < end and text[at] == _SPACE:
                at += 1
            out.line_class[i] = BLANK if at == end else WITHOUT_REQUEST
