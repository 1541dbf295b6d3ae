"""Read JSON tokens in bytes: find the end of strings, numbers and words, and parse numbers."""

import numpy as np

from udfs.jit import inlined
from udfs.request_log.fields import NULL
from udfs.request_log.words import BYTES, HIGH, ONES, filled_with, first_byte, word_at

MAX_INT, MAX_LONG_TENTH = (1 << 31) - 1, ((1 << 63) - 1) // 10
_TENS = 10.0 ** np.arange(23)

QUOTE, _BACKSLASH, MINUS, _PLUS, _POINT, COMMA, COLON, EQUALS, ZERO, NINE = (ord(c) for c in '"\\-+.,:=09')
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = (ord(c) for c in "{}[]")
_SPACE, _E, _SMALL_E, _U, N, T, F = (ord(c) for c in " Eeuntf")
_LITERALS = np.frombuffer(b"nulltruefalse", np.uint8).copy()
_ESCAPES = np.array([chr(c) in '"\\/bfnrtu' for c in range(128)])
_WORD = np.array([chr(c).isalnum() or chr(c) == "_" for c in range(128)])
_PLAIN = np.array([c >= 32 and chr(c) not in '"\\' for c in range(256)])
_QUOTES, _BACKSLASHES, _SPACES = filled_with(QUOTE), filled_with(_BACKSLASH), filled_with(_SPACE)
_HEX = np.array([chr(c) in "0123456789abcdefABCDEF" for c in range(128)])


@inlined
def after_blanks(text, at, end):
    """Return the position of the first byte from ``at`` on that is not blank, or ``end`` if all are blank."""
    while at < end and (text[at] == _SPACE or text[at] == 9 or text[at] == 10 or text[at] == 13):
        at += 1
    return at


@inlined
def _other_than_plain(word):
    """Return a word whose lowest set bit is in the first byte that is a quote, a backslash or a control character.

    The result is 0 if the word has no such byte. Bits of later bytes are undefined.
    """
    quote, backslash = word ^ _QUOTES, word ^ _BACKSLASHES
    return (((word - _SPACES) & ~word) | ((quote - ONES) & ~quote) | ((backslash - ONES) & ~backslash)) & HIGH


@inlined
def end_of_string(text, at, end):
    """Return the position of a string's closing quote, or -1 if the string is invalid or has no closing quote.

    ``at`` is the position after the opening quote.
    """
    while at < end:
        if at + BYTES <= end:
            word = word_at(text, at)
            other = _other_than_plain(word)
            if other == 0:
                at += BYTES
                continue
            at += first_byte(other)
        c = text[at]
        if _PLAIN[c]:
            at += 1
            continue
        if c == QUOTE:
            return at
        if c < _SPACE:
            return -1
        at += 1
        if c == _BACKSLASH:
            if at >= end or text[at] >= 128 or not _ESCAPES[text[at]]:
                return -1
            at += 1
            if text[at - 1] == _U:
                if at + 4 > end:
                    return -1
                for k in range(at, at + 4):
                    if text[k] >= 128 or not _HEX[text[k]]:
                        return -1
                at += 4
    return -1


@inlined
def _after_digits(text, at, end):
    """Return the position of the first byte from ``at`` on that is not a digit, or ``end`` if all are digits."""
    while at < end and ZERO <= text[at] <= NINE:
        at += 1
    return at


@inlined
def end_of_number(text, at, end):
    """Return the position after the JSON number at ``at``, and whether it is written without decimals and exponent.

    The position is -1 if the bytes at ``at`` are not a valid number.
    """
    if text[at] == MINUS:
        at += 1
    first = at
    at = _after_digits(text, at, end)
    if at == first or (text[first] == ZERO and at > first + 1):
        return -1, False
    whole = True
    if at < end and text[at] == _POINT:
        whole = False
        first = at + 1
        at = _after_digits(text, first, end)
        if at == first:
            return -1, False
    if at < end and (text[at] == _E or text[at] == _SMALL_E):
        whole = False
        at += 1
        if at < end and (text[at] == _PLUS or text[at] == MINUS):
            at += 1
        first = at
        at = _after_digits(text, first, end)
        if at == first:
            return -1, False
    return at, whole


@inlined
def whole_number(text, at, end):
    """Parse the integer ``text[at:end]``. Return it, and whether it fits in an int64.

    The smallest int64 stands for `NULL`, so the next larger number is returned in its place.
    """
    negative = text[at] == MINUS
    if negative:
        at += 1
    number = np.int64(0)
    while at < end:
        digit = np.int64(text[at]) - ZERO
        if number > MAX_LONG_TENTH or (number == MAX_LONG_TENTH and digit > 7):
            least = negative and number == MAX_LONG_TENTH and digit == 8 and at == end - 1
            return np.int64(NULL + 1), least
        number = number * 10 + digit
        at += 1
    return (-number if negative else number), True


@inlined
def real_number(text, at, end):
    """Parse the number ``text[at:end]``, which may have decimals and an exponent, as a float.

    The result is correctly rounded if the number has at most 15 digits, and its power of ten is from 10^-22 to 10^22.
    In other cases the last digits may be wrong.
    """
    negative = text[at] == MINUS
    if negative:
        at += 1
    digits, mantissa, exponent = 0, np.int64(0), 0
    after_point = False
    while at < end and text[at] != _E and text[at] != _SMALL_E:
        if text[at] == _POINT:
            after_point = True
        elif digits < 18:
            mantissa = mantissa * 10 + (np.int64(text[at]) - ZERO)
            digits += mantissa > 0
            exponent -= after_point
        else:
            exponent += not after_point
        at += 1
    if at < end:
        at += 1
        less = text[at] == MINUS
        if less or text[at] == _PLUS:
            at += 1
        power = 0
        while at < end:
            power = min(power * 10 + (np.int64(text[at]) - ZERO), 100_000)
            at += 1
        exponent += -power if less else power
    number = float(mantissa)
    if number > 0:
        if 0 <= exponent <= 22:
            number *= _TENS[exponent]
        elif -22 <= exponent < 0:
            number /= _TENS[-exponent]
        else:
            number *= 10.0**exponent
    return -number if negative else number


@inlined
def after_word(text, at, end, more):
    """Return the position after a word that begins at ``at``.

    A word consists of letters, digits and underscores, and, with ``more``, of dots and hyphens.
    """
    while at < end and text[at] < 128 and (_WORD[text[at]] or (more and (text[at] == _POINT or text[at] == MINUS))):
        at += 1
    return at


@inlined
def is_literal(text, at, end, first, length):
    """Whether a JSON literal is at ``at``: the ``length`` bytes of "nulltruefalse" that begin at index ``first``."""
    if at + length > end:
        return False
    for k in range(length):
        if text[at + k] != _LITERALS[first + k]:
            return False
    return True
