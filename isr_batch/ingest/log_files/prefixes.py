"""Recognise and remove the prefixes that container runtimes and log collectors put in front of a broker's log lines."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.ingest.log_files.events import (
    COLLECTED,
    LEVELS,
    MESSAGES,
    SOURCES,
    STAMPS,
    flat,
    is_source,
    json_objects,
    paths_named,
)
from isr_batch.ingest.log_files.json_lines import read_json_fields

COLOUR = re.compile("\x1b\\[[0-9;]*m")
_RFC3339 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
BEGINS_AS_LOG = re.compile(
    r"[\[({]?(?:\d{4}[-/]?\d\d[-/]?\d\d|\d{1,2}[ /.-]\w{2,3}[ /.-]\d{2,4}|1\d{12}\b|[A-Z][a-z]{2} \d"
    r"|(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\b|\{\")"
)
"""Pattern of how log lines begin: with a timestamp, a level, or a JSON object."""
_ONLY_A_LEVEL = re.compile(rf"\[?(?:{LEVELS})\b\]?:?[ \t]+(?![\[(]?(?:\d|[A-Z][a-z]{{2}} \d))")
"""Pattern of a line that begins with a level but has no time after the level."""


@dataclass(frozen=True)
class Prefix:
    """A kind of prefix that a container runtime or log collector puts in front of lines.

    Attributes
    ----------
    name : str
    pattern : str
        Regular expression for the whole line. Its group ``rest`` is the line without the prefix. Optional groups:
        ``source`` is the container or pod that wrote the line; ``part`` is P if the line continues in the next line;
        ``time`` is added as a field to the JSON object in ``rest``.
    begins : pattern
        The prefix is only recognised in a file if ``rest`` of at least one line matches this pattern.
    """

    name: str
    pattern: str
    begins: "re.Pattern[str]" = BEGINS_AS_LOG


PREFIXES = (
    Prefix("kubectl --prefix", r"^\[pod/(?P<source>[^/\]\s]+)/[^\]\s]+\] (?P<rest>.*)$"),
    Prefix("CRI", rf"^{_RFC3339} (?:stdout|stderr) (?P<part>[FP])(?::\S+)? (?P<rest>.*)$"),
    Prefix("docker compose", r"^(?P<source>[\w.-]+?)[ \t]*\| ?(?P<rest>.*)$"),
    Prefix("journald", r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<source>\S+) [^\s\[:]+(?:\[\d+\])?: ?(?P<rest>.*)$"),
    Prefix("journald short-iso", rf"^{_RFC3339} (?P<source>\S+) [^\s\[:]+(?:\[\d+\])?: ?(?P<rest>.*)$"),
    Prefix("syslog", rf"^<\d+>1 {_RFC3339} (?P<source>\S+) \S+ \S+ \S+ (?:-|\[[^\]]*\]) ?(?P<rest>.*)$"),
    Prefix("kubectl --timestamps", rf"^{_RFC3339} (?P<rest>.*)$"),
    Prefix("aws logs tail", r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* (?P<source>[\w./-]+) (?P<rest>.*)$"),
    Prefix("logcli", r"^\S+ \{[^}]*?\b(?:pod|instance|host)=\"(?P<source>[^\"]+)\"[^}]*\} (?P<rest>.*)$"),
    Prefix(
        "aws --output text", r"^EVENTS\t(?:\d+\t)?1\d{12}\t(?:(?P<source>[^\t\[{ ]+)\t)?(?P<rest>.*?)(?:\t1\d{12})?$"
    ),
    Prefix("aws logs tail, short", r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d (?P<rest>.*)$", re.compile(r"\[\d{4}-\d\d-")),
    Prefix("Papertrail", rf"^\d+\t{_RFC3339}\t{_RFC3339}\t\d+\t(?P<source>[^\t]+)\t(?:[^\t]*\t){{4}}(?P<rest>.*)$"),
    Prefix("Grafana's text", rf"^(?:1\d{{12}}\t{_RFC3339}|\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}})\t(?P<rest>.*)$"),
    Prefix("Fluent Bit's file", r"^[\w./*-]+: \[(?P<time>1\d{9}\.\d+), (?P<rest>\{.*\})\]$"),
    Prefix("Fluentd's file", rf"^(?P<time>{_RFC3339})\t[\w./*-]+\t(?P<rest>\{{.*\}})$"),
    Prefix("stern", r"^(?P<source>[a-z][\w.-]*[\w]) [a-z][\w.-]* (?P<rest>.*)$"),
    Prefix("pod in brackets", r"^\[(?P<source>[a-z][\w.-]*-\d+)\] (?P<rest>.*)$"),
    Prefix("grep", r"^(?P<source>[^\s:\[\]{}]+?):(?:\d+:)?(?P<rest>.*)$"),
)
ENVELOPE = "JSON envelope"
"""Name of the kind of prefix in which the line is a field of a JSON object, as in docker's json-file, fluent-bit or
CloudWatch."""
_NAMED = {prefix.name: prefix for prefix in PREFIXES}
_DOCKERS = "log"
MOST = 0.9
"""Minimum share of a file's lines that must have a prefix for it to be removed."""
SOME = 0.05
"""Minimum share of the lines in envelopes that must begin like a log line. It is low because a broker prints hundreds
of settings, which do not begin like this."""


class StrippedOfPrefix(NamedTuple):
    """Lines without their prefix.

    Attributes
    ----------
    values : string array
        Lines without their prefix.
    sources : string array or None
        Container or host of each line; None if the prefix does not name it.
    goes_on : bool array or None
        Whether each line continues in the next one; None if the prefix does not show it.
    """

    values: pa.StringArray
    sources: pa.StringArray | None
    goes_on: npt.NDArray[np.bool_] | None


def prefix_of(lines: Sequence[str]) -> str | None:
    """Return the name of the prefix that most of the lines have; None if most lines lack any prefix.

    The prefix is only recognised if at least one line begins like a log line after it.
    """
    if _envelope_fields(lines):
        return ENVELOPE
    for prefix in PREFIXES:
        pattern = re.compile(prefix.pattern)
        found = [match for line in lines if (match := pattern.match(line))]
        begins = sum(bool(prefix.begins.match(match["rest"].lstrip())) for match in found)
        if len(found) >= MOST * len(lines) and begins and _is_needed(lines, found, begins):
            return prefix.name
    return None


def _is_needed(lines: Sequence[str], found: "Sequence[re.Match[str]]", begins: int) -> bool:
    """Return whether more lines begin like a log line after the prefix is removed (``begins``) than with the prefix."""
    if not found[0]["rest"]:
        return False
    own = sum(bool(re.match(r"\[\d{4}-\d\d-\d\d[ T]", line)) for line in lines)
    return begins > own


def strip_prefix(name: str, values: pa.StringArray) -> StrippedOfPrefix:
    """Remove the prefix called ``name`` (a result of `prefix_of`) from lines. Other lines stay unchanged."""
    if name.startswith(ENVELOPE):
        return _without_prefix_envelope(name.removeprefix(ENVELOPE).strip(), values)
    pattern = _NAMED[name].pattern
    found = pc.extract_regex(values, pattern)
    rest = pc.coalesce(pc.struct_field(found, "rest"), values)
    if "<time>" in pattern:
        time = pc.struct_field(found, "time")
        rest = pc.coalesce(_with_time_of_envelope(rest, time), rest)
    source = pc.struct_field(found, "source") if "<source>" in pattern else None
    goes_on = None
    if "<part>" in pattern:
        goes_on = np.asarray(pc.fill_null(pc.equal(pc.struct_field(found, "part"), "P"), False))
    return StrippedOfPrefix(rest, source, goes_on)


def _with_time_of_envelope(text: pa.StringArray, time: pa.StringArray) -> pa.StringArray:
    """Add a field with the time from the prefix or envelope to JSON objects. Any other text becomes null."""
    fields = pc.utf8_slice_codeunits(text, 1)
    is_object = pc.and_(pc.starts_with(text, "{"), pc.invert(pc.match_substring_regex(fields, r"^\s*\}")))
    return pc.if_else(is_object, pc.binary_join_element_wise(f'{{"{COLLECTED}":"', time, '",', fields, ""), None)


def _envelope_fields(lines: Sequence[str]) -> tuple[str, str | None, str | None] | None:
    """Return the paths of the fields of JSON envelopes that contain the log line, the container and the time.

    The last two are None if they are missing. The time is only searched if the log lines are JSON without a time.

    Without envelopes, the result is None.
    """
    objects = json_objects(lines)
    if not objects or len(objects) < SOME * len(lines):
        return None
    fields = [flat(each) for each in objects]
    paths = {path for each in fields for path in each}
    for field in paths_named(paths, MESSAGES):
        texts = [text for each in fields if isinstance(text := each.get(field), str)]
        stamped = sum(begins_with_time(COLOUR.sub("", text).lstrip()) for text in texts)
        if len(texts) >= MOST * len(objects) and stamped > (0 if field == _DOCKERS else SOME * len(texts)):
            some = fields[0]
            sources = (path for path in paths_named(paths, SOURCES) if is_source(str(some.get(path) or "")))
            inner = json_objects(texts)
            timed = any(paths_named(flat(each), STAMPS) for each in inner)
            stamps = (path for path in paths_named(paths, STAMPS) if inner and not timed)
            return field, next(sources, None), next(stamps, None)
    return None


def begins_with_time(text: str) -> bool:
    """Return whether a text begins like a log line that has a time."""
    return bool(BEGINS_AS_LOG.match(text)) and not _ONLY_A_LEVEL.match(text)


def envelope_prefix(lines: Sequence[str]) -> str:
    """Return the name by which `strip_prefix` removes the JSON object around each log line (`ENVELOPE`).

    The name contains the paths of the fields with the log line and, where they are needed, its container and time.
    """
    fields = _envelope_fields(lines)
    assert fields is not None
    return f"{ENVELOPE} {json.dumps(fields)}"


def _without_prefix_envelope(fields: str, values: pa.StringArray) -> StrippedOfPrefix:
    """Extract the log lines from JSON envelopes. ``fields`` is the JSON in a result of `envelope_prefix`."""
    field, source, stamp = json.loads(fields)
    paths = [path for path in (field, source, stamp) if path]
    columns = dict(zip(paths, read_json_fields(values, paths), strict=True))
    text = columns[field]
    if stamp:
        text = pc.coalesce(_with_time_of_envelope(text, columns[stamp]), text)
    goes_on = None
    if field == _DOCKERS:  # docker splits lines after 16 KiB; the last part has a newline
        goes_on = np.asarray(pc.fill_null(pc.invert(pc.ends_with(text, "\n")), False))
        if goes_on.all():
            goes_on = None  # the collector removed newlines, so parts are unknown
    rest = pc.coalesce(pc.utf8_rtrim(text, "\r\n"), values)
    return StrippedOfPrefix(rest, columns[source] if source else None, goes_on)


class JoinerOfCutLines:
    """Joins lines that a container runtime has cut into parts. A line that is incomplete after a block is held back."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.number = 0

    def join(
        self, values: pa.StringArray, numbers: npt.NDArray[np.int64], goes_on: npt.NDArray[np.bool_]
    ) -> tuple[pa.StringArray, npt.NDArray[np.int64]]:
        """Join the parts of lines in a block, and return the complete lines with the line numbers of their first parts.

        ``goes_on`` is true for each part that continues in the next one.
        """
        if not self.begun and not goes_on.any():
            return values, numbers
        edges = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(~goes_on) + 1])
        whole = pc.binary_join(pa.ListArray.from_arrays(pa.array(edges, pa.int32()), values), "")
        of_lines = numbers[edges[:-1]]
        if self.begun and len(whole):
            whole = pa.concat_arrays([pa.array(["".join([*self.begun, whole[0].as_py()])]), whole[1:]])
            of_lines[0] = self.number
            self.begun = []
        left = int(edges[-1])
        if left < len(values):
            self.number = self.number if self.begun else int(numbers[left])
            self.begun += values[left:].to_pylist()
        return whole, of_lines

    def rest(self) -> tuple[pa.StringArray, npt.NDArray[np.int64]]:
        """Return the line that is still held back at the end of the file, if any, with its line number."""
        begun, self.begun = self.begun, []
        if not begun:
            return pa.array([], pa.string()), np.empty(0, np.int64)
        return pa.array(["".join(begun)]), np.array([self.number], np.int64)
