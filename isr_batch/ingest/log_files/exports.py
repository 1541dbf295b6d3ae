"""Convert downloads from log viewers, a CSV table or one JSON document, to lines: one JSON object per event.

The field with the broker's line is found by its content, because every viewer names it differently. Viewers list the
latest event first; here it comes last.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, Final
from weakref import finalize

from isr_batch.ingest.log_files.events import event_fields, flat, json_objects
from isr_batch.ingest.log_files.json_lines import json_value_at
from isr_batch.ingest.log_files.prefixes import BEGINS_AS_LOG, SOME, begins_with_time
from isr_batch.memory import memory_bytes

LINE: Final = "line"
"""Name of the field with the broker's line in the converted events."""
_NAME = re.compile(r"(?i)\.(csv|tsv|json)(\.(gz|zst|xz|bz2))?$")
_NOT_SPACE = re.compile(r"\S")
_HEAD = 1 << 16
_LOOKED_AT = 1000
_LINES_LOOKED_AT = 20
_EVENTS_AT_ONCE = 2048
_ENCODER = json.JSONEncoder(ensure_ascii=False)
_DEEP = 4
Event = dict[str, object]


class BadExportError(Exception):
    """Raised if an export cannot be read; it has the reason, and further details."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def may_be_export(path: str) -> bool:
    """Whether a file may be an export, by its name."""
    return bool(_NAME.search(path))


def is_export(head: bytes) -> bool:
    """Whether a file with such a name is an export, by its beginning: a table or a document instead of a log."""
    text = head[:_HEAD].decode("utf-8-sig", "replace").lstrip()
    first, _, rest = text.partition("\n")
    if text.startswith("["):
        return text[1:].lstrip()[:1] in {"{", "["}
    if text.startswith("{"):
        try:
            only = json.loads(first)
        except (ValueError, RecursionError):
            # Either a JSON document of several lines or beyond the examined part, or lines of JSON with a damaged one.
            lines = [line for line in rest.split("\n")[:_LINES_LOOKED_AT] if line.strip()]
            return 2 * len(json_objects(lines)) <= len(lines)
        return not rest.strip() and bool(_events_of(only))
    return bool(_delimiter(first)) and not BEGINS_AS_LOG.match(first)


class ConvertedExports:
    """Converts each export once: later readers get its lines from a temporary file, deleted with the process."""

    def __init__(self) -> None:
        self.file = TemporaryFile(prefix="isr-batch-")  # noqa: SIM115 closed by the finalizer
        finalize(self, self.file.close)
        self.blocks: dict[object, list[tuple[int, int]]] = {}
        self.lock = Lock()

    def lines(self, key: object, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Convert an export to lines.

        Parameters
        ----------
        key : hashable
            The file, with its size and time.
        chunks : iterator of bytes
            The unpacked content of an export (`is_export`).

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
                self.blocks[key] = self._write(chunks)
            places = self.blocks[key]
        for begin, size in places:
            yield os.pread(self.file.fileno(), abs(size), begin) if size > 0 else self._reversed(begin, -size)

    def _write(self, chunks: Iterator[bytes]) -> list[tuple[int, int]]:
        """Write lines to a temporary file; return offset and size of each block, negative sizes for reversed ones."""
        head = next(chunks, b"")
        chunks = chain([head], chunks)
        try:
            if head.decode("utf-8-sig", "replace").lstrip()[:1] in {"[", "{"}:
                head = _document(chunks)
                events = iter(_events_in(head))
            else:
                events = _events_of_table(chunks)
            some = list(islice(events, _LOOKED_AT))
            if not some:  # not an export: read as any other file
                return [self._append(head)]
            named = _field_of_lines(some)
            order = _Order(some, named)
            places = []
            events = chain(some, events)
            while batch := list(islice(events, _EVENTS_AT_ONCE)):
                order.note(batch)
                wanted = [{**event, LINE: _value(event, named)} for event in batch] if named else batch
                text = "".join(f"{_ENCODER.encode(event)}\n" for event in wanted)
                places.append(self._append(text.encode(errors="replace")))
        except (csv.Error, RecursionError) as error:
            raise BadExportError("not a table or a JSON document", str(error)) from error
        return [(begin, -size) for begin, size in reversed(places)] if order.is_latest_first() else places

    def _append(self, content: bytes) -> tuple[int, int]:
        begin = self.file.seek(0, os.SEEK_END)
        self.file.write(content)
        self.file.flush()
        return begin, len(content)

    def _reversed(self, begin: int, size: int) -> bytes:
        lines = os.pread(self.file.fileno(), size, begin).split(b"\n")[:-1]
        return b"\n".join(reversed(lines)) + b"\n"


def most_bytes() -> int:
    """Return the maximum size of a JSON document, which is read at once and takes ten times its size in memory."""
    return max(memory_bytes() // 20, 1 << 27)


def _delimiter(header: str) -> str:
    """Return the delimiter of a CSV header; empty if the text is not a header."""
    names = re.fullmatch(
        r'\ufeff?"?[\w@. \[\]/-]+"?(?:([,;\t])"?[\w@. \[\]/-]+"?(?:\1"?[\w@. \[\]/-]+"?)*)?\r?', header
    )
    if not names:
        return ""
    return names[1] or ("," if re.fullmatch(r'"?[@_]?\w+"?\r?', header) else "")


class _Stream(io.RawIOBase):
    """A readable stream of bytes that arrive in chunks."""

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


def _events_of_table(chunks: Iterator[bytes]) -> Iterator[Event]:
    text = io.TextIOWrapper(io.BufferedReader(_Stream(chunks), _HEAD), "utf-8-sig", "replace", newline="")
    header = next(filter(str.strip, text), "").lstrip()  # the first line with text, as in `is_export`
    csv.field_size_limit(1 << 27)
    rows = csv.reader(chain([header], text), delimiter=_delimiter(header.rstrip("\n")) or ",")
    names = next(rows)
    nested = any("." in name for name in names)
    for row in filter(None, rows):
        event: Event = dict(zip(names, row, strict=False))
        yield _nested(event) if nested else event


def _document(chunks: Iterator[bytes]) -> bytes:
    content, size, most = [], 0, most_bytes()
    for chunk in chunks:
        content.append(chunk)
        size += len(chunk)
        if size > most:
            raise BadExportError("export too large", f"a JSON document of more than {most >> 20} MiB: split it")
    return b"".join(content)


def _events_in(document: bytes) -> list[Event]:
    documents = _documents(document.decode("utf-8-sig", "replace"))
    return _events_of(documents[0] if len(documents) == 1 else documents)


def _documents(text: str) -> list[object]:
    """Parse concatenated JSON documents."""
    decoder, documents, at = json.JSONDecoder(), [], 0
    while begin := _NOT_SPACE.search(text, at):
        try:
            document, at = decoder.raw_decode(text, begin.start())
        except ValueError as error:
            raise BadExportError("not a table or a JSON document", str(error)) from error
        documents.append(document)
    return documents


def _nested(row: Mapping[str, object]) -> Event:
    """Convert a row of CSV to an event: columns with dots in their names become nested objects."""
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
    """Find the events in a JSON document: its longest list of objects, rows, or streams of lines."""
    if isinstance(document, list):
        for known in (_of_stream, _of_table):
            parts = [known(each) for each in document]
            if parts and None not in parts:
                return [event for part in parts if part for event in part]
        if all(isinstance(each, dict) for each in document):
            return document
        rows = [_of_fields(each) for each in document]
        return [row for row in rows if row] if all(row is not None for row in rows) else []
    if not isinstance(document, dict) or deep > _DEEP:
        return []
    return max((_events_of(value, deep + 1) for value in document.values()), key=len, default=[])


def _of_stream(each: object) -> list[Event] | None:
    """Return the lines of a Loki stream, each with the stream's labels; ``values`` are pairs of a time and a line."""
    if not isinstance(each, dict) or not isinstance(each.get("stream"), dict):
        return None
    pairs = each.get("values")
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) > 1 for pair in pairs):
        return None
    return [{**each["stream"], LINE: pair[1]} for pair in pairs]


def _of_table(each: object) -> list[Event] | None:
    """Return the rows of an Azure table, which has lists of values, and their names in ``columns``."""
    if not isinstance(each, dict):
        return None
    columns, rows = each.get("columns"), each.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        return None
    if not all(isinstance(row, list) for row in rows):
        return None
    names = [str(column.get("name") if isinstance(column, dict) else column) for column in columns]
    return [dict(zip(names, row, strict=False)) for row in rows]


def _of_fields(each: object) -> Event | None:
    """Return a CloudWatch row as an event; it is a list of ``field`` and ``value``."""
    if not isinstance(each, list):
        return None
    return {str(field["field"]): field.get("value") for field in each if isinstance(field, dict) and "field" in field}


def _field_of_lines(events: Sequence[Event]) -> str | None:
    """Find the field with the broker's lines: its values most often begin like a log line, and are the longest."""
    some = events[:_LOOKED_AT]
    found: dict[str, tuple[int, int]] = {}
    for event in some:
        for name, value in flat(event).items():
            if isinstance(value, str) and BEGINS_AS_LOG.match(value.lstrip()) and len(value) > _STAMP:
                begin, length = found.get(name, (0, 0))
                found[name] = begin + 1, length + len(value)
    found = {name: of for name, of in found.items() if of[0] > SOME * len(some)}
    return max(found, key=lambda name: found[name]) if found else None


_STAMP: Final = 40
"""A text of at most this many characters is a timestamp alone, without a line."""


class _Order:
    """Finds out, from the times of the first and the last event, whether an export lists the latest event first."""

    def __init__(self, some: Sequence[Event], named: str | None) -> None:
        if named is None or not begins_with_time(str(_value(some[0], named))):
            fields = event_fields(some)
            named = fields[0].stamp if fields else None
        self.named = named
        self.first = self.last = ""

    def note(self, events: Sequence[Event]) -> None:
        self.first = self.first or next(filter(None, (_digits(event, self.named) for event in events)), "")
        self.last = next(filter(None, (_digits(event, self.named) for event in reversed(events))), self.last)

    def is_latest_first(self) -> bool:
        return self.first > self.last


def _digits(event: Event, named: str | None) -> str:
    """Return the digits of an event's time, which order events; empty if there are too few for a time."""
    text = re.sub(r"\D", "", str(_value(event, named or "") or "")[:_STAMP])[:17]
    return text if len(text) >= len("1763742612") else ""


def _value(event: Event, path: str) -> object:
    """Read a field of an event by its path; a column of a table may have a slash in its name."""
    return event[path] if path in event else json_value_at(event, path)
