"""Parse files exported from log viewers, which are tables or JSON documents, into events.

Log viewers give the field with the broker's line different names, so it is recognised by its values.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from isr_batch.ingest.log_files.events import (
    MESSAGES,
    STAMPS,
    flat,
    json_objects,
    paths_named,
)
from isr_batch.ingest.log_files.json_lines import json_value_at
from isr_batch.ingest.log_files.otlp import events_of_batch
from isr_batch.ingest.log_files.prefixes import BEGINS_AS_LOG, SOME
from isr_batch.ingest.log_files.tab_tables import (
    columns_of_tab_table,
    is_escaped_by_backslashes,
    rows_of_tab_table,
    unescaped,
)
from isr_batch.memory import memory_bytes

LINE: Final = "line"
"""Name of the field with the broker's line in converted events."""
_NAME = re.compile(r"(?i)\.(csv|tsv|json)(\.(gz|zst|xz|bz2))?$")
_STATED = re.compile(r"sep=[,;\t]\r?")
_ESCAPED_QUOTE, _DOUBLED_QUOTE = re.compile(r'[^\\]\\"'), re.compile(r'[^\\,;\t\n]""[^,;\t\r\n]')
_QUOTED_CELL = re.compile(r'(?:^|\t|\n)"')
_LIST_OF_EVENTS = re.compile(r'\{[^\[]{0,500}"(events|hits|results?|data|tables|logs|resourceLogs)" ?: ?\[')
_NOT_SPACE = re.compile(r"\S")
_HEAD = 1 << 16
LOOKED_AT: Final = 1000
"""Number of events whose fields are examined to find the broker's line and the time."""
_LINES_LOOKED_AT = 20
_DEEP = 4
Event = dict[str, object]


class BadExportError(Exception):
    """Raised if an export cannot be parsed, with the reason and a detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def is_export(path: str, head: bytes) -> bool:
    """Return whether a file is an export of a log viewer (a table or a JSON document), judging by its first bytes.

    A CSV table is recognised by the file's name, or by columns whose names are usual for a time and a message.
    """
    text = head[:_HEAD].decode("utf-8-sig", "replace").lstrip()
    first, _, rest = text.partition("\n")
    if text.startswith("["):
        return bool(re.match(r"\[\s*[\[{]\s*[\"\[{]", text))
    if text.startswith("{"):
        try:
            only = json.loads(first)
        except (ValueError, RecursionError):
            # Either a JSON document of several lines or beyond the examined part, or lines of JSON with a damaged one.
            lines = [line for line in rest.split("\n")[:_LINES_LOOKED_AT] if line.strip()]
            is_named = _NAME.search(path) or first.strip() == "{" or _LIST_OF_EVENTS.match(text)
            return bool(is_named) and 2 * len(json_objects(lines)) <= len(lines)
        return not rest.strip() and bool(_events_of(only))
    if (stated := _STATED.fullmatch(first)) is not None:  # Excel reads the delimiter from it
        first = rest.partition("\n")[0]
    if not _has_header(first):
        return "\t" in first and columns_of_tab_table(text) is not None
    names = re.sub(r'["\r]', "", first).split(_delimiter_of_export(first))
    known = all(paths_named(names, each) for each in (MESSAGES, STAMPS))
    return bool(_NAME.search(path) or stated or known)


def most_bytes() -> int:
    """Return the maximum size of a JSON document, in bytes. Parsing takes about ten times as much memory."""
    return max(memory_bytes() // 20, 1 << 27)


def _has_header(text: str) -> bool:
    """Return whether the first line of a text may be the header of a table."""
    first = text.partition("\n")[0]
    return bool(_STATED.fullmatch(first) or _delimiter_of_export(first)) and not BEGINS_AS_LOG.match(first)


def _delimiter_of_export(header: str) -> str:
    """Return the delimiter of a CSV header; empty if the text is not a header."""
    names = re.fullmatch(
        r'\ufeff?"?[\w@#. \[\]/-]+"?(?:([,;\t])"?[\w@#. \[\]/-]+"?(?:\1"?[\w@#. \[\]/-]+"?)*)?\r?', header
    )
    if not names:
        return ""
    return names[1] or ("," if re.fullmatch(r'"?[@_]?\w+"?\r?', header) else "")


class _ExportStream(io.RawIOBase):
    """A readable stream over an iterator of byte chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks = chunks
        self.left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 a buffer, which has no type in Python 3.11
        self.left = self.left or memoryview(next(self.chunks, b""))
        size = min(len(buffer), len(self.left))
        buffer[:size], self.left = self.left[:size], self.left[size:]
        return size


def events_of_table_export(chunks: Iterator[bytes]) -> Iterator[Event]:
    """Parse the content of a file with a table (CSV, or tabs and no header), and yield its rows as events."""
    first = next(chunks, b"")
    head = first.decode("utf-8-sig", "replace")
    is_escaped = bool(_ESCAPED_QUOTE.search(head)) and not _DOUBLED_QUOTE.search(head)
    text = io.TextIOWrapper(
        io.BufferedReader(_ExportStream(chain([first], chunks)), _HEAD), "utf-8-sig", "replace", newline=""
    )
    if not _has_header(head.lstrip()) and (columns := columns_of_tab_table(head.lstrip())):
        yield from _rows_as_events(columns, rows_of_tab_table(text, columns), head)
        return
    header = next(filter(str.strip, text), "").lstrip()  # as `is_export` finds it
    if _STATED.fullmatch(header.rstrip("\n")):
        header = next(text, "")
    csv.field_size_limit(1 << 27)
    delimiter = _delimiter_of_export(header.rstrip("\n")) or ","
    unquoted = delimiter == "\t" and not _QUOTED_CELL.search(head)
    rows = csv.reader(
        chain([header], text), delimiter=delimiter, quoting=csv.QUOTE_NONE if unquoted else csv.QUOTE_MINIMAL,
        escapechar="\\" if is_escaped and not unquoted else None, doublequote=not is_escaped,
    )  # fmt: skip
    yield from _rows_as_events(next(rows), filter(None, rows), head if unquoted else "")


def _rows_as_events(names: Sequence[str], rows: Iterable[Sequence[str]], head: str) -> Iterator[Event]:
    """Convert rows of a table to events. The start of the text, ``head``, shows if values use ClickHouse's escaping."""
    nested, escaped = any("." in name for name in names), is_escaped_by_backslashes(head)
    for row in rows:
        event: Event = dict(zip(names, map(unescaped, row) if escaped else row, strict=False))
        yield _nested_export(event) if nested else event


def document_of_export(chunks: Iterator[bytes]) -> bytes:
    """Join the chunks of a JSON document. Raise BadExportError if it exceeds `most_bytes`."""
    content, size, most = [], 0, most_bytes()
    for chunk in chunks:
        content.append(chunk)
        size += len(chunk)
        if size > most:
            raise BadExportError("export too large", f"a JSON document of more than {most >> 20} MiB: split it")
    return b"".join(content)


def events_in_export(document: bytes) -> list[Event]:
    """Parse the content of a file with one or more JSON documents, and return its events."""
    documents = _documents_of_export(document.decode("utf-8-sig", "replace"))
    return _events_of(documents[0] if len(documents) == 1 else documents)


def _documents_of_export(text: str) -> list[object]:
    """Parse JSON documents that follow one another in a text."""
    decoder, documents, at = json.JSONDecoder(), [], 0
    while begin := _NOT_SPACE.search(text, at):
        try:
            document, at = decoder.raw_decode(text, begin.start())
        except ValueError as error:
            raise BadExportError("not a table or a JSON document", str(error)) from error
        documents.append(document)
    return documents


def _nested_export(row: Mapping[str, object]) -> Event:
    """Convert columns whose names contain dots to nested objects: ``{"a.b": 1}`` becomes ``{"a": {"b": 1}}``."""
    event: Event = {}
    for name, value in row.items():
        *within, last = name.split(".") if name else ("",)
        at: Any = event
        for each in within:
            at = at.setdefault(each, {}) if isinstance(at, dict) else {}
        if isinstance(at, dict):
            at[last] = value
    return event


def _events_of(document: object, deep: int = 0) -> list[Event]:
    """Return the events in a JSON document, or in a part of it ``deep`` levels below the top.

    A list contains events if its elements are objects, rows of a table, Loki streams or OpenTelemetry batches. Of an
    object, the value that contains the most events is used.
    """
    if isinstance(document, dict) and "resourceLogs" in document:
        return _events_of([document], deep)
    if isinstance(document, list):
        for known in (_of_stream, _events_of_export_table, _of_batch):
            parts = [known(each) for each in document]
            if parts and None not in parts:
                return [event for part in parts if part for event in part]
        if all(isinstance(each, dict) for each in document):
            return [event for each in document for event in _events_within(each)]
        rows = [_event_of_export_fields(each) for each in document]
        return [row for row in rows if row] if all(row is not None for row in rows) else []
    if not isinstance(document, dict) or deep > _DEEP:
        return []
    return max((_events_of(value, deep + 1) for value in document.values()), key=len, default=[])


def _events_within(event: Event) -> list[Event]:
    """Return the events in the list ``events`` of a query result. Without such a list, the object is the only event."""
    within = event.get("events")
    if isinstance(within, list) and within and all(isinstance(each, dict) for each in within):
        return within
    return [_with_single_values(event)]


def _with_single_values(event: Event) -> Event:
    """Replace lists with one value in ``fields`` by the value. Elasticsearch returns requested fields as lists."""
    fields = event.get("fields")
    if not isinstance(fields, dict) or not all(isinstance(value, list) for value in fields.values()):
        return event
    return event | {"fields": {name: value[0] if len(value) == 1 else value for name, value in fields.items()}}


def _of_stream(each: object) -> list[Event] | None:
    """Return the lines of a Loki stream as events with the stream's labels; None for any other object."""
    if not isinstance(each, dict) or not isinstance(each.get("stream"), dict):
        return None
    pairs = each.get("values")
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) > 1 for pair in pairs):
        return None
    return [{**each["stream"], "timestamp": pair[0], LINE: pair[1]} for pair in pairs]


def _of_batch(each: object) -> list[Event] | None:
    """Return the events of an OpenTelemetry batch; None for any other object."""
    return list(events_of_batch(each)) if isinstance(each, dict) and "resourceLogs" in each else None


def _events_of_export_table(each: object) -> list[Event] | None:
    """Return the rows of an Azure table as events; None for any other object.

    In such a table, ``rows`` contains lists of values, and ``columns`` contains the names of the values.
    """
    if not isinstance(each, dict):
        return None
    columns, rows = each.get("columns"), each.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        return None
    if not all(isinstance(row, list) for row in rows):
        return None
    names = [str(column.get("name") if isinstance(column, dict) else column) for column in columns]
    return [dict(zip(names, row, strict=False)) for row in rows]


def _event_of_export_fields(each: object) -> Event | None:
    """Convert a CloudWatch row, a list of objects with ``field`` and ``value``, to an event; None for other objects."""
    if not isinstance(each, list):
        return None
    return {str(field["field"]): field.get("value") for field in each if isinstance(field, dict) and "field" in field}


def field_of_lines(events: Sequence[Event]) -> str | None:
    """Return the path of the field with the broker's lines; None if no field has enough values like log lines.

    This is the field whose values most often begin like a log line. In a tie, it is the field with the longest values.
    """
    some = events[:LOOKED_AT]
    found: dict[str, tuple[int, int]] = {}
    for event in some:
        for name, value in flat(event).items():
            if isinstance(value, str) and BEGINS_AS_LOG.match(value.lstrip()) and len(value) > STAMP:
                begin, length = found.get(name, (0, 0))
                found[name] = begin + 1, length + len(value)
    found = {name: of for name, of in found.items() if of[0] > SOME * len(some)}
    return max(found, key=lambda name: found[name]) if found else None


STAMP: Final = 40
"""Maximum length, in characters, of a text that may be just a timestamp. Longer texts may be whole lines."""


def value_in_export(event: Event, path: str) -> object:
    """Return a field of an event by its path or, if a table's column has a name with slashes, by its name."""
    return event[path] if path in event else json_value_at(event, path)
