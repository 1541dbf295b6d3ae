"""Parse the LeaderAndIsr requests in request logs of ZooKeeper clusters, as state-change.log may lack them.

=========  ================================================  ==============================================
release    a partition in the request                        its result in the response
=========  ================================================  ==============================================
0.9-0.10   ``{topic=t,partition=0,..,isr=[1,2],..}``         not logged
0.11-2.1   the same                                          ``partitions=[{topic=t,partition=0,..}]``
2.2-2.3    in ``{topic=t,partition_states=[{..}]}``          the same
2.4-2.7    ``topic_name=``, ``partition_index=``             ``partition_errors=[{topic_name=t,..}]``
2.8-3.x    JSON, with ``topicId``                            in an object per ``topicId``
=========  ================================================  ==============================================
"""

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.engine.in_spark import Query
from udfs.arrow_types import arrow_columns

LEADER_AND_ISR = "leader and isr"
"""Name of this kind of request in the account of lines."""
NOT_READ = "LeaderAndIsr request with partitions that cannot be read"

LEADER_AND_ISR_LINES = Query(
    "SELECT broker_id, source_file, source_line, processed_us AS stamp_us, raw AS message FROM rows "
    f"WHERE kind = '{LEADER_AND_ISR}'",
    arrow_columns("broker_id INT, source_file STRING, source_line BIGINT, stamp_us BIGINT, message STRING"),
)
"""Query that selects LeaderAndIsr requests as whole lines. ``stamp_us`` is the time at which the broker finished
processing the request.
"""

ACCEPTED = arrow_columns(
    "broker_id INT, source_file STRING, source_line BIGINT, stamp_us BIGINT, topic STRING, partition_id INT, "
    "leads BOOLEAN, leader_id INT, leader_epoch INT, isr ARRAY<INT>, partition_epoch INT, replicas ARRAY<INT>"
)
"""Schema of `accepted_requests`, and of `isr_batch.broker_lines.server_log_zookeeper.zookeeper_accepted`.
"""

PARTLY_READ = arrow_columns("source_file STRING, source_line BIGINT, reason STRING, detail STRING")
"""Schema of `partly_read_leader_and_isr`: that of doubtful lines."""

# Text that a client has chosen cannot match this: it follows the API key, or the quotes in it are escaped.
_LINE = r'Completed request:(?:RequestHeader\(apiKey=LEADER_AND_ISR,|\{api_key=4,|.*"requestApiKey":4,)'


def _member_pattern(name: str, value: str) -> str:
    """Return a regular expression for a field written ``name=value`` or ``"name":value``; ``value`` is one too."""
    return rf'"?{name}"?[:=]"?{value}"?'


_TOPIC_NAME = "topic(?:_?[nN]ame)?"
# Brokers do not print longer numbers. A partition with one does not match; `partly_read_leader_and_isr` reports it.
_NAME, _NUMBER, _NUMBERS = r"([\w.-]+)", r"(-?\d{1,9})(?!\d)", r"\[((?:\d{1,9}(?:,(?=\d)|(?=\])))*)\]"
_INDEX = _member_pattern("partition(?:_?[iI]ndex)?", _NUMBER)
_STATES = ",".join((
    rf"\{{(?:{_member_pattern(_TOPIC_NAME, _NAME)},)?{_INDEX}", _member_pattern("controller_?[eE]poch", r"\d+"),
    _member_pattern("leader", _NUMBER), _member_pattern("leader_?[eE]poch", _NUMBER), _member_pattern("isr", _NUMBERS),
    _member_pattern("(?:zk_?[vV]ersion|partition_?[eE]poch)", _NUMBER), _member_pattern("replicas", _NUMBERS),
))  # fmt: skip
_ASKED = re.compile(
    rf'{_STATES}|{_member_pattern(_TOPIC_NAME, _NAME)},(?:{_member_pattern("topicId", _NAME)},)?"?partition_?[sS]tates',
    re.ASCII,
)
_CONTROLLER_EPOCH = re.compile(_member_pattern("controller_?[eE]poch", ""))
_ANSWER = re.compile(rf',"?response"?[:=]\{{{_member_pattern("error_?[cC]ode", _NUMBER)}', re.ASCII)
_ANSWERED = re.compile(
    rf'{_member_pattern("topicId", _NAME)},"partitionErrors|\{{(?:{_member_pattern(_TOPIC_NAME, _NAME)},)?{_INDEX},'
    rf"{_member_pattern('error_?[cC]ode', _NUMBER)}",
    re.ASCII,
)


def are_leader_and_isr(lines: pa.Array) -> pa.Array:
    """Return a boolean array: which lines of a request log are LeaderAndIsr requests."""
    return pc.match_substring_regex(lines, _LINE)


def accepted_requests(lines: pa.Table) -> pa.Table:
    """Parse LeaderAndIsr requests. Return the partition states in them that brokers accepted, one per row.

    A state was accepted if the response contains no error for the partition. Up to 0.10.2, responses are not logged; a
    state is then considered accepted if its leader epoch is higher than all epochs before.

    Parameters
    ----------
    lines : pa.Table
        Result of the query `LEADER_AND_ISR_LINES`.

    Returns
    -------
    pa.Table
        Rows with the columns of `ACCEPTED`.
    """
    rows = []
    highest: dict[tuple[int, str, int], int] = {}
    for line in lines.sort_by("stamp_us").to_pylist():
        source = {name: line[name] for name in ("broker_id", "source_file", "source_line", "stamp_us")}
        for state, error in _partitions_of_request(line["message"]):
            key = line["broker_id"], state["topic"], state["partition_id"]
            is_new = state["leader_epoch"] > highest.get(key, -1)
            if error == 0 or (error is None and is_new):
                highest[key] = state["leader_epoch"]
                rows.append(source | state | {"leads": state["leader_id"] == line["broker_id"]})
    return pa.Table.from_pylist(rows, schema=ACCEPTED)


def partly_read_leader_and_isr(lines: pa.Table) -> pa.Table:
    """Return the LeaderAndIsr requests in which some partitions cannot be parsed. All other partitions are used.

    Returns
    -------
    pa.Table
        Rows with the columns of `PARTLY_READ`.
    """
    rows = []
    for line in lines.to_pylist():
        answer = _ANSWER.search(line["message"])
        asked = line["message"][: answer.start()] if answer else line["message"]
        # The controller's epoch occurs once in the request itself, and once in each partition.
        partitions = len(_CONTROLLER_EPOCH.findall(asked)) - 1
        read = sum(1 for part in _ASKED.finditer(asked) if part[2])
        if read != partitions:
            detail = f"{partitions - read} of {partitions} partitions"
            rows.append(
                {name: line[name] for name in ("source_file", "source_line")} | {"reason": NOT_READ, "detail": detail}
            )
    return pa.Table.from_pylist(rows, schema=PARTLY_READ)


def _partitions_of_request(message: str) -> Iterator[tuple[dict[str, Any], int | None]]:
    """Yield pairs for each partition in a request: the state of the partition, and its error code in the response.

    If the response is not logged, the error code is None. If the response contains an error for the whole request,
    nothing is yielded.
    """
    answer = _ANSWER.search(message)
    errors = _errors(message[answer.end() :]) if answer else {}
    if answer and int(answer[1]):
        return
    of_topic = topic_id = None
    for part in _ASKED.finditer(message, 0, answer.start() if answer else len(message)):
        own_topic, index, leader, epoch, isr, partition_epoch, replicas, named, named_id = part.groups()
        if named:
            of_topic, topic_id = named, named_id
            continue
        topic = own_topic or of_topic
        if topic:
            yield {
                "topic": topic, "partition_id": int(index), "leader_id": int(leader), "leader_epoch": int(epoch),
                "isr": _ints_in_request(isr), "partition_epoch": int(partition_epoch),
                "replicas": _ints_in_request(replicas),
            }, errors.get((topic, index), errors.get((topic_id, index), _NOT_ANSWERED)) if answer else None  # fmt: skip


_NOT_ANSWERED = -1


def _errors(answer: str) -> dict[tuple[str | None, str], int]:
    """Return the error codes in ``answer``, the text of a response, by (topic name or id, partition)."""
    topic_id, errors = None, {}
    for part in _ANSWERED.finditer(answer):
        named_id, topic, index, code = part.groups()
        if named_id:
            topic_id = named_id
        else:
            errors[topic or topic_id, index] = int(code)
    return errors


def _ints_in_request(numbers: str) -> list[int]:
    return [int(number) for number in numbers.split(",") if number]
