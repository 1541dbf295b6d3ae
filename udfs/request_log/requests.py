"""Read the requests in a block of log lines: their kind, times, values and partitions, or why a line is refused."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from udfs.jit import entry, inlined, kernel
from udfs.request_log import fields as f
from udfs.request_log.fields import FIRST_US, LAST_US, MARK, NULL
from udfs.request_log.json_line import FoundInJsonLine, read_json_line
from udfs.request_log.pieces import write_name_piece, write_signed_piece, write_unsigned_piece
from udfs.request_log.words import BYTES, filled_with, word_without

FETCH, PRODUCE_API = 1, 0
FETCH_VERSIONS, PRODUCE_VERSIONS = (4, 18), (3, 13)
MAX_OFFSET = 1 << 53
"""Largest accepted offset. A partition with a million records per second reaches it in 285 years."""

MAX_TOTAL_MS = 86_400_000
"""Longest accepted duration: one day. Requests of a paused broker may take hours, but a wrong duration would shift the
times of a whole session."""

DIVERGED = -1
"""Error code for a partition with a diverging epoch. Kafka has no code for this."""

_ROUNDING_MS = 1.0
_MARK = np.frombuffer(MARK, np.uint8).copy()
_SPACES = filled_with(MARK[0])

FOLLOWER_FETCH, OTHER_FETCH, PRODUCE, OTHER = range(4)
NO_STAMP, TIME, MALFORMED, TRUNCATED, TWO_REQUESTS, NO_DURATIONS, VERSION, VALUES, PARTITIONS = range(4, 13)
OUTCOMES = 13
"""Number of outcomes for a line with a request: four kinds of requests, and nine reasons to refuse a line."""


class RequestsInColumns(NamedTuple):
    """Requests as columns, with one value per line (`NULL` if absent). For a refused line, only ``outcome`` is set.

    ``client`` has two columns: where the client id of a follower or producer begins and ends in the text. ``pieces``
    contains the encoded partitions of all lines. Those of line i end at ``piece_end[i]``, and begin where those of the
    previous line end.
    """

    outcome: npt.NDArray[np.int8]
    arrival_us: npt.NDArray[np.int64]
    handled_us: npt.NDArray[np.int64]
    processed_us: npt.NDArray[np.int64]
    released_us: npt.NDArray[np.int64]
    answered_us: npt.NDArray[np.int64]
    completed_us: npt.NDArray[np.int64]
    replica_id: npt.NDArray[np.int64]
    asked_session: npt.NDArray[np.int64]
    session_epoch: npt.NDArray[np.int64]
    given_session: npt.NDArray[np.int64]
    error_code: npt.NDArray[np.int64]
    api_key: npt.NDArray[np.int64]
    api_version: npt.NDArray[np.int64]
    correlation_id: npt.NDArray[np.int64]
    acks: npt.NDArray[np.int64]
    client: npt.NDArray[np.int64]
    piece_end: npt.NDArray[np.int64]
    pieces: npt.NDArray[np.uint8]


def room_for_requests(lines: int, size: int) -> RequestsInColumns:
    """Allocate columns for the requests of ``lines`` lines with ``size`` bytes in total. Values are `NULL` at first."""
    columns = {name: np.full(lines, NULL) for name in RequestsInColumns._fields[1:-3]}
    return RequestsInColumns(
        outcome=np.empty(lines, np.int8),
        **columns,
        client=np.full((lines, 2), NULL),
        piece_end=np.zeros(lines, np.int64),
        pieces=np.empty(size + 16 * lines, np.uint8),
    )


@inlined
def _request_value_or(value, instead):
    """Return ``value``, or ``instead`` if ``value`` is missing."""
    return instead if value == NULL else value


@kernel
def _is_out_of_range(value, least):
    """Whether an offset or a size is below ``least`` or above `MAX_OFFSET`."""
    return not least <= value <= MAX_OFFSET


@kernel
def _is_topic_nameless(topics, row, with_name):
    """Whether a topic entry has neither an id nor a name."""
    return (
        topics[row, f.ID_BEGIN] == NULL
        and topics[row, f.TOPIC_BEGIN] == NULL
        and not (with_name and topics[row, f.NAME_BEGIN] != NULL)
    )


@kernel
def _answers_of(topics, row, is_produce):
    """Return the index of a topic's first partition in the response, and their number, or `NULL` without any."""
    if not is_produce and topics[row, f.PARTITIONS] != NULL:
        return topics[row, f.PARTITIONS_FIRST], topics[row, f.PARTITIONS]
    return topics[row, f.OLDER_FIRST], topics[row, f.OLDER]


@inlined
def _partition_index_of(partitions, p, is_produce):
    """Return the id of a partition in the response. The member that contains it depends on the API and its version."""
    if is_produce:
        return partitions[p, f.INDEX]
    return _request_value_or(partitions[p, f.PARTITION_INDEX], partitions[p, f.PARTITION])


@inlined
def _records_size_of(partitions, p):
    """Return the size of a partition's records in the response in bytes, or `NULL` if it is not logged.

    Kafka's releases log the size in three forms.
    """
    if partitions[p, f.SIZE] != NULL:
        return partitions[p, f.SIZE]
    if partitions[p, f.OLDER_SIZE] != NULL:
        return partitions[p, f.OLDER_SIZE]
    if partitions[p, f.RECORDS_START] != NULL and partitions[p, f.RECORDS_END] != NULL:
        return partitions[p, f.RECORDS_END] - partitions[p, f.RECORDS_START]
    return NULL


@kernel
def _asked_for(values, is_produce):
    """Return the index of the first topic entry of a request, and their number, or `NULL` if it has no such list."""
    if is_produce and values[f.ASKED_TOPICS] == NULL:
        return values[f.SENT_FIRST], values[f.SENT]
    return values[f.ASKED_TOPICS_FIRST], values[f.ASKED_TOPICS]


@kernel
def _is_odd_request(found, is_produce):
    """Whether a requested partition has no topic, or an impossible id, offset, epoch or size."""
    _values, _durations, topics, partitions, _forgotten, _stack = found
    first, count = _asked_for(found.values, is_produce)
    for t in range(first, first + max(count, 0)):
        if _is_topic_nameless(topics, t, False) or topics[t, f.PARTITIONS] == NULL:
            return True
        for p in range(topics[t, f.PARTITIONS_FIRST], topics[t, f.PARTITIONS_FIRST] + topics[t, f.PARTITIONS]):
            if partitions[p, f.PARTITION] < 0:
                return True
            if is_produce and _is_out_of_range(_request_value_or(partitions[p, f.SIZE], 0), -1):
                return True
            if not is_produce and (
                _is_out_of_range(partitions[p, f.OFFSET], 0) or _request_value_or(partitions[p, f.EPOCH], -1) < -1
            ):
                return True
    return False


@kernel
def _is_odd_answer(found, is_produce):
    """Whether a forgotten partition, or one in the response, has no topic or an impossible number."""
    values, _durations, topics, partitions, forgotten, _stack = found
    first = values[f.FORGOTTEN_FIRST]
    for t in range(first, first + (0 if is_produce else max(values[f.FORGOTTEN], 0))):
        if _is_topic_nameless(topics, t, False) or topics[t, f.PARTITIONS] == NULL:
            return True
        for p in range(topics[t, f.PARTITIONS_FIRST], topics[t, f.PARTITIONS_FIRST] + topics[t, f.PARTITIONS]):
            if forgotten[p] < 0:
                return True
    first = values[f.ANSWERS_FIRST]
    for t in range(first, first + max(values[f.ANSWERS], 0)):
        row, count = _answers_of(topics, t, is_produce)
        if _is_topic_nameless(topics, t, is_produce) or count == NULL:
            return True
        for p in range(row, row + count):
            if _partition_index_of(partitions, p, is_produce) < 0:
                return True
            if is_produce:
                if _is_out_of_range(partitions[p, f.BASE_OFFSET], -1) or partitions[p, f.PARTITION_ERROR] == NULL:
                    return True
            elif _is_out_of_range(_request_value_or(partitions[p, f.HIGH_WATERMARK], -1), -1) or _is_out_of_range(
                _request_value_or(_records_size_of(partitions, p), 0), -1
            ):
                return True
    return False


@kernel
def _without_end(text, at, end):
    """Whether a line is truncated: its JSON opens more objects than it closes."""
    opened = 0
    for k in range(at, end):
        opened += (text[k] == 123) - (text[k] == 125)
    return opened > 0


@kernel
def _has_mark(text, at, end):
    """Whether a line contains `_MARK` again, so that a second request begins in it.

    JSON has few spaces, so each eight bytes without a space are skipped at once.
    """
    while at + len(_MARK) <= end:
        if at + BYTES <= end and word_without(text, at, _SPACES):
            at += BYTES
            continue
        k = 0
        while k < len(_MARK) and text[at + k] == _MARK[k]:
            k += 1
        if k == len(_MARK):
            return True
        at += 1
    return False


@kernel
def _times_outcome(durations, stamp_us):
    """Return `OTHER` if the durations of a request are possible, else the reason to refuse it."""
    total = durations[f.TOTAL]
    for part in (f.TOTAL, f.QUEUE, f.LOCAL, f.REMOTE):
        if not durations[part] >= 0:
            return NO_DURATIONS
    # The durations add up to the total, but each is rounded separately, and the total is measured last.
    for part in (f.QUEUE, f.LOCAL, f.REMOTE, f.SEND):
        if durations[part] > total + _ROUNDING_MS or durations[part] < 0:
            return TIME
    return OTHER if total <= MAX_TOTAL_MS and stamp_us - total * 1000 >= FIRST_US else TIME


@kernel
def _request_outcome(found, stamp_us):
    """Return the kind of a request (up to OTHER), or the reason to refuse it."""
    values = found.values
    api, version = values[f.API_KEY], values[f.API_VERSION]
    replica = _request_value_or(_request_value_or(values[f.STATE_REPLICA], values[f.REPLICA]), -1)
    if api == NULL:
        return NO_DURATIONS
    timed = _times_outcome(found.durations, stamp_us)
    if timed != OTHER or (api != FETCH and api != PRODUCE_API):
        return timed
    is_produce = api == PRODUCE_API
    if version != NULL:
        # Requests of consumers may be of any older version.
        oldest = PRODUCE_VERSIONS[0] if is_produce else (FETCH_VERSIONS[0] if replica >= 0 else NULL)
        if not oldest <= version <= (PRODUCE_VERSIONS[1] if is_produce else FETCH_VERSIONS[1]):
            return VERSION
    if is_produce:
        if not -1 <= values[f.ACKS] <= 1:
            return VALUES
    elif values[f.ASKED_TOPICS] == NULL:
        return VALUES
    if values[f.OVERFLOWN] or _is_odd_request(found, is_produce):
        return PARTITIONS
    if (is_produce or replica >= 0) and _is_odd_answer(found, is_produce):
        return PARTITIONS
    return PRODUCE if is_produce else (FOLLOWER_FETCH if replica >= 0 else OTHER_FETCH)


@kernel
def _write_piece(text, found, is_produce, out, at):
    """Write the piece of a request, its encoded partitions (`pieces`), to ``out``, and return the position after it."""
    values, _durations, topics, partitions, forgotten, _stack = found
    first, count = _asked_for(values, is_produce)
    count = max(count, 0)
    at = write_unsigned_piece(count, out, at)
    for t in range(first, first + count):
        at = write_name_piece(text, topics, t, out, at)
        at = write_unsigned_piece(topics[t, f.PARTITIONS], out, at)
        for p in range(topics[t, f.PARTITIONS_FIRST], topics[t, f.PARTITIONS_FIRST] + topics[t, f.PARTITIONS]):
            at = write_unsigned_piece(partitions[p, f.PARTITION], out, at)
            if is_produce:
                at = write_unsigned_piece(_request_value_or(partitions[p, f.SIZE], -2) + 2, out, at)
            else:
                at = write_unsigned_piece(_request_value_or(partitions[p, f.EPOCH], -1) + 1, out, at)
                at = write_unsigned_piece(partitions[p, f.OFFSET] + 1, out, at)
    first, count = values[f.FORGOTTEN_FIRST], 0 if is_produce else max(values[f.FORGOTTEN], 0)
    at = write_unsigned_piece(count, out, at)
    for t in range(first, first + count):
        at = write_name_piece(text, topics, t, out, at)
        at = write_unsigned_piece(topics[t, f.PARTITIONS], out, at)
        for p in range(topics[t, f.PARTITIONS_FIRST], topics[t, f.PARTITIONS_FIRST] + topics[t, f.PARTITIONS]):
            at = write_unsigned_piece(forgotten[p], out, at)
    first, count = values[f.ANSWERS_FIRST], max(values[f.ANSWERS], 0)
    at = write_unsigned_piece(count, out, at)
    for t in range(first, first + count):
        row, answers = _answers_of(topics, t, is_produce)
        at = write_name_piece(text, topics, t, out, at)
        at = write_unsigned_piece(answers, out, at)
        for p in range(row, row + answers):
            at = write_unsigned_piece(_partition_index_of(partitions, p, is_produce), out, at)
            error = _request_value_or(partitions[p, f.PARTITION_ERROR], 0)
            if is_produce:
                at = write_signed_piece(error, out, at)
                at = write_unsigned_piece(partitions[p, f.BASE_OFFSET] + 1, out, at)
            else:
                diverged = error == 0 and partitions[p, f.DIVERGES] == 1
                at = write_signed_piece(DIVERGED if diverged else error, out, at)
                at = write_unsigned_piece(_request_value_or(partitions[p, f.HIGH_WATERMARK], -1) + 1, out, at)
                at = write_unsigned_piece(_request_value_or(_records_size_of(partitions, p), 0) + 1, out, at)
    return at


@inlined
def _ms_as_us(milliseconds):
    """Convert milliseconds to microseconds; half microseconds are rounded up."""
    us = milliseconds * 1000
    whole = np.floor(us)
    return np.int64(whole) + (us - whole >= 0.5)


@kernel
def _keep_request(i, values, durations, stamp_us, out):
    """Write a request's times and some of its values to row ``i`` of the output columns."""
    total_us, send_us = _ms_as_us(durations[f.TOTAL]), 0
    if durations[f.SEND] >= 0:
        send_us = _ms_as_us(durations[f.SEND])
    waited_ms = max(0.0, min(durations[f.REMOTE], float(_request_value_or(values[f.MAX_WAIT_MS], 0))))
    out.completed_us[i] = stamp_us
    out.arrival_us[i] = stamp_us - total_us
    out.handled_us[i] = min(out.arrival_us[i] + _ms_as_us(durations[f.QUEUE]), stamp_us)
    out.processed_us[i] = min(out.handled_us[i] + _ms_as_us(durations[f.LOCAL]), stamp_us)
    out.released_us[i] = min(out.processed_us[i] + _ms_as_us(waited_ms), stamp_us)
    out.answered_us[i] = stamp_us - send_us
    out.asked_session[i] = values[f.ASKED_SESSION]
    out.given_session[i] = values[f.GIVEN_SESSION]
    out.correlation_id[i] = values[f.CORRELATION_ID]
    out.acks[i] = values[f.ACKS]


@entry
def read_requests_into_columns(text, begins, ends, is_text, stamps_us, found: FoundInJsonLine, out: RequestsInColumns):
    """Read the requests in the JSON of a block of n lines into columns.

    Parameters
    ----------
    text : uint8 array
        UTF-8.
    begins, ends : int64 array (n)
        Where the JSON of each line begins and ends in ``text``, including any text that the log layout puts after it.
        A line that begins at -1 is skipped.
    is_text : bool array (n)
        Whether the line has the form of text lines before 2.8 (`read_json_line`).
    stamps_us : int64 array (n)
        Times of the lines; `NULL` if a line has none.
    found : FoundInJsonLine
        Working memory with room for the longest line (`room_for_json_line`).
    out : RequestsInColumns
        New columns from `room_for_requests`. The requests are written here.
    """
    piece = 0
    for i in range(len(begins)):
        out.piece_end[i] = piece
        begin, end, stamp_us = begins[i], ends[i], stamps_us[i]
        if begin < 0:
            continue
        out.replica_id[i] = out.session_epoch[i] = -1
        out.error_code[i] = 0
        if stamp_us == NULL:
            out.outcome[i] = NO_STAMP
            continue
        if not FIRST_US <= stamp_us <= LAST_US:
            out.outcome[i] = TIME
            continue
        values = found.values
        is_json = read_json_line(text, begin, end, is_text[i], found)
        api = values[f.API_KEY]
        # Other kinds of requests have members with the same names but other types, so wrong types are ignored there.
        is_used = api == FETCH or api == PRODUCE_API or api == NULL
        if not is_json or values[f.BAD_OUTSIDE] or (values[f.BAD_INSIDE] and is_used):
            out.outcome[i] = TRUNCATED if _without_end(text, begin, end) else MALFORMED
            continue
        if _has_mark(text, begin, end):
            out.outcome[i] = TWO_REQUESTS
            continue
        outcome = _request_outcome(found, stamp_us)
        out.outcome[i] = outcome
        if outcome == VERSION:
            out.api_key[i], out.api_version[i] = api, values[f.API_VERSION]
        if outcome > OTHER:
            continue
        _keep_request(i, values, found.durations, stamp_us, out)
        out.api_version[i] = _request_value_or(values[f.API_VERSION], values[f.FETCH_VERSION])
        out.replica_id[i] = _request_value_or(_request_value_or(values[f.STATE_REPLICA], values[f.REPLICA]), -1)
        out.session_epoch[i] = _request_value_or(values[f.SESSION_EPOCH], -1)
        out.error_code[i] = _request_value_or(values[f.ERROR], 0)
        if (outcome == FOLLOWER_FETCH or outcome == PRODUCE) and values[f.CLIENT_BEGIN] != NULL:
            out.client[i, 0], out.client[i, 1] = values[f.CLIENT_BEGIN], values[f.CLIENT_END]
        if outcome == FOLLOWER_FETCH or outcome == PRODUCE:
            piece = _write_piece(text, found, outcome == PRODUCE, out.pieces, piece)
            out.piece_end[i] = piece
