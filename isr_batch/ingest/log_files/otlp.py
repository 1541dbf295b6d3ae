"""Convert OpenTelemetry's JSON (OTLP), with a batch of events on each line, to one event per line."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

_BEGINS = b'{"resourceLogs"'
_SCALARS = ("stringValue", "intValue", "doubleValue", "boolValue")


def is_otlp(head: bytes) -> bool:
    """Return whether a file with this beginning, ``head``, is OTLP JSON with a batch on each line."""
    first = head[: 8 * len(_BEGINS)].removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
    return b"".join(first.split()).startswith(_BEGINS)


def lines_of_otlp(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Convert OTLP batches to one line of JSON per log record. Yield blocks of lines; other lines are unchanged."""
    pending = b""
    for chunk in chunks:
        *lines, pending = (pending + chunk).split(b"\n")
        if lines:
            yield b"".join(map(_expanded_otlp, lines))
    if pending:
        yield _expanded_otlp(pending)


def _expanded_otlp(line: bytes) -> bytes:
    """Convert a batch to one line of JSON per log record. Any other line is returned unchanged."""
    try:
        events = _in_order(list(events_of_batch(json.loads(line))))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return line + b"\n"
    return b"".join(json.dumps(event, ensure_ascii=False).encode(errors="replace") + b"\n" for event in events)


def _in_order(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort the events of a batch by time. In a batch, they are grouped by logger and may be in reverse order."""
    times = [str(event.get("timestamp", "")) for event in events]
    if times and times[0] > times[-1]:
        events.reverse()
    return sorted(events, key=lambda event: str(event.get("timestamp", "")))


def events_of_batch(batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the log records of an OTLP batch as events: dicts with timestamp, severity, logger, body and so on."""
    for of_resource in batch["resourceLogs"]:
        resource = _otlp_attributes(of_resource.get("resource", {}))
        for of_scope in of_resource.get("scopeLogs", []):
            scope = of_scope.get("scope", {}).get("name")
            for record in of_scope.get("logRecords", []):
                # The collector's observedTimeUnixNano is not used, because it may be hours later.
                event = {"timestamp": record.get("timeUnixNano"), "severity": record.get("severityText"),
                         "logger": scope, "body": _otlp_value(record.get("body", {})),
                         "attributes": _otlp_attributes(record), "resource": resource}  # fmt: skip
                yield {name: value for name, value in event.items() if value not in (None, "", "0", 0, {})}


def _otlp_attributes(of: Mapping[str, Any]) -> dict[str, Any]:
    """Convert OTLP's list of attributes to a dict."""
    return {each["key"]: _otlp_value(each.get("value", {})) for each in of.get("attributes", [])}


def _otlp_value(typed: Mapping[str, Any]) -> Any:  # noqa: ANN401 any JSON
    """Convert a typed OTLP value, such as ``{"stringValue": "x"}``, to a plain value, such as ``"x"``."""
    if "kvlistValue" in typed:
        return {each["key"]: _otlp_value(each.get("value", {})) for each in typed["kvlistValue"].get("values", [])}
    return next((typed[name] for name in _SCALARS if name in typed), None)
