"""Convert downloads from log viewers, a CSV table or one JSON document, to lines: one JSON object per event.

The field with the broker's line is found by its content, because every viewer names it differently. Viewers list the
latest event first; here it comes last.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from isr_batch.ingest.log_files.events import event_fields, flat
from isr_batch.ingest.log_files.prefixes import BEGINS_AS_LOG, SOME, begins_with_time

MOST_BYTES: Final = 1 << 27
"""Maximum size of an export, which is read at once and takes ten times its size in memory; usual ones are smaller."""
LINE: Final = "line"
"""Name of the field with the broker's line in the converted events."""
_NAME = re.compile(r"(?i)\.(csv|tsv|json)(\.(gz|zst|xz|bz2))?$")
_NOT_SPACE = re.compile(r"\S")
_HEAD = 1 << 16
_LOOKED_AT = 1000
_DEEP = 4
Event = dict[str, object]


class BadExportError(Exception):
    """An export cannot be read: the reason, and further details."""

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
            # A document of several lines, or one that is longer than the examined part.
            return not rest.lstrip().startswith("{")
        return not rest.strip() and bool(_events_of(only))
    return bool(_delimiter(first)) and not BEGINS_AS_LOG.match(first)


def lines_of_export(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Convert a file to lines if it is an export; yield any other file unchanged.

    Parameters
    ----------
    chunks : iterator of bytes
        The unpacked content.

    Yields
    ------
    bytes
        One event per line, as JSON.

    Raises
    ------
    BadExportError
        If the export is larger than `MOST_BYTES`, or damaged.
    """
    head = next(chunks, b"")
    if not is_export(head):
        yield head
        yield from chunks
        return
    content = [head]
    size = len(head)
    for chunk in chunks:
        content.append(chunk)
        size += len(chunk)
        if size > MOST_BYTES:
            raise BadExportError("export too large", f"more than {MOST_BYTES >> 20} MiB: split it")
    try:
        events = _events_in(b"".join(content).decode("utf-8-sig", "replace"))
        named = _field_of_lines(events)
    except (csv.Error, RecursionError) as error:
        raise BadExportError("not a table or a JSON document", str(error)) from error
    if not events:  # not an export; problems are found as in any other file
        yield from content
        return
    if named:
        events = [{**event, LINE: flat(event).get(named)} for event in events]
    if _is_latest_first(events, named):
        events.reverse()
    for event in events:
        yield json.dumps(event, ensure_ascii=False).encode(errors="replace") + b"\n"


def _delimiter(header: str) -> str:
    """Return the delimiter of a CSV header; empty if the text is not a header."""
    names = re.fullmatch(
        r'\ufeff?"?[\w@. \[\]/-]+"?(?:([,;\t])"?[\w@. \[\]/-]+"?(?:\1"?[\w@. \[\]/-]+"?)*)?\r?', header
    )
    if not names:
        return ""
    return names[1] or ("," if re.fullmatch(r'"?[@_]?\w+"?\r?', header) else "")


def _events_in(text: str) -> list[Event]:
    if text.lstrip()[:1] in {"[", "{"}:
        documents = _documents(text)
        return _events_of(documents[0] if len(documents) == 1 else documents)
    header = text.partition("\n")[0]
    csv.field_size_limit(MOST_BYTES)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=_delimiter(header))
    return [_nested(row) for row in rows]


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


def _nested(row: Mapping[str, str]) -> Event:
    """Convert columns with dots in their names back to nested objects."""
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
    """Find the events in a document: its longest list of objects, of rows, or of streams of lines."""
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
    """Return the field whose values most often begin like a log line, and are the longest."""
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
"""Length up to which a text is only a timestamp."""


def _is_latest_first(events: Sequence[Event], named: str | None) -> bool:
    if named is None or not begins_with_time(str(flat(events[0]).get(named))):
        fields = event_fields(events[:_LOOKED_AT])
        named = fields[0].stamp if fields else None
    texts = [re.sub(r"\D", "", str(flat(event).get(named or "") or "")[:_STAMP])[:17] for event in events]
    known = [text for text in texts if len(text) >= len("1763742612")]
    return len(known) > 1 and known[0] > known[-1]
