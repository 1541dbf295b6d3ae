"""Layouts of log lines: detect that of a file, and convert its lines to Kafka's own.

Kafka's own is ``[2026-11-21 16:30:12,613] INFO message (logger)``, in UTC. Later steps only know this layout.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.log_files import prefixes
from isr_batch.ingest.log_files.json_lines import json_text_at, load_json_line, read_json_fields
from isr_batch.ingest.log_files.prefixes import ENVELOPE, JoinerOfCutLines
from isr_batch.ingest.log_files.stamps import AMBIGUOUS, FORMS, TIME_ALONE, StampForm, stamp_form, stamps_in_kafkas_form

_LEVEL = "(?P<level>TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|trace|debug|info|warn|warning|error)"
_LOGGER = r"(?P<logger>[A-Za-z_$][\w$]*(?:\.[\w$]+)*)"
_BRACKETS = r"(?:[\[(][^\])]*[\])][ \t]+)?"
_STAMP = r"[\[(]?(?P<stamp>STAMP)[\])]?,?"

LOGGER_LAST, LOGGER_FIRST = "stamp level message (logger)", "stamp level logger: message"
LEVEL_FIRST, NO_LOGGER, NO_LEVEL = "level stamp message", "stamp level message", "stamp message"
_HEAD = rf"^{_STAMP}[ \t]+{_BRACKETS}\[?{_LEVEL}\]?:?[ \t]+"
_NAMED = rf"\[?{_LOGGER}(?::\d+)?\]?"
ARRANGEMENTS = {
    LOGGER_LAST: rf"{_HEAD}(?P<message>.*) \({_LOGGER}(?::[^)]*)?\)(?:[ \t]+\[[^\]]*\])?[ \t]*$",
    LOGGER_FIRST: rf"{_HEAD}{_BRACKETS}(?:\d+[ \t]+---[ \t]+)?{_BRACKETS}{_NAMED}"
    rf"(?:[ \t]+[\[(][^\])]*[\])])?(?:[ \t]*:|[ \t]+-|\])[ \t]+(?P<message>.*)$",
    LEVEL_FIRST: rf"^\[?{_LEVEL}\]?[ \t]+{_BRACKETS}{_STAMP}[ \t]+"
    rf"(?:{_NAMED}(?:[ \t]*:|[ \t]+-)[ \t]+)?(?P<message>.*?)$",
    NO_LOGGER: rf"{_HEAD}(?P<message>.*)$",
    NO_LEVEL: rf"^{_STAMP}[ \t]+(?P<message>.*)$",
}
"""Regular expressions for Python and for RE2; the first of those that fit most lines is taken."""
JSON = "JSON"
_FIELDS = {
    "message": ("message", "msg", "@message", "short_message", "log/message"),
    "stamp": ("@timestamp", "timestamp", "time", "ts", "timeMillis", "instant/epochSecond", "asctime", "date"),
    "level": ("level", "log.level", "log/level", "severity", "levelname", "logLevel"),
    "logger": ("logger", "loggerName", "logger_name", "log.logger", "log/logger", "category", "name"),
}
_NANOS = "instant/nanoOfSecond"
_OWN = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3}\] [A-Z]+ ")
_FITS = 0.8
"""Share of a file's stamped lines that its layout must fit."""
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
_THREAD = r"^\[[^\]=]*\]:?[ \t]+"
_NOT_A_THREAD = re.compile(r"\[[^\]]*(=|Partition |Controller |Broker )")


@dataclass(frozen=True)
class Layout:
    """How the lines of a file are laid out.

    Parameters
    ----------
    prefixes : tuple of str
        Prefixes of a line, from the outside in (`isr_batch.ingest.log_files.prefixes`).
    arrangement : str
        Of timestamp, level, logger and message: a key of `ARRANGEMENTS`, or `JSON`.
    stamp : str
        Name of the form of the timestamps, or a format.
    fields : tuple of str
        Of a JSON event: names of message, timestamp, level and logger; empty for a missing one.
    has_thread : bool
        Whether a thread in brackets stands between level and message.
    coloured : bool
        Whether lines have the colour codes of a terminal.
    whole_seconds : bool
        Whether the timestamps have no fraction.
    is_own : bool
        Whether the lines are in Kafka's own layout, after what comes in front of them.
    zone : str or None
        Time zone of timestamps that name none; None is UTC.
    """

    prefixes: tuple[str, ...] = ()
    arrangement: str = LOGGER_LAST
    stamp: str = FORMS[0].name
    fields: tuple[str, ...] = ()
    has_thread: bool = False
    coloured: bool = False
    whole_seconds: bool = False
    is_own: bool = True
    zone: str | None = None

    @property
    def unchanged(self) -> bool:
        """Whether lines are left unchanged, and events have one line each."""
        return self.is_own and self.zone is None and not self.prefixes and not self.coloured

    @property
    def has_sources(self) -> bool:
        """Whether the lines of several containers or hosts may be mixed in the file."""
        return bool(self.prefixes) and not set(self.prefixes) <= {"CRI", "kubectl --timestamps"}

    def __str__(self) -> str:
        own = "Kafka's own layout" if self.is_own else f"{self.arrangement}, {self.stamp}"
        if self.arrangement == JSON:
            own = "JSON events"
        names = [name.split(" {")[0].split(" [")[0] for name in self.prefixes]
        more = (", whole seconds" if self.whole_seconds else "") + (f", {self.zone}" if self.zone else "")
        return ", then ".join([*names, own]) + more

    def to_text(self) -> str:
        """Serialise it for a worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Layout":
        """Read what `to_text` wrote."""
        read = json.loads(text)
        return cls(**(read | {name: tuple(read[name]) for name in ("prefixes", "fields")}))


KAFKAS_OWN = Layout()


@dataclass(frozen=True)
class UnreadableLayout:
    """Why a file's layout is not read."""

    reason: str
    detail: str


def layout_of(lines: Sequence[str], stamp_format: str | None = None) -> Layout | UnreadableLayout:
    """Find the layout of a file from its first lines.

    Parameters
    ----------
    lines : sequence of str
    stamp_format : str, optional
        Format of the timestamps in Python's strftime syntax, instead of the known forms.
    """
    lines = [line for line in lines if line.strip()]
    coloured = any("\x1b" in line for line in lines)
    if coloured:
        lines = [_COLOUR.sub("", line) for line in lines]
    names: list[str] = []
    while len(names) < 4 and (name := prefixes.prefix_of(lines)):  # noqa: PLR2004 a log is not nested deeper
        name = prefixes.envelope_prefix(lines) if name == ENVELOPE else name
        stripped = prefixes.strip_prefix(name, pa.array(lines, pa.string()))
        names.append(name)
        values = stripped.values
        if stripped.goes_on is not None:
            values, _ = JoinerOfCutLines().join(values, np.arange(len(values)), stripped.goes_on)
        lines = values.to_pylist()
        if coloured or any("\x1b" in line for line in lines):
            coloured = True
            lines = [_COLOUR.sub("", line) for line in lines]
    found = _inner(lines, stamp_format)
    if isinstance(found, UnreadableLayout):
        return found
    return replace(found, prefixes=tuple(names), coloured=coloured)


def _inner(lines: Sequence[str], stamp_format: str | None) -> Layout | UnreadableLayout:
    events = _events(lines)
    if events:
        return events
    best, most = None, 0
    forms = [stamp_form(stamp_format)] if stamp_format else list(FORMS)
    stamped = 0
    for form in forms:
        begins = re.compile(rf"(?:\[?{_LEVEL}\]?[ \t]+)?{_BRACKETS}[\[(]?{form.text}[\])]?[ \t,]")
        those = [line for line in lines if begins.match(line)]
        stamped = max(stamped, len(those))
        for name, pattern in ARRANGEMENTS.items():
            compiled = re.compile(pattern.replace("STAMP", form.text))
            matches = [match for line in those if (match := compiled.match(line))]
            # Lines without a logger fit into those with one less well: the more is read of a line, the better.
            if len(matches) > most and len(matches) >= _FITS * len(those):
                best, most = _layout(name, form, matches, those), len(matches)
                break
    if best:
        return best
    if any(AMBIGUOUS.match(line) for line in lines):
        first = next(line for line in lines if AMBIGUOUS.match(line))
        return UnreadableLayout("time stamps of an ambiguous form", f"day or month first? {first[:60]}")
    if any(TIME_ALONE.match(line) for line in lines):
        return UnreadableLayout(
            "time stamps without a day", next(line for line in lines if TIME_ALONE.match(line))[:60]
        )
    return UnreadableLayout("no readable time stamps", lines[0][:60] if lines else "no lines")


def _layout(name: str, form: StampForm, matches: "Sequence[re.Match[str]]", stamped: Sequence[str]) -> Layout:
    bracketed = [re.match(_THREAD, match["message"]) for match in matches]
    threads = sum(bool(found) and not _NOT_A_THREAD.match(found[0]) for found in bracketed if found)
    whole = not any(re.search(r"[.,]\d{1,9}$|:\d{3,9}$|\d{9}$", _without_zone(match["stamp"])) for match in matches)
    own = name in {LOGGER_LAST, NO_LOGGER} and all(_OWN.match(line) for line in stamped)
    shortened = name == LOGGER_LAST and not any("." in match["logger"] for match in matches)
    has_thread = name in {LOGGER_LAST, NO_LOGGER} and threads >= _FITS * len(matches)
    return Layout(
        arrangement=name, stamp=form.name, has_thread=has_thread,
        whole_seconds="ms" not in form.groups and (whole or "f" not in form.groups),
        is_own=own and not has_thread and not shortened and not any(line.rstrip().endswith("]") for line in stamped),
    )  # fmt: skip


def _without_zone(stamp: str) -> str:
    return re.sub(r" ?(Z|UTC|GMT|[+-]\d\d(:?\d\d)?)$", "", stamp) if re.search(r"\d:\d\d:\d\d", stamp) else stamp


def _events(lines: Sequence[str]) -> Layout | None:
    objects = [each for line in lines if line.startswith("{") and isinstance(each := load_json_line(line), dict)]
    if not objects or len(objects) < _FITS * len(lines):
        return None
    fields = []
    for candidates in _FIELDS.values():
        counts = {path: sum(json_text_at(each, path) is not None for each in objects) for path in candidates}
        best = max(candidates, key=lambda path: counts[path])
        fields.append(best if counts[best] else "")
    message, stamp, *_ = fields
    if not message or not stamp:
        return None
    stamps = [text for each in objects if (text := json_text_at(each, stamp))]
    if stamp == "instant/epochSecond":
        form = "epoch milliseconds"
    else:
        form = next((f.name for f in FORMS if _share(f.pattern, stamps) >= _FITS), "")
    if not form:
        return None
    whole = form == FORMS[0].name and not any(re.search(r"[.,]\d", _without_zone(s)) for s in stamps)
    return Layout(arrangement=JSON, stamp=form, fields=tuple(fields), is_own=False, whole_seconds=whole)


def _share(pattern: str, texts: Sequence[str]) -> float:
    return sum(bool(re.fullmatch(pattern, text)) for text in texts) / len(texts)


class LinesInKafkasLayout(NamedTuple):
    """Lines in Kafka's own layout, and the numbers of their first lines in the file."""

    values: pa.StringArray
    numbers: npt.NDArray[np.int64]


class LayoutConverter:
    """Brings the lines of one file into Kafka's own layout, block by block.

    Parameters
    ----------
    layout : Layout
    source : str, optional
        The container or host whose lines are wanted; by default those of all.
    """

    def __init__(self, layout: Layout, source: str | None = None) -> None:
        self.layout = layout
        self.source = source
        self.last_source: str | None = None
        self.joiners = [JoinerOfCutLines() for _ in layout.prefixes]
        self.form = stamp_form(layout.stamp)
        self.pattern = ARRANGEMENTS.get(layout.arrangement, "").replace("STAMP", self.form.text)
        self.plain = ARRANGEMENTS[NO_LOGGER].replace("STAMP", self.form.text)

    def convert(self, values: pa.StringArray, numbers: npt.NDArray[np.int64]) -> LinesInKafkasLayout:
        """Convert a block; a line of unknown form stays unchanged."""
        if self.layout.unchanged:
            return LinesInKafkasLayout(values, numbers)
        return self._convert(values, numbers, 0)

    def source_names(self, values: pa.StringArray) -> set[str]:
        """Find the containers or hosts that wrote these lines; empty if nothing names them."""
        for prefix in self.layout.prefixes:
            if self.layout.coloured:
                values = pc.replace_substring_regex(values, _COLOUR.pattern, "")
            stripped = prefixes.strip_prefix(prefix, values)
            if stripped.sources is not None:
                return set(pc.unique(stripped.sources.drop_null()).to_pylist())
            values = stripped.values
        return set()

    def rest(self) -> LinesInKafkasLayout:
        """Return the remaining lines at the end of the file."""
        lines = LinesInKafkasLayout(pa.array([], pa.string()), np.empty(0, np.int64))
        for number, joiner in enumerate(self.joiners):
            values, numbers = joiner.rest()
            if len(values):
                lines = self._convert(values, numbers, number + 1)
        return lines

    def _convert(self, values: pa.StringArray, numbers: npt.NDArray[np.int64], start: int) -> LinesInKafkasLayout:
        is_own = self.source is None or start > 0
        if self.layout.coloured:
            values = pc.replace_substring_regex(values, _COLOUR.pattern, "")
        for number in range(start, len(self.layout.prefixes)):
            stripped = prefixes.strip_prefix(self.layout.prefixes[number], values)
            values, goes_on = stripped.values, stripped.goes_on
            if stripped.sources is not None and not is_own:
                own = self._is_own(stripped.sources)  # before parts are joined: those of several sources are mixed
                values, numbers, is_own = values.filter(pa.array(own)), numbers[own], True
                goes_on = None if goes_on is None else goes_on[own]
            if self.layout.prefixes[number].startswith(ENVELOPE):
                values, numbers, goes_on = _lines_apart(values, numbers, goes_on)
            if goes_on is not None:
                values, numbers = self.joiners[number].join(values, numbers, goes_on)
            if self.layout.coloured:
                values = pc.replace_substring_regex(values, _COLOUR.pattern, "")
        if self.layout.arrangement == JSON:
            return self._from_events(values, numbers)
        return LinesInKafkasLayout(self._arranged(values), numbers)

    def _is_own(self, sources: pa.StringArray) -> npt.NDArray[np.bool_]:
        """Whether each line is of the wanted source; a line without one has the source of the line before it."""
        known = pc.fill_null_forward(pa.concat_arrays([pa.array([self.last_source], pa.string()), sources]))
        self.last_source = known[-1].as_py()
        return np.asarray(pc.fill_null(pc.equal(known[1:], self.source), False))

    def _arranged(self, values: pa.StringArray) -> pa.StringArray:
        found = pc.extract_regex(values, self.pattern)
        has_logger = "<logger>" in self.pattern
        logger = pc.struct_field(found, "logger") if has_logger else None
        result = self._printed(pc.struct_field(found, "stamp"), self._level(found), self._message(found), logger)
        if result.null_count and has_logger:
            plain = pc.extract_regex(values, self.plain)
            without = self._printed(
                pc.struct_field(plain, "stamp"), pc.struct_field(plain, "level"), self._message(plain), None
            )
            result = pc.coalesce(result, without)
        return pc.coalesce(result, values)

    def _level(self, found: pa.StructArray) -> pa.StringArray:
        if "<level>" in self.pattern:
            return pc.struct_field(found, "level")
        return pc.if_else(pc.is_valid(found), pa.scalar("INFO"), None)

    def _message(self, found: pa.StructArray) -> pa.StringArray:
        message = pc.struct_field(found, "message")
        return pc.replace_substring_regex(message, _THREAD, "") if self.layout.has_thread else message

    def _printed(
        self, stamp: pa.StringArray, level: pa.StringArray, message: pa.StringArray, logger: pa.StringArray | None
    ) -> pa.StringArray:
        time = stamps_in_kafkas_form(stamp, self.form, self.layout.zone)
        line = pc.binary_join_element_wise(
            pc.binary_join_element_wise("[", time, "] ", ""), pc.utf8_upper(level), " ", message, ""
        )
        if logger is None:
            return line
        named = pc.binary_join_element_wise(line, " (", _whole_logger_name(logger, message), ")", "")
        return pc.if_else(pc.greater(pc.binary_length(pc.fill_null(logger, "")), 0), named, line)

    def _from_events(self, values: pa.StringArray, numbers: npt.NDArray[np.int64]) -> LinesInKafkasLayout:
        paths = [path for path in self.layout.fields if path]
        nanos = "instant/epochSecond" in paths
        columns = dict(zip([*paths, *([_NANOS] if nanos else [])],
                           read_json_fields(values, [*paths, *([_NANOS] if nanos else [])]), strict=True))  # fmt: skip
        message, stamp, level, logger = (columns.get(path) for path in self.layout.fields)
        assert message is not None
        assert stamp is not None
        if nanos:
            millis = pc.divide(pc.fill_null(columns[_NANOS].cast(pa.int64()), 0), 1_000_000)
            stamp = pc.add(pc.multiply(stamp.cast(pa.int64()), 1000), millis).cast(pa.string())
        # An event may hold many lines: the broker prints all its settings in one.
        pieces = pc.split_pattern(pc.utf8_rtrim(message, "\r\n"), "\n")
        first = pc.list_element(pc.fill_null(pieces, [""]), 0)
        first = pc.if_else(pc.is_valid(message), first, None)
        level = pa.array(["INFO"] * len(values)) if level is None else pc.fill_null(level, "INFO")
        head = self._printed(stamp, level, first, logger)
        whole = pc.coalesce(head, values)
        if pc.max(pc.fill_null(pc.list_value_length(pieces), 1)).as_py() in {None, 1}:
            return LinesInKafkasLayout(whole, numbers)
        counts = np.asarray(pc.fill_null(pc.list_value_length(pieces), 1)).astype(np.int64)
        parent = np.repeat(np.arange(len(values)), counts)
        is_first = np.diff(parent, prepend=-1) > 0
        text = pc.replace_with_mask(pc.list_flatten(pc.fill_null(pieces, [""])), pa.array(is_first), whole)
        return LinesInKafkasLayout(text, numbers[parent])


def _lines_apart(
    values: pa.StringArray, numbers: npt.NDArray[np.int64], goes_on: npt.NDArray[np.bool_] | None
) -> tuple[pa.StringArray, npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """Split an event into its lines: the broker prints all its settings in one event."""
    if not pc.any(pc.match_substring(values, "\n")).as_py():
        return values, numbers, goes_on
    pieces = pc.split_pattern(values, "\n")
    parent = np.asarray(pc.list_parent_indices(pieces))
    if goes_on is not None:
        is_last = np.append(parent[1:] != parent[:-1], True)
        goes_on = goes_on[parent] & is_last
    return pc.list_flatten(pieces), numbers[parent], goes_on


def _whole_logger_name(logger: pa.StringArray, message: pa.StringArray) -> pa.StringArray:
    """Complete the names of Kafka's two special loggers where a layout has cut them short."""
    request = pc.match_substring(message, "Completed request:")
    short = pc.equal(logger, "logger")
    state = pc.or_(pc.ends_with(logger, "change.logger"), pc.and_(short, pc.invert(request)))
    asked = pc.or_(pc.ends_with(logger, "request.logger"), pc.and_(short, request))
    return pc.if_else(state, "state.change.logger", pc.if_else(asked, "kafka.request.logger", logger))
