"""Convert request log lines of Kafka before 2.8 from text to JSON, with the members that isr-batch uses.

===============  ========================================================================================
release          content of a line
===============  ========================================================================================
0.9 - 0.10.1     a follower's fetch as ``Name: FetchRequest; ...; RequestInfo: ([t,0],PartitionFetchInfo(5,9))``,
                 a produce request (0.10) as the whole structure; no responses. Only at TRACE
0.10.2           structures; produce as ``{acks=..,timeout=..,partitionSizes=[t-0=670]}``; no responses. Only at TRACE
0.11             the same, durations with decimals; at DEBUG (partitionSizes only at TRACE)
1.0 - 2.7        also the response, after ``,response:``; 1.1: fetch sessions; 2.1: ``current_leader_epoch``
===============  ========================================================================================

Up to 0.10.2, durations are whole milliseconds. They are rounded down, so ``remoteTime:0`` does not prove that a fetch
was answered at once. From 0.11 on, they include microseconds, with the decimal mark of the broker's locale.

Users choose client ids, rack ids and names of principals, which may contain text that looks like part of a line.
Therefore a line is only parsed if each separator between its parts occurs exactly once. All text that users have chosen
is then in parts that are not parsed.
"""

import re
from collections.abc import Callable

from udfs.request_log.requests import FETCH, PRODUCE_API

_ANOTHER_API = -1

_TWO_READINGS = "text request that can be read in two ways"
_NO_PARTITIONS = "fetch logged without its partitions (TRACE is needed)"
_PRODUCE_0_9 = "produce request of a broker older than 0.10"
_NO_SESSION_EPOCH = "fetch of version 7 or later without a readable session epoch"
_FIRST_WITH_SESSION = 7

_MESSAGE, _ANSWER, _CONNECTION, _TIMES = " -- ", ",response:", " from connection ", ";totalTime:"
_OLD, _OLD_FETCH, _OLD_PRODUCE = "Name: ", "Name: FetchRequest; ", "Name: ProducerRequest; "
_OLD_REPLICA, _OLD_PARTITIONS = "; ReplicaId: ", "; RequestInfo: "
_APIS = {"FETCH": FETCH, str(FETCH): FETCH, "PRODUCE": PRODUCE_API, str(PRODUCE_API): PRODUCE_API}


def _request_text_pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII)


_API = _request_text_pattern(r"^(?:RequestHeader\(apiKey=|\{api_key=)(\w+), ?api_?[vV]ersion=")
_OLD_ASKED = _request_text_pattern(
    r"^Name: FetchRequest; Version: \d+; CorrelationId: -?\d+; ClientId: .*; ReplicaId: (-?\d+); MaxWait: (\d+) ms; "
    r"MinBytes: -?\d+ bytes(?:; MaxBytes: ?-?\d+ bytes)?; RequestInfo: (.*)$"
)
_OLD_PARTITION = _request_text_pattern(r"\(\[([\w.-]+),(\d+)\],PartitionFetchInfo\((-?\d+),-?\d+\)\)")
_OLD_PARTITIONS_ASKED = _request_text_pattern(rf"(?:{_OLD_PARTITION.pattern}(?:,(?!$)|$))*")
_CORRELATION = _request_text_pattern(r"orrelation_?[iI]d[=:] ?(\d{1,9})\b")
_CLIENT = _request_text_pattern(r"[cC]lient_?[iI]d[=:] ?([\w.-]+)")
_API_VERSION = _request_text_pattern(
    r"^(?:RequestHeader\(apiKey=\w+, apiVersion=|\{api_key=\d+,api_version=|Name: FetchRequest; Version: )(\d{1,4})\b"
)
_NUMBER = r"(\d+(?:\.\d+)?(?:E-?\d+)?)"
_DURATIONS = _request_text_pattern(
    rf"^{_NUMBER},requestQueueTime:{_NUMBER},localTime:{_NUMBER},remoteTime:{_NUMBER},(?:throttleTime:{_NUMBER},)?"
    rf"responseQueueTime:{_NUMBER},sendTime:{_NUMBER}\b.*$"
)
_DECIMAL_COMMA = _request_text_pattern(r"(Time:|^)(\d+),(?=\d)")


def _listed_in_text(match: re.Match[str]) -> str:
    """Convert ``partitionSizes`` of a Produce request to the form in which later releases print it."""
    partitions = (f"{{topic={t},partitions=[{{partition={p},records_size_in_bytes={size}}}]}}"
                  for t, p, size in _LISTED.findall(match[1]))  # fmt: skip
    return f"topics=[{','.join(partitions)}]"


Step = tuple[re.Pattern[str] | str, str | Callable[[re.Match[str]], str]]
_LISTED = _request_text_pattern(r"([\w.-]+)-(\d+)=(\d+)")
_NO_TAGS: Step = (",_tagged_fields={}", "")
# Replacing a pattern takes ten times as long as replacing fixed text, and twenty times with groups.
_ASKED: tuple[Step, ...] = (
    _NO_TAGS,
    (_request_text_pattern(r",rack_id=.*$"), "}"),  # the last member, and whatever a user made of it
    ("max_wait_time=", "max_wait_ms="),
    (
        _request_text_pattern(r",epoch=(-?\d+),topics="),
        lambda m: f",session_epoch={m[1]},topics=",
    ),  # of the session: up to 2.0
    ("forgetten_topics_data=", "forgotten_topics_data="),  # so 1.1 to 2.0 spell it
    (_request_text_pattern(r"partitionSizes=\[((?:[\w.-]+-\d+=\d+(?:,(?!\])|(?=\])))*)\]"), _listed_in_text),
    ("topic_data=[", "topics=["),
    (",data=[", ",partitions=["),
    ("record_set=null", "records_size_in_bytes=0"),
    (
        _request_text_pattern(r"record_set=java\.nio\.\w+\[pos=0 lim=(\d+) cap=\d+\]"),
        lambda m: f"records_size_in_bytes={m[1]}",
    ),
)
_ANSWERED: tuple[Step, ...] = (
    _NO_TAGS,
    ("record_set=[]", "records_size_in_bytes=0"),
    ("record_set=null", "records_size_in_bytes=0"),
    (
        _request_text_pattern(r"record_set=FileRecords\(file=[^(){}]*, start=(\d+), end=(\d+)\)"),
        lambda m: f"records_start={m[1]},records_end={m[2]}",
    ),
    (_request_text_pattern(r"record_set=\w+Records\(size=(\d+)[^(){}]*\)"), lambda m: f"records_size_in_bytes={m[1]}"),
    # 1.0 and 1.1 do not print the size of records in a file, or converted to an older format. As such a response
    # contains records, their size is set to one byte.
    (
        _request_text_pattern(r"record_set=org\.apache\.kafka\.common\.record\.FileRecords@[0-9a-f]+"),
        "records_size_in_bytes=1",
    ),
    (_request_text_pattern(r"record_set=\[\(record=[^\[\]{}]*\]"), "records_size_in_bytes=1"),
    ("{partition_header={", "{"),
    ("},records_", ",records_"),
    # The reason why an append was refused, in words.
    (_request_text_pattern(r"\{batch_index=\d+,batch_index_error_message=[^{}]*\},?"), ""),
    (_request_text_pattern(r",record_errors=\[\],error_message=[^{}]*\}"), "}"),
    (
        _request_text_pattern(r",_tagged_fields=\{0=(\{epoch=-?\d+,end_offset=-?\d+\})\}"),
        lambda m: f",diverging_epoch={m[1]}",
    ),
)


def request_text_as_json(text: str) -> tuple[str, str | None]:
    """Convert the part of a line after ``Completed request:`` to JSON like that of later releases.

    Returns
    -------
    json : str
        JSON with only the members that `udfs.request_log.json_line.read_json_line` uses, under their names in the text.
        For APIs other than Fetch and Produce, these are the durations. For a Produce request, they include ``topics``
        with ``partition`` and ``records_size_in_bytes`` if these were logged. Empty if the line has an unknown form.
    problem : str or None
        The reason why the line cannot be used, although its form is known; None if it can be used.
    """
    said = text.partition(_TIMES)[0].partition(_CONNECTION)[0]
    is_old_fetch = text.startswith(_OLD_FETCH)
    problem = _problem_of_text_line(text, said, is_old_fetch=is_old_fetch)
    if problem:
        return "", problem
    name = _API.match(text)
    if is_old_fetch:
        api = FETCH
    elif name or text.startswith(_OLD):
        api = _APIS.get(name.group(1), _ANOTHER_API) if name else _ANOTHER_API
    else:
        return "", None
    durations = _durations_in_text(text.rpartition(_TIMES)[2])
    asked, answered = "{}", "null"
    if is_old_fetch:
        asked = _old_fetch(said)
    elif api != _ANOTHER_API:
        message = said.rpartition(_MESSAGE)[2]
        request, has_answer, response = message.partition(_ANSWER)
        asked = _replaced_in_text(request, _ASKED)
        if api == FETCH and ",session_epoch=" not in asked and _api_version_in_text(text) >= _FIRST_WITH_SESSION:
            return "", _NO_SESSION_EPOCH
        if has_answer:
            answered = _replaced_in_text(response, _ANSWERED)
            if api == PRODUCE_API:  # responses since 2.8 name it index
                answered = answered.replace("partition=", "index=")
    header = _header_of_text_line(said.partition(_MESSAGE)[0]) if api == FETCH else ""
    json = f'{{"requestHeader":{{"requestApiKey":{api}{header}}},"request":{asked},"response":{answered},{durations}}}'
    return (json if durations else ""), None


def _header_of_text_line(text: str) -> str:
    """Return the JSON members with a fetch's API version, correlation id and client id, which identify the fetcher."""

    def value(pattern: re.Pattern[str], quote: str = "") -> str:
        """Return the first group of the pattern's match, enclosed in ``quote``; "null" without a match."""
        found = pattern.search(text)
        return f"{quote}{found.group(1)}{quote}" if found else "null"

    version, correlation, client = value(_API_VERSION), value(_CORRELATION), value(_CLIENT, '"')
    return f',"fetchVersion":{version},"correlationId":{correlation},"clientId":{client}'


def _api_version_in_text(text: str) -> int:
    """Return the API version of a request; 0 if the text does not show it."""
    found = _API_VERSION.match(text)
    return int(found[1]) if found else 0


def _replaced_in_text(text: str, steps: tuple[Step, ...]) -> str:
    """Apply replacements, ``steps``, to a text, one after another. A step is a pattern or text, and its replacement."""
    for what, by in steps:
        if not isinstance(what, str):
            text = what.sub(by, text)
        elif what in text and isinstance(by, str):
            text = text.replace(what, by)
    return text


def _old_fetch(said: str) -> str:
    """Convert ``said``, a fetch request of 0.9 to 0.10.1, to the form of later releases; empty if its form is unknown.

    Each partition gets a separate entry in ``topics``.
    """
    whole = _OLD_ASKED.match(said)
    listed = _OLD_PARTITIONS_ASKED.fullmatch(whole[3]) if whole else None
    if not whole or not listed:
        return ""
    partitions = (f"{{topic={t},partitions=[{{partition={p},fetch_offset={offset}}}]}}"
                  for t, p, offset in _OLD_PARTITION.findall(whole[3]))  # fmt: skip
    return f"{{replica_id={whole[1]},max_wait_ms={whole[2]},topics=[{','.join(partitions)}]}}"


def _durations_in_text(times: str) -> str:
    """Convert the durations in ``times`` to members of a JSON object; empty if ``times`` has an unknown form."""
    found = _DURATIONS.match(_DECIMAL_COMMA.sub(r"\1\2.", times))
    if not found:
        return ""
    total, queue, local, remote, _throttle, _response_queue, send = found.groups()
    return (
        f'"totalTimeMs":{total},"requestQueueTimeMs":{queue},"localTimeMs":{local},"remoteTimeMs":{remote},'
        f'"sendTimeMs":{send}'
    )


def _problem_of_text_line(text: str, said: str, *, is_old_fetch: bool) -> str | None:
    """Return the reason why a line cannot be used although its form is known; None if the line can be used.

    ``text`` is the line after ``Completed request:``, and ``said`` is the request in it.
    """
    header_end = _OLD_REPLICA if text.startswith(_OLD) else _MESSAGE
    if any(text.count(mark) > 1 for mark in (_TIMES, _CONNECTION, _ANSWER, header_end)):
        return _TWO_READINGS
    if is_old_fetch and _OLD_PARTITIONS not in said:
        return _NO_PARTITIONS
    return _PRODUCE_0_9 if text.startswith(_OLD_PRODUCE) else None
