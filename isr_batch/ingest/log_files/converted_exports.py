"""Convert exports of log viewers, and texts with the latest line first, to lines in chronological order."""

import csv
import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from tempfile import TemporaryFile
from threading import Lock
from typing import Final, NamedTuple
from weakref import finalize

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.log_files.events import event_fields
from isr_batch.ingest.log_files.exports import (
    LINE,
    LOOKED_AT,
    STAMP,
    BadExportError,
    Event,
    document_of_export,
    events_in_export,
    events_of_table_export,
    field_of_lines,
    value_in_export,
)
from isr_batch.ingest.log_files.latest_first import EVERY_LINE
from isr_batch.ingest.log_files.prefixes import begins_with_time
from isr_batch.ingest.log_files.stamps import FORMS, StampForm, parsed_stamps, stamps_in_kafkas_form

_MOST_HELD: Final = 8 << 20
"""Maximum number of bytes of one event that are held in memory."""
_SEEN_AHEAD: Final = 64
"""Number of bytes after the end of an event that are needed to recognise the beginning of the next event."""
_EVENTS_AT_ONCE: Final = 2048
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
Ints = npt.NDArray[np.int64]


class _Place(NamedTuple):
    """Position and size, in bytes, of a block of lines in the temporary file.

    If ``reversed_by`` is given, the events in the block are separated by this pattern and must be read in reverse
    order.
    """

    begin: int
    size: int
    reversed_by: re.Pattern[bytes] | None = None


class ConvertedExports:
    """Converts each export once. The lines stay in a temporary file as long as the process runs."""

    def __init__(self) -> None:
        self.file = TemporaryFile(prefix="isr-batch-")  # noqa: SIM115 closed by the finalizer
        finalize(self, self.file.close)
        self.blocks: dict[object, list[_Place]] = {}
        self.lock = Lock()

    def lines(self, key: object, chunks: Iterator[bytes], unit: re.Pattern[bytes] | None = None) -> Iterator[bytes]:
        """Convert an export to lines, or reverse a text that has the latest line first.

        Parameters
        ----------
        key : hashable
            Key under which the converted lines are cached: path, size and time of change of the file.
        chunks : iterator of bytes
            Content of the file after decompression.
        unit : pattern, optional
            If the content is a text to be reversed, the pattern that separates its events; None for an export.

        Yields
        ------
        bytes
            Blocks of lines in chronological order. An event of an export is one line of JSON. An export without events
            is yielded unchanged.

        Raises
        ------
        BadExportError
            If the export is damaged, or is a JSON document with more than `most_bytes`.
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
        """Write a text to the temporary file, and return its blocks in reverse order. ``unit`` separates events.

        A block contains several events, or a piece of an event that is too long to be held in memory.
        """
        groups: list[list[_Place]] = []
        pieces: list[_Place] = []
        pending = b""
        for chunk in chunks:
            pending += chunk.removeprefix(BOM_UTF8) if not groups and not pending else chunk
            ends = [found.start() for found in unit.finditer(pending)]
            if pieces and ends:
                groups.append([*pieces, self._append(pending[: ends[0] + 1])])
                pieces, pending, ends = [], pending[ends[0] + 1 :], [end - ends[0] - 1 for end in ends[1:]]
            if ends:
                groups.append([self._append(pending[: ends[-1]], unit)])
                pending = pending[ends[-1] + 1 :]
            elif len(pending) > _MOST_HELD:
                pieces.append(self._append(pending[:-_SEEN_AHEAD]))
                pending = pending[-_SEEN_AHEAD:]
        if pieces:
            groups.append([*pieces, self._append(pending.removesuffix(b"\n") + b"\n")])
        elif pending.strip():
            groups.append([self._append(pending, unit)])
        return [place for group in reversed(groups) for place in group]

    def _write(self, chunks: Iterator[bytes]) -> list["_Place"]:
        """Convert an export, write its lines to the temporary file, and return the blocks in chronological order."""
        head = next(chunks, b"")
        chunks = chain([head], chunks)
        events: Iterator[Event]
        try:
            if head.decode("utf-8-sig", "replace").lstrip()[:1] in {"[", "{"}:
                head = document_of_export(chunks)
                events = iter(events_in_export(head))
            else:
                events = events_of_table_export(chunks)
            some = list(islice(events, LOOKED_AT))
            if not some:  # not an export; problems are found as in any other file
                return [self._append(head)]
            named = field_of_lines(some)
            timed = _times_of_exports(some, named)
            events = chain(some, events)
            places, sizes, times = [], [], []
            while batch := list(islice(events, _EVENTS_AT_ONCE)):
                times.append(_times_in_export(batch, timed))
                wanted = [{**event, LINE: value_in_export(event, named)} for event in batch] if named else batch
                lines = [f"{_ENCODER.encode(event)}\n".encode(errors="replace") for event in wanted]
                sizes.append(np.array([len(line) for line in lines], np.int64))
                places.append(self._append(b"".join(lines)))
        except (csv.Error, RecursionError, AttributeError, TypeError, KeyError) as error:
            raise BadExportError("not a table or a JSON document", str(error)) from error
        return self._in_order(places, np.concatenate(sizes), np.concatenate(times))

    def _in_order(self, places: list["_Place"], sizes: Ints, times: Ints) -> list["_Place"]:
        """Return the blocks of the lines in chronological order. ``places`` are the blocks as they were written.

        ``sizes`` and ``times`` have one item per line: its length in bytes, and its time in ms since 1970 or 0. If the
        lines are already in chronological or reverse order, the same blocks are returned. Otherwise, the lines are
        sorted and written again, and the new blocks are returned.
        """
        known = times[times > 0]
        latest_first = len(known) > 0 and known[0] > known[-1]
        times = times[::-1] if latest_first else times
        # An event without a time gets that of the event before it.
        times = times[np.maximum.accumulate(np.where(times > 0, np.arange(len(times)), 0))]
        if (np.diff(times) >= 0).all():
            return [place._replace(reversed_by=EVERY_LINE) for place in reversed(places)] if latest_first else places
        order = np.argsort(times, kind="stable")
        numbers = (len(times) - 1 - order if latest_first else order).tolist()
        begins = (places[0].begin + np.cumsum(sizes) - sizes).tolist()
        return [
            self._append(b"".join(os.pread(self.file.fileno(), int(sizes[n]), begins[n]) for n in some))
            for at in range(0, len(numbers), _EVENTS_AT_ONCE)
            if (some := numbers[at : at + _EVENTS_AT_ONCE])
        ]

    def _append(self, content: bytes, reversed_by: re.Pattern[bytes] | None = None) -> "_Place":
        begin = self.file.seek(0, os.SEEK_END)
        self.file.write(content)
        self.file.flush()
        return _Place(begin, len(content), reversed_by)


def _times_of_exports(some: Sequence[Event], named: str | None) -> tuple[str, StampForm] | None:
    """Return two things: the path of the field with the times of events, and the form of the times. None without times.

    ``some`` are the first events. If the broker's line in each event (field ``named``) begins with a time, that field
    is returned.
    """
    if named:
        heads = [str(value_in_export(event, named))[:STAMP] for event in some]
        form = next((form for form in FORMS if all(re.search(form.pattern, head) for head in heads)), None)
        if form and all(map(begins_with_time, heads)):
            return named, form
    # Lines of a stack trace have no time and may be separate events, so another field must have the time.
    found = event_fields([{**event, LINE: value_in_export(event, named)} if named else event for event in some])
    return (found[0].stamp, found[1]) if found else None


def _times_in_export(events: Sequence[Event], timed: tuple[str, StampForm] | None) -> Ints:
    """Return the time of each event, from the field ``timed``, in milliseconds since 1970; 0 for events without it."""
    if timed is None:
        return np.zeros(len(events), np.int64)
    path, form = timed
    texts = pa.array([str(value_in_export(event, path) or "")[:STAMP] for event in events], pa.string())
    stamps = pc.struct_field(pc.extract_regex(texts, f"(?P<stamp>{form.text})"), "stamp")
    times = parsed_stamps(pc.replace_substring(stamps_in_kafkas_form(stamps, form), ",", "."))
    return np.asarray(pc.fill_null(times.cast(pa.int64()), 0))
