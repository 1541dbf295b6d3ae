"""One log line as the events that log pipelines make of it: Filebeat, Fluent Bit, GELF, OTLP and others."""

import json
import re
from collections.abc import Callable
from datetime import datetime

Write = Callable[[str, str, str, str, str, str], str]
"""Writes a line from its day, time, milliseconds, level, message and logger."""


def _event(write: Callable[..., object]) -> Write:
    return lambda *parts: json.dumps(write(*parts))


def _epoch(day: str, time: str, ms: str) -> int:
    """Milliseconds since 1970 of a date, a time of day and its milliseconds."""
    return round(datetime.fromisoformat(f"{day}T{time}.{ms}+00:00").timestamp() * 1000)


def _without_component(message: str) -> tuple[str, str]:
    found = re.fullmatch(r"\[([A-Z]\w+[ ,][^\]]*)\] (.*)", message)
    return (found[1], found[2]) if found else ("unknown", message)


def _filebeat(d: str, t: str, ms: str, lv: str, m: str, c: str) -> object:
    component, rest = _without_component(m)
    return {"@timestamp": f"{d}T{t}.{ms}Z", "log": {"level": lv}, "message": rest, "service": {"type": "kafka"},
            "kafka": {"log": {"component": component, "class": c}}, "ecs": {"version": "8.0.0"}}  # fmt: skip


def _otlp(body: object, nanos: int, **record: object) -> object:
    records = [{"timeUnixNano": str(nanos), "observedTimeUnixNano": "1", "body": body, **record}]
    pod = {"key": "k8s.pod.name", "value": {"stringValue": "kafka-1"}}
    return {"resourceLogs": [{"resource": {"attributes": [pod]}, "scopeLogs": [{"scope": {}, "logRecords": records}]}]}


_EVENTS: dict[str, Callable[..., object]] = {
    "Filebeat's module for Kafka": _filebeat,
    "Vector": lambda d, t, ms, lv, m, c: {
        "host": "kafka-1", "message": f"[{d} {t},{ms}] {lv} {m} ({c})", "source_type": "file",
        "timestamp": "2026-11-21T20:00:00.1Z"},
    "Fluent Bit": lambda d, t, ms, lv, m, c: {
        "date": 1795361412.613, "log": f"[{d} {t},{ms}] {lv} {m} ({c})", "kubernetes": {"pod_name": "kafka-1"}},
    "Fluent Bit, parsed": lambda d, t, ms, lv, m, c: {
        "date": _epoch(d, t, ms) / 1000, "level": lv, "logger": c, "message": m, "source": "/var/log/kafka"},
    "GELF": lambda d, t, ms, lv, m, c: {
        "version": "1.1", "host": "kafka-1", "short_message": m, "timestamp": _epoch(d, t, ms) / 1000,
        "level": {"DEBUG": 7, "INFO": 6, "WARN": 4, "ERROR": 3}.get(lv, 6), "_logger": c},
    "the time apart": lambda d, t, ms, lv, m, c: {
        "timestamp": _epoch(d, t, ms), "message": f"{lv} {m} ({c})", "ingestionTime": 1795361412613},
    "Docker's time": lambda d, t, ms, lv, m, c: {
        "log": f"{lv} {m} ({c})\n", "stream": "stdout", "time": f"{d}T{t}.{ms}123456Z"},
    "Elasticsearch's hits": lambda d, t, ms, lv, m, c: {
        "_index": "logs", "_source": {"@timestamp": f"{d}T{t}.{ms}Z", "message": m, "log": {"logger": c, "level": lv}}},
    "Google": lambda d, t, ms, lv, m, c: {
        "jsonPayload": {"message": m, "logger": c}, "timestamp": f"{d}T{t}.{ms}Z", "severity": lv,
        "receiveTimestamp": f"{d}T23:59:59.9Z", "resource": {"labels": {"pod_name": "kafka-1"}}},
    "Datadog": lambda d, t, ms, lv, m, c: {
        "id": "A", "content": {"timestamp": f"{d}T{t}.{ms}Z", "host": "kafka-1", "service": "kafka", "message": m,
                               "attributes": {"status": lv.lower(), "logger": {"name": c, "thread_name": "main"}}}},
    "a logger called source": lambda d, t, ms, lv, m, c: {
        "time": f"{d}T{t}.{ms}Z", "level": lv.lower(), "source": c, "msg": m, "host": "kafka-1"},
    "Log4j's template": lambda d, t, ms, lv, m, c: {
        "instant": {"epochSecond": _epoch(d, t, ms) // 1000, "nanoOfSecond": int(ms) * 1_000_000}, "thread": "main",
        "level": lv, "loggerName": c, "message": m, "endOfBatch": False},
    "OTLP": lambda d, t, ms, lv, m, c: _otlp({"stringValue": f"[{d} {t},{ms}] {lv} {m} ({c})"}, 1795361412613000000),
    "OTLP, parsed": lambda d, t, ms, lv, m, c: _otlp(
        {"kvlistValue": {"values": [{"key": "message", "value": {"stringValue": m}},
                                    {"key": "logger", "value": {"stringValue": c}}]}},
        _epoch(d, t, ms) * 1_000_000, severityText=lv),
}  # fmt: skip
EVENTS = {name: _event(write) for name, write in _EVENTS.items()}
"""Writers of events, by the pipeline."""
