"""Examine the first and last lines of a file: which layout and kinds of log it has, and which brokers wrote it."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.forms import (
    LAG_TIME,
    OLD_WORDS,
    SERVER_LINES,
    STATE_CHANGE_LINES,
    VERSION,
    WRITER,
)  # fmt: skip
from isr_batch.broker_lines.kinds import BROKER_KINDS, REQUEST, SERVER, STATE_CHANGE, LogKindFinder
from isr_batch.broker_lines.unread import UNREAD_ISR, UNREAD_SHRINK
from isr_batch.ingest.log_files.archives import file_on_disk
from isr_batch.ingest.log_files.content import content_chunks, is_converted_file, is_packed
from isr_batch.ingest.log_files.events import EventFields
from isr_batch.ingest.log_files.layout_converter import LayoutConverter, LinesInKafkasLayout
from isr_batch.ingest.log_files.layouts import Layout, UnreadableLayout, layout_of
from isr_batch.ingest.log_files.limits import BadFileError
from isr_batch.ingest.log_files.prefixes import SOME

HEAD_BYTES = 1 << 20
"""Number of bytes examined at the start of a file, and at its end if it is not compressed."""
LAYOUT_LINES = 400

_AT_INFO = r"^\[[^\]]*\] INFO "
_WRITER = re.compile(WRITER)
_OF_ISR = f"{UNREAD_ISR.resembles}|{UNREAD_SHRINK.resembles}"
STAMP = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3})\]")
OF_USE = {
    REQUEST: " Completed request:",
    STATE_CHANGE: f"state.change.logger|{STATE_CHANGE_LINES}",
    SERVER: SERVER_LINES,
}
"""For each kind of log, the pattern of the lines that an ingest uses."""
_FETCHES = re.compile(r'(?:"replicaId\\?": ?|[,{]replica_id=|; ReplicaId: )(?P<id>\d+)')
_MEMBERS = re.compile(
    r"(?:(?:isr|replicas)=\[|\bISR (?:updated to )?\[?|Shrinking ISR (?:for partition \S+ )?from )(\d+(?:, ?\d+)*)"
)
"""Patterns of the places where lines name brokers: the follower that sent a request, and the members of an ISR or the
replicas of a partition."""


@dataclass
class SeenByLook:
    """Result of examining the lines of one source (container or host) among the first and last lines of a file."""

    kinds: Counter[str] = field(default_factory=Counter)
    of_use: Counter[str] = field(default_factory=Counter)
    brokers: Counter[int] = field(default_factory=Counter)
    named: set[int] = field(default_factory=set)
    """Brokers that lines name as a fetching follower, as a member of an ISR or as a replica."""
    versions: set[str] = field(default_factory=set)
    first: str | None = None
    last: str | None = None
    goes_on: bool = False
    """Whether the file has lines after the last one that was examined."""
    whole: bool = True
    """Whether all lines of the file were examined."""
    first_of: dict[str, str] = field(default_factory=dict)
    """By kind of log, the first timestamp."""
    informs: bool = False
    """Whether server.log has a line at INFO, the level at which leaders log shrinks."""
    has_lag_time: bool = False
    """Whether a line shows the value of replica.lag.time.max.ms."""
    unread: list[tuple[int | None, str]] = field(default_factory=list)
    """Lines about an ISR that match no known form, as (line number, text). The number is None unless the line is among
    the first lines."""

    @property
    def broker_id(self) -> int | None:
        """The broker that most lines name as their writer; None if no line names a writer."""
        return self.brokers.most_common(1)[0][0] if self.brokers else None


@dataclass(frozen=True)
class Look:
    """Result of examining the first and last lines of a file: its layout and, by source, what the lines show.

    Parameters
    ----------
    path : str
    layout : Layout or UnreadableLayout
    size_bytes : int
        Size on disk.
    sources : dict of (str or None) to SeenByLook
        Results by container or host. If the lines are not divided by source, the only key is None.
    """

    path: str
    layout: Layout | UnreadableLayout
    size_bytes: int
    sources: dict[str | None, SeenByLook]


def look_at(
    path: str, default: str = SERVER, stamp_format: str | None = None, events: EventFields | None = None
) -> Look:
    """Examine the first lines of a file and, if it is uncompressed, the last lines.

    Parameters
    ----------
    path : str
    default : str
        The kind of log that the file's name suggests.
    stamp_format : str, optional
        Format of the timestamps, if the operator gave one.
    events : EventFields, optional
        Fields of JSON events, if the operator named them.
    """
    file = Path(file_on_disk(path))
    stat = file.stat() if file.exists() else None
    key = (stat.st_size, stat.st_mtime_ns) if stat else None
    return _look(path, default, stamp_format, events, key)


@lru_cache(maxsize=65536)
def _look(
    path: str, default: str, stamp_format: str | None, events: EventFields | None, key: tuple[int, int] | None
) -> Look:
    """Do what `look_at` does. The result is cached by the arguments. ``key`` is the file's size and time of change.

    ``default`` is the kind of log of lines that do not show their kind.
    """
    size = key[0] if key else 0
    parts, goes_on = _parts_to_look_at(path, size)
    head = [line for line in parts[0][:LAYOUT_LINES] if line.strip()] if parts else []
    if not head:
        bad = _reason_not_read(path) or BadFileError("binary file" if size else "empty file", "")
        return Look(path, UnreadableLayout(bad.reason, bad.detail or ""), size, {None: SeenByLook()})
    layout = layout_of(head, stamp_format, events)
    if isinstance(layout, UnreadableLayout):
        return Look(path, layout, size, {None: SeenByLook()})
    named: set[str] = set()
    if layout.has_sources:
        every = LayoutConverter(layout)
        for part in _all_lines_to_look_at(path):
            named |= every.source_names(pa.array(part, pa.string()))
    sources: dict[str | None, SeenByLook] = {}
    for name in sorted(named) if len(named) > 1 else [None]:
        converter, seen = LayoutConverter(layout, name), SeenByLook(goes_on=goes_on and len(named) < 2)  # noqa: PLR2004
        seen.whole = len(named) > 1 or not (goes_on or len(parts) > 1)
        first: int | None = 1
        for part in _all_lines_to_look_at(path) if len(named) > 1 else parts:
            lines = converter.convert(pa.array(part, pa.string()), np.arange(len(part)))
            _note_in_look(seen, lines.values, default)
            _note_unread(seen, lines, first)
            # The second part is the end of the file.
            first = first + len(part) if first and len(named) > 1 else None
        sources[name] = seen
    if set(sources) == {None} and not layout.by_writer and _several_brokers(sources[None]):
        return _by_writer(path, replace(layout, by_writer=True), size, default, sources[None])
    return Look(path, layout, size, sources)


def _several_brokers(seen: SeenByLook) -> bool:
    """Return whether the lines have several writers. A few lines with another writer than most are ignored."""
    return len(seen.brokers) > 1 and seen.brokers.total() - seen.brokers.most_common(1)[0][1] > SOME * (
        seen.brokers.total()
    )


def _by_writer(path: str, layout: Layout, size: int, default: str, every: SeenByLook) -> Look:
    """Examine all lines of a file, separately for each broker that lines name as their writer (``every.brokers``)."""
    sources: dict[str | None, SeenByLook] = {}
    for broker in sorted(every.brokers):
        name = f"broker {broker}"
        converter, seen, first = LayoutConverter(layout, name), SeenByLook(), 1
        seen.whole = True
        for part in _all_lines_to_look_at(path):
            lines = converter.convert(pa.array(part, pa.string()), np.arange(len(part)))
            _note_in_look(seen, lines.values, default)
            _note_unread(seen, lines, first)
            first += len(part)
        sources[name] = seen
    return Look(path, layout, size, sources)


def _note_in_look(seen: SeenByLook, values: pa.StringArray, default: str) -> None:
    """Add the kinds of log, brokers, releases and times that lines show to ``seen``."""
    codes = LogKindFinder(default).codes(values)
    for code, kind in enumerate(BROKER_KINDS):
        count = int((codes == code).sum())
        if count:
            own = values.filter(pa.array(codes == code))
            seen.kinds[kind] += count
            used = pc.sum(pc.match_substring_regex(own, OF_USE[kind])).as_py()
            seen.of_use[kind] += used or 0
            if kind == REQUEST:
                fetching = pc.extract_regex(own, _FETCHES.pattern).field("id")
                seen.named |= {int(broker) for broker in pc.unique(fetching).to_pylist() if broker}
            else:
                _note_brokers(seen, own)
                for line in own.filter(pc.match_substring_regex(own, OF_USE[kind])).to_pylist():
                    seen.named |= {int(broker) for ids in _MEMBERS.findall(line) for broker in ids.split(",")}
                seen.informs |= pc.any(pc.match_substring_regex(own, _AT_INFO)).as_py() and kind == SERVER
                seen.has_lag_time |= pc.any(pc.match_substring(own, LAG_TIME)).as_py()
            stamps = pc.utf8_slice_codeunits(own.filter(pc.match_substring_regex(own, STAMP.pattern)), 1, 24)
            if len(stamps):
                first, last = pc.min(stamps).as_py(), pc.max(stamps).as_py()
                seen.first_of[kind] = min(first, seen.first_of.get(kind, first))
                seen.first, seen.last = min(first, seen.first or first), max(last, seen.last or last)
    seen.of_use = +seen.of_use


def _note_unread(seen: SeenByLook, lines: LinesInKafkasLayout, first: int | None) -> None:
    """Add lines about an ISR in an unknown format to ``seen``.

    ``first`` is the line number in the file of the first of ``lines``; None if it is unknown.
    """
    about = np.flatnonzero(pc.fill_null(pc.match_substring_regex(lines.values, _OF_ISR), False))
    said = lines.values.take(pa.array(about))
    for old, new in OLD_WORDS:
        said = pc.replace_substring_regex(said, old, new)
    unread = np.zeros(len(about), bool)
    for lines_of in (UNREAD_ISR, UNREAD_SHRINK):
        resembles = pc.match_substring_regex(said, lines_of.resembles)
        unread |= np.asarray(pc.and_not(resembles, pc.match_substring_regex(said, lines_of.read)))
    for at in about[unread].tolist():
        number = None if first is None else first + int(lines.numbers[at])
        seen.unread.append((number, lines.values[at].as_py()))


def _note_brokers(seen: SeenByLook, values: pa.StringArray) -> None:
    """Add the brokers that lines name as their writer, and the versions that lines show, to ``seen``."""
    for line in values.to_pylist():
        found = _WRITER.search(line)
        if found:
            seen.brokers[int(next(filter(None, found.groups())))] += 1
        elif (version := VERSION.read(line)) is not None:
            seen.versions.add(version["version"])


def _parts_to_look_at(path: str, size: int) -> tuple[list[list[str]], bool]:
    """Return two things: the lines to examine, in one or two parts, and whether the file continues after the last part.

    The first part is the beginning of the file. A long uncompressed file, of ``size`` bytes, has a second part, its
    end.
    """
    head, goes_on = _first_lines(path)
    parts = [head]
    if goes_on and not is_packed(path) and not is_converted_file(path):
        with Path(path).open("rb") as stream:
            stream.seek(max(size - HEAD_BYTES, HEAD_BYTES))
            parts.append(_lines_to_look_at(stream.read(HEAD_BYTES))[1:])
        goes_on = False
    return [part for part in parts if part], goes_on


def _reason_not_read(path: str) -> BadFileError | None:
    """Return the error that reading a file raises; None if it can be read."""
    try:
        next(content_chunks(path), b"")
    except BadFileError as bad:
        return bad
    return None


def _first_lines(path: str) -> tuple[list[str], bool]:
    """Return the complete lines in the first HEAD_BYTES of a file, and whether the file continues after these lines."""
    read = b""
    try:
        for chunk in content_chunks(path):
            read += chunk
            if len(read) > HEAD_BYTES:
                break
    except BadFileError:
        pass  # reported when the lines are read
    goes_on = len(read) > HEAD_BYTES
    if b"\0" in read[:4096]:
        return [], goes_on
    lines = _lines_to_look_at(read[:HEAD_BYTES])
    return (lines[:-1] if goes_on and len(lines) > 1 else lines), goes_on


def _lines_to_look_at(data: bytes) -> list[str]:
    """Split bytes into lines of text."""
    return data.decode("utf-8-sig", "replace").replace("\r\n", "\n").removesuffix("\n").split("\n")


def _all_lines_to_look_at(path: str) -> Iterable[list[str]]:
    """Yield all lines of a file, in blocks."""
    pending = b""
    try:
        for chunk in content_chunks(path):
            pending += chunk
            cut = pending.rfind(b"\n")
            if cut >= 0:
                yield _lines_to_look_at(pending[:cut])
                pending = pending[cut + 1 :]
    except BadFileError:
        pass  # reported when the lines are read
    if pending:
        yield _lines_to_look_at(pending)
