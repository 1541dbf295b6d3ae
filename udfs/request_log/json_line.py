"""Read the JSON of one line into arrays of numbers, without a Python object per value, and check it against RFC 8259.

If several members have the same name, the last one is used, as in most JSON readers. Text after the object is ignored.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.jit import inlined, kernel
from udfs.request_log import fields as f
from udfs.request_log import tokens
from udfs.request_log.words import BYTES, word_at

MAX_DEPTH = 1000


class FoundInJsonLine(NamedTuple):
    """Values found in one line's JSON. All arrays are reused for the next line.

    ``values`` has one entry per slot of `fields`, and ``durations`` one per duration, in ms (NaN: null). ``topics`` and
    ``partitions`` have one row per topic entry and partition entry. ``forgotten`` contains the ids of forgotten
    partitions. ``stack`` contains the contexts of the objects and arrays that are open while a line is read.
    """

    values: npt.NDArray[np.int64]
    durations: npt.NDArray[np.float64]
    topics: npt.NDArray[np.int64]
    partitions: npt.NDArray[np.int64]
    forgotten: npt.NDArray[np.int64]
    stack: npt.NDArray[np.int64]


def room_for_json_line(longest: int) -> FoundInJsonLine:
    """Allocate arrays with room for the values of any valid line of up to ``longest`` bytes."""
    return FoundInJsonLine(
        np.zeros(f.SLOTS, np.int64),
        np.zeros(f.DURATIONS),
        np.empty((longest // 20 + 2, f.TOPIC_COLUMNS), np.int64),
        np.empty((longest // 12 + 2, f.PARTITION_COLUMNS), np.int64),
        np.empty(longest // 2 + 2, np.int64),
        np.empty(MAX_DEPTH + 1, np.int64),
    )


_bucket_of = kernel(f.bucket_of_field)


@inlined
def _json_field_named(text, begin, end, context):
    """Return the index of the field that is called ``text[begin:end]`` in a context; -1 without such a field."""
    length = end - begin
    if length == 0:
        return -1
    field = f.FIELD_IN[context, _bucket_of(length, np.int64(text[begin]), np.int64(text[end - 1]))]
    if field < 0 or f.NAME_AT[field + 1] - f.NAME_AT[field] != length:
        return -1
    name = f.NAME_AT[field]
    if length >= BYTES:
        k = 0
        while k < length - BYTES:
            if word_at(text, begin + k) != word_at(f.NAMES, name + k):
                return -1
            k += BYTES
        last = length - BYTES
        return field if word_at(text, begin + last) == word_at(f.NAMES, name + last) else -1
    for k in range(length):
        if text[begin + k] != f.NAMES[name + k]:
            return -1
    return field


@kernel
def read_json_line(text, at, end, is_text, found: FoundInJsonLine):
    """Read the JSON object of a line into ``found``.

    With ``is_text``, members may also be written as before Kafka 2.8: ``name=value``, where a string of letters,
    digits, ``_``, ``.`` and ``-`` has no quotes.

    Parameters
    ----------
    text : uint8 array
        UTF-8.
    at, end : int64
        Positions of the object's first byte, and of the end of the line.
    found : FoundInJsonLine
        The values are written here. Values of the previous line are cleared.

    Returns
    -------
    bool
        Whether the object is valid and complete JSON. If some values have a wrong type, the slot ``BAD_OUTSIDE`` or
        ``BAD_INSIDE`` is set to 1.
    """
    values, durations, topics, partitions, forgotten, stack = found
    values[:] = f.NULL
    values[f.BAD_OUTSIDE :] = 0
    durations[:] = np.nan
    topic = partition = -1
    gone = 0
    depth = -1
    kind, target, place = f.OBJECT, f.LINE, f.IN_VALUES
    context = f.LINE
    is_bare = False
    while True:
        at = tokens.after_blanks(text, at, end)
        if at >= end:
            return False
        c = text[at]
        bad = False
        opened = 0
        is_word = is_bare and kind == f.STRING and c != tokens.QUOTE
        if c == tokens.QUOTE or is_word:
            begin = at if is_word else at + 1
            at = tokens.after_word(text, begin, end, True) if is_word else tokens.end_of_string(text, begin, end)
            if at < 0 or (is_word and at == begin):
                return False
            if kind == f.STRING:
                if place == f.IN_TOPIC:
                    topics[topic, target] = begin
                    topics[topic, target + 1] = at
                else:
                    values[target] = begin
                    values[target + 1] = at
            else:
                # A request without a response, such as Produce with acks=0, has an empty string in its place.
                bad = kind != f.SKIPPED and not (kind == f.OBJECT and target == f.RESPONSE and at == begin)
            at += not is_word
        elif c == tokens.MINUS or tokens.ZERO <= c <= tokens.NINE:
            begin = at
            at, whole = tokens.end_of_number(text, begin, end)
            if at < 0:
                return False
            if kind == f.INT or kind == f.LONG:
                number, fits = tokens.whole_number(text, begin, at)
                bad = not (whole and fits) or (kind == f.INT and not -tokens.MAX_INT - 1 <= number <= tokens.MAX_INT)
                if bad:
                    pass
                elif place == f.IN_VALUES:
                    values[target] = number
                elif place == f.IN_PARTITION:
                    partitions[partition, target] = number
                else:
                    forgotten[gone] = number
                    gone += 1
            elif kind == f.DOUBLE:
                durations[target] = tokens.real_number(text, begin, at)
            else:
                bad = kind != f.SKIPPED
        elif c == tokens.OPEN_OBJECT or c == tokens.OPEN_ARRAY:
            opened = f.OBJECT if c == tokens.OPEN_OBJECT else f.ARRAY
            bad = kind != f.SKIPPED and kind != opened
            inner = target if kind == opened else f.ANYTHING
            depth += 1
            if depth >= MAX_DEPTH:
                return False
            stack[depth] = inner * 2 + (opened == f.OBJECT)
            at += 1
        elif c == tokens.N and tokens.is_literal(text, at, end, 0, 4):
            # Values are null until they are read; of two members with the same name, the last one counts.
            if kind == f.DOUBLE:
                durations[target] = np.nan
            elif place == f.IN_FORGOTTEN:
                forgotten[gone] = -1
                gone += 1
            elif kind == f.INT or kind == f.LONG or kind == f.STRING:
                if place == f.IN_VALUES:
                    values[target] = f.NULL
                elif place == f.IN_TOPIC:
                    topics[topic, target] = f.NULL
                else:
                    partitions[partition, target] = f.NULL
            elif kind == f.OBJECT and f.ASKED_TOPIC <= target <= f.ANSWERED_PARTITION:
                opened = f.OBJECT  # the context is an object whose values are skipped
            at += 4
        elif (c == tokens.T and tokens.is_literal(text, at, end, 4, 4)) or (
            c == tokens.F and tokens.is_literal(text, at, end, 8, 5)
        ):
            bad = kind != f.SKIPPED
            at += 4 if c == tokens.T else 5
        else:
            return False
        if bad:
            values[f.BAD_OUTSIDE if context == f.LINE or context == f.HEADER else f.BAD_INSIDE] = 1
        if kind == opened and kind == f.OBJECT:
            if f.ASKED_TOPIC <= target <= f.ANSWERED_TOPIC:
                topic += 1
                if topic == len(topics):
                    topic -= 1
                    values[f.OVERFLOWN] = 1
                topics[topic] = f.NULL
            elif f.ASKED_PARTITION <= target <= f.ANSWERED_PARTITION:
                partition += 1
                if partition == len(partitions):
                    partition -= 1
                    values[f.OVERFLOWN] = 1
                partitions[partition] = f.NULL
            elif target == f.DIVERGING:
                partitions[partition, f.DIVERGES] = 1
        elif kind == opened and kind == f.ARRAY:
            first = f.LIST[target]
            if target <= f.ANSWERED_TOPIC_LIST:
                values[first] = topic + 1
            else:
                topics[topic, first] = gone if target == f.FORGOTTEN_LIST else partition + 1
        is_first = c == tokens.OPEN_OBJECT or c == tokens.OPEN_ARRAY
        # Close the objects and arrays that end here, then read the name of the next member.
        while True:
            if depth < 0:
                return True
            at = tokens.after_blanks(text, at, end)
            if at >= end:
                return False
            c = text[at]
            context = stack[depth] // 2
            is_object = stack[depth] % 2 == 1
            if c == (tokens.CLOSE_OBJECT if is_object else tokens.CLOSE_ARRAY):
                if not is_object and context != f.ANYTHING:
                    first = f.LIST[context]
                    if context <= f.ANSWERED_TOPIC_LIST:
                        values[first + 1] = topic + 1 - values[first]
                    else:
                        upto = gone if context == f.FORGOTTEN_LIST else partition + 1
                        topics[topic, first + 1] = upto - topics[topic, first]
                depth -= 1
                at += 1
                is_first = False
                continue
            if not is_first:
                if c != tokens.COMMA:
                    return False
                at = tokens.after_blanks(text, at + 1, end)
                if at >= end:
                    return False
            break
        is_bare = False
        if is_object:
            is_bare = is_text and text[at] != tokens.QUOTE
            if text[at] != tokens.QUOTE and not is_bare:
                return False
            begin = at if is_bare else at + 1
            at = tokens.after_word(text, begin, end, False) if is_bare else tokens.end_of_string(text, begin, end)
            if at < 0 or (is_bare and at == begin):
                return False
            field = _json_field_named(text, begin, at, context)
            at = at if is_bare else tokens.after_blanks(text, at + 1, end)
            if at >= end or text[at] != (tokens.EQUALS if is_bare else tokens.COLON):
                return False
            at += 1
            if field < 0:
                kind, target, place = f.SKIPPED, 0, f.IN_VALUES
            else:
                kind, target, place = f.TYPE[field], f.TARGET[field], f.PLACE[field]
                if kind == f.OBJECT:
                    for slot in range(f.OWN_FIRST[target], f.OWN_END[target]):
                        values[slot] = f.NULL
                    if target == f.DIVERGING:
                        partitions[partition, f.DIVERGES] = f.NULL
                elif kind == f.ARRAY:
                    if target <= f.ANSWERED_TOPIC_LIST:
                        values[f.LIST[target] + 1] = f.NULL
                    else:
                        topics[topic, f.LIST[target] + 1] = f.NULL
        elif context == f.ANYTHING:
            kind, target, place = f.SKIPPED, 0, f.IN_VALUES
        elif context == f.FORGOTTEN_LIST:
            kind, target, place = f.INT, 0, f.IN_FORGOTTEN
        else:
            kind, target, place = f.OBJECT, f.ELEMENT[context], f.IN_VALUES
