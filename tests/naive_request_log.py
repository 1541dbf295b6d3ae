"""Parse a line of the request log with Python's own JSON reader and plain rules."""

import json
import math
import re
from datetime import UTC, datetime
from typing import Any

MARK = " Completed request:"
STAMP = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.](\d{3})\]", re.ASCII)
MAX_OFFSET, DAY_MS, FIRST_US, LAST_US = 1 << 53, 86_400_000, 1_262_304_000_000_000, 4_102_444_800_000_000

INT, LONG, REAL, TEXT = "int", "long", "real", "text"
NAMES = {"topicId": TEXT, "topic": TEXT}
ANSWER = {
    "partitionIndex": INT, "partition": INT, "index": INT, "errorCode": INT, "highWatermark": LONG,
    "recordsSizeInBytes": LONG, "recordSetSizeInBytes": LONG, "baseOffset": LONG, "divergingEpoch": {},
}  # fmt: skip
ASKED = {"partition": INT, "currentLeaderEpoch": INT, "fetchOffset": LONG, "recordsSizeInBytes": LONG}
FORM: dict[str, Any] = {
    "requestHeader": {"requestApiKey": INT, "requestApiVersion": INT, "correlationId": LONG, "clientId": TEXT},
    "request": {
        "replicaId": INT, "replicaState": {"replicaId": INT}, "maxWaitMs": LONG, "sessionId": INT, "sessionEpoch": INT,
        "topics": [NAMES | {"partitions": [ASKED]}], "forgottenTopicsData": [NAMES | {"partitions": [INT]}],
        "acks": INT,
        "topicData": [
            {"topicId": TEXT, "name": TEXT, "partitionData": [{"index": INT, "recordsSizeInBytes": LONG}]}
        ],
    },
    "response": {
        "errorCode": INT, "sessionId": INT,
        "responses": [NAMES | {"name": TEXT, "partitions": [ANSWER], "partitionResponses": [ANSWER]}],
    },
    **{f"{name}TimeMs": REAL for name in ("total", "requestQueue", "local", "remote", "send")},
}  # fmt: skip


class Members(list[tuple[str, Any]]):
    """Members of an object, including duplicates."""


def _of_form(value: Any, form: Any, path: tuple[str, ...], bad: list[tuple[str, ...]]) -> Any:
    if value is None or (path == ("response",) and value == "" and isinstance(value, str)):
        return None
    kinds = {INT: int, LONG: int, REAL: (int, float), TEXT: str}
    if isinstance(form, dict) and isinstance(value, Members):
        return {name: _of_form(v, form[name], (*path, name), bad) for name, v in value if name in form}
    if isinstance(form, list) and type(value) is list:
        return [_of_form(v, form[0], (*path, ""), bad) for v in value]
    if isinstance(form, str) and isinstance(value, kinds[form]) and not isinstance(value, bool):  # type: ignore[arg-type]
        bits = {INT: 31, LONG: 63}.get(form)
        if bits is None or -(1 << bits) <= value < 1 << bits:
            return value
    bad.append(path)
    return None


def _no_constant(name: str) -> None:
    raise ValueError(name)


READER = json.JSONDecoder(object_pairs_hook=Members, parse_constant=_no_constant)


def _stamp_us(line: str) -> int | None:
    found = STAMP.match(line)
    try:
        at = datetime.fromisoformat(found[1]).replace(tzinfo=UTC) if found else None
    except ValueError:
        return None
    return int(at.timestamp()) * 1_000_000 + int(found[2]) * 1000 if at and found else None


def _is_between(value: int | None, least: int) -> bool:
    return value is not None and least <= value <= MAX_OFFSET


def _name(entry: dict[str, Any], *names: str) -> str | None:
    return next((entry[n] for n in ("topicId", "topic", *names) if entry.get(n) is not None), None)


def _size(p: dict[str, Any]) -> int | None:
    return next((p[n] for n in ("recordsSizeInBytes", "recordSetSizeInBytes") if p.get(n) is not None), None)


Partitions = dict[tuple[str, int], tuple[int, ...]]


class OddError(Exception):
    """A partition, an offset or a size that cannot be."""


def _partitions(topics: Any, lists: tuple[str, ...], names: tuple[str, ...], numbers: Any) -> Partitions:
    found = {}
    for entry in topics or []:
        topic = None if entry is None else _name(entry, *names)
        listed = None if entry is None else next((entry[n] for n in lists if entry.get(n) is not None), None)
        if topic is None or listed is None:
            raise OddError
        for p in listed:
            if p is None:
                raise OddError
            partition, *rest = numbers(p)
            if partition is None or partition < 0:
                raise OddError
            found[topic, partition] = tuple(rest)
    return found


def _fetched(p: dict[str, Any]) -> tuple[int | None, ...]:
    epoch = p["currentLeaderEpoch"] if p.get("currentLeaderEpoch") is not None else -1
    if not _is_between(p.get("fetchOffset"), 0) or epoch < -1:
        raise OddError
    return p.get("partition"), epoch, p["fetchOffset"]


def _sent(p: dict[str, Any]) -> tuple[int | None, ...]:
    size = p.get("recordsSizeInBytes")
    if size is not None and not _is_between(size, -1):
        raise OddError
    return p.get("partition", p.get("index")), -2 if size is None else size


def _fetch_answer(p: dict[str, Any]) -> tuple[int | None, ...]:
    watermark = -1 if p.get("highWatermark") is None else p["highWatermark"]
    size = _size(p) or 0
    if not _is_between(watermark, -1) or not _is_between(size, -1):
        raise OddError
    error = p.get("errorCode") or 0
    partition = p["partitionIndex"] if p.get("partitionIndex") is not None else p.get("partition")
    return partition, error or (-1 if p.get("divergingEpoch") is not None else 0), watermark, size


def _produce_answer(p: dict[str, Any]) -> tuple[int | None, ...]:
    if not _is_between(p.get("baseOffset"), -1) or p.get("errorCode") is None:
        raise OddError
    return p.get("index"), p["errorCode"], p["baseOffset"]


def naive_request(line: str) -> dict[str, Any]:  # noqa: C901, PLR0911, PLR0912 (a list of rules)
    """Give kind and reason of a JSON line, and of a request its instants, numbers and partitions."""

    def refused(reason: str, **more: Any) -> dict[str, Any]:
        return {"kind": "refused", "reason": reason, **more}

    _front, mark, body = line.partition(MARK)
    if not mark or not body:
        return {"kind": "blank", "reason": None} if not line.strip(" ") else refused("not a line of the request log")
    stamp = _stamp_us(line)
    if stamp is None:
        return refused("no readable time stamp")
    if not FIRST_US <= stamp <= LAST_US:
        return refused("time out of range")
    bad: list[tuple[str, ...]] = []
    try:
        found, _end = READER.raw_decode(body)
        read = _of_form(found, FORM, (), bad)
    except ValueError:
        read = None
    header = (read or {}).get("requestHeader") or {}
    api, version = header.get("requestApiKey"), header.get("requestApiVersion")
    inside = [path for path in bad if len(path) > 1 and path[0] != "requestHeader"]
    if read is None or len(inside) < len(bad) or (inside and api in {0, 1, None}):
        return refused("truncated line" if body.count("{") > body.count("}") else "malformed JSON")
    if MARK in body:
        return refused("two requests in one line")
    total, queue, local, remote, send = (
        read.get(f"{name}TimeMs") for name in ("total", "requestQueue", "local", "remote", "send")
    )
    if api is None or any(part is None or part < 0 for part in (total, queue, local, remote)):
        return refused("request without api key or durations")
    send = send or 0
    if any(part > total + 1 for part in (queue, local, remote, send)) or send < 0:
        return refused("time out of range")
    if total > DAY_MS or stamp - total * 1000 < FIRST_US:
        return refused("time out of range")
    request, response = read.get("request") or {}, read.get("response") or {}
    state = request.get("replicaState") or {}
    replica = next((n for n in (state.get("replicaId"), request.get("replicaId")) if n is not None), -1)
    follower = api == 1 and replica >= 0
    oldest, newest = {1: (4 if follower else -math.inf, 18), 0: (3, 13)}.get(api, (-math.inf, math.inf))
    if version is not None and not oldest <= version <= newest:
        return refused("API version not known here", detail=f"API {api}, version {version}")
    if (api == 1 and request.get("topics") is None) or (api == 0 and request.get("acks") not in {-1, 0, 1}):
        return refused("values out of range")
    lists: dict[str, Partitions] = {}
    answers = response.get("responses")
    try:
        if api == 1:
            lists["asked"] = _partitions(request["topics"], ("partitions",), (), _fetched)
        if api == 0:
            named = "partitions" if request.get("topics") is not None else "partitionData"
            topics = request.get("topics") if request.get("topics") is not None else request.get("topicData")
            lists["asked"] = _partitions(topics, (named,), ("name",), _sent)
            lists["answered"] = _partitions(answers, ("partitionResponses",), ("name",), _produce_answer)
        if follower:
            gone = request.get("forgottenTopicsData")
            lists["forgotten"] = _partitions(gone, ("partitions",), (), lambda p: (p,))
            lists["answered"] = _partitions(answers, ("partitions", "partitionResponses"), (), _fetch_answer)
    except OddError:
        return refused("offset or partition out of range")
    kind = {1: "follower fetch" if follower else "other fetch", 0: "produce"}.get(api, "other")
    arrival = stamp - _us(total)
    handled = min(arrival + _us(queue), stamp)
    processed = min(handled + _us(local), stamp)
    waited = max(0, min(remote, request.get("maxWaitMs") or 0))
    return {
        "kind": kind, "reason": None, "arrival_us": arrival, "handled_us": handled, "processed_us": processed,
        "released_us": min(processed + _us(waited), stamp), "answered_us": stamp - _us(send), "completed_us": stamp,
        "replica_id": replica, "asked_session": request.get("sessionId"), "given_session": response.get("sessionId"),
        "session_epoch": -1 if request.get("sessionEpoch") is None else request["sessionEpoch"],
        "error_code": response.get("errorCode") or 0, "api_version": version, "acks": request.get("acks"),
        "correlation_id": header.get("correlationId"),
        "client_id": header.get("clientId") if follower or api == 0 else None,
        "partitions": lists if follower or api == 0 else None,
    }  # fmt: skip


def _us(milliseconds: float) -> int:
    return math.floor(milliseconds * 1000 + 0.5)
