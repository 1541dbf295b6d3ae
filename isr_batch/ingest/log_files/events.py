"""Find the fields with time, logger, message and so on in the JSON events of log pipelines.

A field is recognised by its name and its values: in one pipeline ``source`` is a logger, in another a host.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.log_files.json_lines import json_text_at, load_json_line, read_json_fields
from isr_batch.ingest.log_files.stamps import EVENT_FORMS, StampForm

LEVELS: Final = "TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|trace|debug|info|warn|warning|error"
_SYSLOG_LEVELS: Final = {"0": "FATAL", "1": "FATAL", "2": "FATAL", "3": "ERROR", "4": "WARN", "5": "INFO", "6": "INFO",
                         "7": "DEBUG"}  # fmt: skip
_NANOS: Final = "instant/nanoOfSecond"
SECONDS: Final = "instant/epochSecond"
_FITS: Final = 0.8
"""Share of a field's values that must have the expected form. For example, the values of the logger's field must look
like names of loggers.
"""
_LOGGER = re.compile(r"[A-Za-z_$][\w$-]*(\.[\w$-]+)*")
_KAFKAS_LOGGER = re.compile(r"(kafka|org\.apache|state\.change)\.[\w$.]+")
_COMPONENT = re.compile(r"[A-Z]\w+[ ,].*=.*")
_NO_COMPONENT: Final = "unknown"
"""Value that Filebeat's Kafka module gives the component if the line has no component."""
_STACKS: Final = ("stack_trace", "stacktrace", "extendedstacktrace", "error.stack", "@error.stack", "exception",
                  "throwable", "trace.full", "full_message")  # fmt: skip
"""Usual names of fields with the stack trace of an exception. ``full_message`` contains the message followed by the
stack trace."""
_HAS_STACK: Final = (
    r'(?i)"[^"\\]*(?:stack|exception|throwable|full)[^"\\]*" ?: ?"[^"]*(?:Exception|Error|Throwable|\\n)'
)
_IS_STACK = re.compile(r"(?:Caused by: )?[\w.$]+(?:Exception|Error|Throwable)\b|\s+at ")
_LEVEL_IN_FRONT: Final = rf"^\[?(?P<level>{LEVELS})\]?[ \t:]+"


def is_kafkas_logger(name: str) -> bool:
    """Return whether a name is that of one of Kafka's loggers."""
    return bool(_KAFKAS_LOGGER.fullmatch(name))


def is_source(text: str) -> bool:
    """Return whether a text may be the name of a container or host: it is neither a path nor a Kafka logger's name."""
    return bool(text) and not text.startswith("/") and not is_kafkas_logger(text)


class EventFields(NamedTuple):
    """The paths of fields in JSON events, with slashes for nesting. A path is empty if the events have no such field.

    ``stamp`` is the time. ``front`` is the beginning of the message, such as ``Partition t-0 broker=1``, if the log
    pipeline has moved it to a separate field. ``source`` is the container or host.
    """

    message: str
    stamp: str
    level: str = ""
    logger: str = ""
    front: str = ""
    source: str = ""


@dataclass(frozen=True)
class _Field:
    """How to recognise a field: possible ends of its path, by preference, and a test that most values must pass."""

    names: tuple[str, ...]
    fits: Callable[[str], object]


MESSAGES: Final = ("message", "msg", "@message", "short_message", "log", "body", "logmessage", "logentry",
                   "textpayload", "content", "event.original", "line", "_line", "_raw", "@rawstring", "_msg", "text",
                   "raw")  # fmt: skip
"""Usual names of the field with the message or the whole log line, the preferred first."""
SOURCES: Final = ("kubernetes.pod_name", "kubernetes.pod.name", "k8s.pod.name", "pod_name", "podname", "logstreamname",
                  "@logstream", "pod", "_hostname", "host.name", "hostname", "host", "source_host",
                  "source")  # fmt: skip
COLLECTED: Final = "collected"
"""Name of an added field: the time that a collector has written in front of an event."""
STAMPS: Final = ("@timestamp", "timestamp", "time", "ts", "timemillis", "asctime", "date", "_time", "eventtime",
                 "_ts", "dt", "timegenerated", "timegenerated [utc]", "timestamp [utc]", "timegenerated [local time]",
                 "timestamp [local time]", "logentrytimestamp", COLLECTED)  # fmt: skip
_FIELDS: Final = {
    "level": _Field(
        ("level", "severity", "severitytext", "levelname", "level_name", "loglevel", "status", "priority"),
        lambda text: re.fullmatch(LEVELS, text) or text in _SYSLOG_LEVELS,
    ),
    "logger": _Field(("logger", "loggername", "logger_name", "logger.name", "_logger"), _LOGGER.fullmatch),
    "front": _Field(
        ("log.component", "component"), lambda text: text == _NO_COMPONENT or _COMPONENT.fullmatch(text)
    ),
    "source": _Field(SOURCES, is_source),
}  # fmt: skip
_BY_CONTENT: Final[dict[str, Callable[[str], object]]] = {
    "level": re.compile(LEVELS).fullmatch, "logger": is_kafkas_logger,
}  # fmt: skip
"""How to recognise a field whatever its name."""


def flat(event: Mapping[str, object], within: str = "") -> dict[str, object]:
    """Return all fields of an event, including nested ones, by path. ``within`` is put in front of each path."""
    fields: dict[str, object] = {}
    for name, value in event.items():
        if isinstance(value, dict):
            fields |= flat(value, f"{within}{name}/")
        else:
            fields[within + name] = value
    return fields


def json_objects(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Parse the lines that are JSON objects, and skip others."""
    return [each for line in lines if line.startswith("{") and isinstance(each := load_json_line(line), dict)]


def paths_named(paths: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the paths that end with one of the names, sorted by the order of the names and then by length."""
    ends = {path: "." + path.replace("/", ".").lower() for path in sorted(paths, key=lambda path: (len(path), path))}
    return [path for name in names for path, dotted in ends.items() if dotted.endswith("." + name)]


def event_fields(
    events: Sequence[Mapping[str, object]], forms: Sequence[StampForm] = EVENT_FORMS
) -> tuple[EventFields, StampForm] | None:
    """Return two things: the fields with time, message and so on in events, and the form of the times.

    Returns None if fewer than half of the events have a time and a message.
    """
    columns: dict[str, list[str]] = {}
    for event in events:
        for path, value in flat(event).items():
            if value not in (None, "", "-") and not isinstance(value, list | bool):
                columns.setdefault(path, []).append(str(value))
    message = next((path for path in paths_named(columns, MESSAGES) if 2 * len(columns[path]) >= len(events)), "")
    usual = {path: texts for path, texts in columns.items() if 2 * len(texts) >= len(events)}
    stamp, form = _stamp_field(usual, forms)
    if not message or form is None:
        return None
    chosen = {name: _chosen_event_path(field, columns, message) for name, field in _FIELDS.items()}
    for name, fits in _BY_CONTENT.items():
        found = (path for path, texts in usual.items() if path != message and _share_of_events(fits, texts) >= _FITS)
        chosen[name] = chosen[name] or next(found, "")
    return EventFields(message, stamp, **chosen), form


def fields_with_form(
    events: Sequence[Mapping[str, object]], fields: EventFields, forms: Sequence[StampForm] = EVENT_FORMS
) -> tuple[EventFields, StampForm] | None:
    """Return two things: the fields that the operator named, and the form of the times.

    Returns None if fewer than half of the events have these fields, or if the form is unknown.
    """
    some = [(json_text_at(event, fields.stamp), json_text_at(event, fields.message)) for event in events]
    texts = [stamp for stamp, message in some if stamp and message]
    form = form_of(texts, forms) if 2 * len(texts) >= len(events) else None
    return (fields, form) if form else None


def _chosen_event_path(field: _Field, columns: Mapping[str, Sequence[str]], message: str) -> str:
    """Return the path of the first field whose name and values fit ``field``; empty if none fits."""
    named = (path for path in paths_named(columns, field.names) if path != message)
    return next((path for path in named if _share_of_events(field.fits, columns[path]) >= _FITS), "")


def _stamp_field(columns: Mapping[str, Sequence[str]], forms: Sequence[StampForm]) -> tuple[str, StampForm | None]:
    """Return the path of the field with the time, and the form of its values.

    The field is found by its name. If no field has a usual name, the only field whose values are times is used.
    """
    if SECONDS in columns:
        return SECONDS, next(form for form in EVENT_FORMS if form.name == "epoch milliseconds")
    timed = {path: form for path, texts in columns.items() if (form := form_of(texts, forms))}
    named = paths_named(timed, STAMPS)
    path = named[0] if named else (next(iter(timed)) if len(timed) == 1 else "")
    return path, timed.get(path)


def form_of(texts: Sequence[str], forms: Sequence[StampForm] = EVENT_FORMS) -> StampForm | None:
    """Return the first of the forms that enough texts have (a share of at least _FITS); None if no form fits."""
    return next((f for f in forms if _share_of_events(re.compile(f.pattern).fullmatch, texts) >= _FITS), None)


def _share_of_events(fits: Callable[[str], object], texts: Sequence[str]) -> float:
    """Return the share of texts for which ``fits`` returns a true value."""
    return sum(bool(fits(text)) for text in texts) / max(len(texts), 1)


def names_of_fields(events: Sequence[Mapping[str, object]], most: int = 12) -> str:
    """Return up to ``most`` names of the events' fields as text, for an error message."""
    names = sorted({path for event in events[:_LOOKED_AT] for path in flat(event)})
    return ", ".join(names[:most]) + (", ..." if names[most:] else "")


_LOOKED_AT: Final = 20


def _whole_numbers(texts: pa.StringArray) -> pa.Int64Array:
    """Parse whole numbers of up to ten digits. Other texts become null."""
    is_number = pc.match_substring_regex(texts, r"^\d{1,10}$")
    return pc.if_else(pc.fill_null(is_number, False), texts, None).cast(pa.int64())


def _with_stacks(values: pa.StringArray, message: pa.StringArray) -> pa.StringArray:
    """Append stack traces, for the few events with a stack trace in a separate field, to messages."""
    there = pc.and_(pc.match_substring_regex(values, _HAS_STACK), pc.is_valid(message))
    there = pc.fill_null(there, False)
    pairs = zip(message.filter(there).to_pylist(), values.filter(there).to_pylist(), strict=True)
    whole = [_with_stack(text, load_json_line(event)) for text, event in pairs]
    return pc.replace_with_mask(message, there, pa.array(whole, pa.string())) if whole else message


def _with_stack(message: str, event: object) -> str:
    """Return a message. If another field of the event contains a stack trace, it is appended."""
    fields = flat(event) if isinstance(event, dict) else {}
    stacks = (str(fields[path]) for path in paths_named(fields, _STACKS))
    stack = next((text for text in stacks if _IS_STACK.match(text) or text.startswith(f"{message}\n")), "")
    return message if not stack else stack if stack.startswith(message) else f"{message}\n{stack}"


class EventTexts(NamedTuple):
    """Message, time, level and logger of events: arrays with one element per event, null if it is missing.

    ``logger`` is None if the events have no field for it.
    """

    message: pa.StringArray
    stamp: pa.StringArray
    level: pa.StringArray
    logger: pa.StringArray | None


def event_texts(values: pa.StringArray, fields: EventFields) -> EventTexts:
    """Extract message, time, level and logger from JSON events.

    If the log pipeline has moved the beginning of the message to a separate field, it is put back.

    For a line that is not such an event, the message is null.
    """
    chosen = fields.message, fields.stamp, fields.level, fields.logger, fields.front
    paths = [path for path in chosen if path]
    if fields.stamp == SECONDS:
        paths.append(_NANOS)
    columns = dict(zip(paths, read_json_fields(values, paths), strict=True))
    message, stamp, nanos = columns[fields.message], columns[fields.stamp], columns.get(_NANOS)
    if nanos is not None:
        millis = pc.divide(pc.fill_null(_whole_numbers(nanos), 0), 1_000_000)
        stamp = pc.add(pc.multiply(_whole_numbers(stamp), 1000), millis).cast(pa.string())
    if fields.front:
        front = columns[fields.front]
        has_front = pc.fill_null(pc.and_(pc.not_equal(front, _NO_COMPONENT), pc.not_equal(front, "")), False)
        message = pc.if_else(has_front, pc.binary_join_element_wise("[", front, "] ", message, ""), message)
    message = _with_stacks(values, message)
    level = columns.get(fields.level)
    if level is None:
        level = pc.struct_field(pc.extract_regex(message, _LEVEL_IN_FRONT), "level")
        message = pc.replace_substring_regex(message, _LEVEL_IN_FRONT, "")
    else:
        place = pc.index_in(level, pa.array(list(_SYSLOG_LEVELS)))
        level = pc.coalesce(pa.array(list(_SYSLOG_LEVELS.values())).take(place), level)
    return EventTexts(message, stamp, pc.fill_null(level, "INFO"), columns.get(fields.logger))
