"""Tables of the JSON members that are read from request log lines: Fetch v4 to v18 and Produce v3 to v13.

A context is one of the objects and arrays in a line. The tables list the members of each context to read, called
fields, with their type, their target, and the place where the value is stored. Other members are skipped.
"""

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MARK = b" Completed request:"
NULL = -(1 << 63)
"""Number that represents a null or missing value."""

FIRST_US, LAST_US = 1_262_304_000_000_000, 4_102_444_800_000_000
"""Earliest and latest accepted time, in microseconds since the epoch: 2010, the year before Kafka's first release, and
2100."""

SKIPPED, INT, LONG, DOUBLE, STRING, OBJECT, ARRAY = range(7)
"""Types of members. The target of an `OBJECT` or `ARRAY` is a context. The target of other types is a slot or a
column."""

IN_VALUES, IN_TOPIC, IN_PARTITION, IN_FORGOTTEN = range(4)
"""Places where the value of a member is stored (`json_line.FoundInJsonLine`): the array ``values``, the latest topic
entry, the latest partition entry, or the list of forgotten partitions."""

# Slots of `values`, for one line: values in header, request and response, and counts made while reading.
API_KEY, API_VERSION, CORRELATION_ID, FETCH_VERSION, CLIENT_BEGIN, CLIENT_END = range(6)
REPLICA, STATE_REPLICA, MAX_WAIT_MS, ASKED_SESSION, SESSION_EPOCH, ACKS = range(6, 12)
ASKED_TOPICS_FIRST, ASKED_TOPICS, FORGOTTEN_FIRST, FORGOTTEN, SENT_FIRST, SENT = range(12, 18)
ERROR, GIVEN_SESSION, ANSWERS_FIRST, ANSWERS = range(18, 22)
BAD_OUTSIDE, BAD_INSIDE, OVERFLOWN = range(22, 25)
SLOTS = 25
"""Number of slots, the entries of the array ``values``. ``BAD_OUTSIDE`` is set if a value in the header or a duration
has a wrong type, ``BAD_INSIDE`` if a value in the request or the response has one."""

TOTAL, QUEUE, LOCAL, REMOTE, SEND = range(5)
DURATIONS = 5

# Columns of a topic entry: the positions of its id and its name, and the rows of its partitions.
ID_BEGIN, ID_END, TOPIC_BEGIN, TOPIC_END, NAME_BEGIN, NAME_END = range(6)
PARTITIONS_FIRST, PARTITIONS, OLDER_FIRST, OLDER = range(6, 10)
TOPIC_COLUMNS = 10
"""Number of columns of a topic entry. ``OLDER`` counts the partitions in a response to Produce, or to Fetch before 3.0.
"""

# Columns of a partition entry.
PARTITION, PARTITION_INDEX, INDEX, EPOCH, OFFSET, SIZE = range(6)
PARTITION_ERROR, HIGH_WATERMARK, OLDER_SIZE, RECORDS_START, RECORDS_END, BASE_OFFSET, DIVERGES = range(6, 13)
PARTITION_COLUMNS = 13

# Contexts.
ANYTHING, LINE, HEADER, REQUEST, REPLICA_STATE, RESPONSE = range(6)
ASKED_TOPIC, FORGOTTEN_TOPIC, SENT_TOPIC, ANSWERED_TOPIC = range(6, 10)
ASKED_PARTITION, SENT_PARTITION, ANSWERED_PARTITION, DIVERGING = range(10, 14)
ASKED_TOPIC_LIST, FORGOTTEN_TOPIC_LIST, SENT_TOPIC_LIST, ANSWERED_TOPIC_LIST = range(14, 18)
ASKED_LIST, FORGOTTEN_LIST, SENT_LIST, ANSWERED_LIST, OLDER_ANSWERED_LIST = range(18, 23)
CONTEXTS = 23


class FieldOfRequest(NamedTuple):
    """A JSON member to read: its name, and the type, target and place of its value.

    The target is the slot or column in ``place`` where the value is stored. For an OBJECT or ARRAY, it is a context.
    """

    name: str
    type: int
    target: int
    place: int = IN_VALUES


_TOPIC_NAMES = (
    FieldOfRequest("topicId", STRING, ID_BEGIN, IN_TOPIC),
    FieldOfRequest("topic", STRING, TOPIC_BEGIN, IN_TOPIC),
)
FIELDS: dict[int, tuple[FieldOfRequest, ...]] = {
    LINE: (
        FieldOfRequest("requestHeader", OBJECT, HEADER),
        FieldOfRequest("request", OBJECT, REQUEST),
        FieldOfRequest("response", OBJECT, RESPONSE),
        FieldOfRequest("totalTimeMs", DOUBLE, TOTAL),
        FieldOfRequest("requestQueueTimeMs", DOUBLE, QUEUE),
        FieldOfRequest("localTimeMs", DOUBLE, LOCAL),
        FieldOfRequest("remoteTimeMs", DOUBLE, REMOTE),
        FieldOfRequest("sendTimeMs", DOUBLE, SEND),
    ),
    HEADER: (
        FieldOfRequest("requestApiKey", INT, API_KEY),
        FieldOfRequest("requestApiVersion", INT, API_VERSION),
        FieldOfRequest("correlationId", LONG, CORRELATION_ID),
        FieldOfRequest("clientId", STRING, CLIENT_BEGIN),
        FieldOfRequest("fetchVersion", INT, FETCH_VERSION),
    ),
    REQUEST: (
        FieldOfRequest("replicaId", INT, REPLICA),
        FieldOfRequest("replicaState", OBJECT, REPLICA_STATE),
        FieldOfRequest("maxWaitMs", LONG, MAX_WAIT_MS),
        FieldOfRequest("sessionId", INT, ASKED_SESSION),
        FieldOfRequest("sessionEpoch", INT, SESSION_EPOCH),
        FieldOfRequest("topics", ARRAY, ASKED_TOPIC_LIST),
        FieldOfRequest("forgottenTopicsData", ARRAY, FORGOTTEN_TOPIC_LIST),
        FieldOfRequest("acks", INT, ACKS),
        FieldOfRequest("topicData", ARRAY, SENT_TOPIC_LIST),
    ),
    REPLICA_STATE: (FieldOfRequest("replicaId", INT, STATE_REPLICA),),
    RESPONSE: (
        FieldOfRequest("errorCode", INT, ERROR),
        FieldOfRequest("sessionId", INT, GIVEN_SESSION),
        FieldOfRequest("responses", ARRAY, ANSWERED_TOPIC_LIST),
    ),
    ASKED_TOPIC: (*_TOPIC_NAMES, FieldOfRequest("partitions", ARRAY, ASKED_LIST)),
    FORGOTTEN_TOPIC: (*_TOPIC_NAMES, FieldOfRequest("partitions", ARRAY, FORGOTTEN_LIST)),
    SENT_TOPIC: (
        _TOPIC_NAMES[0],
        FieldOfRequest("name", STRING, TOPIC_BEGIN, IN_TOPIC),
        FieldOfRequest("partitionData", ARRAY, SENT_LIST),
    ),
    ANSWERED_TOPIC: (
        *_TOPIC_NAMES,
        FieldOfRequest("name", STRING, NAME_BEGIN, IN_TOPIC),
        FieldOfRequest("partitions", ARRAY, ANSWERED_LIST),
        FieldOfRequest("partitionResponses", ARRAY, OLDER_ANSWERED_LIST),
    ),
    ASKED_PARTITION: (
        FieldOfRequest("partition", INT, PARTITION, IN_PARTITION),
        FieldOfRequest("currentLeaderEpoch", INT, EPOCH, IN_PARTITION),
        FieldOfRequest("fetchOffset", LONG, OFFSET, IN_PARTITION),
        FieldOfRequest("recordsSizeInBytes", LONG, SIZE, IN_PARTITION),
    ),
    SENT_PARTITION: (
        FieldOfRequest("index", INT, PARTITION, IN_PARTITION),
        FieldOfRequest("recordsSizeInBytes", LONG, SIZE, IN_PARTITION),
    ),
    ANSWERED_PARTITION: (
        FieldOfRequest("partitionIndex", INT, PARTITION_INDEX, IN_PARTITION),
        FieldOfRequest("partition", INT, PARTITION, IN_PARTITION),
        FieldOfRequest("index", INT, INDEX, IN_PARTITION),
        FieldOfRequest("errorCode", INT, PARTITION_ERROR, IN_PARTITION),
        FieldOfRequest("highWatermark", LONG, HIGH_WATERMARK, IN_PARTITION),
        FieldOfRequest("recordsSizeInBytes", LONG, SIZE, IN_PARTITION),
        FieldOfRequest("recordSetSizeInBytes", LONG, OLDER_SIZE, IN_PARTITION),
        FieldOfRequest("recordsStart", LONG, RECORDS_START, IN_PARTITION),
        FieldOfRequest("recordsEnd", LONG, RECORDS_END, IN_PARTITION),
        FieldOfRequest("baseOffset", LONG, BASE_OFFSET, IN_PARTITION),
        FieldOfRequest("divergingEpoch", OBJECT, DIVERGING),
    ),
}

ELEMENTS = {
    ASKED_TOPIC_LIST: ASKED_TOPIC, FORGOTTEN_TOPIC_LIST: FORGOTTEN_TOPIC, SENT_TOPIC_LIST: SENT_TOPIC,
    ANSWERED_TOPIC_LIST: ANSWERED_TOPIC, ASKED_LIST: ASKED_PARTITION, SENT_LIST: SENT_PARTITION,
    ANSWERED_LIST: ANSWERED_PARTITION, OLDER_ANSWERED_LIST: ANSWERED_PARTITION,
}  # fmt: skip
"""For each context that is an array of objects, the context of these objects. A `FORGOTTEN_LIST` contains numbers."""

LISTS = {
    ASKED_TOPIC_LIST: ASKED_TOPICS_FIRST, FORGOTTEN_TOPIC_LIST: FORGOTTEN_FIRST, SENT_TOPIC_LIST: SENT_FIRST,
    ANSWERED_TOPIC_LIST: ANSWERS_FIRST, ASKED_LIST: PARTITIONS_FIRST, SENT_LIST: PARTITIONS_FIRST,
    FORGOTTEN_LIST: PARTITIONS_FIRST, ANSWERED_LIST: PARTITIONS_FIRST, OLDER_ANSWERED_LIST: OLDER_FIRST,
}  # fmt: skip
"""For each array, the slot (or the column of the topic entry) in which the index of its first element is stored. The
next slot or column holds the number of elements."""

SLOTS_OF = {HEADER: (API_KEY, REPLICA), REQUEST: (REPLICA, ERROR), REPLICA_STATE: (STATE_REPLICA, MAX_WAIT_MS),
            RESPONSE: (ERROR, BAD_OUTSIDE)}  # fmt: skip
"""For each object, the first slot of its values, and the slot after the last one."""


def _named_as_in_text(field: FieldOfRequest) -> FieldOfRequest:
    """Return a field with its name as spelt before Kafka 2.8, such as ``fetch_offset`` for ``fetchOffset``."""
    return field._replace(name=re.sub("[A-Z]", lambda letter: f"_{letter.group().lower()}", field.name))


def _fields_of_context(context: int) -> tuple[FieldOfRequest, ...]:
    """Return the fields of a context, each in its present spelling and in that before Kafka 2.8."""
    fields = FIELDS.get(context, ())
    return tuple(dict.fromkeys((*fields, *map(_named_as_in_text, fields))))


_every = [field for context in range(CONTEXTS) for field in _fields_of_context(context)]
TYPE = np.array([field.type for field in _every])
TARGET = np.array([field.target for field in _every])
PLACE = np.array([field.place for field in _every])
NAMES = np.frombuffer("".join(field.name for field in _every).encode(), np.uint8).copy()
NAME_AT = np.cumsum([0, *(len(field.name) for field in _every)])
ELEMENT = np.array([ELEMENTS.get(context, ANYTHING) for context in range(CONTEXTS)])
LIST = np.array([LISTS.get(context, -1) for context in range(CONTEXTS)])
OWN_FIRST, OWN_END = np.array([SLOTS_OF.get(context, (0, 0)) for context in range(CONTEXTS)]).T.copy()

BUCKETS, _OF_LENGTH, _OF_FIRST = 128, 2, 23


def bucket_of_field(length, first, last):
    """Return the hash bucket of a member's name, computed from its length, its first byte and its last byte.

    Within one object of a line (a context), all members that are read (its fields) are in different buckets.
    """
    return (_OF_LENGTH * length + _OF_FIRST * first + last) & (BUCKETS - 1)


def _fields_by_bucket() -> npt.NDArray[np.int64]:
    """Return the array FIELD_IN. Raise AssertionError if two fields of a context share a bucket."""
    fields = np.full((CONTEXTS, BUCKETS), -1)
    number = 0
    for context in range(CONTEXTS):
        for field in _fields_of_context(context):
            name = field.name.encode()
            bucket = bucket_of_field(len(name), name[0], name[-1])
            assert fields[context, bucket] < 0, f"{field.name} shares a bucket: choose other factors"
            fields[context, bucket] = number
            number += 1
    return fields


FIELD_IN = _fields_by_bucket()
"""Index of the field with a given context and bucket, shape (CONTEXTS, BUCKETS); -1 if there is no such field."""
