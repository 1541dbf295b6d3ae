"""Convert the lines of a file to Kafka's own layout, block by block."""

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from isr_batch.broker_lines.forms import WRITER
from isr_batch.ingest.log_files import prefixes
from isr_batch.ingest.log_files.events import EventFields, event_texts
from isr_batch.ingest.log_files.json_lines import read_json_fields
from isr_batch.ingest.log_files.layouts import ARRANGEMENTS, JSON, NO_LOGGER, THREAD, Layout
from isr_batch.ingest.log_files.prefixes import COLOUR, ENVELOPE, JoinerOfCutLines
from isr_batch.ingest.log_files.stamps import stamp_form, stamps_in_kafkas_form


class LinesInKafkasLayout(NamedTuple):
    """Lines in Kafka's own layout, and the line number of each in its file (that of its first part if it was cut)."""

    values: pa.StringArray
    numbers: npt.NDArray[np.int64]


class LayoutConverter:
    """Converts the lines of one file to Kafka's own layout, block by block.

    Parameters
    ----------
    layout : Layout
        Layout of the file's lines.
    source : str, optional
        Container or host whose lines are selected; by default, all lines are selected.
    """

    def __init__(self, layout: Layout, source: str | None = None) -> None:
        self.layout = layout
        self.source = source
        self.last_source: str | None = None
        self.joiners = [JoinerOfCutLines() for _ in layout.prefixes]
        self.other = LayoutConverter(replace(layout.other, zone=layout.zone)) if layout.other else None
        self.form = stamp_form(layout.stamp)
        self.pattern = ARRANGEMENTS.get(layout.arrangement, "").replace("STAMP", self.form.text)
        self.plain = ARRANGEMENTS[NO_LOGGER].replace("STAMP", self.form.text)

    def convert(self, values: pa.StringArray, numbers: npt.NDArray[np.int64]) -> LinesInKafkasLayout:
        """Convert a block of lines to Kafka's own layout. ``numbers`` are the lines' numbers in the file.

        Lines that do not match the layout are returned unchanged.
        """
        if self.layout.unchanged:
            return LinesInKafkasLayout(values, numbers)
        return self._of_writer(self._convert(values, numbers, 0))

    def source_names(self, values: pa.StringArray) -> set[str]:
        """Return the names of the containers or hosts that wrote these lines; an empty set if the lines show none."""
        for prefix in self.layout.prefixes:
            if self.layout.coloured:
                values = pc.replace_substring_regex(values, COLOUR.pattern, "")
            stripped = prefixes.strip_prefix(prefix, values)
            if stripped.sources is not None:
                return set(pc.unique(stripped.sources.drop_null()).to_pylist())
            values = stripped.values
        of_events = self._sources_of_events(values)
        return set() if of_events is None else set(pc.unique(of_events.drop_null()).to_pylist())

    def rest(self) -> LinesInKafkasLayout:
        """Return the lines that were held back to wait for their next parts. Call this at the end of the file."""
        lines = LinesInKafkasLayout(pa.array([], pa.string()), np.empty(0, np.int64))
        for number, joiner in enumerate(self.joiners):
            values, numbers = joiner.rest()
            if len(values):
                lines = self._convert(values, numbers, number + 1)
        return self._of_writer(lines)

    def _of_writer(self, lines: LinesInKafkasLayout) -> LinesInKafkasLayout:
        """If lines must be assigned by their text, select the lines of the source and those that continue them."""
        if not self.layout.by_writer or self.source is None:
            return lines
        writers = pa.array(list(map(_writer_of, lines.values.to_pylist())), pa.string())
        own = self._is_own(writers)
        return LinesInKafkasLayout(lines.values.filter(pa.array(own)), lines.numbers[own])

    def _convert(self, values: pa.StringArray, numbers: npt.NDArray[np.int64], start: int) -> LinesInKafkasLayout:
        """Remove all prefixes from number ``start`` on, join cut lines, select the source's lines, and convert them."""
        is_own = self.source is None or start > 0 or self.layout.by_writer
        if self.layout.coloured:
            values = pc.replace_substring_regex(values, COLOUR.pattern, "")
        for number in range(start, len(self.layout.prefixes)):
            stripped = prefixes.strip_prefix(self.layout.prefixes[number], values)
            values, goes_on = stripped.values, stripped.goes_on
            if stripped.sources is not None and not is_own:
                own = self._is_own(
                    stripped.sources
                )  # before parts are joined, because lines of several sources may be interleaved
                values, numbers, is_own = values.filter(pa.array(own)), numbers[own], True
                goes_on = None if goes_on is None else goes_on[own]
            if self.layout.prefixes[number].startswith(ENVELOPE):
                values, numbers, goes_on = _lines_apart(values, numbers, goes_on)
            if goes_on is not None:
                values, numbers = self.joiners[number].join(values, numbers, goes_on)
            if self.layout.coloured:
                values = pc.replace_substring_regex(values, COLOUR.pattern, "")
        sources = None if is_own else self._sources_of_events(values)
        if sources is not None:
            own = self._is_own(sources)
            values, numbers = values.filter(pa.array(own)), numbers[own]
        return self.inner(values, numbers)

    def inner(self, values: pa.StringArray, numbers: npt.NDArray[np.int64]) -> LinesInKafkasLayout:
        """Convert lines whose prefixes have been removed. ``numbers`` are the lines' numbers in the file."""
        convert = self._from_events if self.layout.arrangement == JSON else self._arranged
        if self.other is None:
            return convert(values, numbers)
        # Both parts are merged by position in the block: lines of the same event have equal line numbers.
        place = np.arange(len(values))
        fits = np.asarray(pc.fill_null(pc.match_substring_regex(values, self.pattern or r"^\{"), False))
        both = [
            convert(values.filter(pa.array(fits)), place[fits]),
            self.other.inner(values.filter(pa.array(~fits)), place[~fits]),
        ]
        place = np.concatenate([lines.numbers for lines in both])
        order = np.argsort(place, kind="stable")
        return LinesInKafkasLayout(
            pa.concat_arrays([lines.values for lines in both]).take(pa.array(order)), numbers[place[order]]
        )

    def _sources_of_events(self, values: pa.StringArray) -> pa.StringArray | None:
        """Return the container or host of each JSON event; None if the layout names no field for it."""
        source = EventFields(*self.layout.fields).source if self.layout.arrangement == JSON else ""
        return read_json_fields(values, [source])[0] if source else None

    def _is_own(self, sources: pa.StringArray) -> npt.NDArray[np.bool_]:
        """Return a mask of the selected source's lines. A line without a source gets that of the line before it."""
        known = pc.fill_null_forward(pa.concat_arrays([pa.array([self.last_source], pa.string()), sources]))
        self.last_source = known[-1].as_py()
        return np.asarray(pc.fill_null(pc.equal(known[1:], self.source), False))

    def _arranged(self, values: pa.StringArray, numbers: npt.NDArray[np.int64]) -> LinesInKafkasLayout:
        """Convert lines of text with these numbers: put timestamp, level, message and logger in Kafka's order."""
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
        return LinesInKafkasLayout(pc.coalesce(result, values), numbers)

    def _level(self, found: pa.StructArray) -> pa.StringArray:
        """Return the level of each line, one of the parts ``found`` in it. In a layout without levels, it is INFO."""
        if "<level>" in self.pattern:
            return pc.struct_field(found, "level")
        return pc.if_else(pc.is_valid(found), pa.scalar("INFO"), None)

    def _message(self, found: pa.StructArray) -> pa.StringArray:
        """Return the message of each line, one of the parts ``found`` in it, without the name of the thread."""
        message = pc.struct_field(found, "message")
        return pc.replace_substring_regex(message, THREAD, "") if self.layout.has_thread else message

    def _printed(
        self, stamp: pa.StringArray, level: pa.StringArray, message: pa.StringArray, logger: pa.StringArray | None
    ) -> pa.StringArray:
        """Compose lines in Kafka's own layout from four parts: timestamp, level, message and, if known, logger."""
        time = stamps_in_kafkas_form(stamp, self.form, self.layout.zone)
        line = pc.binary_join_element_wise(
            pc.binary_join_element_wise("[", time, "] ", ""), pc.utf8_upper(level), " ", message, ""
        )
        if logger is None:
            return line
        named = pc.binary_join_element_wise(line, " (", _whole_logger_name(logger, message), ")", "")
        return pc.if_else(pc.greater(pc.binary_length(pc.fill_null(logger, "")), 0), named, line)

    def _from_events(self, values: pa.StringArray, numbers: npt.NDArray[np.int64]) -> LinesInKafkasLayout:
        """Convert JSON events with these line numbers to lines in Kafka's own layout."""
        message, stamp, level, logger = event_texts(values, EventFields(*self.layout.fields))
        # One event may have many lines: a broker prints all its settings as one event.
        pieces = pc.split_pattern(pc.utf8_rtrim(message, "\r\n"), "\n")
        first = pc.list_element(pc.fill_null(pieces, [""]), 0)
        first = pc.if_else(pc.is_valid(message), first, None)
        head = self._printed(stamp, level, first, logger)
        whole = pc.coalesce(head, values)
        if pc.max(pc.fill_null(pc.list_value_length(pieces), 1)).as_py() in {None, 1}:
            return LinesInKafkasLayout(whole, numbers)
        counts = np.asarray(pc.fill_null(pc.list_value_length(pieces), 1)).astype(np.int64)
        parent = np.repeat(np.arange(len(values)), counts)
        is_first = np.diff(parent, prepend=-1) > 0
        text = pc.replace_with_mask(pc.list_flatten(pc.fill_null(pieces, [""])), pa.array(is_first), whole)
        return LinesInKafkasLayout(text, numbers[parent])


def _writer_of(line: str) -> str | None:
    """Return ``broker N`` if a line names its writer, None if it has no timestamp, otherwise an empty text."""
    found = _WRITER.search(line)
    if found:
        return f"broker {int(next(filter(None, found.groups())))}"
    return "" if line.startswith("[") else None


_WRITER = re.compile(WRITER)


def _lines_apart(
    values: pa.StringArray, numbers: npt.NDArray[np.int64], goes_on: npt.NDArray[np.bool_] | None
) -> tuple[pa.StringArray, npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """Split events that consist of several lines, such as the settings that a broker logs as one event.

    Return, for each resulting line, its text, its number in the file, and (``goes_on``) whether the next one continues
    it.
    """
    if not pc.any(pc.match_substring(values, "\n")).as_py():
        return values, numbers, goes_on
    pieces = pc.split_pattern(values, "\n")
    parent = np.asarray(pc.list_parent_indices(pieces))
    if goes_on is not None:
        is_last = np.append(parent[1:] != parent[:-1], True)
        goes_on = goes_on[parent] & is_last
    return pc.list_flatten(pieces), numbers[parent], goes_on


def _whole_logger_name(logger: pa.StringArray, message: pa.StringArray) -> pa.StringArray:
    """Return the loggers' names, with those of the request and state-change loggers, if shortened, in full."""
    request = pc.match_substring(message, "Completed request:")
    short = pc.equal(logger, "logger")
    state = pc.or_(pc.ends_with(logger, "change.logger"), pc.and_(short, pc.invert(request)))
    asked = pc.or_(pc.ends_with(logger, "request.logger"), pc.and_(short, request))
    return pc.if_else(state, "state.change.logger", pc.if_else(asked, "kafka.request.logger", logger))
