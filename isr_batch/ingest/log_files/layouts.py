"""Detect the layout of a file's log lines.

Kafka's own layout is ``[2026-11-21 16:30:12,613] INFO message (logger)``, with times in UTC.
`isr_batch.ingest.log_files.layout_converter` converts other layouts to this one, so that the rest of the ingest does
not depend on the layout.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from isr_batch.ingest.log_files import prefixes
from isr_batch.ingest.log_files.events import (
    LEVELS,
    MESSAGES,
    SECONDS,
    STAMPS,
    EventFields,
    event_fields,
    fields_with_form,
    flat,
    is_kafkas_logger,
    json_objects,
    names_of_fields,
    paths_named,
)
from isr_batch.ingest.log_files.json_lines import json_value_at
from isr_batch.ingest.log_files.prefixes import COLOUR, ENVELOPE, JoinerOfCutLines
from isr_batch.ingest.log_files.stamps import (
    AMBIGUOUS,
    EVENT_FORMS,
    FORMS,
    TIME_ALONE,
    ZONE_NAME,
    StampForm,
    stamp_form,
)

_LEVEL = f"(?P<level>{LEVELS})"
_LOGGER = r"(?P<logger>[A-Za-z_$][\w$]*(?:\.[\w$]+)*)"
_BRACKETS = r"(?:[\[(][^\])]*[\])][ \t]+)?"
_STAMP = rf"[\[(]?(?P<stamp>STAMP){ZONE_NAME}[\])]?,?"

LOGGER_LAST, LOGGER_FIRST = "stamp level message (logger)", "stamp level logger: message"
LEVEL_FIRST, NO_LOGGER, NO_LEVEL = "level stamp message", "stamp level message", "stamp message"
_HEAD = rf"^{_STAMP}[ \t]+{_BRACKETS}\[?{_LEVEL}\]?:?[ \t]+"
_NAMED = rf"\[?{_LOGGER}(?::\d+)?\]?"
ARRANGEMENTS = {
    LOGGER_LAST: rf"{_HEAD}(?P<message>.*) \({_LOGGER}(?::[^)\s]*)?\)(?:[ \t]+\[[^\]]*\])?[ \t]*$",
    LOGGER_FIRST: rf"{_HEAD}{_BRACKETS}(?:\d+[ \t]+---[ \t]+)?{_BRACKETS}{_NAMED}"
    rf"(?:[ \t]+[\[(][^\])]*[\])])?(?:[ \t]*:|[ \t]+-|\])[ \t]+(?P<message>.*)$",
    LEVEL_FIRST: rf"^\[?{_LEVEL}\]?[ \t]+{_BRACKETS}{_STAMP}[ \t]+"
    rf"(?:{_NAMED}(?:[ \t]*:|[ \t]+-)[ \t]+)?(?P<message>.*?)$",
    NO_LOGGER: rf"{_HEAD}(?P<message>.*)$",
    NO_LEVEL: rf"^{_STAMP}[ \t]+(?P<message>.*)$",
}
"""Possible orders of timestamp, level, logger and message, with a regular expression for each that is valid in Python
and RE2. For a form of timestamps, the first order that most lines match is used."""
JSON = "JSON"
OTHER_KINDS = {
    r"\s*<(\?xml|results|!DOCTYPE|html)": ("XML or HTML", "export the events as JSON, CSV or text"),
    r"---\s*$": ("YAML", "export the events as JSON: gcloud logging read ... --format=json"),
    r"__CURSOR=": ("journalctl's export format", "use journalctl -o json or -o short-iso"),
}
"""Patterns of the beginnings of texts that are not log lines. For each, the kind of text, and advice to the user."""
_OWN = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d{3}\] [A-Z]+ ")
_FITS = 0.8
"""Minimum share of the lines with timestamps in a file that must match its layout."""
THREAD = r"^\[[^\]=]*\]:?[ \t]+"
_NOT_A_THREAD = re.compile(r"\[[^\]]*(=|Partition |Controller |Broker )")


@dataclass(frozen=True)
class Layout:
    """How the lines of a file are laid out, as `LayoutConverter` needs to know to convert them to Kafka's own layout.

    Parameters
    ----------
    prefixes : tuple of str
        Prefixes of a line, from the outermost to the innermost (`isr_batch.ingest.log_files.prefixes`).
    arrangement : str
        Order of timestamp, level, logger and message: a key of `ARRANGEMENTS`, or `JSON`.
    stamp : str
        Name of the timestamps' form, or a format in strftime syntax.
    fields : tuple of str
        For JSON events, the values of `EventFields`.
    has_thread : bool
        Whether the name of a thread is in brackets between level and message.
    coloured : bool
        Whether lines contain a terminal's colour codes.
    whole_seconds : bool
        Whether the timestamps have no fraction of a second.
    is_own : bool
        Whether the lines are in Kafka's own layout after the prefixes have been removed.
    zone : str or None
        Time zone of timestamps that do not show one; None means UTC.
    zone_name : str or None
        Name of a local time zone in the timestamps, such as CET. Only ``zone`` is used to convert them.
    other : Layout or None
        Layout of the remaining lines, such as those of a start script before JSON events, or of another logger.
    by_writer : bool
        Whether lines of several brokers are mixed and only the text of a line shows which broker wrote it.
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
    zone_name: str | None = None
    other: "Layout | None" = None
    by_writer: bool = False

    @property
    def unchanged(self) -> bool:
        """Whether the lines are used as they are, without conversion."""
        return self.is_own and not (self.zone or self.prefixes or self.coloured or self.other or self.by_writer)

    @property
    def has_sources(self) -> bool:
        """Whether the file may have lines of several containers or hosts."""
        events = self.arrangement == JSON and EventFields(*self.fields).source
        return bool(events) or not set(self.prefixes) <= {"CRI", "kubectl --timestamps"}

    @property
    def is_local(self) -> bool:
        """Whether the times are local, by their zone's or their field's name, although no time zone was given."""
        if self.zone is not None:
            return False
        if self.arrangement == JSON and "[local" in EventFields(*self.fields).stamp.lower():
            return True
        return self.zone_name is not None or (self.other is not None and self.other.is_local)

    def __str__(self) -> str:
        own = "Kafka's own layout" if self.is_own else f"{self.arrangement}, {self.stamp}"
        if self.arrangement == JSON:
            own = "JSON events"
        names = [name.split(" {")[0].split(" [")[0] for name in self.prefixes]
        more = (", whole seconds" if self.whole_seconds else "") + (f", {self.zone}" if self.zone else "")
        return ", then ".join([*names, own]) + more + (f"; other lines {self.other}" if self.other else "")

    def to_text(self) -> str:
        """Serialise the layout as text, to pass it to a Spark worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Layout":
        """Deserialise the result of `to_text`."""
        return cls._of(json.loads(text))

    @classmethod
    def _of(cls, read: "dict[str, Any]") -> "Layout":
        """Build a layout from the parsed JSON of `to_text`."""
        other = cls._of(read["other"]) if read["other"] else None
        return cls(**(read | {name: tuple(read[name]) for name in ("prefixes", "fields")} | {"other": other}))


KAFKAS_OWN = Layout()


@dataclass(frozen=True)
class UnreadableLayout:
    """The reason why the lines of a file cannot be parsed, and a detail."""

    reason: str
    detail: str


def layout_of(
    lines: Sequence[str], stamp_format: str | None = None, given: EventFields | None = None
) -> Layout | UnreadableLayout:
    """Detect the layout of a file from its first lines. Returns the reason if it cannot be parsed.

    Parameters
    ----------
    lines : sequence of str
    stamp_format : str, optional
        Format of the timestamps in Python's strftime syntax. If it is given, no other form is tried.
    given : EventFields, optional
        Fields of JSON events, if the operator named them; by default they are detected.
    """
    lines = [line for line in lines if line.strip()]
    coloured = any("\x1b" in line for line in lines)
    if coloured:
        lines = [COLOUR.sub("", line) for line in lines]
    names: list[str] = []
    while given is None and len(names) < 4 and (name := prefixes.prefix_of(lines)):  # noqa: PLR2004 a log is not nested deeper
        name = prefixes.envelope_prefix(lines) if name == ENVELOPE else name
        stripped = prefixes.strip_prefix(name, pa.array(lines, pa.string()))
        names.append(name)
        values = stripped.values
        if stripped.goes_on is not None:
            values, _ = JoinerOfCutLines().join(values, np.arange(len(values)), stripped.goes_on)
        lines = values.to_pylist()
        if coloured or any("\x1b" in line for line in lines):
            coloured = True
            lines = [COLOUR.sub("", line) for line in lines]
    of_kind = next((kind for begins, kind in OTHER_KINDS.items() if lines and re.match(begins, lines[0])), None)
    found = UnreadableLayout(*of_kind) if of_kind else _inner_layout(lines, stamp_format, given)
    if isinstance(found, UnreadableLayout):
        return found
    return replace(found, prefixes=tuple(names), coloured=coloured)


def _inner_layout(
    lines: Sequence[str], stamp_format: str | None, given: EventFields | None
) -> Layout | UnreadableLayout:
    """Detect the layout of lines without prefixes: JSON events, text, or both. Users can give ``stamp_format``."""
    events = _events(lines, given, stamp_format)
    if events is None:
        return _plain_layout(lines, stamp_format)
    others = [line for line in lines if not line.startswith("{")]
    rest = _plain_layout(others, stamp_format)
    if isinstance(events, UnreadableLayout) or isinstance(
        rest, UnreadableLayout
    ):  # a start script's lines may have no layout
        return events
    has_requests = any("Completed request:" in line for line in others)
    return replace(events, other=rest, whole_seconds=events.whole_seconds or (rest.whole_seconds and has_requests))


def _plain_layout(lines: Sequence[str], stamp_format: str | None) -> Layout | UnreadableLayout:
    """Detect the layout of lines of text. If no form of timestamps fits, return the reason."""
    best: Layout | None = None
    most, rest = 0, []
    forms = [stamp_form(stamp_format)] if stamp_format else list(FORMS)
    for form in forms:
        begins = re.compile(rf"(?:\[?{_LEVEL}\]?[ \t]+)?{_BRACKETS}[\[(]?{form.text}[\])]?[ \t,]")
        those = [line for line in lines if begins.match(line)]
        last = _layout_matches(LOGGER_LAST, form, those)
        others = {
            match.string for match in _layout_matches(LOGGER_FIRST, form, those) if is_kafkas_logger(match["logger"])
        }
        others -= {match.string for match in last}
        if min(len(last), len(others)) < prefixes.SOME * len(those):
            others = set()
        for name in ARRANGEMENTS:
            matches = _layout_matches(name, form, those)
            fits = len(matches) + (sum(line in others for line in those) if name == LOGGER_LAST else 0)
            # An arrangement with a logger is preferred, because it uses more of a line.
            if fits > most and fits >= _FITS * len(those):
                best, most = _layout(name, form, matches, those), fits
                read = {match.string for match in [*matches, *_layout_matches(NO_LOGGER, form, those)]} - others
                rest = [line for line in lines if line not in read]
                break
    if best:
        other = _plain_layout(rest, stamp_format)
        if isinstance(other, UnreadableLayout):
            return best
        return replace(best, other=other, whole_seconds=best.whole_seconds or other.whole_seconds)
    if any(line.startswith(("# HELP ", "# TYPE ")) for line in lines):
        return UnreadableLayout("metrics", "they count ISR changes and do not say which replica left, or when")
    if any(AMBIGUOUS.match(line) for line in lines):
        first = next(line for line in lines if AMBIGUOUS.match(line))
        return UnreadableLayout(
            "time stamps of an ambiguous form", f"day or month first? give --stamp-format: {first[:60]}"
        )
    if any(TIME_ALONE.match(line) for line in lines):
        return UnreadableLayout(
            "time stamps without a day", next(line for line in lines if TIME_ALONE.match(line))[:60]
        )
    return UnreadableLayout("no readable time stamps", lines[0][:60] if lines else "no lines")


def _layout_matches(name: str, form: StampForm, lines: Sequence[str]) -> "list[re.Match[str]]":
    """Match lines with an order of parts (a key of `ARRANGEMENTS`) and a form of timestamps. Return the matches."""
    compiled = re.compile(ARRANGEMENTS[name].replace("STAMP", form.text))
    return [match for line in lines if (match := compiled.match(line))]


def _layout(name: str, form: StampForm, matches: "Sequence[re.Match[str]]", stamped: Sequence[str]) -> Layout:
    """Return the layout with the given order of parts and the given form of timestamps.

    Whether it has threads, fractions of seconds and so on is derived from ``matches`` and ``stamped``.
    """
    bracketed = [re.match(THREAD, match["message"]) for match in matches]
    threads = sum(bool(found) and not _NOT_A_THREAD.match(found[0]) for found in bracketed if found)
    stamps = [_stamp_without_zone(match["stamp"]) for match in matches]
    whole = not any(re.search(r"[.,]\d{1,9}(?: ?[AaPp][Mm])?$|:\d{3,9}$|\d{9}$", stamp) for stamp in stamps)
    zones = [match["zone"] for match in matches if match["zone"]]
    own = name in {LOGGER_LAST, NO_LOGGER} and all(_OWN.match(line) for line in stamped)
    shortened = name == LOGGER_LAST and not any("." in match["logger"] for match in matches)
    has_thread = name in {LOGGER_LAST, NO_LOGGER} and threads >= _FITS * len(matches)
    return Layout(
        arrangement=name, stamp=form.name, has_thread=has_thread,
        whole_seconds="ms" not in form.groups and (whole or "f" not in form.groups),
        zone_name=zones[0] if len(zones) >= _FITS * len(matches) else None,
        is_own=own and not has_thread and not shortened and not any(line.rstrip().endswith("]") for line in stamped),
    )  # fmt: skip


def _stamp_without_zone(stamp: str) -> str:
    """Return a timestamp without its time zone."""
    has_time = re.search(r"\d:\d\d:\d\d", stamp)
    return re.sub(r" ?(Z|(UTC|GMT)?[+-]\d\d(:?\d\d)?|UTC|GMT)$", "", stamp) if has_time else stamp


def _events(
    lines: Sequence[str], given: EventFields | None, stamp_format: str | None
) -> Layout | UnreadableLayout | None:
    """Detect the layout of JSON events. Return None if too few lines are JSON objects.

    ``given`` and ``stamp_format`` are the fields and the form of times that the user named, if any.
    """
    objects = json_objects(lines)
    if not objects or len(objects) < prefixes.SOME * len(lines):
        return None
    forms = [stamp_form(stamp_format), *EVENT_FORMS] if stamp_format else EVENT_FORMS
    found = event_fields(objects, forms) if given is None else fields_with_form(objects, given, forms)
    if found is None:
        times = [str(each[path]) for each in map(flat, objects) for path in paths_named(each, STAMPS)]
        if first := next(filter(AMBIGUOUS.match, times), None):
            return UnreadableLayout(
                "time stamps of an ambiguous form", f"day or month first? give --stamp-format: {first[:60]}"
            )
        if times and given is None and any(paths_named(flat(each), MESSAGES) for each in objects):
            return UnreadableLayout(
                "times of an unknown form",
                f"give --stamp-format: {times[0][:60]}; or name another field in cluster.yaml, events: {{time: ...}}: "
                f"the fields are {names_of_fields(objects)}",
            )
        return UnreadableLayout(
            "JSON events without a known time and message",
            f"their fields are {names_of_fields(objects)}: name three in cluster.yaml, "
            "events: {time: ..., message: ..., logger: ...}",
        )
    fields, form = found
    stamps = [str(text) for each in objects if (text := json_value_at(each, fields.stamp)) is not None]
    whole = not any(re.search(r"[.,]\d|^1\d{12}", _stamp_without_zone(s)) for s in stamps) and fields.stamp != SECONDS
    return Layout(arrangement=JSON, stamp=form.name, fields=fields, is_own=False, whole_seconds=whole)
