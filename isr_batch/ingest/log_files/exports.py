"""Convert exports of log viewers (CSV, or one JSON document) to lines: one JSON object per event.

The field with the broker's line is found by its content, because every viewer names it differently. Viewers list the
latest event first; the converted lines have it last.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, Final, NamedTuple
from weakref import finalize

from isr_batch.ingest.log_files.events import (
    MESSAGES,
    STAMPS,
    event_fields,
    flat,
    json_objects,
    paths_named,
)
from isr_batch.ingest.log_files.json_lines import json_value_at
from isr_batch.ingest.log_files.latest_first import EVERY_LINE
from isr_batch.ingest.log_files.otlp import events_of_batch
from isr_batch.ingest.log_files.prefixes import BEGINS_AS_LOG, SOME, begins_with_time
from isr_batch.memory import memory_bytes

LINE: Final = "line"
"""Name of the field with the broker's line in the converted events."""
_NAME = re.compile(r"(?i)\.(csv|tsv|json)(\.(gz|zst|xz|bz2))?$")
_STATED = re.compile(r"sep=[,;\t]\r?")
_ESCAPED_QUOTE, _DOUBLED_QUOTE = re.compile(r'[^\\]\\"'), re.compile(r'[^\\,;\t\n]""[^,;\t\r\n]')
_LIST_OF_EVENTS = re.compile(r'\{[^\[]{0,500}"(events|hits|results?|data|tables|logs|resourceLogs)" ?: ?\[')
_NOT_SPACE = re.compile(r"\S")
_HEAD = 1 << 16
_LOOKED_AT = 1000
_LINES_LOOKED_AT = 20
_EVENTS_AT_ONCE = 2048
_ENCODER = json.JSONEncoder(ensure_ascii=False)
_DEEP = 4
Event = dict[str, object]


class BadExportError(Exception):
    """Raised if an export cannot be read, with the reason and details."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def is_export(path: str, head: bytes) -> bool:
    """Whether a file is an export of a log viewer, by its first bytes: a table or a document instead of a log.

    A table is recognised in a file with any name if its columns are named after a time and a message.
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
    if not _delimiter_of_export(first) or BEGINS_AS_LOG.match(first):
        return False
    names = re.sub(r'["\r]', "", first).split(_delimiter_of_export(first))
    known = all(paths_named(names, each) for each in (MESSAGES, STAMPS))
    return bool(_NAME.search(path) or stated or known)


class _Place(NamedTuple):
    """The position of a block of lines in the temporary file; and what separates its events, to reverse them."""

    begin: int
    size: int
    reversed_by: re.Pattern[bytes] | None = None


class ConvertedExports:
    """Converts each export once; later readers get the lines from a temporary file, which is deleted at exit."""

    def __init__(self) -> None:
        self.file = TemporaryFile(prefix="isr-batch-")  # noqa: SIM115 closed by the finalizer
        finalize(self, self.file.close)
        self.blocks: dict[object, list[_Place]] = {}
        self.lock = Lock()

    def lines(self, key: object, chunks: Iterator[bytes], unit: re.Pattern[bytes] | None = None) -> Iterator[bytes]:
        """Yield the lines of an export; or of a text with the latest event first, in reverse order.

        Parameters
        ----------
        key : hashable
            The file, with its size and time.
        chunks : iterator of bytes
            The unpacked content of an export (`is_export`).
        unit : pattern, optional
            If it is not an export but text to be reversed: what separates its events.

        Yields
        ------
        bytes
            Many events, one per line, as JSON, the latest last. An export without events is yielded unchanged.

        Raises
        ------
        BadExportError
            If the export is damaged, or a JSON document of more than `most_bytes`.
        """
        with self.lock:
            if key not in self.blocks:
                self.blocks[key] = self._write_reversed(chunks, unit) if unit else self._write(chunks)
            places = self.blocks[key]
        for begin, size, reversed_by in places:
            block = os.pread(self.file.fileno(), size, begin)
            if reversed_by:
                block = b"\n".join(reversed(reversed_by.split(block.removesuffix(b"\n")))) + b"\n"
            yield block

    def _write_reversed(self, chunks: Iterator[bytes], unit: re.Pattern[bytes]) -> list["_Place"]:
        """Write a text to the temporary file; return where its blocks of events are, the last first."""
        places, pending = [], b""
        for chunk in chunks:
            pending += chunk
            if ends := [found.start() for found in unit.finditer(pending)]:
                places.append(self._append(pending[: ends[-1]], unit))
                pending = pending[ends[-1] + 1 :]
        if pending.strip():
            places.append(self._append(pending, unit))
        return places[::-1]

    def _write(self, chunks: Iterator[bytes]) -> list["_Place"]:
        """Write the lines of an export to the temporary file; return where they are, in order."""
        head = next(chunks, b"")
        chunks = chain([head], chunks)
        every: list[Event] = []
        rows: Iterator[Event] = iter(())
        try:
            if head.decode("utf-8-sig", "replace").lstrip()[:1] in {"[", "{"}:
                head = _document_of_export(chunks)
                every = _events_in_export(head)
            else:
                rows = _events_of_table_export(chunks)
            some = every[:_LOOKED_AT] or list(islice(rows, _LOOKED_AT))
            if not some:  # not an export; problems are found as in any other file
                return [self._append(head)]
            named = _field_of_lines(some)
            order = _ExportOrder(some, named)
            events = order.sorted(every) if every else chain(some, rows)
            places = []
            while batch := list(islice(events, _EVENTS_AT_ONCE)):
                order.note(batch)
                wanted = [{**event, LINE: _value_in_export(event, named)} for event in batch] if named else batch
                text = "".join(f"{_ENCODER.encode(event)}\n" for event in wanted)
                places.append(self._append(text.encode(errors="replace")))
        except (csv.Error, RecursionError, AttributeError, TypeError, KeyError) as error:
            raise BadExportError("not a table or a JSON document", str(error)) from error
        if not order.is_latest_first():
            return places
        return [place._replace(reversed_by=EVERY_LINE) for place in reversed(places)]

    def _append(self, content: bytes, reversed_by: re.Pattern[bytes] | None = None) -> "_Place":
        begin = self.file.seek(0, os.SEEK_END)
        self.file.write(content)
        self.file.flush()
        return _Place(begin, len(content), reversed_by)


def most_bytes() -> int:
    """Return the maximum size of a JSON document in bytes; read at once, it takes ten times that in memory."""
    return max(memory_bytes() // 20, 1 << 27)


def _delimiter_of_export(header: str) -> str:
    """Return the delimiter of a CSV header; empty for any other text."""
    names = re.fullmatch(
        r'\ufeff?"?[\w@. \[\]/-]+"?(?:([,;\t])"?[\w@. \[\]/-]+"?(?:\1"?[\w@. \[\]/-]+"?)*)?\r?', header
    )
    if not names:
        return ""
    return names[1] or ("," if re.fullmatch(r'"?[@_]?\w+"?\r?', header) else "")


class _ExportStream(io.RawIOBase):
    """A file-like stream over bytes that come in chunks."""

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


def _events_of_table_export(chunks: Iterator[bytes]) -> Iterator[Event]:
    first = next(chunks, b"")
    head = first.decode("utf-8-sig", "replace")
    is_escaped = bool(_ESCAPED_QUOTE.search(head)) and not _DOUBLED_QUOTE.search(head)
    text = io.TextIOWrapper(
        io.BufferedReader(_ExportStream(chain([first], chunks)), _HEAD), "utf-8-sig", "replace", newline=""
    )
    header = next(filter(str.strip, text), "").lstrip()  # as `is_export` finds it
    if _STATED.fullmatch(header.rstrip("\n")):
        header = next(text, "")
    csv.field_size_limit(1 << 27)
    rows = csv.reader(
        chain([header], text), delimiter=_delimiter_of_export(header.rstrip("\n")) or ",",
        escapechar="\\" if is_escaped else None, doublequote=not is_escaped,
    )  # fmt: skip
    names = next(rows)
    nested = any("." in name for name in names)
    for row in filter(None, rows):
        event: Event = dict(zip(names, row, strict=False))
        yield _nested_export(event) if nested else event


def _document_of_export(chunks: Iterator[bytes]) -> bytes:
    """Return the whole JSON document, up to the size limit."""
    content, size, most = [], 0, most_bytes()
    for chunk in chunks:
        content.append(chunk)
        size += len(chunk)
        if size > most:
            raise BadExportError("export too large", f"a JSON document of more than {most >> 20} MiB: split it")
    return b"".join(content)


def _events_in_export(document: bytes) -> list[Event]:
    """Parse a JSON document, and return its events."""
    documents = _documents_of_export(document.decode("utf-8-sig", "replace"))
    return _events_of(documents[0] if len(documents) == 1 else documents)


def _documents_of_export(text: str) -> list[object]:
    """Parse JSON documents that follow each other."""
    decoder, documents, at = json.JSONDecoder(), [], 0
    while begin := _NOT_SPACE.search(text, at):
        try:
            document, at = decoder.raw_decode(text, begin.start())
        except ValueError as error:
            raise BadExportError("not a table or a JSON document", str(error)) from error
        documents.append(document)
    return documents


def _nested_export(row: Mapping[str, object]) -> Event:
    """Turn columns with dots in their names into nested objects."""
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
    """Return the events in a document: its longest list of objects, of table rows, or of streams of lines."""
    if isinstance(document, dict) and "resourceLogs" in document:
        return _events_of([document], deep)
    if isinstance(document, list):
        for known in (_of_stream, _events_of_export_table, _of_batch):
            parts = [known(each) for each in document]
            if parts and None not in parts:
                return [event for part in parts if part for event in part]
        if all(isinstance(each, dict) for each in document):
            return [_with_single_values(each) for each in document]
        rows = [_event_of_export_fields(each) for each in document]
        return [row for row in rows if row] if all(row is not None for row in rows) else []
    if not isinstance(document, dict) or deep > _DEEP:
        return []
    return max((_events_of(value, deep + 1) for value in document.values()), key=len, default=[])


def _with_single_values(event: Event) -> Event:
    """Replace each list of one value by the value; a search for ``fields`` returns such lists."""
    fields = event.get("fields")
    if not isinstance(fields, dict) or not all(isinstance(value, list) for value in fields.values()):
        return event
    return event | {"fields": {name: value[0] if len(value) == 1 else value for name, value in fields.items()}}


def _of_stream(each: object) -> list[Event] | None:
    """Return the lines of a Loki stream, each with the stream's labels; None for another object."""
    if not isinstance(each, dict) or not isinstance(each.get("stream"), dict):
        return None
    pairs = each.get("values")
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) > 1 for pair in pairs):
        return None
    return [{**each["stream"], "timestamp": pair[0], LINE: pair[1]} for pair in pairs]


def _of_batch(each: object) -> list[Event] | None:
    """Return the events of an OpenTelemetry batch; None for another object."""
    return list(events_of_batch(each)) if isinstance(each, dict) and "resourceLogs" in each else None


def _events_of_export_table(each: object) -> list[Event] | None:
    """Return the rows of an Azure table (lists of values, names in ``columns``) as events; None for another object."""
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
    """Return a CloudWatch row, a list of ``field`` and ``value``, as an event; None for another object."""
    if not isinstance(each, list):
        return None
    return {str(field["field"]): field.get("value") for field in each if isinstance(field, dict) and "field" in field}


def _field_of_lines(events: Sequence[Event]) -> str | None:
    """Return the field with the broker's lines: its values most often begin like a log line, and are the longest."""
    some = events[:_LOOKED_AT]
    found: dict[str, tuple[int, int]] = {}
    for event in some:
        for name, value in flat(event).items():
            if isinstance(value, str) and BEGINS_AS_LOG.match(value.lstrip()) and len(value) > _STAMP:
                begin, length = found.get(name, (0, 0))
                found[name] = begin + 1, length + len(value)
    found = {name: of for name, of in found.items() if of[0] > SOME * len(some)}
    return max(found, key=lambda name: found[name]) if found else None


_DIGITS: Final = 17
"""Number of digits in a time to the millisecond."""
_STAMP: Final = 40
"""A text of at most this many characters is only a timestamp, without a line."""


class _ExportOrder:
    """Finds out whether the latest event comes first, by the times of the first and the last event."""

    def __init__(self, some: Sequence[Event], named: str | None) -> None:
        self.named = named
        if named is None or not all(begins_with_time(str(_value_in_export(event, named))) for event in some):
            # A line without a time may be a separate event.
            fields = event_fields(
                [{**event, LINE: _value_in_export(event, named)} if named else event for event in some]
            )
            self.named = fields[0].stamp if fields else named
        self.first = self.last = ""

    def sorted(self, events: Sequence[Event]) -> Iterator[Event]:
        """Return the events of a document, sorted by time if they come neither latest first nor latest last."""
        times = [_digits_in_export(event, self.named).ljust(_DIGITS, "0") for event in events]
        pairs = list(pairwise(times))
        if all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs):
            return iter(events)
        latest_first = times[0] > times[-1]
        numbers = sorted(range(len(events)), key=times.__getitem__, reverse=latest_first)
        return (events[number] for number in numbers)

    def note(self, events: Sequence[Event]) -> None:
        """Note the time of the first event of all, and of the last of these."""
        self.first = self.first or next(filter(None, (_digits_in_export(event, self.named) for event in events)), "")
        self.last = next(filter(None, (_digits_in_export(event, self.named) for event in reversed(events))), self.last)

    def is_latest_first(self) -> bool:
        """Whether the first event is later than the last."""
        return self.first > self.last


def _digits_in_export(event: Event, named: str | None) -> str:
    """Return the digits of an event's time; empty if they are too few for a time."""
    text = re.sub(r"\D", "", str(_value_in_export(event, named or "") or "")[:_STAMP])[:_DIGITS]
    return text if len(text) >= len("1763742612") else ""


def _value_in_export(event: Event, path: str) -> object:
    """Return a field of an event by its path; a column of a table may have a slash in its name."""
    return event[path] if path in event else json_value_at(event, path)
